"""Speed over HTTP: filter and prioritize of the real extender process, over one connection.

Measures milliseconds from the first byte sent to the last one read, beside a FastAPI server that
echoes its body, the resident memory of the process, and where the time goes.

Requests are a seeded mix of pod shapes (sizes 1, 2, 3, 4 and 8 by the five affinities); each is a
filter and a prioritize over all names of the request, and every second pod is bound and ended
again, so that the state moves as a cluster's does. Each length of NodeNames is sent to a fresh
extender process: the first pod of a shape has its sets chosen for every machine state, the later
ones find them kept. The first calls have rows of their own and in the rows over all calls.

The cluster under test: `benchmarks.speed.cluster`.
"""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchmarkError
from benchmarks.process_usage import resident_mib
from benchmarks.report import ResultTable
from benchmarks.speed.cluster import fill_cluster, lay_out_cluster
from benchmarks.speed.load import MACHINES, percentiles
from benchmarks.speed.wire_client import (
    Connection,
    binding,
    filter_args,
    free_port,
    names_list,
    pod,
    serve,
)
from extender.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.report import Cell
    from benchmarks.speed.cluster import Cluster
    from benchmarks.speed.load import Load

__all__ = [
    "N_SHAPES",
    "CallTimes",
    "draw_pods",
    "measure_calls",
    "measure_http",
    "table_rows",
    "time_parts",
]

SIZES = (1, 1, 2, 2, 3, 4, 4, 8)
"""Sizes are drawn evenly from here: small ones are more frequent."""
AFFINITIES = (None, "nvlink", "pcie-switch", "numa", "none")
N_SHAPES = len(set(SIZES)) * len(AFFINITIES)


def draw_pods(n: int, seed: int) -> list[dict[str, Any]]:
    """Pods of random sizes and affinities; the same for the same seed."""
    rng = random.Random(seed)
    pods = []
    for i in range(n):
        affinity = rng.choice(AFFINITIES)
        annotations = {} if affinity is None else {"coterie.gpu/affinity": affinity}
        pods.append(pod(f"pod-{seed}-{i}", rng.choice(SIZES), annotations))
    return pods


@dataclass(slots=True)
class CallTimes:
    """Seconds of one verb, the first call of each pod shape apart from the rest."""

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)

    @property
    def every(self) -> list[float]:
        """All calls."""
        return [*self.first, *self.later]


def measure_calls(
    connection: Connection,
    names: Sequence[str],
    pods: Sequence[dict[str, Any]],
    *,
    every_s: float = 0.0,
) -> dict[str, CallTimes]:
    """Call filter and prioritize for each pod, and bind and end every second one; by verb.

    A pod begins `every_s` after the one before at the earliest.
    """
    names_json = names_list(names)
    measured = {"filter": CallTimes(), "prioritize": CallTimes()}
    shapes: set[str] = set()
    begin_s = time.monotonic()
    for i, one in enumerate(pods):
        time.sleep(max(0.0, begin_s + i * every_s - time.monotonic()))
        shape = json.dumps((one["metadata"]["annotations"], one["spec"]))
        body = filter_args(one, names_json)
        filtered, filter_s = connection.send("/filter", body)
        _, prioritize_s = connection.send("/prioritize", body)
        for verb, seconds in (("filter", filter_s), ("prioritize", prioritize_s)):
            (measured[verb].later if shape in shapes else measured[verb].first).append(seconds)
        shapes.add(shape)
        named = json.loads(filtered)["NodeNames"]
        if i % 2 and named:
            uid = one["metadata"]["uid"]
            connection.send("/bind", binding(uid, named[0]))
            connection.send(f"/embedded/pods/{uid}", b"", method="DELETE")
    return measured


def _echo(names: Sequence[str], pods: Sequence[dict[str, Any]]) -> list[float]:
    port = free_port()
    names_json = names_list(names)
    with serve("benchmarks.speed.echo_server", ["--port", str(port)], port):
        connection = Connection(port)
        seconds = [connection.send("/echo", filter_args(one, names_json))[1] for one in pods]
        connection.close()
    return seconds


def _answer_seconds(connection: Connection) -> dict[str, tuple[float, float]]:
    """Seconds spent on answers and their number so far, by verb, from the server's own metrics."""
    text = connection.send("/metrics", b"", method="GET")[0].decode()
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        match = _METRIC.fullmatch(line)
        if match is not None:
            found.setdefault(match["verb"], {})[match["part"]] = float(match["value"])
    return {verb: (parts["sum"], parts["count"]) for verb, parts in found.items()}


_METRIC = re.compile(
    r"coterie_extender_request_duration_seconds_(?P<part>sum|count)"
    r'\{verb="(?P<verb>[a-z]+)"\} (?P<value>\S+)'
)


def _decode_ms(body: bytes) -> float:
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        cut = messages.cut_names(body)
        if cut is None:
            msg = "the request is not cut, expected it as Go writes it"
            raise BenchmarkError(msg)
        messages.decode(messages.ExtenderArgs, cut[0] + messages.NO_NAMES)
        seconds.append(time.perf_counter() - start)
    return 1000 * median(seconds)


