"""Coterie itself, behind the rivals' interface.

Returns the set that `topology.select.selection` chooses on one node. Sensitive jobs request the
affinity `nvlink` (or another one, where `sensitive` says so), the others `none`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.masks import mask_of
from benchmarks.rivals.base import Rival
from topology.annotations import DEFAULT_POLICY, Affinity, PlacementPolicy, Strength
from topology.select import Selected, build_tables, select_set

if TYPE_CHECKING:
    from random import Random

    from topology.model import NodeTopology
    from topology.select import MachineTables

__all__ = ["BEST", "NONE", "NVLINK", "NVLINK_REQUIRED", "Coterie", "CoterieNode"]

BEST = DEFAULT_POLICY
NVLINK = PlacementPolicy(affinity=Affinity.NVLINK)
NVLINK_REQUIRED = PlacementPolicy(affinity=Affinity.NVLINK, strength=Strength.REQUIRED)
NONE = PlacementPolicy(affinity=Affinity.NONE)


class CoterieNode:
    """Coterie made ready for one node; answers are kept, since replays repeat free sets."""

    def __init__(
        self, tables: MachineTables, sensitive: PlacementPolicy, other: PlacementPolicy
    ) -> None:
        self._tables = tables
        self._policies = {True: sensitive, False: other}
        self._known: dict[tuple[int, int, bool], int | None] = {}

    def choose(self, free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        """Return the selected set, None where it does not fit."""
        del rng
        key = (free, size, is_sensitive)
        if key not in self._known:
            chosen = select_set(
                self._tables, available=free, size=size, policy=self._policies[is_sensitive]
            )
            self._known[key] = mask_of(chosen.gpus) if isinstance(chosen, Selected) else None
        return self._known[key]


class Coterie(Rival):
    """Coterie with the policies that sensitive and other jobs carry."""

    def __init__(
        self,
        name: str = "Coterie",
        *,
        sensitive: PlacementPolicy = BEST,
        other: PlacementPolicy = NONE,
    ) -> None:
        super().__init__()
        self.name = name
        self._sensitive = sensitive
        self._other = other

    def prepare(self, topology: NodeTopology) -> CoterieNode:
        """Build the node's tables."""
        return CoterieNode(build_tables(topology), self._sensitive, self._other)
