"""Speed of the choice of nodes for a group, on a cluster of 5,000 nodes.

Measures `topology.groups` alone: what each node takes is an argument, as the extender has it from
its ratings. Four tiers: 8 nodes a leaf, 32 a spine, 256 a core switch, and all. Nodes are free or
taken at random, at several shares of taken ones. In processor time of the thread, without garbage
collection, as the other figures of one rating.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import ResultTable
from benchmarks.speed.load import percentiles, reference_loop
from topology.groups import (
    DomainPath,
    DomainStep,
    GroupDemand,
    MemberShape,
    WaitingGroup,
    build_tree,
    choose_nodes,
    keep_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report import Cell
    from topology.groups import DomainTree

__all__ = ["FULL_CHOICES", "QUICK_CHOICES", "ChoiceLoad", "measure_choice"]

GPUS = 8
TIERS = (("leaf", 8), ("spine", 32), ("core", 256))
TAKEN = (0.3, 0.7, 0.9, 0.95)
PARTLY_FREE = (0, 0, 0, 0, 1, 2, 3, 4)
"""Free GPUs of a taken node, drawn from these."""
GROUPS: tuple[tuple[tuple[int, int], ...], ...] = (
    ((4, 8),),
    ((64, 8),),
    ((64, 4),),
    ((64, 2),),
    ((64, 1),),
    ((512, 8),),
    ((512, 1),),
    ((32, 8), (16, 4), (16, 1)),
    ((256, 4), (128, 2), (128, 1)),
)
"""Groups as (members, GPUs of each) by shape."""


@dataclass(frozen=True, slots=True)
class ChoiceLoad:
    """Nodes, and states of the cluster for each share of taken nodes."""

    n_nodes: int
    n_states: int


FULL_CHOICES = ChoiceLoad(n_nodes=5000, n_states=100)
QUICK_CHOICES = ChoiceLoad(n_nodes=600, n_states=3)


def _paths(n_nodes: int) -> dict[str, DomainPath]:
    return {
        f"node-{i}": DomainPath(
            tuple(DomainStep(level, "speed", f"{level}-{i // size}") for level, size in TIERS)
        )
        for i in range(n_nodes)
    }


def measure_choice(load: ChoiceLoad, seed: int) -> ResultTable:
    """Measure choices on states that are all different; a refusal is a choice too."""
    loop_ms = 1000 * median(reference_loop() for _ in range(20))
    paths = _paths(load.n_nodes)
    rng = random.Random(seed)
    rows: list[tuple[Cell, ...]] = []

    def add(title: str, seconds: list[float]) -> None:
        p50, p99, most = percentiles(seconds)
        rows.append((title, len(seconds), p50, p99, most, most / loop_ms))

    gc.disable()
    try:
        builds = [_timed(lambda: build_tree(paths)) for _ in range(5)]
        tree = build_tree(paths)
        add(f"tree of {load.n_nodes} nodes, once for each change of labels", builds)
        states = [_free(rng, share, load) for share in TAKEN for _ in range(load.n_states)]
        for shapes in GROUPS:
            title = " + ".join(f"{n} x {size}" for n, size in shapes)
            add(f"{title} GPUs", [_choice_seconds(tree, shapes, free) for free in states])
        keeps = [_keep_seconds(tree, free) for free in states[: load.n_states]]
        add("nodes that three groups of 64 x 8 GPUs begin to keep", keeps)
    finally:
        gc.enable()
    shares = ", ".join(f"{share:.0%}" for share in TAKEN)
    notes = (
        f"{load.n_nodes} nodes of {GPUS} GPUs, {shares} of them taken, {load.n_states} states each",
        "goals: p99 of 10 ms for 64 members of one shape, of 40 ms for 64 of several",
        f"reference loop: 100,000 additions in Python, {loop_ms:.2f} ms",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "max / reference loop")
    return ResultTable("Speed of the choice of nodes", columns, tuple(rows), notes)


def _free(rng: random.Random, share: float, load: ChoiceLoad) -> list[int]:
    return [rng.choice(PARTLY_FREE) if rng.random() < share else GPUS for _ in range(load.n_nodes)]


def _shape(n_members: int, size: int, free: list[int]) -> MemberShape:
    fits = [one // size for one in free]
    return MemberShape(n_members, size, fits, [GPUS // size] * len(free))


def _choice_seconds(
    tree: DomainTree, shapes: tuple[tuple[int, int], ...], free: list[int]
) -> float:
    demand = GroupDemand(
        tuple(_shape(n, size, free) for n, size in shapes),
        free_gpus=free,
        gpus=[GPUS] * len(free),
        costs=[float(GPUS - one) for one in free],
    )
    return _timed(lambda: choose_nodes(tree, demand))


def _keep_seconds(tree: DomainTree, free: list[int]) -> float:
    waiting = [WaitingGroup(str(i), 1.0, _shape(64, GPUS, free), "any") for i in range(4)]
    return _timed(lambda: keep_nodes(tree, waiting, {}, patience_s=0.0))


def _timed(action: Callable[[], object]) -> float:
    start = time.thread_time()
    action()
    return time.thread_time() - start
