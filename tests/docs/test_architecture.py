"""docs/architecture.md shows the packages as they describe themselves."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import TYPE_CHECKING

from tests.docs.markdown import ROOT, section

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "architecture.md"
PROGRAMS = ("topology", "kube", "extender", "plugin", "kubectl_coterie")
LONGEST_CELL = 200
"""Two or three short sentences; a module's opening has room for the rest."""


def described(folder: Path) -> tuple[str, str]:
    """What a package is, and what it must not know: the two paragraphs of its docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    first, _, second = text.partition("\n\n")
    return " ".join(first.split()), " ".join(second.split())


def packages(root: str) -> list[Path]:
    """The folders of modules under a top-level package, generated ones left out."""
    return sorted(
        path.parent for path in (ROOT / root).glob("*/**/__init__.py") if path.parent.name != "pb"
    )


def rendered() -> str:
    """One table per program."""
    parts: list[str] = []
    for root in PROGRAMS:
        rows = [
            f"| `{path.relative_to(ROOT).as_posix()}` | {' | '.join(described(path))} |\n"
            for path in packages(root)
        ]
        head = "| package | what it is | what it knows, and what not |\n|---|---|---|\n"
        parts.append(f"\n### `{root}/`\n\n{described(ROOT / root)[0]}\n\n{head}{''.join(rows)}")
    return "".join(parts) + "\n"


def test_packages_are_generated(check_golden):
    """A package that comes or goes must show on the page; `make golden` rewrites it."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), "packages")
    check_golden(PAGE, before + rendered() + after)


def test_every_package_says_what_it_is_and_what_it_must_not_know():
    """A stranger finds the room by these two sentences."""
    lacking = [
        str(path) for root in PROGRAMS for path in packages(root) if not all(described(path))
    ]
    long = [
        str(path)
        for root in PROGRAMS
        for path in packages(root)
        if any(len(cell) > LONGEST_CELL for cell in described(path))
    ]
    assert (lacking, long) == ([], [])


def test_the_page_names_tests_and_modules_that_exist():
    """An invariant is held by a test only while that test is there."""
    page = PAGE.read_text(encoding="utf-8")
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    names = set(re.findall(r"`(test_\w+|Test\w+)`", page))
    # A state machine's test is an assignment: `TestX = Machine.TestCase`.
    defined = set(re.findall(r"(?:def |class |^)(test_\w+|Test\w+)", tests, re.MULTILINE))
    roots = "|".join((*PROGRAMS, "tests", "deploy", "docs"))
    files = re.findall(rf"`((?:{roots})/[\w/.-]+)`", page)
    assert names - defined == set()
    assert [one for one in files if not (ROOT / one).exists()] == []


def test_whoever_imports_aiohttp_is_named():
    """Those whom the import contracts permit it, and no other."""
    (sentence,) = re.findall(r"^Only .*\baiohttp\b.*$", PAGE.read_text("utf-8"), re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    permitted = {
        module.replace(".", "/") + ".py"
        for contract in contracts["tool"]["importlinter"]["contracts"]
        for module, _, library in (
            one.partition(" -> ") for one in contract.get("ignore_imports", ())
        )
        if library == "aiohttp"
    }
    named = re.findall(r"`([\w/.]+/[\w/.]+)`", sentence)
    covered = {name: {one for one in permitted if one.startswith(name)} for name in named}
    assert all(covered.values())
    assert set().union(*covered.values()) == permitted
