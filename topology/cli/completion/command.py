"""The command `completion bash|zsh|fish`, which prints what the shell reads."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, cast

from topology.cli.completion.bash import bash_script
from topology.cli.completion.described import describe
from topology.cli.completion.fish import fish_script
from topology.cli.completion.zsh import zsh_script
from topology.cli.program import add_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.cli.program import Commands

__all__ = ["add_completion_command"]

_SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
_NO_WORDS: Mapping[str, Sequence[str]] = {}
_LOADING = """\
For this session, in zsh after compinit:
  source <({program} completion bash)
  source <({program} completion zsh)
  {program} completion fish | source

For every session write it to a file that the shell reads:
  bash  ~/.local/share/bash-completion/completions/{program}
  zsh   _{program} in a folder of $fpath
  fish  ~/.config/fish/completions/{program}.fish"""


class _PrintScript(argparse.Action):
    """Prints the script and ends, as `--version` does; `const` is the program and its words."""

    def __call__(
        self, _parser: object, _given: object, shell: object, _flag: object = None
    ) -> None:
        root, words = cast(
            "tuple[argparse.ArgumentParser, Mapping[str, Sequence[str]]]", self.const
        )
        sys.stdout.write(_SCRIPTS[str(shell)](describe(root, words)))
        root.exit()


def add_completion_command(
    commands: Commands,
    parser: argparse.ArgumentParser,
    words: Mapping[str, Sequence[str]] = _NO_WORDS,
) -> None:
    """Add the command to `commands` of the program that `parser` is.

    `words` are those that an argument takes beside what the parser says, by the name that the
    argument has in what is parsed: `{"file": ["dgx-1-v100", FILE]}`.
    """
    about = "print the script that completes this program's commands in a shell"
    completion = add_command(
        commands, "completion", about, more=_LOADING.format(program=parser.prog)
    )
    completion.add_argument(
        "shell",
        action=_PrintScript,
        const=(parser, words),
        choices=tuple(_SCRIPTS),
        metavar="SHELL",
        help="One of bash, zsh and fish.",
    )
