"""Reads the kubelet's pods and their devices.

A snapshot is the pod list and then PodResources and the checkpoint. One that is read for a call of
the kubelet ends when that call's time does. Without the pod list no plan is known, and no pod is
found for a call; what was allocated is read all the same, where no call waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kube.errors import KubeError
from plugin.errors import CheckpointError, KubeletError
from plugin.kubelet.admission_gate import AdmissionGate
from plugin.pods import as_holdings, match_holdings, read_checkpoint, read_node_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from plugin.kubelet.pod_resources import PodDevices
    from plugin.pods import CheckpointEntry, HeldDevices, NodePod

__all__ = ["KubeletRead", "KubeletSnapshot", "KubeletView", "StillHeld"]

PODS_S = 1.5
"""For the pod list where no call of the kubelet waits for it: as long as a call has
(`plugin.deviceplugin.service`), since a list that comes later is of no use to calls."""


class PodSource(Protocol):
    """What is needed of `kube.client.kubelet`."""

    async def pods(self, *, timeout_s: float | None = None) -> bytes:
        """The pods as JSON. Raises `KubeError`."""
        ...


class PodDevicesSource(Protocol):
    """What is needed of `plugin.kubelet.pod_resources`."""

    async def read(self) -> PodDevices:
        """Who has which devices. Raises `KubeletError`."""
        ...

    async def read_pod(self, namespace: str, name: str) -> tuple[HeldDevices, ...]:
        """What one pod has. Raises `KubeletError`."""
        ...

    async def read_allocatable(self) -> Mapping[str, frozenset[str]]:
        """The healthy devices, by resource. Raises `KubeletError`."""
        ...


@dataclass(frozen=True, slots=True)
class KubeletSnapshot:
    """One read; `number` grows with the time at which reads began.

    `pods` is None where the list could not be read. `devices` is None where PodResources was not
    read or did not answer; `recorded` are what the kubelet's checkpoint says is held, with uids and
    of init containers too, and None where it cannot be read. Without `pods` the names of `recorded`
    come from `devices`. `error` says what is missing, and why.
    """

    pods: tuple[NodePod, ...] | None
    devices: PodDevices | None
    recorded: tuple[HeldDevices, ...] | None = None
    error: str = ""
    number: int = 0

    @property
    def has_holdings(self) -> bool:
        """Whether it has the devices of pods, with uids."""
        has_uids = self.pods is not None and self.devices is not None
        return has_uids or self.recorded is not None


@dataclass(frozen=True, slots=True)
class KubeletRead:
    """A read of the kubelet that has ended; `error` says what failed, empty: nothing."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class StillHeld:
    """Of devices that pods had: those they still have, and those of pods without an answer in time.

    Neither may be given to another pod.
    """

    confirmed: tuple[HeldDevices, ...] = ()
    unanswered: tuple[HeldDevices, ...] = ()


