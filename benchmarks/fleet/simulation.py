"""Fleet: a cluster trace on recorded machines, by choice of node and choice of set.

Reports, on the openb trace, how much of its machine's best bandwidth each multi-GPU pod gets (by
the value model: these machines were not measured), and how many free GPUs are stranded for pods of
each size. The choice of node and the choice of set are separated by pairing NVIDIA's allocation
with either choice of node.

- Timed: the default trace; pods come and go at their recorded times, a pod that does not fit waits.
  Without its fractional pods it holds few GPUs at once, so the fleet is thinned to match.
- Filled: the multi-GPU trace; pods come in shuffled order and stay, one that does not fit is turned
  away.

Streams on two machine types, where loss and GB/s order nodes otherwise: `benchmarks.fleet.streams`.

What "stranded" means and where pods without GPUs go: `benchmarks.fleet.state`.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from statistics import fmean, harmonic_mean, median
from typing import TYPE_CHECKING

from benchmarks.fleet.node_choice import CoterieNodes, FleetPolicy, MachineType, MostAllocated
from benchmarks.fleet.state import SIZES, Fleet
from benchmarks.fleet.trace import RECORDINGS, TracePod, recording_of
from benchmarks.report import ResultTable
from benchmarks.rivals import NvidiaBestEffort, PlainKubelet
from topology.select import build_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.fleet.trace import TraceNode, TracePods
    from benchmarks.report import Cell

__all__ = [
    "Outcome",
    "Traces",
    "fill",
    "machine_types",
    "peak_demand",
    "play",
    "run",
    "thin",
]

N_REPEATS = 10
HEADROOM = 1.1
"""GPUs of the thinned fleet over the timed trace's peak demand."""


def _fleet_policies() -> tuple[FleetPolicy, ...]:
    """Fresh policies, in the order of the tables."""
    return (
        FleetPolicy("plain kubelet, most-allocated node", MostAllocated(), PlainKubelet()),
        FleetPolicy("NVIDIA best-effort, most-allocated node", MostAllocated(), NvidiaBestEffort()),
        FleetPolicy("NVIDIA best-effort, Coterie's node", CoterieNodes(), NvidiaBestEffort()),
        FleetPolicy("Coterie", CoterieNodes()),
    )


@dataclass(slots=True)
class Outcome:
    """What a run left: shares of the machine's best, pods that waited or never fitted."""

    relative: list[float] = field(default_factory=list)
    n_placed: int = 0
    n_waited: int = 0
    unplaced: dict[int, int] = field(default_factory=lambda: dict.fromkeys((0, *SIZES), 0))
    stranded: dict[int, float] = field(default_factory=lambda: dict.fromkeys(SIZES, 0.0))
    free_gpus: float = 0.0


