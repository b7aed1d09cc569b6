"""Ratings of node states for pod shapes, cached.

Finds the best sets of a pod on nodes of one kind with the same GPUs free, their rank, or
why not. A cluster of thousands of nodes has few distinct states, and pods come in few shapes, so a
bounded cache over both makes the request path a look-up. The cache never changes an answer: it is
keyed by all that the answer depends on.

A call may have a budget: states that are not known when it is spent are rated by count for this
call, and remembered; `rate_deferred` rates them later, so that the next call knows them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from extender.placement.node_order import DEFAULT_LOSS_BOUNDS, Rank, rank_fit, unranked
from extender.protocol import Reason, from_unfit
from topology.annotations import NicRule, Strength
from topology.select import PodFit, fit_pod
from topology.topology_manager import Kubelet, fit_admitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from extender.protocol import PodRequest, Shape
    from extender.snapshot import MachineType, NodeKind, NodeView
    from topology.select import Unfit

__all__ = ["Rater", "Rating", "RatingBudget", "Refusal", "rating_work"]

MAX_ENTRIES = 65_536
"""Ratings kept. One 16-GPU kind has 65,536 states, of which a cluster shows a fraction; at about
0.6 KB each (measured) this bounds the memory to some 40 MB."""


@dataclass(frozen=True, slots=True)
class Rating:
    """The node state can take the pod. `fit` is None where it has no usable topology."""

    rank: Rank
    fit: PodFit | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The node state cannot take the pod; `detail` is for logs, never for the scheduler."""

    reason: Reason
    detail: str = ""


class RatingBudget:
    """How many states one call may rate: those before `is_spent` is true for the first time.

    `n_rated` counts them, `work` adds up what they take (`rating_work`), and `n_deferred` counts
    the others that the call met.
    """

    def __init__(self, is_spent: Callable[[], bool]) -> None:
        self._is_spent = is_spent
        self.n_rated = 0
        self.work = 0
        self.n_deferred = 0

    @classmethod
    def of_states(cls, n_states: int) -> RatingBudget:
        """A budget of so many states, whatever they take."""
        budget = cls(lambda: budget.n_rated >= n_states)
        return budget

    @classmethod
    def of_work(cls, at_most: int) -> RatingBudget:
        """A budget of so much work; reads no clock, so a replay rates the same."""
        budget = cls(lambda: budget.work >= at_most)
        return budget

    def allows(self, work: int = 1) -> bool:
        """Whether one state more may be rated, which takes so much; counts it."""
        if self.n_deferred or self._is_spent():
            self.n_deferred += 1
            return False
        self.n_rated += 1
        self.work += work
        return True


def rating_work(shape: Shape, kind: NodeKind) -> int:
    """What rating a state of this kind takes, in units of about 30 us, by the worst that was seen.

    One container on up to 8 GPUs takes 1; tables of 16 GPUs are longer, and containers that are
    chosen together go over all unions of their sets; a search takes longer than all that.
    """
    if kind.machine is None or kind.resource != shape.resource:
        return 1
    if kind.machine.is_searched:
        return 10_000
    is_small = kind.machine.selector.n_gpus <= _FEW_GPUS
    if len(shape.requests) > 1:
        return 15 if is_small else 300
    return 1 if is_small else 4


_FEW_GPUS = 8


