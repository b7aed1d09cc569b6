"""How many sets near the best of their size a machine's free GPUs still hold.

What it answers: for every mask of free GPUs, the most disjoint sets of one size inside it that are
near-best; so what a cluster can still place at full speed, and on which machines GPUs are free and
of no use to a pod of that size, are look-ups. It chooses nothing and knows no pod.

A set is *near-best* where its value is at most `VALUE_CLASS_GAP` below that of the best set of its
size on the empty machine, and its GPUs are of one model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.errors import InvalidRequest
from topology.select.tables import VALUE_CLASS_GAP
from topology.value.remainder import disjoint_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.select.tables import MachineTables

__all__ = ["near_best_counts"]


def near_best_counts(tables: MachineTables, size: int) -> NDArray[np.int8]:
    """The most disjoint near-best sets of `size` GPUs inside each mask, int8[2**n], read-only.

    All zero where even the empty machine has no such set of one GPU model. Complexity as
    `topology.value.remainder.disjoint_values`. Raises `InvalidRequest` for a size outside 1..n.

    >>> from topology.recordings import load_recording
    >>> from topology.select.tables import build_tables
    >>> counts = near_best_counts(build_tables(load_recording("dgx-1-v100")), 4)
    >>> int(counts[0b11111111]), int(counts[0b00001111]), int(counts[0b00111001])
    (2, 1, 0)
    """
    if not 1 <= size <= tables.n_gpus:
        msg = f"size is {size}, expected 1..{tables.n_gpus}"
        raise InvalidRequest(msg)
    least = tables.best_value[size] * (1 - VALUE_CLASS_GAP)
    is_near = tables.is_uniform & (tables.value >= least)
    n_sets = disjoint_values(is_near.astype(np.float64), tables.n_gpus, size)
    counts = np.rint(n_sets).astype(np.int8)
    counts.setflags(write=False)
    return counts
