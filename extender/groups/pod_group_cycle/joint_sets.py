"""Disjoint sets of several pods on one node, chosen together.

It answers whether some pods fit on a node at the same time, with which devices, and what a further
pod may have there beside them. Nothing here is claimed, and no node is chosen.

Method: the pods choose one after the other, as they would be bound; then the last one first; then,
where they wish the same, all together as the containers of one pod (`topology.select.fit_pod`),
which is exact up to 16 devices. The first that holds all of them counts. Complexity: at most two
choices of sets for each pod and one joint choice, once for each node state and shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from extender.placement import Refusal
from extender.snapshot import only
from topology.select import ContainerRole, PodFit, fit_pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extender.placement import Rater
    from extender.protocol import PodRequest, Shape
    from extender.snapshot import NodeView

__all__ = ["JointSets"]

MAX_KEPT = 16_384
"""Choices kept; beyond it all are made again."""

_LEAST_TOGETHER = 2
_Masks: TypeAlias = "tuple[int, ...]"


@dataclass(slots=True, eq=False)
class JointSets:
    """Chooses over the nodes of one cluster; what it keeps changes no choice."""

    rater: Rater
    _kept: dict[tuple[int, tuple[Shape | None, ...]], _Masks | None] = field(
        default_factory=dict[tuple[int, "tuple[Shape | None, ...]"], "_Masks | None"]
    )

    def masks(self, view: NodeView, requests: Sequence[PodRequest]) -> _Masks | None:
        """A set for each of the pods, in their order; None where not all of them fit."""
        key = view.state, tuple(one.shape for one in requests)
        if key not in self._kept:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = self._choose(view, requests)
        return self._kept[key]

    def beside(self, view: NodeView, others: Sequence[PodRequest], request: PodRequest) -> NodeView:
        """The node as a pod may use it beside others that have no devices there yet.

        Nothing is free for it where not even the others fit any more.
        """
        taken = self.masks(view, others)
        if taken is None:
            return only(view, 0)
        beside = only(view, ~sum(taken))
        if self.masks(beside, (request,)) is None:
            taken = (self.masks(view, (*others, request)) or (*taken, 0))[:-1]
            beside = only(view, ~sum(taken))
        return beside

    def _choose(self, view: NodeView, requests: Sequence[PodRequest]) -> _Masks | None:
        if sum(one.size_gpus for one in requests) > view.free.bit_count():
            return None
        as_given = range(len(requests))
        for order in (as_given, as_given[::-1]):
            found = self._in_turn(view, requests, order)
            if found is not None:
                return found
        return _together(view, requests)

    def _in_turn(
        self, view: NodeView, requests: Sequence[PodRequest], order: Sequence[int]
    ) -> _Masks | None:
        found: dict[int, int] = {}
        for i in order:
            fit = self.rater.choose(requests[i], view)
            if isinstance(fit, Refusal):
                return None
            found[i] = lowest(view.free, requests[i].size_gpus) if fit is None else fit.used
            view = only(view, ~found[i])
        return tuple(found[i] for i in range(len(requests)))


def lowest(free: int, count: int) -> int:
    """So many of the devices that are free, those of the lowest positions."""
    mask = 0
    for _ in range(count):
        bit = (free & ~mask) & -(free & ~mask)
        mask |= bit
    return mask


def _together(view: NodeView, requests: Sequence[PodRequest]) -> _Masks | None:
    """All sets at once; None where they do not fit, or where the pods wish different things."""
    machine, manager = view.node_class.machine, view.node_class.manager
    shapes = [one.shape for one in requests if one.shape is not None]
    if machine is None or manager is not None or len(shapes) < _LEAST_TOGETHER:
        return None
    containers = [
        replace(one, name=f"{i}.{one.name}")
        for i, shape in enumerate(shapes)
        for one in shape.requests
    ]
    # What a pod prefers among nodes says nothing of sets within one.
    kinds = {(shape.resource, replace(shape.policy, prefer=None)) for shape in shapes}
    is_alike = len(kinds) == 1 and shapes[0].resource == view.node_class.resource
    if not is_alike or any(one.role is ContainerRole.INIT for one in containers):
        return None
    fit = fit_pod(
        machine.selector,
        available=view.free,
        requests=tuple(containers),
        policy=shapes[0].policy,
    )
    if not isinstance(fit, PodFit):
        return None
    masks = [0] * len(shapes)
    for name, selected in fit.containers:
        masks[int(name.split(".", 1)[0])] |= selected.mask
    return tuple(masks)
