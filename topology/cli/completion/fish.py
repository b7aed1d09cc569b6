"""The script for fish, from version 3 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.cli.completion.described import Argument, Command, Described

__all__ = ["fish_script"]


def fish_script(program: Described) -> str:
    """Write the script."""
    return "\n".join(
        [
            f"# fish completion of {program.name}",
            f"complete -c {program.name} -f",
            *(
                f"complete -c {program.name}{_condition(command, program)}{rest}"
                for command in (program.root, *program.commands)
                for rest in _rules(command, program)
            ),
            "",
        ]
    )


def _condition(command: Command, program: Described) -> str:
    if command.name:
        return f" -n '__fish_seen_subcommand_from {command.name}'"
    names = " ".join(one.name for one in program.commands)
    return f" -n 'not __fish_seen_subcommand_from {names}'" if names else ""


def _rules(command: Command, program: Described) -> Iterator[str]:
    if not command.name:
        for one in program.commands:
            yield f" -a {one.name} -d {_quoted(one.about)}"
    for option in command.options:
        value = _value(option, " -r" if option.takes_file else " -x") if option.takes_value else ""
        yield f"{_spelling(option)}{value} -d {_quoted(option.about)}"
    for argument in command.positions:
        if argument.words or argument.takes_file:
            yield _value(argument, "")


def _spelling(option: Argument) -> str:
    long = [f" -l {flag[2:]}" for flag in option.flags if flag.startswith("--")]
    short = [f" -s {flag[1:]}" for flag in option.flags if not flag.startswith("--")]
    return "".join(short + long)


def _value(argument: Argument, needs: str) -> str:
    files = " -F" if argument.takes_file else ""
    words = f" -a {_quoted(' '.join(argument.words))}" if argument.words else ""
    return f"{needs}{files}{words}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
