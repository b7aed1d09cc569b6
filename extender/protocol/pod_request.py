"""What a pod requests: wire pod -> one checked value.

Which resource, how many GPUs in each container and in which role, and under which policy. It never
looks at a node.

An extended resource is a whole number (`kube.objects.parse_whole`), its limit equals its request,
and there is none without a limit; a container that names the limit alone means both (API server,
pkg/apis/core/validation, ValidateResourceRequirements). `MalformedPod` says what is not so;
`UserError` says what the API server accepts and Coterie cannot place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from extender.errors import MalformedPod, UserError, WireError
from extender.protocol.messages import WirePod, decode
from extender.protocol.node_affinity import read_node_affinity
from extender.protocol.pod_group import PodGroup, has_group, inferred_group, read_group
from kube.objects import init_role, parse_whole
from topology.annotations import (
    Affinity,
    GroupWish,
    PlacementPolicy,
    Strength,
    is_remainder_first,
    parse_policy,
    pod_keys,
)
from topology.errors import PolicyError, quote
from topology.model import names
from topology.node_affinity import ANY_NODE, RequiredNodeAffinity
from topology.select import ContainerRequest, ContainerRole, pod_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from extender.protocol.messages import Container

__all__ = ["PodRequest", "Shape", "is_packed", "parse_pod", "read_request"]

MAX_COUNT = 512
"""Most GPUs that one container may request: the most devices a node may have (`topology.model`)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides which set a pod gets on a given node: equal shapes share their answers.

    `requests` carry the position of the container as its name, so that names do not matter. Shapes
    are keys that are looked up with each call: the hash is kept.
    """

    resource: str
    requests: tuple[ContainerRequest, ...]
    policy: PlacementPolicy
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.resource, self.requests, self.policy)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A pod's request. `shape` is None for a pod without GPUs; `containers` names those with GPUs.

    `is_managed`: a container names one of our resources, as kube-scheduler's `managedResources`
    counts it: also with 0 devices. `scheduler_name` is the pod's `spec.schedulerName`, or empty.
    `size_gpus` is what a node must have free (`topology.select.fit.pod_size`). `priority` is the
    pod's `spec.priority` (absent: 0); `resource_version` that of the pod as it was read, or empty;
    `retry` its annotation `coterie.gpu/retry`, or empty. `group` is the one that it belongs to, and
    `rank` its place among the members (`extender.protocol.pod_group`); None: there is none. A pod
    without GPUs has a group only where the group's size counts it. `pod_group`
    is the PodGroup of its `spec.schedulingGroup`, for which Kubernetes waits; or empty.
    `group_floor_gbytes_per_s` is the bandwidth that a member of a group with a size requires of the
    whole group. `node_affinity` is what the pod requires of its node's labels, which decides
    only whether members of a group ask for different GPU models; requests are equal without it.
    """

    uid: str
    namespace: str
    name: str
    shape: Shape | None
    containers: tuple[str, ...] = ()
    size_gpus: int = 0
    nominated_node: str | None = None
    has_soft_wishes: bool = False
    warnings: tuple[str, ...] = ()
    priority: int = 0
    resource_version: str = ""
    retry: str = ""
    is_managed: bool = False
    scheduler_name: str = ""
    group: GroupWish | None = None
    rank: int | None = None
    pod_group: str = ""
    group_floor_gbytes_per_s: float | None = None
    node_affinity: RequiredNodeAffinity = field(default=ANY_NODE, compare=False)
    resource: str = field(init=False, repr=False, compare=False)
    """The GPU resource that it requests; empty for a pod without GPUs."""
    full_name: str = field(init=False, repr=False, compare=False)
    """Namespace and name, as Kubernetes prints them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "resource", "" if self.shape is None else self.shape.resource)
        object.__setattr__(self, "full_name", f"{self.namespace}/{self.name}")

    @property
    def waits_for_others(self) -> bool:
        """Whether it is a member of a group with a size."""
        return self.group is not None and self.group.size is not None


def parse_pod(
    pod: WirePod, resources: Sequence[str], group_kinds: Collection[str] = ()
) -> PodRequest:
    """Read what a pod requests of the `resources` that Coterie places.

    `group_kinds` are those whose groups are inferred.

    Raises `MalformedPod` for counts that no API server would have let through, `UserError` for
    two of the resources in one pod and for invalid annotations.
    """
    meta = pod.metadata
    named = [
        (resource, one.name, size, role)
        for one, role in _containers(pod)
        for resource in resources
        if (size := _size(one, resource)) is not None
    ]
    requested = [row for row in named if row[2] > 0]
    found = sorted({resource for resource, _, _, _ in requested})
    if len(found) > 1:
        msg = f"pod {_title(pod)} requests {' and '.join(found)}, expected one GPU resource"
        raise UserError(msg)
    has_soft_wishes = pod.spec.has_soft_wishes
    nominated = pod.status.nominated_node_name if pod.status is not None else None
    priority, version = pod.spec.priority or 0, meta.resource_version or ""
    scheduler_name = pod.spec.scheduler_name or ""
    if not requested:
        wish = inferred_group(meta.labels or {}, meta.annotations or {}, group_kinds)
        return PodRequest(
            meta.uid,
            meta.namespace,
            meta.name,
            None,
            has_soft_wishes=has_soft_wishes,
            priority=priority,
            resource_version=version,
            is_managed=bool(named),
            scheduler_name=scheduler_name,
            group=wish if wish is not None and wish.counts_all else None,
        )
    requests = tuple(
        [
            ContainerRequest(name=str(i), size=size, role=role)
            for i, (_, _, size, role) in enumerate(requested)
        ]
    )
    containers = tuple([name for _, name, _, _ in requested])
    group = _group(pod, group_kinds) if _may_have_group(pod, group_kinds) else PodGroup()
    group_ref = pod.spec.scheduling_group
    node_affinity = ANY_NODE
    if pod.spec.node_selector is not None or pod.spec.affinity is not None:
        node_affinity = read_node_affinity(pod.spec)
    is_member = group.wish is not None and (group.wish.size or 1) > 1
    policy = _policy(pod, requests, containers, is_member=is_member)
    floor = policy.min_bandwidth_gbytes_per_s
    if floor is not None and any(one.size == 1 for one in requests):
        policy = replace(policy, min_bandwidth_gbytes_per_s=None)
    return PodRequest(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        shape=Shape(found[0], requests, policy),
        containers=containers,
        size_gpus=pod_size(requests),
        nominated_node=nominated or None,
        has_soft_wishes=has_soft_wishes,
        warnings=_warnings(policy) + group.warnings,
        priority=priority,
        resource_version=version,
        retry=(meta.annotations or {}).get(names.RETRY, ""),
        is_managed=True,
        scheduler_name=scheduler_name,
        group=group.wish,
        rank=group.rank,
        pod_group=(group_ref.pod_group_name or "") if group_ref is not None else "",
        group_floor_gbytes_per_s=floor if is_member else None,
        node_affinity=node_affinity,
    )


def _title(pod: WirePod) -> str:
    return quote(f"{pod.metadata.namespace}/{pod.metadata.name}")


def _containers(pod: WirePod) -> Iterator[tuple[Container, ContainerRole]]:
    """Init containers first, each kind in the order in which the kubelet admits them."""
    for one in pod.spec.init_containers or ():
        yield one, init_role(one.restart_policy)
    for one in pod.spec.containers or ():
        yield one, ContainerRole.APP


def _size(container: Container, resource: str) -> int | None:
    """Devices that a container requests; None where it does not name the resource."""
    if container.resources is None:
        return None
    limit = (container.resources.limits or {}).get(resource)
    request = (container.resources.requests or {}).get(resource)
    sizes = [_count(container.name, resource, one) for one in (limit, request) if one is not None]
    if limit is None and sizes:
        msg = (
            f"container {quote(container.name)}: request of {resource} is {quote(request)} and "
            "there is no limit, expected an equal one: the API server refuses the pod"
        )
        raise MalformedPod(msg)
    if len(set(sizes)) > 1:
        msg = (
            f"container {quote(container.name)}: limit of {resource} is {quote(limit)} and request "
            f"is {quote(request)}, expected equal (an extended resource cannot be overcommitted)"
        )
        raise MalformedPod(msg)
    return sizes[0] if sizes else None


def _count(container: str, resource: str, quantity: str | float) -> int:
    n_devices = parse_whole(quantity)
    if n_devices is None or n_devices > MAX_COUNT:
        msg = (
            f"container {quote(container)} requests {quote(quantity)} of {resource}, "
            f"expected a whole number 0..{MAX_COUNT}"
        )
        raise MalformedPod(msg)
    return n_devices


def _policy(
    pod: WirePod,
    requests: Sequence[ContainerRequest],
    containers: Sequence[str],
    *,
    is_member: bool,
) -> PlacementPolicy:
    """The policy; a pod with a single GPU may require a bandwidth only of a group's members."""
    annotations = pod.metadata.annotations or {}
    try:
        policy = parse_policy(annotations)
    except PolicyError as error:
        msg = f"pod {_title(pod)}: {error}"
        raise UserError(msg) from error
    if policy.min_bandwidth_gbytes_per_s is None or is_member:
        return policy
    single = next((name for i, name in enumerate(containers) if requests[i].size == 1), None)
    if single is not None:
        msg = (
            f"pod {_title(pod)}: annotation {pod_keys.MIN_BANDWIDTH} is "
            f"{quote(annotations[pod_keys.MIN_BANDWIDTH])} but container {quote(single)} requests "
            "1 GPU, expected at least 2 (a single GPU has no peer)"
        )
        raise UserError(msg)
    return policy


