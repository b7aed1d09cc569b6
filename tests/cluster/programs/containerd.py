"""containerd with runc, set up for one kubelet.

Runs containerd in a node's space, with the image that the tests use and the runc under it.
containerd is built as the control plane is (see `build`). runc is C as well as Go: it is the
machine's own, else fetched by apt-get and unpacked into the cache, so nothing is installed. The
machine's own container runtime, if it has one, is never spoken to.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.control.processes import ProgramFailed
from tests.cluster.programs.cache import cache_folder, made_once
from tests.cluster.programs.images import IMAGE, write_archive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.control.processes import Program
    from tests.cluster.node.node_space import NodeSpace
    from tests.cluster.programs.build import NodePrograms

__all__ = ["RuntimeMissing", "endpoint", "find_runc", "start_containerd"]

_FETCHED = Path("usr/sbin/runc")
"""Debian's place for it, and Ubuntu's."""
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
_RUNS_WITHIN_S = 300
# No network plugin is ever called, since pods use the machine's network; but a kubelet is not Ready
# until its runtime has a network configuration.
_NETWORK = '{"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]}'
# `restrict_oom_score_adj`: without CAP_SYS_RESOURCE runc could not protect the sandbox, and fails
# with "can't get final child's PID from pipe". `native` works on any file system. /run is the
# node's own, so that its CDI specifications are too; those in /etc/cdi would be the machine's.
_CONFIG = """\
version = 3
root = "{folder}/data"
state = "/run/containerd"
oom_score = 0

[grpc]
address = "{endpoint}"

[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image}"

[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
cdi_spec_dirs = ["/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{folder}/network"]
conf_dir = "{folder}/network"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""


class RuntimeMissing(Exception):
    """There is no runc, and none could be fetched; the message says why."""


def find_runc(say: Callable[[str], None]) -> Path:
    """The machine's own, else that of its distribution. Raises `RuntimeMissing`."""
    own = shutil.which("runc", path=os.pathsep.join([*os.get_exec_path(), *_SYSTEM_FOLDERS]))
    if own is not None:
        return Path(own)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        msg = "runc is not on PATH, and there is no apt-get to fetch it with"
        raise RuntimeMissing(msg)
    system = platform.freedesktop_os_release()
    release = f"{system['ID']}-{system.get('VERSION_ID', 'rolling')}-{platform.machine()}"
    folder = made_once(cache_folder() / f"runc-{release}", partial(_fetch, say=say), say)
    return folder / _FETCHED


def start_containerd(space: NodeSpace, programs: NodePrograms, runc: Path, log: Path) -> Program:
    """Start it in that space, and import the image that is the workload alone."""
    folder = space.folder / "containerd"
    network = folder / "network"
    network.mkdir(parents=True)
    (network / "10-lo.conflist").write_text(_NETWORK, encoding="utf-8")
    config = folder / "config.toml"
    settings = {
        "folder": folder,
        "endpoint": endpoint(space),
        "image": IMAGE,
        "runc": runc,
    }
    config.write_text(_CONFIG.format_map(settings), encoding="utf-8")
    containerd = space.program(
        "containerd",
        [str(programs.containerd), "--config", str(config)],
        log,
        is_ready=partial(_answers, endpoint(space)),
        # It looks for its shim there.
        environment={"PATH": f"{programs.containerd.parent}:{os.environ.get('PATH', os.defpath)}"},
    )
    containerd.start()
    archive = write_archive(programs.workload, folder / "workload.tar")
    ctr = [str(programs.ctr), "--address", str(endpoint(space)), "--namespace", "k8s.io"]
    # Not local, it would be the transfer service's work, which unpacks for overlayfs alone.
    imports = ["images", "import", "--local", "--snapshotter", "native", str(archive)]
    imported = _run([*ctr, *imports], folder)
    if imported.returncode != 0:
        msg = f"containerd did not import {IMAGE}: {imported.stdout}"
        raise ProgramFailed(msg)
    return containerd


def endpoint(space: NodeSpace) -> Path:
    """Where containerd of that space listens."""
    return space.folder / "containerd.sock"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _fetch(folder: Path, *, say: Callable[[str], None]) -> None:
    """Download the package and unpack it, as whoever may; installing would take root."""
    say("no runc here: fetching its package")
    download = ["apt-get", "download", "--quiet", "runc"]
    done = _run(download, folder)
    if done.returncode != 0:  # a machine whose package lists are missing or old
        _run(["apt-get", "update", "--quiet"], folder)
        done = _run(download, folder)
    packages = sorted(folder.glob("*.deb"))
    if done.returncode != 0 or not packages:
        msg = f"apt-get could not download runc:\n{done.stdout[-2000:]}"
        raise RuntimeMissing(msg)
    (package,) = packages
    unpacked = _run(["dpkg-deb", "--extract", str(package), str(folder)], folder)
    if unpacked.returncode != 0 or not (folder / _FETCHED).is_file():
        msg = f"{package.name} does not unpack to {_FETCHED}:\n{unpacked.stdout[-2000:]}"
        raise RuntimeMissing(msg)
    package.unlink()


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_RUNS_WITHIN_S,
    )
