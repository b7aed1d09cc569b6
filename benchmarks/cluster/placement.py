"""What the pods get: predicted GB/s of the same pods, placed three ways by the real scheduler.

Reports the mean and harmonic mean of the sets' all-reduce bandwidth (and of their share of their
own machine's best) for one seeded sequence of arrivals and departures: with Coterie; with the
default scheduler and a kubelet that picks at random; with the default scheduler and NVIDIA's
best-effort device plugin. The two latter share their nodes: one run of the scheduler, two ways to
pick on each node (`benchmarks.rivals`). Sets are judged by the core's value, which Coterie also
chooses by: where bandwidth was measured, `benchmarks efficiency` and `fidelity` judge that.

A pod that has not been bound a while after its creation is counted as left out of that arm.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from statistics import fmean, harmonic_mean
from typing import TYPE_CHECKING

from benchmarks.cluster.binds import follow_binds
from benchmarks.cluster.stage import NAMESPACE, PODS, Arm, make_pod
from benchmarks.report import ResultTable
from benchmarks.rivals import NVIDIA_BEST_EFFORT, PLAIN_KUBELET
from topology.model import decode_topology, names
from topology.select import build_tables
from topology.value import mask_index, topology_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.cluster.stage import Stage
    from benchmarks.report import Cell
    from benchmarks.rivals import Rival
    from topology.model import NodeTopology
    from topology.select import MachineTables

__all__ = ["Step", "place_all", "sequence"]

SIZES = (1, 2, 2, 4, 4, 8)
_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    """Create a pod of `size` GPUs, or with 0 delete one that was created before."""

    pod: str
    size: int


def sequence(n_pods: int, *, n_gpus: int, seed: int) -> tuple[Step, ...]:
    """Arrivals and departures, such that about nine tenths of the GPUs stay requested.

    >>> [step.size > 0 for step in sequence(3, n_gpus=1000, seed=1)]
    [True, True, True]
    """
    rng = random.Random(seed)
    steps: list[Step] = []
    alive: list[Step] = []
    for number in range(n_pods):
        size = rng.choice(SIZES)
        while sum(one.size for one in alive) + size > 0.9 * n_gpus:
            gone = alive.pop(rng.randrange(len(alive)))
            steps.append(Step(gone.pod, 0))
        born = Step(f"pod-{number}", size)
        alive.append(born)
        steps.append(born)
    return tuple(steps)


async def place_all(stage: Stage, *, n_pods: int, seed: int) -> ResultTable:
    """Run the sequence with Coterie and with the default scheduler, and compare."""
    nodes = await _machines(stage)
    n_gpus = sum(machine.topology.n_gpus for machine in nodes.values())
    steps = sequence(n_pods, n_gpus=n_gpus, seed=seed)
    rows: list[tuple[Cell, ...]] = []
    placed, chosen = await _run(stage, Arm.COTERIE, steps)
    rows.append(_row("Coterie", _planned(placed, chosen, nodes), n_pods - len(placed)))
    placed, _ = await _run(stage, Arm.NONE, steps)
    for title, rival in (
        ("default scheduler, kubelet at random", PLAIN_KUBELET),
        ("default scheduler, NVIDIA best-effort", NVIDIA_BEST_EFFORT),
    ):
        picked = _picked(steps, placed, nodes, rival, seed)
        rows.append(_row(title, picked, n_pods - len(placed)))
    notes = (
        f"{len(nodes)} nodes, {n_gpus} GPUs; {n_pods} pods of sizes {sorted(set(SIZES))}",
        "no pod has an annotation; at most nine tenths of the GPUs are requested at a time",
        "mean of best compares the sets, GB/s the machines too, of which Coterie takes cheap ones",
        "GB/s as the core predicts them; best: the best set of that size on the empty machine",
        "sets: pods of two GPUs and more",
    )
    columns = ("arm", "sets", "not bound", "mean GB/s", "harmonic GB/s", "mean of best")
    return ResultTable("What the pods get", columns, tuple(rows), notes)


@dataclass(frozen=True, slots=True, eq=False)
class _Machine:
    """A node: its topology with its own ids, and the tables of its type."""

    topology: NodeTopology
    tables: MachineTables

    def gbytes_per_s(self, mask: int) -> tuple[float, float]:
        """The set's value, and its share of the best of its size."""
        value = float(self.tables.value[mask])
        of_size = self.tables.value[mask_index(self.topology.n_gpus).size == mask.bit_count()]
        return value, value / float(of_size.max())


