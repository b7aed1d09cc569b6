"""How much an accelerator mesh carries inside a set: minimum cut, closed rings, ring packing.

What it answers, for subsets of a multigraph of links given as counts: the minimum cut (global, in
links), whether a closed ring through all members exists, and how many edge-disjoint ones. It knows
no GB/s.

Method. Minimum cut: Stoer and Wagner's maximum adjacency search (J. ACM 44(4), 1997), run on all
masks at once. Closed rings: the bit DP of Bellman, Held and Karp over (mask, end), one bit per end.
Packing: depth-first search for m edge-disjoint closed rings, m from floor(cut / 2) down, widest
remaining link first, then the vertex with the fewest ways on. NVLink is full duplex, so one closed
ring of three or more GPUs carries two rings of data, one each way; two GPUs with c links carry c.

Bounds: O(n^3 2^n) word operations for the tables; packing stops after `MAX_PACKING_STEPS` steps of
one set and then keeps the most rings it has held at once, which is a lower bound (no recorded
machine comes near;
tests/unit/topology/value/test_ring_packing.py holds it against exhaustive packing).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["MAX_PACKING_STEPS", "closed_ring_ends", "minimum_cuts", "pack_rings"]

MAX_PACKING_STEPS = 20_000
"""Search steps spent on one set; the eight GPUs of a DGX-1 V100 take fewer than 100, the sets of a
torus of 16 fewer than 10,000."""


def minimum_cuts(units: NDArray[np.int64], masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Global minimum cut of the multigraph that each mask induces, in links.

    `units` is a symmetric n x n matrix of counts, `masks` int64[m] with two or more members each;
    returns int64[m]. 0 where the mask is not connected.

    >>> ring = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    >>> minimum_cuts(ring, np.array([0b1111, 0b0111])).tolist()
    [2, 1]
    """
    n = len(units)
    sizes = ((masks[:, None] >> np.arange(n)) & 1).sum(axis=1)
    best = np.zeros(len(masks), dtype=np.int64)
    widest = int(sizes.max(initial=0))
    # Small sets share one batch (few numpy calls), larger ones go by size (no padding to copy).
    for low, high in ((2, _BATCH_SIZE), *((k, k) for k in range(_BATCH_SIZE + 1, widest + 1))):
        rows = np.flatnonzero((sizes >= low) & (sizes <= high))
        if len(rows):
            best[rows] = _batch_cuts(units, masks[rows], sizes[rows])
    return best


_BATCH_SIZE = 8


def _batch_cuts(
    units: NDArray[np.int64], masks: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    n = len(units)
    width = min(n, int(sizes.max()))
    bits = (masks[:, None] >> np.arange(n)) & 1
    members = np.argsort(1 - bits, axis=1, kind="stable")[:, :width]
    present = np.arange(width) < sizes[:, None]
    inside = present[:, :, None] & present[:, None, :]
    weight = np.where(inside, units[members[:, :, None], members[:, None, :]], 0).astype(np.int16)
    rows = np.arange(len(masks))
    best = np.full(len(masks), np.iinfo(np.int16).max, dtype=np.int16)
    left = sizes
    for _ in range(width - 1):
        active = left > 1
        if not active.all():
            rows, present, left = rows[active], present[active], left[active]
            weight = weight[active]
        last, before, cut = _adjacency_phase(present, weight, left)
        best[rows] = np.minimum(best[rows], cut)
        _merge(present, weight, last, before)
        left = left - 1
    return best.astype(np.int64)


def _adjacency_phase(
    present: NDArray[np.bool_], weight: NDArray[np.int16], left: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int16]]:
    """One maximum adjacency order per row: its last and last but one vertex, and the last's cut."""
    every = np.arange(len(present))
    gone = np.int16(-_FAR)
    key = np.where(present, np.int16(0), gone)
    last = before = np.zeros(len(present), dtype=np.int64)
    cut = np.zeros(len(present), dtype=np.int16)
    shortest = int(left.min())
    for step in range(int(left.max())):
        chosen = key.argmax(axis=1)
        value = key[every, chosen]
        if step < shortest:
            before, last, cut = last, chosen, value
        else:
            going = step < left
            before = np.where(going, last, before)
            last = np.where(going, chosen, last)
            cut = np.where(going, value, cut)
        # A vertex that is gone stays below every other: links across a cut add at most
        # 64 x 120 to it.
        key += weight[every, chosen]
        key[every, chosen] = gone
    return last, before, cut


_FAR = 20_000


def _merge(
    present: NDArray[np.bool_],
    weight: NDArray[np.int16],
    last: NDArray[np.int64],
    into: NDArray[np.int64],
) -> None:
    every = np.arange(len(present))
    joined = weight[every, last] + weight[every, into]
    weight[every, into, :] = joined
    weight[every, :, into] = joined
    weight[every, into, into] = 0
    weight[every, last, :] = 0
    weight[every, :, last] = 0
    present[every, last] = False


def closed_ring_ends(adjacency: Sequence[int], n: int) -> NDArray[np.bool_]:
    """Whether each mask of n GPUs has a closed ring through all its members, bool[2**n].

    `adjacency[i]` is the mask of i's neighbours. A single GPU and the empty mask have none; two
    joined GPUs have one.
    """
    ends = np.zeros(1 << n, dtype=np.int32)
    steps = _path_steps(n)
    for i in range(n):
        ends[1 << i] = 1 << i
    for i, grown, before in steps:
        ends[grown] |= np.where(ends[before] & adjacency[i], np.int32(1 << i), np.int32(0))
    # The lowest member is the start: for the masks whose lowest member is i, every other bit is
    # above i, so they stand at regular steps.
    closed = np.zeros(1 << n, dtype=np.bool_)
    for i in range(n):
        closed[1 << i :: 2 << i] = ends[1 << i :: 2 << i] & adjacency[i] != 0
    closed[1 << np.arange(n)] = False
    return closed


