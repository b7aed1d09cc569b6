"""How members are placed: kube-scheduler's ways, without and with a gang, and Coterie's.

A policy places all members or none of them on hosts' free GPUs; it knows no time and no queue.
Kueue's and Slurm's are in `benchmarks.groups.kueue` and `benchmarks.groups.slurm`.
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
    crowding_of_nodes,
)
from topology.recordings import load_recording
from topology.select import build_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.groups.hosts import Hosts, Shares

__all__ = [
    "MACHINE",
    "Coterie",
    "Gang",
    "GroupPolicy",
    "host_costs",
    "least_allocated",
    "most_allocated",
    "pick_host",
]

MACHINE = "dgx-h100"
"""The recording that stands for every host."""

_ROUNDING = 9
"""Digits of a cost that count, as in `extender.placement.node_order`."""


class GroupPolicy(Protocol):
    """Places a job's members."""

    def place(
        self, hosts: Hosts, free: NDArray[np.int64], *, n_members: int, n_gpus: int
    ) -> Shares | None:
        """Place members on `free` GPUs, which it leaves alone; None where not all of them fit."""


def least_allocated(free: NDArray[np.int64]) -> NDArray[np.int64]:
    """kube-scheduler's default, by GPUs: the emptiest host."""
    return -free


def most_allocated(free: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fullest host, by GPUs."""
    return free


def pick_host(
    hosts: Hosts,
    free: NDArray[np.int64],
    n_gpus: int,
    rating: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> int | None:
    """The host with the least rating where one pod fits; a random one of equal ones."""
    able = np.flatnonzero(free >= n_gpus)
    if not able.size:
        return None
    order = np.lexsort((hosts.tie[able], rating(free[able])))
    return int(able[order[0]])


@dataclass(frozen=True, slots=True)
class Gang:
    """All members or none, each on the host that kube-scheduler would take; no topology."""

    rating: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    def place(
        self, hosts: Hosts, free: NDArray[np.int64], *, n_members: int, n_gpus: int
    ) -> Shares | None:
        """One member after another on what the ones before leave."""
        left = free.copy()
        counts: dict[int, int] = {}
        for _ in range(n_members):
            host = pick_host(hosts, left, n_gpus, self.rating)
            if host is None:
                return None
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
    GPUs; kube-scheduler takes any of the nodes that are rated alike, so they know no leaf. With
    `keep_domains_whole`, the extender's setting, they go, of such nodes, to the leaf with the least
    room, by the product's own rule.
    """

    keep_domains_whole: bool = False

    def place(
        self, hosts: Hosts, free: NDArray[np.int64], *, n_members: int, n_gpus: int
    ) -> Shares | None:
        """A group in one choice, a single pod by what it leaves."""
        costs = host_costs(n_gpus)[free]
        if n_members == 1:
            keys = [free, costs.round(_ROUNDING)]
            if self.keep_domains_whole:
                keys.insert(0, crowding_of_nodes(hosts.tree, free // n_gpus))
            order = np.lexsort((hosts.tie, *keys))
            return [(int(order[0]), 1)] if np.isfinite(costs[order[0]]) else None
        shape = MemberShape(n_members, n_gpus, free // n_gpus)
        found = choose_nodes(hosts.tree, GroupDemand((shape,), costs=costs))
        if not isinstance(found, Assigned):
            return None
        return [(hosts.place_of[s.node_name], s.n_members) for s in found.shares]
