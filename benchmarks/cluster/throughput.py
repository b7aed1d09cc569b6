"""What Coterie costs the real kube-scheduler, bind included.

Measures pods per second with Coterie, with an extender that does nothing and with none, on the same
nodes with the same pods and the same scheduler settings, and processor seconds per pod. Coterie is
there twice: as it comes, and naming one node only, so that kube-scheduler scores none. All pods of
a round are there before the scheduler starts; the rate is that between the first and the last
binding. `python -m benchmarks.cluster throughput`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cluster.binds import follow_binds, pods_per_second
from benchmarks.cluster.rounds import ratio_to, spread, turned
from benchmarks.cluster.stage import NAMESPACE, Arm, make_pod
from benchmarks.errors import BenchmarkError
from benchmarks.report import ResultTable

if TYPE_CHECKING:
    from benchmarks.cluster.latency import VerbTimes
    from benchmarks.cluster.stage import Stage
    from benchmarks.report import Cell

__all__ = ["Setting", "compare"]

SIZES = (1, 2, 4, 1, 8)
"""GPUs of the pods, in turn."""
_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared. `percentage` is that of the nodes to score, None for the default."""

    title: str
    n_pods: int
    percentage: int | None
    has_gpus: bool = True


@dataclass(frozen=True, slots=True)
class _Round:
    pods_per_s: float
    scheduler_ms_per_pod: float
    extender_ms_per_pod: float


async def compare(
    stage: Stage,
    setting: Setting,
    *,
    n_rounds: int,
    times: VerbTimes,
) -> ResultTable:
    """Compare the arms on the nodes that the stage has; Coterie's latencies go to `times`."""
    rounds: dict[Arm, list[_Round]] = {arm: [] for arm in Arm}
    for number in range(n_rounds):
        for arm in turned(tuple(Arm), number):
            rounds[arm].append(await _play(stage, arm, setting, times))
    return _table(setting, rounds, n_rounds)


async def _play(stage: Stage, arm: Arm, setting: Setting, times: VerbTimes) -> _Round:
    await stage.clear()
    sizes = SIZES if setting.has_gpus else (0,)
    n_pods = setting.n_pods
    await stage.create([make_pod(f"pod-{i}", sizes[i % len(sizes)]) for i in range(n_pods)])
    async with (
        follow_binds(stage.api, NAMESPACE) as watch,
        stage.play(arm, percentage=setting.percentage) as running,
    ):
        await watch.until(1, deadline_s=_DEADLINE_S)
        before = running.cpu_s()
        n_before = len(watch.at_s)
        if not await watch.until(n_pods, deadline_s=_DEADLINE_S):
            msg = (
                f"{setting.title}, {arm.value}: {len(watch.at_s)} of {n_pods} pods bound after "
                f"{_DEADLINE_S:g} s, expected all"
            )
            raise BenchmarkError(msg)
        after = running.cpu_s()
        if arm is Arm.COTERIE:
            times.add(await running.metrics())
    n_measured = max(1, n_pods - n_before)  # a smoke run's few pods may be bound at once
    used = [1000 * (late - early) / n_measured for late, early in zip(after, before, strict=True)]
    return _Round(pods_per_second(list(watch.at_s.values())), used[0], used[1])


def _table(setting: Setting, rounds: dict[Arm, list[_Round]], n_rounds: int) -> ResultTable:
    rates = {arm.value: [one.pods_per_s for one in own] for arm, own in rounds.items()}
    ratios = ratio_to(Arm.NONE.value, rates)
    rows: list[tuple[Cell, ...]] = []
    for arm, own in rounds.items():
        rate, ratio = spread(rates[arm.value]), ratios[arm.value]
        rows.append(
            (
                arm.value,
                *(rate.median, rate.least, rate.most),
                *(ratio.median, ratio.least, ratio.most),
                spread([one.scheduler_ms_per_pod for one in own]).median,
                spread([one.extender_ms_per_pod for one in own]).median,
            )
        )
    columns = (
        *("arm", "pods/s", "least", "most", "of no extender", "least", "most"),
        *("scheduler CPU ms/pod", "extender CPU ms/pod"),
    )
    notes = (
        f"{setting.n_pods} pods a round, {n_rounds} interleaved rounds; medians",
        "ratios are to the same round's run without an extender",
        "etcd, API server, scheduler, extender and the watcher share the machine's cores",
    )
    return ResultTable(setting.title, columns, tuple(rows), notes, digits=2)
