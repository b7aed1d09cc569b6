"""A node that moves from NVIDIA's device plugin to Coterie's and back, on a real kubelet.

A stand-in serves what NVIDIA's plugin would: the same resource, and the GPUs' uuids as device ids.
What the kubelet has noted, what each container found in its environment, and which process it is
are compared before and after.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.workload import RESOURCE
from tests.cluster.node.plugin_account import deploy_plugin, plugin_kubeconfig
from tests.cluster.node.plugin_process import start_plugin
from tests.cluster.node.real_pods import RealPods, is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import VARIABLE, StubPlugin, allocatable_devices, held_by
from tests.cluster.programs.containerd import endpoint
from tests.unit.plugin.machine_values import simulated_machine
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.node.kubelet_node import KubeletNode, NodeTools
    from tests.cluster.node.plugin_process import PluginProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

NODE = "machine"
RECORDING = "dgx-1-v100"
N_GPUS = 8
SOON_S = 60.0
WITHOUT_GPUS_AT_MOST_S = 40.0
"""From the end of one plugin until the Node has all GPUs again: ten times what is usual, most of
which is the start of a plugin."""
OURS = {names.TOPOLOGY, names.DEVICES}
STUB = "nvidia-gpu.sock"
"""As NVIDIA's plugin calls its socket (k8s-device-plugin v0.20.0, internal/plugin/server.go)."""


@dataclass(frozen=True)
class Process:
    """A pod's container as it runs: what a restart, or another allocation, would change."""

    container_id: str
    pid: int
    n_restarts: int
    ids: tuple[str, ...]
    """By the kubelet."""
    seen: tuple[str, ...]
    """By the program in the container."""


@dataclass
class Machine:
    """The node, and the two plugins that take turns on it."""

    plane: ControlPlane
    node: KubeletNode
    tools: NodeTools
    user: Path
    pods: RealPods
    ids: tuple[str, ...]
    n_plugins: int = 0

    def stub(self) -> StubPlugin:
        """A stand-in for NVIDIA's plugin; it serves and registers when it is entered."""
        return StubPlugin(self.node, dict.fromkeys(self.ids), socket=STUB)

    @contextlib.contextmanager
    def plugin(self):
        """Coterie's plugin, with the rights of the node plugin."""
        self.n_plugins += 1
        plugin = start_plugin(self.node, self.user, RECORDING, name=f"plugin-{self.n_plugins}")
        try:
            yield plugin
        finally:
            plugin.program.stop()

    def status(self) -> tuple[int, int]:
        """Capacity and allocatable of the Node."""
        status = self.plane.client.get(node_path(NODE)).json()["status"]
        capacity, allocatable = (
            status[one].get(RESOURCE, 0) for one in ("capacity", "allocatable")
        )
        return int(capacity), int(allocatable)

    def offers_all(self) -> bool:
        """Whether the Node shows all GPUs and the kubelet has them.

        After a plugin's turn the Node may still show those of the one before.
        """
        return self.status() == (N_GPUS, N_GPUS) and len(allocatable_devices(self.node)) == N_GPUS

    def annotations(self) -> dict[str, str]:
        """Those of the Node."""
        meta = self.plane.client.get(node_path(NODE)).json()["metadata"]
        return dict(meta.get("annotations", {}))

    def start(self, name: str, size: int) -> Process:
        """Run a pod with so many GPUs."""
        self.pods.create(real_pod(name, real_container("main", size), nodeName=NODE))
        self.pods.until(name, is_running)
        return self.process(name)

    def process(self, name: str) -> Process:
        """The pod's container as it is now."""
        pod = self.pods.get(name)
        (status,) = pod["status"]["containerStatuses"]
        container_id = status["containerID"].removeprefix("containerd://")
        environment = self.node.given(pod, "main")["environment"]
        return Process(
            container_id,
            self._pid(container_id),
            status["restartCount"],
            held_by(self.node, name)["main"],
            tuple(sorted(environment[VARIABLE].split(","))),
        )

    def _pid(self, container_id: str) -> int:
        ctr = [str(self.tools.programs.ctr), "--address", str(endpoint(self.node.space))]
        done = subprocess.run(
            [*ctr, "--namespace", "k8s.io", "tasks", "list"],
            check=True,
            capture_output=True,
            text=True,
            timeout=SOON_S,
        )
        rows = [line.split() for line in done.stdout.splitlines()]
        (pid,) = [row[1] for row in rows if row[0] == container_id]
        return int(pid)

    def checkpoint(self) -> dict[str, set[str]]:
        """The devices that the kubelet has noted, by the uid of their pod."""
        noted = json.loads(self.node.checkpoint.read_text(encoding="utf-8"))
        found: dict[str, set[str]] = {}
        for entry in noted["Data"]["PodDeviceEntries"]:
            by_numa: dict[str, list[str]] = entry["DeviceIDs"]
            found.setdefault(entry["PodUID"], set()).update(*by_numa.values())
        return found

    def uid(self, name: str) -> str:
        """The uid of a pod."""
        return str(self.pods.get(name)["metadata"]["uid"])


def until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so of which no event is sent."""
    deadline = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def account(control_plane, node):
    """Rights and policies of the node plugin, and the plugin's token on this node."""
    deploy_plugin(control_plane)
    return plugin_kubeconfig(control_plane, node.name)


@pytest.fixture
def machine(control_plane, node, node_tools, pods, account):
    """The node with no plugin; its GPUs have the same uuids whoever serves them."""
    with contextlib.closing(simulated_machine(RECORDING, node_name=NODE)) as reader:
        ids = tuple(gpu.uuid for gpu in reader.read().gpus)
    assert len(ids) == N_GPUS
    return Machine(control_plane, node, node_tools, account, pods, ids)


