"""The containers of a pod, as every reader of a pod's JSON needs them.

Returns which containers a pod has, in which order and role, and what each names under `resources`.
It never interprets a quantity and knows no resource of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kube.objects.quantity import parse_quantity, parse_whole
from topology.errors import quote
from topology.model import needed_at, object_at, objects_at, text_at
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

__all__ = [
    "ContainerSpec",
    "devices_at",
    "devices_of",
    "init_role",
    "quantities_at",
    "read_containers",
]

_ALWAYS = "Always"
"""core/v1 types.go, ContainerRestartPolicyAlways."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container of a pod's spec; `content` is its JSON."""

    name: str
    role: ContainerRole
    content: Mapping[str, object]


def init_role(restart_policy: str | None) -> ContainerRole:
    """The role of an init container: one that is always restarted is a sidecar.

    >>> init_role("Always"), init_role(None)
    (<ContainerRole.SIDECAR: 'sidecar'>, <ContainerRole.INIT: 'init'>)
    """
    return ContainerRole.SIDECAR if restart_policy == _ALWAYS else ContainerRole.INIT


def read_containers(spec: Mapping[str, object]) -> Iterator[ContainerSpec]:
    """Read the containers of a pod's spec. Raises `Unreadable`.

    Init containers and sidecars first, each kind in its order: so the kubelet admits them
    (cm/topologymanager/scope_container.go).
    """
    for one in objects_at(spec, "initContainers"):
        yield ContainerSpec(needed_at(one, "name"), init_role(text_at(one, "restartPolicy")), one)
    for one in objects_at(spec, "containers"):
        yield ContainerSpec(needed_at(one, "name"), ContainerRole.APP, one)


def _is_extended_resource(resource: str) -> bool:
    """Whether a resource is named with a domain that is not Kubernetes' own.

    Kubernetes 1.36, pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.

    >>> _is_extended_resource("nvidia.com/gpu"), _is_extended_resource("cpu")
    (True, False)
    """
    return "/" in resource and "kubernetes.io/" not in resource


def quantities_at(parent: Mapping[str, object], key: str) -> dict[str, Fraction]:
    """The quantities under a key, by resource. Raises `Unreadable`."""
    found: dict[str, Fraction] = {}
    for resource, value in object_at(parent, key).items():
        quantity = parse_quantity(value)
        if quantity is None:
            msg = f"{key}[{quote(resource)}] is {quote(value)}, expected a quantity"
            raise Unreadable(msg)
        found[resource] = quantity
    return found


def devices_at(parent: Mapping[str, object], key: str, *, where: str = "") -> dict[str, int]:
    """How many devices stand under a key, by extended resource. Raises `Unreadable`."""
    found: dict[str, int] = {}
    for resource, value in object_at(parent, key).items():
        if not _is_extended_resource(resource):
            continue
        count = parse_whole(value)
        if count is None:
            msg = f"{where}{key}[{quote(resource)}] is {quote(value)}, expected a whole number"
            raise Unreadable(msg)
        found[resource] = count
    return found


def devices_of(pod: Mapping[str, object]) -> tuple[str, ...]:
    """The extended resources, as every GPU is, of which containers name any but 0, by name.

    Raises `Unreadable`, also for a request without a limit, which the API server refuses
    (pkg/apis/core/validation, "Limit must be set for non overcommitable resources").
    """
    spec = object_at(pod, "spec")
    found: set[str] = set()
    for key in ("containers", "initContainers"):
        for container in objects_at(spec, key):
            resources = object_at(container, "resources")
            limits, requests = devices_at(resources, "limits"), devices_at(resources, "requests")
            for resource in requests.keys() - limits.keys():
                msg = (
                    f"container {quote(text_at(container, 'name'))} requests {quote(resource)} "
                    "without a limit, expected one in resources.limits: the API server refuses "
                    "the pod"
                )
                raise Unreadable(msg)
            found |= {resource for resource, count in limits.items() if count}
    return tuple(sorted(found))