_GROUP_KEYS = frozenset(
    {pod_keys.GROUP, pod_keys.GROUP_SIZE, pod_keys.GROUP_DOMAIN, pod_keys.GROUP_POLICY}
)


def _may_have_group(pod: WirePod, kinds: Collection[str]) -> bool:
    meta = pod.metadata
    texts = meta.annotations or {}
    return (
        not _GROUP_KEYS.isdisjoint(texts)
        or pod.spec.scheduling_group is not None
        or (bool(kinds) and has_group(meta.labels or {}, texts, kinds))
    )


def _group(pod: WirePod, kinds: Collection[str]) -> PodGroup:
    try:
        return read_group(pod, kinds)
    except PolicyError as error:
        msg = f"pod {_title(pod)}: {error}"
        raise UserError(msg) from error


def _warnings(policy: PlacementPolicy) -> tuple[str, ...]:
    warnings: list[str] = []
    if policy.strength is Strength.REQUIRED and policy.affinity in {Affinity.ANY, Affinity.NONE}:
        warnings.append(
            f"annotation {pod_keys.POLICY} is 'required' without an affinity that a set can miss, "
            f"so it has no effect: expected {pod_keys.AFFINITY} nvlink, pcie-switch or numa beside "
            "it"
        )
    return tuple(warnings)


def is_packed(shape: Shape) -> bool:
    """Whether the core puts what is left behind before the set's own value."""
    return is_remainder_first(shape.policy, max(one.size for one in shape.requests))


def read_request(
    body: bytes, resources: Sequence[str], group_kinds: Collection[str] = ()
) -> PodRequest | None:
    """What a pod of the API server requests; None where filter has a sentence of its own for it."""
    try:
        return parse_pod(decode(WirePod, body), resources, group_kinds)
    except (WireError, MalformedPod, UserError):
        return None
