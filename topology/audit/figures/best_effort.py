"""NVIDIA's best-effort allocation, as the device plugin ships it (go-gpuallocator 876e7b76).

What it answers: which GPUs NVIDIA's device plugin prefers, so that an audit and the benchmarks can
compare with it. It values nothing in GB/s and places no pod. It returns the set that
`NewBestEffortPolicy().Allocate(available, required, size)` returns.

Rules (gpuallocator/besteffort_policy.go): each pair scores its PCIe level plus 100 per NVLink
between the two GPUs, up to 18; links that end at an NVSwitch are not seen and count 0. Every
partition of the available GPUs into sets of `size` is scored, padded to a multiple of `size`, a set
holding either no padding or all of it; the first partition with the largest total wins, then the
first set of it with the largest score. Size 1 returns the first available GPU.

Method: the original enumerates all partitions (20 s for size 3 of 16 GPUs). Here the best total of
what remains is a table over sets of GPUs, and a walk in the original's order takes, at each step,
the first set that still reaches the best total. That is the first best partition in enumeration
order, so the answer is the same; `tests/unit/topology/audit/figures/test_best_effort.py` compares
it to a literal enumeration. At most 2^16 states of C(15, size-1) sets each for 16 GPUs.

Where it differs on purpose: (1) the original may return the padded set (with nil devices, on which
the plugin crashes). Here padded sets are left out of the last step and `n_padded_wins` counts how
often the original would have returned one. (2) In the original a partition of 7 or more sets may be
overwritten in memory by its successor; that fault is not copied.

A pair whose PCIe level is unknown scores 0 points for it: `nvidia-smi topo -m` hides the level
of NVLink pairs, which NVML reports.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from topology.model import LinkKind, PcieLevel, gpus_of, mask_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.model import NodeTopology

__all__ = ["MAX_BEST_EFFORT_GPUS", "NvidiaNode", "nvidia_pair_scores"]

PCIE_POINTS = {
    PcieLevel.PIX: 50,
    PcieLevel.PXB: 40,
    PcieLevel.PHB: 30,
    PcieLevel.NODE: 20,
    PcieLevel.SYS: 10,
    PcieLevel.SELF: 0,
    PcieLevel.UNKNOWN: 0,
}
POINTS_PER_NVLINK = 100
MAX_NVLINKS = 18

MAX_BEST_EFFORT_GPUS = 16
"""Most available GPUs for which it is meant: the table of totals doubles with each one."""

_Block = tuple[int | None, ...]
_members = lru_cache(maxsize=1 << 17)(gpus_of)


def nvidia_pair_scores(topology: NodeTopology) -> tuple[tuple[int, ...], ...]:
    """Score each pair: PCIe points plus 100 per direct NVLink; fabric links count 0."""
    switched = {gpu: i for i, f in enumerate(topology.fabrics) for gpu, _ in f.ports}
    n = topology.n_gpus

    def score(i: int, j: int) -> int:
        if i == j:
            return 0
        link = topology.links[i][j]
        is_direct = link.kind is LinkKind.NVLINK and not (
            i in switched and switched[i] == switched.get(j)
        )
        n_links = min(link.n_links or 0, MAX_NVLINKS) if is_direct else 0
        return PCIE_POINTS[topology.pcie[i][j]] + POINTS_PER_NVLINK * n_links

    return tuple(tuple(score(i, j) for j in range(n)) for i in range(n))


class NvidiaNode:
    """The best-effort policy made ready for one node's pair scores.

    `n_choices` and `n_padded_wins` count answers, and answers in which the original would have
    returned a padded set.
    """

    def __init__(self, pair_scores: Sequence[Sequence[int]]) -> None:
        self._pairs = pair_scores
        self._set_scores: dict[int, int] = {}
        self._best: dict[tuple[int, int, int], int | None] = {}
        self.n_choices = 0
        self.n_padded_wins = 0

    def set_score(self, gpus: int) -> int:
        """Sum of the pair scores inside a set."""
        known = self._set_scores.get(gpus)
        if known is None:
            known = sum(self._pairs[i][j] for i, j in combinations(_members(gpus), 2))
            self._set_scores[gpus] = known
        return known

    def _best_total(self, rest: int, size: int, required: int) -> int | None:
        """Best total score of the partitions of `rest`, None where none may be considered.

        Padding still to be placed follows from the count: a set takes all of it or none.
        """
        key = (rest, size, required)
        if key in self._best:
            return self._best[key]
        padding = -rest.bit_count() % size
        if rest.bit_count() <= size:
            is_allowed = not (required & rest) or (not padding and required & ~rest == 0)
            best = self.set_score(rest) if is_allowed else None
        else:
            first, *others = _members(rest)
            best = None
            for n_others in {size - 1, size - 1 - padding}:
                for combination in combinations(others, n_others):
                    block = mask_of((first, *combination))
                    total = self._total_after(rest, block, size, required)
                    if total is not None and (best is None or total > best):
                        best = total
        self._best[key] = best
        return best

    def _total_after(self, rest: int, block: int, size: int, required: int) -> int | None:
        if required & block and (required & ~block or block.bit_count() < size):
            return None
        tail = self._best_total(rest & ~block, size, required)
        return None if tail is None else self.set_score(block) + tail

    def best_partition(self, order: Sequence[int], size: int, required: int) -> list[int]:
        """Return the first partition with the best total, in the original's order of enumeration.

        `order` are the available GPUs in the order in which the kubelet names them, `size` of them
        at least; `required` are at most so many of them, so that there is such a partition.
        """
        n_padding = -len(order) % size
        line: list[int | None] = [*order, *([None] * n_padding)]
        blocks: list[int] = []
        while len(line) > size:
            block = self._first_block(line, size, required, n_padding)
            chosen = mask_of(gpu for gpu in block if gpu is not None)
            blocks.append(chosen)
            has_padding = None in block
            line = [
                gpu
                for gpu in line
                if (gpu is None and not has_padding) or (gpu is not None and not chosen >> gpu & 1)
            ]
        blocks.append(mask_of(gpu for gpu in line if gpu is not None))
        return blocks

    def _first_block(
        self, line: Sequence[int | None], size: int, required: int, n_padding: int
    ) -> _Block:
        rest = mask_of(gpu for gpu in line if gpu is not None)
        best = self._best_total(rest, size, required)
        return next(
            (line[0], *others)
            for others in combinations(line[1:], size - 1)
            if others.count(None) in {0, n_padding}
            and best
            == self._total_after(
                rest,
                mask_of(gpu for gpu in (line[0], *others) if gpu is not None),
                size,
                required,
            )
        )

    def allocate(self, order: Sequence[int], size: int, required: int = 0) -> int | None:
        """Return the set as a mask, None where the original returns an empty list."""
        available = mask_of(order)
        if not 1 <= size <= len(order) or required & ~available or required.bit_count() > size:
            return None
        self.n_choices += 1
        if size == 1:
            return required or 1 << order[0]
        partition = self.best_partition(order, size, required)
        candidates = [block for block in partition if required & ~block == 0]
        first_best = max(candidates, key=self.set_score)
        if first_best.bit_count() < size:
            self.n_padded_wins += 1
            first_best = max(
                (block for block in candidates if block.bit_count() == size), key=self.set_score
            )
        return first_best
