"""The plugin as a whole: a simulated machine, a fake kubelet over real gRPC, a patched Node.

What real kubelets do is tried in tests/cluster; here faults come when they are wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from prometheus_client import generate_latest

from kube.errors import KubeError, Unreachable
from plugin.config import load_settings
from plugin.container import ContainerAccess, DeviceNode
from plugin.dependencies import PluginDependencies, PluginTiming
from plugin.errors import ReadingError
from plugin.health import HealthTimes
from plugin.kubelet import KubeletView, PodResources
from plugin.machine import (
    NO_SHARING,
    Device,
    DeviceAccess,
    EventKind,
    FaultCode,
    GpuEvent,
    GpuReading,
    MachineReading,
    ReaderCondition,
    Remedy,
    SharedPolicy,
    Vendor,
    WrittenFiles,
    whole_gpus,
)
from plugin.node_plugin import NodePlugin, StopReason
from plugin.nvidia import VENDOR
from plugin.observe import PluginMetrics, Telemetry
from plugin.pods import PodContainer
from plugin.publish import ReportTiming, WriteTiming
from plugin.sysfs import Sysfs
from plugin.wiring import serving_rules
from tests.changes import Changes
from tests.fake_kubelet import AdmissionError, FakeKubelet
from tests.machines import machine
from tests.unit.plugin.machine_values import simulated_machine
from tests.unit.plugin.node_values import GPU, app, init, node_pod, sidecar
from topology.annotations import (
    DeviceHold,
    TopologyManagerPolicy,
    TopologyManagerScope,
    decode_devices,
    pod_keys,
)
from topology.model import Gpu, decode_topology, names
from topology.select import ContainerRole
from topology.topology_manager import TopologyManager

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.usefixtures("memory_kept")

NODE = "n1"
SOON_S = 60.0
TIMING = PluginTiming(
    health=HealthTimes(wait_s=0.1, settle_s=0.1, gap_s=0.5),
    report=ReportTiming(soon_s=0.03, settled_s=0.3, idle_s=3.0, retry_s=0.3),
    write=WriteTiming(coalesce_s=0.1, urgent_s=0.01),
)
"""The pauses that spare real kubelets and API servers, ten times shorter."""


def pod_json(pod):
    """A pod as the kubelet lists it."""
    by_role: dict[bool, list[dict[str, object]]] = {False: [], True: []}
    for one in pod.containers:
        entry = {
            "name": one.name,
            "resources": {"limits": {key: str(n) for key, n in one.devices.items()}},
        }
        if one.role is ContainerRole.SIDECAR:
            entry["restartPolicy"] = "Always"
        by_role[one.role is ContainerRole.APP].append(entry)
    status = {"phase": pod.phase} | (
        {"startTime": "2026-01-01T00:00:00Z"} if pod.is_started else {}
    )
    return {
        "metadata": {
            "uid": pod.uid,
            "namespace": pod.namespace,
            "name": pod.name,
            "annotations": dict(pod.annotations),
        },
        "spec": {
            "initContainers": by_role[False],
            "containers": by_role[True],
            "runtimeClassName": pod.runtime_class,
        },
        "status": status,
    }


class Api:
    """The kubelet's HTTPS API and the API server, as far as the plugin uses them."""

    def __init__(self, kubelet):
        self.kubelet = kubelet
        self.trouble: Exception | None = None
        self.annotations = {}
        self.writes = []
        self.manager: TopologyManager | KubeError = TopologyManager(
            TopologyManagerPolicy.NONE, TopologyManagerScope.CONTAINER
        )
        self.n_policy_reads = 0
        self.n_looks = 0
        self.events = []
        self.refusal: KubeError | None = None
        self.changes = Changes()

    async def pods(self, *, timeout_s=None):
        """The list, of pods that are being admitted too."""
        assert timeout_s is not None
        self.n_looks += 1
        self.changes.note()
        if self.trouble is not None:
            raise self.trouble
        items = [pod_json(pod) for pod in self.kubelet.pods.values()]
        return json.dumps({"kind": "PodList", "items": items}).encode()

    async def topology_manager(self, *, timeout_s=None):
        """How it is set."""
        assert timeout_s is not None
        self.n_policy_reads += 1
        self.changes.note()
        if isinstance(self.manager, KubeError):
            raise self.manager
        return self.manager

    async def looks(self, n):
        """Wait until the pods were read so often from now on."""
        wanted = self.n_looks + n
        await self.changes.until(lambda: self.n_looks >= wanted)

    async def create_event(self, event):
        """Keep it, or refuse it."""
        if self.refusal is not None:
            raise self.refusal
        self.events.append(event)

    async def annotate_node(self, name, annotations):
        """Merge; what the Node carries then."""
        assert name == NODE
        if annotations:
            self.writes.append(dict(annotations))
        self.annotations.update(annotations)
        self.changes.note()
        return {key: value for key, value in self.annotations.items() if value is not None}


class Log:
    """Keeps what was logged."""

    def __init__(self):
        self.lines = []

    def _note(self, event, **fields):
        self.lines.append({"event": event, **fields})

    debug = info = warning = _note

    def of(self, event):
        """The lines of one event."""
        return [line for line in self.lines if line["event"] == event]


