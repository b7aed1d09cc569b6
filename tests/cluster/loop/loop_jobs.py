"""Jobs that really run on GPUs' behalf: a seeded stream for the tests that close the loop.

The same seed gives the same Jobs. Sizes, affinities and layouts are mixed: one container or two,
init containers that hand their GPUs on, sidecars that keep them. An init container never requests
more than the first container after it: of what is handed on beyond that the kubelet keeps a part of
its own choice, which no plan can name. On a simulated node they take longer,
as a stand-in starts containers in no time: so the real nodes, few and slow, get their share.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.fleet.stand_in import RUNS_S
from tests.cluster.fleet.workload import SCHEDULER
from tests.cluster.node.real_pods import real_container, real_pod_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JOBS", "JobMix", "job_manifests"]

JOBS = "/apis/batch/v1/namespaces/default/jobs"
_SIZES = {1: 40, 2: 30, 3: 5, 4: 20, 8: 5}
_AFFINITIES = {None: 50, "nvlink": 30, "numa": 10, "none": 10}
_SIMULATED_EXTRA_S = 30.0
_LAYOUTS = {"one": 55, "two": 15, "init": 15, "sidecar": 10, "all": 5}


@dataclass(frozen=True, slots=True)
class JobMix:
    """A stream of Jobs; `mean_run_s` is of each pod's containers."""

    n_jobs: int
    seed: int
    mean_run_s: float = 2.0
    prefix: str = "job"
    largest: int = 8
    """Most GPUs of one pod."""


def job_manifests(mix: JobMix) -> list[dict[str, Any]]:
    """The Jobs, in order. Each makes new pods until one has succeeded."""
    chance = random.Random(mix.seed)  # noqa: S311 - a stream that can be repeated is the point
    return [_job(f"{mix.prefix}-{number}", mix, chance) for number in range(mix.n_jobs)]


def _job(name: str, mix: JobMix, chance: random.Random) -> dict[str, Any]:
    size = _pick({one: n for one, n in _SIZES.items() if one <= mix.largest}, chance)
    affinity = _pick(_AFFINITIES, chance)
    layout = _pick(_LAYOUTS, chance) if size > 1 else "one"
    run_s = round(0.5 + chance.expovariate(1 / mix.mean_run_s), 2)
    run_s = min(run_s, 4 * mix.mean_run_s)
    inits, containers = _lay_out(layout, size, run_s)
    annotations = {RUNS_S: str(run_s + _SIMULATED_EXTRA_S)}
    if affinity is not None:
        annotations["coterie.gpu/affinity"] = affinity
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            # A pod that its kubelet refused is replaced, as often as it takes.
            "backoffLimit": 100,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": real_pod_spec(containers, inits, schedulerName=SCHEDULER),
            },
        },
    }


def _lay_out(
    layout: str, size: int, run_s: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Init containers and containers that hold `size` GPUs at most."""
    half = size // 2
    warm = real_container("warm", half, runs_s=0.1)
    beside = real_container("beside", 1, restartPolicy="Always")
    if layout == "two":
        first = real_container("first", half, runs_s=run_s)
        return [], [first, real_container("second", size - half, runs_s=run_s)]
    if layout == "init":
        return [warm], [real_container("main", size, runs_s=run_s)]
    if layout == "sidecar":
        return [beside], [real_container("main", size - 1, runs_s=run_s)]
    if layout == "all" and size > 2:
        first = real_container("first", size - 2, runs_s=run_s)
        small = real_container("warm", 1, runs_s=0.1)
        return [beside, small], [first, real_container("second", 1, runs_s=run_s)]
    return [], [real_container("main", size, runs_s=run_s), real_container("logs", runs_s=run_s)]


def _pick(weights: Mapping[Any, int], chance: random.Random) -> Any:
    return chance.choices(list(weights), list(weights.values()))[0]
