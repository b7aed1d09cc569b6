"""One plan for the members of a group: nodes near each other, and the devices of each member.

Which nodes can take how many members is counted with the verbs' own choices, once for each shape
and node state; `topology.groups` chooses the nodes; then the members of one node get their sets one
after the other, by rank. Members that are bound already draw the others near: the domains around
them are tried from the nearest up.

Complexity: a count per shape and distinct node state, each of as many choices as members fit there,
and what `topology.groups.choose_nodes` says. It claims nothing (`extender.groups.groups` does).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.placement import Rank, Refusal, plan_bind
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
    from collections.abc import Iterator, Mapping, Sequence

    from extender.placement import Rater
    from extender.protocol import PodRequest, Shape
    from extender.snapshot import NodeView
    from extender.state import LiveCluster
    from topology.annotations import Plan
    from topology.groups import DomainTree

__all__ = ["JointPlan", "plan_jointly"]


@dataclass(frozen=True, slots=True)
class JointPlan:
    """A plan for each member. `level` and `domain` are those that hold all of them."""

    placements: tuple[tuple[Plan, PodRequest], ...]
    level: str
    domain: str


@dataclass(frozen=True, slots=True)
class _Alike:
    """Members of one shape that kube-scheduler offers the same nodes, by their places in order."""

    request: PodRequest
    left_out: frozenset[str]
    places: tuple[int, ...]


def plan_jointly(
    members: Sequence[tuple[PodRequest, frozenset[str]]],
    cluster: LiveCluster,
    *,
    rater: Rater,
    near: Sequence[str],
    avoided: frozenset[str],
) -> JointPlan | Reason:
    """Plan the members, in the order of their ranks, or say why there is no place for all.

    Each comes with the nodes that it is not offered; `near` are the nodes of the bound ones, and
    `avoided` nodes that no member gets.
    """
    alike = _alike(members)
    views = cluster.snapshot_for(alike[0].request).nodes
    tree = cluster.domains.tree
    wish = members[0][0].group
    within = ANY_DOMAIN
    if wish is not None and wish.strength is Strength.REQUIRED:
        within = wish.domain
    if within not in tree.level_names:
        return Reason.GROUP_NEVER
    counted = [_count(one, tree, views, rater, avoided) for one in alike]
    refusal = Reason.GROUP_NO_ROOM
    for is_near in _surroundings(tree, near):
        demand = GroupDemand(
            shapes=tuple(
                MemberShape(len(one.places), one.request.size_gpus, _masked(fits, is_near))
                for one, (fits, _) in zip(alike, counted, strict=True)
            ),
            free_gpus=[views[name].free.bit_count() for name in tree.node_names],
            costs=counted[0][1],
            within=within,
        )
        found = choose_nodes(tree, demand)
        if isinstance(found, NoRoom):
            never = found.reason is not NoRoomReason.NOT_NOW
            refusal = Reason.GROUP_NEVER if never else Reason.GROUP_NO_ROOM
            continue
        placed = _place(members, alike, found, views, rater)
        if placed is not None:
            return JointPlan(placed, found.level, found.domain)
    return refusal


def _alike(members: Sequence[tuple[PodRequest, frozenset[str]]]) -> list[_Alike]:
    places: dict[tuple[Shape | None, frozenset[str]], list[int]] = {}
    for place, (request, left_out) in enumerate(members):
        places.setdefault((request.shape, left_out), []).append(place)
    return [
        _Alike(members[found[0]][0], left_out, tuple(found))
        for (_, left_out), found in places.items()
    ]


def _count(
    one: _Alike,
    tree: DomainTree,
    views: Mapping[str, NodeView],
    rater: Rater,
    avoided: frozenset[str],
) -> tuple[list[int], list[float]]:
    """How many of these members each node takes now, and what the first of them costs there."""
    by_state = {view.state: view for view in views.values()}
    ratings = dict(zip(by_state, rater.rate(one.request, by_state.values()), strict=True))
    most = len(one.places)
    known: dict[int, int] = {}
    fits: list[int] = []
    costs: list[float] = []
    for name in tree.node_names:
        view, rating = views[name], ratings[views[name].state]
        is_out = name in one.left_out or name in avoided
        if is_out or not isinstance(rating, Rank):
            fits.append(0)
            costs.append(0.0)
            continue
        count = known.get(view.state)
        if count is None:
            count = known[view.state] = _n_fit(one.request, view, rater, most)
        fits.append(count)
        costs.append(view.kind.worth * rating.remainder_cost_gpus)
    return fits, costs


def _n_fit(request: PodRequest, view: NodeView, rater: Rater, most: int) -> int:
    """How many pods like this fit on a node one after the other, at most `most`."""
    count = 0
    while count < most:
        plan = plan_bind(request, view, rater=rater, generation=0)
        if isinstance(plan, Refusal):
            break
        view = _without(view, plan)
        count += 1
    return count


def _without(view: NodeView, plan: Plan) -> NodeView:
    """The node without the devices of a plan."""
    taken = set(plan.ids)
    free = sum(1 << i for i, one in enumerate(view.ids) if view.free >> i & 1 and one not in taken)
    return with_free(view, free)


def _surroundings(tree: DomainTree, near: Sequence[str]) -> Iterator[Sequence[bool] | None]:
    """The domains around the bound members, as nodes that are inside; None: every node.

    Of the first of them that is there: the others were placed near it.
    """
    positions = {name: position for position, name in enumerate(tree.node_names)}
    first = next((positions[name] for name in near if name in positions), None)
    if first is not None:
        yield [position == first for position in range(len(tree.node_names))]
        for level in tree.levels[:-1]:
            for index in level.domains:
                domain = tree.domains[index]
                if domain.first <= first < domain.end:
                    yield [
                        domain.first <= position < domain.end
                        for position in range(len(tree.node_names))
                    ]
    yield None


def _masked(fits: Sequence[int], is_near: Sequence[bool] | None) -> Sequence[int]:
    if is_near is None:
        return fits
    return [count if inside else 0 for count, inside in zip(fits, is_near, strict=True)]


def _place(
    members: Sequence[tuple[PodRequest, frozenset[str]]],
    alike: Sequence[_Alike],
    found: Assigned,
    views: Mapping[str, NodeView],
    rater: Rater,
) -> tuple[tuple[Plan, PodRequest], ...] | None:
    """The devices of each member; None where shapes that differ do not fit together after all."""
    shape_of = {place: i for i, one in enumerate(alike) for place in one.places}
    nodes = rank_nodes(found, [shape_of[place] for place in range(len(members))])
    left: dict[str, NodeView] = {}
    placed: list[tuple[Plan, PodRequest]] = []
    domain = tuple(found.domain.split("/")) if found.domain else ()
    for (request, _), node in zip(members, nodes, strict=True):
        view = left.get(node, views[node])
        plan = plan_bind(request, view, rater=rater, generation=0)
        if isinstance(plan, Refusal):
            return None
        left[node] = _without(view, plan)
        name = "" if request.group is None else request.group.name
        group = PlanGroup(name, (found.level, *domain), request.rank)
        placed.append((replace(plan, group=group), request))
    return tuple(placed)