class NoTelemetry(Telemetry):
    """Drops everything."""

    def __init__(self):
        self.log = Mock()

    def __getattribute__(self, name):
        """A function that does nothing, for whatever is reported."""
        return Mock()


class Node:
    """A machine with its plugin and its kubelet."""

    def __init__(self, root, recording="dgx-1-v100", **flags):
        self.faults = root / "faults.json"
        simulated = {"simulate": recording, "simulate_faults": self.faults}
        flags = {
            "node_name": NODE,
            **({} if "device_list_strategy" in flags else simulated),
            "pod_resources_socket": root / "pod-resources" / "kubelet.sock",
            "health_poll_s": 0.1,
            "health_quiet_s": 0,
            **flags,
        }
        if "mode" not in flags:
            flags["kubelet_socket"] = str(root / "device-plugins" / "kubelet.sock")
        self.loaded = load_settings(flags, {})
        self.settings = self.loaded.settings
        self.kubelet = FakeKubelet(root, affinity=lambda *_: None)
        self.api = Api(self.kubelet)
        self.log = Log()
        self.metrics = PluginMetrics()
        self.telemetry = Telemetry(self.log, self.metrics)
        self.vendor: Vendor[Any] = VENDOR
        self.reader: Any = simulated_machine(recording, node_name=NODE, faults=self.faults)
        self.boot_id = "first"
        self.timing = TIMING
        self.plugin: Any = None
        self.task: Any = None

    @property
    def ids(self):
        """The machine's device ids, in its order."""
        return tuple(gpu.uuid for gpu in self.reader.read().gpus)

    def make(self, known=None):
        """A new plugin, as the process would make it."""
        view = KubeletView(
            self.api, PodResources(self.settings.pod_resources_socket), self.settings.checkpoint
        )
        tools = PluginDependencies(
            self.reader,
            partial(self.vendor.open_access, self.settings, Sysfs()),
            self.vendor.fault_rules(self.settings),
            self.api,
            view,
            self.api,
            self.telemetry,
            self.boot_id,
            self.timing,
        )
        units_of = partial(self.vendor.units_of, self.settings)
        rules = replace(serving_rules(self.loaded), units_of=units_of)
        self.plugin = NodePlugin(self.settings, rules, self.reader.read(), tools=tools, known=known)

    def begin(self):
        """Start a new plugin."""
        self.make()
        self.task = asyncio.create_task(self.plugin.run())

    async def end(self):
        """End it as by SIGTERM."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def running(self, n_healthy=8):
        """With a kubelet that knows all devices, and both annotations published."""
        await self.kubelet.start()
        self.begin()
        try:
            if self.plugin.is_serving:
                await self.kubelet.until_listed(GPU, n_healthy)
            await self.until(lambda: names.DEVICES in self.api.annotations)
            yield self
        finally:
            await self.end()
            await self.kubelet.stop()
            self.reader.close()

    async def until(self, is_so):
        """Wait for a write of the Node after which something is so."""
        async with asyncio.timeout(SOON_S):
            while not is_so():
                if self.task.done():
                    await self.task
                with contextlib.suppress(TimeoutError):  # what is not written has no event
                    await self.api.changes.until(is_so, 0.02)

    def report(self):
        """What `coterie.gpu/devices` says now."""
        return decode_devices(self.api.annotations[names.DEVICES])

    def break_machine(self, **faults):
        """Have the machine fail in this way."""
        self.faults.write_text(json.dumps(faults), encoding="utf-8")

    def series(self, *prefixes):
        """The samples whose names begin so."""
        names_of = tuple(f"coterie_plugin_{one}" for one in prefixes)
        samples = generate_latest(self.metrics.registry).decode().splitlines()
        return [line for line in samples if line.startswith(names_of)]

    def write_record(self):
        """The kubelet's checkpoint, as the real one writes it at each allocation."""
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {"-1": sorted(given.ids)},
            }
            for (uid, container, resource), given in self.kubelet.given.items()
        ]
        body = {"Data": {"PodDeviceEntries": entries}, "Checksum": 1}
        self.settings.checkpoint.write_text(json.dumps(body))

    def metric(self, line):
        """Whether a sample has this value."""
        return line in generate_latest(self.metrics.registry).decode().splitlines()


@pytest.fixture
def root(tmp_path_factory):
    """A folder with a path short enough for unix sockets in it: 107 bytes at most (unix(7))."""
    return tmp_path_factory.mktemp("a")


def given(got, container="main"):
    """The ids that a container got."""
    return set(got[container][GPU])


def test_a_node_publishes_its_topology_and_gives_what_was_planned(root):
    """The whole promise on one node, and no write for a pod that gets its plan."""

    async def go():
        quick = Node(root)
        quick.timing = replace(
            TIMING,
            report=replace(TIMING.report, idle_s=0.05),
            write=WriteTiming(coalesce_s=0.0, urgent_s=0.0),
        )
        async with quick.running() as node:
            topology = decode_topology(node.api.annotations[names.TOPOLOGY])
            assert tuple(gpu.uuid for gpu in topology.gpus) == node.ids
            assert node.report().policy is TopologyManagerPolicy.NONE
            n_writes = len(node.api.writes)
            planned = (node.ids[1], node.ids[6], node.ids[7])
            got = await node.kubelet.admit(node_pod("a", app("main", 3), plan={"main": planned}))
            assert given(got) == set(planned)
            envs = node.kubelet.given["uid-a", "main", GPU].response.envs
            assert envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(planned)
            await node.kubelet.admit(node_pod("b", app("main", 1), plan={"main": node.ids[:1]}))
            await node.api.looks(5)  # each of which would be followed by a write
            assert len(node.api.writes) == n_writes
            assert node.plugin.ready() == node.plugin.live() == ""

    asyncio.run(go())


