"""Ratings of node states for pod shapes, cached.

Finds the rank of a pod's best sets on nodes of one class with the same GPUs free, or why there are
none; and for one node the sets themselves. A cluster of thousands of nodes has few distinct states,
and pods come in few shapes, so a bounded cache over both makes the request path a look-up. The
cache never changes an answer: it is keyed by all that the answer depends on. New states of one
machine type are rated together where the pod's GPUs are one container's.

A call may have a budget: states that are not known when it is spent are rated by count for this
call, and remembered; `rate_deferred` rates them later, so that the next call knows them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from extender.placement.node_order import (
    DEFAULT_LOSS_BOUNDS,
    Rank,
    rank_fit,
    rank_sets,
    unranked,
)
from extender.protocol import Reason
from topology.annotations import NicRule, Prefer, Strength
from topology.select import MachineTables, PodFit, fit_pod, select_sets
from topology.topology_manager import Kubelet, fit_admitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from extender.protocol import PodRequest, Shape
    from extender.snapshot import MachineType, NodeClass, NodeView
    from topology.select import Unfit

__all__ = ["WORK_S", "Rater", "RatingBudget", "Refusal", "rating_work"]

MAX_ENTRIES = 65_536
"""Ratings kept. One 16-GPU class has 65,536 states, of which a cluster shows a fraction; at about
0.6 KB each (measured) this bounds the memory to some 40 MB."""


WORK_S = 30e-6
"""Seconds of a unit of `rating_work`: a new state of 8 GPUs that is rated alone."""
_BATCH_WORK = 128
"""Work of the states of one class that are rated together, between two looks at the clock."""
_SLOW_WORK = 1600
"""48 ms: the longest took 87 ms with 32 devices, the median 3 ms (ADR 0024)."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The node state cannot take the pod; `detail` is for logs, never for the scheduler."""

    reason: Reason
    detail: str = ""


class RatingBudget:
    """How many states one call may rate: those before `is_spent` is true for the first time.

    `is_spent` is called with the work of the next state (`rating_work`). `n_rated` counts those
    that were rated, `work` adds up what they take, and `n_deferred` counts the others that the call
    met.
    """

    def __init__(self, is_spent: Callable[[int], bool]) -> None:
        self._is_spent = is_spent
        self.n_rated = 0
        self.work = 0
        self.n_deferred = 0

    @classmethod
    def of_states(cls, n_states: int) -> RatingBudget:
        """A budget of so many states, whatever they take."""
        budget = cls(lambda _: budget.n_rated >= n_states)
        return budget

    @classmethod
    def of_work(cls, at_most: int) -> RatingBudget:
        """A budget of so much work; reads no clock, so a replay rates the same."""
        budget = cls(lambda _: budget.work >= at_most)
        return budget

    def allows(self, work: int = 1) -> bool:
        """Whether one state more may be rated, which takes so much; counts it."""
        if self.n_deferred or self._is_spent(work):
            self.n_deferred += 1
            return False
        self.n_rated += 1
        self.work += work
        return True


def rating_work(shape: Shape, node_class: NodeClass) -> int:
    """What rating a state of this class takes, in units of some `WORK_S`.

    One container on up to 8 GPUs takes 1; tables of 16 GPUs are longer, and containers that are
    chosen together go over all unions of their sets. A state without tables may take twice what it
    counts, so one is begun while half the default budget is left.
    """
    if node_class.machine is None or node_class.resource != shape.resource:
        return 1
    if node_class.machine.is_rated_slowly:
        return _SLOW_WORK
    is_small = node_class.machine.selector.n_gpus <= _FEW_GPUS
    if len(shape.requests) > 1:
        return 15 if is_small else 300
    return 1 if is_small else 10


_FEW_GPUS = 8


