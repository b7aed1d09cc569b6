"""The state at one moment: nodes, their accounts and the snapshots made of them, as one value.

What reads it in many turns of the event loop reads one generation, whatever changes meanwhile. It
shares everything with the live state, which replaces what changes and never writes into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.snapshot import Overlay
from extender.state.accounting import AssignmentState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state.accounting import Account
    from extender.state.node_record import NodeRecord

__all__ = ["StateMoment", "overlay_of"]


@dataclass(frozen=True, slots=True, eq=False)
class StateMoment:
    """Nodes and the accounts of their resources by name; snapshots by resource, the first one "".

    `claimed` are the names of the nodes on which devices are claimed.
    """

    nodes: Mapping[str, NodeRecord]
    accounts: Mapping[str, Sequence[Account]]
    snapshots: Mapping[str, ClusterSnapshot]
    claimed: Sequence[str]

    @property
    def generation(self) -> int:
        """That of all snapshots."""
        return self.snapshots[""].generation

    @property
    def unschedulable(self) -> frozenset[str]:
        """The names of the nodes that take no new pod. O(nodes)."""
        return frozenset(name for name, node in self.nodes.items() if node.is_unschedulable)

    @property
    def n_unavailable(self) -> int:
        """Number of devices that are free on nodes that take no new pod. O(nodes)."""
        return sum(
            account.free.bit_count()
            for name in self.unschedulable
            for account in self.accounts[name]
        )

    def key(self, resource: str) -> str:
        """Which of the snapshots is for pods that request a resource."""
        return resource if resource in self.snapshots else ""

    def free_for(self, request: PodRequest) -> Mapping[str, int]:
        """The masks of what a pod may have on the nodes with claims that serve its resource."""
        masks: dict[str, int] = {}
        for name in self.claimed:
            index = self.nodes[name].index(request.resource)
            if index is not None:
                account = self.accounts[name][index]
                masks[name] = account.free_for(request, is_assumed=False)
        return masks

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:
        """The cluster as this pod may use it.

        As `LiveCluster.snapshot_for`, but without what the pod itself has assumed.
        """
        snapshot = self.snapshots[self.key(request.resource)]
        masks = self.free_for(request)
        return snapshot.with_free(masks, snapshot.generation) if masks else snapshot

    def overlay(self, view: NodeView) -> Overlay:
        """The node of a view, with what each pod there would free by uid."""
        return overlay_of(view, self.nodes, self.accounts)


def overlay_of(
    view: NodeView, nodes: Mapping[str, NodeRecord], accounts: Mapping[str, Sequence[Account]]
) -> Overlay:
    """The same of these nodes and their accounts. Claims are of pods that are not there yet."""
    node = nodes.get(view.name)
    index = None if node is None else node.index(view.node_class.resource)
    if index is None:
        return Overlay(view, {})
    account = accounts[view.name][index]
    held = {
        uid: one.mask & ~account.unhealthy
        for uid, one in account.assignments.items()
        if one.state is not AssignmentState.CLAIMED
    }
    return Overlay(view, held)
