"""The pods on a node and the room it has, as preemption weighs them.

It holds what evicting a pod gives back beside its GPUs, what a pod needs beside them, and
whether two pods may be in each other's way for another reason. It reads API JSON that the API
server has let through; it never decides who has to go (`extender.preemption.victims`).

What a pod takes is kube-scheduler's effective request (component-helpers v0.36.3,
resource/helpers.go `PodRequests`): app containers and sidecars add up, an init container needs its
own beside the sidecars before it, requests of the whole pod stand in for those of its containers,
overhead comes on top, and a container that was resized takes the most of what it requests, was
allocated and has. In millicores for `cpu` and whole units of everything else, rounded up
(scheduler/framework/types.go `Resource.Add`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kube.objects import Pod, pod_fields, quantities_at, read_containers
from topology.errors import quote
from topology.model import list_at, object_at, objects_at, text_at, whole_at
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kube.objects import ContainerSpec

__all__ = ["PODS", "NodeReading", "PodOnNode", "capacity_of", "is_entangled", "read_pod_on_node"]

PODS = "pods"
"""The resource of which every pod takes one (k8s.io/api core/v1, ResourcePods)."""

_NOTHING = Fraction(0)
_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"
_LOCAL_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "name", "projected", "secret"}
)
"""Volumes that no node runs out of and no two pods compete for, and the key that all have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOnNode(Pod):
    """A pod that a node has, or is to have, and what its eviction gives back.

    `started_s`: seconds since 1970 at which the kubelet saw it, None before that. `requests` in
    millicores and units, `pods` among them. `ports`: (protocol, host port). `is_apart`: it has
    required pod anti-affinity. `is_spread`: it has topology spread constraints that must hold.
    `has_claims`: volumes or devices that are attached or claimed.
    """

    started_s: float | None = None
    requests: Mapping[str, int] = field(default_factory=dict[str, int])
    ports: frozenset[tuple[str, int]] = frozenset()
    is_apart: bool = False
    is_spread: bool = False
    has_claims: bool = False


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node as the API server has it now: what it can hold, and its pods, ended ones too."""

    name: str
    room: Mapping[str, int]
    pods: tuple[PodOnNode, ...]

    @property
    def uids(self) -> frozenset[str]:
        """The pods that have not ended."""
        return frozenset(one.uid for one in self.pods if not one.has_ended)


def is_entangled(pod: PodOnNode, other: PodOnNode) -> bool:
    """Whether `other` may keep `pod` off its node for another reason than what it takes.

    Errs on the side of yes: ports of any address, anti-affinity against whomever, any claim.
    """
    return (
        not pod.ports.isdisjoint(other.ports)
        or pod.is_apart
        or other.is_apart
        or pod.is_spread
        or (pod.has_claims and other.has_claims)
    )


def capacity_of(allocatable: Mapping[str, Fraction]) -> Mapping[str, int]:
    """What a node can hold, in the units of `PodOnNode.requests`.

    >>> capacity_of({"cpu": Fraction(15, 2), "pods": Fraction(110)})
    {'cpu': 7500, 'pods': 110}
    """
    return _whole(allocatable)


def read_pod_on_node(content: Mapping[str, object]) -> PodOnNode:
    """Read a Pod. Raises `Unreadable`."""
    spec, status = object_at(content, "spec"), object_at(content, "status")
    anti = object_at(object_at(spec, "affinity"), "podAntiAffinity")
    volumes = objects_at(spec, "volumes")
    spread = objects_at(spec, "topologySpreadConstraints")
    return PodOnNode(
        **pod_fields(content),
        started_s=_time(status, "startTime"),
        requests=_requests(spec, status),
        ports=frozenset(_ports(spec)),
        is_apart=len(list_at(anti, "requiredDuringSchedulingIgnoredDuringExecution")) > 0,
        is_spread=any(text_at(one, "whenUnsatisfiable") == "DoNotSchedule" for one in spread),
        has_claims=len(list_at(spec, "resourceClaims")) > 0
        or any(not _LOCAL_VOLUMES.issuperset(one) for one in volumes),
    )


def _time(parent: Mapping[str, object], key: str) -> float | None:
    text = text_at(parent, key)
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        msg = f"{key} is {quote(text)}, expected a time as in RFC 3339"
        raise Unreadable(msg) from error


def _ports(spec: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    for container in read_containers(spec):
        for port in objects_at(container.content, "ports"):
            if number := whole_at(port, "hostPort"):
                yield text_at(port, "protocol") or "TCP", number


# What a pod takes.


def _requests(spec: Mapping[str, object], status: Mapping[str, object]) -> Mapping[str, int]:
    statuses = _statuses(status)
    total: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = {}
    most: dict[str, Fraction] = {}
    for container in read_containers(spec):
        if container.role is ContainerRole.INIT:
            beside = dict(sidecars)
            _add(beside, _requested(container.content))
            _raise(most, beside)
            continue
        own = _of_container(container, statuses)
        _add(total, own)
        if container.role is ContainerRole.SIDECAR:
            _add(sidecars, own)
            _raise(most, sidecars)
    _raise(total, most)
    total |= {
        resource: quantity
        for resource, quantity in _requested(spec).items()
        if resource in _POD_LEVEL or resource.startswith(_HUGE_PAGES)
    }
    _add(total, quantities_at(spec, "overhead"))
    return _whole(total) | {PODS: 1}


def _statuses(status: Mapping[str, object]) -> Mapping[str, tuple[Mapping[str, object], bool]]:
    """Status of each container, and whether the kubelet ruled out the requested size."""
    is_infeasible = any(
        text_at(one, "type") == "PodResizePending" and text_at(one, "reason") == "Infeasible"
        for one in objects_at(status, "conditions")
    )
    return {
        text_at(one, "name"): (one, is_infeasible)
        for key in ("containerStatuses", "initContainerStatuses")
        for one in objects_at(status, key)
    }


def _of_container(
    container: ContainerSpec,
    statuses: Mapping[str, tuple[Mapping[str, object], bool]],
) -> Mapping[str, Fraction]:
    """What a container takes that may be resized while it runs (`determineEffectiveRequests`)."""
    requested = _requested(container.content)
    status, is_infeasible = statuses.get(container.name, ({}, False))
    if status.get("resources") is None:
        return requested
    taken = {} if is_infeasible else dict(requested)
    _raise(taken, _requested(status))
    _raise(taken, quantities_at(status, "allocatedResources"))
    return taken


def _requested(parent: Mapping[str, object]) -> Mapping[str, Fraction]:
    return quantities_at(object_at(parent, "resources"), "requests")


def _add(total: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for resource, quantity in more.items():
        total[resource] = total.get(resource, _NOTHING) + quantity


def _raise(least: dict[str, Fraction], other: Mapping[str, Fraction]) -> None:
    for resource, quantity in other.items():
        least[resource] = max(least.get(resource, _NOTHING), quantity)


def _whole(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    return {
        resource: math.ceil(1000 * quantity if resource == "cpu" else quantity)
        for resource, quantity in amounts.items()
    }
