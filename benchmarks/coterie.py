"""Coterie itself, behind the rivals' interface.

Returns the set that `topology.select` chooses on one node. Sensitive jobs carry one policy, the
others the affinity `none`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.annotations import DEFAULT_POLICY, Affinity, PlacementPolicy, Strength
from topology.model import mask_of
from topology.select import Selected, build_tables, select_set

if TYPE_CHECKING:
    from random import Random

    from benchmarks.rivals import Chooser
    from topology.model import NodeTopology

__all__ = ["NONE", "NVLINK", "NVLINK_REQUIRED", "prepare_coterie"]

NVLINK = PlacementPolicy(affinity=Affinity.NVLINK)
NVLINK_REQUIRED = PlacementPolicy(affinity=Affinity.NVLINK, strength=Strength.REQUIRED)
NONE = PlacementPolicy(affinity=Affinity.NONE)


def prepare_coterie(topology: NodeTopology, sensitive: PlacementPolicy = DEFAULT_POLICY) -> Chooser:
    """Coterie made ready for one node; answers are kept, since replays repeat free sets."""
    tables = build_tables(topology)
    known: dict[tuple[int, int, bool], int | None] = {}

    def choose(free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del rng
        key = (free, size, is_sensitive)
        if key not in known:
            policy = sensitive if is_sensitive else NONE
            found = select_set(tables, available=free, size=size, policy=policy)
            known[key] = mask_of(found.gpus) if isinstance(found, Selected) else None
        return known[key]

    return choose
