"""What users would submit: a seeded stream of pods, and a few pods by hand.

The same seed gives the same pods, arrivals and run times in every process. Sizes, affinities,
policies, floors, container layouts and priorities are mixed so that most of what a pod can request
occurs hundreds of times in 3,000 pods. It never requests what no node of the fleet can satisfy
(such pods wait for ever and have tests of their own).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.control.api import ApiError, patiently
from tests.cluster.fleet.stand_in import RUNS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.cluster.control.api import Api

__all__ = [
    "PODS",
    "RESOURCE",
    "SCHEDULER",
    "Arrival",
    "Mix",
    "arrivals",
    "gpu_container",
    "make_pod",
    "pod_path",
    "submit",
]

RESOURCE = "nvidia.com/gpu"
SCHEDULER = "coterie-scheduler"
"""The profile for GPU pods."""
PODS = "/api/v1/namespaces/default/pods"
_SIZES = {1: 40, 2: 25, 4: 20, 8: 15}
_AFFINITIES = {None: 40, "nvlink": 25, "pcie-switch": 8, "numa": 15, "none": 12}
_LAYOUTS = {"one": 70, "two": 10, "init": 7, "sidecar": 7, "plain": 6}
"""Of a pod with two GPUs or more: one container, two apps, an init or a sidecar beside the app, or
a second container without GPUs."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A stream of pods. Shares are of all pods; times are means in seconds, exponential."""

    n_pods: int
    pods_per_s: float
    mean_run_s: float
    seed: int
    without_gpu: float = 0.08
    required: float = 0.25
    floored: float = 0.1
    prefix: str = "job"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One pod, and when it is submitted."""

    at_s: float
    manifest: dict[str, Any]


def arrivals(mix: Mix) -> list[Arrival]:
    """The whole stream, in order of time."""
    chance = random.Random(mix.seed)  # noqa: S311 - a stream that can be repeated is the point
    found: list[Arrival] = []
    at_s = 0.0
    for number in range(mix.n_pods):
        at_s += chance.expovariate(mix.pods_per_s)
        found.append(Arrival(at_s, _draw(mix, f"{mix.prefix}-{number}", chance)))
    return found


async def submit(api: Api, stream: Sequence[Arrival]) -> None:
    """Create every pod at its time, however slow or dead the API server is meanwhile."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    async with asyncio.TaskGroup() as group:
        for one in stream:
            await asyncio.sleep(max(0.0, begun_s + one.at_s - loop.time()))
            group.create_task(_create(api, one.manifest))


async def _create(api: Api, manifest: Mapping[str, Any]) -> None:
    """Create one pod; an attempt whose answer was lost may have made it already."""
    try:
        await patiently(lambda: api.create(PODS, manifest))
    except ApiError as error:
        if error.status != 409:
            raise


def pod_path(name: str) -> str:
    """Where the API server keeps a pod of these tests."""
    return f"{PODS}/{name}"


def make_pod(
    name: str,
    gpus: int = 0,
    *,
    annotations: Mapping[str, str] | None = None,
    containers: Iterable[Mapping[str, Any]] | None = None,
    inits: Iterable[Mapping[str, Any]] = (),
    runs_s: float | None = None,
    scheduler: str = SCHEDULER,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod with one container of `gpus` GPUs, or with the containers given.

    `spec` adds fields. With `runs_s` the stand-in ends it after so many seconds.
    """
    notes = dict(annotations or {})
    if runs_s is not None:
        notes[RUNS_S] = f"{runs_s:.3f}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "initContainers": list(inits),
            "containers": list(containers or [gpu_container("main", gpus)]),
            **(spec or {}),
        },
    }


def gpu_container(name: str, gpus: int, **fields: object) -> dict[str, Any]:
    """A container that requests GPUs and a little CPU."""
    limits = {RESOURCE: str(gpus)} if gpus else {}
    requests = {"cpu": "10m"} | limits
    resources = {"limits": limits, "requests": requests}
    return {"name": name, "image": "stand-in", "resources": resources, **fields}


def _draw(mix: Mix, name: str, chance: random.Random) -> dict[str, Any]:
    run_s = min(chance.expovariate(1 / mix.mean_run_s), 4 * mix.mean_run_s)
    if chance.random() < mix.without_gpu:
        return make_pod(
            name, runs_s=run_s, scheduler=chance.choice(("default-scheduler", SCHEDULER))
        )
    size = _pick(_SIZES, chance)
    layout = _pick(_LAYOUTS, chance) if size > 1 else "one"
    containers, inits = _lay_out(layout, size)
    return make_pod(
        name,
        annotations=_wishes(mix, size, is_single=layout in {"one", "plain"}, chance=chance),
        containers=containers,
        inits=inits,
        runs_s=run_s,
    )


def _lay_out(layout: str, size: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Containers and init containers that hold `size` GPUs at most."""
    if layout == "two":
        return [gpu_container("first", size // 2), gpu_container("second", size - size // 2)], []
    if layout == "init":
        return [gpu_container("main", size)], [gpu_container("warm", size // 2)]
    if layout == "sidecar":
        beside = gpu_container("beside", 1, restartPolicy="Always")
        return [gpu_container("main", size - 1)], [beside]
    if layout == "plain":
        return [gpu_container("main", size), gpu_container("logs", 0)], []
    return [gpu_container("main", size)], []


def _wishes(mix: Mix, size: int, *, is_single: bool, chance: random.Random) -> dict[str, str]:
    """Annotations that some node of the fleet can meet when it is empty.

    No machine has 8 GPUs under one PCIe switch tree or, but for dgx-2, on one NUMA node.
    """
    wishes: dict[str, str] = {}
    affinity = _pick(_AFFINITIES, chance)
    if affinity is not None:
        wishes["coterie.gpu/affinity"] = affinity
    if affinity in {"nvlink", None} and size > 1 and is_single and chance.random() < mix.floored:
        wishes["coterie.gpu/min-bandwidth"] = str(chance.choice((20, 60, 120)))
    may_insist = affinity == "nvlink" or (affinity in {"pcie-switch", "numa"} and size <= 2)
    if may_insist and chance.random() < 2 * mix.required:
        wishes["coterie.gpu/policy"] = "required"
    return wishes


def _pick(weights: Mapping[Any, int], chance: random.Random) -> Any:
    return chance.choices(list(weights), list(weights.values()))[0]
