"""The order of nodes for a pod, and their scores.

Gives the order of nodes, as one sort key per node state, and that order mapped onto the
extender's integer scale 0..10. Pure arithmetic on what the core found; it never looks for a set.

Order (first difference decides):

1. whether the affinity holds that the pod named: such a set beats any other, whatever it costs
   (`required`, a required NIC and `min-bandwidth` are conditions; a node that breaks one is
   refused); then whether every set has the RDMA NIC that the pod would like
2. loss class: how far the set is from its own machine's best, in classes, so that a fast machine is
   not preferred for being fast; with `prefer: fastest` instead the GB/s of the worst container, in
   classes of 2 %
3. remainder lost, in GPU-equivalents: among equally close nodes the one with the least future
   placement cost. Switched machines have the least, so small pods do go to them while they are
   empty (a pair costs an empty dgx-h100 node 3.2, an empty dgx-1-v100 node 3.6)
4. fewest free GPUs
5. at the caller: a hash of pod and node (candidates), or the node's name (explain)

Pods for which the core puts the remainder first (affinity `none`, one GPU per container,
`min-bandwidth` without an affinity) skip 1 and 2. Nodes
without a usable topology come behind all others.

Score: the steps (1 and 2) that occur in a request are fixed steps of equal height between 10 and
1; inside a step the first of (GB/s, remainder, free GPUs) that distinguishes the nodes decides
proportionally, where differences under 2 % are none. 0 is reserved for nodes without usable
topology and for unknown nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extender.protocol import is_packed
from topology.annotations import NicRule, Prefer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.protocol import Shape
    from topology.select import PodFit

__all__ = ["DEFAULT_LOSS_BOUNDS", "TOP_SCORE", "Rank", "rank_fit", "scores", "unranked"]

TOP_SCORE = 10
"""MaxExtenderPriority (kube-scheduler/extender/v1/types.go)."""

DEFAULT_LOSS_BOUNDS = (0.02, 0.10, 0.30)
"""Upper bounds of the loss classes; above the last one is a class of its own."""

EQUAL = 0.02
"""Differences under this share are none: of GB/s relatively, of a pod's own size for remainders."""

_ROUNDING = 9
"""Digits that a remainder keeps in the order: sums of floats differ in the last ones."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a node state stands for one pod; the lesser `key` is better.

    `step` is (wishes missed, loss class), a missed affinity counting 2 and a missed NIC 1; empty
    for a node without usable topology. `speed_gbytes_per_s` is 0 for a pod that does not compare
    nodes by speed.
    """

    step: tuple[int, int] | tuple[()]
    speed_gbytes_per_s: float
    remainder_cost_gpus: float
    n_free: int
    key: tuple[bool, tuple[int, int] | tuple[()], int, float, int] = field(
        init=False, repr=False, compare=False
    )
    """Sort key, without the caller's tie-break."""

    def __post_init__(self) -> None:
        speed = self.speed_gbytes_per_s
        speed_class = math.floor(math.log(speed) / math.log1p(EQUAL)) if speed > 0 else 0
        remainder = round(self.remainder_cost_gpus, _ROUNDING)
        key = (not self.step, self.step, -speed_class, remainder, self.n_free)
        object.__setattr__(self, "key", key)


def unranked(n_free: int) -> Rank:
    """The rank of a node without usable topology: behind every other."""
    return Rank((), 0.0, 0.0, n_free)


def rank_fit(
    fit: PodFit,
    shape: Shape,
    *,
    n_free: int,
    loss_bounds: Sequence[float] = DEFAULT_LOSS_BOUNDS,
) -> Rank:
    """Rank the best sets of one node state; `n_free` counts its free GPUs before the pod."""
    remainder_cost_gpus = fit.remainder_cost_gpus
    missed = 0
    if shape.policy.nic is NicRule.PREFERRED:
        missed += not all(one.has_near_nic for _, one in fit.containers)
    if is_packed(shape):
        return Rank((missed, 0), 0.0, remainder_cost_gpus, n_free)
    sets = [selected for _, selected in fit.containers if len(selected.gpus) > 1]
    missed += 0 if all(one.satisfies_affinity for one in sets) else 2
    if shape.policy.prefer is Prefer.FASTEST:
        speed = min(one.value_gbytes_per_s for one in sets)
        return Rank((missed, 0), speed, remainder_cost_gpus, n_free)
    loss_class = bisect_left(loss_bounds, round(fit.worst.loss, _ROUNDING))
    return Rank((missed, loss_class), 0.0, remainder_cost_gpus, n_free)


def scores(ranks: Mapping[int, Rank], size_gpus: int) -> dict[int, int]:
    """Map ranks, by any key, onto 0..10; `size_gpus` is the pod's size. O(n log n).

    >>> near, far = Rank((0, 0), 0.0, 1.0, 8), Rank((0, 3), 0.0, 1.0, 8)
    >>> scores({1: near, 2: far, 3: unranked(8)}, 4)
    {3: 0, 1: 10, 2: 5}
    """
    result = {key: 0 for key, rank in ranks.items() if not rank.step}
    steps = sorted({rank.step for rank in ranks.values() if rank.step})
    for i, step in enumerate(steps):
        members = {key: rank for key, rank in ranks.items() if rank.step == step}
        top = TOP_SCORE - TOP_SCORE * i // len(steps)
        bottom = min(TOP_SCORE - TOP_SCORE * (i + 1) // len(steps) + 1, top)
        for key, fraction in _fractions(members, size_gpus).items():
            below = min(int(fraction * (top - bottom + 1)), top - bottom)
            result[key] = top - below
    return result


def _fractions(members: Mapping[int, Rank], size_gpus: int) -> dict[int, float]:
    """0 (best) .. 1 (worst) within one step, by the first criterion that distinguishes any two."""
    fastest = max(rank.speed_gbytes_per_s for rank in members.values())
    criteria = (
        ({key: -rank.speed_gbytes_per_s for key, rank in members.items()}, EQUAL * fastest),
        ({key: rank.remainder_cost_gpus for key, rank in members.items()}, EQUAL * size_gpus),
        ({key: float(rank.n_free) for key, rank in members.items()}, 0.0),
    )
    for costs, tolerance in criteria:
        leaders = _leaders(sorted(set(costs.values())), tolerance)
        low, high = min(leaders.values()), max(leaders.values())
        if high > low:
            return {key: (leaders[cost] - low) / (high - low) for key, cost in costs.items()}
    return dict.fromkeys(members, 0.0)


def _leaders(ascending: Iterable[float], tolerance: float) -> dict[float, float]:
    """Each value's leader: the first of its run, at most `tolerance` (and rounding) below it."""
    leaders: dict[float, float] = {}
    leader = -math.inf
    for value in ascending:
        if value - leader > tolerance + 10**-_ROUNDING:
            leader = value
        leaders[value] = leader
    return leaders