class KubeletView:
    """Reads one kubelet. Every `until_s` is a time of the event loop's clock."""

    def __init__(
        self,
        pods: PodSource,
        devices: PodDevicesSource,
        checkpoint: Path,
        *,
        gate: AdmissionGate | None = None,
    ) -> None:
        self.gate = gate or AdmissionGate()
        """Keeps PodResources requests apart from the kubelet's calls."""
        self._pods = pods
        self._devices = devices
        self._checkpoint = checkpoint
        self._n_snapshots = 0

    async def snapshot(
        self, *, with_devices: bool | None = None, until_s: float | None = None
    ) -> KubeletSnapshot:
        """Read the pods, then their devices, which are named by namespace and name alone.

        In this order a pod that takes another one's name meanwhile is not given its devices.

        PodResources is read as `with_devices` says; None: where no call of the kubelet is near.
        With `until_s` nothing is waited for any longer.
        """
        self._n_snapshots += 1
        number = self._n_snapshots
        now_s = asyncio.get_running_loop().time()
        pods, unlisted = await self._read_pods(PODS_S if until_s is None else until_s - now_s)
        if pods is None and until_s is not None:
            return KubeletSnapshot(None, None, None, unlisted, number)
        may_request = not self.gate.is_busy if with_devices is None else with_devices
        devices, error = await self._read_devices(until_s) if may_request else (None, "")
        recorded, unread = await self._read_record(pods, devices, until_s)
        errors = "; ".join(one for one in (unlisted, error, unread) if one)
        return KubeletSnapshot(pods, devices, recorded, errors, number)

    async def still_held(self, holdings: Iterable[HeldDevices], *, until_s: float) -> StillHeld:
        """Which of these devices the kubelet still counts as their pods'.

        Allowed while the kubelet waits for us. A pod of which the kubelet says that it cannot
        answer holds nothing any more: it is gone, or the kubelet cannot answer for one pod.
        """
        wanted = tuple(holdings)
        pods = tuple(dict.fromkeys((one.namespace, one.name) for one in wanted))
        answers = await asyncio.gather(*(self._read_pod(*pod, until_s) for pod in pods))
        had = dict(zip(pods, answers, strict=True))
        counted = {
            (*_place(one), id_) for answer in answers for one in answer or () for id_ in one.ids
        }
        kept = (
            replace(one, ids=tuple(id_ for id_ in one.ids if (*_place(one), id_) in counted))
            for one in wanted
        )
        return StillHeld(
            confirmed=tuple(one for one in kept if one.ids),
            unanswered=tuple(one for one in wanted if had[one.namespace, one.name] is None),
        )

    async def known_devices(self) -> Mapping[str, frozenset[str]] | None:
        """The healthy devices that the kubelet knows, by resource; None where it gives no answer.

        Allowed while the kubelet waits for us.
        """
        try:
            return await self._devices.read_allocatable()
        except KubeletError:
            return None

    async def _read_pod(
        self, namespace: str, name: str, until_s: float
    ) -> tuple[HeldDevices, ...] | None:
        """What the kubelet counts as a pod's; None where it does not answer in time."""
        try:
            async with asyncio.timeout_at(until_s):
                return await self._devices.read_pod(namespace, name)
        except TimeoutError:
            return None
        except KubeletError as error:
            return None if error.is_late else ()

    async def _read_pods(self, within_s: float) -> tuple[tuple[NodePod, ...] | None, str]:
        if within_s <= 0:  # HTTP clients take 0 for no bound at all
            return None, "the kubelet's pods cannot be read: deadline exceeded"
        try:
            return read_node_pods(await self._pods.pods(timeout_s=within_s)), ""
        except KubeError as error:
            return None, f"the kubelet's pods cannot be read: {error}"
        except KubeletError as error:
            return None, str(error)

    async def _read_devices(self, until_s: float | None) -> tuple[PodDevices | None, str]:
        try:
            with self.gate.request():
                async with asyncio.timeout_at(until_s):
                    return await self._devices.read(), ""
        except TimeoutError:
            return None, "PodResources: deadline exceeded"
        except KubeletError as error:
            return None, str(error)

    async def _read_record(
        self, pods: tuple[NodePod, ...] | None, devices: PodDevices | None, until_s: float | None
    ) -> tuple[tuple[HeldDevices, ...] | None, str]:
        try:
            async with asyncio.timeout_at(until_s):
                return await asyncio.to_thread(self._read_checkpoint, pods, devices)
        except TimeoutError:
            return None, f"checkpoint {self._checkpoint}: deadline exceeded"

    def _read_checkpoint(
        self, pods: tuple[NodePod, ...] | None, devices: PodDevices | None
    ) -> tuple[tuple[HeldDevices, ...] | None, str]:
        """The file's entries of pods that are there.

        It may be behind, and have pods that are gone or rejected: of those that have ended, and
        that PodResources no longer lists, nothing is taken.
        """
        try:
            entries = read_checkpoint(self._checkpoint.read_bytes())
        except FileNotFoundError:
            entries = ()  # the kubelet has never given anything out
        except (OSError, CheckpointError) as error:
            return None, f"checkpoint {self._checkpoint}: {error}"
        if pods is None:
            return self._match(entries, devices)
        living = [
            pod
            for pod in pods
            if not pod.has_ended and (devices is None or (pod.namespace, pod.name) in devices.pods)
        ]
        return as_holdings(entries, living), ""

    def _match(
        self, entries: tuple[CheckpointEntry, ...], devices: PodDevices | None
    ) -> tuple[tuple[HeldDevices, ...] | None, str]:
        """The holdings with names and uids; None where some lack either."""
        if devices is None:
            return None, ""
        found = match_holdings(entries, devices.holdings)
        known = {(*_place(one), one.ids) for one in found}
        lacking = [one for one in devices.holdings if (*_place(one), one.ids) not in known]
        if lacking:
            pod = f"{lacking[0].namespace}/{lacking[0].name}"
            return None, f"checkpoint {self._checkpoint}: lacks the devices of pod {pod}"
        return found, ""


def _place(holding: HeldDevices) -> tuple[str, str, str, str]:
    return (holding.namespace, holding.name, holding.container, holding.resource)
