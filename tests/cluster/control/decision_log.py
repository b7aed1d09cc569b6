"""What the extender's own decision log must show of a run that etcd's history was checked of.

Checks that each plan in etcd was decided as the log says and is the core's own best of the devices
that were free at that moment, and that a replay of the whole log gives the same answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.fleet.stage import Play

__all__ = ["assert_best_plans", "assert_replays", "written_plans"]

_ROOT = Path(__file__).resolve().parents[3]
_PLAN = "coterie.gpu/plan"
_REPLAY_WITHIN_S = 300


def written_plans(log: Path) -> Iterator[dict[str, Any]]:
    """Every Binding that got a plan: uid, node, annotations, and from what it was planned."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if '"planned_from":{' in line and line.endswith("\n"):
                output = json.loads(line).get("output")
                if isinstance(output, dict) and output.get("planned_from"):
                    yield output


def assert_best_plans(played: Play, log: Path) -> None:
    """Each bound plan is one that the log has, and the core's own best of what was free then."""
    decided = {(one["uid"], one["annotations"][_PLAN]): one for one in written_plans(log)}
    pods = [pod for pod in played.checker.bindings.values() if pod.plan is not None]
    assert pods
    assert [pod.full_name for pod in pods if (pod.uid, pod.plan) not in decided] == []
    for pod in pods:
        one, plan = decided[pod.uid, pod.plan or ""], json.loads(pod.plan or "")
        chosen = {container["name"]: container["ids"] for container in plan["containers"]}
        planned_from = one["planned_from"]
        assert plan["generation"] == planned_from["generation"], pod.full_name
        best = played.judge.best(plan["node"], planned_from["free"], pod)
        assert chosen == best, pod.full_name


def assert_replays(log: Path) -> None:
    """Every call and step of the log gets the same answer again, byte for byte."""
    done = subprocess.run(
        [sys.executable, "-m", "extender", "replay", str(log)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_REPLAY_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