class _Playback:
    """A timed trace on a fleet: who runs until when, who waits, and means over time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._outcome = Outcome()
        self._ends: list[tuple[int, int, TracePod, int, int]] = []
        self._waiting: list[tuple[int, TracePod]] = []
        self._now = 0
        self._area = dict.fromkeys(SIZES, 0.0)
        self._free_area = 0.0

    def run(self, pods: Sequence[TracePod]) -> Outcome:
        arrivals = sorted((pod.created_s or 0, n) for n, pod in enumerate(pods))
        start = self._now = arrivals[0][0]
        for time, n in arrivals:
            self._end_until(time)
            self._move_to(time)
            if not self._admit(n, pods[n]):
                self._outcome.n_waited += 1
                self._waiting.append((n, pods[n]))
        for _, pod in self._waiting:
            self._outcome.unplaced[pod.n_gpus] += 1
        span = max(self._now - start, 1)
        self._outcome.stranded = {size: self._area[size] / span for size in SIZES}
        self._outcome.free_gpus = self._free_area / span
        return self._outcome

    def _admit(self, n: int, pod: TracePod) -> bool:
        placed = self._fleet.place(pod)
        if placed is None:
            return False
        index, gpus = placed
        self._outcome.n_placed += 1
        if pod.n_gpus > 1:
            self._outcome.relative.append(self._fleet.relative(index, gpus))
        heapq.heappush(self._ends, (pod.deleted_s or 0, n, pod, index, gpus))
        return True

    def _move_to(self, time: int) -> None:
        passed = time - self._now
        for size in SIZES:
            self._area[size] += passed * self._fleet.stranded[size]
        self._free_area += passed * self._fleet.n_free
        self._now = time

    def _end_until(self, time: int) -> None:
        while self._ends and self._ends[0][0] <= time:
            end, _, pod, index, gpus = heapq.heappop(self._ends)
            self._move_to(max(end, self._now))
            self._fleet.remove(pod, index, gpus)
            self._retry(end)

    def _retry(self, time: int) -> None:
        late = [entry for entry in self._waiting if (entry[1].deleted_s or 0) <= time]
        for _, pod in late:
            self._outcome.unplaced[pod.n_gpus] += 1
        left = [entry for entry in self._waiting if (entry[1].deleted_s or 0) > time]
        self._waiting = [entry for entry in left if not self._admit(*entry)]


def play(fleet: Fleet, pods: Sequence[TracePod]) -> Outcome:
    """Play a timed trace: a pod that does not fit waits, oldest first, until it would have ended.

    Stranding and free GPUs are means over time, up to the last arrival.
    """
    return _Playback(fleet).run(pods)


def fill(fleet: Fleet, pods: Sequence[TracePod]) -> Outcome:
    """Place pods in order, none of which ends; one that fits nowhere is turned away.

    Stranding and free GPUs are those at the end.
    """
    outcome = Outcome()
    for pod in pods:
        placed = fleet.place(pod)
        if placed is None:
            outcome.unplaced[pod.n_gpus] += 1
            continue
        outcome.n_placed += 1
        if pod.n_gpus > 1:
            outcome.relative.append(fleet.relative(*placed))
    outcome.stranded = {size: float(n) for size, n in fleet.stranded.items()}
    outcome.free_gpus = float(fleet.n_free)
    return outcome


def peak_demand(pods: Iterable[TracePod]) -> int:
    """Most GPUs that a timed trace's pods hold at once, were none of them to wait."""
    changes = [
        change
        for pod in pods
        for change in ((pod.deleted_s or 0, -pod.n_gpus), (pod.created_s or 0, pod.n_gpus))
    ]
    held = most = 0
    for _, n_gpus in sorted(changes):
        held += n_gpus
        most = max(most, held)
    return most


