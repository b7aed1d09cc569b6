"""The order of nodes for a pod, and their scores.

Gives the order of nodes, as one sort key per node state, and the extender's integer scale 0..10.
Pure arithmetic on what the core found; it never looks for a set.

Order (first difference decides):

1. whether the affinity holds that the pod named: such a set beats any other, whatever it costs
   (`required`, a required NIC and `min-bandwidth` are conditions; a node that breaks one is
   refused); then whether every set has the RDMA NIC that the pod would like
2. loss class: how far the set is from its own machine's best with all links up, in classes, so that
   a fast machine is not preferred for being fast; with `prefer: fastest` instead the GB/s of the
   worst container, in classes of 2 %
3. economy: the remainder lost, in GPU-equivalents times what a GPU of the node is worth (but for
   `prefer: fastest`), so that among equally close nodes the one with the least future placement
   cost comes first, and cheap GPUs before scarce ones; then the fewest free GPUs; then the network
   domain with the least room left, which is no part of a state's key: the caller has it of each
   node (`extender.placement.domain_free_capacity`)
4. at the caller: a hash of pod and node (candidates), or the node's name (explain)

Pods for which the core puts the remainder first (affinity `none`, one GPU per container,
`min-bandwidth` without an affinity) skip 1 and 2. Nodes
without a usable topology come behind all others.

Scores are absolute: a level means the same in every request (ADR 0018), and one level outweighs
all score plugins of kube-scheduler together, with the weight of deploy/.

| levels | nodes |
|---|---|
| 10, 9 | every stated wish holds, first loss class |
| 8, 7 and 6, 5 | the same, second and third loss class |
| 4, 3 | the same, all further classes |
| 2, 1 | a stated wish is missed |
| 0 | no usable topology; unknown nodes |

With `prefer: fastest` loss is that against the fastest node of the request. Of the two levels the
higher one is for the nodes that are best by the rest of the order, where differences under 2 % are
none; the lower one for all others. Economy decides between these two only, and not at all for a pod
with soft wishes of its own (preferred affinity and anti-affinity, ScheduleAnyway spreading), which
kube-scheduler scores; nor does it prefer a node with a PreferNoSchedule taint to one without.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from extender.protocol import is_packed
from topology.annotations import NicRule, Prefer

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from extender.protocol import Shape
    from topology.select import ChosenSets, PodFit

__all__ = [
    "DEFAULT_LOSS_BOUNDS",
    "TOP_SCORE",
    "Rank",
    "RankKey",
    "rank_fit",
    "rank_sets",
    "scores",
    "unranked",
]

K = TypeVar("K", bound="Hashable")

RankKey: TypeAlias = "tuple[bool, tuple[int, int] | tuple[()], int, float, int]"
"""A sort key of nodes, the best one first; equal nodes have equal ones."""

TOP_SCORE = 10
"""MaxExtenderPriority (kube-scheduler/extender/v1/types.go)."""

DEFAULT_LOSS_BOUNDS = (0.02, 0.10, 0.30)
"""Upper bounds of the loss classes; above the last one is a class of its own."""

_LEVELS_PER_BAND = 2
_MISSED = len(DEFAULT_LOSS_BOUNDS) + 1
"""Number of the last band, where a stated wish is missed; those before it are the loss classes."""

EQUAL = 0.02
"""Differences under this share are none: of GB/s relatively, of a pod's own size for remainders."""

