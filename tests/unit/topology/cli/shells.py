"""What a shell offers on the tab key, by a completion script: the shells themselves are asked."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHELLS = ("bash", "zsh", "fish")

# bash splits words at "=", which COMP_WORDS shows.
_BASH = """\
{script}
COMP_WORDS=({words}) COMP_CWORD=$(({n_words} - 1))
{function}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# zsh completes in its line editor alone, so a second zsh has a terminal; it notes every match.
_ZSH = """\
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell {setup}
until [[ -e ready ]]; do zpty -r -t shell seen; sleep 0.01; done
zpty -w -n shell {line}$'\\t'
until [[ -e done ]]; do zpty -r -t shell seen; sleep 0.01; done
zpty -d shell
cat matches
"""
_ZSH_SETUP = """\
PS1= PROMPT2=; autoload -Uz compinit; compinit -u -d dump; source script
compadd() {
    if (( ${@[1,(i)(-|--)]}[(I)-*[OAD]*] )); then builtin compadd "$@"; return; fi
    local -a found; builtin compadd -A found "$@"; print -rl -- $found >> $home/matches
}
press() { zle complete-word; : > $home/done }
home=$PWD; cd files; zle -N press; bindkey '^I' press; : > $home/matches; : > $home/ready
"""


def offered(shell: str, script: str, line: str, folder: Path) -> list[str]:
    """What the shell offers for the last word of a line, in the folder `files` of `folder`."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    (folder / "script").write_text(script)
    command = {"bash": _of_bash, "zsh": _of_zsh, "fish": _of_fish}[shell](script, line)
    done = subprocess.run(
        command,
        cwd=folder / "files" if shell != "zsh" else folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return sorted({found.partition("\t")[0] for found in done.stdout.splitlines() if found})


def _of_bash(script: str, line: str) -> Sequence[str]:
    words = line.replace("=", " = ").split(" ")
    if line.endswith("="):
        words.pop()
    return [
        "bash",
        "--norc",
        "-euc",
        _BASH.format(
            script=script,
            words=" ".join(map(shlex.quote, words)),
            n_words=len(words),
            function=f"_{words[0].replace('-', '_')}",
        ),
    ]


def _of_zsh(_script: str, line: str) -> Sequence[str]:
    return ["zsh", "-fc", _ZSH.format(setup=shlex.quote(_ZSH_SETUP), line=shlex.quote(line))]


def _of_fish(_script: str, line: str) -> Sequence[str]:
    return ["fish", "--no-config", "-c", f"source ../script; complete -C {shlex.quote(line)}"]
