"""Speed of groups in the extender: a waiting member's filter, and one look that plans a group.

5,000 nodes of 8 GPUs of four machine types below leaves, spines and cores of a network, partly
taken at random. The members of a group come, filter is called for each with all names, and then one
look plans and claims for all. Times are this thread's processor time in milliseconds: what the
event loop cannot do meanwhile. It measures; that a plan is good is shown elsewhere.
"""

from __future__ import annotations

import gc
import json
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import ResultTable
from benchmarks.speed.load import MACHINES, percentiles, reference_loop
from extender.engine import Engine, Gateway
from extender.engine.events import (
    FreshnessSet,
    NodesListed,
    PendingGone,
    PendingListed,
    PendingSeen,
    PodsListed,
    RequeueDue,
    VerbCalled,
)
from extender.protocol import Reason, Verb
from extender.rules import Rules
from extender.state import LiveCluster
from kube.objects import NodeFacts, PodFacts, read_pod
from topology.annotations import ContainerPlan, Plan, encode_plan
from topology.model import encode_topology
from topology.recordings import load_recording
from topology.value import DEFAULT_DEMAND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.report import Cell

__all__ = ["FULL", "QUICK", "GroupLoad", "make_gateway", "measure_group_speed", "quiet"]

GPU = "nvidia.com/gpu"
PER_LEAF, PER_SPINE, PER_CORE = 8, 32, 256
_TIER = "network.topology.nvidia.com/"
GROUPS: tuple[tuple[int, ...], ...] = (
    (8,) * 4,
    (8,) * 64,
    (4,) * 64,
    (1,) * 64,
    (8,) * 512,
    (8,) * 32 + (4,) * 16 + (1,) * 16,
)
"""The GPUs of each member."""


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """How much is measured: nodes, and plans of each group at each share of GPUs taken."""

    n_nodes: int
    n_plans: int
    shares: tuple[float, ...]


FULL = GroupLoad(5000, 20, (0.3, 0.6, 0.9))
QUICK = GroupLoad(200, 2, (0.3,))


