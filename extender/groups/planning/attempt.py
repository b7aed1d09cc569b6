"""One plan for the members of a group: nodes near each other, and the devices of each member.

On which GPU models is given (`extender.groups.planning.one_model`). How many members each node
takes is counted (`extender.groups.planning.node_room`), `topology.groups` chooses the nodes, and
then the members of one node get their sets one after the other, by rank, of equal ones those on the
rails of other nodes (`extender.groups.planning.rail_sets`): the nodes with the fewest free devices
come first, since they have the least choice. Members that have a node already draw the others near:
first come the nodes that ended members of the same ranks had, then those that any ended members
had, then the domains around the others from the nearest up. A place that is slower than the group
requires is none.

Complexity: the counts, what `topology.groups.choose_nodes` says for each set of surroundings, and a
choice of sets for each member.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from extender.groups.bandwidth import falls_short, predict
from extender.groups.planning.gpu_models import mask_of_model, of_model
from extender.groups.planning.outcome import JointPlan, NoPlace
from extender.groups.planning.surroundings import inside_level, surroundings
from extender.placement import Refusal, plan_fit
from extender.protocol import Reason
from extender.snapshot import taking
from topology.annotations import ANY_DOMAIN, PlanGroup, Strength
from topology.groups import (
    GroupDemand,
    MemberShape,
    NoRoom,
    NoRoomReason,
    choose_nodes,
    rank_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from extender.groups.planning.gpu_models import Model
    from extender.groups.planning.node_room import NodeRoom, Room
    from extender.groups.planning.offered_nodes import OfferedNodes
    from extender.groups.planning.outcome import Near
    from extender.groups.planning.rail_sets import RailSets
    from extender.placement import RankKey
    from extender.protocol import PodRequest, Shape
    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state import NodeDomains
    from topology.annotations import Plan
    from topology.groups import Assigned, DomainTree

__all__ = ["Alike", "Attempt", "required_level"]

_ANY_NUMBER = 2**31


@dataclass(frozen=True, slots=True)
class Alike:
    """Members of one shape that are offered the same nodes, by their places in order.

    `selector` is the number of their node selector, of those that members have GPU models for.
    """

    request: PodRequest
    offer: OfferedNodes
    places: tuple[int, ...]
    selector: int = 0


class Attempt:
    """The members of one group over one snapshot; changes neither.

    `members` are in the order of their ranks, and say the same of their group. `beside` are the
    plans of members that have a node or a claim, `order` the positions in the node index of the
    nodes of the tree of domains.
    """

    def __init__(  # noqa: PLR0913 - all that a plan depends on
        self,
        members: Sequence[tuple[PodRequest, OfferedNodes]],
        near: Near,
        beside: Sequence[Plan],
        *,
        snapshot: ClusterSnapshot,
        order: NDArray[np.int64],
        domains: NodeDomains,
        node_room: NodeRoom,
        rails: RailSets,
    ) -> None:
        self.members = members
        self.near = near
        self.beside = beside
        self.snapshot = snapshot
        self._order = order
        self._domains = domains
        self._node_room = node_room
        self._rails = rails
        self._within = required_level(members[0][0])
        self._own = [near.own(request) for request, _ in members]
        self._most = _most_per_node(domains.tree, near)
        self._able = self._find_able()
        self._rooms: dict[tuple[Shape | None, Model], Room] = {}

    def on(self, alike: Sequence[Alike], models: Sequence[Model]) -> JointPlan | NoPlace:
        """Plan all members on GPUs of these models, one for each of the alike."""
        rooms = [self._room(one, model) for one, model in zip(alike, models, strict=True)]
        may_go = [self._may_go(one) for one in alike]
        refused = NoPlace(Reason.GROUP_NO_ROOM)
        for most in self._tried():
            fits = [
                np.where(one, np.minimum(room.fits, most), 0)
                for one, room in zip(may_go, rooms, strict=True)
            ]
            found = self._choose(alike, models, self._demand(alike, models, rooms, fits, most))
            if isinstance(found, JointPlan):
                return self._valued(found)
            refused = found
        return refused

    def together(self, alike: Sequence[Alike], models: Sequence[Model]) -> NoPlace | None:
        """Why the members have no nodes where each may be on GPUs of any of these models.

        None: they would have, by the counts.
        """
        fits: list[NDArray[np.int64]] = []
        rooms: list[Room] = []
        for one in alike:
            each = [self._room(one, model) for model in models]
            room = replace(
                each[0],
                fits=np.sum([room.fits for room in each], axis=0),
                fits_when_empty=np.sum([room.fits_when_empty for room in each], axis=0),
            )
            rooms.append(room)
            fits.append(np.where(self._may_go(one), np.minimum(room.fits, self._most), 0))
        found = choose_nodes(
            self._domains.tree, self._demand(alike, models, rooms, fits, self._most)
        )
        return self._no_place(found) if isinstance(found, NoRoom) else None

    def worst_key(self, one: Alike, model: Model) -> RankKey | None:
        """Where members alike get the best nodes with GPUs of a model, the place of the last one.

        None: not all of them fit.
        """
        most = np.where(self._may_go(one), self._most, 0)
        return self._room(one, model).worst_key(len(one.places), most)

    # The nodes.

    def _find_able(self) -> NDArray[np.bool_]:
        """Bool[n] by position in the tree: the nodes that any member may get."""
        near, tree = self.near, self._domains.tree
        able = np.ones(len(tree.node_names), dtype=np.bool_)
        if near.avoided:
            able = np.array([name not in near.avoided for name in tree.node_names], dtype=np.bool_)
        if self._within != ANY_DOMAIN and near.nodes:
            able &= inside_level(tree, self._within, near.nodes)
        return able

    def _may_go(self, one: Alike) -> NDArray[np.bool_]:
        """The same of members alike."""
        return one.offer.may_go(self.snapshot.node_index)[self._order] & self._able

    def _room(self, one: Alike, model: Model) -> Room:
        key = one.request.shape, model
        if key not in self._rooms:
            room = self._node_room.of(one.request, self.snapshot, self._order, model)
            self._rooms[key] = room
        return self._rooms[key]

    def _tried(self) -> Iterator[NDArray[np.int64]]:
        """How many members each node of the tree takes, of one set of nodes after the other."""
        near, tree, most = self.near, self._domains.tree, self._most
        replaced = Counter(node for node in self._own if node is not None)
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

    def _demand(
        self,
        alike: Sequence[Alike],
        models: Sequence[Model],
        rooms: Sequence[Room],
        fits: Sequence[NDArray[np.int64]],
        most: NDArray[np.int64],
    ) -> GroupDemand:
        free: NDArray[np.int64] | None = None
        gpus: NDArray[np.int64] | None = None
        if len(alike) > 1:
            numbers = self.snapshot.state_ids[self._order]
            samples = self.snapshot.samples
            masks = [_mask_of_models(one, models) for one in samples]
            free = np.array(
                [(one.free & mask).bit_count() for one, mask in zip(samples, masks, strict=True)]
            )[numbers]
            # Of all shapes together: room for so many of the largest.
            free = np.minimum(free, most * max(one.request.size_gpus for one in alike))
            gpus = np.array([mask.bit_count() for mask in masks])[numbers]
        shapes = tuple(
            MemberShape(len(one.places), one.request.size_gpus, now, room.fits_when_empty)
            for one, now, room in zip(alike, fits, rooms, strict=True)
        )
        return GroupDemand(shapes, free, gpus, rooms[0].costs, self._within)

    def _choose(
        self, alike: Sequence[Alike], models: Sequence[Model], demand: GroupDemand
    ) -> JointPlan | NoPlace:
        found = choose_nodes(self._domains.tree, demand)
        if isinstance(found, NoRoom):
            return self._no_place(found)
        shape_of = {place: i for i, one in enumerate(alike) for place in one.places}
        shapes = [shape_of[place] for place in range(len(self.members))]
        nodes = _on_own(rank_nodes(found, shapes), shapes, self._own)
        of_members = [models[shape] for shape in shapes]
        placed = self._place(nodes, of_members, found, on_rails=True)
        if placed is None:  # an equal set may leave less to members of another shape
            placed = self._place(nodes, of_members, found, on_rails=False)
        if placed is None:
            return NoPlace(Reason.GROUP_NO_ROOM, "members of different shapes do not fit together")
        return JointPlan(placed, found.level, found.domain)

    def _no_place(self, found: NoRoom) -> NoPlace:
        is_later = found.reason is NoRoomReason.NOT_NOW
        detail = found.detail
        if self._within != ANY_DOMAIN and self.near.nodes:
            why = f"all must be in the {self._within} of the members that have a node already"
            detail = "; ".join(filter(None, (detail, why)))
        reason = Reason.GROUP_NO_ROOM if is_later else Reason.GROUP_NEVER
        return NoPlace(reason, detail, found.n_room)

    def _place(
        self, nodes: Sequence[str], models: Sequence[Model], found: Assigned, *, on_rails: bool
    ) -> tuple[tuple[PodRequest, Plan], ...] | None:
        """The devices of each member; None where shapes that differ do not fit after all."""
        snapshot = self.snapshot
        views = {name: snapshot.views[snapshot.positions[name]] for name in set(nodes)}
        order = sorted(range(len(nodes)), key=lambda i: (views[nodes[i]].free.bit_count(), i))
        used: dict[str, int] = {}  # by node, the rails of the nodes before it
        used_so_far = 0
        placed: dict[int, tuple[PodRequest, Plan]] = {}
        domain = tuple(found.domain.split("/")) if found.level != ANY_DOMAIN else ()
        for i in order:
            request, node = self.members[i][0], nodes[i]
            view = of_model(views[node], models[i])
            fit = self._node_room.choose(request, view)
            if isinstance(fit, Refusal):
                return None
            plan = plan_fit(request, view, fit, generation=snapshot.generation)
            if on_rails:
                others = used.setdefault(node, used_so_far)
                plan, rails = self._rails.place(plan, view, others)
                used_so_far |= rails
            views[node] = taking(views[node], view.mask_of(plan.ids))
            name = "" if request.group is None else request.group.name
            group = PlanGroup(name, (found.level, *domain), request.rank)
            placed[i] = request, replace(plan, group=group)
        return tuple(placed[i] for i in range(len(nodes)))

    def _valued(self, found: JointPlan) -> JointPlan | NoPlace:
        """The plan with what the group is worth there, if that is enough for it."""
        plans = [*self.beside, *(plan for _, plan in found.placements)]
        value = predict(plans, self.snapshot.nodes, self._domains)
        too_slow = falls_short(value, (request for request, _ in found.placements))
        if too_slow:
            return NoPlace(Reason.GROUP_TOO_SLOW, too_slow)
        return replace(found, value=value)


def required_level(request: PodRequest) -> str:
    """The level of which one domain must hold all."""
    wish = request.group
    if wish is None or wish.strength is not Strength.REQUIRED:
        return ANY_DOMAIN
    return wish.domain


def _mask_of_models(view: NodeView, models: Sequence[Model]) -> int:
    """The devices of a node that are of any of these models."""
    mask = 0
    for model in dict.fromkeys(models):
        mask |= mask_of_model(view.node_class, model)
    return mask & (1 << len(view.ids)) - 1


def _most_per_node(tree: DomainTree, near: Near) -> NDArray[np.int64]:
    """How many members more each node of the tree takes, by what is known of it."""
    names = tree.node_names
    if not near.most and near.most_elsewhere is None:
        return np.full(len(names), _ANY_NUMBER, dtype=np.int64)
    elsewhere = _ANY_NUMBER if near.most_elsewhere is None else near.most_elsewhere
    there = Counter(near.nodes)
    return np.array(
        [max(near.most.get(name, elsewhere) - there[name], 0) for name in names], dtype=np.int64
    )


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
