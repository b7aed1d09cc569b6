"""Each way of giving a container its devices, on the real kubelet and containerd.

The plugin serves a recording, and the device nodes of its GPUs are real character devices without a
driver. What the kubelet says it gave and what the container finds in its environment, its mounts
and its /dev are reported by three independent programs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.node.kubelet_node import KubeletNode
from tests.cluster.node.plugin_process import start_plugin
from tests.cluster.node.real_pods import is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import holders
from tests.cluster.programs.containerd import endpoint
from tests.unit.plugin.machine_values import simulated_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from plugin.machine import GpuReading
    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.node.plugin_process import PluginProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet]

NODE = "machine"
RECORDING = "4x-a100-sxm"
PROFILES = ("3g.40gb", "4g.40gb")
SOON_S = 60.0
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
FOLDER = "/var/run/nvidia-container-devices"
CONTROL = ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
CHANNEL = "nvidia-caps-imex-channels/channel0"
EXTRAS = ("gdrdrv", "infiniband/rdma_cm", "infiniband/uverbs0", "nvidia-fs0")
EXTRA_VARIABLES = {f"NVIDIA_{extra}": "enabled" for extra in ("GDRCOPY", "GDS", "MOFED")}
CDI_ALONE = {VISIBLE: "void"}
MAJOR = 120
"""Of no driver (Documentation/admin-guide/devices.txt: for local use): to open such a node is
refused to whoever may not, and fails otherwise to whoever may."""


@dataclass(frozen=True)
class Way:
    """Settings, and what a container finds by them beside its devices' own."""

    flags: tuple[str, ...]
    environment: Mapping[str, str]
    """`{}` stands for the names of its devices."""
    mounted: tuple[str, ...] | None = None
    """None: not the devices either; so for `nodes`."""
    nodes: tuple[str, ...] | None = None
    is_by_index: bool = False
    is_mig: bool = False


def way(*strategies: str, flags: tuple[str, ...] = (), **found: Any) -> Way:
    """A way of these strategies; what it is about is in `flags`."""
    return Way((f"--device-list-strategy={','.join(strategies)}", *flags), **found)


