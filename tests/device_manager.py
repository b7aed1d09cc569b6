"""A kubelet's device manager, as Kubernetes 1.36.3 has it: which devices a container gets.

It follows pkg/kubelet/cm/devicemanager/manager.go line by line where a plugin can notice: the order
in which devices are allocated, the calls that are made and those that are not, what init containers
leave to others, and Go's random order of sets. It calls no plugin itself: it yields its calls and
is sent the answers, so that one model stands behind gRPC (`tests.fake_kubelet`), behind the
Topology Manager (`tests.topology_manager`) and behind the histories of tests/unit/plugin. It shares
no code with the product. tests/cluster compares with the real kubelet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from plugin.pods import NodePod, PodContainer

__all__ = [
    "Affinity",
    "Allocation",
    "DeviceManager",
    "Given",
    "NotAdmitted",
    "Preference",
    "answered",
    "by_affinity",
    "devices_to_allocate",
]

D = TypeVar("D", int, str)
Result = TypeVar("Result")
Affinity = Callable[["NodePod", str, str], "Collection[int] | None"]
"""The NUMA nodes of the Topology Manager's hint for a container and a resource; None as with the
policy `none`."""


class NotAdmitted(Exception):
    """The pod fails for good; the message is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Preference(Generic[D]):
    """A call of GetPreferredAllocation; answered with devices."""

    resource: str
    available: set[D]
    must_include: set[D]
    size: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """A call of Allocate; answered with the plugin's response."""

    resource: str
    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Given:
    """What a container got of a resource, and what the plugin said to it."""

    ids: frozenset[str]
    response: Any


def answered(calls: Generator[Any, Any, Result], answer: Callable[[Any], object]) -> Result:
    """Run the manager with a plugin that answers its calls at once."""
    reply = None
    while True:
        try:
            call = calls.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result
        reply = answer(call)


def devices_to_allocate(
    resource: str,
    required: int,
    *,
    reusable: set[D],
    healthy: set[D],
    allocated: set[D],
    order: Callable[[set[D]], Sequence[D]],
    filter_by_affinity: Callable[[set[D]], tuple[set[D], set[D], set[D]]],
) -> Generator[Preference[D], Collection[D], set[D]]:
    """`devicesToAllocate`, for a container that has none of the resource; adds to `allocated`.

    `order` stands for Go's order of a set: the first are taken. Raises `NotAdmitted`.
    """
    chosen: set[D] = set()

    def take(devices: set[D]) -> bool:
        """`allocateRemainingFrom`."""
        for one in order(devices - chosen):
            if len(chosen) == required:
                break
            allocated.add(one)
            chosen.add(one)
        return len(chosen) == required

    if take(reusable):
        return chosen
    available = healthy - allocated
    needed = required - len(chosen)
    if len(available) < needed:
        msg = (
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {needed}, Available: {len(available)}"
        )
        raise NotAdmitted(msg)
    aligned, unaligned, anywhere = filter_by_affinity(available)
    if needed < len(aligned):
        preferred = yield Preference(resource, aligned | chosen, set(chosen), required)
        is_enough = take(set(preferred) & aligned) or take(aligned)
    elif not (is_enough := take(aligned)):
        preferred = yield Preference(resource, available | chosen, set(chosen), required)
        is_enough = take(set(preferred) & available) or take(unaligned) or take(anywhere)
    if not is_enough:
        msg = f"unexpectedly allocated less resources than required. Requested: {required}"
        raise NotAdmitted(msg)
    return chosen


def by_affinity(
    available: set[D], numa: Mapping[D, Collection[int]], hint: Collection[int] | None
) -> tuple[set[D], set[D], set[D]]:
    """`filterByAffinity`: inside the hint, outside, and without NUMA node."""
    if hint is None or not any(numa.values()):
        return set(), set(), available
    inside = {one for one in available if set(numa[one]) & set(hint)}
    outside = {one for one in available - inside if numa[one]}
    return inside, outside, available - inside - outside


