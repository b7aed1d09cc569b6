"""What can be completed on a program's command line, read from its parser.

What it answers: the commands, and for each the options, the arguments and the words that each
takes. It knows no shell. Commands of commands are not described: no program has them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["FILE", "Argument", "Command", "Described", "describe"]

FILE: Final = "FILE"
"""Among the words of an argument: the name of a file may stand there."""
_FILES = frozenset({FILE, "OUT", "PATH"})
"""What an argument is called that is the name of a file."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An option with its spellings, or a positional argument, which has none."""

    name: str
    flags: tuple[str, ...]
    about: str
    label: str
    words: tuple[str, ...]
    takes_value: bool
    takes_file: bool
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a program; the program itself is the one without a name."""

    name: str
    about: str
    options: tuple[Argument, ...]
    positions: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A program: what may stand before a command, and the commands."""

    name: str
    root: Command
    commands: tuple[Command, ...]


def describe(parser: argparse.ArgumentParser, words: Mapping[str, Sequence[str]]) -> Described:
    """Describe a program.

    `words` are those that an argument takes beside what its parser says, by the name that the
    argument has in what is parsed; `FILE` among them stands for the name of any file.

    >>> parser = argparse.ArgumentParser(prog="see")
    >>> _ = parser.add_argument("--colour", metavar="auto|never")
    >>> describe(parser, {}).root.options[1].words
    ('auto', 'never')
    """
    commands = [
        _command(name, own, words)
        for action in _actions(parser)
        if action.nargs == argparse.PARSER
        for name, own in cast("dict[str, argparse.ArgumentParser]", action.choices).items()
    ]
    return Described(parser.prog, _command("", parser, words), tuple(commands))


def _command(
    name: str, parser: argparse.ArgumentParser, words: Mapping[str, Sequence[str]]
) -> Command:
    arguments = [
        _argument(action, words.get(action.dest, ()), parser.prog)
        for action in _actions(parser)
        if action.help != argparse.SUPPRESS and action.nargs != argparse.PARSER
    ]
    return Command(
        name,
        (parser.description or "").partition("\n")[0],
        tuple(one for one in arguments if one.flags),
        tuple(one for one in arguments if not one.flags),
    )


def _argument(action: argparse.Action, words: Iterable[str], program: str) -> Argument:
    label = str(action.metavar or action.dest)
    known = [*_own_words(action, label), *words]
    return Argument(
        name=action.dest,
        flags=tuple(action.option_strings),
        about=" ".join(((action.help or "") % {**vars(action), "prog": program}).split()),
        label=label,
        words=tuple(word for word in known if word != FILE),
        takes_value=action.nargs != 0,
        takes_file=FILE in known,
        is_repeated=action.nargs in {"*", "+"} or type(action).__name__ == "_AppendAction",
    )


def _own_words(action: argparse.Action, label: str) -> list[str]:
    """What the parser says that an argument takes."""
    choices = cast("Iterable[object] | None", action.choices)
    if choices is not None:
        return [str(one) for one in choices]
    if label == "BOOL":
        return ["true", "false"]
    parts = label.removesuffix("[,...]").split("|")
    return [
        FILE if part in _FILES else part
        for part in parts
        if part in _FILES or (len(parts) > 1 and part != part.upper())
    ]


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no other way
