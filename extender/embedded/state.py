"""The embedded cluster's state: a live cluster whose API server is in this process.

The same accounts and rules as on a real cluster (`extender.state.cluster_state`), fed with nodes
from a description. What it accepts is bound immediately; it knows a pod only once it is bound. It
never chooses devices (`extender.placement.filter_score`) and never reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.bind import WriteResult, Written
from extender.state import HOSTNAME, ZONE, BoundPod, LiveCluster, NodeRecord, NodeResource
from topology.annotations import DevicesReport, UnhealthyDevice
from topology.errors import quote
from topology.groups import DEFAULT_FAMILIES, domain_path
from topology.model import UNKNOWN_WORTH, names, node_worth
from topology.node_affinity import KnownLabels
from topology.value import topology_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from extender.bind import WriteBinding
    from extender.embedded.spec import EmbeddedNode
    from topology.groups import LevelFamily
    from topology.value import Demand

__all__ = ["EmbeddedCluster"]

_UNHEALTHY = "the description says so"


class EmbeddedCluster(LiveCluster):
    """Nodes and pods in memory. One writer at a time, on the event loop."""

    def __init__(
        self,
        nodes: Sequence[EmbeddedNode],
        *,
        demand: Demand,
        gpu_worth: Sequence[tuple[str, float]] = (),
        families: Sequence[LevelFamily] = DEFAULT_FAMILIES,
    ) -> None:
        resources = tuple({node.resource: None for node in nodes})
        super().__init__(resources, demand=demand, gpu_worth=gpu_worth, families=families)
        self._gpu_worth = gpu_worth
        self._families = families
        self._bound: dict[str, BoundPod] = {}
        for node in nodes:
            self.put_node(self._read(node))
        self.set_freshness(is_synced=True, observed_at_s=None)

    @property
    def n_pods(self) -> int:
        """Number of pods bound."""
        return len(self._bound)

    def bound(self, uid: str) -> BoundPod | None:
        """A bound pod, or None."""
        return self._bound.get(uid)

    def pods_bound(self) -> Collection[BoundPod]:
        """Every pod that is bound."""
        return self._bound.values()

    def write_binding(self, step: WriteBinding) -> Written:
        """Accept a binding as the API server would; only the node is checked here."""
        if step.node not in self.snapshot.nodes:
            return Written(WriteResult.REJECTED, f"node {quote(step.node)} is not known")
        plan_text = step.annotations.get(names.PLAN)
        self._bound[step.uid] = BoundPod(step.uid, step.namespace, step.name, step.node, plan_text)
        self.pods.confirm(step.uid)
        # Now, not with the pod's end: the generation counts each of these changes.
        self.reconcile()
        return Written(WriteResult.ACCEPTED)

    def end(self, uid: str) -> BoundPod | None:
        """A pod ends: its devices are free again. None where it was not bound."""
        pod = self._bound.pop(uid, None)
        if pod is not None:
            self.pods.lose(uid)
        return pod

    def as_json(self) -> dict[str, object]:
        """Everything: nodes with the state and owner of each device, and the pods."""
        snapshot = self.snapshot
        return {
            "generation": snapshot.generation,
            "nodes": {
                name: {
                    "zone": view.zone,
                    "machine": view.kind.name,
                    "resource": view.kind.resource,
                    "devices": [
                        {"id": one, "state": state.value, "pod_uid": owner}
                        for one, state, owner in self.devices(name)
                    ],
                }
                for name, view in snapshot.nodes.items()
            },
            "pods": {pod.uid: pod.as_json() for pod in self._bound.values()},
        }

    def _read(self, node: EmbeddedNode) -> NodeRecord:
        topology, manager = node.topology, node.manager
        machine, worth = None, UNKNOWN_WORTH
        if topology is not None:
            machine = self._kinds.machine(topology_digest(topology), topology)
            worth = node_worth(topology.gpus, self._gpu_worth).per_device
        report = DevicesReport(
            unhealthy=tuple(UnhealthyDevice(one, _UNHEALTHY) for one in node.unhealthy),
            policy=None if manager is None else manager.policy,
            scope=None if manager is None else manager.scope,
        )
        served = NodeResource.of(
            node.resource, node.ids, machine=machine, label=node.group, worth=worth, report=report
        )
        labels = KnownLabels().plus(HOSTNAME, node.name).plus(ZONE, node.zone)
        for key, value in node.labels.items():
            labels = labels.plus(key, value)
        return NodeRecord(
            name=node.name,
            zone=node.zone,
            resources=(served,),
            has_soft_taint=node.prefer_no_schedule,
            report=report,
            problems=(),
            fingerprint=0,
            # Without the zone, which nodes get in turn: it would part what one leaf switch joins.
            path=domain_path(node.labels, self._families),
            labels=labels,
        )
