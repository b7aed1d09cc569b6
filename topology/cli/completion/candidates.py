"""The candidates for the last word of a command line.

What it answers: what may stand there, for a shell's protocol that calls the program itself, as
kubectl calls its plugins. It calls nothing and reads nothing: words that only a cluster knows come
from the caller, and `argument_at` says for which argument to look them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.cli.completion.described import FILE, describe

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from topology.cli.completion.described import Argument, Command, Described

__all__ = ["argument_at", "complete"]

_NO_WORDS: Mapping[str, Sequence[str]] = {}


def complete(
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    offered: Mapping[str, Sequence[str]] = _NO_WORDS,
) -> list[tuple[str, str]]:
    """Return the candidates for the last word, each with what it is.

    `words` begin after the program's name. `offered` are words of arguments beside what the parser
    says, by the argument's name. Where the name of a file may stand, `(FILE, ...)` comes last,
    whatever the last word is. Nothing where the words before it are none of the program.

    >>> from argparse import ArgumentParser
    >>> parser = ArgumentParser(prog="see")
    >>> _ = parser.add_argument("--colour", metavar="auto|never", help="Of the text.")
    >>> complete(parser, ["--c"]), complete(parser, ["--colour", "n"])
    ([('--colour', 'Of the text.')], [('never', '')])
    """
    place = _place(describe(parser, offered), words)
    current = words[-1] if words else ""
    found = [one for one in place.candidates if one[0].startswith(current)]
    argument = place.argument
    if argument is not None and argument.takes_file:
        found.append((FILE, argument.about))
    return found


def argument_at(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """Return the name of the argument whose value the last word is, None for any other word.

    A command and an option's own name are no values.
    """
    argument = _place(describe(parser, _NO_WORDS), words).argument
    return None if argument is None else argument.name


@dataclass(frozen=True, slots=True)
class _Place:
    """What the last word may be: one of some words, the value of an argument, or both."""

    candidates: tuple[tuple[str, str], ...] = ()
    argument: Argument | None = None


@dataclass(slots=True)
class _Before:
    """What the words before the last one leave to expect."""

    command: Command
    is_chosen: bool = False
    """A command was given, or there is none to give."""
    n_positions: int = 0
    open_option: Argument | None = None
    """An option whose value is the next word."""
    has_ended: bool = False
    """`--` was given: no option follows."""
    is_wrong: bool = False


def _place(program: Described, words: Sequence[str]) -> _Place:
    before = _read(program, words[:-1])
    current = words[-1] if words else ""
    if before.is_wrong:
        return _Place()
    if before.open_option is not None:
        return _value(before.open_option)
    if current.startswith("-") and not before.has_ended:
        return _option_or_value(before.command, current)
    if not before.is_chosen:
        return _Place(tuple((one.name, one.about) for one in program.commands))
    return _position(before.command.positions, before.n_positions)


def _option_or_value(command: Command, current: str) -> _Place:
    """What begins with a hyphen: the name of an option, or `--option=value`."""
    flag, joined, _ = current.partition("=")
    if not joined:
        return _Place(tuple((flag, one.about) for one in command.options for flag in _names(one)))
    option = _option(command, flag)
    return _Place() if option is None else _value(option, f"{flag}=")


def _position(positions: Sequence[Argument], n_before: int) -> _Place:
    if n_before < len(positions):
        return _value(positions[n_before])
    return _value(positions[-1]) if positions and positions[-1].is_repeated else _Place()


def _read(program: Described, words: Sequence[str]) -> _Before:
    commands = {one.name: one for one in program.commands}
    before = _Before(program.root, is_chosen=not commands)
    for word in words:
        if before.open_option is not None:
            before.open_option = None
        elif word.startswith("-") and len(word) > 1 and not before.has_ended:
            before.has_ended = word == "--"
            option = _option(before.command, word)
            before.open_option = option if option is not None and option.takes_value else None
        elif before.is_chosen:
            before.n_positions += 1
        elif word in commands:
            before.command, before.is_chosen = commands[word], True
        else:
            before.is_wrong = True
    return before


def _option(command: Command, flag: str) -> Argument | None:
    return next((one for one in command.options if flag in one.flags), None)


def _names(option: Argument) -> list[str]:
    """The long spellings, or the short ones of an option that has no other."""
    return [flag for flag in option.flags if flag.startswith("--")] or list(option.flags)


def _value(argument: Argument, prefix: str = "") -> _Place:
    return _Place(tuple((f"{prefix}{word}", "") for word in argument.words), argument)
