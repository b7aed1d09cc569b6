"""How many members of a group each node takes, now and when it is empty.

Counted with the verbs' own choices, one member after the other, once for each shape and node state:
a cluster of thousands of nodes has few states, and the counts are kept. The order of nodes is that
of the tree of domains. It chooses no node.

Complexity: array operations over the nodes, and for each state that is new for the shape as many
choices of sets as members fit there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from extender.groups.planning.gpu_models import ANY_MODEL, mask_of_model, of_model
from extender.placement import Rank, Refusal
from extender.snapshot import emptied, taking

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from numpy.typing import NDArray

    from extender.groups.planning.gpu_models import Model
    from extender.placement import RankKey, Rater
    from extender.protocol import PodRequest, Shape
    from extender.snapshot import ClusterSnapshot, NodeView
    from topology.select import PodFit

__all__ = ["NodeRoom", "Room"]

MAX_KEPT = 65_536
"""Counts and choices kept, each. Beyond it all are made again."""


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Figures of each node for members of one shape, int64[n] and, for costs, float64[n].

    `fits`: how many it takes now; `fits_when_empty`: with every device free; `costs`: what the rest
    of the node loses when the first of them is there. `numbers` are the nodes' states, and `keys`
    the places of those that take one in the order of nodes.
    """

    fits: NDArray[np.int64]
    fits_when_empty: NDArray[np.int64]
    costs: NDArray[np.float64]
    numbers: NDArray[np.int64]
    keys: Mapping[int, RankKey]

    def worst_key(self, n_members: int, most: NDArray[np.int64]) -> RankKey | None:
        """Where so many members get the nodes that are best for them, the place of the last one.

        `most` is how many each node takes at most; None: not all of them fit.
        """
        room = np.bincount(self.numbers, weights=np.minimum(self.fits, most))
        for number, key in sorted(self.keys.items(), key=lambda item: item[1]):
            n_members -= int(room[number])
            if n_members <= 0:
                return key
        return None


class NodeRoom:
    """Counts over the snapshots of one cluster."""

    def __init__(self, rater: Rater) -> None:
        self._rater = rater
        self._counts: dict[tuple[Shape | None, int], int] = {}
        self._choices: dict[tuple[Shape | None, int], PodFit | Refusal | None] = {}

    def of(
        self,
        request: PodRequest,
        snapshot: ClusterSnapshot,
        order: NDArray[np.int64],
        model: Model = ANY_MODEL,
    ) -> Room:
        """The figures for pods like this one, on GPUs of a model alone.

        `order` are positions in the snapshot.
        """
        numbers = snapshot.state_ids[order]
        occurring: list[int] = np.bincount(numbers).nonzero()[0].tolist()
        have = [i for i in occurring if mask_of_model(snapshot.samples[i].node_class, model)]
        samples = [of_model(snapshot.samples[number], model) for number in have]
        ratings = self._rater.rate(request, samples)
        size = occurring[-1] + 1 if occurring else 0
        fits = np.zeros(size, dtype=np.int64)
        empty = np.zeros(size, dtype=np.int64)
        costs = np.zeros(size, dtype=np.float64)
        keys: dict[int, RankKey] = {}
        for number, view, rating in zip(have, samples, ratings, strict=True):
            empty[number] = self._count(request, of_model(emptied(view), model))
            if isinstance(rating, Rank):
                fits[number] = self._count(request, view)
                costs[number] = view.node_class.worth * rating.remainder_cost_gpus
                keys[number] = rating.key
        return Room(fits[numbers], empty[numbers], costs[numbers], numbers, keys)

    def prepare(
        self, request: PodRequest, snapshot: ClusterSnapshot, order: NDArray[np.int64]
    ) -> Generator[None, None, None]:
        """Count what `of` needs, in turns; changes no figure."""
        occurring: list[int] = np.bincount(snapshot.state_ids[order]).nonzero()[0].tolist()
        for number in occurring:
            for view in (emptied(snapshot.samples[number]), snapshot.samples[number]):
                for model in view.node_class.models:
                    self._count(request, of_model(view, model))
                    yield

    def choose(self, request: PodRequest, view: NodeView) -> PodFit | Refusal | None:
        """The sets of a pod on a node, as `Rater.choose`."""
        key = request.shape, view.state
        if key not in self._choices:
            if len(self._choices) >= MAX_KEPT:
                self._choices.clear()
            self._choices[key] = self._rater.choose(request, view)
        return self._choices[key]

    def _count(self, request: PodRequest, view: NodeView) -> int:
        """How many pods like this fit on a node one after the other."""
        key = request.shape, view.state
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= MAX_KEPT:
                self._counts.clear()
            count = self._counts[key] = self._count_again(request, view)
        return count

    def _count_again(self, request: PodRequest, view: NodeView) -> int:
        count = 0
        while view.free.bit_count() >= request.size_gpus:
            fit = self.choose(request, view)
            if isinstance(fit, Refusal):
                break
            if fit is None:
                return view.free.bit_count() // request.size_gpus
            view = taking(view, fit.used)
            count += 1
        return count
