"""Ratings of many node states in turns, so that a caller on the event loop can pause between them.

The ratings are those of `extender.placement.Rater`; a turn is as much work as some states of one
kind, or one state that is rated slowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.placement import rating_work

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from extender.placement import Rank, Rater, RatingBudget, Refusal
    from extender.protocol import PodRequest
    from extender.snapshot import NodeView

__all__ = ["rate_in_turns"]

TURN_WORK = 32
"""Work of a turn (`extender.placement.rating_work`), but for one state that takes more: 1 ms."""


def rate_in_turns(
    request: PodRequest,
    views: Sequence[NodeView],
    rater: Rater,
    budget: RatingBudget | None = None,
) -> Generator[None, None, Mapping[int, Rank | Refusal]]:
    """Rate views of different states for a pod with GPUs, by state; slow ones last."""
    shape = request.shape
    ratings: dict[int, Rank | Refusal] = {}
    turn: list[NodeView] = []
    work = 0
    for view in sorted(views, key=_order):
        turn.append(view)
        work += 1 if shape is None else rating_work(shape, view.node_class)
        if work >= TURN_WORK:
            ratings |= _rate(request, turn, rater, budget)
            turn, work = [], 0
            yield
    if turn:
        ratings |= _rate(request, turn, rater, budget)
        yield
    return ratings


def _order(view: NodeView) -> tuple[bool, int]:
    machine = view.node_class.machine
    return machine is not None and machine.is_rated_slowly, view.node_class.index


def _rate(
    request: PodRequest, views: Sequence[NodeView], rater: Rater, budget: RatingBudget | None
) -> Mapping[int, Rank | Refusal]:
    rated = rater.rate(request, views, budget)
    return dict(zip((view.state for view in views), rated, strict=True))
