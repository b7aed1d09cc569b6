"""Measured bandwidths in the place of labels: classes of pairs, and what they change.

What it answers: how a node's own NCCL measurements enter the value of its sets. Raw figures hurt:
a bottleneck then chases 11.90 against 11.93 GB/s, no ties are left for the remainder to decide,
and each node becomes a machine type of its own. So pairs are grouped into classes first.

Method. Pairs sorted by bandwidth; a new class begins where the next is more than `CLASS_GAP` lower;
a class counts as its median in two significant digits, so that nodes that measure alike share a
machine type. Of a set, the widest path between its worst connected members (the least edge of the
maximum spanning tree) is taken twice, over the measured classes and over the labels' own pair
values; the set's value is scaled by the ratio. Pairs that were not measured keep their label. A
measured set overrides its value. Figures of unknown message size are taken for the size that values
are claimed for: nothing is added for start-up. All this at the message size of the measurement;
from there a set that falls short of its label keeps the label's start-up cost, and one that beats
it is on a better path than the label's, so that its start-up cost shrinks with the ratio. Both meet
the figure at its own size, and at every size a higher figure is a higher value. Raw figures only
order sets that are otherwise equal (`raw_sums`). Source of the gap: pairs of one label differ by
less than 3 % on the V100, A6000 and H100 nodes of BandPilot, pairs of different labels by more than
40 % (facts in docs/adr/0002).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.model import FITTED_MESSAGE_BYTES, REFERENCE_MESSAGE_BYTES, mask_of
from topology.model.measurement import pair_classes, raw_pairs, set_figures
from topology.value.limits import at_message_size
from topology.value.masks import mask_index, pair_sums
from topology.value.value_table import connected_masks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.model.node_topology import Measurement

__all__ = ["apply_measurement", "raw_sums"]


def apply_measurement(
    measurement: Measurement,
    *,
    value: NDArray[np.float64],
    latency: NDArray[np.float64],
    n: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Correct the curve of every mask by what was measured.

    `value` is float64[2**n], B_inf by label in GB/s; `latency` its `a` in s/GB. Returns both
    corrected, and for the tie-break the sum of pair classes inside each mask (label values where
    nothing was measured), GB/s.
    """
    message_bytes = measurement.message_bytes or REFERENCE_MESSAGE_BYTES
    at_size = at_message_size(value, latency, message_bytes)
    label = np.zeros((n, n))
    for j in range(n):
        for i in range(j):
            label[i, j] = label[j, i] = at_size[1 << i | 1 << j]
    classed = label.copy()
    for (i, j), figure in pair_classes(measurement).items():
        classed[i, j] = classed[j, i] = figure
    wide = mask_index(n).size >= 2  # noqa: PLR2004 - a set that reduces
    ratio = np.ones(1 << n)
    ratio[wide] = _widest_paths(classed, n)[wide] / _widest_paths(label, n)[wide]
    for gpus, figure in set_figures(measurement).items():
        ratio[mask_of(gpus)] = figure / at_size[mask_of(gpus)]
    # With s = a x value / M, 1/B' = 1/(ratio x B(M)) - a/M gives B' = ratio x value / (1 + (1 -
    # ratio) s). Above 1 that would end at ratio = 1 + 1/s, so a is divided by the ratio instead.
    start_up = latency * (FITTED_MESSAGE_BYTES / message_bytes) * value
    corrected = ratio * value / (1 + (1 - np.minimum(ratio, 1.0)) * start_up)
    return corrected, latency / np.maximum(ratio, 1.0), pair_sums(classed)


def raw_sums(
    measurement: Measurement, class_sum: NDArray[np.float64], n: int
) -> NDArray[np.float64]:
    """Sum of the raw pair figures inside each mask: `class_sum` with each class's figure undone."""
    raw, classes = raw_pairs(measurement), pair_classes(measurement)
    difference = np.zeros((n, n))
    for pair, figure in raw.items():
        difference[pair] = difference[pair[::-1]] = figure - classes[pair]
    return np.round(class_sum + pair_sums(difference), 6)


def _widest_paths(pairs: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Least edge of the maximum spanning tree of every mask; 0 for fewer than two members."""
    widest = np.zeros(1 << n)
    for width in sorted(set(pairs[np.triu_indices(n, 1)].tolist())):
        joined = [
            sum(1 << j for j in range(n) if j != i and pairs[i, j] >= width) for i in range(n)
        ]
        widest[connected_masks(joined, n)] = width
    return widest