def test_several_containers_of_one_pod_get_their_own_sets(root):
    """Init containers hand on, sidecars keep; later containers are known without a new look."""

    async def go():
        async with Node(root).running() as node:
            ids = node.ids
            plan = {"i": ids[:2], "s": ids[4:5], "x": ids[:2], "y": ids[6:8]}
            pod = node_pod("a", sidecar("s", 1), init("i", 2), app("x", 2), app("y", 2), plan=plan)
            got = await node.kubelet.admit(pod)
            assert {name: given(got, name) for name in "xy"} == {
                "x": set(ids[:2]),
                "y": set(ids[6:8]),
            }
            assert node.report().holds == ()

    asyncio.run(go())


def test_a_pod_without_a_plan_gets_the_best_by_its_own_wish_and_is_reported(root):
    """Another scheduler bound it: the extender has to know who has what."""

    async def go():
        async with Node(root).running() as node:
            pod = node_pod("a", app("main", 4), annotations={pod_keys.AFFINITY: "nvlink"})
            got = await node.kubelet.admit(pod)
            assert given(got) in (set(node.ids[:4]), set(node.ids[4:]))
            await node.until(lambda: node.report().holds)
            hold = DeviceHold("uid-a", "default", "a", "main", GPU, tuple(sorted(given(got))))
            assert node.report().holds == (hold,)
            (line,) = node.log.of("plan_mismatch")
            assert line["kind"] == "no-plan"
            assert node.metric('coterie_plugin_plan_mismatches{kind="no-plan"} 1.0')
            node.kubelet.end("uid-a")
            await node.until(lambda: not node.report().holds)

    asyncio.run(go())


def test_a_bad_gpu_is_not_given_and_comes_back(root):
    """It stays listed, the others are served, and the Node says why."""

    async def go():
        async with Node(root).running() as node:
            bad = node.ids[2]
            node.break_machine(lost=[2])
            await node.kubelet.until_listed(GPU, 7)
            await node.until(lambda: node.report().unhealthy)
            assert [one.id for one in node.report().unhealthy] == [bad]
            assert node.kubelet.unhealthy[GPU] == {bad}
            required = {pod_keys.POLICY: "required", pod_keys.AFFINITY: "nvlink"}
            plan = {"main": node.ids[:4]}
            pod = node_pod("a", app("main", 4), plan=plan, annotations=required)
            got = await node.kubelet.admit(pod)
            assert bad not in given(got)
            everything = node_pod("b", app("main", 4), plan={"main": node.ids[:4]})
            with pytest.raises(AdmissionError):
                await node.kubelet.admit(everything)
            node.break_machine()
            await node.kubelet.until_listed(GPU, 8)
            await node.until(lambda: not node.report().unhealthy)

    asyncio.run(go())


def test_a_required_pod_whose_set_is_gone_fails_with_the_reason(root):
    """Never silently on less: its controller makes a new one, which is planned again."""

    async def go():
        async with Node(root).running() as node:
            node.break_machine(lost=[0, 1, 2, 4, 5, 6])
            await node.kubelet.until_listed(GPU, 2)
            required = {pod_keys.POLICY: "required", pod_keys.AFFINITY: "pcie-switch"}
            pod = node_pod("a", app("main", 2), plan={"main": node.ids[:2]}, annotations=required)
            with pytest.raises(
                AdmissionError, match="no set of devices meets the pod's requirements"
            ):
                await node.kubelet.admit(pod)
            assert node.metric('coterie_plugin_preferred_allocations_total{basis="refused"} 1.0')

    asyncio.run(go())


def test_links_that_go_down_are_published(root):
    """The topology is what is there now."""

    async def go():
        async with Node(root).running() as node:
            before = node.api.annotations[names.TOPOLOGY]
            node.break_machine(
                links_down=[{"gpus": [0, 3], "n": 2}], xid=[{"gpu": 0, "code": 13, "at": 1}]
            )
            node.plugin.see_reading(node.reader.read())
            await node.until(lambda: node.api.annotations[names.TOPOLOGY] != before)
            now = decode_topology(node.api.annotations[names.TOPOLOGY])
            assert not now.links[0][3].is_up
            assert node.metrics.registry.get_sample_value("coterie_plugin_accelerator_links") == 22

    asyncio.run(go())


def test_a_kubelet_that_restarts_is_served_again(root):
    """It wipes all sockets; those who ran keep what they have."""

    async def go():
        async with Node(root).running() as node:
            await node.kubelet.admit(node_pod("a", app("main", 2), plan={"main": node.ids[:2]}))
            await node.kubelet.kill()
            await node.kubelet.start()
            await node.kubelet.until_listed(GPU, 8)
            planned = node.ids[2:4]
            got = await node.kubelet.admit(node_pod("b", app("main", 2), plan={"main": planned}))
            assert given(got) == set(planned)
            assert len([s for s in node.log.of("registration") if s["phase"] == "registered"]) == 2

    asyncio.run(go())


