"""Which of the feasible nodes filter names.

Chooses at most `limit` of them, the best, drawn over the zones. Leaving the rest
out makes a scheduling cycle cheaper, since kube-scheduler's own score plugins then run on 20 nodes
and not on 5,000; it silently drops nodes that are in no list as long as one is left
(schedule_one.go of 1.36, findNodesThatPassExtenders). It never drops all untainted nodes of a zone
while there are no more zones than `limit`, since PodTopologySpread scores only the zones it sees;
with more zones than that the zones with the best nodes are represented, by one node each.

Method: within a zone nodes go best first, equal ones in the order of a hash of pod and node, so
that equal pods do not all see the same few; zones then contribute one node each in turn, the zone
with the best node first. Nodes with a PreferNoSchedule taint are drawn apart, in the same way, and
only as many as the others leave of the limit: kube-scheduler would avoid them, and the cluster
autoscaler sets such a taint on nodes that it may remove (`DeletionCandidateOfClusterAutoscaler`).
"""

from __future__ import annotations

from itertools import islice, zip_longest
from typing import TYPE_CHECKING

import numpy as np

from extender.snapshot import KeyLayout, highest_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from extender.snapshot import NodeIndex

__all__ = ["sample_candidates"]

_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 / golden ratio, odd: Fibonacci hashing (Knuth, TAOCP 3, 6.4)."""


def sample_candidates(
    node_index: NodeIndex,
    positions: NDArray[np.int64],
    places: NDArray[np.int64],
    *,
    limit: int,
    pod_hash: int,
) -> NDArray[np.int64]:
    """Draw at most `limit` of the nodes at `positions`; gives their positions, tainted ones last.

    `places` are the nodes' places in the order of nodes, 0 the best, equal for nodes that are equal
    there, each below the number of nodes. `pod_hash` is any number. O(n log n).
    """
    layout = KeyLayout.of(len(node_index.sort_keys), node_index.n_zones)
    own = highest_bits(pod_hash * _GOLDEN, layout.n_hash_bits) << layout.hash_at
    keys = places << layout.place_at | (node_index.sort_keys[positions] ^ own)
    if not node_index.has_soft_taints:
        return _draw_by_zone(keys, layout, node_index.n_zones, limit)
    is_tainted = node_index.is_soft_tainted[positions]
    drawn = _draw_by_zone(keys[~is_tainted], layout, node_index.n_zones, limit)
    if len(drawn) == limit:
        return drawn
    rest = _draw_by_zone(keys[is_tainted], layout, node_index.n_zones, limit - len(drawn))
    return np.concatenate((drawn, rest))


def _draw_by_zone(
    keys: NDArray[np.int64], layout: KeyLayout, n_zones: int, limit: int
) -> NDArray[np.int64]:
    """The positions of at most `limit` sort keys; sorts these in place."""
    keys.sort()
    zones = [zone << layout.zone_at for zone in range(1, n_zones)]
    ends: list[int] = [*keys.searchsorted(zones).tolist(), len(keys)]
    queues: list[list[int]] = []
    begin = 0
    for end in ends:
        if begin < end:
            queues.append(keys[begin : min(end, begin + limit)].tolist())
        begin = end
    below_zone = (1 << layout.zone_at) - 1
    queues.sort(key=lambda queue: queue[0] & below_zone)
    drawn = np.array(_in_turn(queues, limit), dtype=np.int64)
    drawn &= (1 << layout.hash_at) - 1
    return drawn


def _in_turn(queues: Sequence[Sequence[int]], limit: int) -> list[int]:
    in_turn = (one for turn in zip_longest(*queues) for one in turn if one is not None)
    return list(islice(in_turn, limit))
