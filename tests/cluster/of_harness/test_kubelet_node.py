"""A real kubelet as a test's node: it runs containers, survives kills, leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.control.processes import ProgramFailed
from tests.cluster.node.kubelet_node import KubeletNode
from tests.cluster.node.real_pods import RealPods, is_running, real_container, real_pod

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet]

GONE_S = 120
RUN_BY_ANOTHER = """
import sys, threading
from pathlib import Path
from tests.cluster.programs.build import binaries, node_programs
from tests.cluster.programs.debian import find_runc
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.node.kubelet_node import KubeletNode, NodeTools
from tests.cluster.node.real_pods import RealPods, is_running, real_container, real_pod
from tests.cluster.programs.versions import chosen_minor
with ControlPlane(binaries(chosen_minor()), Path(sys.argv[1])) as plane:
    tools = NodeTools(node_programs(), find_runc(print))
    with KubeletNode(plane, "left", tools) as node:
        pods = RealPods(plane)
        pods.create(real_pod("runs", real_container("main"), nodeName="left"))
        pods.until("runs", is_running)
        print(node.space.folder, *node.space.groups, flush=True)
        threading.Event().wait()
"""


@pytest.fixture
def pods(control_plane):
    """Pods, which are gone after the test, as some of their nodes are."""
    made = RealPods(control_plane)
    yield made
    made.clear(is_forced=True)


def processes_of(*groups):
    """All processes in a control group and below."""
    files = (file for group in groups for file in group.rglob("cgroup.procs"))
    return {int(pid) for file in files for pid in file.read_text(encoding="ascii").split()}


def test_a_node_that_does_not_come_up_says_why(control_plane, node_tools):
    """A wrong setting must not show itself as a timeout, nor leave half a node behind."""
    broken = KubeletNode(
        control_plane, "broken", node_tools, config={"topologyManagerPolicy": "no-such"}
    )
    with (
        pytest.raises(ProgramFailed, match=r"(?s)broken kubelet ended with code 1.*no-such"),
        broken,
    ):
        pass
    assert broken.space.groups != []
    assert not any(group.exists() for group in broken.space.groups)
    assert not broken.space.folder.exists()


def test_leaving_the_block_leaves_nothing_behind(control_plane, node_tools, pods):
    """No process, no mount, no control group, no file but logs and settings."""
    with KubeletNode(control_plane, "left", node_tools) as node:
        pods.create(real_pod("runs", real_container("main"), nodeName="left"))
        pods.until("runs", is_running)
        processes = processes_of(*node.space.groups)
        # containerd, kubelet, the shim, the sandbox, the container
        assert len(processes) >= 5
        pidfds = [os.pidfd_open(pid) for pid in processes]
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], GONE_S)[0]
        os.close(pidfd)
    assert not any(group.exists() for group in node.space.groups)
    assert not node.space.folder.exists()
    assert str(node.space.folder) not in Path("/proc/mounts").read_text(encoding="utf-8")
    assert (node.folder / "kubelet.log").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.usefixtures("node_tools")
def test_nothing_is_left_when_the_test_process_ends(tmp_path, root, number):
    """After SIGKILL the kernel ends what runs, and the janitor removes the rest."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN_BY_ANOTHER, tmp_path / "other"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as other:
        assert other.stdout is not None
        folder, *groups = map(Path, other.stdout.readline().split())
        pidfds = [os.pidfd_open(pid) for pid in processes_of(*groups)]
        assert len(pidfds) >= 5
        other.send_signal(number)
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], GONE_S)[0]
        os.close(pidfd)
    deadline = time.monotonic() + GONE_S
    while any(path.exists() for path in (folder, *groups)):
        assert time.monotonic() < deadline
        time.sleep(0.05)  # the janitor is no child of this process, so there is nothing to await