def test_a_new_plugin_goes_on_where_the_last_one_ended(root):
    """Nothing is kept but what the kubelet and the Node report."""

    async def go():
        async with Node(root).running() as node:
            foreign = await node.kubelet.admit(node_pod("a", app("main", 2)))
            await node.until(lambda: node.report().holds)
            generation, n_writes = node.report().generation, len(node.api.writes)
            await node.end()
            await node.kubelet.until(lambda: GPU not in node.kubelet.clients)
            node.begin()
            await node.kubelet.until(lambda: GPU in node.kubelet.clients)
            await node.kubelet.until_listed(GPU, 8)
            planned = tuple(one for one in node.ids if one not in given(foreign))[:3]
            got = await node.kubelet.admit(node_pod("b", app("main", 3), plan={"main": planned}))
            assert given(got) == set(planned)
            await node.until(lambda: node.plugin.ready() == "")
            assert node.report().generation == generation
            assert len(node.api.writes) == n_writes

    asyncio.run(go())


async def admitted_unlisted(node):
    """Admit a planned pod while the kubelet's list cannot be read; what it got, and its plan."""
    node.api.trouble = Unreachable(0, "Unreachable", "no route")
    planned = (node.ids[0], node.ids[7])
    got = await node.kubelet.admit(node_pod("a", app("main", 2), plan={"main": planned}))
    return got, planned


def test_what_was_given_without_the_kubelets_list_is_reported(root):
    """From PodResources and the checkpoint: the extender compares it with its plan."""

    async def go():
        async with Node(root).running() as node:
            got, _ = await admitted_unlisted(node)
            node.write_record()
            await node.until(lambda: node.report().holds)
            hold = DeviceHold("uid-a", "default", "a", "main", GPU, tuple(sorted(given(got))))
            assert node.report().holds == (hold,)
            (line,) = node.log.of("plan_mismatch")
            assert line["kind"] == "unknown-plan"
            assert node.metric('coterie_plugin_plan_mismatches{kind="unknown-plan"} 1.0')
            assert "no route" in node.plugin.ready()

    asyncio.run(go())


@pytest.mark.parametrize("register_blind", [False, True], ids=["by default", "as set"])
def test_it_does_not_register_before_the_kubelets_pods_could_be_read(root, register_blind):
    """Its plans would be ignored from the first pod on, and nothing would show it."""

    async def go():
        node = Node(root, register_blind=register_blind)
        node.api.trouble = Unreachable(0, "Unreachable", "no route")
        async with node.running(n_healthy=8 if register_blind else 0):
            await node.api.looks(2)  # after which it would be registered
            assert (GPU in node.kubelet.clients) is register_blind
            assert node.plugin.ready().startswith("pods unknown: ")
            assert names.TOPOLOGY in node.api.annotations
            node.api.trouble = None
            await node.kubelet.until_listed(GPU, 8)
            await node.until(lambda: node.plugin.ready() == "")
            planned = (node.ids[0], node.ids[7])
            got = await node.kubelet.admit(node_pod("a", app("main", 2), plan={"main": planned}))
            assert given(got) == set(planned)

    asyncio.run(go())


def test_without_telemetry_nothing_else_changes(root):
    """What observes only observes: readiness, reports and writes do not depend on it."""

    async def go():
        node = Node(root, register_blind=True)
        node.timing = replace(TIMING, report=replace(TIMING.report, idle_s=1000.0))
        node.telemetry = NoTelemetry()
        node.api.trouble = Unreachable(0, "Unreachable", "no route")
        async with node.running():
            assert node.plugin.ready().startswith("pods unknown: ")
            assert "no route" in node.plugin.ready()
            node.api.trouble = None
            await node.until(lambda: node.plugin.ready() == "")
            planned, n_looks = (node.ids[0], node.ids[7]), node.api.n_looks
            got = await node.kubelet.admit(node_pod("a", app("main", 2), plan={"main": planned}))
            assert given(got) == set(planned)
            # For the pod, and the two after a change: from here on none is due.
            await node.until(lambda: node.api.n_looks >= n_looks + 3)
            foreign = await node.kubelet.admit(node_pod("b", app("main", 1)))
            await node.until(lambda: node.report().holds)
            assert set(node.report().holds[0].ids) == given(foreign)
            node.break_machine(lost=[node.ids[7]])
            await node.until(lambda: node.report().unhealthy)
            await node.kubelet.kill()
            await node.until(lambda: node.plugin.ready() == f"not registered: {GPU}")
            await node.kubelet.start()
            await node.until(lambda: node.plugin.ready() == "")
        assert not node.log.lines

    asyncio.run(go())


