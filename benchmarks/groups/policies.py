"""How members are placed: Coterie's way, and that of a gang without topology.

A policy places all members or none of them on hosts' free GPUs; it knows no time and no queue.
Kueue's is in `benchmarks.groups.kueue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from benchmarks.groups.trace import GPUS_PER_HOST
from topology.groups import (
    Assigned,
    GroupDemand,
    MemberShape,
    choose_nodes,
    places_by_free_capacity,
)
from topology.recordings import load_recording
from topology.select import build_tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.groups.hosts import Hosts, Shares

__all__ = ["MACHINE", "Coterie", "Gang", "GroupPolicy", "host_costs"]

MACHINE = "dgx-h100"
"""The recording that stands for every host."""

_ROUNDING = 9
"""Digits of a cost that count, as in `extender.placement.node_order`."""


class GroupPolicy(Protocol):
    """Places a job's members."""

    def place(self, hosts: Hosts, *, n_members: int, n_gpus: int) -> Shares | None:
        """Place members on free GPUs, which it leaves alone; None where not all of them fit."""


class Gang:
    """All members or none, each on the fullest host that kube-scheduler would take; no topology."""

    def place(self, hosts: Hosts, *, n_members: int, n_gpus: int) -> Shares | None:
        """One member after another on what the ones before leave; a random one of equal hosts."""
        left = hosts.free.copy()
        counts: dict[int, int] = {}
        for _ in range(n_members):
            able = np.flatnonzero(left >= n_gpus)
            if not able.size:
                return None
            host = int(able[np.lexsort((hosts.tie[able], left[able]))[0]])
            left[host] -= n_gpus
            counts[host] = counts.get(host, 0) + 1
        return sorted(counts.items())


@cache
def host_costs(n_gpus: int) -> NDArray[np.float64]:
    """What taking some GPUs costs a host, by the GPUs that are free on it: Coterie's own figure.

    Infinite where they do not fit. All sets of one size are alike on this machine.
    """
    worth = build_tables(load_recording(MACHINE)).remainder
    sizes = [float(worth[(1 << size) - 1]) for size in range(GPUS_PER_HOST + 1)]
    return np.array(
        [
            sizes[free] - sizes[free - n_gpus] if free >= n_gpus else np.inf
            for free in range(GPUS_PER_HOST + 1)
        ]
    )


@dataclass(frozen=True, slots=True)
class Coterie:
    """Groups as `topology.groups` chooses.

    Single pods go to where least is left unusable, of such hosts to those with the fewest free
    GPUs; of such hosts to the leaf with the least room, by the product's own rule. That rule can be
    left out, to show what it brings.
    """

    fills_leaves: bool = True

    def place(self, hosts: Hosts, *, n_members: int, n_gpus: int) -> Shares | None:
        """A group in one choice, a single pod by what it leaves."""
        free = hosts.free
        costs = host_costs(n_gpus)[free]
        if n_members == 1:
            keys = [free, costs.round(_ROUNDING)]
            if self.fills_leaves:
                keys.insert(0, places_by_free_capacity(hosts.tree, free // n_gpus))
            order = np.lexsort((hosts.tie, *keys))
            return [(int(order[0]), 1)] if np.isfinite(costs[order[0]]) else None
        shape = MemberShape(n_members, n_gpus, free // n_gpus)
        found = choose_nodes(hosts.tree, GroupDemand((shape,), costs=costs))
        if not isinstance(found, Assigned):
            return None
        return [(hosts.place_of[s.node_name], s.n_members) for s in found.shares]
