"""Run a command in an unpacked image: `contained.py ROOT USER FOLDERS COMMAND...`.

As a kubelet's runtime does it for these programs: the root is read-only, /dev and /proc are there,
the user is USER with no capability and no way to get one. FOLDERS (separated by colons) are mounted
writable under the same path. It replaces itself with the command, and must run as root in a mount
namespace of its own. It imports the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

# include/uapi/linux/prctl.h
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PATH = "/opt/coterie/bin:/usr/local/bin:/usr/bin:/bin"


def main() -> None:
    """Mount, enter, give up every right, and become the command."""
    root, user, folders, *command = sys.argv[1:]
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="utf-8"))
    subprocess.run(["mount", "--bind", root, root], check=True)
    for folder in ("/dev", "/proc", *filter(None, folders.split(":"))):
        target = Path(root + folder)
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", folder, str(target)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
    os.chroot(root)
    os.chdir("/")
    libc = ctypes.CDLL(None, use_errno=True)
    rights = [libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) for number in range(last + 1)]
    if any(rights) or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        sys.exit(f"contained: prctl: {os.strerror(ctypes.get_errno())}")
    os.setgroups([])
    os.setresgid(int(user), int(user), int(user))
    os.setresuid(int(user), int(user), int(user))
    os.environ.clear()
    os.execvpe(command[0], command, {"PATH": PATH, "PYTHONUNBUFFERED": "1"})  # noqa: S606 - ours


if __name__ == "__main__":
    main()