def test_the_topology_managers_policy_decides_about_numa_nodes(root):
    """NUMA nodes are listed where the kubelet aligns."""

    async def go():
        node = Node(root)
        node.api.manager = TopologyManager(
            TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.POD
        )
        async with node.running():
            listed = node.kubelet.devices[GPU].values()
            assert {one.topology.nodes[0].ID for one in listed} == {0, 1}
            report = node.report()
            assert (report.policy, report.scope) == (
                TopologyManagerPolicy.RESTRICTED,
                TopologyManagerScope.POD,
            )

    asyncio.run(go())


def test_a_reporter_serves_nothing_and_publishes_everything(root):
    """Beside NVIDIA's plugin."""

    async def go():
        async with Node(root, mode="reporter").running() as node:
            assert not node.kubelet.clients
            assert names.TOPOLOGY in node.api.annotations
            await node.until(lambda: node.plugin.ready() == "")
            assert node.metric(f'coterie_plugin_devices{{resource="{GPU}",state="healthy"}} 8.0')
            served = ("registered", "registrations", "calls", "call_d", "pref", "identity")
            assert not node.series(*served)

    asyncio.run(go())


def test_other_resources_end_the_plugin(root):
    """Each resource has a server of its own, so the process makes a new plugin."""

    async def go():
        async with Node(root, mig_strategy="mixed", recording="dgx-a100").running() as node:
            node.break_machine(mig={"0": ["1g.10gb"] * 7})
            node.plugin.see_reading(node.reader.read())
            assert await asyncio.wait_for(node.task, SOON_S) is StopReason.RESOURCES_CHANGED
            node.begin()
            await node.kubelet.until_listed("nvidia.com/mig-1g.10gb", 7)
            await node.kubelet.until_listed(GPU, 7)
            node.break_machine(mig={"0": ["2g.20gb"] * 3})
            node.plugin.see_reading(node.reader.read())
            assert await asyncio.wait_for(node.task, SOON_S) is StopReason.RESOURCES_CHANGED
            node.begin()
            await node.kubelet.until_listed("nvidia.com/mig-2g.20gb", 3)
            assert not [line for line in node.series("") if "mig-1g.10gb" in line]
            assert [line for line in node.series("registered") if "mig-2g.20gb" in line]

    asyncio.run(go())


def time_sliced(folder, name=GPU, *, replicas):
    """A configuration file that divides a resource's devices."""
    file = folder / "config.yaml"
    sharing = f"{{timeSlicing: {{resources: [{{name: {name}, replicas: {replicas}}}]}}}}"
    file.write_text(f"version: v1\nsharing: {sharing}\n")
    return str(file)


async def admitted(node, name, resource=GPU):
    """The GPU or MIG instance of which a new pod got its only replica."""
    container = PodContainer("main", ContainerRole.APP, {resource: 1})
    got = await node.kubelet.admit(node_pod(name, container))
    (replica,) = got["main"][resource]
    return replica.partition("::")[0]