class Rater:
    """Rates node states for pod shapes; forgets the shapes used longest ago.

    `loss_bounds` are upper bounds of the loss classes; `prefer` is for pods that do not say it.
    """

    def __init__(
        self,
        *,
        loss_bounds: Sequence[float] = DEFAULT_LOSS_BOUNDS,
        prefer: Prefer = Prefer.BALANCED,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self.loss_bounds = tuple(loss_bounds)
        self.prefer = prefer
        self._max_entries = max_entries
        self._by_shape: OrderedDict[Shape, dict[int, Rank | Refusal]] = OrderedDict()
        self._n_entries = 0
        # What calls left out, oldest first, with the pod's size.
        self._deferred: dict[tuple[Shape, int], tuple[int, NodeView]] = {}

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
            # A shape without ratings is not kept: only ratings are counted and trimmed.
            known = self._by_shape.setdefault(shape, {})
            if state not in known:
                self._keep(known, shape, size_gpus, (view,))
        self._trim()

    def rate(
        self,
        request: PodRequest,
        views: Iterable[NodeView],
        budget: RatingBudget | None = None,
    ) -> list[Rank | Refusal]:
        """Rate nodes, in their order; the pod requests GPUs. Without a budget all are rated.

        Complexity: one look-up per node, one fit per state not seen lately. Raises `ValueError` for
        a pod without GPUs.
        """
        if request.shape is None:
            raise _without_gpus(request)
        shape, size_gpus = request.shape, request.size_gpus
        views = list(views)
        kept = self._by_shape.get(shape)
        known: dict[int, Rank | Refusal] = {} if kept is None else kept
        deferred: dict[int, Rank | Refusal] = {}
        for node_class, alike in _by_class(views, known).items():
            due: list[NodeView] = []
            due_work = 0
            for view in alike:
                work = _work(shape, size_gpus, view)
                if (
                    budget is not None
                    and node_class.machine is not None
                    and not budget.allows(work)
                ):
                    deferred[view.state] = self._defer(shape, size_gpus, view)
                    continue
                due.append(view)
                due_work += work
                # The first of a class puts its sets in order, which takes longest.
                if due_work >= _BATCH_WORK or view is alike[0]:
                    self._keep(known, shape, size_gpus, due)
                    due, due_work = [], 0
            if due:
                self._keep(known, shape, size_gpus, due)
        rated = [known.get(view.state) or deferred[view.state] for view in views]
        if kept is not None:
            self._by_shape.move_to_end(shape)
        elif known:
            self._by_shape[shape] = known
        if self._n_entries > self._max_entries:
            self._trim()
        return rated

    def choose(self, request: PodRequest, view: NodeView) -> PodFit | Refusal | None:
        """The best sets of a pod on one node; None where devices are taken by count.

        Raises `ValueError` for a pod without GPUs.
        """
        if request.shape is None:
            raise _without_gpus(request)
        return _choose(request.shape, request.size_gpus, view)

    def _keep(
        self,
        known: dict[int, Rank | Refusal],
        shape: Shape,
        size_gpus: int,
        views: Sequence[NodeView],
    ) -> None:
        """Rate states of one class, one or more, and keep the ratings."""
        rated = self._rate(shape, size_gpus, views[0].node_class, views)
        for view, rating in zip(views, rated, strict=True):
            known[view.state] = rating
        self._n_entries += len(views)

    def _defer(self, shape: Shape, size_gpus: int, view: NodeView) -> Rank | Refusal:
        """Rate by count for now; what a pod states as a condition cannot be."""
        if len(self._deferred) >= self._max_entries:
            del self._deferred[next(iter(self._deferred))]
        self._deferred[shape, view.state] = size_gpus, view
        rating = _by_count(shape, size_gpus, view)
        if isinstance(rating, Refusal) and rating.reason is Reason.NO_TOPOLOGY:
            return Refusal(Reason.NOT_RATED)
        return rating

    def _trim(self) -> None:
        while self._n_entries > self._max_entries:
            _, ratings = self._by_shape.popitem(last=False)
            self._n_entries -= len(ratings)

    def _rate(
        self, shape: Shape, size_gpus: int, node_class: NodeClass, views: Sequence[NodeView]
    ) -> list[Rank | Refusal]:
        """Rate states of one class."""
        ranks: Sequence[Rank | None] = (None,) * len(views)
        if (
            len(shape.requests) == 1
            and node_class.resource == shape.resource
            and node_class.manager is None
            and node_class.machine is not None
            and isinstance(node_class.machine.selector, MachineTables)
        ):
            available = np.array([view.free for view in views])
            (request,) = shape.requests
            chosen = select_sets(
                node_class.machine.selector,
                available=available,
                size=request.size,
                policy=shape.policy,
            )
            ranks = rank_sets(
                chosen,
                shape,
                n_free=[view.free.bit_count() for view in views],
                worth=node_class.worth,
                loss_bounds=self.loss_bounds,
                prefer=self.prefer,
            )
        return [
            rank or self._rate_one(shape, size_gpus, view)
            for rank, view in zip(ranks, views, strict=True)
        ]

    def _rate_one(self, shape: Shape, size_gpus: int, view: NodeView) -> Rank | Refusal:
        n_free = view.free.bit_count()
        fit = _choose(shape, size_gpus, view)
        if isinstance(fit, PodFit):
            return rank_fit(
                fit,
                shape,
                n_free=n_free,
                worth=view.node_class.worth,
                loss_bounds=self.loss_bounds,
                prefer=self.prefer,
            )
        return fit or unranked(n_free)


def _by_class(
    views: Iterable[NodeView], known: Mapping[int, Rank | Refusal]
) -> dict[NodeClass, list[NodeView]]:
    """The states that are not known, each once, by class; those that are rated slowly last.

    Else one that the budget does not reach for would stand before states that take no time.
    """
    new = {view.state: view for view in views if view.state not in known}
    kinds: dict[NodeClass, list[NodeView]] = {}
    for view in new.values():
        kinds.setdefault(view.node_class, []).append(view)
    if len(kinds) < 2:  # noqa: PLR2004 - nothing to put in order
        return kinds
    return dict(sorted(kinds.items(), key=lambda item: _is_rated_slowly(item[0])))


def _is_rated_slowly(node_class: NodeClass) -> bool:
    return node_class.machine is not None and node_class.machine.is_rated_slowly


def _work(shape: Shape, size_gpus: int, view: NodeView) -> int:
    """What rating a state takes; of one with too few free GPUs only its machine is looked at."""
    if view.free.bit_count() < size_gpus:
        return 1
    return rating_work(shape, view.node_class)


def _without_gpus(request: PodRequest) -> ValueError:
    return ValueError(f"pod {request.full_name} requests no GPU, expected a shape")


def _choose(shape: Shape, size_gpus: int, view: NodeView) -> PodFit | Refusal | None:
    node_class = view.node_class
    if node_class.resource != shape.resource:
        return Refusal(Reason.OTHER_RESOURCE)
    if node_class.machine is None:
        counted = _by_count(shape, size_gpus, view)
        return counted if isinstance(counted, Refusal) else None
    fit = _fit(node_class.machine, shape, view)
    if isinstance(fit, PodFit):
        return fit
    return Refusal(Reason[fit.reason.name], fit.detail)  # the core's reasons have the same names


def _fit(machine: MachineType, shape: Shape, view: NodeView) -> PodFit | Unfit:
    manager = view.node_class.manager
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


def _by_count(shape: Shape, size_gpus: int, view: NodeView) -> Rank | Refusal:
    """A node without usable topology takes pods without requirements, by count.

    A pod with a minimum bandwidth requests two GPUs or more (`extender.protocol.pod_request`).
    """
    policy, n_free = shape.policy, view.free.bit_count()
    if (view.node_class.n_devices or len(view.ids)) < size_gpus:
        return Refusal(Reason.TOO_FEW_GPUS)
    if (
        policy.strength is Strength.REQUIRED
        or policy.min_bandwidth_gbytes_per_s is not None
        or policy.nic is NicRule.REQUIRED
    ):
        return Refusal(Reason.NO_TOPOLOGY)
    if n_free < size_gpus:
        return Refusal(Reason.NOT_ENOUGH_FREE)
    return unranked(n_free)
