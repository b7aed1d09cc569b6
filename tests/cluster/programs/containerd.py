"""containerd with runc, set up for one kubelet.

Runs containerd in a node's space, with the image that the tests use and the runc under it, and
imports further images. containerd is built as the control plane is (see `build`), runc is the
machine's own or fetched (see `debian`). The machine's own container runtime, if it has one, is
never spoken to.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.cluster.control.processes import ProgramFailed
from tests.cluster.programs.images import IMAGE, write_archive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cluster.control.processes import Program
    from tests.cluster.node.node_space import NodeSpace
    from tests.cluster.programs.build import NodePrograms

__all__ = [
    "NATIVE",
    "PodNetwork",
    "ctr",
    "endpoint",
    "import_image",
    "quick_snapshotter",
    "start_containerd",
]

NATIVE = "native"
"""The snapshotter that works on any file system."""
_OVERLAY = "overlayfs"
_RUNS_WITHIN_S = 300
# `restrict_oom_score_adj`: without CAP_SYS_RESOURCE runc could not protect the sandbox, and fails
# with "can't get final child's PID from pipe". /run is the
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
snapshotter = "{snapshotter}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image}"

[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
cdi_spec_dirs = ["/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{network_programs}"]
conf_dir = "{folder}/network"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """What gives pods a network of their own."""

    conflist: Mapping[str, object]
    """CNI's network configuration list."""
    programs: Path
    """The folder of the plugins that it names."""


_HOST_NETWORK = {"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]}
"""For pods that use the machine's network: no plugin is ever called, but a kubelet is not Ready
until its runtime has a network configuration."""


def start_containerd(
    space: NodeSpace,
    programs: NodePrograms,
    runc: Path,
    log: Path,
    network: PodNetwork | None = None,
    snapshotter: str = NATIVE,
) -> Program:
    """Start it in that space, and import the image that is the workload alone.

    Without `network` pods must use the machine's.
    """
    folder = space.folder / "containerd"
    network = network or PodNetwork(_HOST_NETWORK, folder / "network")
    (folder / "network").mkdir(parents=True)
    conflist = json.dumps(network.conflist)
    (folder / "network" / "10-pods.conflist").write_text(conflist, encoding="utf-8")
    config = folder / "config.toml"
    settings = {
        "folder": folder,
        "endpoint": endpoint(space),
        "image": IMAGE,
        "runc": runc,
        "network_programs": network.programs,
        "snapshotter": snapshotter,
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
    import_image(space, programs, archive, snapshotter)
    return containerd


def import_image(space: NodeSpace, programs: NodePrograms, archive: Path, snapshotter: str) -> None:
    """Take an OCI archive's image into that space's containerd. Raises `ProgramFailed`."""
    # Not local, it would be the transfer service's work, which unpacks for overlayfs alone.
    how = ("--local", "--snapshotter", snapshotter)
    ctr(space, programs, "images", "import", *how, str(archive))


def quick_snapshotter(folder: Path) -> str:
    """The one that copies no image for each container, if the file system of `folder` allows it."""
    lower, upper, work, target = (folder / name for name in ("lower", "upper", "work", "target"))
    for one in (lower, upper, work, target):
        one.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = ["mount", "--types", "overlay", "overlay", "--options", options, str(target)]
    tried = subprocess.run(
        ["unshare", "--mount", *mount], capture_output=True, check=False, timeout=_RUNS_WITHIN_S
    )
    return NATIVE if tried.returncode else _OVERLAY


def ctr(space: NodeSpace, programs: NodePrograms, *arguments: str) -> str:
    """Run a command of containerd's own client, for the kubelet's images and containers.

    Returns its output. Raises `ProgramFailed`.
    """
    done = subprocess.run(
        [programs.ctr, "--address", endpoint(space), "--namespace", "k8s.io", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_RUNS_WITHIN_S,
    )
    if done.returncode != 0:
        msg = f"ctr {' '.join(arguments)}: {done.stdout}"
        raise ProgramFailed(msg)
    return done.stdout


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