_ROUNDING = 9
"""Digits that a remainder keeps in the order: sums of floats differ in the last ones."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a node state stands for one pod; the lesser `key` is better.

    `step` is (wishes missed, loss class), a missed affinity counting 2 and a missed NIC 1; empty
    for a node without usable topology. `speed_gbytes_per_s` is 0 for a pod that does not compare
    nodes by speed. `worth` is that of a GPU, 1 for a pod that does not weigh nodes by it.
    """

    step: tuple[int, int] | tuple[()]
    speed_gbytes_per_s: float
    remainder_cost_gpus: float
    n_free: int
    worth: float = 1.0
    cost: float = field(init=False, repr=False, compare=False)
    """The remainder lost, weighed by what a GPU is worth."""
    key: RankKey = field(init=False, repr=False, compare=False)
    """Sort key, without the caller's tie-break."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", self.worth * self.remainder_cost_gpus)
        speed = self.speed_gbytes_per_s
        speed_class = math.floor(math.log(speed) / math.log1p(EQUAL)) if speed > 0 else 0
        cost = round(self.cost, _ROUNDING)
        key = (not self.step, self.step, -speed_class, cost, self.n_free)
        object.__setattr__(self, "key", key)


def unranked(n_free: int) -> Rank:
    """The rank of a node without usable topology: behind every other."""
    return Rank((), 0.0, 0.0, n_free)


def rank_fit(  # noqa: PLR0913 - all that a rank is made of
    fit: PodFit,
    shape: Shape,
    *,
    n_free: int,
    worth: float = 1.0,
    loss_bounds: Sequence[float] = DEFAULT_LOSS_BOUNDS,
    prefer: Prefer = Prefer.BALANCED,
) -> Rank:
    """Rank the best sets of one node state; `n_free` counts its free GPUs before the pod.

    `worth` is that of one of its GPUs; `prefer` is for a pod that does not say what it prefers.
    """
    sets = [selected for _, selected in fit.containers]
    joined = [one for one in sets if len(one.gpus) > 1]
    return _rank(
        shape,
        prefer=shape.policy.prefer or prefer,
        lacks_nic=not all(one.has_near_nic for one in sets),
        misses_affinity=not all(one.satisfies_affinity for one in joined),
        speed=min((one.value_gbytes_per_s for one in joined), default=0.0),
        loss_class=_loss_class(fit.worst.loss, loss_bounds),
        cost=fit.remainder_cost_gpus,
        n_free=n_free,
        worth=worth,
    )


def rank_sets(  # noqa: PLR0913 - as `rank_fit`
    chosen: ChosenSets,
    shape: Shape,
    *,
    n_free: Sequence[int],
    worth: float = 1.0,
    loss_bounds: Sequence[float] = DEFAULT_LOSS_BOUNDS,
    prefer: Prefer = Prefer.BALANCED,
) -> list[Rank | None]:
    """Rank the set of each of some node states, as `rank_fit`; None where no set fits.

    The pod's GPUs are one container's. `n_free` are the free GPUs of each state.
    """
    return [
        _rank(
            shape,
            prefer=shape.policy.prefer or prefer,
            lacks_nic=not has_nic,
            misses_affinity=not satisfies,
            speed=speed,
            loss_class=_loss_class(loss, loss_bounds),
            cost=cost,
            n_free=free,
            worth=worth,
        )
        if mask
        else None
        for mask, has_nic, satisfies, speed, loss, cost, free in zip(
            chosen.masks.tolist(),
            chosen.has_near_nic.tolist(),
            chosen.satisfies_affinity.tolist(),
            chosen.value_gbytes_per_s.tolist(),
            chosen.loss.tolist(),
            chosen.remainder_cost_gpus.tolist(),
            n_free,
            strict=True,
        )
    ]


def _loss_class(loss: float, loss_bounds: Sequence[float]) -> int:
    return bisect_left(loss_bounds, round(loss, _ROUNDING))


def _rank(  # noqa: PLR0913 - all that a rank is made of
    shape: Shape,
    *,
    prefer: Prefer,
    lacks_nic: bool,
    misses_affinity: bool,
    speed: float,
    loss_class: int,
    cost: float,
    n_free: int,
    worth: float,
) -> Rank:
    missed = int(lacks_nic and shape.policy.nic is NicRule.PREFERRED)
    if is_packed(shape):
        return Rank((missed, 0), 0.0, cost, n_free, worth)
    missed += 2 * misses_affinity
    if prefer is Prefer.FASTEST:
        return Rank((missed, 0), speed, cost, n_free)
    return Rank((missed, loss_class), 0.0, cost, n_free, worth)


def scores(  # noqa: PLR0913 - what scores depend on
    ranks: Mapping[K, Rank],
    size_gpus: int,
    *,
    loss_bounds: Sequence[float],
    has_soft_wishes: bool,
    avoided: Collection[K] = (),
    free_capacity: Mapping[K, int] | None = None,
) -> dict[K, int]:
    """Map ranks, by any key, onto 0..10; `size_gpus` is the pod's size. O(n).

    `has_soft_wishes`: the pod has preferences that kube-scheduler scores. `avoided` are the keys of
    nodes with a PreferNoSchedule taint. `free_capacity` is how much room the nodes' domains have,
    less is better; None where that does not count.

    >>> near, far = Rank((0, 0), 0.0, 1.0, 8), Rank((0, 3), 0.0, 1.0, 8)
    >>> costly = Rank((0, 0), 0.0, 3.0, 8)
    >>> ranks = {1: near, 2: far, 3: costly, 4: unranked(8)}
    >>> scores(ranks, 4, loss_bounds=DEFAULT_LOSS_BOUNDS, has_soft_wishes=False)
    {4: 0, 1: 10, 3: 9, 2: 4}
    """
    result = {key: 0 for key, rank in ranks.items() if not rank.step}
    fastest = max(map(_SPEED, ranks.values()), default=0.0)
    bands: dict[int, dict[K, Rank]] = {}
    for key, rank in ranks.items():
        if rank.step:
            bands.setdefault(_band(rank.step, rank, fastest, loss_bounds), {})[key] = rank
    for band, members in bands.items():
        best = _closest(members, fastest)
        if not has_soft_wishes:
            best = _cheapest(best, size_gpus, avoided)
            if free_capacity is not None:
                best = _in_fullest_domain(best, free_capacity)
        top = TOP_SCORE - _LEVELS_PER_BAND * band
        result |= dict.fromkeys(members, top - 1) | dict.fromkeys(best, top)
    return result


def _band(step: tuple[int, int], rank: Rank, fastest: float, loss_bounds: Sequence[float]) -> int:
    missed, loss_class = step
    if missed:
        return _MISSED
    if fastest > 0:
        loss_class = bisect_left(
            loss_bounds, round(1 - rank.speed_gbytes_per_s / fastest, _ROUNDING)
        )
    return min(loss_class, _MISSED - 1)


_STEP, _SPEED = attrgetter("step"), attrgetter("speed_gbytes_per_s")
_COST, _N_FREE = attrgetter("cost"), attrgetter("n_free")


def _closest(members: Mapping[K, Rank], fastest: float) -> Mapping[K, Rank]:
    """The nodes of a band that miss and lose least, by class; of these the fastest.

    `fastest` is the greatest speed of all; 0 for a pod that does not compare nodes by speed.
    """
    least = min(members.values(), key=_STEP).step
    members = {key: rank for key, rank in members.items() if rank.step == least}
    if not fastest:
        return members
    bound = (1 - EQUAL) * max(members.values(), key=_SPEED).speed_gbytes_per_s
    return {key: rank for key, rank in members.items() if rank.speed_gbytes_per_s >= bound}


def _cheapest(
    members: Mapping[K, Rank], size_gpus: int, avoided: Collection[K]
) -> Mapping[K, Rank]:
    """Of these the nodes without a taint, of the least cost, then with the fewest free GPUs.

    Costs are equal up to 2 % of what the pod takes of the cheapest node.
    """
    if avoided:
        members = {key: rank for key, rank in members.items() if key not in avoided} or members
    least = min(members.values(), key=_COST)
    bound = least.cost + EQUAL * size_gpus * least.worth + 10**-_ROUNDING
    members = {key: rank for key, rank in members.items() if rank.cost <= bound}
    fewest = min(members.values(), key=_N_FREE).n_free
    return {key: rank for key, rank in members.items() if rank.n_free == fewest}


def _in_fullest_domain(
    members: Mapping[K, Rank], free_capacity: Mapping[K, int]
) -> Mapping[K, Rank]:
    """Of these the nodes in the domain with the least room left."""
    least = min(free_capacity[key] for key in members)
    return {key: rank for key, rank in members.items() if free_capacity[key] == least}
