"""What the distribution declares is what its code imports, and the locks hold nothing else."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
OWN = {"topology", "kube", "extender", "plugin", "benchmarks", "tests"}
FOUND_BY_UVICORN = {"httptools", "uvloop"}
DISTRIBUTIONS = packages_distributions()


def normal(name: str) -> str:
    """A distribution's name as indexes compare it, without version, extras or marker."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~;\[]", name, maxsplit=1)[0]).lower()


def imported(*folders: str) -> set[str]:
    """Distributions outside the standard library that the code of some folders imports."""
    modules: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    modules |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    modules.add(node.module.partition(".")[0])
    foreign = modules - OWN - set(sys.stdlib_module_names)
    return {normal(DISTRIBUTIONS.get(module, [module])[0]) for module in foreign}


def declared(requirements: list[str]) -> set[str]:
    """Names of the distributions in a list of requirements."""
    return {normal(requirement) for requirement in requirements}


def pinned(lock: Path) -> dict[str, list[str]]:
    """A lock as data: each pinned `name==version` with its hashes."""
    pins: dict[str, list[str]] = {}
    for entry in re.split(r"(?<!\\)\n", lock.read_text(encoding="utf-8")):
        if entry and not entry.startswith("#"):
            name, *hashes = entry.split("\\\n")
            pins[name.strip()] = [text.strip() for text in hashes]
    return pins


RUN = declared(PROJECT["project"]["dependencies"])
DRAW = declared(PROJECT["project"]["optional-dependencies"]["draw"])
BENCH = declared(PROJECT["dependency-groups"]["bench"])


def test_programs_import_exactly_what_is_declared():
    """An undeclared import breaks users; a declared one that nobody imports costs them."""
    assert imported("topology", "kube", "extender", "plugin") | FOUND_BY_UVICORN == RUN | DRAW


def test_benchmarks_import_exactly_what_is_declared():
    """The demo and the benchmarks may use more than the programs, but that is declared too."""
    assert imported("benchmarks") - RUN - DRAW == BENCH


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_pin_and_hash_everything(lock):
    """`make setup` must bring the same bytes everywhere, whichever index pip is told to use."""
    pins = pinned(lock)
    assert [name for name in pins if not re.match(r"[a-z0-9._-]+==\S+( ;.*)?$", name)] == []
    assert [name for name, hashes in pins.items() if not hashes] == []
    assert "://" not in lock.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        pytest.param("run.txt", RUN | DRAW, id="programs"),
        pytest.param("dev.txt", RUN | DRAW | BENCH, id="programs and benchmarks"),
    ],
)
def test_locks_hold_what_is_declared(lock, wanted):
    """A dependency that was added without `make lock` would be missing on a fresh clone."""
    names = {normal(name.replace("==", " ")) for name in pinned(ROOT / "requirements" / lock)}
    assert wanted - names == set()


@pytest.mark.parametrize("target", PROJECT["project"]["scripts"].values())
def test_programs_can_be_started(target):
    """A console script whose function was renamed fails only on the user's machine."""
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_module_and_script_are_one_program():
    """`python -m topology` in a checkout and `coterie-topology` must never drift apart."""
    by_module = importlib.import_module("topology.__main__")
    assert by_module.main is importlib.import_module("topology.cli.commands").main
