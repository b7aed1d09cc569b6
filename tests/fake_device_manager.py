"""A kubelet's device manager, as Kubernetes 1.36.3 has it: which devices a container gets.

It follows pkg/kubelet/cm/devicemanager/manager.go line by line where a plugin can notice: the order
in which devices are allocated, the calls that are made and those that are not, what init containers
leave to others, and Go's random order of sets. How plugins come to it is `tests.fake_kubelet`.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from plugin.pods import NodePod, PodContainer

__all__ = ["AdmissionError", "Affinity", "Client", "Endpoint", "FakeDeviceManager", "Given"]

LOCAL = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))
Affinity = Callable[["NodePod", str, str], "Collection[int] | None"]
"""The NUMA nodes of the Topology Manager's hint for a container and a resource; None as with the
policy `none`."""


class AdmissionError(Exception):
    """The pod fails for good: phase Failed, reason UnexpectedAdmissionError."""


@dataclass(frozen=True)
class Given:
    """What a container got of a resource, and what the plugin said to it."""

    ids: frozenset[str]
    response: pb.ContainerAllocateResponse


@dataclass
class Client:
    """One registration's connection to its plugin (plugin/v1beta1/client.go)."""

    resource: str
    path: Path
    channel: grpc.aio.Channel | None = None
    options: pb.DevicePluginOptions | None = None
    is_closed: bool = False

    async def connect(self, dial_s: float) -> None:
        """Dial, then ask for the options."""
        self.channel = grpc.aio.insecure_channel(f"unix:{self.path}", options=LOCAL)
        try:
            await asyncio.wait_for(self.channel.channel_ready(), dial_s)
        except TimeoutError:
            await self.close()
            msg = f"failed to dial device plugin: {self.path}: context deadline exceeded"
            raise ConnectionError(msg) from None
        try:
            self.options = await self.call(
                "GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions
            )
        except grpc.aio.AioRpcError as error:
            await self.close()
            msg = f"failed to get device plugin options: {error.details()}"
            raise ConnectionError(msg) from error

    async def call(self, name, request, answer, deadline_s=None):
        """One call; the kubelet gives most of them no deadline."""
        assert self.channel is not None
        method = self.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await method(request, timeout=deadline_s)

    async def run(self, listed: Callable[[pb.ListAndWatchResponse], None]) -> None:
        """Watch the devices until either side ends it."""
        assert self.channel is not None
        stream = self.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )(pb.Empty())
        try:
            async for response in stream:
                listed(response)
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            # grpc.aio cancels a call that waits while its channel is closed.
            if not self.is_closed:
                raise

    async def close(self) -> None:
        """Hang up."""
        self.is_closed = True
        if self.channel is not None:
            await self.channel.close()


@dataclass
class Endpoint:
    """A resource's plugin as the manager sees it; after a restart only that there was one."""

    client: Client | None = None
    is_stopped: bool = True


