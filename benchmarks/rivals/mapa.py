"""MAPA (SC'21): its greedy and preserve policies, as its simulator codes them.

Returns the GPUs that `socal-ucr/MAPA` (15e58ab3, BSD-3-Clause) gives a ring job. Paper: arXiv
2110.03214.

Rules (src/MapaPolicies.hh, Props.hh, TopoUtils.hh): every order of every free set is a ring of k
edges (k = 2 counts its edge twice). Aggregated bandwidth: sum of edge weights, PCIe 10, one NVLink
25 (20 on P100), two 50. Effective bandwidth: a regression on the numbers of double, single and
PCIe edges. Preserved bandwidth: NVLink-only weight over all pairs of GPUs left free.
greedy: the largest aggregated bandwidth, for one GPU the first that is free; it never refuses.
preserve: the largest effective bandwidth for a sensitive job of 2 or more GPUs, else the largest
preserved bandwidth, ties by aggregated bandwidth. preserve starts from an empty allocation that
must be exceeded: effective bandwidth 12.335 (so a sensitive job is refused a PCIe pair, and waits),
preserved and aggregated 0 (so one GPU is refused where no NVLink pair stays free).

Ties between sets go to the lowest ids: the original takes what its pattern matcher finds first.
Links of more than two lanes count as double, the most that MAPA knows.
Cost: C(n,k) (k-1)! rings, once per size: meant for machines of 8 GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from benchmarks.masks import subsets_of_size
from benchmarks.rivals.rival import Rival
from topology.model import LinkKind, gpus_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from benchmarks.rivals.rival import Chooser
    from topology.model import NodeTopology

__all__ = [
    "MAPA_GREEDY",
    "MAPA_PRESERVE",
    "MapaNode",
    "effective_bandwidth",
    "mapa_weights",
]

PCIE, SINGLE, DOUBLE = 10, 25, 50
SINGLE_P100 = 20

Weights = tuple[tuple[int, ...], ...]


def effective_bandwidth(n_double: int, n_single: int, n_pcie: int) -> float:
    """MAPA's regression (Props.hh, getPredictedBW) on a ring's edges by kind; no stated unit.

    >>> round(effective_bandwidth(0, 0, 0), 3)
    12.335
    """
    x1, x2, x3 = float(n_double), float(n_single), float(n_pcie)
    return (
        16.39670455 * x1
        + 4.536821878 * x2
        + 1.55623404 * x3
        - 20.69484581 / (x1 + 1)
        - 9.467461958 / (x2 + 1)
        + 7.615106783 / (x3 + 1)
        - 7.973335727 * x1 * x2
        + 12.73323772 * x2 * x3
        - 4.195655221 * x1 * x3
        - 8.413419363 / (x1 * x2 + 1)
        + 62.85125807 / (x2 * x3 + 1)
        + 27.41832588 / (x1 * x3 + 1)
        - 5.114108079 * x1 * x2 * x3
        - 46.97390071 / (x1 * x2 * x3 + 1)
    )


def mapa_weights(topology: NodeTopology) -> Weights:
    """Weigh each pair as MAPA does: 10 without NVLink, 25 for one link, 50 for two or more.

    One link between P100s weighs 20.
    """
    is_p100 = all("P100" in (gpu.model or "") for gpu in topology.gpus)
    single = SINGLE_P100 if is_p100 else SINGLE

    def weight(i: int, j: int) -> int:
        link = topology.links[i][j]
        if i == j:
            return 0
        if link.kind is not LinkKind.NVLINK:
            return PCIE
        return single if link.n_links == 1 else DOUBLE

    n = topology.n_gpus
    return tuple(tuple(weight(i, j) for j in range(n)) for i in range(n))


@dataclass(frozen=True, slots=True)
class RingScore:
    """A set's best ring: aggregated bandwidth, its effective bandwidth, and the best effective."""

    aggregated: int
    effective_of_aggregated: float
    effective: float


class MapaNode:
    """Ring scores of one node's sets, computed once per size."""

    def __init__(self, weights: Sequence[Sequence[int]]) -> None:
        self._weights = tuple(tuple(row) for row in weights)
        self._rings: dict[int, dict[int, RingScore]] = {}
        self._nvlink: dict[int, int] = {}

    def ring_scores(self, size: int) -> dict[int, RingScore]:
        """Score every set of a size."""
        known = self._rings.get(size)
        if known is None:
            n = len(self._weights)
            known = {mask: self._score(mask) for mask in subsets_of_size((1 << n) - 1, size)}
            self._rings[size] = known
        return known

    def _score(self, mask: int) -> RingScore:
        first, *others = gpus_of(mask)
        if not others:
            return RingScore(0, effective_bandwidth(0, 0, 0), effective_bandwidth(0, 0, 0))
        rings = [self._ring((first, *order)) for order in permutations(others)]
        aggregated, of_aggregated = max(rings, key=lambda ring: ring[0])
        return RingScore(aggregated, of_aggregated, max(ring[1] for ring in rings))

    def _ring(self, order: Sequence[int]) -> tuple[int, float]:
        edges = [self._weights[a][b] for a, b in zip(order, (*order[1:], order[0]), strict=True)]
        n_pcie = edges.count(PCIE)
        n_double = edges.count(DOUBLE)
        return sum(edges), effective_bandwidth(n_double, len(edges) - n_pcie - n_double, n_pcie)

    def preserved(self, free: int) -> int:
        """NVLink-only weight over all pairs of a free set."""
        known = self._nvlink.get(free)
        if known is None:
            gpus = gpus_of(free)
            known = sum(
                self._weights[a][b]
                for i, a in enumerate(gpus)
                for b in gpus[:i]
                if self._weights[a][b] > PCIE
            )
            self._nvlink[free] = known
        return known

    def greedy(self, free: int, size: int) -> int | None:
        """Return the set with the largest aggregated bandwidth, the lowest ids on ties."""
        scores = self.ring_scores(size)
        candidates = subsets_of_size(free, size)
        return max(candidates, key=lambda mask: scores[mask].aggregated, default=None)

    def preserve(self, free: int, size: int, *, is_sensitive: bool) -> int | None:
        """Return the set of the preserve policy, None where it refuses."""
        scores = self.ring_scores(size)
        candidates = subsets_of_size(free, size)
        if not candidates:
            return None
        if is_sensitive and size > 1:
            effective = max(candidates, key=lambda mask: scores[mask].effective)
            empty = effective_bandwidth(0, 0, 0)
            return effective if scores[effective].effective > empty else None
        best = max(candidates, key=lambda m: (self.preserved(free & ~m), scores[m].aggregated))
        return best if self.preserved(free & ~best) or scores[best].aggregated else None


def _rival(name: str, choose: Callable[[MapaNode, int, int, bool], int | None]) -> Rival:
    def prepare(topology: NodeTopology) -> Chooser:
        node = MapaNode(mapa_weights(topology))

        def chosen(free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
            del rng
            return choose(node, free, size, is_sensitive)

        return chosen

    return Rival(name, prepare)


MAPA_GREEDY = _rival("MAPA greedy", lambda node, free, size, _: node.greedy(free, size))
MAPA_PRESERVE = _rival(
    "MAPA preserve",
    lambda node, free, size, is_sensitive: node.preserve(free, size, is_sensitive=is_sensitive),
)