class DeviceManager:
    """The devices of each resource, and what containers have of them."""

    def __init__(self, chance: Random, affinity: Affinity = lambda *_: None) -> None:
        self.chance = chance
        """Stands for Go's order of maps."""
        self.affinity = affinity
        self.pods: dict[str, NodePod] = {}
        self.given: dict[tuple[str, str, str], Given] = {}
        self.healthy: dict[str, set[str]] = {}
        self.numa: dict[str, Mapping[str, Collection[int]]] = {}
        self._allocated: dict[str, set[str]] = defaultdict(set)
        self._reusable: dict[str, dict[str, set[str]]] = {}

    def active(self) -> Collection[str]:
        """The uids of the pods whose devices are theirs."""
        return self.pods

    def is_known(self, resource: str) -> bool:
        """Whether it is a device plugin's: else the container runs without."""
        return resource in self.healthy or bool(self._allocated[resource])

    def shuffled(self, ids: Collection[str]) -> list[str]:
        """In any order."""
        return self.chance.sample(sorted(ids), len(ids))

    def allocate(
        self, pod: NodePod, container: PodContainer
    ) -> Generator[Preference[str] | Allocation, Any, None]:
        """`Allocate`: what init containers leave is reused, what sidecars have is theirs.

        Raises `NotAdmitted`.
        """
        self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}
        reusable = self._reusable[pod.uid]
        for resource in self.shuffled(container.devices):
            if self.is_known(resource):
                yield from self._allocate(pod, container, resource, reusable.get(resource, set()))
        for resource in container.devices:
            given = self.given.get((pod.uid, container.name, resource))
            if given is None:
                continue
            if container.role is ContainerRole.INIT:
                reusable.setdefault(resource, set()).update(given.ids)
            else:
                reusable.setdefault(resource, set()).difference_update(given.ids)

    def _allocate(
        self, pod: NodePod, container: PodContainer, resource: str, reusable: set[str]
    ) -> Generator[Preference[str] | Allocation, Any, None]:
        """`allocateContainerResources`, of one resource."""
        required = container.devices[resource]
        self.collect()
        if self._has_its_own(pod, container.name, resource, required):
            return
        chosen = yield from devices_to_allocate(
            resource,
            required,
            reusable=reusable,
            healthy=self.healthy[resource],
            allocated=self._allocated[resource],
            order=self.shuffled,
            filter_by_affinity=lambda free: by_affinity(
                free, self.numa.get(resource, {}), self.affinity(pod, container.name, resource)
            ),
        )
        ids = frozenset(chosen)
        try:
            response = yield Allocation(resource, ids)
        except Exception:
            self._regenerate()
            raise
        self.given[pod.uid, container.name, resource] = Given(ids, response)

    def _has_its_own(self, pod: NodePod, container: str, resource: str, required: int) -> bool:
        """Whether there is nothing to allocate, after the checks that come before anything else."""
        before = self.given.get((pod.uid, container, resource))
        if before is not None and len(before.ids) != required:
            msg = f"container {container} changed request from {len(before.ids)} to {required}"
            raise NotAdmitted(msg)
        if resource not in self.healthy:
            msg = f"cannot allocate unregistered device {resource}"
            raise NotAdmitted(msg)
        if not self.healthy[resource]:
            msg = f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            raise NotAdmitted(msg)
        if before is not None and not before.ids <= self.healthy[resource]:
            msg = f"previously allocated devices are no longer healthy: {resource}"
            raise NotAdmitted(msg)
        return before is not None

    def collect(self) -> None:
        """`UpdateAllocatedDevices`: what pods had that are no longer active is free."""
        active = self.active()
        self.given = {key: given for key, given in self.given.items() if key[0] in active}
        self._regenerate()

    def _regenerate(self) -> None:
        for ids in self._allocated.values():
            ids.clear()  # an allocation that waits for its plugin goes on with the same set
        for (_, _, resource), given in self.given.items():
            self._allocated[resource] |= given.ids
