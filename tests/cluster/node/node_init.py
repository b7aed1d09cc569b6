"""The first process of a node's own processes: `node_init.py PLAN`.

Sets up the node's view of the machine and reports that by making the file that PLAN names. Then it
collects processes that end there until it is killed, which ends all others in there with it. It
runs in mount and process namespaces of its own (unshare(1)) and must import the standard library
only: it runs without site-packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

# include/uapi/linux/mount.h
MS_BIND = 1 << 12
MS_REC = 1 << 14
MS_SHARED = 1 << 20


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    """Mount, or end with what the kernel says."""
    libc = ctypes.CDLL(None, use_errno=True)
    encoded = (source.encode(), target.encode(), kind.encode() if kind else None)
    if libc.mount(*encoded, ctypes.c_ulong(flags), None) != 0:
        sys.exit(f"node_init: mount {source} on {target}: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Mount, say so, and collect."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # As on a real node, mounts inside spread to containers that request it. Nothing spreads to the
    # machine: unshare(1) has cut that.
    mount("none", "/", None, MS_REC | MS_SHARED)
    for folder in plan["empty"]:
        mount("tmpfs", folder, "tmpfs", 0)
    for source, target in plan["binds"]:
        mount(source, target, None, MS_BIND | MS_REC)
    for group in plan["groups"]:
        Path(group).write_text("0", encoding="utf-8")  # 0 is whoever writes
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    Path(plan["ready"]).touch()
    while True:
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


if __name__ == "__main__":
    main()