async def _machines(stage: Stage) -> dict[str, _Machine]:
    tables: dict[str, MachineTables] = {}
    machines: dict[str, _Machine] = {}
    for node in (await stage.api.get("/api/v1/nodes"))["items"]:
        topology = decode_topology(node["metadata"]["annotations"][names.TOPOLOGY])
        digest = topology_digest(topology)
        if digest not in tables:
            tables[digest] = build_tables(topology)
        machines[node["metadata"]["name"]] = _Machine(topology, tables[digest])
    return machines


async def _run(
    stage: Stage, arm: Arm, steps: Sequence[Step]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Play the steps one by one; gives each bound pod's node and, where it has a plan, its ids."""
    await stage.clear()
    placed: dict[str, str] = {}
    chosen: dict[str, tuple[str, ...]] = {}
    async with (
        follow_binds(stage.api, NAMESPACE) as watch,
        stage.play(arm, percentage=100),
    ):
        for step in steps:
            if step.size == 0:
                await stage.api.end(f"{PODS}/{step.pod}")
                continue
            await stage.create([make_pod(step.pod, step.size)])
            if await watch.until_bound(step.pod, deadline_s=_WAIT_S):
                pod = await stage.api.get(f"{PODS}/{step.pod}")
                placed[step.pod] = pod["spec"]["nodeName"]
                plan = pod["metadata"].get("annotations", {}).get(names.PLAN)
                if plan is not None:
                    containers = json.loads(plan)["containers"]
                    chosen[step.pod] = tuple(one for c in containers for one in c["ids"])
    return placed, chosen


def _planned(
    placed: Mapping[str, str],
    chosen: Mapping[str, tuple[str, ...]],
    nodes: Mapping[str, _Machine],
) -> list[tuple[float, float]]:
    values: list[tuple[float, float]] = []
    for pod, ids in chosen.items():
        machine = nodes[placed[pod]]
        position = {gpu.uuid: i for i, gpu in enumerate(machine.topology.gpus)}
        if len(ids) > 1:
            values.append(machine.gbytes_per_s(sum(1 << position[one] for one in ids)))
    return values


def _picked(
    steps: Sequence[Step],
    placed: Mapping[str, str],
    nodes: Mapping[str, _Machine],
    rival: Rival,
    seed: int,
) -> list[tuple[float, float]]:
    """What a device plugin picks on the nodes that the scheduler chose, in the same order."""
    rng = random.Random(seed)
    free = {name: (1 << machine.topology.n_gpus) - 1 for name, machine in nodes.items()}
    held: dict[str, int] = {}
    values: list[tuple[float, float]] = []
    for step in steps:
        node = placed.get(step.pod)
        if node is None:
            continue
        if step.size == 0:
            free[node] |= held.pop(step.pod)
            continue
        mask = rival.choose(nodes[node].topology, free[node], step.size, rng)
        if mask is None:  # best-effort pads its partitions and may refuse: the kubelet then picks
            mask = PLAIN_KUBELET.choose(nodes[node].topology, free[node], step.size, rng) or 0
        free[node] &= ~mask
        held[step.pod] = mask
        if step.size > 1:
            values.append(nodes[node].gbytes_per_s(mask))
    return values


def _row(title: str, values: Sequence[tuple[float, float]], n_unbound: int) -> tuple[Cell, ...]:
    speeds = [value for value, _ in values]
    shares = [share for _, share in values]
    return title, len(values), n_unbound, fmean(speeds), harmonic_mean(speeds), fmean(shares)