class FakeDeviceManager:
    """Devices, endpoints and what containers have; `log` has what happened, in order."""

    def __init__(self, *, seed: int, affinity: Affinity) -> None:
        self.affinity = affinity
        self.log: list[str] = []
        self.pods: dict[str, NodePod] = {}
        self.given: dict[tuple[str, str, str], Given] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.devices: dict[str, Mapping[str, pb.Device]] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self._allocated: dict[str, set[str]] = defaultdict(set)
        self._reusable: dict[str, dict[str, set[str]]] = {}
        self._random = random.Random(seed)  # noqa: S311 - stands for Go's order of maps
        self._admission = asyncio.Lock()
        self._changed = asyncio.Event()

    async def until(self, is_so: Callable[[], bool], within_s: float = 10.0) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(within_s):
            while not is_so():
                await self._changed.wait()

    async def until_listed(self, resource: str, n_healthy: int, within_s: float = 10.0) -> None:
        """Wait until a resource has so many healthy devices."""
        await self.until(lambda: len(self.healthy.get(resource, ())) == n_healthy, within_s)

    def _note(self, what: str) -> None:
        self.log.append(what)
        self._changed.set()
        self._changed = asyncio.Event()

    def listed(self, resource: str, response: pb.ListAndWatchResponse) -> None:
        """`genericDeviceUpdateCallback`."""
        self.devices[resource] = {device.ID: device for device in response.devices}
        self.healthy[resource] = {d.ID for d in response.devices if d.health == "Healthy"}
        self.unhealthy[resource] = {d.ID for d in response.devices if d.health != "Healthy"}
        self._note(f"listed {resource}")

    # --- Allocation (manager.go) ---------------------------------------------------------------

    async def admit(self, pod: NodePod) -> dict[str, dict[str, frozenset[str]]]:
        """Take a pod in, one after another; what each container got, by resource.

        Raises `AdmissionError`.
        """
        async with self._admission:
            self.pods[pod.uid] = pod
            self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}
            try:
                for container in pod.containers:
                    await self._allocate(pod, container)
            except (LookupError, grpc.aio.AioRpcError) as error:
                del self.pods[pod.uid]
                why = error.details() if isinstance(error, grpc.aio.AioRpcError) else error.args[0]
                msg = f"Allocate failed due to {why}, which is unexpected"
                raise AdmissionError(msg) from error
        return {
            container.name: {
                resource: self.given[pod.uid, container.name, resource].ids
                for resource in container.devices
                if (pod.uid, container.name, resource) in self.given
            }
            for container in pod.containers
        }

    def end(self, uid: str) -> None:
        """Have a pod be over."""
        del self.pods[uid]

    async def _allocate(self, pod: NodePod, container: PodContainer) -> None:
        """`Allocate`: what init containers leave is reused, what sidecars have is theirs."""
        reusable = self._reusable[pod.uid]
        await self._allocate_resources(pod, container, reusable)
        for resource in container.devices:
            given = self.given.get((pod.uid, container.name, resource))
            if given is None:
                continue
            if container.role is ContainerRole.INIT:
                reusable.setdefault(resource, set()).update(given.ids)
            else:
                reusable.setdefault(resource, set()).difference_update(given.ids)

    async def _allocate_resources(self, pod, container, reusable) -> None:
        for resource in self._shuffled(container.devices):
            if resource not in self.healthy and resource not in self._allocated:
                continue  # not known as a device plugin's: the container runs without
            self._collect()
            ids = await self._choose(
                pod,
                container.name,
                resource,
                container.devices[resource],
                reusable.get(resource, set()),
            )
            if not ids:
                continue
            endpoint = self.endpoints.get(resource)
            if endpoint is None:
                self._regenerate()
                msg = f"unknown Device Plugin {resource}"
                raise LookupError(msg)
            request = pb.AllocateRequest(
                container_requests=[pb.ContainerAllocateRequest(devices_ids=self._shuffled(ids))]
            )
            try:
                answer = await self._client(endpoint).call("Allocate", request, pb.AllocateResponse)
            except (LookupError, grpc.aio.AioRpcError):
                self._regenerate()
                raise
            if not answer.container_responses:
                msg = "no containers return in allocation response"
                raise LookupError(msg)
            self.given[pod.uid, container.name, resource] = Given(
                frozenset(ids), answer.container_responses[0]
            )
            self._note(f"allocated {pod.name}/{container.name} {resource}")

    async def _choose(
        self, pod: NodePod, container: str, resource: str, required: int, reusable: set[str]
    ) -> set[str]:
        """`devicesToAllocate`: the ids to allocate; none where the container has its own."""
        if self._has_its_own(pod, container, resource, required):
            return set()
        chosen: set[str] = set()

        def take(ids: Collection[str]) -> bool:
            """`allocateRemainingFrom`."""
            for one in self._shuffled(set(ids) - chosen):
                if len(chosen) == required:
                    break
                self._allocated[resource].add(one)
                chosen.add(one)
            return len(chosen) == required

        if take(reusable):
            return chosen
        available = self.healthy[resource] - self._allocated[resource]
        needed = required - len(chosen)
        if len(available) < needed:
            msg = (
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(available)}"
            )
            raise LookupError(msg)
        aligned, unaligned, anywhere = self._by_affinity(pod, container, resource, available)
        if needed < len(aligned):
            preferred = await self._prefer(resource, aligned | chosen, chosen, required)
            is_enough = take(preferred & aligned) or take(aligned)
        else:
            is_enough = take(aligned)
            if not is_enough:
                preferred = await self._prefer(resource, available | chosen, chosen, required)
                is_enough = take(preferred & available) or take(unaligned) or take(anywhere)
        if not is_enough:
            msg = f"unexpectedly allocated less resources than required. Requested: {required}"
            raise LookupError(msg)
        return chosen

    def _has_its_own(self, pod: NodePod, container: str, resource: str, required: int) -> bool:
        """Whether there is nothing to allocate, after the checks that come before anything else."""
        before = self.given.get((pod.uid, container, resource))
        if before is not None and len(before.ids) != required:
            msg = f"container {container} changed request from {len(before.ids)} to {required}"
            raise LookupError(msg)
        if resource not in self.healthy:
            msg = f"cannot allocate unregistered device {resource}"
            raise LookupError(msg)
        if not self.healthy[resource]:
            msg = f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            raise LookupError(msg)
        if before is not None and not before.ids <= self.healthy[resource]:
            msg = f"previously allocated devices are no longer healthy: {resource}"
            raise LookupError(msg)
        return before is not None

    def _by_affinity(
        self, pod: NodePod, container: str, resource: str, available: set[str]
    ) -> tuple[set[str], set[str], set[str]]:
        """`filterByAffinity`: inside the hint, outside, and without NUMA node."""
        hint = self.affinity(pod, container, resource)
        numa = {
            id_: [node.ID for node in device.topology.nodes]
            for id_, device in self.devices[resource].items()
        }
        if hint is None or not any(numa.values()):
            return set(), set(), available
        inside = {one for one in available if set(numa[one]) & set(hint)}
        outside = {one for one in available - inside if numa[one]}
        return inside, outside, available - inside - outside

    async def _prefer(
        self, resource: str, available: set[str], must_include: set[str], size: int
    ) -> set[str]:
        """`callGetPreferredAllocationIfAvailable`."""
        client = self._client(self.endpoints[resource])
        if client.options is None or not client.options.get_preferred_allocation_available:
            return set()
        request = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(
                    available_deviceIDs=self._shuffled(available),
                    must_include_deviceIDs=self._shuffled(must_include),
                    allocation_size=size,
                )
            ]
        )
        answer = await client.call(
            "GetPreferredAllocation", request, pb.PreferredAllocationResponse
        )
        self._note(f"preferred {resource}")
        return set(answer.container_responses[0].deviceIDs) if answer.container_responses else set()

    def _client(self, endpoint: Endpoint) -> Client:
        if endpoint.is_stopped or endpoint.client is None:
            msg = "endpoint has been stopped"
            raise LookupError(msg)
        return endpoint.client

    def _collect(self) -> None:
        """`UpdateAllocatedDevices`: what pods had that are no longer active is free."""
        self.given = {key: given for key, given in self.given.items() if key[0] in self.pods}
        self._regenerate()

    def _regenerate(self) -> None:
        self._allocated.clear()
        for (_, _, resource), given in self.given.items():
            self._allocated[resource] |= given.ids

    def _shuffled(self, ids: Collection[str]) -> list[str]:
        return self._random.sample(sorted(ids), len(ids))