def test_pods_of_one_replica_are_packed_where_the_most_is_taken(root, tmp_path):
    """One GPU is filled before the next is opened."""
    config = time_sliced(tmp_path, replicas=4)
    policy = SharedPolicy.PACKED

    async def go():
        shared = Node(root, config_file=config, shared_devices_allocation_policy=policy)
        async with shared.running(n_healthy=32) as node:
            got = [await admitted(node, f"p{i}") for i in range(12)]
            assert got == [node.ids[i // 4] for i in range(12)]
            for i in (0, 1, 2, 8):  # left: one of the first GPU, three of the third
                node.kubelet.end(f"uid-p{i}")
            assert await admitted(node, "later") == node.ids[2]
            assert await admitted(node, "last") == node.ids[0]

    asyncio.run(go())


def test_a_machine_that_suits_no_figures_is_refused_at_the_start(root, tmp_path):
    """Measured pairs of another machine would rank this one's."""
    figures = tmp_path / "figures"
    figures.write_text("0 9 50.0\n")
    node = Node(root, measurements=figures)
    with pytest.raises(Exception, match="expected figures of this machine's GPUs"):
        node.make()
    node.reader.close()


def test_devices_are_described_for_cdi_before_they_are_offered(root):
    """A container that gets a name its runtime does not find would not start."""
    (root / "driver" / "dev").mkdir(parents=True)
    flags = {
        "device_list_strategy": "cdi-cri",
        "cdi_generator": "own",
        "cdi_folder": root / "cdi",
        "driver_root_ctr_path": root / "driver",
    }

    async def go():
        async with Node(root, **flags).running() as node:
            (file,) = (root / "cdi").glob("*.json")
            described = {one["name"] for one in json.loads(file.read_text())["devices"]}
            assert described == {*node.ids, "all"}
            pod = node_pod("a", app("main", 1), plan={"main": node.ids[:1]})
            await node.kubelet.admit(pod)
            answer = node.kubelet.given["uid-a", "main", GPU].response
            name = f"k8s.device-plugin.nvidia.com/gpu={node.ids[0]}"
            assert [one.name for one in answer.cdi_devices] == [name]
            file.unlink()
            reading = node.reader.read()
            lost = replace(reading.gpus[7], nodes=())
            node.plugin.see_reading(replace(reading, gpus=(*reading.gpus[:7], lost)))
            await node.until(lambda: node.log.of("cdi_failed"))
            assert node.ids[7] in node.log.of("cdi_failed")[0]["reason"]
            assert file.exists()
            file.unlink()
            file.mkdir()
            (file / "in-the-way").touch()
            node.plugin.see_reading(reading)
            await node.until(lambda: node.log.of("reader_failed"))
            assert node.log.of("reader_failed")[0]["what"] == "inventory"
            assert str(root / "cdi") in node.log.of("reader_failed")[0]["reason"]

    asyncio.run(go())


@pytest.mark.parametrize("access_check", [True, False], ids=["by default", "as set"])
def test_a_variable_that_no_runtime_may_read_is_reported(root, access_check):
    """The plugin has NVIDIA's runtime by name: under the GPU operator users' pods have it not."""
    plugin = node_pod("plugin", phase="Running", is_started=True, runtime_class="nvidia")

    async def go():
        node = Node(root, pod_uid=plugin.uid, access_check=access_check)
        node.kubelet.pods[plugin.uid] = plugin
        async with node.running():
            await node.until(lambda: node.api.events)
            (event,) = node.api.events
            assert "device_list_strategy envvar needs" in event.message
            assert [line["problems"] for line in node.log.of("access_checked")] == [
                [event.message.removeprefix("containers may get no usable GPU: ")]
            ]
            expected = event.message if access_check else ""
            await node.until(lambda: node.plugin.ready() == expected)

    asyncio.run(go())


class Clock:
    """The time, which a test can have pass."""

    def __init__(self):
        self.ahead_s = 0.0

    def __call__(self):
        """The time now."""
        return time.monotonic() + self.ahead_s


def test_a_loop_that_hangs_is_not_live_until_it_goes_on(root):
    """The probe is answered in another thread."""

    async def go():
        node, clock = Node(root), Clock()
        node.timing = replace(TIMING, beat_s=0.02, clock=clock)
        async with node.running():
            assert node.plugin.live() == ""
            clock.ahead_s += 60  # in which this loop did not come round
            assert "no heartbeat" in node.plugin.live()
            await node.until(lambda: node.plugin.live() == "")

    asyncio.run(go())


def test_a_node_that_is_prepared_slowly_is_alive(root):
    """NVIDIA's tool may take a minute, and a restart of the plugin would begin it again."""
    clock = Clock()
    is_preparing, may_end = threading.Event(), threading.Event()

    def open_access(settings, sysfs, served):
        is_preparing.set()
        may_end.wait(60)
        return VENDOR.open_access(settings, sysfs, served)

    async def go():
        node = Node(root)
        node.vendor = replace(VENDOR, open_access=open_access)
        node.timing = replace(TIMING, beat_s=0.02, clock=clock)
        await node.kubelet.start()
        node.begin()
        try:
            await asyncio.to_thread(is_preparing.wait, 60)
            clock.ahead_s += 60
            await node.until(lambda: node.plugin.live() == "")
            may_end.set()
            await node.kubelet.until_listed(GPU, 8)
        finally:
            may_end.set()
            await node.end()
            await node.kubelet.stop()
            node.reader.close()

    asyncio.run(go())


def test_a_restart_that_no_probe_makes_is_made_by_the_plugin(root, monkeypatch):
    """A process that can do nothing any more ends, for whatever starts it again."""

    async def go():
        node = Node(root)
        node.timing = replace(TIMING, health=HealthTimes(wait_s=0.1, restart_s=0.5, probe_s=0.5))
        async with node.running():
            condition = ReaderCondition(restart_reason="NVML: Unknown Error")
            monkeypatch.setattr(node.reader, "condition", lambda: condition)
            with pytest.raises(ReadingError, match="NVML: Unknown Error: expected a restart"):
                await asyncio.wait_for(node.task, SOON_S)

    asyncio.run(go())


def test_gpus_without_events_are_published(root, monkeypatch):
    """What only polls watch is less well watched: users of the node can see it."""

    async def go():
        async with Node(root).running() as node:
            alone = frozenset({node.ids[2]})
            monkeypatch.setattr(node.reader, "condition", lambda: ReaderCondition(alone))
            await node.until(lambda: node.report().polled_only == (node.ids[2],))
            assert node.metric("coterie_plugin_gpus_without_events 1.0")
            assert node.log.of("gpus_without_events")[0]["uuids"] == [node.ids[2]]
            monkeypatch.setattr(node.reader, "condition", ReaderCondition)
            await node.until(lambda: node.report().polled_only == ())

    asyncio.run(go())


# --- What a new plugin, a new kubelet and a silent one must not change ---------------------------


def test_what_is_known_to_be_wrong_outlives_the_plugin(root):
    """An XID that requires a restart of the node is not over because other resources came."""

    async def go():
        async with Node(root).running() as node:
            node.break_machine(xid=[{"gpu": 0, "code": 79, "at": 1}])
            await node.kubelet.until_listed(GPU, 7)
            known = node.plugin.known
            await node.end()
            node.make(known)
            node.task = asyncio.create_task(node.plugin.run())
            await node.kubelet.until(lambda: GPU in node.kubelet.clients)
            await node.until(lambda: node.plugin.ready() == "")
            await node.kubelet.until_listed(GPU, 7)
            assert node.kubelet.unhealthy[GPU] == {node.ids[0]}

    asyncio.run(go())


async def restarted(node):
    """End the plugin's process and start another on the same node."""
    await node.end()
    node.kubelet.clients.clear()
    node.make()
    node.task = asyncio.create_task(node.plugin.run())
    await node.until(lambda: node.plugin.ready() == "")


@pytest.mark.parametrize(
    ("code", "boot_id", "n_healthy"),
    [
        pytest.param(
            79, "first", 7, id="a restart of the node is needed, and the plugin's is none"
        ),
        pytest.param(95, "first", 7, id="a reset is needed, and none was seen"),
        pytest.param(79, "second", 8, id="the node restarted"),
        pytest.param(95, "second", 8, id="the node restarted, and so reset the GPU"),
        pytest.param(
            9999, "first", 8, id="nothing is known of the fault: the restart was the cure"
        ),
    ],
)
def test_a_mark_outlives_the_process_until_what_clears_it(root, code, boot_id, n_healthy):
    """A GPU whose fault only a reset clears must not be offered because its plugin is upgraded."""

    async def go():
        async with Node(root).running() as node:
            node.break_machine(xid=[{"gpu": 0, "code": code}])
            await node.until(lambda: [one.id for one in node.report().unhealthy] == [node.ids[0]])
            node.reader = simulated_machine("dgx-1-v100", node_name=NODE)
            node.boot_id = boot_id
            await restarted(node)
            await node.kubelet.until_listed(GPU, n_healthy)
            await node.until(lambda: len(node.report().unhealthy) == 8 - n_healthy)
            assert len(node.report().faults) == 8 - n_healthy

    asyncio.run(go())


def test_a_fault_ends_where_the_driver_requests_no_recovery(root, monkeypatch):
    """A GPU can be reset only while no plugin uses it, so none sees that it was."""

    async def go():
        async with Node(root).running() as node:
            node.break_machine(xid=[{"gpu": 0, "code": 95}, {"gpu": 1, "code": 95}])
            await node.until(lambda: len(node.report().unhealthy) == 2)
            node.reader = simulated_machine("dgx-1-v100", node_name=NODE)
            reading = node.reader.read()
            well = replace(reading.gpus[0], requests_recovery=False)
            reading = replace(reading, gpus=(well, *reading.gpus[1:]))
            monkeypatch.setattr(node.reader, "read", lambda: reading)
            await restarted(node)
            await node.until(lambda: [one.id for one in node.report().unhealthy] == [node.ids[1]])

    asyncio.run(go())


def test_marks_are_restored_when_the_node_can_be_read(root, monkeypatch):
    """An API server that is away must not keep a node's GPUs away, nor make a mark forgotten."""

    async def go():
        async with Node(root).running() as node:
            node.break_machine(xid=[{"gpu": 0, "code": 79}])
            await node.until(lambda: len(node.report().unhealthy) == 1)
            node.reader = simulated_machine("dgx-1-v100", node_name=NODE)
            annotate, may_answer = node.api.annotate_node, asyncio.Event()

            async def away(name, annotations):
                await may_answer.wait()
                return await annotate(name, annotations)

            node.timing = replace(TIMING, write=replace(TIMING.write, look_s=0.05))
            monkeypatch.setattr(node.api, "annotate_node", away)
            await node.end()
            node.kubelet.clients.clear()
            node.make()
            node.task = asyncio.create_task(node.plugin.run())
            await node.kubelet.until_listed(GPU, 8)
            may_answer.set()
            await node.kubelet.until_listed(GPU, 7)
            await node.until(lambda: len(node.report().faults) == 1)

    asyncio.run(go())


def test_marks_are_restored_by_the_plugin_that_reads_the_node(root, monkeypatch):
    """One before it in the same process may have ended while the API server was away."""

    async def go():
        async with Node(root).running() as node:
            node.break_machine(xid=[{"gpu": 0, "code": 79}])
            await node.until(lambda: len(node.report().unhealthy) == 1)
            node.reader = simulated_machine("dgx-1-v100", node_name=NODE)
            await node.end()
            node.kubelet.clients.clear()
            with monkeypatch.context() as away:
                away.setattr(node.api, "annotate_node", Mock(side_effect=Unreachable(0, "x", "no")))
                node.make()
                node.task = asyncio.create_task(node.plugin.run())
                await node.kubelet.until_listed(GPU, 8)
                await node.end()
            node.kubelet.clients.clear()
            node.make(node.plugin.known)
            node.task = asyncio.create_task(node.plugin.run())
            await node.kubelet.until_listed(GPU, 7)
            await node.until(lambda: len(node.report().faults) == 1)

    asyncio.run(go())


def test_a_gpu_that_is_lost_at_the_start_is_never_offered(root, monkeypatch):
    """The first poll may take seconds where the driver is sick."""

    async def go():
        node = Node(root)
        node.break_machine(lost=[2])
        seen = []
        listed = node.kubelet.listed

        def note(resource, response):
            seen.append({one.ID for one in response.devices if one.health == "Healthy"})
            listed(resource, response)

        monkeypatch.setattr(node.kubelet, "listed", note)
        async with node.running(n_healthy=7):
            assert all(node.ids[2] not in healthy for healthy in seen)
            assert len(node.api.writes) == 1

    asyncio.run(go())


def test_a_gpu_that_recovers_before_the_first_poll_is_offered(root):
    """At the start of a node the fabric manager registers GPUs while the plugin prepares access."""

    async def go():
        node = Node(root)
        node.break_machine(lost=[2])
        node.make()
        node.break_machine()
        await node.kubelet.start()
        node.task = asyncio.create_task(node.plugin.run())
        try:
            await node.kubelet.until_listed(GPU, 8)
            await node.until(lambda: names.DEVICES in node.api.annotations)
            await node.until(lambda: not node.report().unhealthy)
        finally:
            await node.end()
            await node.kubelet.stop()
            node.reader.close()

    asyncio.run(go())


def test_holds_stay_published_while_a_new_plugin_is_blind(root):
    """Devices that others have must not look free for a moment."""

    async def go():
        async with Node(root).running() as node:
            await node.kubelet.admit(node_pod("a", app("main", 2)))
            await node.until(lambda: node.report().holds)
            holds, n_writes = node.report().holds, len(node.api.writes)
            await node.end()
            node.api.trouble = Unreachable(0, "Unreachable", "no route")
            node.begin()
            await node.until(lambda: "no route" in node.plugin.ready())
            assert node.plugin.ready().startswith("pods unknown: ")
            node.plugin.see_health({node.ids[7]: "bad"})
            await node.until(lambda: node.report().unhealthy)
            assert node.report().holds == holds
            assert len(node.api.writes) == n_writes + 1

    asyncio.run(go())


def test_a_reporter_meets_every_new_kubelet(root):
    """It has no registration that would show one."""

    async def go():
        node = Node(root, mode="reporter", kubelet_socket=str(root / "device-plugins/kubelet.sock"))
        async with node.running():
            await node.kubelet.kill()
            node.api.annotations.clear()
            node.api.manager = TopologyManager(
                TopologyManagerPolicy.BEST_EFFORT, TopologyManagerScope.POD
            )
            await node.kubelet.start()
            await node.until(lambda: names.TOPOLOGY in node.api.annotations)
            await node.until(lambda: node.report().policy is TopologyManagerPolicy.BEST_EFFORT)

    asyncio.run(go())


# --- another vendor ---


class AcmeMachine:
    """Two GPUs of a made-up vendor, each with two device nodes; one fault in all."""

    def __init__(self):
        self.events: queue.Queue[GpuEvent] = queue.Queue()

    def read(self):
        """As it is always."""
        topology = machine([Gpu(uuid="ACME-0"), Gpu(uuid="ACME-1")])
        gpus = tuple(
            GpuReading(i, gpu, nodes=("/dev/acme", f"/dev/acme{i}"))
            for i, gpu in enumerate(topology.gpus)
        )
        return MachineReading(gpus, topology)

    def faults(self):
        """None that lasts."""
        return {}

    def wait(self, timeout_s):
        """What the test put there."""
        try:
            return (self.events.get(timeout=timeout_s),)
        except queue.Empty:
            return ()

    def condition(self):
        """Nothing is wrong with it."""
        return ReaderCondition()

    def close(self):
        """Nothing was opened."""


class AcmeFaults:
    """Every fault counts, and stays."""

    is_off = False

    def counts(self, number):
        """Always."""
        return number > 0

    def remedy_of(self, number):
        """A restart of the node, for every one."""
        return Remedy.RESTART_NODE if number else Remedy.NOTHING


def acme_access(devices: Sequence[Device]) -> ContainerAccess:
    """The device nodes, each once."""
    paths = dict.fromkeys(path for one in devices for path in one.gpu.nodes)
    return ContainerAccess(device_nodes=tuple(DeviceNode(path, path) for path in paths))


ACME: Vendor[Any] = Vendor(
    default_resource=GPU,
    open_reader=lambda *_: AcmeMachine(),
    units_of=lambda _, gpus, base: whole_gpus(gpus, base),
    open_access=lambda *_: DeviceAccess(acme_access),
    written_files=lambda _: WrittenFiles(),
    fault_rules=lambda _: AcmeFaults(),
    read_sharing=lambda _raw, _domain: NO_SHARING,
    facts_of=lambda _: {},
    partitions="partitions",
    visible_devices="ACME_DEVICES",
    simulated=VENDOR.simulated,
    evidence=VENDOR.evidence,
)


def test_another_vendor_is_served(root):
    """A vendor is one value: its nodes reach containers, its fault codes the Node."""

    async def go():
        node = Node(root)
        node.vendor, node.reader = ACME, AcmeMachine()
        async with node.running(n_healthy=2):
            assert node.ids == ("ACME-0", "ACME-1")
            await node.kubelet.admit(node_pod("a", app("main", 1), plan={"main": ("ACME-1",)}))
            answer = node.kubelet.given["uid-a", "main", GPU].response
            assert [one.host_path for one in answer.devices] == ["/dev/acme", "/dev/acme1"]
            assert dict(answer.envs) == {}
            node.reader.events.put(GpuEvent(EventKind.FAULT, "ACME-0", FaultCode("RAS", 7)))
            await node.until(lambda: node.report().unhealthy)
            (bad,) = node.report().unhealthy
            assert (bad.id, bad.reason) == ("ACME-0", "RAS 7, until the node restarts")

    asyncio.run(go())
