"""Efficiency: how near each policy's choice comes to the best that was measured.

The figure is measured(chosen) / best measured over every free set with at least k GPUs, as the mean
per k of 2..5, then over k. It is the mean of 20 random relabellings of the node, with the worst
single case beside it. The measured bandwidth judges; a policy sees labels, or the node's measured
pairs where its row says so.

Conventions. A policy that refuses (MAPA's preserve) is averaged over what it accepts, and its
refusals are counted. "random" is the exact expectation, its worst case the worst set that it may
draw.

What is ours: the constants of the value model and its stated errors were fitted on these same nodes
(`benchmarks.quality.fidelity` holds each node out in turn). NVIDIA's rule counts PCIe levels, which
`topo -m` hides behind NV#; where a recorded machine has them, a row of its own has them filled
in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.coterie import prepare_coterie
from benchmarks.masks import subsets_of_size
from benchmarks.measured import (
    SOURCE_NOTE,
    fill_levels,
    relabel_machine,
    relabel_topology,
    with_measured_pairs,
)
from benchmarks.report import ResultTable
from benchmarks.rivals import (
    MAPA_GREEDY,
    MAPA_PRESERVE,
    NVIDIA_BEST_EFFORT,
)
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.measured import MeasuredMachine
    from benchmarks.report import Cell
    from benchmarks.rivals import Chooser

__all__ = ["SIZES", "CaseTable", "Efficiency", "expectation", "measure", "run"]

SIZES = (2, 3, 4, 5)
N_RELABELLINGS = 20
RANDOM = "random (exact expectation)"
LABELS = "Coterie, labels"
MEASURED_PAIRS = "Coterie, measured pairs"
FILLED = f"{NVIDIA_BEST_EFFORT.name}, PCIe levels filled in"
LEVELS_OF = {"V100": "dgx-1-v100"}
"""The recorded machine that has a measured one's hidden PCIe levels, where one has its links."""
RIVALS = (NVIDIA_BEST_EFFORT, MAPA_GREEDY, MAPA_PRESERVE)
"""In the order of the table; the plain kubelet's random choice is there as its expectation."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Mean over sizes of the mean over free sets; the worst case; how often it refused."""

    mean: float
    worst: float
    n_refused: int


class CaseTable:
    """Every (free set, size) of a machine, with the best measured bandwidth inside."""

    def __init__(self, machine: MeasuredMachine) -> None:
        self.machine = machine
        n = machine.topology.n_gpus
        self.best = {
            size: {
                free: max(machine.gbytes_per_s[s] for s in subsets_of_size(free, size))
                for free in range(1 << n)
                if free.bit_count() >= size
            }
            for size in SIZES
        }


def measure(cases: CaseTable, choose: Callable[[int, int], int | None]) -> Efficiency:
    """Judge one policy on one labelling of a machine; `choose(free, size)` may refuse (None)."""
    measured = cases.machine.gbytes_per_s
    means: list[float] = []
    worst = 1.0
    n_refused = 0
    for size, best in cases.best.items():
        shares = [
            measured[chosen] / best_here
            for free, best_here in best.items()
            if (chosen := choose(free, size)) is not None
        ]
        n_refused += len(best) - len(shares)
        if shares:
            means.append(fmean(shares))
            worst = min(worst, *shares)
    return Efficiency(fmean(means), worst, n_refused)


def expectation(cases: CaseTable, candidates: Callable[[int, int], Sequence[int]]) -> Efficiency:
    """Judge a policy that draws evenly from `candidates(free, size)`; worst over all draws."""
    measured = cases.machine.gbytes_per_s
    means: list[float] = []
    worst = 1.0
    for size, best in cases.best.items():
        shares: list[float] = []
        for free, best_here in best.items():
            drawn = [measured[mask] / best_here for mask in candidates(free, size)]
            shares.append(fmean(drawn))
            worst = min(worst, *drawn)
        means.append(fmean(shares))
    return Efficiency(fmean(means), worst, 0)


def _average(results: Sequence[Efficiency]) -> Efficiency:
    return Efficiency(
        fmean(r.mean for r in results),
        min(r.worst for r in results),
        sum(r.n_refused for r in results),
    )


def _contestants(machine: MeasuredMachine) -> dict[str, Chooser]:
    return {
        **{rival.name: rival.prepare(machine.topology) for rival in RIVALS},
        LABELS: prepare_coterie(machine.topology),
        MEASURED_PAIRS: prepare_coterie(with_measured_pairs(machine)),
    }


def _judge(machine: MeasuredMachine, *, n_relabellings: int, seed: int) -> dict[str, Efficiency]:
    """Judge every policy on one machine."""
    rng = random.Random(seed)
    like = LEVELS_OF.get(machine.name)
    filled = None if like is None else fill_levels(machine.topology, load_recording(like))
    results: dict[str, list[Efficiency]] = {}
    for _ in range(n_relabellings):
        order = list(range(machine.topology.n_gpus))
        rng.shuffle(order)
        relabelled = relabel_machine(machine, order)
        cases = CaseTable(relabelled)
        contestants = _contestants(relabelled)
        if filled is not None:
            contestants[FILLED] = NVIDIA_BEST_EFFORT.prepare(relabel_topology(filled, order))
        for name, chooser in contestants.items():

            def choose(free: int, size: int, chooser: Chooser = chooser) -> int | None:
                return chooser(free, size, rng)

            results.setdefault(name, []).append(measure(cases, choose))
    averages = {name: _average(of_each) for name, of_each in results.items()}
    cases = CaseTable(machine)
    averages[RANDOM] = expectation(cases, subsets_of_size)
    return averages


def _cells(found: Efficiency | None) -> tuple[Cell, Cell]:
    return (None, None) if found is None else (found.mean, found.worst)


def run(
    machines: Sequence[MeasuredMachine], *, n_relabellings: int = N_RELABELLINGS, seed: int = 0
) -> tuple[ResultTable, ...]:
    """Judge every policy on every machine."""
    judged = [_judge(machine, n_relabellings=n_relabellings, seed=seed) for machine in machines]
    names = [RANDOM, *(rival.name for rival in RIVALS), LABELS, MEASURED_PAIRS]
    if any(FILLED in of for of in judged):
        names.insert(names.index(NVIDIA_BEST_EFFORT.name) + 1, FILLED)
    columns = ["policy"]
    for machine in machines:
        columns += [f"{machine.name} mean", "worst"]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, *(cell for of in judged for cell in _cells(of.get(name)))) for name in names
    )
    refused = ", ".join(
        f"{m.name} {of[MAPA_PRESERVE.name].n_refused}"
        for m, of in zip(machines, judged, strict=True)
    )
    notes = (
        SOURCE_NOTE,
        "measured(chosen) / best measured, over every free set with at least k GPUs",
        f"mean per k of 2..5, then over k; mean of {n_relabellings} relabellings (seed {seed})",
        "worst: the worst single case of all relabellings",
        f"cases that {MAPA_PRESERVE.name} refused, left out of its mean: {refused}",
        *(
            f"{FILLED}: those of {LEVELS_OF[m.name]}, which has {m.name}'s links"
            for m in machines
            if m.name in LEVELS_OF
        ),
        "NV# hides a pair's PCIe level: elsewhere NVIDIA's rule gets no points for it",
        "Coterie's constants and stated errors were fitted on these nodes; held out: `fidelity`",
    )
    return (ResultTable("Efficiency", tuple(columns), rows, notes),)
