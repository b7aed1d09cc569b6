"""The command line of every family of benchmarks: run one or all, show the tables, keep them.

Each benchmark writes `<name>.md`, with environment and date, to the folder that `--out` names.
Exit codes: 0 done, 1 a benchmark could not run (the message says why), 2 usage.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import BenchmarkError
from benchmarks.report import read_environment, to_text, write_results

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.report import ResultTable

__all__ = ["make_parser", "run_program"]

DEFAULT_OUT = Path(__file__).resolve().parent / "results"


def make_parser(program: str, names: Sequence[str], description: str) -> ArgumentParser:
    """The options that all have; a family of one benchmark has no name to choose."""
    parser = ArgumentParser(f"python -m {program}", description=description)
    if len(names) > 1:
        choices = [*names, "all"]
        parser.add_argument("name", nargs="?", choices=choices, default="all", help="Which one.")
    else:
        parser.set_defaults(name=names[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="Folder for the results.")
    parser.add_argument("--quick", action="store_true", help="A smoke run on less data.")
    return parser


def run_program(
    parser: ArgumentParser,
    runners: Mapping[str, Callable[[Namespace], tuple[ResultTable, ...]]],
    arguments: Sequence[str] | None = None,
    *,
    facts: Mapping[str, str] | None = None,
    prefix: str = "",
) -> int:
    """Run what the arguments name, one after another; returns the exit code.

    `facts` are said of the environment, `prefix` is put before the files' names.
    """
    options = parser.parse_args(arguments)
    names = list(runners) if options.name == "all" else [options.name]
    said = {**(facts or {}), **({"run": "quick"} if options.quick else {})}
    environment = read_environment(datetime.now(tz=UTC).isoformat(timespec="seconds"), said)
    try:
        for name in names:
            print(f"{name} ...", flush=True)
            tables = runners[name](options)
            print("\n".join(map(to_text, tables)))
            path = options.out / f"{prefix}{name}.md"
            command = parser.prog if len(runners) == 1 else f"{parser.prog} {name}"
            write_results(path, command, tables, environment)
            print(f"{name}: written to {path}", flush=True)
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0
