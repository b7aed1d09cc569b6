"""The table of docs/architecture.md, "Where to change what", holds: its additions, made in a copy.

A reason, a pod annotation, a metric and a route are added where the table says. What is generated
is then out of date and its tests fail; rewritten, all of them pass. The files that name an addition
are counted, with the code that acts on it and its test for the first two.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.markdown import ROOT

if TYPE_CHECKING:
    from pathlib import Path

COPIED = (
    *("topology", "kube", "extender", "plugin", "kubectl_coterie", "deploy", "docs"),
    *("tests/docs", "tests/unit/extender", "tests/unit/topology", "tests/unit/deploy"),
)
FILES = ("pyproject.toml", *(f"tests/{path.name}" for path in (ROOT / "tests").glob("*.py")))
CODE_AND_TEST = 2

REASON = """    SLOT_TAKEN = _by_eviction("no free slot", "wait, or use another", "no free slot")
    SLOT_APART = _when_pods_end("slots are apart", "wait", "slots are apart")

    # What only the extender knows about a node.
"""
ANNOTATION = '''    PodKey(
        PREFIX + "cooling",
        field="cooling",
        choices=tuple(Strength),
        default="cooling does not count",
        summary="Whether the GPUs should share a fan.",
        example="required",
    ),
)
"""Every key, in the order'''
METRIC = """        self._slots = self._gauge("slots", "Slots that are free; 0 is a fault.")
        self._ready = self._gauge("""
ROUTE = '''    @app.get("/slots", response_class=PlainTextResponse)
    async def slots() -> str:
        """The number of free slots."""
        return "1"

    @app.head("/livez", include_in_schema=False)
'''
EDITS = {
    "extender/protocol/reasons.py": {
        "    # What only the extender knows about a node.\n": REASON,
    },
    "topology/annotations/pod_keys.py": {
        "    nic: NicRule = NicRule.UNSET\n": (
            "    nic: NicRule = NicRule.UNSET\n    cooling: Strength | None = None\n"
        ),
        ')\n"""Every key, in the order': ANNOTATION,
    },
    "extender/observe/metrics.py": {"        self._ready = self._gauge(": METRIC},
    "extender/http/routes.py": {'    @app.head("/livez", include_in_schema=False)\n': ROUTE},
}
TESTS = (
    "tests/docs/test_operator_guide.py",
    "tests/docs/test_operations.py",
    "tests/docs/test_configuration.py",
    "tests/unit/deploy/test_policies.py",
    "tests/unit/extender/protocol",
    "tests/unit/topology/annotations",
)
REWRITES = re.compile(r"`\.venv/bin/pytest (.*) --update-golden`")
OUT_OF_DATE = {
    "test_reasons_are_generated",
    "test_pod_annotations_are_generated",
    "test_keys_and_values_are_generated",
    "test_metrics_are_generated",
    "test_routes_are_generated",
}


def run(copy: Path, *arguments: str) -> tuple[int, str]:
    """Run these tests in the copy; the exit code, and what pytest printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *TESTS, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def naming(copy: Path, words: str) -> list[str]:
    """The files that differ from this tree and have the words."""
    changed = (
        path.relative_to(copy)
        for path in copy.rglob("*")
        if path.is_file() and path.suffix in {".py", ".md", ".yaml", ".json"}
    )
    return [
        str(path)
        for path in changed
        if (text := (copy / path).read_text("utf-8")) != (ROOT / path).read_text("utf-8")
        and re.search(words, text)
    ]


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """The copy with all additions, first what its tests say, then with what is generated."""
    copy = tmp_path_factory.mktemp("places")
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name)
    for name in FILES:
        shutil.copy2(ROOT / name, copy / name)
    for name in ("README.md", "tests/shared"):
        (copy / name).symlink_to(ROOT / name)
    for name, edits in EDITS.items():
        text = (copy / name).read_text("utf-8")
        for old, new in edits.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        (copy / name).write_text(text, encoding="utf-8")
    forgotten = run(copy)
    return copy, forgotten, run(copy, "--update-golden")


def test_what_is_forgotten_fails(changed):
    """Each generated page and policy has a test that names it."""
    _, (code, printed), _ = changed
    failed = set(re.findall(r"^FAILED \S+::(\w+)", printed, re.MULTILINE))
    assert code == 1, printed
    assert failed >= OUT_OF_DATE, printed


def test_the_page_names_what_rewrites():
    """Its command has each folder of these tests."""
    (command,) = REWRITES.findall((ROOT / "docs/architecture.md").read_text("utf-8"))
    assert [one for one in TESTS if not one.startswith(tuple(command.split()))] == []


def test_nothing_else_is_needed(changed):
    """What the table names suffices."""
    *_, (code, printed) = changed
    assert code == 0, printed


@pytest.mark.parametrize(
    ("words", "n_others", "most"),
    [
        pytest.param(r"SLOT_TAKEN|slot_taken", CODE_AND_TEST, 5, id="a reason"),
        pytest.param(r"cooling", CODE_AND_TEST, 8, id="a pod annotation"),
        pytest.param(r"extender_slots|_slots = ", 0, 2, id="a metric"),
        pytest.param(r"/slots", 0, 2, id="a route"),
    ],
)
def test_an_addition_touches_few_files(changed, words, n_others, most):
    """More places are more that a stranger forgets."""
    places = naming(changed[0], words)
    assert places
    assert len(places) + n_others <= most, places
