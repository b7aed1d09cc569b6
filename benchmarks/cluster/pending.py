"""What pending pods cost: 500 unschedulable `required` pods beside a stream of pods that fit.

Measures pods per second of the stream and the seconds from a pod's creation to its binding, with
and without the pending pods, at two bounds of the scheduler's backoff (`podMaxBackoffSeconds`).
Every event that may free something requeues every unschedulable pod in kube-scheduler, which calls
filter again for each; the backoff bounds how often.

Each node has one GPU taken for good, and the pending pods request all of a node's: they stay
unschedulable.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.cluster.binds import follow_binds, pods_per_second
from benchmarks.cluster.rounds import spread, turned
from benchmarks.cluster.stage import NAMESPACE, PODS, Arm, make_pod
from benchmarks.errors import BenchmarkError
from benchmarks.report import ResultTable
from topology.annotations import pod_keys

if TYPE_CHECKING:
    from benchmarks.cluster.binds import BindWatch
    from benchmarks.cluster.stage import Stage
    from benchmarks.report import Cell

__all__ = ["wait_beside"]

REQUIRED = {pod_keys.AFFINITY: "nvlink", pod_keys.POLICY: "required"}
BACKOFFS_S = (10, 60)
STREAM_PER_S = 20.0
"""Pods of the stream a second: well below what the scheduler can do, so that waiting is seen."""
_RUN_S = 2.0
_DEADLINE_S = 120.0


async def wait_beside(stage: Stage, *, n_pending: int, n_stream: int, n_rounds: int) -> ResultTable:
    """Compare the stream alone with the stream beside pending pods."""
    arms = [(n, backoff_s) for backoff_s in BACKOFFS_S for n in (0, n_pending)]
    rates: dict[tuple[int, int], list[float]] = {arm: [] for arm in arms}
    waits: dict[tuple[int, int], list[float]] = {arm: [] for arm in arms}
    for number in range(n_rounds):
        for arm in turned(arms, number):
            pods_per_s, seconds = await _play(stage, arm[0], n_stream, arm[1])
            rates[arm].append(pods_per_s)
            waits[arm].extend(seconds)
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        rate = spread(rates[arm])
        ordered = np.sort(np.asarray(waits[arm]))
        rows.append(
            (
                f"{arm[0]} pending, backoff to {arm[1]} s",
                *(rate.median, rate.least, rate.most),
                *(float(np.quantile(ordered, share)) for share in (0.5, 0.99)),
                float(ordered[-1]),
            )
        )
    notes = (
        f"{n_stream} one-GPU pods, {STREAM_PER_S:g} created a second, each ends after {_RUN_S:g} s",
        f"{n_rounds} interleaved rounds; rates are medians, waits over all rounds",
        "the pending pods were all refused once before the stream begins",
    )
    columns = ("arm", "pods/s", "least", "most", "wait p50 s", "wait p99 s", "wait max s")
    return ResultTable("Beside pending pods", columns, tuple(rows), notes, digits=2)


async def _play(
    stage: Stage, n_pending: int, n_stream: int, backoff_s: int
) -> tuple[float, list[float]]:
    await stage.clear()
    await stage.create(await _plugs(stage))
    async with (
        stage.play(Arm.COTERIE, percentage=100, backoff_s=backoff_s),
        follow_binds(stage.api, NAMESPACE) as watch,
    ):
        n_nodes = len((await stage.api.get("/api/v1/nodes"))["items"])
        await _expect(watch, n_nodes)
        await stage.create([make_pod(f"pending-{i}", 8, REQUIRED) for i in range(n_pending)])
        await _until_pending(stage, n_pending)
        created_s = await _stream(stage, watch, n_stream)
        await _expect(watch, n_nodes + n_stream)
        bound_s = {name: watch.at_s[name] for name in created_s}
    seconds = [bound_s[name] - created_s[name] for name in created_s]
    return pods_per_second(list(bound_s.values())), seconds


async def _plugs(stage: Stage) -> list[dict[str, object]]:
    """A pod for each node that takes one of its GPUs for good."""
    nodes = (await stage.api.get("/api/v1/nodes"))["items"]
    plugs = []
    for node in nodes:
        name = node["metadata"]["name"]
        plug = make_pod(f"plug-{name}", 1)
        plug["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        plugs.append(plug)
    return plugs


async def _until_pending(stage: Stage, n_pending: int) -> None:
    """Wait until each pending pod was refused once."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            pods = (await stage.api.get(PODS, fieldSelector="spec.nodeName="))["items"]
            refused = [pod for pod in pods if pod["status"].get("conditions")]
            if len(refused) == n_pending:
                return
            await asyncio.sleep(0.5)


async def _stream(stage: Stage, watch: BindWatch, n_stream: int) -> dict[str, float]:
    """Create pods at a steady rate, and delete each a while after its binding."""
    created_s: dict[str, float] = {}
    start_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for i in range(n_stream):
            await asyncio.sleep(max(0.0, start_s + i / STREAM_PER_S - time.monotonic()))
            name = f"stream-{i}"
            created_s[name] = time.monotonic()
            await stage.create([make_pod(name, 1)])
            tasks.create_task(_end(stage, watch, name))
    return created_s


async def _end(stage: Stage, watch: BindWatch, name: str) -> None:
    await watch.until_bound(name, deadline_s=_DEADLINE_S)
    await asyncio.sleep(_RUN_S)
    await stage.api.end(f"{PODS}/{name}")


async def _expect(watch: BindWatch, n_pods: int) -> None:
    if not await watch.until(n_pods, deadline_s=_DEADLINE_S):
        msg = f"{len(watch.at_s)} pods bound after {_DEADLINE_S:g} s, expected {n_pods}"
        raise BenchmarkError(msg)
