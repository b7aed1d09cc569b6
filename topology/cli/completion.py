"""Completion of a program's commands, options and their choices, for bash.

What it answers: the script that bash sources, made from the program's own parser, so that no option
can be forgotten. The script starts no program, so completion takes no time. It reads no file.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["add_completion", "bash_completion"]

_FILES = frozenset({"FILE", "PATH", "OUT", "POD"})
"""What an argument is called that is the name of a file."""
_SCRIPT = """\
# bash completion: source <({program} --bash-completion)
{function}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    local command="" word words="" files=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}"; do
        case $word in
            {commands}) command=$word && break ;;
        esac
    done
    case "$command $previous" in
{values}
        *)
            case "$command $current" in
{options}
            esac
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen ${{files:+-f}} -W "$words" -- "$current")
}}
complete -o filenames -F {function} {program}
"""


class _PrintCompletion(argparse.Action):
    """Prints the script, as `--version` does its line; `const` are words that may be FILE."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(bash_completion(parser, cast("Sequence[str]", self.const)))
        parser.exit()


def add_completion(parser: argparse.ArgumentParser, names: Sequence[str] = ()) -> None:
    """Add `--bash-completion`; `names` are words that may stand for a file."""
    parser.add_argument(
        "--bash-completion",
        action=_PrintCompletion,
        nargs=0,
        const=tuple(names),
        help="print what bash sources to complete this program's options, and exit",
    )


def bash_completion(parser: argparse.ArgumentParser, names: Sequence[str] = ()) -> str:
    """Write the script for a program with commands; `names` are words that may stand for a file."""
    commands = {
        name: own for action in _arguments(parser) for name, own in _commands(action).items()
    }
    values: dict[str, list[str]] = {}
    options = [f'" "*) words="{" ".join([*commands, *_flags(parser)])}" ;;']
    for command, own in commands.items():
        for action in _arguments(own):
            if action.option_strings and action.nargs != 0:
                cases = [f'"{command} {flag}"' for flag in action.option_strings]
                values.setdefault(_value_words(action), []).extend(cases)
        options.append(f'"{command} -"*) words="{" ".join(_flags(own))}" ;;')
        if any(not a.option_strings and a.metavar in _FILES for a in _arguments(own)):
            options.append(f'"{command} "*) files=1 words="{" ".join(names)}" ;;')
    return _SCRIPT.format(
        program=parser.prog,
        function=f"_{parser.prog.replace('-', '_')}",
        commands="|".join(commands),
        values="\n".join(f"        {'|'.join(cases)}) {do};;" for do, cases in values.items()),
        options="\n".join(f"                {line}" for line in options),
    )


def _value_words(action: argparse.Action) -> str:
    """What bash does for an option's value: its choices, files, or nothing."""
    metavar = str(action.metavar).removesuffix("[,...]")
    if metavar == "BOOL":
        return 'words="true false" '
    if "|" in metavar:
        return f'words="{metavar.replace("|", " ")}" '
    return "files=1 " if metavar in _FILES else ""


def _commands(action: argparse.Action) -> dict[str, argparse.ArgumentParser]:
    choices: object = action.choices  # pyright: ignore[reportUnknownMemberType] - half typed
    is_commands = isinstance(choices, dict)
    return cast("dict[str, argparse.ArgumentParser]", choices) if is_commands else {}


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [
        flag
        for action in _arguments(parser)
        for flag in action.option_strings
        if flag.startswith("--")
    ]


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no other way