SPECS = ("--pass-device-specs",)
BY_INDEX = ("--device-id-strategy=index",)
IMEX = ("--imex-channel-ids=0",)
WITH_EXTRAS = ("--gdrcopy-enabled", "--gds-enabled", "--mofed-enabled", *IMEX)
MIXED = ("--mig-strategy=mixed",)
WAYS = {
    "envvar": way("envvar", environment={VISIBLE: "{}"}),
    "envvar by index, with device nodes and extras": way(
        "envvar",
        flags=(*BY_INDEX, *SPECS, *WITH_EXTRAS),
        environment={VISIBLE: "{}", "NVIDIA_IMEX_CHANNELS": "0", **EXTRA_VARIABLES},
        nodes=(*CONTROL, CHANNEL),
        is_by_index=True,
    ),
    "volume-mounts with IMEX": way(
        "volume-mounts", flags=IMEX, environment={VISIBLE: FOLDER}, mounted=("imex/0",)
    ),
    "cdi-annotations": way("cdi-annotations", environment=CDI_ALONE, nodes=CONTROL),
    "cdi-cri by index": way(
        "cdi-cri", flags=BY_INDEX, environment=CDI_ALONE, nodes=CONTROL, is_by_index=True
    ),
    "cdi-cri with extras": way(
        "cdi-cri",
        flags=WITH_EXTRAS,
        environment=CDI_ALONE | EXTRA_VARIABLES,
        nodes=(*CONTROL, *EXTRAS, CHANNEL),
    ),
    "all ways at once": way(
        *("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),
        flags=SPECS,
        environment=CDI_ALONE,
        mounted=(),
        nodes=CONTROL,
    ),
    "MIG instances by device nodes": way(
        "envvar",
        flags=(*MIXED, *SPECS),
        environment={VISIBLE: "{}"},
        nodes=CONTROL,
        is_mig=True,
    ),
    "MIG instances by cdi-cri and index": way(
        "cdi-cri",
        flags=(*MIXED, *BY_INDEX),
        environment=CDI_ALONE,
        nodes=CONTROL,
        is_by_index=True,
        is_mig=True,
    ),
}


@dataclass(frozen=True)
class Made:
    """A device as the driver would have made it."""

    order: tuple[int, int]
    index: str
    nodes: tuple[str, ...]


@dataclass
class Machine:
    """The node, whose GPUs are a recording, with their device nodes and capabilities."""

    plane: ControlPlane
    node: KubeletNode
    numbers: dict[str, int] = field(default_factory=dict)
    """Minor numbers of all device nodes, by path below /dev."""

    def __post_init__(self) -> None:
        """Make the device nodes."""
        capabilities: list[str] = []
        nodes = [*CONTROL, CHANNEL, *EXTRAS]
        for gpu in self.read():
            nodes.append(f"nvidia{gpu.index}")
            for one in range(1, len(PROFILES) + 1):
                for name in (f"gpu{gpu.index}/gi{one}", f"gpu{gpu.index}/gi{one}/ci0"):
                    nodes.append(f"nvidia-caps/nvidia-cap{len(capabilities)}")
                    capabilities.append(f"{name}/access {len(capabilities)}\n")
        for number, name in enumerate(nodes):
            path = self.root / "dev" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(MAJOR, number))
            self.numbers[name] = number
        minors = self.root / "proc/driver/nvidia-caps/mig-minors"
        minors.parent.mkdir(parents=True)
        minors.write_text("".join(capabilities))

    @property
    def root(self) -> Path:
        """Of the driver's files."""
        return self.node.space.folder / "driver"

    def read(self, faults: Path | None = None) -> tuple[GpuReading, ...]:
        """The GPUs as the plugin reads them."""
        with contextlib.closing(
            simulated_machine(RECORDING, node_name=NODE, faults=faults)
        ) as machine:
            return machine.read().gpus

    def made(self, gpus: tuple[GpuReading, ...]) -> dict[str, Made]:
        """All devices that the kubelet may give, by id."""
        found: dict[str, Made] = {}
        n_before = 2 * len(PROFILES)
        for gpu in gpus:
            own = f"nvidia{gpu.index}"
            found[gpu.uuid] = Made((gpu.index, -1), f"{gpu.index}", (own,))
            for one in gpu.partitions:
                first = n_before * gpu.index + 2 * one.index
                caps = (f"nvidia-caps/nvidia-cap{first + i}" for i in (0, 1))
                found[one.id] = Made(
                    (gpu.index, one.index), f"{gpu.index}:{one.index}", (own, *caps)
                )
        return found

    @contextlib.contextmanager
    def plugin(self, name: str, *flags: str, resource: str) -> Iterator[PluginProcess]:
        """The plugin, until the kubelet can give the devices of a resource, and stopped at last.

        It serves under another name each time: what the kubelet had before is never mistaken.
        """
        domain = resource.partition("/")[0]
        plugin = start_plugin(
            self.node,
            self.plane.admin,
            RECORDING,
            f"--resource-name={domain}/gpu",
            f"--nvidia-dev-root={self.root}",
            f"--driver-root-ctr-path={self.root}",
            f"--proc-root={self.root / 'proc'}",
            "--cdi-generator=own",
            *flags,
            name=name,
        )
        try:
            until(lambda: self.offered(resource))
            yield plugin
        finally:
            plugin.program.stop()

    def offered(self, resource: str) -> list[str]:
        """The ids that the kubelet can give, as it noted them."""
        try:
            noted = json.loads(self.node.checkpoint.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return []
        return list(noted["Data"]["RegisteredDevices"].get(resource) or [])

    def warnings(self, pod: str) -> list[dict[str, Any]]:
        """The events of that pod that users are to look at."""
        chosen = {"fieldSelector": f"involvedObject.name={pod},type=Warning"}
        answer = self.plane.client.get("/api/v1/namespaces/default/events", params=chosen)
        return list(answer.json()["items"])

    def found(self, pod: Mapping[str, Any], container: str) -> dict[str, Any]:
        """What the container found; its device nodes by path."""
        given = self.node.given(pod, container)
        assert all(one["usable"] for one in given["devices"])
        return given | {"devices": {one["path"]: one["number"] for one in given["devices"]}}

    def expected(self, way: Way, ids: tuple[str, ...], made: Mapping[str, Made]) -> dict[str, Any]:
        """What a container has to find that was given these, and nothing more."""
        ids = tuple(sorted(ids, key=lambda one: made[one].order))
        names = [made[one].index if way.is_by_index else one for one in ids]
        nodes = () if way.nodes is None else (*way.nodes, *(n for i in ids for n in made[i].nodes))
        return {
            "environment": {k: v.format(",".join(names)) for k, v in way.environment.items()},
            "mounted": [] if way.mounted is None else sorted([*names, *way.mounted]),
            "devices": {node: f"{MAJOR}:{self.numbers[node]}" for node in nodes},
        }


def until(is_so):
    """Wait until something is so of which no event is sent; what it is then."""
    deadline = time.monotonic() + SOON_S
    while not (found := is_so()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def cannot_start(pod):
    """Whether its kubelet has tried to make a container, and could not."""
    states = [one["state"] for one in pod["status"].get("containerStatuses", [])]
    return any("message" in state.get("waiting", {}) for state in states)


def container(name, resource, n, **fields):
    """A container with devices of that resource."""
    limits = {"limits": {resource: str(n)}}
    return real_container(name, resources=limits, **fields)


@pytest.fixture(scope="module")
def machine(control_plane, node_tools):
    """The node."""
    with KubeletNode(control_plane, NODE, node_tools) as node:
        yield Machine(control_plane, node)


@pytest.mark.parametrize(("number", "name"), list(enumerate(WAYS)), ids=list(WAYS))
def test_a_container_has_what_the_kubelet_gave_and_nothing_else(machine, pods, number, name):
    """A way that reaches no container, or brings it another's GPU, is of no use."""
    way, plugin, domain = WAYS[name], f"plugin-{number}", f"way-{number}.test"
    faults = machine.node.folder / f"{plugin}-faults.json"
    if way.is_mig:
        faults.write_text(json.dumps({"mig": dict.fromkeys(range(4), PROFILES)}))
    made = machine.made(machine.read(faults))
    resource = f"{domain}/mig-{PROFILES[1]}" if way.is_mig else f"{domain}/gpu"
    with machine.plugin(plugin, *way.flags, resource=resource):
        containers = [container("one", resource, 1), container("two", resource, 2)]
        pods.create(real_pod(plugin, *containers, nodeName=NODE))
        pod = pods.until(plugin, is_running)
        given = holders(machine.node, resource)
        one, two = given[plugin, "one"], given[plugin, "two"]
        assert (len(one), len(two), len({*one, *two})) == (1, 2, 3)
        assert machine.found(pod, "one") == machine.expected(way, one, made)
        assert machine.found(pod, "two") == machine.expected(way, two, made)


CDI = way("cdi-cri", environment=CDI_ALONE, nodes=CONTROL)


def test_a_container_starts_again_without_the_plugin(machine, pods, node_tools):
    """The kubelet answers for the plugin, and the runtime still finds the specification."""
    made, resource = machine.made(machine.read()), "again.test/gpu"
    with machine.plugin("plugin-again", *CDI.flags, resource=resource):
        one = container("main", resource, 2)
        pods.create(real_pod("again", one, nodeName=NODE, restartPolicy="Always"))
        pod = pods.until("again", is_running)
        ids = holders(machine.node, resource)["again", "main"]
    (status,) = pod["status"]["containerStatuses"]
    began = status["containerID"].removeprefix("containerd://")
    ctr = [str(node_tools.programs.ctr), "--address", str(endpoint(machine.node.space))]
    subprocess.run([*ctr, "--namespace", "k8s.io", "tasks", "kill", began], check=True)
    until(lambda: len(machine.node.output(pod, "main")) == 2)
    assert machine.found(pod, "main") == machine.expected(CDI, ids, made)


def test_a_container_waits_for_a_specification_that_is_gone(machine, pods):
    """Its pod says which, and starts by itself once the plugin has written it again."""
    made, resource = machine.made(machine.read()), "gone.test/gpu"
    with machine.plugin("plugin-gone", *CDI.flags, resource=resource) as plugin:
        (file,) = machine.node.cdi.glob("*.json")
        file.unlink()
        pods.create(real_pod("gone", container("main", resource, 1), nodeName=NODE))
        pod = pods.until("gone", cannot_start)
        (status,) = pod["status"]["containerStatuses"]
        assert status["state"]["waiting"]["reason"] == "CreateContainerError"
        failed, *_ = until(lambda: machine.warnings("gone"))
        (id_,) = holders(machine.node, resource)["gone", "main"]
        name = f"k8s.device-plugin.nvidia.com/gpu={id_}"
        assert failed["reason"] == "Failed"
        assert f"CDI device injection failed: unresolvable CDI devices {name}" in failed["message"]
        os.kill(plugin.program.pid, signal.SIGHUP)
        pod = pods.until("gone", is_running)
        assert machine.found(pod, "main") == machine.expected(CDI, (id_,), made)
