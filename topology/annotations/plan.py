"""The plan: which devices each container of a pod gets, as the pod's annotation says it.

What it answers: the text under `coterie.gpu/plan`, both ways, and that under
`coterie.gpu/allocated`, which shows users what the kubelet gave where it is not the plan. The plan
is the record: the node plugin hands out exactly these ids, and a restarted extender reads its state
back from them. It never decides anything.

Content (compact JSON): `v` schema major version; `node`; `containers`, each with `name`, `resource`
and `ids` (kubelet device ids, device order); `generation` of the state the plan was made from;
`score` the predicted all-reduce bus bandwidth of the worst container in GB/s (0 where no container
has two GPUs); `priority` the pod's `spec.priority` (absent: 0); `group` that of a pod placed with
others: `name`, `domain` (the path's names, the widest first) and `rank` if it has one. A reader
ignores unknown fields; a plan of another major version is refused, never guessed at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from topology.annotations.group import PlanGroup
from topology.model import names, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topology.model import Field

__all__ = [
    "ContainerPlan",
    "Plan",
    "decode_allocation",
    "decode_plan",
    "encode_allocation",
    "encode_plan",
]


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """Devices of one container, in device order."""

    name: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Devices of a pod. `ids` is the union over containers.

    They are in device order where the plan was made from a node, and in order of appearance where
    it was read: the text does not have the node's order.

    `containers` is empty on a node without usable topology: there the kubelet chooses, and `ids`
    only keep the count in the state. `priority` is the pod's, as the scheduler compares pods.
    """

    node: str
    containers: tuple[ContainerPlan, ...]
    ids: tuple[str, ...]
    generation: int
    score_gbytes_per_s: float
    priority: int = 0
    group: PlanGroup | None = None


@lru_cache(maxsize=1)
def encode_plan(plan: Plan) -> str:
    """Write the annotation.

    The latest one is remembered: a bind needs it twice, to keep its hash and to write it.

    >>> encode_plan(
    ...     Plan("n1", (ContainerPlan("main", "nvidia.com/gpu", ("GPU-0",)),), ("GPU-0",), 7, 0.0)
    ... )
    '{"v":1,"node":"n1","containers":[{"name":"main","resource":"nvidia.com/gpu","ids":["GPU-0"]}],"generation":7,"score":0.0}'
    """
    content = _content(plan.node, plan.containers)
    content["generation"] = plan.generation
    content["score"] = round(plan.score_gbytes_per_s, 3)
    if plan.priority:
        content["priority"] = plan.priority
    if plan.group is not None:
        rank = {} if plan.group.rank is None else {"rank": plan.group.rank}
        content["group"] = {"name": plan.group.name, "domain": list(plan.group.domain), **rank}
    return json.dumps(content, separators=(",", ":"))


def encode_allocation(node: str, containers: Iterable[ContainerPlan]) -> str:
    """Write `coterie.gpu/allocated`: what the kubelet gave, in the form of a plan.

    >>> encode_allocation("n1", (ContainerPlan("main", "nvidia.com/gpu", ("GPU-1",)),))
    '{"v":1,"node":"n1","containers":[{"name":"main","resource":"nvidia.com/gpu","ids":["GPU-1"]}]}'
    """
    return json.dumps(_content(node, containers), separators=(",", ":"))


def _content(node: str, containers: Iterable[ContainerPlan]) -> dict[str, object]:
    return {
        "v": names.SCHEMA_MAJOR,
        "node": node,
        "containers": [
            {"name": one.name, "resource": one.resource, "ids": list(one.ids)} for one in containers
        ],
    }


def decode_plan(text: str) -> Plan:
    """Read the annotation.

    Raises `CodecError`, and nothing else, for text that is no plan of this major version: members
    that are missing or of another type, no container, a container named twice, a container without
    ids or with one twice. Containers may share ids (an init container hands its own on).

    >>> decode_plan(
    ...     '{"v":1,"node":"n1","containers":[{"name":"main","resource":"r","ids":["b","a"]}],'
    ...     '"generation":7,"score":0.0}'
    ... ).ids
    ('b', 'a')
    """
    return read_text(text, "plan text", _read_plan)


def decode_allocation(text: str) -> tuple[str, tuple[ContainerPlan, ...]]:
    """Read the node and the containers of `coterie.gpu/allocated`, or of a plan.

    Raises `CodecError` as `decode_plan` does.

    >>> decode_allocation(encode_allocation("n1", (ContainerPlan("main", "r", ("GPU-1",)),)))
    ('n1', (ContainerPlan(name='main', resource='r', ids=('GPU-1',)),))
    """
    return read_text(text, "allocation text", _read_allocation)


def _read_allocation(root: Field) -> tuple[str, tuple[ContainerPlan, ...]]:
    version = root.need("v")
    if version.integer() != names.SCHEMA_MAJOR:
        version.fail(f"major version {names.SCHEMA_MAJOR}")
    members = root.need("containers")
    containers = tuple(_read_container(one) for one in members.items())
    if not containers or len({one.name for one in containers}) != len(containers):
        members.fail("containers with different names, at least one")
    return root.need("node").text(), containers


def _read_plan(root: Field) -> Plan:
    node, containers = _read_allocation(root)
    return Plan(
        node=node,
        containers=containers,
        ids=tuple(dict.fromkeys(one for container in containers for one in container.ids)),
        generation=root.need("generation").integer(),
        score_gbytes_per_s=root.need("score").number(),
        priority=root.integer_or_none("priority") or 0,
        group=_read_group(root),
    )


def _read_group(root: Field) -> PlanGroup | None:
    field = root.get("group")
    if field is None:
        return None
    domain = tuple(one.text() for one in field.need("domain").items())
    return PlanGroup(field.need("name").text(), domain, field.integer_or_none("rank"))


def _read_container(field: Field) -> ContainerPlan:
    members = field.need("ids")
    ids = tuple(one.text() for one in members.items())
    if not ids or len(set(ids)) != len(ids):
        members.fail("different device ids, at least one")
    return ContainerPlan(field.need("name").text(), field.need("resource").text(), ids)
