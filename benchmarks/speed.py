"""Speed: tables, selections, and the extender over HTTP.

What it answers: how long a machine's tables take to build, how long a selection takes that nobody
asked for before, and how long filter and prioritize take over one keep-alive connection with 5,000
and 1,000 node names, beside the resident memory of the process. Ratios are to work done in the same
run: a fixed Python loop for the core, a FastAPI server that echoes its body for HTTP.

The cluster under test: as many nodes of 8 GPUs as are asked about, of four machine types, every
second one partly taken at random, and as many full nodes as it takes to hold `n_pods` one-GPU pods
in the ledger. Pods are bound over the extender's own wire. Requests are a seeded mix of sizes 1 to
8 and affinities; each is a filter and a prioritize over all asked names, and every second pod is
bound and ended again, so that the state moves as a cluster's does.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.masks import mask_of
from benchmarks.report import ResultTable
from benchmarks.wire_client import (
    Connection,
    binding,
    free_port,
    pod,
    question,
    resident_mib,
    serve,
)
from topology.model import NO_LINK, AcceleratorLink, Gpu, LinkKind, NodeTopology, PcieLevel
from topology.policy import Affinity, PlacementPolicy
from topology.recordings import load_recording
from topology.select import select_set
from topology.tables import build_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.report import Cell
    from benchmarks.wire_client import Asker

__all__ = ["FULL", "QUICK", "Load", "run", "torus"]

MACHINES = ("dgx-1-v100", "8x-a6000-bridged", "dgx-a100", "dgx-h100")
"""Machine types of the cluster, all of 8 GPUs."""
GPUS_PER_NODE = 8
SPARE = 1.02
"""Full nodes over what the expected pods need: how many a partly taken node holds is drawn."""
AFFINITIES = (None, "nvlink", "numa", "none")


@dataclass(frozen=True, slots=True)
class Load:
    """How much is measured. `n_names` are the lengths of NodeNames, the longest first."""

    n_names: tuple[int, ...]
    n_pods: int
    n_requests: int
    n_builds: int
    n_selections: int


FULL = Load(n_names=(5000, 1000), n_pods=40_000, n_requests=1000, n_builds=30, n_selections=2000)
QUICK = Load(n_names=(200, 100), n_pods=800, n_requests=50, n_builds=3, n_selections=50)


def torus(width: int, n_links: int) -> NodeTopology:
    """A square torus of GPUs, each linked to its four neighbours: the hard case of tables."""
    n = width * width
    links = [[NO_LINK] * n for _ in range(n)]
    for i in range(n):
        row, column = divmod(i, width)
        for j in (row * width + (column + 1) % width, (row + 1) % width * width + column):
            links[i][j] = links[j][i] = AcceleratorLink(LinkKind.NVLINK, n_links)
    return NodeTopology(
        gpus=tuple(Gpu(model="Tesla V100-SXM2-32GB") for _ in range(n)),
        links=tuple(tuple(row) for row in links),
        pcie=tuple(
            tuple(PcieLevel.SELF if i == j else PcieLevel.SYS for j in range(n)) for i in range(n)
        ),
        name=f"torus-{width}x{width}",
    )


def _reference_loop() -> float:
    """Seconds for 100,000 additions in Python: what this machine does at this moment."""
    start = time.perf_counter()
    total = 0
    for i in range(100_000):
        total += i
    return time.perf_counter() - start


def _percentiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Median, 99th percentile and maximum, in milliseconds."""
    ordered = np.sort(np.asarray(seconds)) * 1000
    return float(np.median(ordered)), float(np.quantile(ordered, 0.99)), float(ordered[-1])


