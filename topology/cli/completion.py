"""Completion of a program's command line, by argcomplete.

On the tab key the shell starts the program with what was typed in its environment; `candidates`
answers kubectl, which gives the words as arguments. The parser says what may stand there, and the
program's `Offers` what its parser does not know. `topology.cli.program` loads this where a shell
asks, since it takes longer to load than all else there.
"""

from __future__ import annotations

import io
import shlex
from typing import TYPE_CHECKING, TypeAlias

from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser
    from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence

__all__ = ["Offers", "answer_shell", "candidates", "script"]

Offers: TypeAlias = "Callable[[str, Sequence[str]], Iterable[str]]"
"""Words that an argument of this name may have behind these, which the parser does not know."""
_FILES = frozenset({"FILE", "OUT", "PATH"})
"""What an argument is called that is the name of a file."""


class _Finder(CompletionFinder):
    def _init_debug_stream(self) -> None:
        """Leave descriptor 9, which argcomplete would take, to whom it belongs."""


def script(program: str, shell: str) -> str:
    """What bash, zsh or fish reads, to complete this program."""
    return shellcode([program], use_defaults=False, shell=shell)


def answer_shell(  # pragma: no cover - it ends the process, which the shells' tests start
    parser: ArgumentParser, offers: Offers, environment: Mapping[str, str]
) -> None:
    """Write the candidates where the shell's script reads them, and end the program."""
    words = _Words(offers, environment)
    _Finder()(parser, always_complete_options=False, default_completer=words)


def candidates(
    parser: ArgumentParser,
    offers: Offers,
    words: Sequence[str],
    environment: MutableMapping[str, str],
) -> list[str]:
    """The candidates for the last word, each with a tab and what it is.

    `environment` is the process's, where argcomplete reads the command line; it is as it was
    afterwards.
    """
    line = shlex.join([parser.prog, *words[:-1], ""]).removesuffix("''") + "".join(words[-1:])
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "fish",
        "_ARGCOMPLETE_DFS": "\t",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    found = io.StringIO()
    environment.update(asked)
    try:
        _Finder()(
            parser,
            always_complete_options=False,
            default_completer=_Words(offers, environment),
            exit_method=_go_on,
            output_stream=found,
        )
    finally:
        for key in asked:
            del environment[key]
    return found.getvalue().splitlines()


def _go_on(_code: int) -> None:
    """Where the program would end: the caller has the candidates."""


class _Words(BaseCompleter):
    """What an argument takes whose parser has no `choices`, by how its value is called."""

    def __init__(self, offers: Offers, environment: Mapping[str, str]) -> None:
        line, end = environment["COMP_LINE"], int(environment["COMP_POINT"])
        self._offers, self._before = offers, split_line(line, end)[3][1:]

    def __call__(self, *, prefix: str, action: Action, **_: object) -> list[str]:
        label = str(action.metavar or action.dest)
        parts = label.removesuffix("[,...]").split("|")
        found = list(self._offers(action.dest, self._before))
        if label == "BOOL":
            found += ["true", "false"]
        elif len(parts) > 1:
            found += [part for part in parts if part != part.upper()]
        if not _FILES.isdisjoint(parts):
            found += FilesCompleter()(prefix)
        return found
