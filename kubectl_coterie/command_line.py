"""The command line of `kubectl coterie`: its commands, and how each ends.

A command is a module of `kubectl_coterie.commands` of its name, loaded when it is called, so that
`--help` and completion are fast. Exit codes are kubectl's: 0 done, 1 an error or a check that
failed; 130 after ctrl-C. Errors are one sentence on standard error.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from kubectl_coterie.errors import CliError
from kubectl_coterie.options import make_parser
from topology.cli.program import fail, reader_may_leave

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence

    from topology.cli.program import Parser

__all__ = ["complete", "main"]

FAILED = 1
INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""
_NO_FILES, _IN_FOLDER = ":4", ":6"
"""Directives of cobra's completion: shells add no file names, and no blank after a folder (cobra
v1.9 ShellCompDirectiveNoFileComp and NoSpace)."""


class _Command(Protocol):
    """A module of `kubectl_coterie.commands`."""

    def run(self, given: Namespace) -> int:
        """Do it; the exit code. Raises `CliError`."""
        ...


class _Names(Protocol):
    """`kubectl_coterie.commands.known_names`."""

    def offered(self, argument: str, words: Sequence[str]) -> Iterable[str]:
        """The names that an argument may have."""
        ...


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and leave it with its exit code, by `SystemExit`."""
    given = _parser().parse_args(arguments)
    code = 0
    try:
        module = import_module(f"kubectl_coterie.commands.{given.command.replace('-', '_')}")
        with reader_may_leave():
            code = cast("_Command", module).run(given)
    except CliError as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


def complete(arguments: Sequence[str] | None = None) -> NoReturn:
    """Print the candidates for the last of the words, as kubectl reads them.

    Names of nodes and pods come from the cluster, none where it does not answer at once.
    """
    from topology.cli.completion import candidates  # noqa: PLC0415 - only on the tab key

    words = sys.argv[1:] if arguments is None else arguments
    found = candidates(_parser(), _offered, words, os.environ)
    has_folder = any(line.rstrip().endswith("/") for line in found)
    found.append(_IN_FOLDER if has_folder else _NO_FILES)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    raise SystemExit(0)


def _parser() -> Parser:
    parser = make_parser()
    parser.offers = _offered
    return parser


def _offered(argument: str, words: Sequence[str]) -> Iterable[str]:
    """Names of the cluster, for completion."""
    module = import_module("kubectl_coterie.commands.known_names")
    return cast("_Names", module).offered(argument, words)