def _core(load: Load, seed: int) -> ResultTable:
    loop_ms = 1000 * median(_reference_loop() for _ in range(20))
    rows: list[tuple[Cell, ...]] = []
    machines = [load_recording(name) for name in (*MACHINES, "dgx-2")] + [torus(4, 2)]
    for topology in machines:
        build_tables(topology)
        seconds = []
        for _ in range(load.n_builds if topology.n_gpus <= 8 else max(3, load.n_builds // 6)):
            start = time.perf_counter()
            build_tables(topology)
            seconds.append(time.perf_counter() - start)
        p50, p99, most = _percentiles(seconds)
        title = f"tables of {topology.name}, {topology.n_gpus} GPUs"
        rows.append((title, len(seconds), p50, p99, most, p50 / loop_ms))
    for topology, size in ((machines[0], 4), (machines[-2], 8), (machines[-1], 8)):
        p50, p99, most = _percentiles(_selections(topology, size, load.n_selections, seed))
        title = f"selection of {size} in {topology.name}, {topology.n_gpus} GPUs"
        rows.append((title, load.n_selections, p50, p99, most, p50 / loop_ms))
    notes = (
        f"reference loop: 100,000 additions in Python, {loop_ms:.2f} ms",
        "selections: three in four with every GPU free; no two ask the same",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "p50 / reference loop")
    return ResultTable("Speed of the core", columns, tuple(rows), notes)


def _selections(topology: NodeTopology, size: int, n: int, seed: int) -> list[float]:
    tables = build_tables(topology)
    rng = random.Random(seed)
    everything = (1 << topology.n_gpus) - 1
    seen: set[tuple[int, int, float]] = set()
    seconds: list[float] = []
    while len(seconds) < n:
        # The whole machine free is the most work; a bandwidth floor makes each policy a new one.
        n_taken = rng.choice((0, 0, 0, rng.randrange(topology.n_gpus - size + 1)))
        taken = mask_of(rng.sample(range(topology.n_gpus), n_taken))
        available = everything & ~taken
        floor = round(rng.uniform(1.0, 9.0), 6)
        must_include = available & -available if n_taken else 0
        if (available, must_include, floor) in seen:
            continue
        seen.add((available, must_include, floor))
        affinity = rng.choice((Affinity.ANY, Affinity.NVLINK, Affinity.NONE))
        policy = PlacementPolicy(affinity=affinity, min_bandwidth_gbytes_per_s=floor)
        start = time.perf_counter()
        select_set(tables, available=available, must_include=must_include, size=size, policy=policy)
        seconds.append(time.perf_counter() - start)
    return seconds


@dataclass(frozen=True, slots=True)
class _Cluster:
    asked: tuple[str, ...]
    full: tuple[str, ...]
    spec: str


def _layout(load: Load) -> _Cluster:
    """Asked nodes and full ones; every second asked node holds four pods on average."""
    n_asked = load.n_names[0]
    n_full = int(SPARE * (load.n_pods - n_asked // 2 * (GPUS_PER_NODE // 2)) / GPUS_PER_NODE) + 1
    per_type = -(-(n_asked + n_full) // len(MACHINES))
    spec = ", ".join(f"{per_type}x {name}" for name in MACHINES)
    names = [f"{name}-{i}" for i in range(per_type) for name in MACHINES]
    return _Cluster(tuple(names[:n_asked]), tuple(names[n_asked : n_asked + n_full]), spec)


class _Filler:
    """Binds one-GPU pods over the wire until the ledger holds what the load asks for."""

    def __init__(self, connection: Asker, rng: random.Random) -> None:
        self._connection = connection
        self._rng = rng
        self.n_pods = 0
        self._n_made = 0

    def bind(self, node: str) -> str:
        self._n_made += 1
        uid = f"fill-{self._n_made}"
        self._connection.ask("/filter", question(pod(uid, 1), json.dumps([node])))
        self._connection.ask("/bind", binding(uid, node))
        self.n_pods += 1
        return uid

    def fill_partly(self, node: str) -> None:
        """Fill a node and end some of its pods at random, so that any set may be free."""
        uids = [self.bind(node) for _ in range(GPUS_PER_NODE)]
        for uid in self._rng.sample(uids, self._rng.randrange(1, GPUS_PER_NODE)):
            self._connection.ask(f"/embedded/pods/{uid}", b"", method="DELETE")
            self.n_pods -= 1


def _fill(
    connection: Connection, cluster: _Cluster, load: Load, seed: int, advance: Callable[[], None]
) -> int:
    filler = _Filler(connection, random.Random(seed))
    for node in cluster.asked[::2]:
        filler.fill_partly(node)
        advance()
    for node in cluster.full:
        for _ in range(min(GPUS_PER_NODE, load.n_pods - filler.n_pods)):
            filler.bind(node)
        advance()
    return filler.n_pods


def _requests(n: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    pods = []
    for i in range(n):
        affinity = rng.choice(AFFINITIES)
        annotations = {} if affinity is None else {"coterie.gpu/affinity": affinity}
        pods.append(pod(f"ask-{seed}-{i}", rng.choice((1, 1, 2, 2, 3, 4, 4, 8)), annotations))
    return pods


@dataclass(slots=True)
class _Asked:
    """Seconds of one verb, the first call of each pod shape apart from the rest."""

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)


def _ask(
    connection: Connection, names: Sequence[str], pods: Sequence[dict[str, Any]]
) -> dict[str, _Asked]:
    names_json = json.dumps(list(names))
    asked = {"filter": _Asked(), "prioritize": _Asked()}
    shapes: set[str] = set()
    for i, one in enumerate(pods):
        shape = json.dumps((one["metadata"]["annotations"], one["spec"]))
        body = question(one, names_json)
        filtered, filter_s = connection.ask("/filter", body)
        _, prioritize_s = connection.ask("/prioritize", body)
        for verb, seconds in (("filter", filter_s), ("prioritize", prioritize_s)):
            (asked[verb].later if shape in shapes else asked[verb].first).append(seconds)
        shapes.add(shape)
        named = json.loads(filtered)["NodeNames"]
        if i % 2 and named:
            uid = one["metadata"]["uid"]
            connection.ask("/bind", binding(uid, named[0]))
            connection.ask(f"/embedded/pods/{uid}", b"", method="DELETE")
    return asked


def _echo(names: Sequence[str], pods: Sequence[dict[str, Any]]) -> list[float]:
    port = free_port()
    names_json = json.dumps(list(names))
    with serve("benchmarks.echo_server", ["--port", str(port)], port):
        connection = Connection(port)
        seconds = [connection.ask("/echo", question(one, names_json))[1] for one in pods]
        connection.close()
    return seconds


def _http(load: Load, seed: int, advance: Callable[[], None]) -> ResultTable:
    cluster = _layout(load)
    pods = {n: _requests(load.n_requests, n) for n in load.n_names}
    echoes = {n: _percentiles(_echo(cluster.asked[:n], pods[n])) for n in load.n_names}
    rows: list[tuple[Cell, ...]] = []
    port = free_port()
    arguments = ["serve", "--cluster", cluster.spec, "--listen-port", str(port)]
    with serve("extender", arguments, port) as process_id:
        connection = Connection(port)
        n_pods = _fill(connection, cluster, load, seed, advance)
        for n in load.n_names:
            rows.append((f"echo, {n} names", load.n_requests, *echoes[n], 1.0))
            for verb, asked in _ask(connection, cluster.asked[:n], pods[n]).items():
                for what, seconds in (("", asked.later), (", first of its shape", asked.first)):
                    shown = _percentiles(seconds)
                    title = f"{verb}, {n} names{what}"
                    rows.append((title, len(seconds), *shown, shown[0] / echoes[n][0]))
            advance()
        resident, highest = resident_mib(process_id)
        connection.close()
    notes = (
        f"{len(cluster.asked) + len(cluster.full)} nodes in use, of {', '.join(MACHINES)}",
        f"{n_pods} GPU pods in the ledger, every second asked node partly taken",
        "first of its shape: no pod of that size and affinity was asked about with so many names",
        f"extender process: {resident:.0f} MiB resident, {highest:.0f} MiB at most",
        "one keep-alive connection; client and server share the machine's cores",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "p50 / echo")
    return ResultTable("Speed over HTTP", columns, tuple(rows), notes)


def run(
    load: Load, *, seed: int = 0, advance: Callable[[], None] = lambda: None
) -> tuple[ResultTable, ...]:
    """Measure the core, then the server."""
    core = _core(load, seed)
    advance()
    return core, _http(load, seed, advance)
