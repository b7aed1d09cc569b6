"""Speed over HTTP: filter and prioritize of the real extender process, over one connection.

Measures milliseconds from the first byte sent to the last one read, beside an extender that does
nothing (`benchmarks.trivial_extender`), and the resident memory of the process.

The cluster has as many nodes of 8 GPUs as the requests name, of four machine types, every second
one partly taken at random, and as many full nodes as it takes to hold `n_pods` one-GPU pods, all
bound over the extender's own HTTP API. Requests are a seeded mix of pod shapes (sizes 1, 2, 3, 4
and 8 by the five affinities); each is a filter and a prioritize over all names of the request, and
every second pod is bound before it ends, so that the state moves as a cluster's does.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.process_usage import resident_mib
from benchmarks.report import ResultTable
from benchmarks.speed.load import MACHINES, percentiles
from benchmarks.speed.wire_client import (
    PODS,
    Connection,
    binding,
    filter_args,
    free_port,
    names_list,
    pod,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.report import Cell
    from benchmarks.speed.load import Load
    from benchmarks.speed.wire_client import Sender

__all__ = [
    "Filled",
    "Filler",
    "draw_pods",
    "fill",
    "filled_extender",
    "lay_out",
    "measure_calls",
    "measure_http",
]

SIZES = (1, 1, 2, 2, 3, 4, 4, 8)
"""Sizes are drawn evenly from here: small ones are more frequent."""
AFFINITIES = (None, "nvlink", "pcie-switch", "numa", "none")
GPUS_PER_NODE = 8
SPARE = 1.02
"""Full nodes over what the expected pods need: how many a partly taken node holds is drawn."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Names of requested and of full nodes, and the description that an extender lays out."""

    requested: tuple[str, ...]
    full: tuple[str, ...]
    spec: str


@dataclass(frozen=True, slots=True)
class Filled:
    """An extender process whose nodes hold `n_pods` pods."""

    port: int
    process_id: int
    connection: Connection
    n_pods: int


