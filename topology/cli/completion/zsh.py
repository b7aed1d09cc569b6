"""The script for zsh, from version 5 on: to be sourced after compinit, or a file of $fpath."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topology.cli.completion.described import Argument, Command, Described

__all__ = ["zsh_script"]

_SCRIPT = """\
#compdef {program}
compdef {function} {program}

{function}() {{
    local curcontext="$curcontext" state line
    local -A opt_args
    local -a commands
    _arguments -C{root}
    case $state in
        command)
            commands=({commands}
            )
            _describe -t commands command commands
            ;;
        arguments)
            case $line[1] in
{cases}
            esac
            ;;
    esac
}}

# A file of $fpath is the function itself.
if [ "${{funcstack[1]}}" = "{function}" ]; then
    {function} "$@"
fi
"""
_SPECIAL = re.compile(r"([\\:\[\]])")


def zsh_script(program: Described) -> str:
    """Write the script."""
    root = [spec for option in program.root.options for spec in _option(option)]
    root += [_position(one) for one in program.root.positions]
    if program.commands:
        root += ["'1:command:->command'", "'*::argument:->arguments'"]
    names = [_quoted(f"{one.name}:{_escaped(one.about)}") for one in program.commands]
    return _SCRIPT.format(
        program=program.name,
        function=f"_{program.name}",
        root=_lines(root, 8),
        commands="".join(f"\n{'':16}{name}" for name in names),
        cases="\n".join(_case(one) for one in program.commands),
    )


def _case(command: Command) -> str:
    specs = [spec for option in command.options for spec in _option(option)]
    specs += [_position(one) for one in command.positions]
    return f"{'':16}{command.name}) _arguments{_lines(specs, 20)} ;;"


def _lines(specs: list[str], indent: int) -> str:
    return "".join(f" \\\n{'':{indent}}{spec}" for spec in specs)


def _option(option: Argument) -> list[str]:
    """A specification for each spelling, each of which excludes the others."""
    others = "" if option.is_repeated else f"({' '.join(option.flags)})"
    about = f"[{_escaped(option.about)}]"
    value = f":{option.name}:{_action(option)}" if option.takes_value else ""
    return [
        _quoted(f"{others}{'*' * option.is_repeated}{flag}{_join(flag, option)}{about}{value}")
        for flag in option.flags
    ]


def _join(flag: str, option: Argument) -> str:
    """How a value may follow: in the same word after `=`, after a letter at once, or as a word."""
    if not option.takes_value:
        return ""
    return "=" if flag.startswith("--") else "+"


def _position(argument: Argument) -> str:
    many = "*" if argument.is_repeated else ":"
    return _quoted(f"{many}:{argument.name}:{_action(argument)}")


def _action(argument: Argument) -> str:
    words = " ".join(argument.words)
    if argument.takes_file:
        return f"{{compadd -- {words}; _files}}" if words else "_files"
    return f"({words})" if words else " "


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
