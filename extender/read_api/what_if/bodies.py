"""The question and the answer of a what-if: the types that are read, built and described."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator, with_config
from typing_extensions import TypedDict

from extender.groups import GroupFigures
from extender.read_api.bodies import ContainerBody, SizeKey

__all__ = [
    "MAX_NODES",
    "MAX_PODS",
    "CapacityAfter",
    "PlacedGroupBody",
    "PlacementBody",
    "WhatIfAnswer",
    "WhatIfBody",
]

MAX_PODS = 512
MAX_NODES = 64
"""Nodes drained, and nodes added."""


class Asked(BaseModel):
    """A part of the question: exactly these fields, each of its type, up to the first fault."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_further_unknown(cls, content: object) -> object:
        """Keep one unknown field: each is a fault, and some microseconds."""
        if not isinstance(content, dict):
            return content
        fields = cast("dict[str, object]", content)
        unknown = [key for key in fields if key not in cls.model_fields][1:]
        return {key: fields[key] for key in fields.keys() - unknown} if unknown else fields


class AskedPods(Asked):
    """A manifest of a pod, or of a controller of Kubernetes' own, and how many of its pods.

    Without `count` as many as the manifest says: a Job's parallelism, a Deployment's replicas.
    """

    manifest: dict[str, Any]
    count: Annotated[int, Field(ge=1)] | None = None


class AskedNodes(Asked):
    """New nodes of a machine type of the cluster, or of a shipped recording."""

    machine: str
    count: Annotated[int, Field(ge=1)] = 1


class WhatIfBody(Asked):
    """Nodes are added, then others drained and their pods placed again, then pods placed.

    At least one of the three; at most 512 pods, 64 drained and 64 added nodes.
    """

    pods: Annotated[list[AskedPods], FailFast(), Field(max_length=MAX_PODS)] = []
    drain: Annotated[list[str], FailFast(), Field(max_length=MAX_NODES)] = []
    add: Annotated[list[AskedNodes], FailFast(), Field(max_length=MAX_NODES)] = []


class AddedNode(TypedDict):
    """A node that was added, and its name here."""

    node: str
    machine: str


class RefusedCount(TypedDict):
    """How many nodes cannot take a pod for this reason."""

    reason: str
    reason_label: str
    reason_short: str
    n_nodes: int


class PlacementBody(TypedDict):
    """Where a pod would go; figures are those of its slowest container.

    `node` is null where there is none, and `reason` says why; `containers` is empty then, and where
    devices go by count. `n_fit` counts the nodes that fit, `reasons` the others. `group` is the
    name of the entry of `groups` that the pod is a member of; a member may have no node though some
    fit it alone. `assumed` is null
    where the pod is known in full; without `is_selector_known` it goes there only if its
    nodeSelector and node affinity allow it. `now_gbytes_per_s` is what an evicted pod has now.
    """

    pod: str
    group: str | None
    is_evicted: bool
    node: str | None
    machine: str | None
    containers: list[ContainerBody]
    gbytes_per_s: float | None
    share: float | None
    n_fit: int
    reason: str | None
    reasons: list[RefusedCount]
    assumed: str | None
    is_selector_known: bool
    now_gbytes_per_s: float | None


class PlacedGroupBody(GroupFigures):
    """Where a group with a size would go, as a whole: namespace and name, and its members.

    `n_members` are in the question, `n_placed` of them have a node, `n_bound` others run already;
    `n_without_gpus` more of its size are taken to have no GPUs, where a size counts such pods.
    `level` and `domain` are those that hold all, null where none does. The figures are predicted
    for all, null where they are unknown. `reason` is null where all members have a node; `detail`
    then says why a figure is unknown.
    """

    group: str
    size: int
    n_members: int
    n_placed: int
    n_bound: int
    n_without_gpus: int
    level: str | None
    domain: str | None
    reason: str | None
    reason_label: str | None
    reason_short: str | None
    detail: str


class CapacityAfter(TypedDict):
    """What is free of a machine type, counted as in `/api/v1/capacity`."""

    topology: str | None
    machine: str
    resource: str
    nodes: int
    gpus: int
    free: int
    placeable: dict[SizeKey, int]
    stranded: int


@with_config(defer_build=True)
class WhatIfAnswer(TypedDict):
    """What would happen. `before` and `after` have the same machine types in the same order.

    `warnings` are sentences about what has no effect of the question's pods, each once.
    `not_considered` are sentences about what kube-scheduler and an eviction consider beside.
    """

    generation: int
    added: list[AddedNode]
    drained: list[str]
    placements: list[PlacementBody]
    groups: list[PlacedGroupBody]
    before: list[CapacityAfter]
    after: list[CapacityAfter]
    warnings: list[str]
    not_considered: list[str]
