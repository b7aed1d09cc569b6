"""For every test: golden files, the shared recordings, hypothesis without a clock, hangs."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import up_to
from tests.messages import check_message, prune

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
"""Root of the checkout."""

__all__ = ["check_message"]  # a fixture

HANGS_AFTER_S = {
    "cluster": 1800,
    "page": 600,
    "shared": 600,
    "integration": 300,
    "docs": 300,
    "hypothesis": 300,
}
"""After how long a test with this mark, or in this folder, hangs; pyproject.toml has the rest.

Those of the folders start whole programs; a property of hypothesis is tried on many examples.
"""

# A shell without job control starts background commands with SIGINT ignored, which programs that
# tests end by it would inherit; an ignored signal is reset by no exec.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines would make the outcome depend on how busy the machine is. CI draws the same examples
# each time, so that a change is judged by what it changes; other runs draw new ones and find more.
settings.register_profile(
    "coterie",
    deadline=None,
    max_examples=up_to(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("coterie")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one flag that lets tests rewrite what they compare with."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden files and the generated parts of the documentation",
    )


@pytest.hookimpl(trylast=True)  # hypothesis marks its tests in this hook too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each tier its time; its fixtures, which may build the programs, are not counted."""
    for item in items:
        tier = next((name for name in HANGS_AFTER_S if name in item.keywords), None)
        if tier is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANGS_AFTER_S[tier], func_only=True))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where all golden files are rewritten, drop messages of tests that are no more."""
    gc.freeze()  # thousands of tests, which each collection would walk: a tenth of the time
    config = session.config
    if config.getoption("--update-golden") and config.args_source is config.ArgsSource.TESTPATHS:
        prune({item.nodeid for item in session.items})


@pytest.fixture
def memory_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a plugin in this process from walking the objects of all tests to free memory."""
    monkeypatch.setattr("plugin.node_plugin.give_back", lambda: None)


@pytest.fixture(scope="session")
def root() -> Path:
    """Root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of recordings, traces and measurements; only for tests marked `shared`."""
    folder = Path(os.environ.get("COTERIE_SHARED", ROOT.parent / "shared")).resolve()
    if not folder.is_dir():
        pytest.fail(f"{folder} is not there; tests marked 'shared' need it (make test-shared)")
    return folder


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file; with --update-golden, write the file instead."""
    is_update = bool(request.config.getoption("--update-golden"))

    def check(path: Path, text: str) -> None:
        if is_update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        assert text == expected, f"{path} differs; `make golden` rewrites it if this is meant"

    return check
