"""The demo's pods: a mix drawn from a seed, each with its arrival, duration and wishes.

The mix says which pods arrive when, for how long, with how many GPUs and which annotations; it is
the same for every policy. Nothing is placed here.

The mix is ours, made so that every size and affinity occurs. Sizes lean to 1, 2, 4 and 8, the only
ones in the openb trace; there most pods request one GPU, here fewer, since one GPU leaves no set to
choose. Odd sizes are there because users request them. A minute is the unit of time.

Most pods name a GPU model by the label of NVIDIA's gpu-feature-discovery, as users of mixed fleets
do: a job is written for a GPU's memory and speed. So the policies choose among the same machines
for such a pod. It requests only sizes and levels that some machine of that model has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from topology.annotations import Affinity, PlacementPolicy, parse_policy, pod_keys
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NAMESPACE", "PRODUCT_LABEL", "DemoPod", "Product", "draw_pods"]

NAMESPACE = "demo"
PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Node label of NVIDIA's gpu-feature-discovery: the GPU model, blanks as hyphens."""
PRODUCT_SHARE = 0.85
"""Share of pods that name a GPU model."""

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


@dataclass(frozen=True, slots=True)
class Product:
    """One GPU model of the fleet: its label, its GPUs, and the largest set by affinity.

    `largest` has the size of the largest machine under `any`, and for each level the largest set
    that has it, 0 for none.
    """

    name: str
    n_gpus: int
    largest: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPod:
    """One pod with one GPU container.

    `affinity` None is the absent annotation, `product` None a pod that takes any GPU model,
    `selects` what its nodeSelector has besides that; `group` is the name of a group and how many
    pods it must have before any of them is placed.
    """

    name: str
    uid: str
    size: int
    product: str | None = None
    selects: Mapping[str, str] = field(default_factory=dict[str, str])
    group: tuple[str, int] | None = None
    affinity: str | None = None
    is_required: bool = False
    arrival_minute: int = 0
    duration_minutes: int = 1

    @property
    def annotations(self) -> dict[str, str]:
        """What the pod's owner wrote."""
        annotations = {} if self.affinity is None else {pod_keys.AFFINITY: self.affinity}
        if self.is_required:
            annotations[pod_keys.POLICY] = "required"
        if self.group is not None:
            name, size = self.group
            annotations |= {pod_keys.GROUP: name, pod_keys.GROUP_SIZE: str(size)}
        return annotations

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
    def selector(self) -> dict[str, str]:
        """The pod's nodeSelector."""
        product = {} if self.product is None else {PRODUCT_LABEL: self.product}
        return {**product, **self.selects}

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
                "nodeSelector": self.selector,
                "restartPolicy": "Never",
                "schedulerName": "default-scheduler",
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }


def draw_pods(n_pods: int, *, seed: int, products: Sequence[Product] = ()) -> tuple[DemoPod, ...]:
    """Draw the mix, in order of arrival; the same seed gives the same pods.

    Most pods name one of `products`, drawn by its number of GPUs; without any, none does.

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
        product = _draw_product(rng, size, products)
        largest = MOST_REQUIRED if product is None else product.largest
        if product is not None and affinity != "none" and size > largest.get(affinity or "any", 0):
            affinity = None
        pods.append(
            DemoPod(
                name=f"pod-{number:03d}",
                uid=f"00000000-0000-4000-8000-{number:012d}",
                size=size,
                product=None if product is None else product.name,
                affinity=affinity,
                is_required=insists and affinity is not None and size <= largest.get(affinity, 0),
                arrival_minute=minute,
                duration_minutes=duration,
            )
        )
        minute += rng.choice(GAP_MINUTES)
    return tuple(pods)


def _draw_product(rng: Random, size: int, products: Sequence[Product]) -> Product | None:
    """A model with a machine of that many GPUs; None for a pod that takes any."""
    fitting = [product for product in products if product.largest["any"] >= size]
    if not fitting or rng.random() >= PRODUCT_SHARE:
        return None
    return rng.choices(fitting, [product.n_gpus for product in fitting])[0]


def _weighted(rng: Random, weights: dict[Any, int]) -> Any:  # noqa: ANN401 - the type of the keys
    return rng.choices(tuple(weights), tuple(weights.values()))[0]
