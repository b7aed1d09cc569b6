"""Speed over HTTP: filter and prioritize of the real extender process, over one connection.

What it answers: milliseconds from the first byte sent to the last one read, beside a FastAPI server
that echoes its body, the resident memory of the process, and where the time goes.

The cluster under test: as many nodes of 8 GPUs as are asked about, of four machine types, every
second one partly taken at random, and as many full nodes as it takes to hold `n_pods` one-GPU pods
in the ledger. Pods are bound over the extender's own wire. Requests are a seeded mix of sizes 1 to
8 and affinities; each is a filter and a prioritize over all asked names, and every second pod is
bound and ended again, so that the state moves as a cluster's does.
"""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.load import MACHINES, percentiles
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
from extender import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.load import Load
    from benchmarks.report import Cell
    from benchmarks.wire_client import Asker

__all__ = ["measure_http"]

GPUS_PER_NODE = 8
SPARE = 1.02
"""Full nodes over what the expected pods need: how many a partly taken node holds is drawn."""
AFFINITIES = (None, "nvlink", "numa", "none")


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


def _answer_seconds(connection: Connection) -> dict[str, tuple[float, float]]:
    """Seconds spent on answers and their number so far, by verb, from the server's own metrics."""
    text = connection.ask("/metrics", b"", method="GET")[0].decode()
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        match = _METRIC.fullmatch(line)
        if match is not None:
            found.setdefault(match["verb"], {})[match["part"]] = float(match["value"])
    return {verb: (parts["sum"], parts["count"]) for verb, parts in found.items()}


_METRIC = re.compile(
    r"coterie_extender_request_seconds_(?P<part>sum|count)"
    r'\{verb="(?P<verb>[a-z]+)"\} (?P<value>\S+)'
)


def _decode_ms(body: bytes) -> float:
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        wire.decode(wire.ExtenderArgs, body)
        seconds.append(time.perf_counter() - start)
    return 1000 * median(seconds)


def _parts(
    asked: Mapping[str, _Asked],
    before: Mapping[str, tuple[float, float]],
    after: Mapping[str, tuple[float, float]],
    body: bytes,
) -> list[tuple[Cell, ...]]:
    """Mean milliseconds of each verb: all of it, outside the answer, decoding, the rest."""
    rows: list[tuple[Cell, ...]] = []
    decode_ms = _decode_ms(body)
    for verb, times in asked.items():
        seconds = [*times.first, *times.later]
        total_ms = 1000 * sum(seconds) / len(seconds)
        spent, count = (now - then for now, then in zip(after[verb], before[verb], strict=True))
        answer_ms = 1000 * spent / count
        rest_ms = answer_ms - decode_ms
        rows.append((verb, len(seconds), total_ms, total_ms - answer_ms, decode_ms, rest_ms))
    return rows


def measure_http(
    load: Load, seed: int, advance: Callable[[], None]
) -> tuple[ResultTable, ResultTable]:
    """Measure the server; `advance` is called after each node that is filled."""
    cluster = _layout(load)
    pods = {n: _requests(load.n_requests, n) for n in load.n_names}
    echoes = {n: percentiles(_echo(cluster.asked[:n], pods[n])) for n in load.n_names}
    rows: list[tuple[Cell, ...]] = []
    parts: list[tuple[Cell, ...]] = []
    port = free_port()
    arguments = ["serve", "--cluster", cluster.spec, "--listen-port", str(port)]
    with serve("extender", arguments, port) as process_id:
        connection = Connection(port)
        n_pods = _fill(connection, cluster, load, seed, advance)
        for n in load.n_names:
            rows.append((f"echo, {n} names", load.n_requests, *echoes[n], 1.0))
            before = _answer_seconds(connection)
            all_asked = _ask(connection, cluster.asked[:n], pods[n])
            body = question(pods[n][0], json.dumps(cluster.asked[:n]))
            spent = _parts(all_asked, before, _answer_seconds(connection), body)
            parts += [(f"{verb}, {n} names", *cells) for verb, *cells in spent]
            for verb, asked in all_asked.items():
                for what, seconds in (("", asked.later), (", first of its shape", asked.first)):
                    shown = percentiles(seconds)
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
    part_columns = ("what", "n", "mean ms", "HTTP", "decoding", "look-up and encoding")
    return (
        ResultTable("Speed over HTTP", columns, tuple(rows), notes),
        ResultTable("Where the time goes", part_columns, tuple(parts), _PART_NOTES),
    )


_PART_NOTES = (
    "HTTP: seen by the client less the time to answer that the server's own metrics tell",
    "decoding: wire.decode of the same body, measured in the client's process",
)
