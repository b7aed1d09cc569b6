"""One plan for the members of a group: nodes near each other, and the devices of each member.

How many members each node takes is counted (`extender.groups.planning.node_room`),
`topology.groups` chooses the nodes, and then the members of one node get their sets one after the
other, by rank, of equal ones those on the rails of other nodes
(`extender.groups.planning.rail_sets`): the nodes with the fewest free devices come first, since
they have the least choice. Members that have a node already draw the others near: first come the
nodes that ended members of the same ranks had, then those that any ended members had, then the
domains around the others from the nearest up.

Complexity: the counts, what `topology.groups.choose_nodes` says for each set of surroundings, and a
choice of sets for each member. It claims nothing (`extender.groups.claims` does).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from extender.groups.planning.node_room import NodeRoom
from extender.groups.planning.rail_sets import RailSets
from extender.groups.planning.surroundings import inside_level, surroundings
from extender.placement import Refusal, plan_fit
from extender.protocol import Reason
from extender.snapshot import with_free
from topology.annotations import ANY_DOMAIN, PlanGroup, Strength
from topology.groups import (
    Assigned,
    GroupDemand,
    MemberShape,
    NoRoom,
    NoRoomReason,
    choose_nodes,
    rank_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from extender.groups.planning.node_room import Room
    from extender.groups.planning.offered_nodes import OfferedNodes
    from extender.placement import Rater
    from extender.protocol import PodRequest, Shape
    from extender.snapshot import ClusterSnapshot, NodeIndex, NodeView
    from extender.state import NodeDomains
    from topology.annotations import Plan
    from topology.groups import DomainTree

__all__ = [
    "JointPlan",
    "JointPlanner",
    "Near",
    "NoPlace",
    "PlannedCluster",
    "most_per_node",
    "required_level",
    "seen_by_all",
]

_ANY_NUMBER = 2**31


@dataclass(frozen=True, slots=True)
class JointPlan:
    """A plan for each member. `level` and `domain` are those that hold all of them."""

    placements: tuple[tuple[PodRequest, Plan], ...]
    level: str
    domain: str


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why there is no plan; `detail` has the counts."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Near:
    """Nodes of members that have one, and of those that ended lately. `avoided` get no member.

    `most` is how many members some nodes take, `most_elsewhere` all others: those that have one
    count. `former_by_rank` are the nodes of those that ended, by their ranks.
    """

    nodes: Sequence[str] = ()
    former: Sequence[str] = ()
    avoided: Collection[str] = frozenset()
    most: Mapping[str, int] = field(default_factory=dict[str, int])
    most_elsewhere: int | None = None
    former_by_rank: Mapping[int, str] = field(default_factory=dict[int, str])

    def own(self, request: PodRequest) -> str | None:
        """The node of the ended member that a member replaces by its rank."""
        return None if request.rank is None else self.former_by_rank.get(request.rank)


@dataclass(frozen=True, slots=True)
class _Alike:
    """Members of one shape that are offered the same nodes, by their places in order."""

    request: PodRequest
    offer: OfferedNodes
    places: tuple[int, ...]


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
        self, members: Sequence[tuple[PodRequest, OfferedNodes]], near: Near
    ) -> JointPlan | NoPlace:
        """Plan the members, in the order of their ranks; they say the same of their group."""
        alike = _alike(members)
        snapshot = self.cluster.snapshot_for(seen_by_all([one for one, _ in members]))
        tree = self.cluster.domains.tree
        within = required_level(members[0][0])
        if within not in tree.level_names:
            return NoPlace(Reason.GROUP_NEVER, f"no level of domains has the name {within}")
        order = self.order(snapshot.node_index)
        rooms = [self.node_room.of(one.request, snapshot, order) for one in alike]
        may_go = self._may_go(alike, within, near, snapshot.node_index)
        own = [near.own(request) for request, _ in members]
        refused = NoPlace(Reason.GROUP_NO_ROOM)
        for most in _tried(tree, near, own):
            fits = [
                np.where(one, np.minimum(room.fits, most), 0)
                for one, room in zip(may_go, rooms, strict=True)
            ]
            demand = self._demand(alike, rooms, fits, most, snapshot)
            found = self._choose(members, alike, demand, snapshot, own)
            if isinstance(found, JointPlan):
                return found
            refused = found
        if within != ANY_DOMAIN and near.nodes:
            why = f"all must be in the {within} of the members that have a node already"
            return replace(refused, detail="; ".join(filter(None, (refused.detail, why))))
        return refused

    def order(self, node_index: NodeIndex) -> NDArray[np.int64]:
        """Positions in a node index of the nodes of the tree of domains, in its order."""
        tree, order = self.cluster.domains.tree, self._order
        if order is None or order.tree is not tree or order.node_index is not node_index:
            order = _Order(tree, node_index, node_index.locate(tree.node_names))
            self._order = order
        return order.positions

    def _may_go(
        self, alike: Sequence[_Alike], within: str, near: Near, node_index: NodeIndex
    ) -> list[NDArray[np.bool_]]:
        """For each kind of members, by position in the tree: the nodes that it may get."""
        tree, order = self.cluster.domains.tree, self.order(node_index)
        able = np.ones(len(order), dtype=np.bool_)
        if near.avoided:
            able = np.array([name not in near.avoided for name in tree.node_names], dtype=np.bool_)
        if within != ANY_DOMAIN and near.nodes:
            able &= inside_level(tree, within, near.nodes)
        return [one.offer.may_go(node_index)[order] & able for one in alike]

    def _demand(
        self,
        alike: Sequence[_Alike],
        rooms: Sequence[Room],
        fits: Sequence[NDArray[np.int64]],
        most: NDArray[np.int64],
        snapshot: ClusterSnapshot,
    ) -> GroupDemand:
        free: NDArray[np.int64] | None = None
        gpus: NDArray[np.int64] | None = None
        if len(alike) > 1:
            numbers = snapshot.state_ids[self.order(snapshot.node_index)]
            free = np.array([one.free.bit_count() for one in snapshot.samples])[numbers]
            # Of all shapes together: room for so many of the largest.
            free = np.minimum(free, most * max(one.request.size_gpus for one in alike))
            gpus = np.array([len(one.ids) for one in snapshot.samples])[numbers]
        shapes = tuple(
            MemberShape(len(one.places), one.request.size_gpus, now, room.fits_when_empty)
            for one, now, room in zip(alike, fits, rooms, strict=True)
        )
        return GroupDemand(shapes, free, gpus, rooms[0].costs, required_level(alike[0].request))

    def _choose(
        self,
        members: Sequence[tuple[PodRequest, OfferedNodes]],
        alike: Sequence[_Alike],
        demand: GroupDemand,
        snapshot: ClusterSnapshot,
        own: Sequence[str | None],
    ) -> JointPlan | NoPlace:
        found = choose_nodes(self.cluster.domains.tree, demand)
        if isinstance(found, NoRoom):
            never = found.reason is not NoRoomReason.NOT_NOW
            return NoPlace(Reason.GROUP_NEVER if never else Reason.GROUP_NO_ROOM, found.detail)
        shape_of = {place: i for i, one in enumerate(alike) for place in one.places}
        shapes = [shape_of[place] for place in range(len(members))]
        nodes = _on_own(rank_nodes(found, shapes), shapes, own)
        placed = self._place(members, nodes, found, snapshot, on_rails=True)
        if placed is None:  # an equal set may leave less to members of another shape
            placed = self._place(members, nodes, found, snapshot, on_rails=False)
        if placed is None:
            return NoPlace(Reason.GROUP_NO_ROOM, "members of different shapes do not fit together")
        return JointPlan(placed, found.level, found.domain)

    def _place(
        self,
        members: Sequence[tuple[PodRequest, OfferedNodes]],
        nodes: Sequence[str],
        found: Assigned,
        snapshot: ClusterSnapshot,
        *,
        on_rails: bool,
    ) -> tuple[tuple[PodRequest, Plan], ...] | None:
        """The devices of each member; None where shapes that differ do not fit after all."""
        views = {name: snapshot.views[snapshot.positions[name]] for name in set(nodes)}
        order = sorted(range(len(nodes)), key=lambda i: (views[nodes[i]].free.bit_count(), i))
        used: dict[str, int] = {}  # by node, the rails of the nodes before it
        used_so_far = 0
        placed: dict[int, tuple[PodRequest, Plan]] = {}
        domain = tuple(found.domain.split("/")) if found.level != ANY_DOMAIN else ()
        for i in order:
            request, node = members[i][0], nodes[i]
            view = views[node]
            fit = self.node_room.choose(request, view)
            if isinstance(fit, Refusal):
                return None
            plan = plan_fit(request, view, fit, generation=snapshot.generation)
            if on_rails:
                others = used.setdefault(node, used_so_far)
                plan, rails = self._rails.place(plan, view, others)
                used_so_far |= rails
            views[node] = _without(view, plan)
            name = "" if request.group is None else request.group.name
            group = PlanGroup(name, (found.level, *domain), request.rank)
            placed[i] = request, replace(plan, group=group)
        return tuple(placed[i] for i in range(len(nodes)))


def _without(view: NodeView, plan: Plan) -> NodeView:
    """The node when a plan's devices are taken."""
    taken = set(plan.ids)
    rest = [i for i, one in enumerate(view.ids) if one not in taken and view.free >> i & 1]
    return with_free(view, sum(1 << i for i in rest))


