"""The hosts of a simulated cluster: what is free, and how it is taken and given back.

Knows no policy and no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.groups.trace import GPUS_PER_HOST
from topology.groups import build_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topology.groups import DomainPath, DomainTree

__all__ = ["Hosts", "Shares"]

Shares = list[tuple[int, int]]
"""Pairs of a host and its members."""


class Hosts:
    """Free GPUs by host, in the order of the tree.

    `tie`: a random number for each host, different for each seed: hosts that a rival rates alike
    are as good as any, as kube-scheduler takes them.
    """

    def __init__(self, paths: Mapping[str, DomainPath], seed: int) -> None:
        self.tree: DomainTree = build_tree(paths)
        n_hosts = len(self.tree.node_names)
        self.place_of = {name: i for i, name in enumerate(self.tree.node_names)}
        self.free: NDArray[np.int64] = np.full(n_hosts, GPUS_PER_HOST, dtype=np.int64)
        self.tie: NDArray[np.int64] = np.random.default_rng(seed).permutation(n_hosts)
        levels = {level.name: level for level in self.tree.levels}
        self.leaf: NDArray[np.int64] = levels["leaf"].owner
        self.spine: NDArray[np.int64] = levels["spine"].owner
        self.core: NDArray[np.int64] = levels["core"].owner

    def take(self, shares: Shares, n_gpus: int) -> None:
        """Take the GPUs of members; raises `ValueError` where they are not free."""
        self._change(shares, -n_gpus)

    def give(self, shares: Shares, n_gpus: int) -> None:
        """Give the GPUs of members back; raises `ValueError` where they were free."""
        self._change(shares, n_gpus)

    def _change(self, shares: Sequence[tuple[int, int]], n_gpus: int) -> None:
        for host, n_members in shares:
            free = int(self.free[host]) + n_members * n_gpus
            if not 0 <= free <= GPUS_PER_HOST:
                msg = f"host {host} has {free} GPUs free, expected 0..{GPUS_PER_HOST}"
                raise ValueError(msg)
            self.free[host] = free
