"""No module escapes the import contracts of pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("topology", "kube", "extender", "plugin")
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
CONTRACTS = LINTER["contracts"]


def children(package: str) -> set[str]:
    """The modules and packages directly inside a package."""
    found = (path for path in (ROOT / package).iterdir() if path.name != "__init__.py")
    return {
        path.stem for path in found if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))
    }


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_module_has_its_layer(program):
    """A new module or package has a place among the others, or the contract fails."""
    (contract,) = [one for one in CONTRACTS if one.get("containers") == [program]]
    layers = [name.strip("() ") for row in contract["layers"] for name in row.replace("|", ":").split(":")]
    assert sorted(layers) == sorted(children(program))
    assert contract["exhaustive"] is True


def test_cycles_are_looked_for_everywhere():
    """In every package that import-linter reads, at any depth."""
    (contract,) = [one for one in CONTRACTS if one["type"] == "acyclic_siblings"]
    assert contract["ancestors"] == LINTER["root_packages"]
    assert contract.keys() <= {"name", "type", "ancestors"}
