"""The one interface of every policy that chooses a GPU set on one node.

A benchmark gets a set from a policy by it, and a policy keeps what it computes once per node. A
policy sees the node's labels (`NodeTopology`), the free GPUs and a size: never the measured
bandwidth that judges it (the oracle of `benchmarks.rivals.bounds` excepted, by name).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random

    from topology.model import NodeTopology

__all__ = ["NodeChooser", "Rival"]


class NodeChooser(Protocol):
    """A policy made ready for one node."""

    def choose(self, free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        """Return a set of `size` GPUs inside `free` as a mask; None where the policy refuses."""
        ...


class Rival(ABC):
    """A policy; `prepare` computes what it needs of a node, once."""

    name: str

    def __init__(self) -> None:
        self._ready: dict[NodeTopology, NodeChooser] = {}

    @abstractmethod
    def prepare(self, topology: NodeTopology) -> NodeChooser:
        """Make the policy ready for one node."""

    def choose(
        self,
        topology: NodeTopology,
        free: int,
        size: int,
        rng: Random,
        *,
        is_sensitive: bool = True,
    ) -> int | None:
        """Return a set of `size` GPUs inside `free` as a mask, None where the policy refuses.

        Prepared nodes are kept, keyed by the topology. `is_sensitive` says whether the job needs
        bandwidth; only MAPA's preserve uses it.
        """
        ready = self._ready.get(topology)
        if ready is None:
            ready = self._ready[topology] = self.prepare(topology)
        return ready.choose(free, size, rng, is_sensitive=is_sensitive)
