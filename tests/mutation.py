"""Which changes of the deciding code no test notices: a sampled mutation check.

Counts, of a seeded sample of small faults (a comparison turned round, `and` for `or`, a number off
by one, a condition negated, a sum for a difference), how many the tests of that code find. Each
fault is made in a copy of the checkout, which its tests then run in; the checkout is never changed.
A fault whose tests run out of time counts as found.

Usage: python -m tests.mutation [--sample N] [--seed N] [--source CHECKOUT] [--floor PERCENT]
Exit codes: 0 done, 1 the score is below the floor or the tests fail without a fault, 2 usage.
"""

from __future__ import annotations

import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Mutant", "main", "mutants_of"]

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    "topology/select": ("tests/unit/topology/select", "topology/select"),
    "extender/state/accounting.py": ("tests/unit/extender/state",),
}
"""Code, and the tests that are meant to hold it."""
COPIED = ("topology", "kube", "extender", "plugin", "tests", "deploy", "pyproject.toml")
TIMEOUT_S = 300
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one fault."""

    line: int
    what: str
    source: str


def mutants_of(source: str) -> Iterator[Mutant]:
    """Every fault of these kinds, one at a time, in the order of the text."""
    tree = ast.parse(source)
    declared = {  # `X | None` is no computation, nor are `frozen=True`, a cache's size, imports
        id(inner)
        for node in ast.walk(tree)
        for held in (
            getattr(node, "annotation", None),
            getattr(node, "returns", None),
            *getattr(node, "decorator_list", ()),
            _for_type_checkers(node),
        )
        if isinstance(held, ast.AST)
        for inner in ast.walk(held)
    }
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in declared:
            continue
        if _fault(node) is None:
            continue
        changed = copy.deepcopy(tree)
        target = list(ast.walk(changed))[index]
        before = _first_line(target)
        fault = _fault(target)
        assert fault is not None
        setattr(target, *fault)
        what = f"{before} -> {_first_line(target)}"
        yield Mutant(getattr(node, "lineno", 0), what, ast.unparse(changed))


def _fault(node: ast.AST) -> tuple[str, object] | None:  # noqa: PLR0911 - a table
    """The field of this node that can be made wrong, and its wrong value."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            return "ops", [COMPARISONS[type(operator)]()]
        case ast.BoolOp(op=operator):
            return "op", ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in OPERATORS:
            return "op", OPERATORS[type(operator)]()
        case ast.Constant(value=bool(value)):
            return "value", not value
        case ast.Constant(value=int(value)):
            return "value", value + 1
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return "test", ast.UnaryOp(ast.Not(), test)
        case _:
            return None


def _for_type_checkers(node: ast.AST) -> ast.AST | None:
    return node if isinstance(node, ast.If) and _first_line(node.test) == "TYPE_CHECKING" else None


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]


def _passes(checkout: Path, tests: tuple[str, ...]) -> bool:
    """Whether the tests pass there; the same examples each time."""
    environment = {
        "CI": "true",
        "PYTHONPATH": str(checkout),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly"]
    command += ["-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=checkout,
            env=os.environ | environment,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main(
    *,
    sample: Annotated[int, typer.Option(min=1, help="Faults for each target.")] = 60,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 1,
    source: Annotated[Path, typer.Option(help="The checkout.")] = ROOT,
    floor: Annotated[float, typer.Option(help="Least score, in percent.")] = 0.0,
) -> None:
    """Print each fault that no test noticed, and the score of each target."""
    scores: list[float] = []
    with tempfile.TemporaryDirectory(prefix="coterie-mutation-") as folder:
        checkout = Path(folder)
        for name in COPIED:
            if (source / name).is_dir():
                shutil.copytree(
                    source / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(source / name, checkout / name)
        for target, tests in TARGETS.items():
            if not _passes(checkout, tests):
                typer.echo(f"{target}: its tests fail without a fault", err=True)
                raise typer.Exit(1)
            scores.append(_score(checkout, target, tests, sample, seed))
    if min(scores) < floor:
        raise typer.Exit(1)


def _score(checkout: Path, target: str, tests: tuple[str, ...], sample: int, seed: int) -> float:
    path = checkout / target
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    sources = {file: file.read_text(encoding="utf-8") for file in files}
    everything = [(file, one) for file in files for one in mutants_of(sources[file])]
    chosen = random.Random(seed).sample(everything, min(sample, len(everything)))  # noqa: S311
    n_found = 0
    for file, mutant in chosen:
        file.write_text(mutant.source, encoding="utf-8")
        is_found = not _passes(checkout, tests)
        file.write_text(sources[file], encoding="utf-8")
        n_found += is_found
        if not is_found:
            typer.echo(f"not found: {file.relative_to(checkout)}:{mutant.line}: {mutant.what}")
    score = 100 * n_found / len(chosen)
    typer.echo(
        f"{target}: {n_found} of {len(chosen)} found ({score:.0f} %), {len(everything)} in all"
    )
    return score


if __name__ == "__main__":
    typer.run(main)