def time_parts(
    measured: Mapping[str, CallTimes],
    before: Mapping[str, tuple[float, float]],
    after: Mapping[str, tuple[float, float]],
    body: bytes,
) -> list[tuple[Cell, ...]]:
    """Mean milliseconds of each verb: all of it, outside the answer, decoding, the rest."""
    rows: list[tuple[Cell, ...]] = []
    decode_ms = _decode_ms(body)
    for verb, times in measured.items():
        seconds = times.every
        total_ms = 1000 * sum(seconds) / len(seconds)
        # A verb that was not called has no figures yet.
        earlier = before.get(verb, (0.0, 0.0))
        spent, count = (now - then for now, then in zip(after[verb], earlier, strict=True))
        answer_ms = 1000 * spent / count
        rest_ms = answer_ms - decode_ms
        rows.append((verb, len(seconds), total_ms, total_ms - answer_ms, decode_ms, rest_ms))
    return rows


@dataclass(frozen=True, slots=True)
class _Measured:
    """One length of NodeNames: rows of both tables, and the figures of the notes."""

    rows: tuple[tuple[Cell, ...], ...]
    parts: tuple[tuple[Cell, ...], ...]
    n_pods: int
    n_shapes: int
    memory: str


def table_rows(
    n_names: int, measured: Mapping[str, CallTimes], echo_ms: float
) -> list[tuple[Cell, ...]]:
    """The rows of each verb: all calls, first calls of a shape, and the rest."""
    rows: list[tuple[Cell, ...]] = []
    for verb, times in measured.items():
        kinds = (
            ("all calls", times.every),
            ("first of its shape", times.first),
            ("shape known", times.later),
        )
        for what, seconds in kinds:
            if seconds:
                shown = percentiles(seconds)
                title = f"{verb}, {n_names} names, {what}"
                rows.append((title, len(seconds), *shown, shown[0] / echo_ms))
    return rows


def _measure(
    n_names: int, cluster: Cluster, load: Load, *, seed: int, advance: Callable[[], None]
) -> _Measured:
    """Start and fill an extender, and measure it with the first `n_names` nodes."""
    pods = draw_pods(load.n_requests, n_names)
    names = cluster.requested[:n_names]
    echo = percentiles(_echo(names, pods))
    port = free_port()
    arguments = ["serve", "--cluster", cluster.spec, "--listen-port", str(port)]
    with serve("extender", arguments, port) as process_id:
        connection = Connection(port)
        n_pods = fill_cluster(connection, cluster, load, seed=seed, advance=advance)
        before = _answer_seconds(connection)
        measured = measure_calls(connection, names, pods)
        after = _answer_seconds(connection)
        advance()
        resident, highest = resident_mib(process_id)
        connection.close()
    parts = time_parts(measured, before, after, filter_args(pods[0], names_list(names)))
    return _Measured(
        rows=(
            (f"echo, {n_names} names", load.n_requests, *echo, 1.0),
            *table_rows(n_names, measured, echo[0]),
        ),
        parts=tuple((f"{verb}, {n_names} names", *cells) for verb, *cells in parts),
        n_pods=n_pods,
        n_shapes=len(measured["filter"].first),
        memory=f"{n_names} names {resident:.0f} MiB resident, {highest:.0f} MiB at most",
    )


def measure_http(
    load: Load, seed: int, advance: Callable[[], None]
) -> tuple[ResultTable, ResultTable]:
    """Measure the server; `advance` is called after each node that is filled."""
    cluster = lay_out_cluster(load)
    measured = [
        _measure(n_names, cluster, load, seed=seed, advance=advance) for n_names in load.n_names
    ]
    n_shapes = measured[0].n_shapes
    share = 100 * n_shapes / load.n_requests
    sizes = ", ".join(str(size) for size in sorted(set(SIZES)))
    notes = (
        f"{len(cluster.requested) + len(cluster.full)} nodes in use, of {', '.join(MACHINES)}",
        f"{measured[0].n_pods} GPU pods bound, every second node of the request partly taken",
        "a fresh extender process for each length of NodeNames",
        f"{load.n_requests} pods, {n_shapes} of {N_SHAPES} shapes: sizes {sizes}; five affinities",
        f"first of its shape: {share:.1f} % of all calls; below 1 % the p99 of all leaves them out",
        "a one-GPU pod without an affinity is never quite the first: such pods filled the nodes",
        f"extender process: {'; '.join(each.memory for each in measured)}",
        "one keep-alive connection; client and server share the machine's cores",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "p50 / echo")
    part_columns = ("what", "n", "mean ms", "HTTP", "decoding", "look-up and encoding")
    rows = tuple(row for each in measured for row in each.rows)
    parts = tuple(row for each in measured for row in each.parts)
    return (
        ResultTable("Speed over HTTP", columns, rows, notes),
        ResultTable("Where the time goes", part_columns, parts, _PART_NOTES),
    )


_PART_NOTES = (
    "HTTP: seen by the client less the time to answer that the server's own metrics report",
    "decoding: cutting off the names and decoding the pod, measured in the client's process",
)
