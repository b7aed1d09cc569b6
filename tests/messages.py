"""The exact wording of messages stands in one file for each package of tests, `messages.json`.

A test hands what it met to the fixture `check_message`, with what the message must name: the
object, the value. The sentence itself is compared with the file, which `--update-golden` rewrites,
so that another wording changes the product and that file, and no test.
`tests/unit/test_messages.py` judges all of them: each names what was expected.
"""

from __future__ import annotations

import fcntl
import json
import re
from pathlib import Path
from typing import Protocol

import pytest

__all__ = ["CheckMessage", "check_message", "message_files", "prune", "read_messages"]

ROOT = Path(__file__).resolve().parent
FILE_NAME = "messages.json"
DEPTH = 2
"""A file's folder below `tests`: the tier and the package, as in `unit/topology`."""
_FOREIGN = re.compile(r"((?:not|no) (?:JSON|TOML)) \(.*\)", re.DOTALL)
"""What a parser of others says follows in parentheses; its wording is its own."""
_FURTHER = re.compile(r" #\d+$")
"""What a test's second message and those after it have behind the test's name."""


def message_files() -> list[Path]:
    """Every file of messages."""
    return sorted(ROOT.glob(f"*/*/{FILE_NAME}"))


def read_messages(path: Path) -> dict[str, str]:
    """The messages of one package by the test that meets them."""
    read: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return read


class CheckMessage(Protocol):
    """The type of the fixture `check_message`."""

    def __call__(self, message: object, /, *names: object) -> None:
        """Compare a message (or an exception's); it must hold each of `names`."""


@pytest.fixture
def check_message(request: pytest.FixtureRequest) -> CheckMessage:
    """Compare a message with the file of the test's package."""
    is_update = bool(request.config.getoption("--update-golden"))
    parts = request.path.relative_to(ROOT).parts
    path = ROOT.joinpath(*parts[:DEPTH], FILE_NAME)
    test = f"{'/'.join(parts[DEPTH:])}::{request.node.name}"
    n_checked = 0

    def check(message: object, /, *names: object) -> None:
        nonlocal n_checked
        n_checked += 1
        text = _FOREIGN.sub(r"\1 (...)", str(message))
        if "tmp_path" in request.fixturenames:
            text = text.replace(str(request.getfixturevalue("tmp_path")), "TMP_PATH")
        for name in names:
            assert str(name) in text
        key = test if n_checked == 1 else f"{test} #{n_checked}"
        if is_update:
            _update(path, key, text)
        assert read_messages(path).get(key) == text, (
            f"{path} differs; `make golden` rewrites it if meant"
        )

    return check


def prune(tests: set[str]) -> None:
    """Drop the messages of tests that are no more; `tests` are the node ids of a whole run."""
    for path in message_files():
        folder = path.parent.relative_to(ROOT.parent).as_posix()
        messages = read_messages(path)
        kept = {
            key: text
            for key, text in messages.items()
            if f"{folder}/{_FURTHER.sub('', key)}" in tests
        }
        if kept != messages:
            path.write_text(_written(kept), encoding="utf-8")


def _update(path: Path, key: str, text: str) -> None:
    """Several workers may write to one file."""
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        messages = json.loads(path.read_text(encoding="utf-8") or "{}")
        if messages.get(key) != text:
            path.write_text(_written(messages | {key: text}), encoding="utf-8")


def _written(messages: dict[str, str]) -> str:
    return json.dumps(dict(sorted(messages.items())), indent=1, ensure_ascii=False) + "\n"
