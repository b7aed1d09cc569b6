"""The kubelet's admission around its device manager: pods that come, fail, end and start again.

Written from pkg/kubelet of 1.36.3 alone (kubelet.go `HandlePodAdditions`, `rejectPod`;
cm/devicemanager/manager.go `GetDeviceRunContainerOptions`; apis/podresources/server_v1.go `List`):
it knows nothing of how the plugin finds the pod of a call.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from plugin.allocation import DeviceRequest
from plugin.pods import HeldDevices
from tests.device_manager import Allocation, DeviceManager, NotAdmitted, Preference, answered
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from random import Random

    from plugin.pods import NodePod, PodContainer

__all__ = ["Kubelet", "Plugin"]


class Plugin(Protocol):
    """What the kubelet calls."""

    def prefer(self, request: DeviceRequest) -> Iterable[str]:
        """GetPreferredAllocation."""
        ...

    def allocate(self, resource: str, ids: list[str]) -> None:
        """Allocate."""
        ...


class Kubelet(DeviceManager):
    """One kubelet. `aligns`: devices have NUMA nodes, and hints of random ones come about."""

    def __init__(self, chance: Random, healthy: dict[str, set[str]], *, aligns: bool) -> None:
        super().__init__(chance, lambda *_: self._hint() if aligns else None)
        self.healthy = healthy
        self.numa = {
            resource: {one: (place,) for place, one in enumerate(sorted(ids))}
            for resource, ids in healthy.items()
        }
        self.aligns = aligns
        self.plugin: Plugin | None = None
        self.inactive: set[str] = set()
        self.current: tuple[str, str] | None = None
        self.is_registered = True

    # What others may see.

    @property
    def under_admission(self) -> tuple[str, str]:
        """Uid and container of the call under way."""
        assert self.current is not None
        return self.current

    def list_pods(self) -> tuple[NodePod, ...]:
        """The answer to /pods: statuses are the API server's, the order is a map's."""
        return tuple(self.pods[uid] for uid in self.shuffled(self.pods))

    def active_pods(self) -> frozenset[tuple[str, str]]:
        """The pods that PodResources lists (1.34 on)."""
        return frozenset((p.namespace, p.name) for p in self._active_pods())

    def pod_resources(self) -> tuple[HeldDevices, ...]:
        """What PodResources says that active pods have; plain init containers are left out."""
        self.collect()
        return tuple(
            HeldDevices(pod.namespace, pod.name, one.name, resource, tuple(sorted(given.ids)))
            for pod in self._active_pods()
            for one in pod.containers
            if one.role is not ContainerRole.INIT
            for (uid, name, resource), given in self.given.items()
            if (uid, name) == (pod.uid, one.name)
        )

    def checkpoint(self) -> tuple[HeldDevices, ...]:
        """What the checkpoint says, with those of pods that are gone."""
        return tuple(
            HeldDevices("", "", container, resource, tuple(sorted(given.ids)), uid)
            for (uid, container, resource), given in self.given.items()
        )

    def active(self) -> Collection[str]:
        """The uids of the pods that neither failed nor ended."""
        return self.pods.keys() - self.inactive

    def is_known(self, resource: str) -> bool:
        """Whether a plugin has registered it."""
        return self.is_registered and super().is_known(resource)

    # What happens.

    def admit(self, pod: NodePod, *, fails_at: str | None = None) -> None:
        """Take a pod in. `fails_at` names a container at which something else fails, or `end`."""
        self.pods[pod.uid] = pod
        try:
            for container in pod.containers:
                _check(container.name != fails_at)
                self._take_in(pod, container)
            _check(fails_at != "end")
        except NotAdmitted:
            self.inactive.add(pod.uid)

    def start_again(self, uid: str, container: PodContainer) -> None:
        """A container of a running pod starts once more."""
        known = {one for own, name, one in self.given if (own, name) == (uid, container.name)}
        if self.is_registered and not container.devices.keys() <= known:
            with suppress(NotAdmitted):
                self._take_in(self.pods[uid], container)

    def _take_in(self, pod: NodePod, container: PodContainer) -> None:
        self.current = (pod.uid, container.name)
        try:
            answered(self.allocate(pod, container), self._call_plugin)
        finally:
            self.current = None

    def _call_plugin(self, call: Preference[str] | Allocation) -> Iterable[str] | None:
        assert self.plugin is not None
        if isinstance(call, Allocation):
            self.plugin.allocate(call.resource, self.shuffled(call.ids))
            return None
        available, must = frozenset(call.available), frozenset(call.must_include)
        return self.plugin.prefer(DeviceRequest(call.resource, available, must, call.size))

    def sync(self, uid: str) -> None:
        """The API server has a pod's status, and the kubelet knows that it has."""
        phase = "Failed" if uid in self.inactive else "Running"
        self.pods[uid] = replace(self.pods[uid], phase=phase, is_started=True)

    def end(self, uid: str) -> None:
        """A pod ends; its status comes later."""
        self.inactive.add(uid)

    def remove(self, uid: str) -> None:
        """A pod is deleted."""
        del self.pods[uid]

    def _hint(self) -> list[int]:
        n_nodes = max(map(len, self.numa.values()))
        return self.chance.sample(range(n_nodes), self.chance.randint(0, n_nodes))

    def _active_pods(self) -> list[NodePod]:
        return [pod for pod in self.list_pods() if pod.uid not in self.inactive]


def _check(is_well: bool) -> None:
    """What other parts of the kubelet say."""
    if not is_well:
        msg = "refused elsewhere"
        raise NotAdmitted(msg)
