"""The public names of each module: listed, sorted, and the only ones that others use."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("topology", "kube", "extender", "plugin", "kubectl_coterie")
GENERATED = "pb"  # protoc names things its own way
READERS = (*PACKAGES, "benchmarks")
ENTRY_POINTS = {"__main__"}


def module_name(path: Path) -> str:
    """Dotted name of a source file of this project."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(folders: tuple[str, ...]) -> list[Path]:
    """Every Python file of the named top-level folders."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if path.parent.name != GENERATED)


MODULES = [module_name(path) for path in sources(PACKAGES) if path.stem not in ENTRY_POINTS]


def order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Place of a name in `__all__`: constants, then classes, then functions, digits as numbers."""
    kind = 0 if name.isupper() else 1 if name.lstrip("_")[:1].isupper() else 2
    digits = re.findall(r"(\d+)|(\D+)", name)
    return kind, [(int(number or 0), text) for number, text in digits]


def is_own(module: ModuleType, name: str) -> bool:
    """Whether a package offers this name itself, rather than as one of its submodules."""
    value = getattr(module, name)
    return not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"


@pytest.mark.parametrize("name", MODULES)
def test_all_names_exist_and_are_sorted(name):
    """`__all__` is what a reader trusts: it must be there, complete to load and easy to scan."""
    module = importlib.import_module(name)
    is_package = hasattr(module, "__path__")
    names = list(getattr(module, "__all__", [] if is_package else ["__all__ is missing"]))
    assert names == sorted(set(names), key=order)
    assert [n for n in names if not hasattr(module, n)] == []


@pytest.mark.parametrize("name", [n for n in MODULES if (ROOT / n.replace(".", "/")).is_dir()])
def test_a_package_lists_exactly_what_it_offers(name):
    """A name that a package holds but does not list would be public by accident."""
    module = importlib.import_module(name)
    offered = {n for n in vars(module) if is_own(module, n)}
    assert set(getattr(module, "__all__", [])) == offered


@pytest.mark.parametrize("path", sources(READERS), ids=module_name)
def test_modules_import_only_listed_names(path):
    """What is absent from `__all__` is private, so no other module may lean on it."""
    private = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module not in MODULES:
            continue
        module = importlib.import_module(node.module)
        listed = set(getattr(module, "__all__", []))
        for alias in node.names:
            is_submodule = f"{node.module}.{alias.name}" in MODULES
            if alias.name not in listed and not is_submodule:
                private.append(f"{node.module}.{alias.name}")
    assert private == []


def test_a_class_name_has_one_meaning():
    """A reader who knows a class by its name need not look which one; private ones may repeat."""
    defined = Counter(
        node.name
        for path in sources(PACKAGES)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, n in defined.items() if n > 1] == []


def private_names(tree: ast.Module) -> list[str]:
    """Private names that a module imports, or sets or reads by a string."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            names = [one.value for one in node.args if isinstance(one, ast.Constant)]
            found += [part for name in names for part in str(name).split(".")]
    return [name for name in found if name.startswith("_") and not name.startswith("__")]


@pytest.mark.parametrize("path", sources(("tests",)), ids=module_name)
def test_tests_name_nothing_private(path):
    """What ruff's SLF001 does not see; a test of a private name hinders the next change."""
    assert private_names(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_private_names_are_found():
    """By an import, and by the string of a patch."""
    text = 'from a import _b\npatch.setattr("a._c.d", 1)\ngetattr(a, "_e")\na.setattr(b, "__all__")'
    assert private_names(ast.parse(text)) == ["_b", "_c", "_e"]
