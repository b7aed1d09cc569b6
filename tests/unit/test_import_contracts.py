"""No module escapes the import contracts of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("topology", "kube", "extender", "plugin")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINTER = PYPROJECT["tool"]["importlinter"]
CONTRACTS = LINTER["contracts"]


def children(package):
    """The modules and packages directly inside a package."""
    found = (ROOT / package).iterdir()
    return {path.stem for path in found if path.suffix == ".py" or any(path.glob("**/*.py"))}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_module_has_its_layer(program):
    """A new module or package has a place among the others, or the contract fails."""
    (contract,) = [one for one in CONTRACTS if one.get("containers") == [program]]
    layers = re.findall(r"\w+", " ".join(contract["layers"]))
    assert sorted(layers) == sorted(children(program) - {"__init__"})
    assert contract["exhaustive"] is True


def test_cycles_are_looked_for_everywhere():
    """In every package that import-linter reads, at any depth."""
    (contract,) = [one for one in CONTRACTS if one["type"] == "acyclic_siblings"]
    assert contract["ancestors"] == LINTER["root_packages"]
    assert contract.keys() <= {"name", "type", "ancestors"}
