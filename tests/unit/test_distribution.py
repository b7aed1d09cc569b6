"""What the distribution declares is what its code imports, and the locks hold nothing else."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PACKAGES = ("topology", "kube", "extender", "plugin", "kubectl_coterie")
OWN = {*PACKAGES, "benchmarks"}
FOUND_BY_UVICORN = {"httptools", "uvloop"}
DISTRIBUTIONS = packages_distributions()


def normal(name: str) -> str:
    """A distribution's name as indexes compare it, without version, extras or marker."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~;\[]", name, maxsplit=1)[0]).lower()


@cache
def imports() -> grimp.ImportGraph:
    """What our modules may import when they run, in functions too; of others the top-level name."""
    return grimp.build_graph(
        *OWN, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def imported_modules(module: str) -> set[str]:
    """What one of our modules imports, and the packages that these are in."""
    direct = imports().find_modules_directly_imported_by(module)
    parts = [name.split(".") for name in {module, *direct}]
    return direct | {".".join(one[:i]) for one in parts for i in range(1, len(one))}


def imported(*modules: str) -> set[str]:
    """Distributions that some of our modules, and all of ours that these import, need to run."""
    found: set[str] = set()
    seen: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        top, _, _ = module.partition(".")
        if top in OWN:
            todo += imported_modules(module)
        elif top not in {"tests", *sys.stdlib_module_names}:
            found.add(normal(DISTRIBUTIONS.get(top, [top])[0]))
    return found


def of_package(package: str) -> set[str]:
    """All modules of a package."""
    return {package, *imports().find_descendants(package)}


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


PROGRAMS = {"extender": "extender.__main__", "plugin": "plugin.__main__"}
CORE = declared(PROJECT["project"]["dependencies"])
EXTRAS = {n: declared(rs) for n, rs in PROJECT["project"]["optional-dependencies"].items()}
EVERY = CORE.union(*EXTRAS.values())
BENCH = declared(PROJECT["dependency-groups"]["bench"])


@pytest.mark.parametrize(("extra", "module"), PROGRAMS.items())
def test_a_program_needs_exactly_its_extra(extra, module):
    """What it imports anywhere is declared for it, and its image carries nothing for others."""
    needed = imported(module)
    needed |= FOUND_BY_UVICORN if "uvicorn" in needed else set()
    assert needed == CORE | EXTRAS[extra]


def test_what_people_run_needs_no_extra_but_for_drawings():
    """Who installs the wheel has both command lines; pictures need one library more."""
    assert imported("topology.__main__", *of_package("kubectl_coterie")) == CORE | EXTRAS["draw"]


def test_no_code_lies_beside_the_programs():
    """Else what it imports would be declared nowhere."""
    modules = [m for folder in PACKAGES for m in of_package(folder)]
    assert imported(*modules) | FOUND_BY_UVICORN == EVERY


def test_benchmarks_import_exactly_what_is_declared():
    """The demo and the benchmarks may use more than the programs, but that is declared too."""
    assert imported(*of_package("benchmarks")) - EVERY == BENCH


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_pin_and_hash_everything(lock):
    """`make setup` must bring the same bytes everywhere, whichever index pip uses."""
    pins = pinned(lock)
    assert [name for name in pins if not re.match(r"[a-z0-9._-]+==\S+( ;.*)?$", name)] == []
    assert [name for name, hashes in pins.items() if not hashes] == []
    assert "://" not in lock.read_text(encoding="utf-8")


def locked(lock: str) -> dict[str, str]:
    """Version by distribution."""
    pins = (name.partition(" ;")[0].split("==") for name in pinned(ROOT / "requirements" / lock))
    return {normal(name): version for name, version in pins}


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        pytest.param("extender.txt", CORE | EXTRAS["extender"], id="extender"),
        pytest.param("plugin.txt", CORE | EXTRAS["plugin"], id="plugin"),
        pytest.param("dev.txt", EVERY | BENCH, id="programs and benchmarks"),
    ],
)
def test_locks_hold_what_is_declared(lock, wanted):
    """A dependency that was added without `make lock` would be missing on a fresh clone."""
    assert wanted - locked(lock).keys() == set()


@pytest.mark.parametrize(
    ("program", "others"),
    [
        ("extender", {"grpcio", "nvidia-ml-py", "matplotlib", "rich", "typer"}),
        ("plugin", {"fastapi", "uvicorn", "matplotlib", "rich", "typer"}),
    ],
)
def test_an_image_ships_what_was_tested_and_nothing_of_others(program, others):
    """The versions of the development lock; not through some dependency's own dependency either."""
    shipped = locked(f"{program}.txt")
    assert shipped.items() <= locked("dev.txt").items()
    assert others & shipped.keys() == set()


@pytest.mark.parametrize("target", PROJECT["project"]["scripts"].values())
def test_programs_can_be_started(target):
    """A console script whose function was renamed fails only on the user's machine."""
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("module", PROGRAMS.values(), ids=PROGRAMS)
def test_each_program_starts_from_its_entry_point(module, monkeypatch, capsys):
    """The installed scripts call these functions."""
    monkeypatch.setattr(sys, "argv", ["program", "--version"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main()
    assert not ended.value.code
    assert capsys.readouterr().out.strip()
