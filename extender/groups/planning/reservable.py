"""How many members of a group nodes take now and once they are empty, where it may be placed.

For the choice of nodes to reserve, which looks beyond what filter calls name: a node that is full
is in none of them. Selectors count as far as the labels are known. A node that takes no new pod
(cordoned, not ready) is no place, and neither is one that has room and is not named, whatever
excludes it. Members of several shapes count as so many of the largest. It chooses and reserves
nothing.

Complexity: array operations over the nodes, the counts of `extender.groups.planning.node_room`, and
for members with selectors what `extender.allowed_nodes` says of each node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from extender.allowed_nodes import AllowedNodes
from extender.groups.planning.joint_plan import most_per_node, required_level, seen_by_all
from extender.groups.planning.surroundings import inside_level
from topology.annotations import ANY_DOMAIN
from topology.groups import MemberShape
from topology.node_affinity import ANY_NODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from extender.groups.planning.joint_plan import JointPlanner, Near
    from extender.groups.planning.offered_nodes import OfferedNodes
    from extender.protocol import PodRequest
    from extender.snapshot import NodeIndex
    from extender.state import LiveCluster, NodeRecord

__all__ = ["Reservable", "reservable"]


@dataclass(frozen=True, slots=True, eq=False)
class Reservable:
    """Figures of each node of the tree of domains: `fits` now and `fits_when_empty`, int64[n].

    `is_unoffered`, bool[n]: it has room, and kube-scheduler does not name it, or it takes no new
    pod (cordoned, not ready), whatever room it has. `within` is the level of which one domain must
    hold all.
    """

    fits: NDArray[np.int64]
    fits_when_empty: NDArray[np.int64]
    is_unoffered: NDArray[np.bool_]
    n_gpus: int
    within: str

    def shape(self, n_members: int, is_left_out: NDArray[np.bool_]) -> MemberShape:
        """So many members, without some nodes and those that are not offered."""
        is_out = is_left_out | self.is_unoffered
        fits = np.where(is_out, 0, self.fits)
        return MemberShape(n_members, self.n_gpus, fits, np.where(is_out, 0, self.fits_when_empty))


def reservable(
    cluster: LiveCluster,
    planner: JointPlanner,
    members: Sequence[tuple[PodRequest, OfferedNodes | None]],
    near: Near,
) -> Reservable:
    """Count for these members, one or more, which say the same of their group.

    Members that have a node stay there. One for which filter was never called is offered none.
    """
    tree = cluster.domains.tree
    requests = [request for request, _ in members]
    largest = max(requests, key=lambda one: one.size_gpus)
    snapshot = cluster.snapshot_for(seen_by_all(requests))
    order = planner.order(snapshot.node_index)
    room = planner.node_room.of(largest, snapshot, order)
    most = most_per_node(tree, near)
    moment = cluster.moment()
    unschedulable = moment.unschedulable
    is_able = np.array([name not in near.avoided for name in tree.node_names], dtype=np.bool_)
    is_unschedulable = np.array([name in unschedulable for name in tree.node_names], dtype=np.bool_)
    within = required_level(largest)
    if within != ANY_DOMAIN and near.nodes:
        is_able &= inside_level(tree, within, near.nodes)
    own = Counter(near.nodes)
    left = room.fits_when_empty - np.array([own[name] for name in tree.node_names], dtype=np.int64)
    empty = np.where(is_able, np.clip(left, 0, most), 0)
    is_allowed = _is_allowed(cluster, requests, moment.nodes, empty > 0)
    empty = np.where(is_allowed, empty, 0)
    fits = np.where(is_unschedulable, 0, np.minimum(room.fits, empty))
    offers = dict.fromkeys(offer for _, offer in members)
    is_unoffered = (fits > 0) & ~_is_offered(
        list(offers), snapshot.node_index, order
    ) | is_unschedulable
    return Reservable(fits, empty, is_unoffered, largest.size_gpus, within)


def _is_allowed(
    cluster: LiveCluster,
    requests: Sequence[PodRequest],
    records: Mapping[str, NodeRecord],
    is_able: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """The nodes that the selectors of all members allow, or may allow; of those that are able."""
    affinities = dict.fromkeys(one.node_affinity for one in requests)
    affinities.pop(ANY_NODE, None)
    if not affinities:
        return is_able
    views, names = cluster.snapshot_of(requests[0].resource).nodes, cluster.domains.tree.node_names
    is_allowed = is_able.copy()
    positions: list[int] = is_able.nonzero()[0].tolist()
    for affinity in affinities:
        nodes = AllowedNodes(affinity, records)
        for i in positions:
            is_allowed[i] &= nodes.allows(views[names[i]])
    return is_allowed


def _is_offered(
    offers: Sequence[OfferedNodes | None], node_index: NodeIndex, order: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """The nodes that every call named; one that may be a sample of the nodes left out none."""
    is_offered = np.ones(len(order), dtype=np.bool_)
    for offer in offers:
        if offer is None:
            is_offered[:] = False
        elif not offer.may_be_sample:
            is_offered &= offer.may_go(node_index)[order]
    return is_offered
