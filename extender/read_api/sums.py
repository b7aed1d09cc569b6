"""What is counted of nodes, by machine type: GPUs, free ones, what these can hold.

Sums are corrected by the nodes that changed, so each is a value that adds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from extender.read_api.figures import SetFigures
    from extender.snapshot import MachineType

__all__ = ["Sums", "Tally", "TallyKey"]


@dataclass(frozen=True, slots=True)
class TallyKey:
    """Nodes that are counted together: a machine type, or nodes by count (`topology` None)."""

    topology: str | None
    machine: str
    resource: str


class Sums(NamedTuple):
    """Sums over nodes, each with one resource.

    `n_free`, `placeable_*` and `n_stranded` are of GPUs that new pods may get; where a node takes
    none, its free GPUs are `n_unavailable`. `shares_gpus` sums, over the pods with two or more GPUs
    of known worth, their share of the machine's best times their GPUs; `valued_gpus` are those.
    """

    n_nodes: int = 0
    n_gpus: int = 0
    n_unhealthy: int = 0
    n_unavailable: int = 0
    shares_gpus: float = 0.0
    valued_gpus: int = 0
    n_free: int = 0
    n_stranded: int = 0
    placeable_2: int = 0
    placeable_4: int = 0
    placeable_8: int = 0

    @property
    def placeable(self) -> tuple[int, int, int]:
        """By `extender.read_api.figures.SIZES`."""
        return self.placeable_2, self.placeable_4, self.placeable_8

    @property
    def efficiency(self) -> float | None:
        """Mean share of the machine's best that pods of two or more GPUs have, by GPU."""
        return round(self.shares_gpus / self.valued_gpus, 4) if self.valued_gpus else None

    def changed(self, other: Sums, sign: int) -> Sums:
        """With others more (`sign` 1), or less (-1)."""
        return Sums._make(mine + sign * n for mine, n in zip(self, other, strict=True))


class Tally(NamedTuple):
    """What one resource of a node adds to the sums of its key."""

    key: TallyKey
    machine: MachineType | None
    sums: Sums

    def with_free(self, free: int, figures: SetFigures) -> Tally:
        """With these GPUs free for new pods."""
        counts, n_free = figures.placeable(self.machine, free), free.bit_count()
        n_stranded = figures.stranded(counts, n_gpus=self.sums.n_gpus, n_free=n_free)
        head = self.sums[: Sums._fields.index("n_free")]
        return self._replace(sums=Sums._make((*head, n_free, n_stranded, *counts)))
