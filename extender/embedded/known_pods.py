"""A pod of the embedded cluster, which has no API server to read it from.

Writes the manifest again from what the pod requested when it was filtered, so that the pod can be
explained by its name. It decides nothing, and knows nothing of a pod that was not filtered.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from extender.protocol import write_node_affinity
from topology.annotations import (
    ANY_DOMAIN,
    POD_KEYS,
    GroupWish,
    PlacementPolicy,
    Strength,
    pod_keys,
)
from topology.model import names
from topology.select import ContainerRole

if TYPE_CHECKING:
    from extender.protocol import PodRequest, Shape
    from extender.state import BoundPod

__all__ = ["write_pod"]

Json: TypeAlias = "dict[str, object]"
_DEFAULTS = PlacementPolicy()


def write_pod(request: PodRequest, bound: BoundPod | None) -> Json:
    """The pod in the shape of API JSON: what it requests, and its node and plan where it has them.

    `extender.protocol.parse_pod` reads the same request from it.
    """
    shape = request.shape
    annotations = {} if shape is None else _wishes(shape.policy)
    if request.group is not None and not request.group.counts_all:
        annotations |= _group(request.group)
    spec: Json = {} if shape is None else _containers(request, shape)
    spec |= write_node_affinity(request.node_affinity)
    if bound is not None:
        spec["nodeName"] = bound.node
        if bound.plan_text is not None:
            annotations[names.PLAN] = bound.plan_text
    identity = {"namespace": request.namespace, "name": request.name, "uid": request.uid}
    return {"metadata": identity | {"annotations": annotations}, "spec": spec}


def _wishes(policy: PlacementPolicy) -> dict[str, str]:
    """The annotations that differ from their defaults."""
    found: dict[str, str] = {}
    for key in POD_KEYS:
        value: object = None if key.field is None else getattr(policy, key.field)
        if key.field is not None and value != getattr(_DEFAULTS, key.field):
            found[key.name] = str(value.value if isinstance(value, Enum) else value)
    return found


def _group(wish: GroupWish) -> dict[str, str]:
    """The annotations of a pod's group."""
    found = {pod_keys.GROUP: wish.name}
    if wish.size is not None:
        found[pod_keys.GROUP_SIZE] = str(wish.size)
    if wish.domain != ANY_DOMAIN:
        found[pod_keys.GROUP_DOMAIN] = wish.domain
    if wish.strength is not Strength.PREFERRED:
        found[pod_keys.GROUP_POLICY] = wish.strength.value
    return found


def _containers(request: PodRequest, shape: Shape) -> Json:
    app: list[Json] = []
    init: list[Json] = []
    for name, one in zip(request.containers, shape.requests, strict=True):
        container: Json = {"name": name, "resources": {"limits": {shape.resource: str(one.size)}}}
        if one.role is ContainerRole.SIDECAR:
            container["restartPolicy"] = "Always"
        (app if one.role is ContainerRole.APP else init).append(container)
    return {"initContainers": init, "containers": app}
