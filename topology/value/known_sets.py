"""Which sets of GPUs have a value that rests on no unknown.

What it answers: whether everything that enters a set's value is known, for one set or for every
mask at once. For `min-bandwidth`: unknown never satisfies. It values nothing.

Rules. All pairs: the accelerator link is known, and counted where it is up. A set that links limit:
the link generation of every member is known. A set that PCIe limits: every pair's PCIe level, every
member's model, and whether P2P is on; where the socket link limits it, the CPU platform too. A set
that was itself measured is known, whatever its labels are. One GPU always is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from topology.model import CpuPlatform, P2pAccess, PcieLevel, find_gpu_model, gpus_of, mask_of
from topology.value.limits import Limit
from topology.value.masks import mask_index, pair_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.model import NodeTopology
    from topology.value.value_table import ValueTable

__all__ = ["has_dark_links", "is_known_set", "known_table"]

_OVER_LINKS = frozenset({Limit.NOTHING, Limit.SWITCH, Limit.RING, Limit.RELAY})


@dataclass(frozen=True, slots=True)
class _KnownFacts:
    """What is known of a node: masks of GPUs with known generation and model, and its own facts."""

    generation: int
    model: int
    is_p2p: bool
    is_cpu: bool


def _known_facts(topology: NodeTopology) -> _KnownFacts:
    models = [find_gpu_model(gpu.model) for gpu in topology.gpus]
    generation = mask_of(
        i
        for i, (gpu, model) in enumerate(zip(topology.gpus, models, strict=True))
        if gpu.link_generation is not None
        or (model is not None and model.link_generation is not None)
    )
    known = mask_of(i for i, model in enumerate(models) if model is not None)
    is_p2p = topology.p2p is not P2pAccess.UNKNOWN or known.bit_count() == topology.n_gpus
    return _KnownFacts(generation, known, is_p2p, topology.cpu is not CpuPlatform.UNKNOWN)


def _is_dark(topology: NodeTopology, i: int, j: int) -> bool:
    link = topology.links[i][j]
    return not link.is_known or (link.is_up and link.n_links is None)


def has_dark_links(topology: NodeTopology) -> bool:
    """Whether some link's presence, count or generation is unknown: it may carry anything."""
    n, facts = topology.n_gpus, _known_facts(topology)
    return any(
        _is_dark(topology, i, j)
        or (topology.links[i][j].is_up and (1 << i | 1 << j) & ~facts.generation != 0)
        for i, j in combinations(range(n), 2)
    )


def is_known_set(topology: NodeTopology, mask: int, limit: Limit) -> bool:
    """Whether no unknown enters the value of one set, which `limit` limits; any number of GPUs."""
    pairs = list(combinations(gpus_of(mask), 2))
    if not pairs:
        return True
    facts = _known_facts(topology)
    if any(_is_dark(topology, i, j) for i, j in pairs):
        return False
    if limit in _OVER_LINKS:
        return mask & ~facts.generation == 0
    is_placed = all(topology.pcie[i][j] is not PcieLevel.UNKNOWN for i, j in pairs)
    is_socket_known = limit is not Limit.SOCKET or facts.is_cpu
    return is_placed and is_socket_known and facts.is_p2p and mask & ~facts.model == 0


def known_table(topology: NodeTopology, table: ValueTable) -> NDArray[np.bool_]:
    """The same for every mask of a node of up to 16 GPUs, measured sets included, bool[2**n]."""
    n = topology.n_gpus
    index, facts = mask_index(n), _known_facts(topology)
    every = range(n)
    dark = pair_sums([[float(_is_dark(topology, i, j)) for j in every] for i in every])
    unplaced = pair_sums(
        [[float(level is PcieLevel.UNKNOWN) for level in row] for row in topology.pcie]
    )
    over_links = np.isin(table.limit, list(_OVER_LINKS))
    by_links = index.masks & ~facts.generation == 0
    by_pcie = (unplaced == 0) & (index.masks & ~facts.model == 0) & facts.is_p2p
    if not facts.is_cpu:
        by_pcie &= table.limit != Limit.SOCKET
    known: NDArray[np.bool_] = (dark == 0) & ((over_links & by_links) | (~over_links & by_pcie))
    known[index.size < 2] = True  # noqa: PLR2004 - one GPU has nothing to reduce with
    if topology.measurement is not None:
        known[[mask_of(gpus) for gpus, _ in topology.measurement.figures]] = True
    return known
