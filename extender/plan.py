"""The plan: which devices each container of a pod gets, as the pod's annotation says it.

What it answers: the text under `coterie.gpu/plan`. The plan is the record: the node agent hands out
exactly these ids, and a restarted extender reads its ledger back from them.

Content (compact JSON): `v` schema major version; `node`; `containers`, each with `name`, `resource`
and `ids` (kubelet device ids, device order); `generation` of the ledger the plan was made from;
`score` the predicted all-reduce bus bandwidth of the worst container in GB/s (0 where no container
has two GPUs).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from topology import names

__all__ = ["ContainerPlan", "Plan", "encode_plan"]


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """Devices of one container, in device order."""

    name: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Devices of a pod. `ids` is the union over containers, in device order.

    `containers` is empty on a node without usable topology: there the kubelet chooses, and `ids`
    only keep the count in the ledger.
    """

    node: str
    containers: tuple[ContainerPlan, ...]
    ids: tuple[str, ...]
    generation: int
    score_gbytes_per_s: float


def encode_plan(plan: Plan) -> str:
    """Write the annotation.

    >>> encode_plan(
    ...     Plan("n1", (ContainerPlan("main", "nvidia.com/gpu", ("GPU-0",)),), ("GPU-0",), 7, 0.0)
    ... )
    '{"v":1,"node":"n1","containers":[{"name":"main","resource":"nvidia.com/gpu","ids":["GPU-0"]}],"generation":7,"score":0.0}'
    """
    content = {
        "v": names.SCHEMA_MAJOR,
        "node": plan.node,
        "containers": [
            {"name": one.name, "resource": one.resource, "ids": list(one.ids)}
            for one in plan.containers
        ],
        "generation": plan.generation,
        "score": round(plan.score_gbytes_per_s, 3),
    }
    return json.dumps(content, separators=(",", ":"))