class Rater:
    """Rates node states for pod shapes; forgets the shapes used longest ago."""

    def __init__(
        self,
        *,
        loss_bounds: Sequence[float] = DEFAULT_LOSS_BOUNDS,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._loss_bounds = tuple(loss_bounds)
        self._max_entries = max_entries
        self._by_shape: OrderedDict[Shape, dict[int, Rating | Refusal]] = OrderedDict()
        self._n_entries = 0
        # What calls left out, oldest first, with the pod's size.
        self._deferred: dict[tuple[Shape, int], tuple[int, NodeView]] = {}

    @property
    def loss_bounds(self) -> Sequence[float]:
        """Upper bounds of the loss classes."""
        return self._loss_bounds

    @property
    def n_entries(self) -> int:
        """Number of ratings kept."""
        return self._n_entries

    @property
    def n_deferred(self) -> int:
        """Number of ratings that are due."""
        return len(self._deferred)

    def rate_deferred(self, n_states: int) -> None:
        """Rate so many of the states that calls had no budget for, oldest first."""
        for key in list(islice(self._deferred, n_states)):
            size_gpus, view = self._deferred.pop(key)
            shape, state = key
            if state not in self._by_shape.get(shape, {}):
                self._keep(shape, state, self._rate(shape, size_gpus, view))
        self._trim()

    def rate(
        self,
        request: PodRequest,
        views: Iterable[NodeView],
        budget: RatingBudget | None = None,
    ) -> list[Rating | Refusal]:
        """Rate nodes, in their order; the pod requests GPUs. Without a budget all are rated.

        Complexity: one look-up per node, one fit per state not seen lately. Raises `ValueError` for
        a pod without GPUs.
        """
        if request.shape is None:
            msg = f"pod {request.full_name} requests no GPU, expected a shape"
            raise ValueError(msg)
        known = self._by_shape.get(request.shape, {})
        ratings: list[Rating | Refusal] = []
        for view in views:
            rating = known.get(view.state)
            if rating is None and (
                budget is None
                or view.kind.machine is None
                or budget.allows(rating_work(request.shape, view.kind))
            ):
                rating = self._rate(request.shape, request.size_gpus, view)
                known = self._keep(request.shape, view.state, rating)
            elif rating is None:
                rating = self._defer(request.shape, request.size_gpus, view)
            ratings.append(rating)
        if known:
            self._by_shape.move_to_end(request.shape)
        self._trim()
        return ratings

    def _keep(
        self, shape: Shape, state: int, rating: Rating | Refusal
    ) -> dict[int, Rating | Refusal]:
        """Keep a new rating, and return all of its shape."""
        # A shape without ratings is not kept: only ratings are counted and trimmed.
        known = self._by_shape.setdefault(shape, {})
        known[state] = rating
        self._n_entries += 1
        return known

    def _defer(self, shape: Shape, size_gpus: int, view: NodeView) -> Rating | Refusal:
        """Rate by count for now; what a pod states as a condition cannot be."""
        if len(self._deferred) >= self._max_entries:
            del self._deferred[next(iter(self._deferred))]
        self._deferred[shape, view.state] = size_gpus, view
        rating = _by_count(shape, size_gpus, view.free.bit_count())
        if isinstance(rating, Refusal) and rating.reason is Reason.NO_TOPOLOGY:
            return Refusal(Reason.NOT_RATED)
        return rating

    def _trim(self) -> None:
        while self._n_entries > self._max_entries:
            _, ratings = self._by_shape.popitem(last=False)
            self._n_entries -= len(ratings)

    def _rate(self, shape: Shape, size_gpus: int, view: NodeView) -> Rating | Refusal:
        kind, n_free = view.kind, view.free.bit_count()
        if kind.resource != shape.resource:
            return Refusal(Reason.OTHER_RESOURCE)
        if kind.machine is None:
            return _by_count(shape, size_gpus, n_free)
        fit = _fit(kind.machine, shape, view)
        if isinstance(fit, PodFit):
            rank = rank_fit(
                fit, shape, n_free=n_free, worth=kind.worth, loss_bounds=self._loss_bounds
            )
            return Rating(rank, fit)
        return Refusal(from_unfit(fit.reason), fit.detail)


def _fit(machine: MachineType, shape: Shape, view: NodeView) -> PodFit | Unfit:
    manager = view.kind.manager
    if manager is None:
        return fit_pod(
            machine.selector,
            available=view.free,
            requests=shape.requests,
            policy=shape.policy,
        )
    return fit_admitted(
        machine.selector,
        kubelet=Kubelet(manager, view.free | view.reserved),
        available=view.free,
        requests=shape.requests,
        policy=shape.policy,
    )


def _by_count(shape: Shape, size_gpus: int, n_free: int) -> Rating | Refusal:
    """A node without usable topology takes pods without requirements, by count.

    A pod with a minimum bandwidth requests two GPUs or more (`extender.protocol.pod_request`).
    """
    policy = shape.policy
    if (
        policy.strength is Strength.REQUIRED
        or policy.min_bandwidth_gbytes_per_s is not None
        or policy.nic is NicRule.REQUIRED
    ):
        return Refusal(Reason.NO_TOPOLOGY)
    if n_free < size_gpus:
        return Refusal(Reason.NOT_ENOUGH_FREE)
    return Rating(unranked(n_free), None)
