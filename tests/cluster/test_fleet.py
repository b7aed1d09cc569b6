"""300 mixed nodes, 3,000 pods that come and go: the promises, held against etcd's own history."""

from __future__ import annotations

import asyncio
import os
import statistics

import pytest

from tests.cluster.decision_log import assert_best_plans, assert_replays
from tests.cluster.nodes import FLEET
from tests.cluster.stage import play, start_cast
from tests.cluster.workload import Mix, arrivals, submit

pytestmark = pytest.mark.cluster

N_PODS = int(os.environ.get("COTERIE_FLEET_PODS", "3000"))
SEED = int(os.environ.get("COTERIE_SEED", "1"))
# 30 pods/s of 2.7 GPUs that run 27 s each want 2,150 GPUs of 2,400 on average: most of the time
# some size or affinity has no room, and pods wait.
MIX = Mix(n_pods=N_PODS, pods_per_s=30, mean_run_s=27, seed=SEED)
LONGEST_WAIT_S = 5.0


def test_three_thousand_pods_on_three_hundred_nodes(control_plane, tmp_path):
    """Every pod gets the core's best plan, no device is given twice, and nobody waits in vain."""
    cast = start_cast(control_plane, decision_log=tmp_path / "decisions.jsonl")

    async def main():
        stream = arrivals(MIX)
        async with play(cast, FLEET) as played:
            checker = played.checker
            n_given: list[int] = []

            def are_all_bound():
                n_given.append(sum(pod.size for pod in checker.live()))
                return checker.n_bound == len(stream)

            await asyncio.gather(
                submit(played.api, stream),
                played.until(are_all_bound, within_s=stream[-1].at_s + 4 * MIX.mean_run_s),
            )
            waits = checker.longest_waits()
            latencies = [checker.bound_at_s[u] - checker.created_at_s[u] for u in checker.bindings]
            print(  # noqa: T201 - `pytest -s` shows it
                f"{len(stream)} pods, up to {max(n_given)} GPUs at a time; bound after a median of "
                f"{statistics.median(latencies):.3f} s, at most {max(latencies):.1f} s; longest "
                f"wait beside room {max(waits.values(), default=0):.1f} s"
            )
            late = {name: wait for name, wait in waits.items() if wait > LONGEST_WAIT_S}
            assert late == {}
            assert checker.n_bound_gpu > 0.85 * len(stream)
            assert max(n_given) > min(0.8 * 2400, N_PODS / 2)
            assert checker.faults == []
        return played

    try:
        played = asyncio.run(main())
    finally:
        cast.stop()
    assert_best_plans(played, tmp_path / "decisions.jsonl")
    assert_replays(tmp_path / "decisions.jsonl")
