"""Slurm's topology/tree, as a rival: the leaf switch that fits best, then its neighbours.

Re-implements what `_eval_nodes_tree` decides for a job of so many tasks and no required nodes, all
nodes of one weight; no code is copied. A task is a member, and a switch's free tasks stand for
Slurm's CPUs.

Source: SchedMD/slurm, src/plugins/topology/tree/eval_nodes_tree.c at 009b1702.
- Leaf switches are taken one after another. Of two that hold the rest the one with fewer usable
  nodes is better; where neither does, the switches above them are compared the same way; else the
  one with more usable nodes is.
- From the second one on, a leaf that is fewer hops from those taken is better if it holds the rest.
- Inside a leaf nodes are taken in the order of their names, whatever is free on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.groups.hosts import Hosts, Shares

__all__ = ["Slurm"]


@dataclass(frozen=True, slots=True)
class Slurm:
    """Levels leaf, spine, core."""

    def place(
        self, hosts: Hosts, free: NDArray[np.int64], *, n_members: int, n_gpus: int
    ) -> Shares | None:
        """Place all tasks, single ones too."""
        room = free // n_gpus
        if int(room.sum()) < n_members:
            return None
        switches = _Switches(hosts, room)
        shares: Shares = []
        left = n_members
        while left:
            leaf = switches.best(left)
            for host in np.flatnonzero((hosts.leaf == leaf) & (room > 0)):
                n_here = min(left, int(room[host]))
                shares.append((int(host), n_here))
                left -= n_here
                if not left:
                    break
            switches.use(leaf)
        return sorted(shares)


class _Switches:
    """Usable nodes and tasks below each switch, and which leaves were used."""

    def __init__(self, hosts: Hosts, room: NDArray[np.int64]) -> None:
        owners = (hosts.leaf, hosts.spine, hosts.core)
        self._tasks = [np.bincount(owner, room).astype(int).tolist() for owner in owners]
        self._nodes = [np.bincount(owner, room > 0).astype(int).tolist() for owner in owners]
        first = np.unique(hosts.leaf, return_index=True)[1]
        self._chains = [
            (leaf, int(hosts.spine[host]), int(hosts.core[host])) for leaf, host in enumerate(first)
        ]
        self._unused = {leaf for leaf, nodes in enumerate(self._nodes[0]) if nodes}
        self._used: list[int] = []

    def use(self, leaf: int) -> None:
        """Count a leaf as taken."""
        self._unused.discard(leaf)
        self._used.append(leaf)
        n_nodes = self._nodes[0][leaf]
        for level, switch in enumerate(self._chains[leaf]):
            self._nodes[level][switch] -= n_nodes

    def best(self, left: int) -> int:
        """The leaf to take next."""
        leaves = sorted(self._unused)
        hops = {leaf: sum(self._hops(leaf, used) for used in self._used) for leaf in leaves}
        best = leaves[0]
        for leaf in leaves[1:]:
            order, fits = self._compare(leaf, best, left)
            is_nearer = hops[leaf] < hops[best] and fits
            if is_nearer or (hops[leaf] == hops[best] and order > 0):
                best = leaf
        return best

    def _hops(self, leaf: int, other: int) -> int:
        """Switches up to the one above both."""
        pairs = zip(self._chains[leaf], self._chains[other], strict=True)
        return next((i for i, (a, b) in enumerate(pairs) if a == b), len(self._chains[leaf]))

    def _compare(self, leaf: int, other: int, left: int) -> tuple[int, bool]:
        """Above 0 where `leaf` is better, and whether the switch that decided holds the rest."""
        fits, more = False, 0
        for level, (i, j) in enumerate(zip(self._chains[leaf], self._chains[other], strict=True)):
            if i == j:
                break
            tasks, nodes = self._tasks[level], self._nodes[level]
            fits, other_fits = tasks[i] >= left, tasks[j] >= left
            if fits != other_fits:
                return (1 if fits else -1), fits
            more = nodes[i] - nodes[j]
            if fits:
                return -more, fits
        return more, fits
