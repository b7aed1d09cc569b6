"""The one interface of every policy that chooses a GPU set on one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from topology.model import NodeTopology

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["Chooser", "Rival"]


class Chooser(Protocol):
    """A policy made ready for one node."""

    def __call__(
        self, free: int, size: int, rng: Random, *, is_sensitive: bool = True
    ) -> int | None:
        """Return a set of `size` GPUs inside `free` as a mask; None where the policy refuses.

        `is_sensitive`: the job needs bandwidth; only MAPA's preserve and Coterie use it.
        """


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy; `prepare` computes what it needs of a node."""

    name: str
    prepare: Callable[[NodeTopology], Chooser]
    _ready: dict[NodeTopology, Chooser] = field(
        default_factory=dict[NodeTopology, Chooser], compare=False
    )

    def choose(self, topology: NodeTopology, free: int, size: int, rng: Random) -> int | None:
        """Return a set as `Chooser` does; prepared nodes are kept, keyed by the topology."""
        if topology not in self._ready:
            self._ready[topology] = self.prepare(topology)
        return self._ready[topology](free, size, rng)
