"""Places pods one after another as filter, prioritize and bind would, on simulated nodes.

Each pod sees what the pods before it left. The node is that of the best score among those that
filter names; of equal ones, of which kube-scheduler takes any, the first by the extender's own
order and then by name. The set is the one that bind would choose there. The members of a group with
a size are planned together, as filter does. What other pods have claimed stays claimed. Nothing
here reads or changes the live state.

Complexity: for each pod one look-up per node state, one rating per state that is new, and what the
verbs take; `place` yields between turns of some milliseconds at most, but for one rating.
`place_group` makes each plan in one turn, and the tree of domains for the first group.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from extender.allowed_nodes import AllowedNodes
from extender.groups import OfferedNodes
from extender.groups.planning import JointPlanner, seen_by_all
from extender.placement import (
    DomainFreeCapacity,
    Rank,
    Rater,
    RatingBudget,
    Refusal,
    filter_nodes,
    score_nodes,
)
from extender.protocol import Reason
from extender.snapshot import RequestedNodes, make_snapshot, taking, with_free
from extender.state import NodeDomains
from extender.what_if.group import (
    GroupPlace,
    SimulatedCluster,
    plan_group,
    unready,
)
from extender.what_if.rating_turns import rate_in_turns
from topology.groups import DomainPath
from topology.node_affinity import ANY_NODE

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from extender.protocol import PodRequest, Shape
    from extender.rules import Rules
    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state import StateMoment
    from extender.what_if.group import RequestedGroup
    from extender.what_if.request import RequestedPod
    from topology.annotations import Plan
    from topology.node_affinity import RequiredNodeAffinity
    from topology.select import PodFit

__all__ = ["RefusedNodes", "SimulatedGroup", "SimulatedPlacement", "Simulation"]

MAX_WORK = 200_000
"""Work of the ratings of one what-if: some 6 s of a processor. States beyond it count by number."""
TURN_NODES = 256
"""Nodes of which a turn looks whether a pod is allowed there: some 1 ms."""


@dataclass(frozen=True, slots=True)
class RefusedNodes:
    """How many nodes cannot take a pod for one reason."""

    reason: Reason
    n_nodes: int


@dataclass(frozen=True, slots=True)
class SimulatedPlacement:
    """Where a pod would go. `view` is the node before it; None where none fits.

    `fit` is None where devices go by count. `refused` are the nodes that do not fit, most first.
    `group` is the namespace and name of a group with a size, whose members are placed together;
    a member may have no node although some fit.
    """

    pod: RequestedPod
    view: NodeView | None
    fit: PodFit | None
    n_fit: int
    refused: tuple[RefusedNodes, ...]
    reason: str | None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class SimulatedGroup:
    """Where a group would go, and each of its members in the order given."""

    group: RequestedGroup
    place: GroupPlace
    members: tuple[SimulatedPlacement, ...]


class Simulation:
    """The nodes of a moment, with others added and some drained, and the pods placed so far."""

    def __init__(
        self,
        moment: StateMoment,
        rules: Rules,
        *,
        added: Sequence[NodeView] = (),
        drained: Collection[str] = (),
        max_work: int | None = None,
    ) -> None:
        self._moment = moment
        self._rules = rules
        self._added = added
        self._drained = frozenset(drained)
        self._unschedulable = moment.unschedulable - self._drained
        self._rater = Rater(loss_bounds=rules.loss_bounds, prefer=rules.prefer)
        self._domains: NodeDomains | None = None
        self._planner: JointPlanner | None = None
        self._free_capacity = DomainFreeCapacity(self._all_domains)
        self._budget = RatingBudget.of_work(MAX_WORK if max_work is None else max_work)
        self._snapshots: dict[str, ClusterSnapshot] = {}
        self._taken: dict[tuple[str, str], int] = {}
        self._allowed: dict[tuple[str, RequiredNodeAffinity], NDArray[np.bool_]] = {}
        self.unknown_labels: set[str] = set()

    @property
    def taken(self) -> Mapping[tuple[str, str], int]:
        """The masks of the devices that the pods placed here have, by node and resource."""
        return self._taken

    @property
    def has_unrated(self) -> bool:
        """Whether states of nodes were rated by count, since `max_work` was spent."""
        return self._budget.n_deferred > 0

    def place(self, pod: RequestedPod) -> Generator[None, None, SimulatedPlacement]:
        """Place one pod; yields between turns."""
        request = pod.request
        if request is None:
            return SimulatedPlacement(pod, None, None, 0, (), pod.assumed)
        snapshot = yield from self._snapshot(request)
        positions, excluded = yield from self._positions(request, snapshot)
        ratings = yield from self._rate(request, snapshot, positions)
        refused = _refused(snapshot, positions, ratings, excluded)
        if not any(isinstance(one, Rank) for one in ratings.values()):
            reason = refused[0].reason.value if refused else "no node is left"
            return SimulatedPlacement(pod, None, None, 0, refused, reason)
        free_capacity = self._free_capacity.of(request, snapshot)
        filtered = filter_nodes(
            request,
            RequestedNodes(positions),
            snapshot,
            rater=self._rater,
            rules=self._rules,
            budget=self._budget,
            free_capacity=free_capacity,
        )
        yield
        view = self._best(request, snapshot, filtered.positions, ratings, free_capacity)
        fit = self._rater.choose(request, view)
        if isinstance(fit, Refusal):  # it was rated by count
            return SimulatedPlacement(pod, None, None, 0, refused, fit.reason.value)
        self._take(request, view, _used(request, view, fit))
        return SimulatedPlacement(pod, view, fit, filtered.n_feasible, refused, None)

    def place_group(self, group: RequestedGroup) -> Generator[None, None, SimulatedGroup]:
        """Place the members of a group, all that are needed or none; yields between turns."""
        requests = group.requests
        snapshot = yield from self._snapshot(seen_by_all(requests))
        alone: dict[tuple[Shape | None, RequiredNodeAffinity], _Alone] = {}
        for one in requests:
            key = one.shape, one.node_affinity
            if key not in alone:
                alone[key] = yield from self._alone(one, snapshot)
        place = unready(group)
        if place is None:
            domains = self._all_domains()
            domains.prepare()
            yield
            offers = [alone[one.shape, one.node_affinity].offer for one in requests]
            cluster = SimulatedCluster(snapshot, domains, self._moment.nodes)
            planner = self._planner = self._planner or JointPlanner(cluster, self._rater)
            planner.cluster = cluster
            order = planner.order(snapshot.node_index)
            for one in {one.shape: one for one in requests}.values():
                yield from planner.node_room.prepare(one, snapshot, order)
            place = yield from plan_group(group, offers, cluster, planner)
        members: list[SimulatedPlacement] = []
        reason = None if place.reason is None else place.reason.value
        for i, (pod, request) in enumerate(zip(group.pods, requests, strict=True)):
            found = alone[request.shape, request.node_affinity]
            member = SimulatedPlacement(
                pod, None, None, found.n_fit, found.refused, reason, group.name
            )
            if i < len(place.plans):
                plan = place.plans[i][1]
                view = snapshot.nodes[plan.node]
                member = replace(member, view=view, fit=self._fit(request, view, plan), reason=None)
            members.append(member)
            yield
        used: dict[str, int] = {}
        for _, plan in place.plans:
            mask = snapshot.nodes[plan.node].mask_of(plan.ids)
            used[plan.node] = used.get(plan.node, 0) | mask
        for name, mask in used.items():
            self._take(requests[0], snapshot.nodes[name], mask)
            yield
        return SimulatedGroup(group, place, tuple(members))

    def _alone(
        self, request: PodRequest, snapshot: ClusterSnapshot
    ) -> Generator[None, None, _Alone]:
        """The nodes that a member may have, and those that would take it by itself."""
        positions, excluded = yield from self._positions(request, snapshot)
        ratings = yield from self._rate(request, snapshot, positions)
        is_named = np.zeros(len(snapshot.views), dtype=np.bool_)
        is_named[positions] = True
        refused = _refused(snapshot, positions, ratings, excluded)
        n_fit = len(positions) + sum(excluded.values()) - sum(one.n_nodes for one in refused)
        offer = OfferedNodes(snapshot.node_index, is_named, may_be_sample=False)
        return _Alone(offer, n_fit, refused)

    def _fit(self, request: PodRequest, view: NodeView, plan: Plan) -> PodFit | None:
        """The sets of a plan; None where devices go by count."""
        if not plan.containers:
            return None
        fit = self._rater.choose(request, with_free(view, view.mask_of(plan.ids)))
        return None if isinstance(fit, Refusal) else fit

    def _snapshot(self, request: PodRequest) -> Generator[None, None, ClusterSnapshot]:
        """The nodes as this pod may use them."""
        key = self._moment.key(request.resource)
        if key not in self._snapshots:
            snapshot = self._moment.snapshots[key]
            self._snapshots[key] = _with_added(snapshot, self._added) if self._added else snapshot
            yield
        snapshot = self._snapshots[key]
        changed: list[NodeView] = []
        for name, mask in self._moment.free_for(request).items():
            view = snapshot.nodes[name]
            free = mask & ~self._taken.get((name, request.resource), 0)
            if free != view.free:
                changed.append(with_free(view, free))
        return snapshot.with_views(changed, snapshot.generation) if changed else snapshot

    def _positions(
        self, request: PodRequest, snapshot: ClusterSnapshot
    ) -> Generator[None, None, tuple[NDArray[np.int64], Mapping[Reason, int]]]:
        """The nodes that are left and that the pod may have, and how many others, by reason."""
        key = self._moment.key(request.resource), request.node_affinity
        if key not in self._allowed:
            self._allowed[key] = yield from self._allow(request.node_affinity, snapshot)
        is_left = np.ones(len(snapshot.views), dtype=np.bool_)
        is_left[[snapshot.positions[name] for name in self._drained]] = False
        is_allowed = is_left & self._allowed[key]
        is_open = is_allowed.copy()
        is_open[[snapshot.positions[name] for name in self._unschedulable]] = False
        positions = is_open.nonzero()[0]
        yield
        excluded = {
            Reason.NODE_AFFINITY: int(is_left.sum() - is_allowed.sum()),
            Reason.NODE_UNSCHEDULABLE: int(is_allowed.sum()) - len(positions),
        }
        return positions, excluded

    def _allow(
        self, affinity: RequiredNodeAffinity, snapshot: ClusterSnapshot
    ) -> Generator[None, None, NDArray[np.bool_]]:
        """Of each position whether a pod with this node affinity may be there."""
        is_allowed = np.ones(len(snapshot.views), dtype=np.bool_)
        if affinity == ANY_NODE:
            return is_allowed
        nodes = AllowedNodes(affinity, self._moment.nodes)
        for position, view in enumerate(snapshot.views):
            if view.name not in self._drained:
                is_allowed[position] = nodes.allows(view)
            if position % TURN_NODES == 0:
                yield
        self.unknown_labels |= nodes.unknown
        return is_allowed

    def _rate(
        self, request: PodRequest, snapshot: ClusterSnapshot, positions: NDArray[np.int64]
    ) -> Generator[None, None, Mapping[int, Rank | Refusal]]:
        """The rating of each state that occurs, by state."""
        occurring: list[int] = np.bincount(snapshot.state_ids[positions]).nonzero()[0].tolist()
        samples = [snapshot.samples[number] for number in occurring]
        return (yield from rate_in_turns(request, samples, self._rater, self._budget))

    def _best(
        self,
        request: PodRequest,
        snapshot: ClusterSnapshot,
        positions: NDArray[np.int64],
        ratings: Mapping[int, Rank | Refusal],
        free_capacity: NDArray[np.int64] | None,
    ) -> NodeView:
        """The node of the best score among those that filter named."""
        by_position = score_nodes(
            request,
            positions,
            snapshot,
            rater=self._rater,
            budget=self._budget,
            free_capacity=free_capacity,
        )
        top = max(by_position)
        named: list[int] = positions.tolist()
        views = (snapshot.views[position] for position in named)
        tied = [view for view, score in zip(views, by_position, strict=True) if score == top]
        keys = {state: one.key for state, one in ratings.items() if isinstance(one, Rank)}
        return min(tied, key=lambda view: (keys[view.state], view.name))

    def _all_domains(self) -> NodeDomains:
        """The domains of all nodes; those that are added have none."""
        if self._domains is None:
            self._domains = NodeDomains(self._rules.group_families)
            for name, node in self._moment.nodes.items():
                self._domains.put(name, node.path, is_closed=node.is_unschedulable)
            for view in self._added:
                self._domains.put(view.name, DomainPath())
        return self._domains

    def _take(self, request: PodRequest, view: NodeView, used: int) -> None:
        """The pod has these devices from now on."""
        place = view.name, request.resource
        self._taken[place] = self._taken.get(place, 0) | used
        key = self._moment.key(request.resource)
        snapshot = self._snapshots[key]
        # Without what this pod alone may use of what others have claimed.
        own = snapshot.nodes[view.name]
        self._snapshots[key] = snapshot.with_views((taking(own, used),), snapshot.generation)


@dataclass(frozen=True, slots=True, eq=False)
class _Alone:
    """The nodes that members alike may have; how many take one by itself, and why others do not."""

    offer: OfferedNodes
    n_fit: int
    refused: tuple[RefusedNodes, ...]


def _with_added(snapshot: ClusterSnapshot, added: Sequence[NodeView]) -> ClusterSnapshot:
    index = snapshot.node_index
    positions: list[int] = index.is_soft_tainted.nonzero()[0].tolist()
    return make_snapshot(
        (*snapshot.views, *added),
        generation=snapshot.generation,
        soft_tainted={index.names[position] for position in positions},
    )


def _used(request: PodRequest, view: NodeView, fit: PodFit | None) -> int:
    """The devices that the pod takes; by count the first ones that are free, as bind does."""
    if fit is not None:
        return fit.used
    used = 0
    for _ in range(request.size_gpus):
        rest = view.free & ~used
        used |= rest & -rest
    return used


def _refused(
    snapshot: ClusterSnapshot,
    positions: NDArray[np.int64],
    ratings: Mapping[int, Rank | Refusal],
    excluded: Mapping[Reason, int],
) -> tuple[RefusedNodes, ...]:
    counts: Counter[Reason] = Counter()
    for number, n_nodes in enumerate(np.bincount(snapshot.state_ids[positions]).tolist()):
        rating = ratings[snapshot.samples[number].state] if n_nodes else None
        if isinstance(rating, Refusal):
            counts[rating.reason] += n_nodes
    for reason, n_nodes in excluded.items():
        if n_nodes:
            counts[reason] += n_nodes
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0].label))
    return tuple(RefusedNodes(reason, n) for reason, n in ordered)
