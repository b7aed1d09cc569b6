"""Which of the feasible nodes kube-scheduler hears of.

What it answers: at most `limit` of them, the best, with every zone represented. Leaving the rest
out makes a scheduling cycle cheaper, since kube-scheduler's own score plugins then run on 100 nodes
and not on 5,000; it drops nodes that are in no list without a word as long as one is left
(schedule_one.go of 1.36, findNodesThatPassExtenders). It never drops the only nodes of a zone:
PodTopologySpread scores only the zones it sees.

Method: within a zone nodes go best first, equal ones in the order of a hash of pod and node, so
that equal pods do not all see the same hundred; zones then give one node each in turn, the zone
with the best node first.
"""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest
from itertools import groupby
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from extender.compare import Rank
    from extender.snapshot import NodeView

__all__ = ["draw"]

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B1
"""2^32 / golden ratio, odd: Fibonacci hashing (Knuth, TAOCP 3, 6.4)."""


def draw(
    views: Sequence[NodeView], ranks: Mapping[int, Rank], *, limit: int, pod_hash: int
) -> list[NodeView]:
    """Draw at most `limit` of the nodes, one or more; `ranks` are those of their states.

    Names are unique, so (rank, hash, name) is a total order. O(n), and a hash for each node of the
    groups of equals that are reached.
    """
    n_zones = len({view.zone for view in views})
    enough = ceil(limit / n_zones)
    queues: dict[str, list[NodeView]] = {}
    for group in _groups(views, ranks, at_least=2 * limit):
        for zone, members in sorted(_by_zone(group).items()):
            queue = queues.setdefault(zone, [])
            hashed = [
                (((pod_hash ^ view.tie) * _GOLDEN) & _MASK, view.name, view) for view in members
            ]
            queue.extend(view for _, _, view in nsmallest(limit - len(queue), hashed))
        # Nobody is asked for more than this while every zone has it.
        if len(queues) == n_zones and all(len(queue) >= enough for queue in queues.values()):
            break
    return _in_turn(list(queues.values()), limit)


def _groups(
    views: Sequence[NodeView], ranks: Mapping[int, Rank], *, at_least: int
) -> Iterator[list[NodeView]]:
    """Groups of nodes that are equal to the pod, the best first.

    The nodes are sorted out in passes, of `at_least` nodes and then ever more, since mostly the
    first few groups are enough.
    """
    counts = Counter([view.state for view in views])
    keys = {state: ranks[state].key for state in counts}
    order = sorted(counts, key=keys.__getitem__)
    start = 0
    while start < len(order):
        end, n_nodes = start, 0
        while end < len(order) and (n_nodes < at_least or keys[order[end]] == keys[order[end - 1]]):
            n_nodes += counts[order[end]]
            end += 1
        members: dict[int, list[NodeView]] = {state: [] for state in order[start:end]}
        for view in views:
            if view.state in members:
                members[view.state].append(view)
        for _, equal in groupby(order[start:end], key=keys.__getitem__):
            yield [view for state in equal for view in members[state]]
        start, at_least = end, 8 * at_least


def _by_zone(views: Sequence[NodeView]) -> dict[str, list[NodeView]]:
    by_zone: dict[str, list[NodeView]] = {}
    for view in views:
        if view.zone in by_zone:
            by_zone[view.zone].append(view)
        else:
            by_zone[view.zone] = [view]
    return by_zone


def _in_turn(queues: Sequence[Sequence[NodeView]], limit: int) -> list[NodeView]:
    drawn: list[NodeView] = []
    depth = 0
    while len(drawn) < limit and any(len(queue) > depth for queue in queues):
        drawn.extend(queue[depth] for queue in queues if len(queue) > depth)
        depth += 1
    return drawn[:limit]
