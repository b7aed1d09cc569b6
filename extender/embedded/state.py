"""The embedded cluster's state: nodes, ledger, and the pods that were bound, all in memory.

What it answers: the snapshot to decide from, and whether a binding became real. It is its own API
server, which knows of a pod only once it is bound: what it accepts is bound, at once, under the
same ledger rules that hold for a live one. It never chooses devices
(`extender.placement.filter_score`) and never reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.bind import WriteResult, Written
from extender.snapshot import make_snapshot, make_view
from extender.state import Applied, BoundPod, Kinds, Ledger, Refused
from topology.errors import quote
from topology.model import names
from topology.value import topology_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.bind import WriteBinding
    from extender.embedded.spec import EmbeddedNode
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeKind, NodeView
    from extender.state import DeviceState
    from topology.annotations import Plan
    from topology.value import Demand

__all__ = ["EmbeddedCluster"]


class EmbeddedCluster:
    """Nodes and pods in memory. One writer at a time, on the event loop."""

    def __init__(self, nodes: Sequence[EmbeddedNode], *, demand: Demand) -> None:
        self.ledger = Ledger()
        self._pods: dict[str, BoundPod] = {}
        kinds = Kinds(demand)
        views: list[NodeView] = []
        for node in nodes:
            self.ledger.add_node(node.name, node.ids)
            if node.unhealthy:
                self.ledger.sicken(node.name, node.unhealthy)
            views.append(
                make_view(
                    node.name,
                    zone=node.zone,
                    kind=_kind(node, kinds),
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

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:  # noqa: ARG002 - a protocol
        """The cluster as it is: nobody is nominated here, and no assumption outlives its call."""
        return self.snapshot

    def bound(self, uid: str) -> BoundPod | None:
        """A bound pod, or None."""
        return self._pods.get(uid)

    def pods(self) -> tuple[BoundPod, ...]:
        """All bound pods, in the order in which they were bound."""
        return tuple(self._pods.values())

    def assume(self, request: PodRequest, plan: Plan, *, deadline_s: float) -> Refused | None:
        """Keep the plan's devices for a binding under way."""
        assumed = self.ledger.assume(request.uid, plan.node, plan.ids, deadline_s=deadline_s)
        if isinstance(assumed, Refused):
            return assumed
        self._refresh(assumed.nodes)
        return None

    def renew(self, uid: str, *, deadline_s: float) -> None:
        """Nothing: no assumption ends by the clock here."""

    def confirm(self, uid: str) -> None:
        """The binding of an assumed pod was accepted."""
        self.ledger.confirm(uid)
        self._refresh(())

    def forget(self, uid: str) -> None:
        """The binding of an assumed pod came to nothing."""
        self._let_go(self.ledger.forget(uid))

    def write_binding(self, step: WriteBinding) -> Written:
        """Accept a binding, as the API server would; only the node must be known here."""
        if step.node not in self.snapshot.nodes:
            return Written(WriteResult.REJECTED, f"node {quote(step.node)} is not known")
        plan_text = step.annotations.get(names.PLAN)
        self._pods[step.uid] = BoundPod(step.uid, step.namespace, step.name, step.node, plan_text)
        return Written(WriteResult.ACCEPTED)

    def end(self, uid: str) -> BoundPod | None:
        """A pod ends: its devices are free again. None where it was not bound."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._let_go(self.ledger.release(uid))
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

    def _let_go(self, outcome: Applied | Refused) -> None:
        if isinstance(outcome, Applied):
            self._refresh(outcome.nodes)

    def _refresh(self, changed: Iterable[str]) -> None:
        self.snapshot = self.snapshot.with_free(
            {name: self.ledger.free_mask(name) for name in changed}, self.ledger.generation
        )


def _kind(node: EmbeddedNode, kinds: Kinds) -> NodeKind:
    machine = None
    if node.topology is not None:
        machine = kinds.machine(topology_digest(node.topology), node.topology)
    return kinds.kind(node.group, node.resource, machine, node.manager)
