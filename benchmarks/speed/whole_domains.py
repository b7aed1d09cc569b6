"""Speed of filter and prioritize for single pods, with `keep_domains_whole` on and off.

5,000 nodes of `benchmarks.speed.groups`, twice: two extenders that differ in the setting. For each
pod both answer filter with all names, and prioritize for the nodes that they named, one after the
other in turn; before each pod another one comes to a node or ends, so that nothing that is kept for
a state of the cluster is of use. Times are this thread's processor time in milliseconds. It
measures; that the choice is good is shown in `benchmarks.groups`.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

from benchmarks.report import ResultTable
from benchmarks.speed.groups import FULL, GroupLoad, make_gateway, quiet
from benchmarks.speed.load import percentiles
from extender.engine.events import PodGone, PodSeen, VerbCalled
from extender.protocol import Verb
from kube.objects import PodFacts
from topology.annotations import ContainerPlan, Plan, encode_plan

if TYPE_CHECKING:
    from benchmarks.report import Cell
    from extender.engine import Gateway

__all__ = ["measure_whole_domains"]

GPU = "nvidia.com/gpu"
SHARE = 0.6
"""Of the nodes, how many are taken or partly taken."""
SIZES = (1, 2, 4, 8)
PODS_PER_PLAN = 20


def measure_whole_domains(load: GroupLoad = FULL, *, seed: int = 0) -> ResultTable:
    """Measure both extenders, interleaved."""
    made = {
        is_on: make_gateway(load.n_nodes, SHARE, random.Random(seed), keep_domains_whole=is_on)
        for is_on in (False, True)
    }
    times: dict[tuple[Verb, bool], list[float]] = {}
    n_pods = PODS_PER_PLAN * load.n_plans
    # Each size once before, which rates the states that there are.
    for number in range(-len(SIZES), n_pods):
        content = _pod(number, SIZES[number % len(SIZES)])
        order = (False, True) if number % 2 else (True, False)
        for is_on in order:
            gateway, names = made[is_on]
            _change(gateway, names, number)
            with quiet():
                took, named = _call(gateway, Verb.FILTER, content, names)
                scored, _ = _call(gateway, Verb.PRIORITIZE, content, named)
            if number >= 0:
                times.setdefault((Verb.FILTER, is_on), []).append(took)
                times.setdefault((Verb.PRIORITIZE, is_on), []).append(scored)
    rows: list[tuple[Cell, ...]] = []
    for verb in (Verb.FILTER, Verb.PRIORITIZE):
        for is_on in (False, True):
            seconds = times[verb, is_on]
            what = f"{verb.value}, keep_domains_whole {'on' if is_on else 'off'}"
            rows.append((what, len(seconds), *percentiles(seconds)))
    notes = (
        f"{load.n_nodes} nodes of 8 GPUs below leaf switches; share of nodes with pods: {SHARE}",
        f"pods of {', '.join(map(str, SIZES))} GPUs in turn; filter with all names",
        "between two calls of filter a pod comes or ends; on and off in turn",
    )
    columns = ("what", "n", "p50 ms", "p99 ms", "max ms")
    return ResultTable("Single pods that keep domains whole", columns, tuple(rows), notes)


def _change(gateway: Gateway, names: list[str], number: int) -> None:
    """A pod comes to a node, or ends there the next time."""
    node = names[number // 2 % len(names)]
    uid = f"other-{number // 2}"
    if number % 2:
        gateway.handle(PodGone(uid))
        return
    ids = (f"n{number // 2 % len(names)}-3",)
    plan = Plan(node, (ContainerPlan("main", GPU, ids),), ids, 1, 0.0)
    facts = PodFacts(uid, "default", uid, "1", encode_plan(plan), None, may_request=True)
    gateway.handle(PodSeen(facts))


def _call(
    gateway: Gateway, verb: Verb, pod: dict[str, object], names: list[str]
) -> tuple[float, list[str]]:
    """Seconds, and the names that filter answered."""
    content = {"Pod": pod, "Nodes": None, "NodeNames": names}
    body = json.dumps(content, separators=(",", ":")).encode()
    start = time.thread_time()
    answer = gateway.handle(VerbCalled(verb, body, 0.0))
    seconds = time.thread_time() - start
    named: list[str] = json.loads(answer.body)["NodeNames"] if verb is Verb.FILTER else []
    return seconds, named


def _pod(number: int, n_gpus: int) -> dict[str, object]:
    wish = {GPU: str(n_gpus)}
    name = f"pod-{number}"
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": wish, "requests": wish}}]},
        "status": {"phase": "Pending"},
    }
