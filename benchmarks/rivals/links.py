"""Two textbook rules on link labels: the clique sum and the bottleneck ring.

They choose the set with the largest sum of NVIDIA's pair scores, and the set with the ring whose
slowest edge is the best (max-min Hamiltonian cycle). Links rank by NVLink count, then by PCIe
level, unknown last; ties go to the lowest ids. Cost: C(n,k) (k-1)! rings per size for the second,
refused above `MAX_RINGS`.
"""

from __future__ import annotations

from itertools import permutations
from math import comb, factorial
from typing import TYPE_CHECKING

from benchmarks.errors import TooLarge
from benchmarks.masks import members, subsets_of_size
from benchmarks.rivals.base import Rival
from benchmarks.rivals.mapa import MAX_RINGS
from topology.audit import NvidiaNode, nvidia_pair_scores
from topology.model import PcieLevel

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from topology.model import NodeTopology

__all__ = ["BottleneckRing", "CliqueSum"]


class _ScoreChooser:
    """The set with the best score, the lowest ids on ties."""

    def __init__(self, score: Callable[[int], int]) -> None:
        self._score = score
        self._known: dict[tuple[int, int], int | None] = {}

    def choose(self, free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del rng, is_sensitive
        key = (free, size)
        if key not in self._known:
            self._known[key] = max(subsets_of_size(free, size), key=self._score, default=None)
        return self._known[key]


class CliqueSum(Rival):
    """The largest sum of NVIDIA's pair scores."""

    name = "clique sum (NVIDIA scores)"

    def prepare(self, topology: NodeTopology) -> _ScoreChooser:
        """Score the node's pairs."""
        return _ScoreChooser(NvidiaNode(nvidia_pair_scores(topology)).set_score)


class _RingTable:
    def __init__(self, topology: NodeTopology) -> None:
        worst = len(PcieLevel)
        n = topology.n_gpus
        self._ranks = [
            [
                worst + (topology.links[i][j].n_links or 1)
                if topology.links[i][j].is_up
                else worst - topology.pcie[i][j].rank
                for j in range(n)
            ]
            for i in range(n)
        ]
        self._known: dict[int, int] = {}

    def bottleneck(self, mask: int) -> int:
        known = self._known.get(mask)
        if known is None:
            known = self._known[mask] = self._search(mask)
        return known

    def _search(self, mask: int) -> int:
        first, *others = members(mask)
        if not others:
            return 0
        n_rings = comb(len(self._ranks), mask.bit_count()) * factorial(len(others))
        if n_rings > MAX_RINGS:
            msg = f"bottleneck ring: {n_rings} rings, at most {MAX_RINGS} tried"
            raise TooLarge(msg)
        ranks = self._ranks
        return max(
            min(ranks[a][b] for a, b in zip((first, *order), (*order, first), strict=True))
            for order in permutations(others)
        )


class BottleneckRing(Rival):
    """The best slowest edge of any ring through the set."""

    name = "bottleneck ring"

    def prepare(self, topology: NodeTopology) -> _ScoreChooser:
        """Rank the node's links."""
        return _ScoreChooser(_RingTable(topology).bottleneck)
