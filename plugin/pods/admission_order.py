"""What each pod holds so far, and which of its containers is pending.

The kubelet serves a pod's containers in order, init containers first, and of one container the
resources in random order (topologymanager/scope_container.go, `Admit`; devicemanager/manager.go,
`allocateContainerResources`, 1.36.3). So every container before the last one that has devices has
been served, whatever is known of it. What plain init containers have is handed on: each container
takes of that first; a sidecar or app container keeps what it takes (`Allocate` there,
`devicesToReuse`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from plugin.pods.node_pods import planned_ids
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from plugin.pods.node_pods import NodePod, PodContainer

__all__ = [
    "HeldDevices",
    "HoldingsByPod",
    "PendingContainer",
    "PodHoldings",
    "next_pending",
    "pending_restarts",
    "reserved_ids",
]

PodHoldings: TypeAlias = "Mapping[tuple[str, str], frozenset[str]]"
"""What one pod has: ids by container and resource."""


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """The devices that one container has of one resource.

    `uid` is None where the source lacks it (PodResources names pods by namespace and name).
    `ids` are sorted.
    """

    namespace: str
    name: str
    container: str
    resource: str
    ids: tuple[str, ...]
    uid: str | None = None


class HoldingsByPod:
    """Holdings by pod, in the form {(container, resource): ids}.

    A holding without uid belongs to the pod of its namespace and name. Where several holdings name
    one container and resource, their ids are joined.
    """

    __slots__ = ("_by_name", "_by_uid")

    def __init__(self, holdings: Iterable[HeldDevices]) -> None:
        self._by_uid: dict[str, dict[tuple[str, str], frozenset[str]]] = {}
        self._by_name: dict[tuple[str, str], dict[tuple[str, str], frozenset[str]]] = {}
        for one in holdings:
            if one.uid is None:
                entry = self._by_name.setdefault((one.namespace, one.name), {})
            else:
                entry = self._by_uid.setdefault(one.uid, {})
            key = (one.container, one.resource)
            entry[key] = entry.get(key, frozenset()) | frozenset(one.ids)

    def of(self, pod: NodePod) -> PodHoldings:
        """What a pod has."""
        named = self._by_name.get((pod.namespace, pod.name), {})
        own = self._by_uid.get(pod.uid, {})
        keys = dict.fromkeys((*named, *own))
        return {key: named.get(key, frozenset()) | own.get(key, frozenset()) for key in keys}


@dataclass(frozen=True, slots=True)
class PendingContainer:
    """A container of a pod that lacks devices.

    `lacks` counts devices by resource. `reusable` are, by resource, those that earlier init
    containers hand on to it; `kept` all others that the pod has.
    """

    pod: NodePod
    container: PodContainer
    lacks: Mapping[str, int]
    reusable: Mapping[str, frozenset[str]]
    kept: frozenset[str]

    def handed_on(self, resource: str) -> frozenset[str]:
        """The devices of a resource that the container takes before it gets any others."""
        return self.reusable.get(resource, frozenset())


def next_pending(
    pod: NodePod, held: PodHoldings, resources: Collection[str]
) -> PendingContainer | None:
    """The next pending container of a pod; None where all have what they request.

    `resources` are those that this plugin serves.
    """
    served = {container for container, _ in held}
    last = max((i for i, one in enumerate(pod.containers) if one.name in served), default=0)
    pending_containers = _turns(pod, pod.containers[last:], held, resources)
    return next(pending_containers, None)


def pending_restarts(
    pod: NodePod, held: PodHoldings, resources: Collection[str]
) -> tuple[PendingContainer, ...]:
    """Every container of a running pod that lacks devices: each starts again when it happens to.

    What init containers hand on then is at most `reusable`: the kubelet forgets it when another pod
    is admitted in between.
    """
    return tuple(_turns(pod, pod.containers, held, resources))


def _turns(
    pod: NodePod, containers: Iterable[PodContainer], held: PodHoldings, resources: Collection[str]
) -> Iterator[PendingContainer]:
    for container in containers:
        lacks = {
            resource: count
            for resource, count in container.devices.items()
            if resource in resources and (container.name, resource) not in held
        }
        if lacks:
            reusable = _reusable(pod, held, container)
            handed = frozenset[str]().union(*reusable.values())
            kept = frozenset[str]().union(*held.values()) - handed
            yield PendingContainer(pod, container, lacks, reusable, kept)


def _reusable(
    pod: NodePod, held: PodHoldings, container: PodContainer
) -> dict[str, frozenset[str]]:
    handed: dict[str, frozenset[str]] = {}
    for one in pod.containers[: pod.containers.index(container)]:
        for (name, resource), ids in held.items():
            if name == one.name:
                so_far = handed.get(resource, frozenset())
                is_handed_on = one.role is ContainerRole.INIT
                handed[resource] = so_far | ids if is_handed_on else so_far - ids
    return handed


def reserved_ids(
    pending_containers: Iterable[PendingContainer],
    *,
    node: str,
    own: tuple[str, PodContainer] | None = None,
) -> frozenset[str]:
    """Devices planned for pending containers other than the requesting one.

    `pending_containers` belong to pods that are not admitted yet; `own` is a pod's uid and its
    container. An init container may use what its own pod's later containers get, so nothing of its
    own pod is reserved from it.
    """
    reserved: set[str] = set()
    for pending in pending_containers:
        waiting = pending.pod.containers[pending.pod.containers.index(pending.container) :]
        if own is not None and pending.pod.uid == own[0]:
            is_init = own[1].role is ContainerRole.INIT
            waiting = () if is_init else tuple(one for one in waiting if one != own[1])
        for container in waiting:
            for resource in container.devices:
                reserved.update(
                    planned_ids(pending.pod, container.name, resource=resource, node=node)
                )
    return frozenset(reserved)
