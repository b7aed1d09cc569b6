"""Which of the feasible nodes kube-scheduler hears of.

What it answers: at most `limit` of them, the best, with every zone represented. Leaving the rest
out makes a scheduling cycle cheaper, since kube-scheduler's own score plugins then run on 100 nodes
and not on 5,000; it drops nodes that are in no list without a word as long as one is left
(schedule_one.go of 1.36, findNodesThatPassExtenders). It never drops the only nodes of a zone:
PodTopologySpread scores only the zones it sees.

Method: within a zone nodes go best first, equal ones in the order of a hash of pod and node, so
that equal pods do not all see the same hundred; zones then give one node each in turn.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.snapshot import NodeView

__all__ = ["draw", "mix"]

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B1
"""2^32 / golden ratio, odd: Fibonacci hashing (Knuth, TAOCP 3, 6.4)."""


def mix(pod: int, node: int) -> int:
    """A 32-bit hash of a pod's and a node's hash; the order of nodes differs from pod to pod.

    >>> [mix(1, 2), mix(2, 2)]
    [3668432991, 0]
    """
    mixed = ((pod ^ node) * _GOLDEN) & _MASK
    return mixed ^ (mixed >> 15)


def draw(
    groups: Iterable[Sequence[NodeView]], *, limit: int, pod_hash: int, n_zones: int
) -> list[NodeView]:
    """Draw at most `limit` nodes from groups of equal nodes, the best group first.

    `n_zones` is the number of zones the nodes may be in. Names are unique, so (hash, name) is a
    total order. O(n) hashes in the groups that are needed.
    """
    queues: dict[str, list[NodeView]] = {}
    for group in groups:
        if len(queues) == n_zones and all(len(queue) >= limit for queue in queues.values()):
            break
        by_zone: dict[str, list[NodeView]] = {}
        for view in group:
            by_zone.setdefault(view.zone, []).append(view)
        for zone, views in sorted(by_zone.items()):
            queue = queues.setdefault(zone, [])
            missing = limit - len(queue)
            if missing > 0:
                order = nsmallest(
                    missing, views, key=lambda view: (mix(pod_hash, view.tie), view.name)
                )
                queue.extend(order)
    return _in_turn(list(queues.values()), limit)


def _in_turn(queues: list[list[NodeView]], limit: int) -> list[NodeView]:
    drawn: list[NodeView] = []
    depth = 0
    while len(drawn) < limit and any(len(queue) > depth for queue in queues):
        drawn.extend(queue[depth] for queue in queues if len(queue) > depth)
        depth += 1
    return drawn[:limit]
