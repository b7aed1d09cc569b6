"""Reads the kubelet's pods and their devices.

A snapshot is the pod list and then PodResources and the checkpoint, read within a time for which a
kubelet can wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kube.errors import KubeError
from plugin.errors import CheckpointError, KubeletError
from plugin.kubelet.admission_gate import AdmissionGate
from plugin.pods import as_holdings, read_checkpoint, read_node_pods

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from plugin.kubelet.pod_resources import PodDevices
    from plugin.pods import HeldDevices, NodePod

__all__ = ["KubeletRead", "KubeletSnapshot", "KubeletView"]

SNAPSHOT_S = 0.7
"""Deadline of a snapshot: below the second within which a call of the kubelet must be answered."""


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


@dataclass(frozen=True, slots=True)
class KubeletSnapshot:
    """One read; `number` grows with the time at which reads began.

    `devices` is None where PodResources was not read or did not answer; `recorded` are what the
    kubelet's checkpoint says is held, with uids and of init containers too, and None where it
    cannot be read. `error` says what is missing, and why.
    """

    pods: tuple[NodePod, ...]
    devices: PodDevices | None
    recorded: tuple[HeldDevices, ...] | None = None
    error: str = ""
    number: int = 0

    @property
    def has_holdings(self) -> bool:
        """Whether it has the devices of pods."""
        return self.devices is not None or self.recorded is not None


@dataclass(frozen=True, slots=True)
class KubeletRead:
    """A read of the kubelet that has ended; `error` says what failed, empty: nothing."""

    error: str = ""


class KubeletView:
    """Reads one kubelet."""

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

    async def snapshot(self, *, with_devices: bool | None = None) -> KubeletSnapshot:
        """Read the pods, then their devices, which are named by namespace and name alone.

        In this order a pod that takes another one's name meanwhile is not given its devices. Raises
        `KubeletError` where there is no pod list: without it no plan is known.

        PodResources is read as `with_devices` says; None: where no call of the kubelet is near.
        """
        self._n_snapshots += 1
        number = self._n_snapshots
        until_s = asyncio.get_running_loop().time() + SNAPSHOT_S
        pods = await self._read_pods()
        may_ask = not self.gate.is_busy if with_devices is None else with_devices
        devices, error = await self._read_devices(until_s) if may_ask else (None, "")
        recorded, unread = await asyncio.to_thread(self._read_checkpoint, pods, devices)
        errors = "; ".join(one for one in (error, unread) if one)
        return KubeletSnapshot(pods, devices, recorded, errors, number)

    async def still_held(self, holdings: Iterable[HeldDevices]) -> tuple[HeldDevices, ...]:
        """Which of these devices the kubelet still counts as their pods'.

        Allowed while the kubelet waits for us. A pod without an answer holds nothing any more: it
        is gone, or the kubelet cannot answer for one pod, or not in time.
        """
        wanted = tuple(holdings)
        pods = dict.fromkeys((one.namespace, one.name) for one in wanted)
        had: list[HeldDevices] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SNAPSHOT_S):
                for namespace, name in pods:
                    with contextlib.suppress(KubeletError):
                        had += await self._devices.read_pod(namespace, name)
        counted = {(*_place(one), id_) for one in had for id_ in one.ids}
        kept = (
            replace(one, ids=tuple(id_ for id_ in one.ids if (*_place(one), id_) in counted))
            for one in wanted
        )
        return tuple(one for one in kept if one.ids)

    async def _read_pods(self) -> tuple[NodePod, ...]:
        try:
            return read_node_pods(await self._pods.pods(timeout_s=SNAPSHOT_S))
        except KubeError as error:
            msg = f"the kubelet's pods cannot be read: {error}"
            raise KubeletError(msg) from error

    async def _read_devices(self, until_s: float) -> tuple[PodDevices | None, str]:
        try:
            with self.gate.request():
                async with asyncio.timeout_at(until_s):
                    return await self._devices.read(), ""
        except TimeoutError:
            return None, f"PodResources: no answer within the {SNAPSHOT_S:g} s of a snapshot"
        except KubeletError as error:
            return None, str(error)

    def _read_checkpoint(
        self, pods: tuple[NodePod, ...], devices: PodDevices | None
    ) -> tuple[tuple[HeldDevices, ...] | None, str]:
        """The file's entries of pods that are there.

        It may be behind, and have pods that are gone or rejected: of those that have ended, and
        that PodResources no longer lists, nothing is taken.
        """
        living = [
            pod
            for pod in pods
            if not pod.has_ended and (devices is None or (pod.namespace, pod.name) in devices.pods)
        ]
        try:
            return as_holdings(read_checkpoint(self._checkpoint.read_bytes()), living), ""
        except FileNotFoundError:
            return (), ""  # the kubelet has never given anything out
        except (OSError, CheckpointError) as error:
            return None, f"checkpoint {self._checkpoint}: {error}"


def _place(holding: HeldDevices) -> tuple[str, str, str, str]:
    return (holding.namespace, holding.name, holding.container, holding.resource)
