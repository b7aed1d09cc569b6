"""Sets of a group's members on the same rails: of a node's equal sets, which one suits the others.

Which of them is `topology.groups.choose_on_rails`'s answer; this says which sets are equal to the
one that was chosen: in its place in the machine's order, in what the pod wishes, and in what it
leaves. Only sets of one container on machines with tables are compared; every other plan stays.

Complexity: array operations over the sets of that size that are free, at most 12,870.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from topology.groups import choose_on_rails, gpu_rails, rails_of
from topology.model import gpus_of
from topology.select import MachineTables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from extender.snapshot import NodeView
    from topology.annotations import Plan

__all__ = ["RailSets"]

MAX_KEPT = 4_096
"""Choices kept; beyond it all are made again."""


@dataclass(slots=True, eq=False)
class RailSets:
    """Chooses among equal sets; what it keeps changes no choice."""

    _rails: dict[str, Sequence[int]] = field(default_factory=dict[str, "Sequence[int]"])
    _chosen: dict[tuple[int, int, int], int] = field(
        default_factory=dict[tuple[int, int, int], int]
    )

    def place(self, plan: Plan, view: NodeView, used: int) -> tuple[Plan, int]:
        """The plan on the rails of other nodes, and the NIC positions that it uses, as masks.

        `used` are those of the group's members on other nodes, 0 for the first.
        """
        machine = view.node_class.machine
        if machine is None or view.node_class.manager is not None or not plan.containers:
            return plan, 0
        tables = machine.selector
        rails = self._rails.get(machine.digest)
        if rails is None:
            rails = self._rails[machine.digest] = gpu_rails(tables.topology)
        mask = sum(1 << i for i, one in enumerate(view.ids) if one in set(plan.ids))
        if isinstance(tables, MachineTables) and len(plan.containers) == 1:
            mask = self._choose(view, tables, mask, rails, used)
            ids = tuple(view.ids[gpu] for gpu in gpus_of(mask))
            plan = replace(plan, containers=(replace(plan.containers[0], ids=ids),), ids=ids)
        return plan, rails_of(rails, mask)

    def _choose(
        self, view: NodeView, tables: MachineTables, mask: int, rails: Sequence[int], used: int
    ) -> int:
        key = view.state, mask, used
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(self._chosen) >= MAX_KEPT:
                self._chosen.clear()
            equal: list[int] = _equal_sets(tables, view.free, mask).tolist()
            chosen = self._chosen[key] = choose_on_rails(equal, rails, used)
        return chosen


def _equal_sets(tables: MachineTables, free: int, mask: int) -> NDArray[np.int64]:
    """The free sets that are as good as one in all that decides, int64[n], that one among them."""
    masks = np.array(
        [sum(1 << gpu for gpu in gpus) for gpus in combinations(gpus_of(free), mask.bit_count())]
    )
    is_equal = tables.remainder[free & ~masks] == tables.remainder[free & ~mask]
    for table in (
        tables.order,
        tables.is_linked,
        tables.is_switch,
        tables.is_numa,
        tables.has_nic,
        tables.is_uniform,
        tables.is_known,
    ):
        is_equal &= table[masks] == table[mask]
    found: NDArray[np.int64] = masks[is_equal]
    return found
