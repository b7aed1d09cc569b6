"""Speed of one rating on machines of more than 16 devices.

Filter has a budget for all ratings of a call, and one rating cannot be interrupted: a search is
begun only while half the default budget is left (ADR 0024), and this is how long it may take.
Machines have random links, which no maker builds but an annotation may name. The slowest of them
are searched for: every second draw varies the slowest one that was found.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import ResultTable
from benchmarks.speed.load import percentiles, reference_loop
from topology.annotations import Affinity, PlacementPolicy
from topology.model import NO_LINK, AcceleratorLink, Gpu, LinkKind, NodeTopology, PcieLevel
from topology.select import ContainerRequest, build_machine, fit_pod

if TYPE_CHECKING:
    from benchmarks.speed.load import Load

__all__ = ["Draw", "drawn_machine", "measure_large"]

MODEL = "Tesla V100-SXM2-32GB"


@dataclass(frozen=True, slots=True)
class Draw:
    """A machine with random links, and a request for it.

    Each pair has links with the probability `density`, 1 to `most_links` of them. `n_containers` of
    the pod request `size` GPUs each, as many as the machine has GPUs for.
    """

    n_gpus: int
    density: float
    most_links: int
    n_sockets: int
    size: int
    affinity: Affinity
    n_containers: int
    seed: int


def drawn_machine(draw: Draw) -> NodeTopology:
    """The machine; it never changes for a draw."""
    rng = random.Random(draw.seed)
    n = draw.n_gpus
    links = [[NO_LINK] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            if rng.random() < draw.density:
                count = rng.randint(1, draw.most_links)
                links[i][j] = links[j][i] = AcceleratorLink(LinkKind.NVLINK, count)
    sockets = [i * draw.n_sockets // n for i in range(n)]
    near = {True: PcieLevel.NODE, False: PcieLevel.SYS}
    return NodeTopology(
        gpus=tuple(Gpu(model=MODEL, numa_node=socket) for socket in sockets),
        links=tuple(map(tuple, links)),
        pcie=tuple(
            tuple(PcieLevel.SELF if i == j else near[sockets[i] == sockets[j]] for j in range(n))
            for i in range(n)
        ),
    )


def measure_large(load: Load, seed: int) -> ResultTable:
    """Measure ratings on new machines, nothing of which is remembered.

    In processor time of the thread, as the extender's budget counts. Without garbage collection:
    the extender exempts what lives on, and here it would look at all machines drawn before.
    """
    loop_ms = 1000 * median(reference_loop() for _ in range(20))
    rng = random.Random(seed)
    slowest, most = _draw(rng), 0.0
    seconds: list[float] = []
    gc.disable()
    try:
        for number in range(load.n_draws):
            draw = _varied(rng, slowest) if number % 2 else _draw(rng)
            seconds.append(_rating_s(draw))
            if seconds[-1] > most:
                slowest, most = draw, seconds[-1]
    finally:
        gc.enable()
    notes = (
        "one rating: the best sets of a pod on a free machine whose topology is new",
        "a search is begun while half the default budget, 50 ms, is left",
        f"every second draw varies the slowest before it; slowest: {slowest}",
        f"reference loop: 100,000 additions in Python, {loop_ms:.2f} ms",
    )
    what = "random links, 17 to 64 GPUs, containers of up to 16"
    row = (what, len(seconds), *percentiles(seconds), 1000 * most / loop_ms)
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "max / reference loop")
    return ResultTable("One rating above 16 devices", columns, (row,), notes)


def _draw(rng: random.Random) -> Draw:
    return Draw(
        n_gpus=rng.randint(17, 64),
        density=rng.choice((0.05, 0.2, 0.5, 1.0)),
        most_links=rng.choice((1, 2, 4, 18)),
        n_sockets=rng.choice((1, 2, 4, 8)),
        size=rng.choice((2, 3, 4, 6, 8, 12, 16)),
        affinity=rng.choice((Affinity.ANY, Affinity.NVLINK, Affinity.NUMA)),
        n_containers=rng.choice((1, 1, 2, 4, 8)),
        seed=rng.getrandbits(32),
    )


def _varied(rng: random.Random, draw: Draw) -> Draw:
    """The draw with one of its facts drawn again, and other links."""
    other = _draw(rng)
    names = ("n_gpus", "density", "most_links", "n_sockets", "size", "affinity", "n_containers")
    name = rng.choice(names)
    changes = {name: getattr(other, name), "seed": other.seed}
    return replace(draw, **changes)


def _rating_s(draw: Draw) -> float:
    machine = build_machine(drawn_machine(draw))
    n_containers = max(1, min(draw.n_containers, draw.n_gpus // draw.size))
    requests = tuple(ContainerRequest(str(i), draw.size) for i in range(n_containers))
    policy = PlacementPolicy(affinity=draw.affinity)
    start = time.thread_time()
    fit_pod(machine, available=machine.all_gpus, requests=requests, policy=policy)
    return time.thread_time() - start
