"""What a large cluster costs the extender: memory, and the seconds until it is ready.

For a process that starts on a cluster of so many nodes and bound GPU pods, measures the seconds
from its start until `/readyz` succeeds, its resident memory then and at its highest, and its
processor seconds. The pods are created bound, with their plans; nothing is scheduled.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from benchmarks.cluster.rounds import spread
from benchmarks.cluster.stage import Arm, make_pod
from benchmarks.process_usage import resident_mib
from benchmarks.report import ResultTable
from topology.annotations import ContainerPlan, Plan, encode_plan
from topology.model import decode_topology, names

if TYPE_CHECKING:
    from benchmarks.cluster.stage import Stage

__all__ = ["grow"]

_BATCH = 2_000


async def grow(stage: Stage, *, n_pods: int, n_rounds: int) -> ResultTable:
    """Fill the stage's nodes with one-GPU pods, and start the extender a few times."""
    await stage.clear()
    nodes = (await stage.api.get("/api/v1/nodes"))["items"]
    pods = [pod for node in nodes for pod in _pods_of(node)][:n_pods]
    for first in range(0, len(pods), _BATCH):
        await stage.create(pods[first : first + _BATCH])
    seconds, resident, highest, used = [], [], [], []
    state: dict[str, Any] = {}
    for _ in range(n_rounds):
        start_s = time.monotonic()
        async with stage.play(Arm.COTERIE, percentage=100, has_scheduler=False) as running:
            seconds.append(time.monotonic() - start_s)
            used.append(running.cpu_s()[1])
            state = await running.state()
            now, most = await asyncio.to_thread(resident_mib, running.extender_pid)
            resident.append(now)
            highest.append(most)
    rows = tuple(
        (what, *(getattr(spread(figures), part) for part in ("median", "least", "most")))
        for what, figures in (
            ("seconds to /readyz", seconds),
            ("processor seconds until then", used),
            ("MiB resident", resident),
            ("MiB at most", highest),
        )
    )
    notes = (
        f"{len(nodes)} nodes, {len(pods)} bound GPU pods; {n_rounds} starts",
        f"the extender's own count of devices: {json.dumps(state['devices'])}",
    )
    return ResultTable("A large cluster", ("what", "median", "least", "most"), rows, notes, 2)


def _pods_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    """A one-GPU pod, bound with its plan, for each GPU of the node."""
    name = node["metadata"]["name"]
    topology = decode_topology(node["metadata"]["annotations"][names.TOPOLOGY])
    pods: list[dict[str, Any]] = []
    for i, gpu in enumerate(topology.gpus):
        ids = (str(gpu.uuid),)
        containers = (ContainerPlan("main", names.DEFAULT_RESOURCE, ids),)
        plan = encode_plan(Plan(name, containers, ids, 1, 0.0))
        pod = make_pod(f"{name}-{i}", 1, {names.PLAN: plan})
        pod["spec"]["nodeName"] = name
        pods.append(pod)
    return pods