@cache
def _path_steps(n: int) -> tuple[tuple[int, NDArray[np.int64], NDArray[np.int64]], ...]:
    """How paths from a mask's lowest member grow: (new end i, masks with i, the same without).

    Smaller masks stand first, so that what a step reads is complete.
    """
    masks = np.arange(1 << n, dtype=np.int64)
    lowest = masks & -masks
    sizes = ((masks[:, None] >> np.arange(n)) & 1).sum(axis=1)
    steps: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = []
    for size in range(2, n + 1):
        layer = masks[sizes == size]
        for i in range(1, n):
            grown = layer[(layer & 1 << i != 0) & (lowest[layer] != 1 << i)]
            steps.append((i, grown, grown ^ 1 << i))
    return tuple(steps)


def pack_rings(
    units: Sequence[Sequence[int]],
    at_most: int,
    *,
    at_least: int = 0,
    max_steps: int = MAX_PACKING_STEPS,
) -> int:
    """Most edge-disjoint closed rings through all vertices of a multigraph, at most `at_most`.

    `units` is a symmetric k x k matrix of counts, k >= 3; `at_least` rings are known to exist.
    After `max_steps` steps the most rings held at once stand.

    >>> pack_rings([[0, 2, 2], [2, 0, 2], [2, 2, 0]], 2)
    2
    """
    found, steps = at_least, max_steps
    for wanted in range(at_most, at_least, -1):
        if wanted <= found:
            break
        # Half of what is left: a hopeless search for many rings must not starve one for fewer.
        packed, taken = _search(units, wanted, steps // 2)
        found, steps = max(found, packed), steps - taken
    return found


def _search(units: Sequence[Sequence[int]], wanted: int, at_most_steps: int) -> tuple[int, int]:
    """Search depth first for `wanted` rings: the most it held at once, and the steps it took."""
    search = _Search(units, wanted)
    steps = most = 0
    while search.trail and most < wanted and steps < at_most_steps:
        stop = search.trail[-1]
        to = next(stop.ways, None) if min(search.idle) >= 0 else None
        if to is None:
            search.step_back()
        else:
            steps += 1
            search.step(to)
            most = max(most, wanted - search.trail[-1].missing)
    return most, steps


class _Stop:
    """One vertex of the trail: its ring so far (a mask), rings missing, ways not yet tried.

    `out` holds the links at vertex 0 that are out for good below this stop.
    """

    __slots__ = ("at", "missing", "out", "visited", "ways")

    def __init__(self, at: int, visited: int, missing: int, ways: Iterator[int]) -> None:
        self.at = at
        self.visited = visited
        self.missing = missing
        self.ways = ways
        self.out: list[tuple[int, int]] = []


class _Search:
    """The state of a search: links left, links that no ring will take, and the trail.

    The trail is a list, not the call stack: 126 rings of 8 GPUs would overflow that. `idle[v]` is
    how many more links of v stay unused if the wanted rings are found; it never changes by a step,
    since each ring takes two links of each vertex. Rings come in no order and no direction, so a
    link at vertex 0 that led to nothing is out for every ring of that branch, not for one alone.
    """

    def __init__(self, units: Sequence[Sequence[int]], wanted: int) -> None:
        self.left = [list(row) for row in units]
        self.idle = [sum(row) - 2 * wanted for row in units]
        self.trail = [_Stop(0, 1, wanted, _ways_on(self.left, 0, 1))]

    def step(self, to: int) -> None:
        """Lead the ring on to a vertex; home, vertex 0, the next ring begins."""
        last = self.trail[-1]
        at = last.at
        self._change(at, to, -1)
        if not (self._can_idle(at) and self._can_idle(to)):
            self._change(at, to, 1)
            return
        visited = last.visited | 1 << to if to else 1
        ways = _ways_on(self.left, to, visited)
        self.trail.append(_Stop(to, visited, last.missing - (not to), ways))

    def step_back(self) -> None:
        """Take the last stop back, and with it the link that led there."""
        last = self.trail.pop()
        for to, count in last.out:
            self._set_aside(to, -count)
        if self.trail:
            before = self.trail[-1]
            self._change(before.at, last.at, 1)
            if before.at == 0:
                count = self.left[0][last.at]
                before.out.append((last.at, count))
                self._set_aside(last.at, count)

    def _can_idle(self, at: int) -> bool:
        """Whether the links that stay unused at a vertex find room at others to end at."""
        return sum(map(min, self.left[at], self.idle)) >= self.idle[at]

    def _set_aside(self, to: int, count: int) -> None:
        self._change(0, to, -count)
        self.idle[0] -= count
        self.idle[to] -= count

    def _change(self, i: int, j: int, by: int) -> None:
        self.left[i][j] += by
        self.left[j][i] += by


def _ways_on(left: list[list[int]], at: int, visited: int) -> Iterator[int]:
    """Where a ring may go next: home once all are visited, else the widest remaining link first.

    Of equally wide ones the vertex with the fewest ways on comes first (Warnsdorff's rule): found
    later, it is more often cut off.
    """
    row = left[at]
    if visited == (1 << len(row)) - 1:
        return iter((0,) if row[0] else ())
    open_to = [to for to, count in enumerate(row) if count and not visited >> to & 1]
    if len(open_to) > 1:
        masked = [to for to in range(1, len(row)) if not visited >> to & 1]
        open_to.sort(key=lambda to: (-row[to], sum([left[to][other] for other in masked])))
    return iter(open_to)
