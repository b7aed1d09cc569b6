"""Run a program that ends when its parent ends, however that ends: `tether.py PARENT COMMAND...`.

Replaces itself with the command. The kernel then sends SIGKILL to the program as soon as the thread
that started it has ended (prctl(2), PR_SET_PDEATHSIG), which execve(2) keeps. It must import the
standard library only: it runs without site-packages. Elsewhere than on Linux `tethered` changes
nothing: there a program outlives a parent that is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["tethered"]

PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def tethered(command: Sequence[str], *, parent: int | None = None) -> list[str]:
    """The command that runs `command` until the thread that starts it ends.

    `parent` is this process' id as `command` sees it, if it sees another one than we do.
    """
    if sys.platform != "linux":
        return [*command]
    parent = os.getpid() if parent is None else parent
    # -I and -S: the tether needs nothing but the standard library, and starts in 20 ms.
    return [sys.executable, "-I", "-S", __file__, str(parent), *command]


def main() -> None:
    """Tie this process to its parent and become the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"tether: prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(sys.argv[1]):
        sys.exit(f"tether: process {sys.argv[1]}, which wanted this, is gone already")
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the command is our parent's


if __name__ == "__main__":
    main()
