"""Replay: MAPA's job queues on one measured V100 node, judged by measured bandwidth.

Reports what bandwidth the sensitive multi-GPU jobs of a queue get under each policy, and what that
costs in makespan. The loop is that of MAPA's simulator (MapaSim.hh): every job is queued at t = 0,
order is strictly first in, first out, the head of the queue blocks the rest, and a job's duration
does not depend on its placement.

Sensitive jobs carry `nvlink`, the others `none`. "With waiting" Coterie's sensitive jobs are
`required`; a rival's sensitive job waits while the set that the rival chose for it is not connected
by NVLink, unless nothing runs (then it takes what it is given, or it would wait for ever).
Tie orders: each replay runs on 20 random relabellings of the node, since ties go to low ids. That
costs policies that trust in ids more than it costs Coterie: a maker numbers GPUs so that neighbours
are near, and a relabelling takes that away. So the machine's own numbering has a table of its own.
Figures are over all sensitive jobs of 2 or more GPUs of all queues and relabellings together.

What is ours: the constants of the value model were fitted on this node too (`fidelity` holds each
node out in turn).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean, harmonic_mean
from typing import TYPE_CHECKING

from benchmarks.coterie import NVLINK, NVLINK_REQUIRED, prepare_coterie
from benchmarks.masks import subsets_of_size
from benchmarks.measured import SOURCE_NOTE, relabel_machine
from benchmarks.quality.queues import simulate
from benchmarks.report import ResultTable
from benchmarks.rivals import (
    MAPA_GREEDY,
    MAPA_PRESERVE,
    NVIDIA_BEST_EFFORT,
    PLAIN_KUBELET,
)
from topology.select import build_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measured import MeasuredMachine
    from benchmarks.quality.queues import Job
    from benchmarks.report import Cell
    from benchmarks.rivals import Chooser, Rival
    from topology.annotations import PlacementPolicy

__all__ = ["run"]

N_ORDERS = 20
SLOW_GBYTES_PER_S = 10.0
"""Below this a job ran without NVLink: such V100 sets measure 4 to 10 GB/s."""


RIVALS = (PLAIN_KUBELET, NVIDIA_BEST_EFFORT, MAPA_GREEDY, MAPA_PRESERVE)
ORACLE = "measured oracle (per job)"


@dataclass(frozen=True, slots=True)
class _Contestant:
    name: str
    is_waiting: bool
    prepare: Callable[[MeasuredMachine], Chooser]


def _oracle(machine: MeasuredMachine) -> Chooser:
    """The best measured set for each job alone; the lowest ids on ties, and for one GPU."""
    measured = machine.gbytes_per_s

    def choose(
        free: int, size: int, rng: random.Random, *, is_sensitive: bool = True
    ) -> int | None:
        del rng, is_sensitive
        sets = subsets_of_size(free, size)
        return max(sets, key=lambda mask: measured.get(mask, 0.0), default=None)

    return choose


def _contestants() -> Iterator[_Contestant]:
    def rival(one: Rival) -> Callable[[MeasuredMachine], Chooser]:
        return lambda machine: one.prepare(machine.topology)

    def coterie(policy: PlacementPolicy) -> Callable[[MeasuredMachine], Chooser]:
        return lambda machine: prepare_coterie(machine.topology, policy)

    for is_waiting, policy in ((False, NVLINK), (True, NVLINK_REQUIRED)):
        for one in RIVALS:
            yield _Contestant(one.name, is_waiting, rival(one))
        yield _Contestant(ORACLE, is_waiting, _oracle)
        yield _Contestant("Coterie", is_waiting, coterie(policy))


def _chooser(
    contestant: _Contestant, machine: MeasuredMachine, rng: random.Random
) -> Callable[[int, int, bool], int | None]:
    node = contestant.prepare(machine)
    connected = build_tables(machine.topology).is_linked
    everything = (1 << machine.topology.n_gpus) - 1

    def choose(free: int, size: int, is_sensitive: bool) -> int | None:
        gpus = node(free, size, rng, is_sensitive=is_sensitive)
        must_wait = contestant.is_waiting and is_sensitive and size > 1 and free != everything
        if gpus is None or not must_wait:
            return gpus
        return gpus if connected[gpus] else None

    return choose


def run(
    machine: MeasuredMachine,
    queues: Sequence[Sequence[Job]],
    *,
    n_orders: int = N_ORDERS,
    seed: int = 0,
) -> tuple[ResultTable, ...]:
    """Replay every queue under every policy."""
    n_gpus = machine.topology.n_gpus
    rng = random.Random(seed)
    relabelled = [
        relabel_machine(machine, rng.sample(range(n_gpus), n_gpus)) for _ in range(n_orders)
    ]

    def table(title: str, nodes: Sequence[MeasuredMachine], notes: Sequence[str]) -> ResultTable:
        rows = tuple(_replay(contestant, nodes, queues, seed) for contestant in _contestants())
        return ResultTable(title, _COLUMNS, rows, (*notes, *_NOTES), digits=2)

    n_queues = len(queues)
    drawn = f"a queue: {len(queues[0])} jobs drawn from MAPA's job mix (SC'21, arXiv 2110.03214)"
    return (
        table(
            "Replay on the measured V100 node",
            relabelled,
            (
                f"{n_queues} queues x {n_orders} tie orders (relabellings, seed {seed})",
                drawn,
                "a relabelling costs policies that go by ids more than Coterie: see the next table",
            ),
        ),
        table(
            "Replay with the machine's own numbering",
            (machine,),
            (
                f"{n_queues} queues, GPUs numbered as nvidia-smi printed them",
                drawn,
                f"random ids and NVIDIA's order of devices are drawn once (seed {seed})",
            ),
        ),
    )


_COLUMNS = (
    "policy",
    "sensitive job",
    "mean GB/s",
    "harmonic GB/s",
    "below 10 GB/s, %",
    "makespan",
)
_NOTES = (
    SOURCE_NOTE,
    "over all sensitive jobs of 2 or more GPUs together",
    "a rival that waits refuses a set that NVLink does not connect, unless nothing runs",
    "Coterie's constants were fitted on this node too; `fidelity` shows the held-out fit",
)


def _replay(
    contestant: _Contestant,
    nodes: Sequence[MeasuredMachine],
    queues: Sequence[Sequence[Job]],
    seed: int,
) -> tuple[Cell, ...]:
    """Replay every queue on every node under one policy; the row of the table."""
    bandwidths: list[float] = []
    makespans: list[int] = []
    draw = random.Random(seed)
    for node in nodes:
        choose = _chooser(contestant, node, draw)
        for jobs in queues:
            replayed = simulate(jobs, node.topology.n_gpus, choose)
            makespans.append(replayed.makespan)
            bandwidths += [
                node.gbytes_per_s[placed.gpus]
                for placed in replayed.placements
                if placed.job.is_sensitive and placed.job.size > 1
            ]
    n_slow = sum(b < SLOW_GBYTES_PER_S for b in bandwidths)
    return (
        contestant.name,
        "waits" if contestant.is_waiting else "takes what is there",
        fmean(bandwidths),
        harmonic_mean(bandwidths),
        100.0 * n_slow / len(bandwidths),
        fmean(makespans),
    )