def lay_out(load: Load) -> Cluster:
    """Requested nodes and full ones; every second requested node holds four pods on average."""
    n_named = load.n_names[0]
    n_full = int(SPARE * (load.n_pods - n_named // 2 * (GPUS_PER_NODE // 2)) / GPUS_PER_NODE) + 1
    per_type = -(-(n_named + n_full) // len(MACHINES))
    spec = ", ".join(f"{per_type}x {name}" for name in MACHINES)
    names = [f"{name}-{i}" for i in range(per_type) for name in MACHINES]
    return Cluster(tuple(names[:n_named]), tuple(names[n_named : n_named + n_full]), spec)


class Filler:
    """Binds one-GPU pods over the wire; `n_pods` of them are bound."""

    def __init__(self, connection: Sender, rng: random.Random) -> None:
        self._connection = connection
        self._rng = rng
        self.n_pods = 0
        self._n_made = 0

    def bind(self, node: str) -> str:
        """Bind one pod; returns its uid."""
        self._n_made += 1
        uid = f"fill-{self._n_made}"
        one = pod(uid, 1)
        self._connection.send(PODS, json.dumps(one).encode())
        self._connection.send("/filter", filter_args(one, names_list([node])))
        self._connection.send("/bind", binding(uid, node))
        self.n_pods += 1
        return uid

    def fill_partly(self, node: str) -> None:
        """Fill a node and end some of its pods at random, so that any set may be free."""
        uids = [self.bind(node) for _ in range(GPUS_PER_NODE)]
        for uid in self._rng.sample(uids, self._rng.randrange(1, GPUS_PER_NODE)):
            self._connection.send(f"{PODS}/pod-{uid}", b"", method="DELETE")
            self.n_pods -= 1


def fill(connection: Sender, cluster: Cluster, load: Load, *, seed: int) -> int:
    """Fill the nodes; returns the number of bound pods."""
    filler = Filler(connection, random.Random(seed))
    for node in cluster.requested[::2]:
        filler.fill_partly(node)
    for node in cluster.full:
        for _ in range(min(GPUS_PER_NODE, load.n_pods - filler.n_pods)):
            filler.bind(node)
    return filler.n_pods


@contextmanager
def filled_extender(cluster: Cluster, load: Load, *, seed: int) -> Iterator[Filled]:
    """Run an extender process of that cluster until the block ends."""
    port = free_port()
    arguments = ["serve", "--cluster", cluster.spec, "--listen-port", str(port)]
    with (
        serve("extender", arguments, port) as process_id,
        closing(Connection(port)) as connection,
    ):
        yield Filled(port, process_id, connection, fill(connection, cluster, load, seed=seed))


def draw_pods(n: int, seed: int) -> list[dict[str, Any]]:
    """Pods of random sizes and affinities; the same for the same seed."""
    rng = random.Random(seed)
    pods = []
    for i in range(n):
        affinity = rng.choice(AFFINITIES)
        annotations = {} if affinity is None else {"coterie.gpu/affinity": affinity}
        pods.append(pod(f"pod-{seed}-{i}", rng.choice(SIZES), annotations))
    return pods


def measure_calls(
    connection: Sender, names: Sequence[str], pods: Sequence[dict[str, Any]], *, every_s: float = 0
) -> dict[str, list[float]]:
    """Call filter and prioritize for each pod, bind every second one; seconds by verb.

    A pod begins `every_s` after the one before at the earliest.
    """
    names_json = names_list(names)
    measured: dict[str, list[float]] = {"filter": [], "prioritize": []}
    begin_s = time.monotonic()
    for i, one in enumerate(pods):
        uid = one["metadata"]["uid"]
        connection.send(PODS, json.dumps(one).encode())
        time.sleep(max(0.0, begin_s + i * every_s - time.monotonic()))
        body = filter_args(one, names_json)
        filtered, filter_s = connection.send("/filter", body)
        measured["filter"].append(filter_s)
        measured["prioritize"].append(connection.send("/prioritize", body)[1])
        named = json.loads(filtered)["NodeNames"]
        if i % 2 and named:
            connection.send("/bind", binding(uid, named[0]))
        connection.send(f"{PODS}/pod-{uid}", b"", method="DELETE")
    return measured


def _trivial(names: Sequence[str], pods: Sequence[dict[str, Any]]) -> list[float]:
    port = free_port()
    names_json = names_list(names)
    with serve("benchmarks.trivial_extender", [str(port)], port):
        connection = Connection(port)
        seconds = [connection.send("/filter", filter_args(one, names_json))[1] for one in pods]
        connection.close()
    return seconds


def measure_http(load: Load, seed: int) -> ResultTable:
    """Measure a fresh extender process for each length of NodeNames."""
    cluster = lay_out(load)
    rows: list[tuple[Cell, ...]] = []
    notes = [f"{len(cluster.requested) + len(cluster.full)} nodes in use, of {', '.join(MACHINES)}"]
    for n_names in load.n_names:
        pods, names = draw_pods(load.n_requests, n_names), cluster.requested[:n_names]
        trivial = _trivial(names, pods)
        base_ms = percentiles(trivial)[0]
        with filled_extender(cluster, load, seed=seed) as extender:
            measured = measure_calls(extender.connection, names, pods)
            resident, highest = resident_mib(extender.process_id)
        for what, seconds in {"filter of a trivial extender": trivial, **measured}.items():
            shown = percentiles(seconds)
            rows.append((f"{what}, {n_names} names", len(seconds), *shown, shown[0] / base_ms))
        notes.append(
            f"{n_names} names: {extender.n_pods} GPU pods bound, "
            f"{resident:.0f} MiB resident, {highest:.0f} MiB at most"
        )
    notes.append("one keep-alive connection; client and server share the machine's cores")
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "p50 / trivial")
    return ResultTable("Speed over HTTP", columns, tuple(rows), tuple(notes))
