"""A stage on which the loop is closed: real kubelets as nodes, extender, scheduler, plugins, Jobs.

Starts all programs of a scenario as on a real cluster, runs Jobs and judges what each container
got. Extender and plugins have the chart's accounts and rights, and no others; simulated nodes may
stand beside the real ones.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.simulated_nodes import simulated_nodes
from tests.cluster.fleet.stage import Cast, start_cast
from tests.cluster.fleet.workload import RESOURCE
from tests.cluster.loop.loop_jobs import JobMix, job_manifests
from tests.cluster.loop.loop_record import LoopRecord
from tests.cluster.loop.loop_run import clear_jobs, run_jobs, start_job_controller
from tests.cluster.node.kubelet_node import KubeletNode
from tests.cluster.node.plugin_account import deploy_plugin, plugin_kubeconfig
from tests.cluster.node.plugin_process import PluginProcess, start_plugin
from tests.cluster.node.stub_plugin import allocatable_devices
from topology.annotations import DevicesReport, decode_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from extender.embedded import ClusterSpec
    from extender.embedded.spec import EmbeddedNode
    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.loop.loop_record import ContainerRecord, Verdict
    from tests.cluster.node.kubelet_node import NodeTools

__all__ = ["RECORDING", "LoopStage", "loop_stage"]

RECORDING = "dgx-1-v100"
"""What the plugins see: eight GPUs on two NUMA nodes, an NVLink mesh where the set matters."""
_SOON_S = 60.0
_CHECK_EVERY_S = 0.1


@dataclass
class LoopStage:
    """All that runs for the tests of a module."""

    plane: ControlPlane
    nodes: tuple[KubeletNode, ...]
    cast: Cast
    plugin_users: Mapping[str, Path]
    """The kubeconfig of each node's plugin."""
    plugins: dict[str, PluginProcess] = field(default_factory=dict)
    """The plugins that were started last, by node."""

    def start_plugins(self, *flags: str, name: str = "plugin") -> None:
        """Start a plugin on each node, in the place of those before.

        Returns when the nodes can be planned on; reporters need another device plugin first.
        """
        self.stop_plugins()
        for node in self.nodes:
            self.plugins[node.name] = start_plugin(
                node, self.plugin_users[node.name], RECORDING, *flags, name=name
            )
        if "--mode=reporter" not in flags:
            self.until_known()

    def stop_plugins(self) -> None:
        """Stop them."""
        for plugin in self.plugins.values():
            plugin.program.stop()
        self.plugins.clear()

    @contextmanager
    def beside(self, spec: ClusterSpec) -> Iterator[tuple[EmbeddedNode, ...]]:
        """Simulated nodes of that description, which the extender can plan on."""
        with simulated_nodes(self.plane, spec) as nodes:
            for node in nodes:
                self.until(partial(self._has_topology, node.name))
            yield nodes

    def until_known(self) -> None:
        """Wait until the extender can plan on every node."""
        for node in self.nodes:
            self.until(partial(self._is_known, node))

    def known(self, node: KubeletNode) -> dict[str, Any]:
        """What the extender knows of the node; empty where it does not."""
        return self._known(node.name)

    def _known(self, node: str) -> dict[str, Any]:
        nodes = self.cast.extender.get("/state/nodes").json()["nodes"]
        return dict(nodes.get(node, {}))

    def _has_topology(self, node: str) -> bool:
        return self._known(node).get("topology") is not None

    def _is_known(self, node: KubeletNode) -> bool:
        """Whether the extender can plan there: it has the topology, and the devices are there.

        The Node may still show the devices of before, so the kubelet is looked at too.
        """
        known = self.known(node)
        if known.get("topology") is None:
            return False
        n_free = len(known["free"])
        return self.allocatable(node) == n_free == len(allocatable_devices(node))

    def annotation(self, node: KubeletNode, key: str) -> str | None:
        """What the node's plugin has published under that key."""
        meta = self.plane.client.get(node_path(node.name)).json()["metadata"]
        found = meta.get("annotations", {}).get(key)
        return None if found is None else str(found)

    def allocatable(self, node: KubeletNode) -> int:
        """How many GPUs the node has for pods, as the scheduler sees it."""
        status = self.plane.client.get(node_path(node.name)).json()["status"]
        return int(status["allocatable"].get(RESOURCE, 0))

    def report(self, node: KubeletNode) -> DevicesReport:
        """What the node's plugin reports of its devices."""
        text = self.annotation(node, "coterie.gpu/devices")
        return decode_devices(text) if text else DevicesReport()

    def reported(self, *kinds: str) -> set[str]:
        """The pods of which a plugin has said that they differ from their plan, so or at all.

        Where a substitute may be for one of several pods, all of them are named.
        """
        logged = [event for plugin in self.plugins.values() for event in plugin.events()]
        different = [one for one in logged if one.get("event") == "plan_mismatch"]
        if kinds:
            different = [one for one in different if one["kind"] in kinds]
        replaced = [one for one in logged if one.get("basis") == "substitute"]
        named = [str(one["pod"]) for one in (*different, *replaced) if "pod" in one]
        named += [str(name) for one in replaced for name in one.get("pods", ())]
        return {name.rpartition("/")[2] for name in named}

    def unreported(self, containers: Iterable[ContainerRecord]) -> list[ContainerRecord]:
        """Those of which no plugin has said anything: it names neither their pod nor their devices.

        Where the kubelet was too slow to name a call's pod, only the devices can be reported.
        """
        named = self.reported()
        logged = [event for plugin in self.plugins.values() for event in plugin.events("allocated")]
        allocated = [tuple(sorted(one["ids"])) for one in logged if "pod" not in one]
        return [one for one in containers if one.pod not in named and one.seen not in allocated]

    def until(self, is_so: Callable[[], bool], *, within_s: float = _SOON_S) -> float:
        """Wait until that is so; how long it took. Raises `TimeoutError`."""
        began = time.monotonic()
        while not is_so():
            if time.monotonic() > began + within_s:
                msg = f"not so after {within_s:g} s"
                raise TimeoutError(msg)
            time.sleep(_CHECK_EVERY_S)
        return time.monotonic() - began

    def run(self, mix: JobMix, *, burst: int = 20) -> Verdict:
        """Run Jobs to their end, and clear them away."""
        with LoopRecord(self.plane, self.nodes) as record:
            took_s = run_jobs(self.plane, job_manifests(mix), burst=burst)
            verdict = record.verdict()
        print(f"{mix.prefix}: {mix.n_jobs} Jobs in {took_s:.0f} s: {verdict.summary()}")  # noqa: T201 - the figures
        clear_jobs(self.plane)
        return verdict


@contextmanager
def loop_stage(
    control_plane: ControlPlane, tools: NodeTools, names: Sequence[str]
) -> Iterator[LoopStage]:
    """Nodes of these names, extender, scheduler and the controller of Jobs; plugins come later."""
    with ExitStack() as stack:
        deploy_plugin(control_plane)
        nodes = tuple(
            stack.enter_context(KubeletNode(control_plane, name, tools, numa_nodes=2))
            for name in names
        )
        cast = start_cast(control_plane)
        stack.callback(cast.stop)
        start_job_controller(control_plane)
        users = {name: plugin_kubeconfig(control_plane, name) for name in names}
        yield LoopStage(control_plane, nodes, cast, users)
