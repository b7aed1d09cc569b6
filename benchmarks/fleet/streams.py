"""Streams of alike pods on fleets of several machine types: what the order of nodes does.

Shows which machines a stream of pods takes where nodes are compared by loss (how far a set is from
its own machine's best) and where they are compared by GB/s (`prefer: fastest`). By the value model:
these fleets were not measured.

- Ties: 2-GPU pods on empty H100 and V100 machines. Every pair is its machine's best, so loss is 0
  everywhere, and what a pair costs the rest of its machine, times what a GPU of it is worth,
  decides. Nothing here is for loss to decide; the stream is there to say so.
- Mixed: 1- and 2-GPU pods on empty H100, V100 and T4 machines, then 8-GPU jobs that want the
  fastest machines (`prefer: fastest`). The scenario is made to show whether small pods leave these
  whole.
- Broken quads: 4-GPU pods, then 3-GPU pods, on A6000 machines and on V100 machines on which one GPU
  of each quad is taken, so that no four GPUs left form a quad. Four of them are still a little
  faster than four A6000s at their best: GB/s and loss disagree. The scenario is made to show that
  disagreement and what it costs the pods that come next; it says nothing on how often it occurs.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.fleet.node_choice import CoterieNodes, FleetPolicy, MachineType, MostAllocated
from benchmarks.fleet.state import Fleet
from benchmarks.fleet.trace import TracePod
from benchmarks.report import ResultTable
from benchmarks.rivals import NvidiaBestEffort
from topology.annotations import PlacementPolicy, Prefer
from topology.recordings import load_recording
from topology.select import build_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.report import Cell

__all__ = ["BY_LOSS", "BY_SPEED", "broken_quads", "mixed", "run", "ties"]

FAST, SLOW = "dgx-h100", "dgx-1-v100"
MIXED = (FAST, SLOW, "8x-t4")
BROKEN, WHOLE = "dgx-1-v100", "8x-a6000-bridged"
TAKEN = (0, 4)
"""One GPU of each quad of a DGX-1 (0-3 and 4-7)."""
BY_LOSS, BY_SPEED = "Coterie, nodes by loss", "Coterie, nodes by GB/s (prefer: fastest)"
FASTEST = PlacementPolicy(prefer=Prefer.FASTEST)


def _contestants() -> tuple[FleetPolicy, ...]:
    return (
        FleetPolicy("NVIDIA best-effort, most-allocated node", MostAllocated(), NvidiaBestEffort()),
        FleetPolicy(BY_SPEED, CoterieNodes(FASTEST)),
        FleetPolicy(BY_LOSS, CoterieNodes()),
    )


def _machine(name: str) -> MachineType:
    topology = load_recording(name)
    return MachineType(name, topology, build_tables(topology))


def _fleet(
    machines: Sequence[MachineType], policy: FleetPolicy, *, n_each: int, seed: int
) -> Fleet:
    # Alternating, so that the last tie-break (the node's place) favours neither type.
    return Fleet([(m, 0, 0) for _ in range(n_each) for m in machines], policy, seed=seed)


def _place(fleet: Fleet, size: int, n_pods: int) -> list[tuple[int, int]]:
    """Place pods of a size, none of which ends; those that fit nowhere are turned away."""
    placed = [fleet.place(TracePod("stream", 0, 0, size, None, None)) for _ in range(n_pods)]
    return [each for each in placed if each is not None]


def _n_taken(fleet: Fleet, machine: MachineType) -> int:
    """GPUs in use on all machines of a type."""
    return sum(machine.topology.n_gpus - n_free for n_free in fleet.free_gpus_of(machine))


def _n_whole(fleet: Fleet, machine: MachineType) -> int:
    """Machines of a type with no GPU in use."""
    return fleet.free_gpus_of(machine).count(machine.topology.n_gpus)


def _mean(figures: Sequence[float]) -> float | None:
    return fmean(figures) if figures else None


def _best_of(machine: MachineType, taken: Sequence[int], size: int) -> str:
    """What Coterie finds on one machine of a fleet: GB/s, loss and what the rest loses."""
    free = (1 << machine.topology.n_gpus) - 1
    for gpu in taken:
        free &= ~(1 << gpu)
    fit = CoterieNodes().fit(machine, free, size)
    if fit is None:
        return f"{machine.name} no fit"
    worst = fit.worst
    return (
        f"{machine.name} {worst.value_gbytes_per_s:.1f} GB/s, loss {worst.loss:.2f}, "
        f"remainder cost {fit.remainder_cost_gpus:.2f} GPU-equivalents, a GPU's worth "
        f"{machine.worth:.2f}"
    )


def ties(*, n_each: int, n_pods: int, seed: int) -> ResultTable:
    """Send 2-GPU pods to empty H100 and V100 machines, one order of nodes after another.

    Rows show who took the H100s, and how many machines are left whole for an 8-GPU pod.
    """
    machines = [_machine(name) for name in (FAST, SLOW)]
    rows: list[tuple[Cell, ...]] = []
    for policy in _contestants():
        fleet = _fleet(machines, policy, n_each=n_each, seed=seed)
        shares = [fleet.relative(*each) for each in _place(fleet, 2, n_pods)]
        taken = [_n_taken(fleet, machine) for machine in machines]
        whole = [_n_whole(fleet, machine) for machine in machines]
        rows.append((policy.name, fmean(shares), min(shares), *taken, *whole))
    columns = (
        "policy",
        "mean of best",
        "worst",
        "H100s taken",
        "V100s taken",
        "whole H100 machines",
        "whole V100 machines",
    )
    notes = (
        f"{n_pods} pods of 2 GPUs on {n_each} {FAST} and {n_each} {SLOW}, all empty",
        f"2 GPUs: {'; '.join(_best_of(m, (), 2) for m in machines)}",
        "equal loss leaves the choice to remainder cost times worth (not with prefer: fastest)",
        _OWN,
    )
    title = "A stream of 2-GPU pods on H100 and V100 machines: loss ties"
    return ResultTable(title, columns, tuple(rows), notes)


def mixed(*, n_each: int, n_pods: int, seed: int) -> ResultTable:
    """Send `n_pods` pods of 1 and of 2 GPUs in turn, then as many 8-GPU jobs as H100 machines.

    Rows show what the small pods took, and how many of the jobs got H100s.
    """
    machines = [_machine(name) for name in MIXED]
    fast = machines[0]
    rows: list[tuple[Cell, ...]] = []
    for policy in _contestants():
        fleet = _fleet(machines, policy, n_each=n_each, seed=seed)
        shares = [
            fleet.relative(*each)
            for _ in range(n_pods)
            for size in (1, 2)
            for each in _place(fleet, size, 1)
            if size > 1
        ]
        taken = [_n_taken(fleet, machine) for machine in machines]
        n_whole = _n_whole(fleet, fast)
        if isinstance(policy.nodes, CoterieNodes):
            fleet.policy = FleetPolicy(policy.name, CoterieNodes(FASTEST))
        jobs = _place(fleet, fast.topology.n_gpus, n_each)
        n_fast = sum(fleet.nodes[index].machine is fast for index, _ in jobs)
        rows.append((policy.name, fmean(shares), *taken, n_whole, n_fast, n_each - len(jobs)))
    columns = (
        "policy",
        "pairs: mean of best",
        "H100s taken",
        "V100s taken",
        "T4s taken",
        "whole H100 machines",
        "8-GPU jobs on H100",
        "8-GPU jobs: no fit",
    )
    notes = (
        f"{n_pods} pods of 1 GPU and {n_pods} of 2 in turn, then {n_each} jobs of 8 GPUs",
        f"{n_each} each of {', '.join(MIXED)}, all empty",
        *(f"2 GPUs: {_best_of(machine, (), 2)}" for machine in machines),
        "Coterie's 8-GPU jobs say prefer: fastest",
        _OWN,
    )
    title = "Small pods, then 8-GPU jobs on H100, V100 and T4 machines: what is left whole"
    return ResultTable(title, columns, tuple(rows), notes)


def broken_quads(*, n_each: int, n_pods: int, seed: int) -> ResultTable:
    """Send `n_pods` 4-GPU pods, then as many 3-GPU pods, to A6000 and broken V100 machines."""
    broken, whole = machines = [_machine(name) for name in (BROKEN, WHOLE)]
    gone = sum(1 << gpu for gpu in TAKEN)
    rows: list[tuple[Cell, ...]] = []
    for policy in _contestants():
        fleet = _fleet(machines, policy, n_each=n_each, seed=seed)
        for index in range(0, 2 * n_each, 2):
            fleet.occupy(index, gone)
        cells: list[Cell] = []
        for size in (4, 3):
            placed = _place(fleet, size, n_pods)
            cells += [
                sum(fleet.nodes[index].machine is broken for index, _ in placed),
                n_pods - len(placed),
                _mean([fleet.gbytes_per_s(*each) for each in placed]),
                _mean([fleet.relative(*each) for each in placed]),
            ]
        rows.append((policy.name, *cells))
    columns = (
        "policy",
        *(
            f"{size}-GPU pods: {what}"
            for size in (4, 3)
            for what in ("on V100", "no fit", "GB/s", "mean of best")
        ),
    )
    notes = (
        f"{n_pods} pods of 4 GPUs, then {n_pods} of 3",
        f"{n_each} {BROKEN} without GPUs {TAKEN[0]} and {TAKEN[1]}, {n_each} empty {WHOLE}",
        *(
            f"{size} GPUs: {_best_of(broken, TAKEN, size)}; {_best_of(whole, (), size)}"
            for size in (4, 3)
        ),
        "made to show where the two orders disagree, not how often they do",
        _OWN,
    )
    title = "Streams on V100 machines with broken quads and A6000 machines: loss and GB/s disagree"
    return ResultTable(title, columns, tuple(rows), notes)


_OWN = "GB/s and mean of best are by Coterie's own value model: these fleets were not measured"


def run(*, seed: int = 0) -> tuple[ResultTable, ...]:
    """Run all streams."""
    return (
        ties(n_each=10, n_pods=40, seed=seed),
        mixed(n_each=4, n_pods=16, seed=seed),
        broken_quads(n_each=10, n_pods=12, seed=seed),
    )
