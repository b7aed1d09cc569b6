"""A kubelet as device plugins know it, as Kubernetes 1.36.3 has it, over real gRPC on unix sockets.

The registration dials back before it answers; a kubelet knows its plugins by the resource's name
alone (pkg/kubelet/cm/devicemanager/plugin/v1beta1; 1.37's is in `fake_kubelet_by_socket`);
PodResources reports what pods got, and limits the rate of requests. Which devices a pod gets that
arrives is in `tests.device_manager`. The checkpoint is memory that outlives `kill`. It is no
authority: tests/cluster holds the plugin against the real kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from plugin.pb import podresources_v1_pb2 as pr
from tests.changes import Changes
from tests.device_manager import Affinity, Allocation, DeviceManager, NotAdmitted, Preference
from tests.plugin_client import Client
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plugin.pods import NodePod, PodContainer

__all__ = ["AdmissionError", "FakeKubelet", "RateLimit"]

DIAL_S = 10.0
"""`dial` (plugin/v1beta1/client.go)."""


class AdmissionError(Exception):
    """The pod fails for good: phase Failed, reason UnexpectedAdmissionError."""


@dataclass
class Endpoint:
    """A resource's plugin as the manager sees it; after a restart only that there was one."""

    client: Client | None = None
    is_stopped: bool = True


