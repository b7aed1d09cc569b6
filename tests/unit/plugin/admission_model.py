"""The kubelet's admission and device manager, in small.

Written from pkg/kubelet of 1.36.3 alone (kubelet.go `HandlePodAdditions`, `rejectPod`;
cm/devicemanager/manager.go `Allocate`, `devicesToAllocate`, `UpdateAllocatedDevices`,
`GetDeviceRunContainerOptions`; apis/podresources/server_v1.go `List`): it knows nothing of how the
plugin finds out who asks. Where Go walks a map, the order here is random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from plugin.allocation import DeviceRequest
from plugin.pods import HeldDevices
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from plugin.pods import NodePod, PodContainer

__all__ = ["Kubelet", "Plugin", "Rejected"]


class Rejected(Exception):
    """The pod is not admitted."""


class Plugin(Protocol):
    """What the kubelet calls."""

    def prefer(self, request: DeviceRequest) -> Iterable[str]:
        """GetPreferredAllocation."""
        ...

    def allocate(self, resource: str, ids: list[str]) -> None:
        """Allocate."""
        ...


@dataclass
class Kubelet:
    """One kubelet. `aligns`: devices have NUMA nodes, and hints of random ones come about."""

    random: Random
    healthy: dict[str, set[str]]
    plugin: Plugin | None = None
    aligns: bool = False

    def __post_init__(self) -> None:
        self.pods: dict[str, NodePod] = {}
        self.given: dict[str, dict[str, dict[str, set[str]]]] = {}
        self.inactive: set[str] = set()
        self.reusable: dict[str, dict[str, set[str]]] = {}
        self.asking: tuple[str, str] | None = None
        self.is_registered = True

    # What others may see.

    @property
    def asked_for(self) -> tuple[str, str]:
        """Uid and container of the call under way."""
        assert self.asking is not None
        return self.asking

    def list_pods(self) -> tuple[NodePod, ...]:
        """The answer to /pods: statuses are the API server's, the order is a map's."""
        pods = list(self.pods.values())
        self.random.shuffle(pods)
        return tuple(pods)

    def active_pods(self) -> frozenset[tuple[str, str]]:
        """The pods that PodResources lists (1.34 on)."""
        return frozenset((p.namespace, p.name) for p in self._active())

    def pod_resources(self) -> tuple[HeldDevices, ...]:
        """What PodResources says that active pods have; plain init containers are left out."""
        self._collect()
        return tuple(
            HeldDevices(pod.namespace, pod.name, one.name, resource, tuple(sorted(ids)))
            for pod in self._active()
            for one in pod.containers
            if one.role is not ContainerRole.INIT
            for resource, ids in self.given.get(pod.uid, {}).get(one.name, {}).items()
        )

    def checkpoint(self) -> tuple[HeldDevices, ...]:
        """What the checkpoint says, with those of pods that are gone."""
        return tuple(
            HeldDevices("", "", container, resource, tuple(sorted(ids)), uid)
            for uid, containers in self.given.items()
            for container, resources in containers.items()
            for resource, ids in resources.items()
        )

    # What happens.

    def admit(self, pod: NodePod, *, fails_at: str | None = None) -> None:
        """Take a pod in. `fails_at` names a container at which something else fails, or `end`."""
        self.pods[pod.uid] = pod
        try:
            for container in pod.containers:
                self._check(container.name != fails_at)
                self._allocate(pod, container)
            self._check(fails_at != "end")
        except Rejected:
            self.inactive.add(pod.uid)
        finally:
            self.asking = None

    def _check(self, is_well: bool) -> None:
        """What other parts of the kubelet say."""
        if not is_well:
            raise Rejected

    def start_again(self, uid: str, container: PodContainer) -> None:
        """A container of a running pod starts once more."""
        pod = self.pods[uid]
        known = self.given.get(uid, {}).get(container.name, {})
        if self.is_registered and any(one not in known for one in container.devices):
            try:
                self._allocate(pod, container)
            except Rejected:
                pass
            finally:
                self.asking = None

    def sync(self, uid: str) -> None:
        """The API server has heard of a pod's status, and the kubelet has heard that it has."""
        phase = "Failed" if uid in self.inactive else "Running"
        self.pods[uid] = replace(self.pods[uid], phase=phase, is_started=True)

    def end(self, uid: str) -> None:
        """A pod ends; its status comes later."""
        self.inactive.add(uid)

    def remove(self, uid: str) -> None:
        """A pod is deleted."""
        del self.pods[uid]

    # The device manager.

    def _active(self) -> list[NodePod]:
        return [pod for pod in self.list_pods() if pod.uid not in self.inactive]

    def _collect(self) -> None:
        active = {pod.uid for pod in self._active()}
        self.given = {uid: given for uid, given in self.given.items() if uid in active}

    def _allocate(self, pod: NodePod, container: PodContainer) -> None:
        self.reusable = {pod.uid: self.reusable.get(pod.uid, {})}
        reusable = self.reusable[pod.uid]
        wanted = list(container.devices.items())
        self.random.shuffle(wanted)
        for resource, size in wanted if self.is_registered else ():
            self._collect()
            self.asking = (pod.uid, container.name)
            ids = self._choose(pod, container, resource, size, reusable.get(resource, set()))
            if ids:
                assert self.plugin is not None
                self.plugin.allocate(resource, self.random.sample(sorted(ids), len(ids)))
                given = self.given.setdefault(pod.uid, {}).setdefault(container.name, {})
                given[resource] = ids
        for resource, ids in self.given.get(pod.uid, {}).get(container.name, {}).items():
            so_far = reusable.get(resource, set())
            is_plain = container.role is ContainerRole.INIT
            reusable[resource] = so_far | ids if is_plain else so_far - ids

    def _choose(
        self, pod: NodePod, container: PodContainer, resource: str, size: int, reusable: set[str]
    ) -> set[str]:
        if resource in self.given.get(pod.uid, {}).get(container.name, {}):
            return set()
        chosen = self._some(reusable, size)
        if len(chosen) == size:
            return chosen
        in_use = {
            one
            for containers in self.given.values()
            for resources in containers.values()
            for one in resources.get(resource, ())
        } | chosen
        free = self.healthy[resource] - in_use
        if len(free) < size - len(chosen):
            raise Rejected
        aligned = self._some(free, self.random.randint(0, len(free))) if self.aligns else set()
        if size - len(chosen) < len(aligned):
            return self._ask(resource, aligned, chosen, size)
        chosen |= aligned
        return chosen if len(chosen) == size else self._ask(resource, free | chosen, chosen, size)

    def _ask(self, resource: str, free: set[str], chosen: set[str], size: int) -> set[str]:
        assert self.plugin is not None
        request = DeviceRequest(resource, frozenset(free | chosen), frozenset(chosen), size)
        preferred = set(self.plugin.prefer(request)) & free - chosen
        chosen = chosen | self._some(preferred, size - len(chosen))
        return chosen | self._some(free - chosen, size - len(chosen))

    def _some(self, devices: set[str], count: int) -> set[str]:
        return set(self.random.sample(sorted(devices), min(count, len(devices))))
