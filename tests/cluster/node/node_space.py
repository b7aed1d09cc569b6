"""A node's own view of the machine it runs on: mounts, processes, control groups.

Lets a kubelet and its container runtime run as if the machine were theirs. Paths that they insist
on (`/var/lib/kubelet`, `/run`, the control groups) lead elsewhere, so that several nodes live side
by side, and beside a kubelet or Docker of the machine's own. The network is the machine's: what
listens there takes a free port of 127.0.0.1.

Nothing is left behind, however the test ends: all processes are in a process namespace, whose first
is tied to us (see `benchmarks.tether`) and takes all others with it; mounts end with the last
process; control groups and the folder are removed by a process that waits for our end (see
`janitor`). Only an empty `/var/lib/kubelet` may stay, since another node may have its own mounted
there.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.tether import tethered
from tests.cluster.control.processes import Place, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["KUBELET", "NodeSpace", "SpaceRefused", "check_machine"]

KUBELET = Path("/var/lib/kubelet")
"""Where device plugins find the kubelet, whatever its --root-dir says (pkg/apis/deviceplugin)."""

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_CGROUPS = Path("/sys/fs/cgroup")
_EMPTY = ("/run", "/var/log")
"""containerd and its shims talk in /run/containerd, the kubelet links logs in /var/log."""
_CLONE_NEWPID = 0x20000000  # include/uapi/linux/sched.h
_STARTS_WITHIN_S = 60.0
# Some seconds alone; the snapshots are copies of images, and took more than 30 s to remove beside
# four nodes of other runs on one disk.
_CLEANS_WITHIN_S = 120.0
# What the kubelet would write for the whole machine (pkg/kubelet/cm/container_manager_linux.go,
# setupKernelTunables; values in k8s.io/component-helpers/node/util/sysctl): it finds it so already.
_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


class SpaceRefused(Exception):
    """The machine lets us have no namespaces or control groups; the message says which."""


def check_machine() -> None:
    """Whether this machine lets us have a space at all. Raises `SpaceRefused`."""
    if sys.platform != "linux":
        msg = f"a kubelet runs on Linux, this is {sys.platform}"
        raise SpaceRefused(msg)
    if os.geteuid() != 0:
        msg = "a kubelet runs as root, and these tests do not"
        raise SpaceRefused(msg)
    if shutil.which("unshare") is None:
        msg = "unshare (util-linux) is not on PATH"
        raise SpaceRefused(msg)
    tried = subprocess.run(_unshared(["true"]), capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        msg = f"no mount or process namespace of our own: {tried.stderr.strip()}"
        raise SpaceRefused(msg)
    for hierarchy in _hierarchies():
        if not os.access(hierarchy, os.W_OK):
            msg = f"no control groups of our own: {hierarchy} is read-only"
            raise SpaceRefused(msg)


def _unshared(command: Sequence[str]) -> list[str]:
    """The command in mount and process namespaces of its own; it ends when `unshare` does."""
    return [
        *("unshare", "--mount", "--cgroup", "--pid", "--mount-proc"),
        *("--fork", "--kill-child=SIGKILL", *command),
    ]


class NodeSpace:
    """One node's space. `start` before anything else, `stop` whatever happened.

    `binds` are further mounts, by the path where the node sees them.
    """

    def __init__(self, name: str, log: Path, *, binds: Mapping[str, Path] | None = None) -> None:
        self._name = name
        self._log = log
        self._binds = dict(binds or {})
        self.folder = Path(tempfile.mkdtemp(prefix="coterie-node-"))
        """The node's files, under the same path inside and outside."""
        self.kubelet = self.folder / "kubelet"
        """What the node sees as /var/lib/kubelet."""
        self.groups: list[Path] = []
        """The control groups that all its processes are in, or in groups of."""
        self._init: Program | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self._programs: list[Program] = []
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"node-{name}")

    def start(self) -> None:
        """Make it. Raises `SpaceRefused`, `ProgramFailed`."""
        group = f"coterie-node-{secrets.token_hex(4)}"
        self.groups = [hierarchy / group for hierarchy in _hierarchies()]
        self._janitor = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(_HERE / "janitor.py")),
                *map(str, (*self.groups, self.folder)),
            ],
            stdin=subprocess.PIPE,
            start_new_session=True,  # ctrl-C is not for it
        )
        for one in self.groups:
            _make_group(one)
        ready = self.folder / "ready"
        plan = self.folder / "plan.json"
        plan.write_text(json.dumps(self._plan(ready)), encoding="utf-8")
        init = [sys.executable, "-I", "-S", str(_HERE / "node_init.py"), str(plan)]
        self._init = Program(
            name=f"{self._name} init",
            # The groups that it begins in are the roots that all in there see.
            command=self._entering((), "", _unshared(init)),
            log=self._log,
            is_ready=ready.exists,
            start_within_s=_STARTS_WITHIN_S,
        )
        self._init.start()
        for file in self._processes("programs"):
            file.write_text(str(self._init.pid), encoding="utf-8")
        # Whatever this thread starts from now on, starts in there.
        self._starter.submit(_join_processes, self._init.pid).result()

    def stop(self) -> None:
        """Kill every process in there and remove everything."""
        if self._init is not None:
            self._init.kill()
        for program in self._programs:
            program.kill()  # it died with the first one, and is to be collected
        self._starter.shutdown()
        if self._janitor is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        code = self._janitor.wait(_CLEANS_WITHIN_S)
        self._janitor = None
        if code:
            msg = f"node {self._name} left something behind, see the janitor's words above"
            raise SpaceRefused(msg)

    def program(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        is_ready: Callable[[], bool] = lambda: True,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Describe a program that runs in there; `start` it. It ends with the space at last."""
        assert self._init is not None, "the space was not started"
        program = Program(
            name=f"{self._name} {name}",
            command=command,
            log=log,
            is_ready=is_ready,
            environment=environment or {},
            place=Place(self._starter, self._enter),
        )
        self._programs.append(program)
        return program

    def _enter(self, command: Sequence[str]) -> list[str]:
        assert self._init is not None
        namespaces = [f"/proc/{self._init.pid}/ns/{kind}" for kind in ("cgroup", "mnt")]
        # From inside, the parent of a process that was started from outside is 0.
        return tethered(self._entering(namespaces, "programs", command), parent=0)

    def _entering(self, namespaces: Sequence[str], group: str, command: Sequence[str]) -> list[str]:
        return [
            *(sys.executable, "-I", "-S", str(_HERE / "enter.py"), ":".join(namespaces)),
            *(str(_ROOT), ":".join(map(str, self._processes(group))), *command),
        ]

    def _processes(self, group: str) -> list[Path]:
        """The files that say which processes are in a group of ours, or in ours."""
        return [one / group / "cgroup.procs" for one in self.groups]

    def _plan(self, ready: Path) -> Mapping[str, object]:
        tunables = self.folder / "tunables"
        binds = dict(self._binds)
        for number, (name, value) in enumerate(_TUNABLES.items()):
            file = tunables / str(number)
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{value}\n", encoding="utf-8")
            binds[f"/proc/sys/{name}"] = file
        self.kubelet.mkdir()
        KUBELET.mkdir(parents=True, exist_ok=True)
        binds[str(KUBELET)] = self.kubelet
        binds |= {str(group.parent): group for group in self.groups}
        return {
            "ready": str(ready),
            "groups": [str(group.parent / "programs/cgroup.procs") for group in self.groups],
            "empty": [folder for folder in _EMPTY if Path(folder).is_dir()],
            "binds": [(str(source), target) for target, source in binds.items()],
        }


def _hierarchies() -> list[Path]:
    """Where control groups are made: each controller's (version 1), or the only one (version 2)."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    found = [one for one in sorted(_CGROUPS.glob("*")) if (one / "cgroup.procs").exists()]
    return [one for one in found if not one.is_symlink()]


def _make_group(group: Path) -> None:
    """Make a group that the node takes for the root of all, and in it one for its programs.

    In version 2 a group has either processes or groups with controllers.
    """
    try:
        (group / "programs").mkdir(parents=True)
    except OSError as error:
        msg = f"cannot make control group {group}: {error}"
        raise SpaceRefused(msg) from error
    # A new group of this controller has no processors, and so takes no process.
    for child in (group, group / "programs"):
        for name in ("cpuset.cpus", "cpuset.mems"):
            file = child / name
            if file.exists() and (child / "tasks").exists():
                file.write_text((child.parent / name).read_text(encoding="utf-8"), encoding="utf-8")


def _join_processes(pid: int) -> None:
    """Let this thread's children be in the process namespace of that process' children."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/pid_for_children").open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWPID) != 0:
            msg = f"setns: {os.strerror(ctypes.get_errno())}"
            raise SpaceRefused(msg)
