"""Speed of the core: building a machine's tables, and answers that are not cached.

Times are milliseconds, beside those of a fixed Python loop in the same run. Machines are recordings
of 8 and 16 GPUs, and a 4 x 4 torus as the hard case: many unequal sets, many cuts. Pods of several
containers are fitted to partly taken nodes of 16 GPUs, starting from fresh tables: what the first
node leaves in memory for the next ones is in the figures, as it is in an extender.
"""

from __future__ import annotations

import random
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import ResultTable
from benchmarks.speed.load import MACHINES, percentiles, reference_loop
from topology.annotations import Affinity, PlacementPolicy
from topology.model import NO_LINK, AcceleratorLink, Gpu, LinkKind, NodeTopology, PcieLevel, mask_of
from topology.recordings import load_recording
from topology.select import ContainerRequest, build_tables, fit_pod, select_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report import Cell
    from benchmarks.speed.load import Load

__all__ = ["measure_core", "torus"]

SIXTEEN = "dgx-2"
PODS = ((4, 4), (2, 2, 2, 2))
"""GPUs of each container of the pods with several."""
N_FITS = 300
MOST_TAKEN = 7


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


def measure_core(load: Load, seed: int) -> ResultTable:
    """Measure tables, selections and fits."""
    loop_ms = 1000 * median(reference_loop() for _ in range(20))
    rows: list[tuple[Cell, ...]] = []

    def add(title: str, seconds: list[float]) -> None:
        p50, p99, most = percentiles(seconds)
        rows.append((title, len(seconds), p50, p99, most, p50 / loop_ms))

    machines = [load_recording(name) for name in (*MACHINES, SIXTEEN)] + [torus(4, 2)]
    for topology in machines:
        build_tables(topology)
        n_builds = load.n_builds if topology.n_gpus <= 8 else max(3, load.n_builds // 6)
        seconds = [_timed(partial(build_tables, topology)) for _ in range(n_builds)]
        add(f"tables of {topology.name}, {topology.n_gpus} GPUs", seconds)
    for topology, size in ((machines[0], 4), (machines[-2], 8), (machines[-1], 8)):
        seconds = _selections(topology, size, load.n_selections, seed)
        add(f"selection of {size} in {topology.name}, {topology.n_gpus} GPUs", seconds)
    n_fits = min(N_FITS, load.n_selections)
    for sizes in PODS:
        seconds = _fits(machines[-2], sizes, n_fits, seed)
        add(f"pod of {list(sizes)} on a {SIXTEEN}, 1 to {MOST_TAKEN} GPUs taken", seconds)
    notes = (
        f"reference loop: 100,000 additions in Python, {loop_ms:.2f} ms",
        "selections: three in four with every GPU free; no two are the same",
        f"pods: a container for each number; no two of the {n_fits} nodes alike",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "p50 / reference loop")
    return ResultTable("Speed of the core", columns, tuple(rows), notes)


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _selections(topology: NodeTopology, size: int, n: int, seed: int) -> list[float]:
    tables = build_tables(topology)
    rng = random.Random(seed)
    everything = (1 << topology.n_gpus) - 1
    seen: set[tuple[int, float]] = set()
    seconds: list[float] = []
    while len(seconds) < n:
        # The whole machine free is the most work; a bandwidth floor makes each policy a new one.
        n_taken = rng.choice((0, 0, 0, rng.randrange(topology.n_gpus - size + 1)))
        free = everything & ~mask_of(rng.sample(range(topology.n_gpus), n_taken))
        floor = round(rng.uniform(1.0, 9.0), 6)
        if (free, floor) in seen:
            continue
        seen.add((free, floor))
        affinity = rng.choice((Affinity.ANY, Affinity.NVLINK, Affinity.NONE))
        policy = PlacementPolicy(affinity=affinity, min_bandwidth_gbytes_per_s=floor)
        must = free & -free if n_taken else 0
        start = time.perf_counter()
        select_set(tables, available=free, must_include=must, size=size, policy=policy)
        seconds.append(time.perf_counter() - start)
    return seconds


def _fits(topology: NodeTopology, sizes: tuple[int, ...], n: int, seed: int) -> list[float]:
    """Seconds of a pod's fit on each of `n` node states, all different, none cached."""
    tables = build_tables(topology)
    requests = tuple(ContainerRequest(f"c{i}", size) for i, size in enumerate(sizes))
    rng = random.Random(seed)
    everything = (1 << topology.n_gpus) - 1
    seen: set[int] = set()
    seconds: list[float] = []
    while len(seconds) < n:
        taken = mask_of(rng.sample(range(topology.n_gpus), rng.randint(1, MOST_TAKEN)))
        if taken in seen:
            continue
        seen.add(taken)
        start = time.perf_counter()
        fit_pod(tables, available=everything & ~taken, requests=requests)
        seconds.append(time.perf_counter() - start)
    return seconds
