"""Nodes for a group whose members differ in GPUs.

What it answers: which nodes get which members, or None. It knows neither sentences nor pods.

Method. Exact packing of unlike members is bin packing, so it is first fit decreasing: the largest
members first, each to the fullest node that takes it, in the domains of the nearest level by least
free GPUs. A domain is tried only where its room for each shape alone, and its free GPUs, are
enough; at most `MOST_TRIED` domains of a level are tried, so that a domain that holds the group may
be missed where many seem to and do not. O((nodes + members) log nodes) for each domain tried.

A node's own room for several shapes at once is taken from its free GPUs alone; who knows its links
checks the outcome, and chooses again without that room where it does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from topology.groups.choice_alike import MOST_TRIED
from topology.groups.free_capacity import order_by_free_capacity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.groups.domain_tree import Domain, DomainTree

__all__ = ["MixedDemand", "MixedShares", "choose_mixed", "most_members"]

MixedShares = dict[int, list[int]]
"""Position of a node -> its members of each shape."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedDemand:
    """Members, GPUs and room of each shape, in the demand's order; free GPUs and costs of nodes."""

    n_members: Sequence[int]
    n_gpus: Sequence[int]
    fits: Sequence[NDArray[np.int64]]
    free_gpus: NDArray[np.int64]
    costs: NDArray[np.float64]


def choose_mixed(
    tree: DomainTree, demand: MixedDemand, *, n_levels: int
) -> tuple[Domain | None, MixedShares] | None:
    """Choose within the first `n_levels` levels; the domain is None where one node takes all."""
    total = sum(n * gpus for n, gpus in zip(demand.n_members, demand.n_gpus, strict=True))
    sums = tree.sums(demand.free_gpus)
    enough = demand.free_gpus >= total
    for n, fits in zip(demand.n_members, demand.fits, strict=True):
        enough &= fits >= n
    if (nodes := np.flatnonzero(enough)).size:
        free_capacity = order_by_free_capacity(tree, sums, tree.owner[nodes])
        order = np.lexsort((nodes, demand.costs[nodes], *free_capacity, demand.free_gpus[nodes]))
        return None, {int(nodes[order[0]]): list(demand.n_members)}
    rooms = [tree.sums(fits) for fits in demand.fits]
    for level in tree.levels[:n_levels]:
        domains = np.array(level.domains)
        able = sums[domains] >= total
        for n, room in zip(demand.n_members, rooms, strict=True):
            able &= room[domains] >= n
        domains = domains[able]
        free_capacity = order_by_free_capacity(tree, sums, domains)
        order = np.lexsort((level.first[able], *free_capacity))
        for place in order[:MOST_TRIED]:
            domain = tree.domains[int(domains[place])]
            shares, n_placed = _fill(demand, domain)
            if n_placed == sum(demand.n_members):
                return domain, shares
    return None


def most_members(demand: MixedDemand, domain: Domain) -> int:
    """How many members of the group first fit decreasing places in a domain."""
    return _fill(demand, domain)[1]


def _fill(demand: MixedDemand, domain: Domain) -> tuple[MixedShares, int]:
    free = demand.free_gpus[domain.first : domain.end].copy()
    shares: MixedShares = {}
    n_placed = 0
    by_size = sorted(range(len(demand.n_gpus)), key=lambda i: (-demand.n_gpus[i], i))
    for shape in by_size:
        size = demand.n_gpus[shape]
        room = demand.fits[shape][domain.first : domain.end].copy()
        heap = [
            (int(free[at]), float(demand.costs[domain.first + at]), int(at))
            for at in np.flatnonzero((free >= size) & (room > 0))
        ]
        heapify(heap)
        for _ in range(demand.n_members[shape]):
            if not heap:
                break
            _, cost, at = heappop(heap)
            free[at] -= size
            room[at] -= 1
            counts = shares.setdefault(domain.first + at, [0] * len(demand.n_gpus))
            counts[shape] += 1
            n_placed += 1
            if free[at] >= size and room[at]:
                heappush(heap, (int(free[at]), cost, at))
    return shares, n_placed
