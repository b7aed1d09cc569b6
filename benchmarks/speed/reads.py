"""What a client that reads everything each second costs the scheduler's calls.

One extender process with 5,000 nodes and 40,000 pods answers filter and prioritize over one
connection as in `benchmarks.speed.calls`, in blocks: alone, beside `benchmarks.speed.reader`, and
alone again. The blocks take turns, so that what else the machine does meets all alike. What the
third kind differs from the first by is what the machine does, and a ratio within that is no
difference that was measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.process_usage import resident_mib
from benchmarks.report import ResultTable
from benchmarks.speed.calls import draw_pods, filled_extender, lay_out, measure_calls
from benchmarks.speed.load import percentiles
from benchmarks.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.report import Cell
    from benchmarks.speed.load import Load

__all__ = ["KINDS", "PACES", "run"]

PACES = {"100 pods a second": 0.01, "back to back": 0.0}
"""Seconds from pod to pod. kube-scheduler works between calls itself; back to back they take all
that one event loop can do, so that whatever else it does makes them slower."""
KINDS = ("no reader", "a reader", "none again")
"""What is beside a block, in the order of a turn."""


@contextmanager
def _reader(port: int, rounds: list[dict[str, float]]) -> Iterator[None]:
    """Run the reader beside the block, and keep what it reports."""
    command = [sys.executable, "-m", "benchmarks.speed.reader", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(tethered(command), stdin=pipe, stdout=pipe) as process:  # noqa: S603 - our own module
        try:
            time.sleep(1.0)  # its interpreter starts
            yield
            said, _ = process.communicate(b"\n", timeout=120)
        finally:
            process.kill()
    rounds.append(json.loads(said))


def run(load: Load, *, seed: int = 0) -> tuple[ResultTable, ...]:
    """Measure the kinds of blocks in turn."""
    cluster = lay_out(load)
    names = cluster.requested[: load.n_names[0]]
    calls: dict[tuple[str, str, str], list[float]] = {}
    rounds: list[dict[str, float]] = []
    with filled_extender(cluster, load, seed=seed) as extender:
        # Shapes are known from here on, and the reader's first round has made what it keeps.
        measure_calls(extender.connection, names, draw_pods(load.n_requests, seed))
        before_mib = resident_mib(extender.process_id)[0]
        with _reader(extender.port, []):
            pass
        for i in range(load.n_turns):
            pods = draw_pods(load.n_beside, seed + 1 + i)
            for pace, every_s in PACES.items():
                for kind in KINDS:
                    beside = _reader(extender.port, rounds) if kind == KINDS[1] else nullcontext()
                    with beside:
                        measured = measure_calls(extender.connection, names, pods, every_s=every_s)
                    for verb, seconds in measured.items():
                        calls.setdefault((verb, pace, kind), []).extend(seconds)
        after_mib = resident_mib(extender.process_id)[0]
    rows: list[tuple[Cell, ...]] = []
    for (verb, pace, kind), seconds in sorted(calls.items(), key=_row_order):
        alone, found = percentiles(calls[verb, pace, KINDS[0]]), percentiles(seconds)
        ratios = [b / a for a, b in zip(alone, found, strict=True)][:2]
        rows.append((f"{verb}, {pace}, {kind}", len(seconds), *found, *ratios))
    size_mb, round_s = (median(one[key] for one in rounds) for key in ("bytes", "seconds"))
    notes = (
        (
            f"{len(cluster.requested) + len(cluster.full)} nodes, {extender.n_pods} GPU pods "
            f"bound; requests of {len(names)} names"
        ),
        f"{load.n_turns} blocks of {load.n_beside} pods of each kind, in turns, one process",
        (
            f"reader: everything each second, {size_mb / 1e6:.1f} MB in {round_s:.2f} s, "
            f"{sum(one['rounds'] for one in rounds):.0f} rounds; without entity tags"
        ),
        (
            f"the extender's memory: {before_mib:.0f} MiB resident before anything was read, "
            f"{after_mib:.0f} MiB after"
        ),
        "client, reader and server share the machine's cores; the reader has the lowest priority",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "p50 / no reader", "p99 / no reader")
    return (ResultTable("Calls beside a reader of everything", columns, tuple(rows), notes),)


def _row_order(row: tuple[tuple[str, str, str], list[float]]) -> tuple[int, str, int]:
    verb, pace, kind = row[0]
    return list(PACES).index(pace), verb, KINDS.index(kind)
