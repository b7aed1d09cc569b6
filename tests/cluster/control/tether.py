"""Run a program that ends when its parent ends, however that ends: `tether.py PARENT COMMAND...`.

Replaces itself with the command. The kernel then sends SIGKILL to the program as soon as the thread
that started it has ended (prctl(2), PR_SET_PDEATHSIG), which execve(2) keeps. It must import the
standard library only: it runs without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


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
