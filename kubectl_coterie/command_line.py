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
from topology.cli.completion import FILE, argument_at
from topology.cli.completion import complete as complete_words
from topology.cli.program import fail

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

__all__ = ["complete", "main"]

FAILED = 1
INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""
_NO_FILES = ":4"
"""The directive of cobra's completion after which shells offer no file names
(cobra v1.9 ShellCompDirectiveNoFileComp); 0 offers them."""


class _Command(Protocol):
    """A module of `kubectl_coterie.commands`."""

    def run(self, given: Namespace) -> int:
        """Do it; the exit code. Raises `CliError`."""
        ...


class _Names(Protocol):
    """`kubectl_coterie.commands.known_names`."""

    def offered(self, argument: str, words: Sequence[str]) -> dict[str, Sequence[str]]:
        """The names that an argument may have."""
        ...


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and leave it with its exit code, by `SystemExit`."""
    given = make_parser().parse_args(arguments)
    try:
        module = import_module(f"kubectl_coterie.commands.{given.command.replace('-', '_')}")
        code = cast("_Command", module).run(given)
        sys.stdout.flush()
    except CliError as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader left, as `head` does; the interpreter would flush again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    raise SystemExit(code)


def complete(arguments: Sequence[str] | None = None) -> NoReturn:
    """Print the candidates for the last of the words, as kubectl reads them.

    Names of nodes and pods come from the cluster, none where it does not answer at once.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = make_parser()
    offered: dict[str, Sequence[str]] = {}
    argument = argument_at(parser, words)
    if argument is not None:
        module = import_module("kubectl_coterie.commands.known_names")
        offered = cast("_Names", module).offered(argument, words)
    found = complete_words(parser, words, offered)
    for word, about in found:
        if word != FILE:
            sys.stdout.write(f"{word}\t{about}\n" if about else f"{word}\n")
    sys.stdout.write(":0\n" if any(word == FILE for word, _ in found) else f"{_NO_FILES}\n")
    raise SystemExit(0)