def measure_group_speed(load: GroupLoad = FULL, *, seed: int = 0) -> ResultTable:
    """Measure filter and plans."""
    loop_ms = 1000 * median(reference_loop() for _ in range(20))
    rng = random.Random(seed)
    plans: dict[tuple[int, ...], list[float]] = {sizes: [] for sizes in GROUPS}
    firsts: dict[tuple[int, ...], list[float]] = {sizes: [] for sizes in GROUPS}
    n_placed = dict.fromkeys(GROUPS, 0)
    filters: list[float] = []
    claimed: list[float] = []
    for share in load.shares:
        for sizes in GROUPS:
            scene = _Scene(load.n_nodes, share, rng)
            for turn in range(load.n_plans):
                with quiet():
                    seconds, waits, names = scene.run(sizes, turn)
                filters += waits
                claimed += names
                n_placed[sizes] += bool(names)
                (firsts if turn == 0 else plans)[sizes].append(seconds)
    rows: list[tuple[Cell, ...]] = []
    for title, calls in (("a waiting member", filters), ("a member with a claim", claimed)):
        rows.append((f"filter of {title}, all names", len(calls), *percentiles(calls), ""))
    for sizes in GROUPS:
        most = max(firsts[sizes]) * 1000
        rows.append((_title(sizes), len(plans[sizes]), *percentiles(plans[sizes]), most))
    found = ", ".join(f"{n} of {_title(sizes)}" for sizes, n in n_placed.items())
    shares = ", ".join(map(str, load.shares))
    notes = (
        f"{load.n_nodes} nodes of 8 GPUs; shares of GPUs taken: {shares}",
        f"nodes of a leaf, a spine, a core: {PER_LEAF}, {PER_SPINE}, {PER_CORE}",
        "first: the first plan of a shape, which no count is kept for",
        f"placed: {found}; the others found no room",
        f"reference loop: 100,000 additions in Python, {loop_ms:.2f} ms",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms", "max first ms")
    return ResultTable("Speed of groups", columns, tuple(rows), notes)


def _title(sizes: Sequence[int]) -> str:
    counts = {size: sizes.count(size) for size in dict.fromkeys(sizes)}
    return "plan of " + " + ".join(f"{n} x {size} GPUs" for size, n in counts.items())


@contextmanager
def quiet() -> Iterator[None]:
    """Without garbage collection, whose pauses are the process's and no plan's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def make_gateway(
    n_nodes: int, share: float, rng: random.Random, *, keep_domains_whole: bool = False
) -> tuple[Gateway, list[str]]:
    """A live extender over nodes below leaf switches, partly taken; and the nodes' names."""
    rules = Rules(
        resources=(GPU,),
        candidate_limit=20,
        loss_bounds=(0.02, 0.10, 0.30),
        demand=DEFAULT_DEMAND,
        staleness_bound_s=60.0,
        assume_s=30.0,
        keep_domains_whole=keep_domains_whole,
    )
    cluster = LiveCluster(rules.resources, demand=rules.demand)
    gateway = Gateway(Engine(cluster, rules))
    nodes = tuple(_node(i, MACHINES[i // PER_LEAF % len(MACHINES)]) for i in range(n_nodes))
    names = [one.name for one in nodes]
    gateway.handle(NodesListed(nodes))
    gateway.handle(PodsListed(tuple(_taken(names, share, rng))))
    gateway.handle(PendingListed((), 0.0))
    gateway.handle(FreshnessSet(is_synced=True, observed_at_s=0.0))
    gateway.handle(RequeueDue(0.0))
    return gateway, names


class _Scene:
    """A cluster, and groups that come and go."""

    def __init__(self, n_nodes: int, share: float, rng: random.Random) -> None:
        self._gateway, self._names = make_gateway(n_nodes, share, rng)
        self._now_s = 0.0

    def run(self, sizes: Sequence[int], turn: int) -> tuple[float, list[float], list[float]]:
        """Seconds of the plan, of each waiting member's filter, and of those with a claim."""
        self._now_s += 10.0
        self._gateway.handle(FreshnessSet(is_synced=True, observed_at_s=self._now_s))
        pods = [_pod(f"{turn}-{i}", size, len(sizes)) for i, size in enumerate(sizes)]
        calls = [_call(pod, self._names) for pod in pods]
        for pod in pods:
            self._gateway.handle(PendingSeen(read_pod(pod), self._now_s))
        waits = [self._filter(call)[0] for call in calls]
        start = time.thread_time()
        self._gateway.handle(RequeueDue(self._now_s))
        seconds = time.thread_time() - start
        answers = [self._filter(call) for call in calls]
        for pod in pods:
            self._gateway.handle(PendingGone(str(pod["metadata"]["uid"])))
        return seconds, waits, [took for took, reason in answers if reason is None]

    def _filter(self, call: bytes) -> tuple[float, Reason | None]:
        start = time.thread_time()
        answer = self._gateway.handle(VerbCalled(Verb.FILTER, call, self._now_s))
        return time.thread_time() - start, answer.reason


def _node(i: int, machine: str) -> NodeFacts:
    topology = load_recording(machine)
    gpus = tuple(replace(gpu, uuid=f"n{i}-{k}") for k, gpu in enumerate(topology.gpus))
    count = {GPU: len(gpus)}
    return NodeFacts(
        f"node-{i:05}",
        f"uid-{i}",
        "zone-a",
        count,
        encode_topology(replace(topology, gpus=gpus)),
        None,
        has_soft_taint=False,
        capacity=count,
        domains={
            f"{_TIER}leaf": f"leaf-{i // PER_LEAF}",
            f"{_TIER}spine": f"spine-{i // PER_SPINE}",
            f"{_TIER}core": f"core-{i // PER_CORE}",
        },
    )


def _taken(names: Sequence[str], share: float, rng: random.Random) -> Iterator[PodFacts]:
    """Pods that hold so much of the GPUs: whole machines, halves and less."""
    for i, name in enumerate(names):
        if rng.random() >= share:
            continue
        first = rng.choice((0, 0, 0, 4, 6, 7))
        ids = tuple(f"n{i}-{k}" for k in range(first, 8))
        plan = Plan(name, (ContainerPlan("main", GPU, ids),), ids, 1, 0.0)
        text = encode_plan(plan)
        yield PodFacts(f"t{i}", "default", f"t{i}", "1", text, None, may_request=True)


def _pod(name: str, n_gpus: int, size: int) -> dict[str, dict[str, object]]:
    wish = {GPU: str(n_gpus)}
    return {
        "metadata": {
            "name": f"pod-{name}",
            "namespace": "default",
            "uid": f"u-{name}",
            "resourceVersion": "1",
            "annotations": {
                "coterie.gpu/group": "train",
                "coterie.gpu/group-size": str(size),
            },
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": wish, "requests": wish}}]},
        "status": {"phase": "Pending"},
    }


def _call(pod: dict[str, dict[str, object]], names: Sequence[str]) -> bytes:
    content = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return json.dumps(content, separators=(",", ":")).encode()
