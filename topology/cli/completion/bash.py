"""The script for bash, from version 3.2 on, which macOS has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.cli.completion.described import Argument, Command, Described

__all__ = ["bash_script"]

_SCRIPT = """\
# bash completion of {program}
{function}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    local command="" word words="" files=""
    # bash splits --option=value into three words.
    if [ "$current" = "=" ]; then
        current=""
    elif [ "$previous" = "=" ]; then
        previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}"; do
        case $word in
            {commands}) command=$word && break ;;
        esac
    done
    case "$command $previous" in
{values}
        *)
            case "$command $current" in
{others}
            esac
            ;;
    esac
    local IFS=$'\\n'
    COMPREPLY=($(compgen ${{files:+-f}} -W "${{words// /$IFS}}" -- "$current"))
}}
complete -o filenames -F {function} {program}
"""


def bash_script(program: Described) -> str:
    """Write the script."""
    all_of = [program.root, *program.commands]
    values: dict[str, list[str]] = {}
    for command in all_of:
        for option in command.options:
            if option.takes_value:
                cases = [f'"{command.name} {flag}"' for flag in option.flags]
                values.setdefault(_offer([option]), []).extend(cases)
    return _SCRIPT.format(
        program=program.name,
        function=f"_{program.name.replace('-', '_')}",
        commands="|".join(one.name for one in program.commands) or "''",
        values="\n".join(f"        {'|'.join(cases)}) {do};;" for do, cases in values.items()),
        others="\n".join(
            f"                {line}" for one in all_of for line in _cases(one, program)
        ),
    )


def _cases(command: Command, program: Described) -> Iterator[str]:
    """What stands where no value of an option does."""
    flags = [flag for one in command.options for flag in one.flags if flag.startswith("--")]
    yield f'"{command.name} -"*) words="{" ".join(flags)}" ;;'
    if not command.name and program.commands:
        yield f'" "*) words="{" ".join(one.name for one in program.commands)}" ;;'
    elif command.positions:
        yield f'"{command.name} "*) {_offer(command.positions)};;'


def _offer(arguments: tuple[Argument, ...] | list[Argument]) -> str:
    """Set what is offered: words, files, both or nothing."""
    words = " ".join(word for one in arguments for word in one.words)
    files = "files=1 " if any(one.takes_file for one in arguments) else ""
    return f'{files}words="{words}" ' if words else files