@dataclass
class RateLimit:
    """A bucket of tokens (golang.org/x/time/rate)."""

    qps: float = 100.0
    burst: float = 10.0
    tokens: float = field(init=False)
    at_s: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def allow(self) -> bool:
        """Take a token, if there is one."""
        now_s = asyncio.get_running_loop().time()
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.qps)
        self.at_s = now_s
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class FakeKubelet(DeviceManager):
    """The kubelet of one node; `root` stands for /var/lib/kubelet.

    `log` has what happened, in order.
    """

    def __init__(
        self,
        root: Path,
        *,
        seed: int = 0,
        version: str = "v1beta1",
        dial_s: float = DIAL_S,
        affinity: Affinity = lambda *_: None,
    ) -> None:
        super().__init__(random.Random(seed), affinity)  # noqa: S311 - Go's order of maps
        self.folder = root / "device-plugins"
        self.socket = self.folder / "kubelet.sock"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.version = version
        self.dial_s = dial_s
        self.limit = RateLimit()
        self.clients: dict[str, Client] = {}
        self.n_lists = 0
        self.log: list[str] = []
        self.endpoints: dict[str, Endpoint] = {}
        self.devices: dict[str, Mapping[str, pb.Device]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self._admission = asyncio.Lock()
        self.changes = Changes()
        self._checkpoint: set[str] = set()
        self._servers: list[grpc.aio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # --- Life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Remove every socket of the folder, then serve (manager.go Start, server.go Start)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pod_resources.parent.mkdir(parents=True, exist_ok=True)
        for path in list(self.folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # a plugin may be at work there
                if stat.S_ISSOCK(path.stat().st_mode):
                    path.unlink()
        for resource in self._checkpoint:
            self.healthy[resource], self.unhealthy[resource] = set(), set()
            self.endpoints[resource] = Endpoint()
        self._regenerate()
        await self._serve(
            self.socket,
            "v1beta1.Registration",
            {"Register": _unary(self._register, pb.RegisterRequest, pb.Empty)},
        )
        await self._serve(
            self.pod_resources,
            "v1.PodResourcesLister",
            {
                "List": _unary(self._list, pr.ListPodResourcesRequest, pr.ListPodResourcesResponse),
                "Get": _unary(self._get, pr.GetPodResourcesRequest, pr.GetPodResourcesResponse),
                "GetAllocatableResources": _unary(
                    self._get_allocatable,
                    pr.AllocatableResourcesRequest,
                    pr.AllocatableResourcesResponse,
                ),
            },
        )
        self._note("started")

    async def stop(self) -> None:
        """End in order: plugins are hung up on, and the sockets are gone."""
        for resource in list(self.clients):
            await self.disconnect(resource)
        await self._end()
        self.socket.unlink(missing_ok=True)
        self.pod_resources.unlink(missing_ok=True)

    async def kill(self) -> None:
        """End as by SIGKILL: connections break, the sockets' files stay, memory is lost."""
        for client in self.clients.values():
            await client.close()
        await self._end()

    async def _end(self) -> None:
        for server in self._servers:
            await server.stop(None)
        self._servers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._checkpoint |= set(self.healthy)
        for memory in (self.clients, self.endpoints, self.devices, self.healthy, self.unhealthy):
            memory.clear()
        self.numa.clear()
        self._note("ended")

    async def _serve(self, path: Path, service: str, methods) -> None:
        """Serve at a path so that the file outlives the server, as after SIGKILL."""
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        private = path.with_name(f".{secrets.token_hex(3)}")
        server.add_insecure_port(f"unix:{private}")
        await server.start()
        private.rename(path)
        self._servers.append(server)

    async def until(self, is_so: Callable[[], bool], within_s: float = 60.0) -> None:
        """Wait until something is so."""
        await self.changes.until(is_so, within_s)

    async def until_listed(self, resource: str, n_healthy: int, within_s: float = 60.0) -> None:
        """Wait until a resource has so many healthy devices."""
        await self.until(lambda: len(self.healthy.get(resource, ())) == n_healthy, within_s)

    def _note(self, what: str) -> None:
        self.log.append(what)
        self.changes.note()

    # --- Registration (plugin/v1beta1/server.go, handler.go) ------------------------------------

    async def _register(self, request: pb.RegisterRequest, context) -> pb.Empty:
        resource = request.resource_name
        if request.version != self.version:
            await context.abort(
                grpc.StatusCode.UNKNOWN,
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is ["{self.version}"]',
            )
        if "/" not in resource:
            await context.abort(
                grpc.StatusCode.UNKNOWN, f'the ResourceName "{resource}" is invalid'
            )
        client = Client(resource, self.folder / request.endpoint)
        try:
            await self.connect(client)
        except ConnectionError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        self.endpoints[resource] = Endpoint(client, is_stopped=False)
        self._note(f"registered {resource}")
        task = asyncio.create_task(self.watch_plugin(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pb.Empty()

    async def connect(self, client: Client) -> None:
        """`connectClient`: dial a plugin that has requested its registration."""
        self.clients[client.resource] = client
        try:
            await client.connect(self.dial_s)
        except ConnectionError:
            self.clients.pop(client.resource, None)
            raise

    async def watch_plugin(self, client: Client) -> None:
        """`runClient`: when a watch ends, whoever is known by that name *then* is hung up on."""
        await client.run(lambda response: self.listed(client.resource, response))
        if client.resource in self.clients:
            await self.disconnect(client.resource)

    async def disconnect(self, resource: str) -> None:
        """Hang up on the plugin of a resource, as `client.Disconnect` does."""
        client = self.clients.pop(resource)
        await client.close()
        self.mark_stopped(resource)

    def mark_stopped(self, resource: str) -> None:
        """No plugin serves a resource: none of its devices is allocated."""
        self.unhealthy.setdefault(resource, set()).update(self.healthy.get(resource, ()))
        self.healthy[resource] = set()
        if resource in self.endpoints:
            self.endpoints[resource].is_stopped = True
        self._note(f"disconnected {resource}")

    def listed(self, resource: str, response: pb.ListAndWatchResponse) -> None:
        """`genericDeviceUpdateCallback`."""
        self.devices[resource] = {device.ID: device for device in response.devices}
        self.healthy[resource] = {d.ID for d in response.devices if d.health == "Healthy"}
        self.unhealthy[resource] = {d.ID for d in response.devices if d.health != "Healthy"}
        self.numa[resource] = {
            device.ID: [node.ID for node in device.topology.nodes] for device in response.devices
        }
        self._note(f"listed {resource}")

    # --- Admission -----------------------------------------------------------------------------

    async def admit(self, pod: NodePod) -> dict[str, dict[str, frozenset[str]]]:
        """Take a pod in, one after another; what each container got, by resource.

        Raises `AdmissionError`.
        """
        async with self._admission:
            self.pods[pod.uid] = pod
            try:
                for container in pod.containers:
                    await self._take_in(pod, container)
            except (NotAdmitted, grpc.aio.AioRpcError) as error:
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

    async def _take_in(self, pod: NodePod, container: PodContainer) -> None:
        """Allocate the devices of a container; each call of the manager's goes to its plugin."""
        calls, answer = self.allocate(pod, container), None
        while True:
            try:
                call = calls.send(answer)
            except StopIteration:
                return
            try:
                answer = await self._call_plugin(
                    call, f"{pod.name}/{container.name} {call.resource}"
                )
            except (NotAdmitted, grpc.aio.AioRpcError) as error:
                calls.throw(error)

    async def _call_plugin(self, call: Preference[str] | Allocation, what: str) -> Any:
        """Make a call: `callGetPreferredAllocationIfAvailable`, or Allocate."""
        endpoint = self.endpoints.get(call.resource)
        if endpoint is None:
            msg = f"unknown Device Plugin {call.resource}"
            raise NotAdmitted(msg)
        client = endpoint.client
        if endpoint.is_stopped or client is None:
            msg = "endpoint has been stopped"
            raise NotAdmitted(msg)
        if isinstance(call, Allocation):
            wanted = pb.ContainerAllocateRequest(devices_ids=self.shuffled(call.ids))
            request = pb.AllocateRequest(container_requests=[wanted])
            allocated = await client.call("Allocate", request, pb.AllocateResponse)
            if not allocated.container_responses:
                msg = "no containers return in allocation response"
                raise NotAdmitted(msg)
            self._note(f"allocated {what}")
            return allocated.container_responses[0]
        if client.options is None or not client.options.get_preferred_allocation_available:
            return set()
        preference = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=self.shuffled(call.available),
            must_include_deviceIDs=self.shuffled(call.must_include),
            allocation_size=call.size,
        )
        preferred = await client.call(
            "GetPreferredAllocation",
            pb.PreferredAllocationRequest(container_requests=[preference]),
            pb.PreferredAllocationResponse,
        )
        self._note(f"preferred {what}")
        return set(
            preferred.container_responses[0].deviceIDs if preferred.container_responses else ()
        )

    # --- PodResources (apis/podresources/server_v1.go) ------------------------------------------

    async def _list(self, _request, context) -> pr.ListPodResourcesResponse:
        self.n_lists += 1
        if not self.limit.allow():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self.collect()
        return pr.ListPodResourcesResponse(
            pod_resources=[self._pod_resources(pod) for pod in self.pods.values()]
        )

    async def _get(self, request: pr.GetPodResourcesRequest, context) -> pr.GetPodResourcesResponse:
        """Read what is noted, and no more (apis/podresources/server_v1.go)."""
        if not self.limit.allow():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        wanted = (request.pod_namespace, request.pod_name)
        found = [pod for pod in self.pods.values() if (pod.namespace, pod.name) == wanted]
        if not found:
            detail = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, detail)
        return pr.GetPodResourcesResponse(pod_resources=self._pod_resources(found[0]))

    async def _get_allocatable(self, _request, _context) -> pr.AllocatableResourcesResponse:
        """Healthy devices, each alone (manager.go, GetAllocatableDevices)."""
        devices = [
            pr.ContainerDevices(resource_name=resource, device_ids=[one])
            for resource, ids in self.healthy.items()
            for one in self.shuffled(ids)
        ]
        return pr.AllocatableResourcesResponse(devices=devices)

    def _pod_resources(self, pod: NodePod) -> pr.PodResources:
        return pr.PodResources(
            name=pod.name,
            namespace=pod.namespace,
            containers=[
                pr.ContainerResources(name=container.name, devices=self._held(pod.uid, container))
                for container in pod.containers
                if container.role is not ContainerRole.INIT
            ],
        )

    def _held(self, uid: str, container: PodContainer) -> list[pr.ContainerDevices]:
        """Each device alone, once per NUMA node."""
        held: list[pr.ContainerDevices] = []
        for resource in container.devices:
            given = self.given.get((uid, container.name, resource))
            for one in self.shuffled(given.ids if given else ()):
                device = self.devices.get(resource, {}).get(one)
                if device is None or not device.HasField("topology"):
                    held.append(pr.ContainerDevices(resource_name=resource, device_ids=[one]))
                    continue
                for node in device.topology.nodes:
                    topology = pr.TopologyInfo(nodes=[pr.NUMANode(ID=node.ID)])
                    held.append(
                        pr.ContainerDevices(
                            resource_name=resource, device_ids=[one], topology=topology
                        )
                    )
        return held


def _unary(method, request, answer):
    return grpc.unary_unary_rpc_method_handler(method, request.FromString, answer.SerializeToString)
