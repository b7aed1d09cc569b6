"""The question and the answer of a what-if, as types of the API description.

The answer is JSON already: its types describe it, and a test holds it to them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from extender.read_api.bodies import ReadBody, SetBody

__all__ = ["WhatIfAnswer", "WhatIfBody"]


class Asked(BaseModel):
    """A part of the question: exactly these fields, each of its type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


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

    pods: list[AskedPods] = []
    drain: list[str] = []
    add: list[AskedNodes] = []


class AddedNode(ReadBody):
    """A node that was added, and its name here."""

    node: str
    machine: str


class TrialContainer(SetBody):
    """The GPUs of a container."""

    name: str


class RefusedCount(ReadBody):
    """How many nodes cannot take a pod for this reason."""

    reason: str
    reason_label: str
    n_nodes: int


class TrialPlacement(ReadBody):
    """Where a pod would go; figures are those of its slowest container.

    `node` is null where none fits, and `reason` says why; `containers` is empty then, and where
    devices go by count. `n_fit` counts the nodes that fit, `reasons` the others. `assumed` is null
    where the pod is known in full.
    """

    pod: str
    is_evicted: bool
    node: str | None
    machine: str | None
    containers: list[TrialContainer]
    gbytes_per_s: float | None
    share: float | None
    n_fit: int
    reason: str | None
    reasons: list[RefusedCount]
    assumed: str | None


class TrialCapacity(ReadBody):
    """What is free of a machine type, counted as in `/api/v1/capacity`."""

    topology: str | None
    machine: str
    resource: str
    nodes: int
    gpus: int
    free: int
    placeable: dict[Literal["2", "4", "8"], int]
    stranded: int


class WhatIfAnswer(ReadBody):
    """What would happen. `before` and `after` have the same machine types in the same order.

    `not_considered` are sentences about what kube-scheduler and an eviction consider beside.
    """

    generation: int
    added: list[AddedNode]
    drained: list[str]
    placements: list[TrialPlacement]
    before: list[TrialCapacity]
    after: list[TrialCapacity]
    not_considered: list[str]
