"""Which of the feasible nodes kube-scheduler hears of.

What it answers: at most `limit` of them, the best, drawn over the zones. Leaving the rest
out makes a scheduling cycle cheaper, since kube-scheduler's own score plugins then run on 100 nodes
and not on 5,000; it drops nodes that are in no list without a word as long as one is left
(schedule_one.go of 1.36, findNodesThatPassExtenders). It never drops all nodes of a zone while
there are no more zones than `limit`, since PodTopologySpread scores only the zones it sees; with
more zones than that the zones with the best nodes are represented, by one node each.

Method: within a zone nodes go best first, equal ones in the order of a hash of pod and node, so
that equal pods do not all see the same hundred; zones then give one node each in turn, the zone
with the best node first.
"""

from __future__ import annotations

from itertools import islice, zip_longest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from extender.snapshot import ClusterSnapshot

__all__ = ["draw"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio, odd: Fibonacci hashing (Knuth, TAOCP 3, 6.4)."""
_HASH_BITS = 47
"""Bits of the hash in a sort key; above them stands the place, below 65,536 (there are no more
different ranks among nodes than states), and the sign stays free."""


def draw(
    snapshot: ClusterSnapshot,
    positions: NDArray[np.int64],
    places: NDArray[np.int64],
    *,
    limit: int,
    pod_hash: int,
) -> list[int]:
    """Draw at most `limit` of the nodes at `positions`; gives their positions.

    `places` holds the place of each one's rank, 0 the best, equal for equal ranks. Nodes whose
    place and hash are equal (one in 10^7 draws from 5,000) keep the order of `positions`. O(n) for
    each zone.
    """
    hashed = (snapshot.ties[positions] ^ np.uint64(pod_hash)) * _GOLDEN
    keys = (places << _HASH_BITS) | (hashed >> np.uint64(64 - _HASH_BITS)).astype(np.int64)
    zone_ids = snapshot.zone_ids[positions]
    queues: list[tuple[int, list[int]]] = []
    for zone in np.flatnonzero(np.bincount(zone_ids)).tolist():
        members = np.flatnonzero(zone_ids == zone)
        if len(members) > limit:
            members = members[np.argpartition(keys[members], limit - 1)[:limit]]
        members = members[np.argsort(keys[members], kind="stable")]
        queues.append((int(keys[members[0]]), positions[members].tolist()))
    return _in_turn([queue for _, queue in sorted(queues)], limit)


def _in_turn(queues: Sequence[Sequence[int]], limit: int) -> list[int]:
    in_turn = (one for turn in zip_longest(*queues) for one in turn if one is not None)
    return list(islice(in_turn, limit))
