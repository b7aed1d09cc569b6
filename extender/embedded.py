"""The embedded cluster's state: nodes, ledger, and the pods that were bound, all in memory.

What it answers: the snapshot to decide from, and whether a plan became real. It is its own API
server: what it accepts is bound, at once, under the same ledger rules that hold for a live one. It
never chooses devices (`extender.verbs`) and never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.ledger import Ledger, Refused
from extender.plan import encode_plan
from extender.snapshot import MachineType, NodeKind, make_snapshot, make_view
from topology import names
from topology.digest import topology_digest
from topology.select import build_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.cluster import EmbeddedNode
    from extender.plan import Plan
    from extender.request import PodRequest
    from extender.snapshot import NodeView
    from extender.transitions import DeviceState
    from topology.model import NodeTopology
    from topology.remainder import Demand

__all__ = ["BoundPod", "EmbeddedCluster"]


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod as the embedded API server would show it; `plan_text` is its annotation, if any."""

    uid: str
    namespace: str
    name: str
    node: str
    plan_text: str | None

    def as_json(self) -> dict[str, object]:
        """The pod's record in the shape of API JSON."""
        annotations = {} if self.plan_text is None else {names.PLAN: self.plan_text}
        return {
            "metadata": {
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid,
                "annotations": annotations,
            },
            "spec": {"nodeName": self.node},
        }


class EmbeddedCluster:
    """Nodes and pods in memory. One writer at a time, on the event loop."""

    def __init__(self, nodes: Sequence[EmbeddedNode], *, demand: Demand) -> None:
        self.ledger = Ledger()
        self._pods: dict[str, BoundPod] = {}
        kinds = _Kinds(demand)
        views: list[NodeView] = []
        for node in nodes:
            self.ledger.add_node(node.name, node.ids)
            if node.unhealthy:
                self.ledger.sicken(node.name, node.unhealthy)
            views.append(
                make_view(
                    node.name,
                    zone=node.zone,
                    kind=kinds.kind(node),
                    ids=node.ids,
                    free=self.ledger.free_mask(node.name),
                )
            )
        self.snapshot = make_snapshot(
            views,
            generation=self.ledger.generation,
            has_soft_taints=any(node.prefer_no_schedule for node in nodes),
        )

    @property
    def n_pods(self) -> int:
        """Number of pods bound."""
        return len(self._pods)

    def pod(self, uid: str) -> BoundPod | None:
        """A bound pod, or None."""
        return self._pods.get(uid)

    def pods(self) -> tuple[BoundPod, ...]:
        """All bound pods, in the order in which they were bound."""
        return tuple(self._pods.values())

    def place(self, request: PodRequest, node: str) -> None:
        """Bind a pod without GPUs: nothing changes hands."""
        self._pods[request.uid] = BoundPod(request.uid, request.namespace, request.name, node, None)

    def place_plan(
        self, request: PodRequest, plan: Plan, *, deadline_s: float
    ) -> BoundPod | Refused:
        """Bind a pod with its plan, or change nothing."""
        assumed = self.ledger.assume(request.uid, plan.node, plan.ids, deadline_s=deadline_s)
        if isinstance(assumed, Refused):
            return assumed
        self.ledger.confirm(request.uid)
        text = encode_plan(plan) if plan.containers else None
        pod = BoundPod(request.uid, request.namespace, request.name, plan.node, text)
        self._pods[request.uid] = pod
        self._refresh(assumed.nodes)
        return pod

    def end(self, uid: str) -> BoundPod | None:
        """A pod ends: its devices are free again. None where it was not bound."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            released = self.ledger.release(uid)
            if not isinstance(released, Refused):
                self._refresh(released.nodes)
        return pod

    def counts(self) -> dict[DeviceState, int]:
        """Number of devices in each state."""
        return dict(self.ledger.counts)

    def as_json(self) -> dict[str, object]:
        """Everything: nodes with the state and owner of each device, and the pods."""
        return {
            "generation": self.ledger.generation,
            "nodes": {name: self._node_json(name) for name in self.snapshot.nodes},
            "pods": {pod.uid: pod.as_json() for pod in self.pods()},
        }

    def _node_json(self, name: str) -> dict[str, object]:
        view = self.snapshot.nodes[name]
        return {
            "zone": view.zone,
            "machine": view.kind.name,
            "resource": view.kind.resource,
            "devices": [
                {"id": one, "state": state.value, "pod_uid": owner}
                for one, state, owner in self.ledger.states(name)
            ],
        }

    def _refresh(self, changed: Iterable[str]) -> None:
        self.snapshot = self.snapshot.with_free(
            {name: self.ledger.free_mask(name) for name in changed}, self.ledger.generation
        )


class _Kinds:
    """Makes each machine type once, tables included."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._machines: dict[str, MachineType] = {}
        self._kinds: dict[tuple[str, str, str | None], NodeKind] = {}

    def kind(self, node: EmbeddedNode) -> NodeKind:
        machine = None if node.topology is None else self._machine(node.topology)
        key = (node.group, node.resource, machine.digest if machine is not None else None)
        if key not in self._kinds:
            self._kinds[key] = NodeKind(len(self._kinds), node.group, node.resource, machine)
        return self._kinds[key]

    def _machine(self, topology: NodeTopology) -> MachineType:
        digest = topology_digest(topology)
        if digest not in self._machines:
            selector = build_machine(topology, self._demand)
            self._machines[digest] = MachineType(digest, selector)
        return self._machines[digest]