def test_a_node_moves_and_moves_back_below_running_containers(machine):
    """No container is restarted, no GPU is given twice, and GPUs are away for seconds only."""
    with machine.stub():
        until(machine.offers_all)
        first = machine.start("first", 2)
        assert first.ids == first.seen
        away_s = time.monotonic()
    until(lambda: machine.status() == (N_GPUS, 0))  # capacity stays for five minutes

    with machine.plugin():
        until(machine.offers_all)
        there_s = time.monotonic() - away_s
        assert machine.process("first") == first
        second = machine.start("second", 4)
        assert second.ids == second.seen
        assert not set(second.ids) & set(first.ids)
        assert machine.checkpoint() == {
            machine.uid("first"): set(first.ids),
            machine.uid("second"): set(second.ids),
        }
        until(lambda: names.DEVICES in machine.annotations())
        away_s = time.monotonic()  # before its end, which takes a moment
    until(lambda: machine.status() == (N_GPUS, 0))

    with machine.stub():
        until(machine.offers_all)
        back_s = time.monotonic() - away_s
        assert [machine.process(name) for name in ("first", "second")] == [first, second]
        third = machine.start("third", 2)
        assert set(third.ids) == set(machine.ids) - set(first.ids) - set(second.ids)
        assert [machine.process(name) for name in ("first", "second")] == [first, second]
    print(f"without GPUs: there {there_s:.1f} s, back {back_s:.1f} s")  # noqa: T201 - figures
    assert max(there_s, back_s) < WITHOUT_GPUS_AT_MOST_S


def registrations(plugin: PluginProcess) -> int:
    """How often a kubelet began to watch the plugin's devices, by its metrics."""
    name = f'coterie_plugin_registrations_total{{resource="{RESOURCE}"}}'
    (line,) = [one for one in plugin.get("/metrics").text.splitlines() if one.startswith(name)]
    return int(float(line.rpartition(" ")[2]))


def test_a_plugin_that_comes_second_does_not_see_the_other(machine):
    """It serves, and its metrics show nothing until the other ends.

    Before 1.37 it then registers again; from 1.37 on that takes nothing from it.
    """
    with machine.stub() as stub:
        until(machine.offers_all)
        with machine.plugin() as plugin:
            until(machine.offers_all)
            machine.start("taken", 1)
            assert registrations(plugin) == 1
            assert plugin.get("/readyz").status_code == 200
            assert stub.calls_of("Allocate") == []
            stub.stop()
            if not machine.node.knows_plugins_by_socket:
                until(lambda: registrations(plugin) == 2)
            until(machine.offers_all)
            machine.start("after", 1)
            assert registrations(plugin) == (1 if machine.node.knows_plugins_by_socket else 2)


def test_a_plugin_is_registered_when_another_that_came_after_it_has_ended(machine):
    """Before 1.37 the kubelet has no device, and still watches the plugin, which sees no end."""
    with machine.plugin() as plugin:
        until(machine.offers_all)
        with machine.stub() as stub:
            until(lambda: stub.streams)
            machine.start("others", 1)
            assert len(stub.calls_of("Allocate")) == 1
            assert registrations(plugin) == 1
        if machine.node.knows_plugins_by_socket:
            time.sleep(1.0)  # nothing shows that the kubelet has processed the end
        else:
            lost_s = time.monotonic()
            until(lambda: machine.status() == (N_GPUS, 0) or registrations(plugin) == 2)
            until(lambda: registrations(plugin) == 2)
            until(machine.offers_all)
            print(f"without GPUs: {time.monotonic() - lost_s:.1f} s")  # noqa: T201 - a figure
            assert time.monotonic() - lost_s < WITHOUT_GPUS_AT_MOST_S
        machine.start("after", 1)
        assert machine.status() == (N_GPUS, N_GPUS)
        assert registrations(plugin) == (1 if machine.node.knows_plugins_by_socket else 2)


def test_before_1_37_the_plugin_has_to_end_first_on_the_way_back(machine):
    """There the end of its watch takes the registration of whoever came after it, for good."""
    with machine.plugin():
        until(machine.offers_all)
        stub = machine.stub()
        stub.__enter__()
        until(lambda: stub.streams)
    try:
        if machine.node.knows_plugins_by_socket:
            machine.start("theirs", 1)
            assert len(stub.calls_of("Allocate")) == 1
            assert machine.status() == (N_GPUS, N_GPUS)
        else:
            until(lambda: machine.status() == (N_GPUS, 0))
    finally:
        stub.stop()


def test_what_a_plugin_leaves_is_cleaned_from_a_moved_node(machine):
    """By the plugin's own account and below the policies; what the other plugin needs stays."""
    cdi = machine.node.folder / "cdi"
    with machine.plugin():
        until(lambda: machine.annotations().keys() >= OURS)
    assert list(machine.node.device_plugins.glob("*coterie*")) == []
    assert machine.annotations().keys() >= OURS
    with machine.stub():
        command = [
            *(sys.executable, "-m", "plugin", "clean", "--annotations", "--node-name", NODE),
            *("--kubeconfig", str(machine.user), "--cdi-folder", str(cdi)),
            *("--kubelet-socket", str(machine.node.kubelet_socket)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SOON_S, check=False)
        removed = [f"removed annotation {key} of node {NODE}" for key in sorted(OURS, reverse=True)]
        assert (done.returncode, done.stdout.splitlines()) == (0, removed), done.stderr
        assert not OURS & machine.annotations().keys()
        assert (machine.node.device_plugins / STUB).is_socket()
        until(machine.offers_all)
