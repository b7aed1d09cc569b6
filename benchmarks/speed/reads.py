"""What a client that reads everything each second costs the scheduler's calls.

One extender process with 5,000 nodes and 40,000 pods answers filter and prioritize over one
connection as in `benchmarks.speed.http`, in blocks of four kinds (`Kind`): beside one of them runs
`benchmarks.speed.reader`. The blocks take turns, so that what else the machine does meets all
alike, and the ratio is within one run. Two kinds are controls. What a block without a reader again
differs from the first by is what the machine does, and a ratio within that is no difference that
was measured. Where the reader reads another extender process of the same content, the one that is
called does nothing for it: what that differs by is what a reader and its server take of the cores
and caches that all share, and not what answers from the same process cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.process_usage import cpu_s, resident_mib
from benchmarks.report import ResultTable
from benchmarks.speed.cluster import fill_cluster, lay_out_cluster
from benchmarks.speed.http import draw_pods, measure_calls
from benchmarks.speed.load import FULL, QUICK, percentiles
from benchmarks.speed.wire_client import Connection, free_port, serve
from benchmarks.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from benchmarks.report import Cell
    from benchmarks.speed.cluster import Cluster
    from benchmarks.speed.http import CallTimes
    from benchmarks.speed.load import Load

__all__ = ["FULL_READS", "PACES", "QUICK_READS", "VERBS", "Kind", "ReadsLoad", "run"]

VERBS = ("filter", "prioritize")
PACES = {"100 pods a second": 0.01, "back to back": 0.0}
"""Seconds from pod to pod. kube-scheduler works between calls itself; back to back they take all
that one event loop can do, so that whatever else it does makes them slower."""


class Kind(Enum):
    """What is beside a block, in the order of a turn."""

    ALONE = "no reader"
    BESIDE = "a reader"
    AGAIN = "none again"
    ELSEWHERE = "a reader of another extender"


@dataclass(frozen=True, slots=True)
class ReadsLoad:
    """How much is measured: turns of a block of each kind and pace, and pods in each block."""

    load: Load
    n_turns: int
    n_pods: int


FULL_READS = ReadsLoad(FULL, n_turns=5, n_pods=800)
QUICK_READS = ReadsLoad(QUICK, n_turns=1, n_pods=40)


@dataclass(slots=True)
class _Blocks:
    """The blocks of one kind: seconds of each call by verb and block, and the server's load."""

    calls: dict[str, list[list[float]]] = field(
        default_factory=lambda: {verb: list[list[float]]() for verb in VERBS}
    )
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def p99s(self, verb: str) -> list[float]:
        """The p99 of each block, milliseconds."""
        return [percentiles(block)[1] for block in self.calls[verb]]

    def percentiles(self, verb: str) -> tuple[float, float, float]:
        """Median, p99 and maximum of all calls of a verb, milliseconds."""
        return percentiles([seconds for block in self.calls[verb] for seconds in block])

    def count(self, verb: str) -> int:
        """Number of calls of a verb."""
        return sum(map(len, self.calls[verb]))

    @property
    def cores(self) -> float:
        """Processor time of the server by second."""
        return self.cpu_s / self.wall_s


@contextmanager
def _filled(
    cluster: Cluster, load: Load, *, seed: int, advance: Callable[[], None]
) -> Iterator[tuple[int, int, Connection, int]]:
    """An extender process of that cluster: its port, its id, a connection, how many pods it has."""
    port = free_port()
    arguments = ["serve", "--cluster", cluster.spec, "--listen-port", str(port)]
    with serve("extender", arguments, port) as process_id:
        connection = Connection(port)
        n_pods = fill_cluster(connection, cluster, load, seed=seed, advance=advance)
        yield port, process_id, connection, n_pods
        connection.close()


