"""The demo's pods: a mix drawn from a seed, each with its arrival, duration and wishes.

The mix says which pods arrive when, for how long, with how many GPUs and which annotations; it is
the same for every policy. Nothing is placed here.

The mix is ours, made so that every size and affinity occurs. Sizes lean to 1, 2, 4 and 8, the only
ones in the openb trace; there most pods request one GPU, here fewer, since one GPU leaves no set to
choose. Odd sizes are there because users request them. A minute is the unit of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from topology.annotations import Affinity, PlacementPolicy, parse_policy, pod_keys
from topology.model import names

__all__ = ["NAMESPACE", "DemoPod", "draw_pods"]

NAMESPACE = "demo"

SIZE_WEIGHTS = {1: 18, 2: 28, 3: 8, 4: 24, 5: 4, 6: 6, 7: 2, 8: 10}
AFFINITY_WEIGHTS: dict[str | None, int] = {
    None: 35,
    "nvlink": 33,
    "numa": 10,
    "pcie-switch": 8,
    "none": 14,
}
"""For pods of 2 and more GPUs; None is the absent annotation."""
SINGLE_AFFINITY_WEIGHTS: dict[str | None, int] = {None: 70, "none": 30}
REQUIRED_SHARE = 0.4
"""Share of `required` among the pods that name a level."""
MOST_REQUIRED = {"nvlink": 8, "numa": 4, "pcie-switch": 4}
"""Largest set that some machine of the fleet has at that level; a larger wish is `preferred`."""
DURATION_MINUTES = (45, 105)
GAP_MINUTES = (0, 1, 2)
_IMAGES = {True: "registry.example/train:1", False: "registry.example/notebook:1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPod:
    """One pod with one GPU container. `affinity` None is the absent annotation."""

    name: str
    uid: str
    size: int
    affinity: str | None = None
    is_required: bool = False
    arrival_minute: int = 0
    duration_minutes: int = 1

    @property
    def annotations(self) -> dict[str, str]:
        """What the pod's owner wrote."""
        annotations = {} if self.affinity is None else {pod_keys.AFFINITY: self.affinity}
        return annotations | ({pod_keys.POLICY: "required"} if self.is_required else {})

    @property
    def policy(self) -> PlacementPolicy:
        """The annotations as the extender understands them."""
        return parse_policy(self.annotations)

    @property
    def wish(self) -> str:
        """The annotations in a word or two, for people."""
        affinity = "best set" if self.affinity is None else self.affinity
        return f"{affinity}, required" if self.is_required else affinity

    @property
    def is_judged(self) -> bool:
        """Whether bandwidth matters to it: two or more GPUs and not affinity `none`."""
        return self.size > 1 and self.policy.affinity is not Affinity.NONE

    def as_json(self) -> dict[str, Any]:
        """The pod as kube-scheduler has it: API JSON without kind and apiVersion."""
        count = {names.DEFAULT_RESOURCE: str(self.size)}
        return {
            "metadata": {
                "name": self.name,
                "namespace": NAMESPACE,
                "uid": self.uid,
                "annotations": self.annotations,
            },
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": _IMAGES[self.size > 1],
                        "resources": {"limits": count, "requests": count},
                    }
                ],
                "restartPolicy": "Never",
                "schedulerName": "default-scheduler",
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }


def draw_pods(n_pods: int, *, seed: int) -> tuple[DemoPod, ...]:
    """Draw the mix, in order of arrival; the same seed gives the same pods.

    >>> [pod.size for pod in draw_pods(3, seed=1)] == [pod.size for pod in draw_pods(9, seed=1)][:3]
    True
    """
    rng = Random(seed)
    minute = 0
    pods: list[DemoPod] = []
    for number in range(n_pods):
        size = _weighted(rng, SIZE_WEIGHTS)
        affinity = _weighted(rng, AFFINITY_WEIGHTS if size > 1 else SINGLE_AFFINITY_WEIGHTS)
        insists = rng.random() < REQUIRED_SHARE
        duration = rng.randint(*DURATION_MINUTES)
        pods.append(
            DemoPod(
                name=f"pod-{number:03d}",
                uid=f"00000000-0000-4000-8000-{number:012d}",
                size=size,
                affinity=affinity,
                is_required=insists and size <= MOST_REQUIRED.get(affinity or "", 0),
                arrival_minute=minute,
                duration_minutes=duration,
            )
        )
        minute += rng.choice(GAP_MINUTES)
    return tuple(pods)


def _weighted(rng: Random, weights: dict[Any, int]) -> Any:  # noqa: ANN401 - the type of the keys
    return rng.choices(tuple(weights), tuple(weights.values()))[0]