def thin(nodes: Sequence[TraceNode], n_gpus: int, repeat: int) -> list[TraceNode]:
    """Take every n-th node so that some `n_gpus` are left; `repeat` moves the first one."""
    stride = max(1, sum(node.n_gpus for node in nodes) // max(n_gpus, 1))
    return list(nodes[repeat * stride // N_REPEATS :: stride])


def machine_types(nodes: Iterable[TraceNode]) -> dict[tuple[str, int], MachineType]:
    """Make the tables of every recording that stands for one of the nodes."""
    types: dict[tuple[str, int], MachineType] = {}
    by_recording: dict[tuple[str, int], MachineType] = {}
    for model, n_gpus in sorted({(node.model, node.n_gpus) for node in nodes}):
        shared = (RECORDINGS[model], n_gpus)
        if shared not in by_recording:
            topology = recording_of(model, n_gpus)
            by_recording[shared] = MachineType(
                f"{RECORDINGS[model]}:{n_gpus}", topology, build_tables(topology)
            )
        types[model, n_gpus] = by_recording[shared]
    return types


def _median_single(pods: Iterable[TracePod]) -> tuple[int, int]:
    """CPU and memory of the median one-GPU pod."""
    singles = [pod for pod in pods if pod.n_gpus == 1]
    if not singles:
        return (0, 0)
    return (
        int(median(pod.cpu_milli for pod in singles)),
        int(median(pod.memory_mib for pod in singles)),
    )


def _bandwidth_row(name: str, outcomes: Sequence[Outcome]) -> tuple[Cell, ...]:
    shares = [share for outcome in outcomes for share in outcome.relative]
    if not shares:
        return (name, 0, None, None, None, None)
    return (
        name,
        len(shares),
        fmean(shares),
        harmonic_mean(shares) if min(shares) > 0 else 0.0,
        min(shares),
        100 * sum(share < 0.5 for share in shares) / len(shares),
    )


_BANDWIDTH_COLUMNS = ("policy", "pods", "mean of best", "harmonic", "worst", "below half, %")


def _refused_row(name: str, outcomes: Sequence[Outcome]) -> tuple[Cell, ...]:
    counts: list[Sequence[float]] = [
        [outcome.n_waited for outcome in outcomes],
        *([outcome.unplaced[size] for outcome in outcomes] for size in SIZES),
        [outcome.free_gpus for outcome in outcomes],
        *([outcome.stranded[size] for outcome in outcomes] for size in SIZES),
    ]
    return (name, *(fmean(figures) for figures in counts))


_REFUSED_COLUMNS = (
    "policy",
    "waited",
    *(f"no fit, {size}" for size in SIZES),
    "free GPUs",
    *(f"stranded, {size}" for size in SIZES),
)


def _notes(trace: TracePods, described: str, n_repeats: int) -> tuple[str, ...]:
    n_multi = sum(pod.n_gpus > 1 for pod in trace.pods)
    return (
        f"{described}; {n_repeats} repeats with other draws, counts are means",
        f"{len(trace.pods)} pods, {n_multi} of them with 2 or more GPUs",
        f"{trace.n_fractional} pods that request a share of a GPU were dropped",
        f"machines (our own map): {', '.join(f'{k} as {v}' for k, v in RECORDINGS.items())}",
        "a node with fewer GPUs is the first GPUs of its recording",
        "mean of best: value of the set over the best of its size on that machine",
        "values are by Coterie's own model, which its choices maximise: none of it is measured",
    )


@dataclass(frozen=True, slots=True)
class Traces:
    """The trace's nodes, its timed pods, and the pods that fill it."""

    nodes: tuple[TraceNode, ...]
    timed: TracePods
    filling: TracePods


def run(
    traces: Traces,
    *,
    n_repeats: int = N_REPEATS,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> tuple[ResultTable, ...]:
    """Run both traces; `advance` is called after each policy of a trace."""
    nodes, timed, filling = traces.nodes, traces.timed, traces.filling
    types = machine_types(nodes)
    peak = peak_demand(timed.pods)
    n_gpus = round(HEADROOM * peak)

    def fleet_of(
        chosen: Sequence[TraceNode], policy: FleetPolicy, pods: Sequence[TracePod], repeat: int
    ) -> Fleet:
        laid_out = ((types[n.model, n.n_gpus], n.cpu_milli, n.memory_mib) for n in chosen)
        return Fleet(laid_out, policy, seed=seed + repeat, single=_median_single(pods))

    def play_thinned(policy: FleetPolicy, repeat: int) -> Outcome:
        return play(fleet_of(thin(nodes, n_gpus, repeat), policy, timed.pods, repeat), timed.pods)

    def fill_shuffled(policy: FleetPolicy, repeat: int) -> Outcome:
        pods = list(filling.pods)
        random.Random(seed + repeat).shuffle(pods)
        return fill(fleet_of(nodes, policy, pods, repeat), pods)

    def tables(
        title: str, runner: Callable[[FleetPolicy, int], Outcome], notes: tuple[str, ...]
    ) -> tuple[ResultTable, ResultTable]:
        outcomes: dict[str, list[Outcome]] = {}
        for policy in _fleet_policies():
            outcomes[policy.name] = [runner(policy, i) for i in range(n_repeats)]
            advance()
        bandwidth = tuple(_bandwidth_row(name, each) for name, each in outcomes.items())
        rows = tuple(_refused_row(name, each) for name, each in outcomes.items())
        return (
            ResultTable(f"{title}: bandwidth", _BANDWIDTH_COLUMNS, bandwidth, notes),
            ResultTable(f"{title}: GPUs by size", _REFUSED_COLUMNS, rows, digits=1),
        )

    thinned = f"whole-GPU pods hold {peak} GPUs at most: every n-th node is taken, ~{n_gpus} GPUs"
    return (
        *tables("The default openb trace, timed", play_thinned, _notes(timed, thinned, n_repeats)),
        *tables(
            "The multi-GPU openb trace, filled until full",
            fill_shuffled,
            _notes(filling, f"all {len(nodes)} nodes, pods in shuffled order", n_repeats),
        ),
    )