@contextmanager
def _reader(port: int, rounds: list[dict[str, float]]) -> Iterator[None]:
    """Run the reader beside the block, and keep what it reports."""
    command = [sys.executable, "-m", "benchmarks.speed.reader", "--port", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(tethered(command), stdin=pipe, stdout=pipe) as process:  # noqa: S603 - our own module
        try:
            time.sleep(1.0)  # its interpreter starts
            yield
            said, _ = process.communicate(b"\n", timeout=120)
        finally:
            process.kill()
    rounds.append(json.loads(said))


def run(
    reads: ReadsLoad = FULL_READS, *, seed: int = 0, advance: Callable[[], None] = lambda: None
) -> tuple[ResultTable, ...]:
    """Measure the kinds of blocks in turn."""
    load = reads.load
    cluster = lay_out_cluster(load)
    names = cluster.requested[: load.n_names[0]]
    kinds = {pace: {kind: _Blocks() for kind in Kind} for pace in PACES}
    rounds: list[dict[str, float]] = []
    filled = partial(_filled, cluster, load, seed=seed, advance=advance)
    with filled() as (other, _, _, _), filled() as (port, process_id, connection, n_pods):
        # Shapes are known from here on, and the reader's first round has made what it keeps.
        measure_calls(connection, names, draw_pods(load.n_requests, seed))
        before_mib = resident_mib(process_id)[0]
        for one in (port, other):
            with _reader(one, []):
                advance()
        besides: dict[Kind, Callable[[], AbstractContextManager[None]]] = {
            Kind.ALONE: nullcontext,
            Kind.BESIDE: partial(_reader, port, rounds),
            Kind.AGAIN: nullcontext,
            Kind.ELSEWHERE: partial(_reader, other, []),
        }
        for i in range(reads.n_turns):
            pods = draw_pods(reads.n_pods, seed + 1 + i)
            for pace, every_s in PACES.items():
                call = partial(measure_calls, connection, names, pods, every_s=every_s)
                for kind, beside in besides.items():
                    with beside():
                        _measure(kinds[pace][kind], call, process_id)
                advance()
        after_mib = resident_mib(process_id)[0]
    size_mb, seconds = (median(one[key] for one in rounds) for key in ("bytes", "seconds"))
    notes = (
        (
            f"{len(cluster.requested) + len(cluster.full)} nodes, {n_pods} GPU pods bound; "
            f"requests of {len(names)} names"
        ),
        f"{reads.n_turns} blocks of {reads.n_pods} pods of each kind, in turns, one process",
        (
            f"reader: everything each second, {size_mb / 1e6:.1f} MB in {seconds:.2f} s, "
            f"{sum(one['rounds'] for one in rounds):.0f} rounds; without entity tags"
        ),
        *(
            _spread(f"{verb}, {pace}", verb, blocks)
            for pace, blocks in kinds.items()
            for verb in VERBS
        ),
        *(
            f"the extender's processor, {pace}, cores: "
            + ", ".join(f"{kind.value} {one.cores:.2f}" for kind, one in blocks.items())
            for pace, blocks in kinds.items()
        ),
        (
            f"the extender's memory: {before_mib:.0f} MiB resident before anything was read, "
            f"{after_mib:.0f} MiB after"
        ),
        "client, reader and server share the machine's cores; the reader has the lowest priority",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "p50 / no reader", "p99 / no reader")
    rows = tuple(row for pace, blocks in kinds.items() for row in _rows(pace, blocks))
    return (ResultTable("Calls beside a reader of everything", columns, rows, notes),)


def _rows(pace: str, kinds: Mapping[Kind, _Blocks]) -> Iterator[tuple[Cell, ...]]:
    for verb in VERBS:
        alone = kinds[Kind.ALONE].percentiles(verb)
        for kind, blocks in kinds.items():
            found = blocks.percentiles(verb)
            ratios = [b / a for a, b in zip(alone, found, strict=True)]
            yield f"{verb}, {pace}, {kind.value}", blocks.count(verb), *found, ratios[0], ratios[1]


def _measure(blocks: _Blocks, call: Callable[[], dict[str, CallTimes]], process_id: int) -> None:
    cpu_before, begin_s = cpu_s(process_id), time.monotonic()
    measured = call()
    blocks.wall_s += time.monotonic() - begin_s
    blocks.cpu_s += cpu_s(process_id) - cpu_before
    for verb in VERBS:
        blocks.calls[verb].append(measured[verb].every)


def _spread(title: str, verb: str, kinds: Mapping[Kind, _Blocks]) -> str:
    alone = kinds[Kind.ALONE].p99s(verb)
    parts: list[str] = []
    for kind in list(Kind)[1:]:
        ratios = sorted(b / a for a, b in zip(alone, kinds[kind].p99s(verb), strict=True))
        parts.append(
            f"{kind.value} {ratios[0]:.2f} to {ratios[-1]:.2f}, median {median(ratios):.2f} times"
        )
    return (
        f"{title}: p99 of the blocks without a reader {min(alone):.2f} to {max(alone):.2f} ms; "
        f"the blocks after them {', '.join(parts)} that of the one before"
    )
