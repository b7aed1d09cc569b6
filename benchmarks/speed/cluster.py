"""The cluster under test: which nodes an extender process holds, and how they are filled.

Names the nodes of the requests and those that only hold pods, and fills a cluster with as many
one-GPU pods as the load requires, bound over the extender's own HTTP API.

As many nodes of 8 GPUs as the requests name, of four machine types, every second one partly taken
at random, and as many full nodes as it takes to hold `n_pods` pods. It measures nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.speed.load import MACHINES
from benchmarks.speed.wire_client import binding, filter_args, names_list, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.speed.load import Load
    from benchmarks.speed.wire_client import Sender

__all__ = ["Cluster", "Filler", "fill_cluster", "lay_out_cluster"]

GPUS_PER_NODE = 8
SPARE = 1.02
"""Full nodes over what the expected pods need: how many a partly taken node holds is drawn."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Names of requested and of full nodes, and the description that an extender lays out."""

    requested: tuple[str, ...]
    full: tuple[str, ...]
    spec: str


def lay_out_cluster(load: Load) -> Cluster:
    """Requested nodes and full ones; every second requested node holds four pods on average."""
    n_named = load.n_names[0]
    n_full = int(SPARE * (load.n_pods - n_named // 2 * (GPUS_PER_NODE // 2)) / GPUS_PER_NODE) + 1
    per_type = -(-(n_named + n_full) // len(MACHINES))
    spec = ", ".join(f"{per_type}x {name}" for name in MACHINES)
    names = [f"{name}-{i}" for i in range(per_type) for name in MACHINES]
    return Cluster(tuple(names[:n_named]), tuple(names[n_named : n_named + n_full]), spec)


class Filler:
    """Binds one-GPU pods over the wire until as many are bound as the load requires."""

    def __init__(self, connection: Sender, rng: random.Random) -> None:
        self._connection = connection
        self._rng = rng
        self.n_pods = 0
        self._n_made = 0

    def bind(self, node: str) -> str:
        """Bind one pod; returns its uid."""
        self._n_made += 1
        uid = f"fill-{self._n_made}"
        self._connection.send("/filter", filter_args(pod(uid, 1), names_list([node])))
        self._connection.send("/bind", binding(uid, node))
        self.n_pods += 1
        return uid

    def fill_partly(self, node: str) -> None:
        """Fill a node and end some of its pods at random, so that any set may be free."""
        uids = [self.bind(node) for _ in range(GPUS_PER_NODE)]
        for uid in self._rng.sample(uids, self._rng.randrange(1, GPUS_PER_NODE)):
            self._connection.send(f"/embedded/pods/{uid}", b"", method="DELETE")
            self.n_pods -= 1


def fill_cluster(
    connection: Sender, cluster: Cluster, load: Load, *, seed: int, advance: Callable[[], None]
) -> int:
    """Fill the nodes; returns the number of bound pods. `advance` is called after each node."""
    filler = Filler(connection, random.Random(seed))
    for node in cluster.requested[::2]:
        filler.fill_partly(node)
        advance()
    for node in cluster.full:
        for _ in range(min(GPUS_PER_NODE, load.n_pods - filler.n_pods)):
            filler.bind(node)
        advance()
    return filler.n_pods
