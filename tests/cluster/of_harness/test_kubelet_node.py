"""A real kubelet as a test's node: it runs containers, survives kills, leaves nothing behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.control.manifests import await_so
from tests.cluster.control.processes import ProgramFailed
from tests.cluster.node.kubelet_node import KubeletNode
from tests.cluster.node.real_pods import RealPods, has_ended, is_running, real_container, real_pod

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


def test_a_node_has_the_versions_that_were_built(control_plane, node_tools):
    """Every test of this tier pays for its start: how long that took is printed."""
    began = time.monotonic()
    with KubeletNode(control_plane, "quick", node_tools):
        took_s = time.monotonic() - began
        answer = control_plane.kubectl("get", "node", "quick", "--output", "json")
        info = json.loads(answer)["status"]["nodeInfo"]
    print(f"Ready after {took_s:.1f} s, {info['containerRuntimeVersion']}")  # noqa: T201 - a figure
    assert info["kubeletVersion"] == control_plane.binaries.version
    assert info["containerRuntimeVersion"].startswith("containerd://")


def test_a_container_runs_and_reports_its_devices(node, pods):
    """What a container really got is what the later tests are about."""
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-1,GPU-2"}
    inits = [real_container("first", runs_s=0.1)]
    main = real_container("main", runs_s=0.1, env=[variable])
    pods.create(real_pod("prints", main, inits=inits, nodeName=node.name))
    pod = pods.until("prints", has_ended)
    assert pod["status"]["phase"] == "Succeeded"
    assert node.given(pod, "first") == {"environment": {}, "mounted": [], "devices": []}
    assert node.given(pod, "main")["environment"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}


def test_a_container_ends_with_its_code(node, pods):
    """Jobs that fail are part of every real day."""
    failing = real_container("main", runs_s=0.1, code=3)
    pods.create(real_pod("fails", failing, nodeName=node.name))
    pod = pods.until("fails", has_ended)
    (status,) = pod["status"]["containerStatuses"]
    assert (pod["status"]["phase"], status["state"]["terminated"]["exitCode"]) == ("Failed", 3)


def test_containers_live_on_while_their_kubelet_is_killed(node, pods):
    """With other settings afterwards, too: policies can be tried without another cluster."""
    pods.create(real_pod("stays", real_container("main"), nodeName=node.name))
    before = pods.until("stays", is_running)
    node.restart_kubelet(topologyManagerPolicy="restricted", topologyManagerScope="pod")
    answer = node.get("/configz").json()["kubeletconfig"]
    assert (answer["topologyManagerPolicy"], answer["topologyManagerScope"]) == (
        "restricted",
        "pod",
    )
    pods.create(real_pod("later", real_container("main"), nodeName=node.name))
    pods.until("later", is_running)
    after = pods.get("stays")
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    node.restart_kubelet(topologyManagerPolicy="none", topologyManagerScope="container")


def test_the_kubelet_authenticates_its_callers(node, control_plane):
    """The agent's rights are proven here only if the kubelet enforces any."""
    control_plane.kubectl("create", "serviceaccount", "agent")
    rule = ("--verb=get", "--resource=nodes/pods")
    control_plane.kubectl("create", "clusterrole", "pod-reader", *rule)
    binding = ("--clusterrole=pod-reader", "--serviceaccount=default:agent")
    control_plane.kubectl("create", "clusterrolebinding", "pod-reader", *binding)
    config = control_plane.service_account("default", "agent").read_text(encoding="utf-8")
    token = json.loads(config)["users"][0]["user"]["token"]
    # The API server has rights from a watch, and the kubelet remembers a refusal for a while.
    await_so(lambda: node.get("/pods", token=token).is_success, "the right to list pods")
    assert node.get("/pods", token=token).json()["kind"] == "PodList"
    assert node.get("/configz", token=token).status_code == 403
    assert node.get("/pods", token="").status_code == 401


def test_two_nodes_live_side_by_side(control_plane, node, node_tools, pods):
    """Each kubelet has its own runtime and /var/lib/kubelet, and sees nothing of the other."""
    with KubeletNode(control_plane, "second", node_tools) as second:
        for one in (node, second):
            pods.create(real_pod(f"on-{one.name}", real_container("main"), nodeName=one.name))
        for one in (node, second):
            pods.until(f"on-{one.name}", is_running)
            answer = one.get("/pods").json()["items"]
            assert [pod["metadata"]["name"] for pod in answer] == [f"on-{one.name}"]
        assert node.kubelet_socket.stat().st_ino != second.kubelet_socket.stat().st_ino


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
