"""Plans groups over one cluster: the cluster, and what is kept from plan to plan.

A plan itself is `extender.groups.planning.attempt`'s, on the GPU models of `one_model` beside it.
It claims nothing (`extender.groups.claims` does).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from extender.groups.planning.attempt import Attempt, required_level
from extender.groups.planning.node_room import NodeRoom
from extender.groups.planning.one_model import plan_models
from extender.groups.planning.outcome import NoPlace
from extender.groups.planning.rail_sets import RailSets
from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from extender.groups.planning.offered_nodes import OfferedNodes
    from extender.groups.planning.outcome import JointPlan, Near
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeIndex
    from extender.state import NodeDomains, NodeRecord
    from topology.annotations import Plan
    from topology.groups import DomainTree

__all__ = ["JointPlanner", "PlannedCluster", "seen_by_all"]


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """The nodes of a tree, by their positions in a node index."""

    tree: DomainTree
    node_index: NodeIndex
    positions: NDArray[np.int64]


class PlannedCluster(Protocol):
    """What plans read: the cluster as it is, or as it is tried out."""

    @property
    def domains(self) -> NodeDomains:
        """Where the nodes are in the network."""
        ...

    @property
    def records(self) -> Mapping[str, NodeRecord]:
        """The nodes by name, with what is known of their labels."""
        ...

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:
        """The nodes as a pod may use them."""
        ...


@dataclass(slots=True, eq=False)
class JointPlanner:
    """Plans groups over one cluster; keeps counts from plan to plan, which change no plan."""

    cluster: PlannedCluster
    rater: Rater
    node_room: NodeRoom = field(init=False)
    _rails: RailSets = field(init=False, default_factory=RailSets)
    _order: _Order | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.node_room = NodeRoom(self.rater)

    def plan(
        self,
        members: Sequence[tuple[PodRequest, OfferedNodes]],
        near: Near,
        beside: Sequence[Plan] = (),
    ) -> JointPlan | NoPlace:
        """Plan the members, in the order of their ranks; they say the same of their group.

        `beside` are the plans of members that have a node or a claim.
        """
        snapshot = self.cluster.snapshot_for(seen_by_all([one for one, _ in members]))
        within = required_level(members[0][0])
        if within not in self.cluster.domains.tree.level_names:
            return NoPlace(Reason.GROUP_NEVER, f"no level of domains has the name {within}")
        attempt = Attempt(
            members,
            near,
            beside,
            snapshot=snapshot,
            order=self.order(snapshot.node_index),
            domains=self.cluster.domains,
            node_room=self.node_room,
            rails=self._rails,
        )
        return plan_models(attempt, self.cluster.records)

    def order(self, node_index: NodeIndex) -> NDArray[np.int64]:
        """Positions in a node index of the nodes of the tree of domains, in its order."""
        tree, order = self.cluster.domains.tree, self._order
        if order is None or order.tree is not tree or order.node_index is not node_index:
            order = _Order(tree, node_index, node_index.locate(tree.node_names))
            self._order = order
        return order.positions


def seen_by_all(requests: Sequence[PodRequest]) -> PodRequest:
    """Sees what every member may have: claims of others end for the least priority among them."""
    least = min(requests, key=lambda one: one.priority)
    return replace(least, uid="")
