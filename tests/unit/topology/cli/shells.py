"""What a shell offers on the tab key, by a completion script: the shells themselves are asked."""

from __future__ import annotations

import shlex
import subprocess
import sysconfig
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = sysconfig.get_path("scripts")
SHELLS = ("bash", "zsh", "fish")

_BASH = """\
source ../script
COMP_LINE={line} COMP_POINT=${{#COMP_LINE}} COMP_TYPE=9
_python_argcomplete {program}
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


def offered(shell: str, line: str, folder: Path) -> list[str]:
    """What the shell offers for the last word of a line, in the folder `files` of `folder`."""
    program = line.split(maxsplit=1)[0]
    environment = {"HOME": str(folder), "PATH": f"{PROGRAMS}:/usr/bin:/bin:/usr/local/bin"}
    with (folder / "script").open("w") as script:
        command = [program, "completion", shell]
        subprocess.run(command, stdout=script, env=environment, check=True, timeout=60)
    command = {"bash": _of_bash, "zsh": _of_zsh, "fish": _of_fish}[shell](line)
    done = subprocess.run(
        command,
        cwd=folder / "files" if shell != "zsh" else folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    words = (found.partition("\t")[0].rstrip() for found in done.stdout.splitlines())
    return sorted({word for word in words if word})


def _of_bash(line: str) -> list[str]:
    script = _BASH.format(line=shlex.quote(line), program=line.split(maxsplit=1)[0])
    return ["bash", "--norc", "-euc", script]


def _of_zsh(line: str) -> list[str]:
    return ["zsh", "-fc", _ZSH.format(setup=shlex.quote(_ZSH_SETUP), line=shlex.quote(line))]


def _of_fish(line: str) -> list[str]:
    return ["fish", "--no-config", "-c", f"source ../script; complete -C {shlex.quote(line)}"]
