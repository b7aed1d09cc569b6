"""Run a program where a node's programs run: `enter.py NAMESPACES FOLDER CGROUPS COMMAND...`.

Replaces itself with the command, in the control groups whose `cgroup.procs` files CGROUPS lists, in
the namespaces of the files NAMESPACES (both separated by colons), in the working directory FOLDER.
It must import the standard library only: it runs without site-packages. (nsenter(1) does less.)
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def main() -> None:
    """Enter and become the command."""
    namespaces, folder, groups, *command = sys.argv[1:]
    for group in groups.split(":"):
        Path(group).write_text("0", encoding="utf-8")  # 0 is whoever writes
    libc = ctypes.CDLL(None, use_errno=True)
    for path in filter(None, namespaces.split(":")):
        with Path(path).open("rb") as file:
            if libc.setns(file.fileno(), 0) != 0:
                sys.exit(f"enter: {path}: {os.strerror(ctypes.get_errno())}")
    os.chdir(folder)
    os.execvp(command[0], command)  # noqa: S606 - the command is our parent's


if __name__ == "__main__":
    main()
