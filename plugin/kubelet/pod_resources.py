"""Reads from the kubelet which devices pods hold and which there are (PodResources v1).

The kubelet's answer is the truth about what was given out, whatever was planned. It names pods by
namespace and name, leaves init containers out unless they are sidecars, and repeats a device for
each of its NUMA nodes (Kubernetes 1.36, cm/container_manager.go,
containerDevicesFromResourceDeviceInstances); here each device is listed once.

List makes the kubelet recount what is taken, which must not happen while it allocates
(`plugin.kubelet.admission_gate`); Get and GetAllocatableResources only read
(apis/podresources/server_v1.go, 1.36.3).

Every wait is bounded: the kubelet's sync loop may be waiting for us.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from kube.errors import cut
from kube.watch import Backoff
from plugin.errors import KubeletError
from plugin.kubelet_channel import kubelet_channel
from plugin.pb import podresources_v1_pb2 as pb
from plugin.pods import HeldDevices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from grpc.aio import UnaryUnaryMultiCallable

__all__ = ["PodDevices", "PodResources", "PodResourcesTiming"]

_LIST = "/v1.PodResourcesLister/List"
_GET = "/v1.PodResourcesLister/Get"
_GET_ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
Response = TypeVar("Response")
_NO_ANSWER = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""Codes of a request that was not answered before its deadline, or refused by the rate limit until
then. A kubelet that knows no such pod, or does not serve Get, answers UNKNOWN (server_v1.go)."""


@dataclass(frozen=True, slots=True)
class PodDevices:
    """One answer. `pods` names (namespace, name) all that were listed, with devices or without.

    `holdings` are ordered by namespace, pod, container and resource.
    """

    pods: frozenset[tuple[str, str]]
    holdings: tuple[HeldDevices, ...]


@dataclass(frozen=True, slots=True)
class PodResourcesTiming:
    """How long things may take, in seconds.

    The kubelet serves all its clients together 100 requests a second, in bursts of 10
    (apis/podresources/constants.go), so a refused request is retried soon.
    """

    deadline_s: float = 1.5
    """For everything. Below the deadline of a call of the kubelet's, which may wait for this."""
    first_delay_s: float = 0.02
    cap_delay_s: float = 0.1
    """Between requests that the kubelet refuses because of its rate limit."""


_TIMING = PodResourcesTiming()


class PodResources:
    """Reads from the kubelet's PodResources socket.

    Each request has its own connection, so that a restarted kubelet is reached at once.
    """

    def __init__(
        self,
        path: Path,
        *,
        timing: PodResourcesTiming = _TIMING,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._path = path
        self._timing = timing
        self._jitter = jitter

    async def read(self) -> PodDevices:
        """All pods that the kubelet lists, and every container's devices.

        Raises `KubeletError` where the kubelet does not answer in time, or not at all.
        """
        request = pb.ListPodResourcesRequest().SerializeToString()
        response = await self._request(_LIST, request, pb.ListPodResourcesResponse.FromString)
        pods = frozenset((pod.namespace, pod.name) for pod in response.pod_resources)
        return PodDevices(pods, _holdings(response.pod_resources))

    async def read_pod(self, namespace: str, name: str) -> tuple[HeldDevices, ...]:
        """The devices that the kubelet counts as one pod's. Allowed at any time.

        Raises `KubeletError` as `read` does, where there is no such pod, and on a kubelet that does
        not answer this (before 1.34 unless its feature gate KubeletPodResourcesGet is set); the
        error's `is_late` sets the kubelet that gave no answer apart from these.
        """
        request = pb.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        response = await self._request(
            _GET, request.SerializeToString(), pb.GetPodResourcesResponse.FromString
        )
        return _holdings([response.pod_resources])

    async def read_allocatable(self) -> Mapping[str, frozenset[str]]:
        """The ids of the healthy devices that the kubelet knows, by resource. Allowed at any time.

        Raises `KubeletError` as `read` does.
        """
        request = pb.AllocatableResourcesRequest().SerializeToString()
        response = await self._request(
            _GET_ALLOCATABLE, request, pb.AllocatableResourcesResponse.FromString
        )
        ids: defaultdict[str, set[str]] = defaultdict(set)
        for devices in response.devices:
            ids[devices.resource_name].update(devices.device_ids)
        return {resource: frozenset(found) for resource, found in ids.items()}

    async def _request(
        self, method: str, request: bytes, read: Callable[[bytes], Response]
    ) -> Response:
        async with kubelet_channel(self._path) as channel:
            call: UnaryUnaryMultiCallable[bytes, Response] = channel.unary_unary(
                method, response_deserializer=read
            )
            try:
                return await self._answer(partial(call, request))
            except grpc.aio.AioRpcError as error:
                msg = (
                    f"PodResources at {self._path}: "
                    f"{cut(f'{error.code().name}: {error.details()}')}, "
                    f"expected the pods' devices within {self._timing.deadline_s:g} s"
                )
                raise KubeletError(msg, is_late=error.code() in _NO_ANSWER) from error

    async def _answer(self, call: Callable[..., Awaitable[Response]]) -> Response:
        """Request until the rate limit allows it, or the time is up."""
        timing = self._timing
        backoff = Backoff(
            first_s=timing.first_delay_s, cap_s=timing.cap_delay_s, jitter=self._jitter
        )
        clock = asyncio.get_running_loop().time
        until_s = clock() + timing.deadline_s
        while True:
            try:
                return await call(timeout=until_s - clock())
            except grpc.aio.AioRpcError as error:
                delay_s = backoff.next_s()
                is_refused = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if not is_refused or clock() + delay_s >= until_s:
                    raise
            await asyncio.sleep(delay_s)


def _holdings(pods: Iterable[pb.PodResources]) -> tuple[HeldDevices, ...]:
    ids: defaultdict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for pod in pods:
        for container in pod.containers:
            for devices in container.devices:
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                ids[key].update(devices.device_ids)
    return tuple(
        HeldDevices(*key, tuple(sorted(found))) for key, found in sorted(ids.items()) if found
    )