def required_level(request: PodRequest) -> str:
    """The level of which one domain must hold all."""
    wish = request.group
    if wish is None or wish.strength is not Strength.REQUIRED:
        return ANY_DOMAIN
    return wish.domain


def seen_by_all(requests: Sequence[PodRequest]) -> PodRequest:
    """Sees what every member may have: claims of others end for the least priority among them."""
    least = min(requests, key=lambda one: one.priority)
    return replace(least, uid="")


def _alike(members: Sequence[tuple[PodRequest, OfferedNodes]]) -> list[_Alike]:
    places: dict[tuple[Shape | None, OfferedNodes], list[int]] = {}
    for place, (request, offer) in enumerate(members):
        places.setdefault((request.shape, offer), []).append(place)
    return [
        _Alike(members[found[0]][0], offer, tuple(found)) for (_, offer), found in places.items()
    ]


def most_per_node(tree: DomainTree, near: Near) -> NDArray[np.int64]:
    """How many members more each node of the tree takes, by what is known of it."""
    names = tree.node_names
    if not near.most and near.most_elsewhere is None:
        return np.full(len(names), _ANY_NUMBER, dtype=np.int64)
    elsewhere = _ANY_NUMBER if near.most_elsewhere is None else near.most_elsewhere
    there = Counter(near.nodes)
    return np.array(
        [max(near.most.get(name, elsewhere) - there[name], 0) for name in names], dtype=np.int64
    )


def _tried(tree: DomainTree, near: Near, own: Sequence[str | None]) -> Iterator[NDArray[np.int64]]:
    """How many members each node of the tree takes, of one set of nodes after the other."""
    most = most_per_node(tree, near)
    replaced = Counter(node for node in own if node is not None)
    if replaced:
        yield np.minimum([replaced[name] for name in tree.node_names], most)
    if near.former:
        former = set(near.former)
        yield np.where([name in former for name in tree.node_names], most, 0)
    if not near.nodes:
        yield most
    else:
        for inside in surroundings(tree, near.nodes):
            yield np.where(inside, most, 0)


def _on_own(
    nodes: Sequence[str], shapes: Sequence[int], own: Sequence[str | None]
) -> Sequence[str]:
    """The nodes of members, changed between those of one shape so that replacements have theirs.

    >>> _on_own(("n1", "n2"), (0, 0), ("n2", None))
    ('n2', 'n1')
    """
    found = list(nodes)
    for i, node in enumerate(own):
        if node is None or found[i] == node:
            continue
        for j, other in enumerate(found):
            if other == node and shapes[j] == shapes[i] and own[j] != node:
                found[i], found[j] = other, found[i]
                break
    return tuple(found)
