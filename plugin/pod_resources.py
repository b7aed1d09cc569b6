"""Who really has which devices, asked of the kubelet (PodResources v1, List).

What it answers: the holdings of the pods that are on the node now. The kubelet's answer is the
truth about what was given out, whatever was planned. It names pods by namespace and name, leaves
init containers out unless they are sidecars, and repeats a device for each of its NUMA nodes
(Kubernetes 1.36, cm/container_manager.go, containerDevicesFromResourceDeviceInstances); here each
device stands once.

It must never wait without end: the kubelet's sync loop may be waiting for us.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from kube.backoff import Backoff
from kube.errors import cut
from plugin.errors import KubeletError
from plugin.holdings import Holding
from plugin.pb import podresources_v1_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PodDevices", "PodResources", "PodResourcesTiming"]

_LIST = "/v1.PodResourcesLister/List"
_CHANNEL_OPTIONS = (
    # Else a new channel inherits how long an older one to the same address waits after a refusal.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class PodDevices:
    """One answer. `pods` names (namespace, name) all that were listed, with devices or without.

    `holdings` are ordered by namespace, pod, container and resource.
    """

    pods: frozenset[tuple[str, str]]
    holdings: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class PodResourcesTiming:
    """How long things may take, in seconds.

    The kubelet lets all its clients together ask 100 times a second, and 10 times at once
    (apis/podresources/constants.go), so that a refused try is worth another one soon.
    """

    deadline_s: float = 0.8
    """For everything. Below the deadline of a call of the kubelet's, which may wait for this."""
    first_delay_s: float = 0.02
    cap_delay_s: float = 0.1
    """Between tries that the kubelet refuses because too many ask."""


_TIMING = PodResourcesTiming()


class PodResources:
    """Asks at the kubelet's PodResources socket.

    Each question has a connection of its own: that costs half a millisecond, and a kubelet that has
    come back is known at once.
    """

    def __init__(
        self,
        path: Path,
        *,
        timing: PodResourcesTiming = _TIMING,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._path = path
        self._timing = timing
        self._draw = draw

    async def read(self) -> PodDevices:
        """All pods that the kubelet lists, and every container's devices.

        Raises `KubeletError` where the kubelet does not answer in time, or not at all.
        """
        target = f"unix:{self._path}"
        async with grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS) as channel:
            try:
                response = await self._list(channel)
            except grpc.aio.AioRpcError as error:
                msg = (
                    f"PodResources at {self._path}: "
                    f"{cut(f'{error.code().name}: {error.details()}')}, "
                    f"expected the pods' devices within {self._timing.deadline_s:g} s"
                )
                raise KubeletError(msg) from error
        pods = frozenset((pod.namespace, pod.name) for pod in response.pod_resources)
        return PodDevices(pods, _holdings(response))

    async def _list(self, channel: grpc.aio.Channel) -> pb.ListPodResourcesResponse:
        """Ask until the kubelet does not refuse because too many ask, or the time is up."""
        timing = self._timing
        backoff = Backoff(first_s=timing.first_delay_s, cap_s=timing.cap_delay_s, draw=self._draw)
        clock = asyncio.get_running_loop().time
        until_s = clock() + timing.deadline_s
        call = channel.unary_unary(
            _LIST,
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )
        while True:
            try:
                return await call(pb.ListPodResourcesRequest(), timeout=until_s - clock())
            except grpc.aio.AioRpcError as error:
                delay_s = backoff.next_s()
                is_refused = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if not is_refused or clock() + delay_s >= until_s:
                    raise
            await asyncio.sleep(delay_s)


def _holdings(response: pb.ListPodResourcesResponse) -> tuple[Holding, ...]:
    ids: defaultdict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for pod in response.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                ids[key].update(devices.device_ids)
    return tuple(Holding(*key, tuple(sorted(found))) for key, found in sorted(ids.items()) if found)
