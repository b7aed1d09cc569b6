"""The least device plugin there can be, and the kubelet's word on who has what.

Records what the kubelet requests, call by call, and what it does with an answer, right or wrong. It
knows nothing of Coterie: it shows what a plugin depends on.
"""

from __future__ import annotations

import json
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from plugin.pb import podresources_v1_pb2 as resources_pb
from tests.cluster.fleet.workload import RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.cluster.node.kubelet_node import KubeletNode

__all__ = [
    "VARIABLE",
    "RecordedCall",
    "StubPlugin",
    "allocatable_devices",
    "held_by",
    "holders",
    "register",
]

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_SERVICE = "v1beta1.DevicePlugin"
Answer = TypeVar("Answer", bound=Message)
_DEADLINE_S = 60.0
"""More than the 10 s that the kubelet itself gives a new plugin."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of the kubelet's; what a verb does not have is empty."""

    verb: str
    available: tuple[str, ...] = ()
    must_include: tuple[str, ...] = ()
    size: int = 0
    ids: tuple[str, ...] = ()


class StubPlugin:
    """A plugin in this process for a node outside of it, found by its socket's path.

    `numa` are the devices and the NUMA node of each, if any. `prefer` answers
    GetPreferredAllocation; where it raises, the call fails. `meanwhile` is done before each answer
    to Allocate.
    """

    def __init__(
        self,
        node: KubeletNode,
        numa: Mapping[str, int | None],
        *,
        socket: str = "stub.sock",
        resource: str = RESOURCE,
        prefer: Callable[[RecordedCall], Sequence[str]] | None = None,
        meanwhile: Callable[[RecordedCall], None] = lambda _: None,
    ) -> None:
        self._node = node
        self._socket = node.device_plugins / socket
        self.resource = resource
        self.prefer = prefer
        self.meanwhile = meanwhile
        self.calls: list[RecordedCall] = []
        self.streams = 0
        """How often the kubelet has called ListAndWatch."""
        self._numa = dict(numa)
        self._ill: frozenset[str] = frozenset()
        self._before_ns = 0
        self._changes: list[queue.SimpleQueue[bool]] = []
        self._workers = ThreadPoolExecutor(max_workers=8, thread_name_prefix=socket)
        self._server: grpc.Server | None = None

    def __enter__(self) -> Self:
        """Serve, then register."""
        self.serve()
        try:
            self.register()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, if it was not stopped."""
        self.stop()

    def serve(self) -> None:
        """Listen; whoever listened there before is gone."""
        self._socket.unlink(missing_ok=True)
        self._server = grpc.server(self._workers)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def register(self) -> None:
        """Tell the kubelet."""
        register(self._node.kubelet_socket, self._socket.name, self.resource)

    def stop(self) -> None:
        """End all streams and close the socket."""
        if self._server is None:
            return
        for changes in self._changes:
            changes.put(False)  # noqa: FBT003 - the end of the stream
        self._server.stop(grace=None).wait()
        self._server = None
        self._workers.shutdown()

    def set_ill(self, *ids: str) -> None:
        """Call these devices unhealthy from now on, and no others."""
        self._ill = frozenset(ids)
        self._before_ns = self._checkpoint_ns()
        for changes in self._changes:
            changes.put(True)  # noqa: FBT003 - a new list

    def until_listed(self) -> None:
        """Wait until the kubelet has what was listed last, which it notes in its checkpoint."""
        healthy = sorted(set(self._numa) - self._ill)
        deadline = time.monotonic() + _DEADLINE_S
        while self.streams == 0 or self._noted() != healthy:
            if time.monotonic() > deadline:
                msg = f"the kubelet has {self._noted()}, expected {healthy}"
                raise TimeoutError(msg)
            time.sleep(0.01)

    def _checkpoint_ns(self) -> int:
        try:
            return self._node.checkpoint.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _noted(self) -> list[str] | None:
        """Healthy devices as the kubelet noted them since they were listed."""
        if self._checkpoint_ns() == self._before_ns:
            return None
        try:
            noted = json.loads(self._node.checkpoint.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return sorted(noted["Data"]["RegisteredDevices"].get(self.resource) or [])

    def calls_of(self, verb: str) -> list[RecordedCall]:
        """The calls of one verb."""
        return [call for call in self.calls if call.verb == verb]

    def _handlers(self) -> grpc.GenericRpcHandler:
        answers: dict[str, tuple[Callable[..., Any], Any]] = {
            "GetDevicePluginOptions": (self._options, pb.Empty),
            "GetPreferredAllocation": (self._preferred, pb.PreferredAllocationRequest),
            "Allocate": (self._allocate, pb.AllocateRequest),
        }
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=request.FromString,
                response_serializer=_written,
            )
            for name, (answer, request) in answers.items()
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._list_and_watch,
            request_deserializer=pb.Empty.FromString,
            response_serializer=_written,
        )
        return grpc.method_handlers_generic_handler(_SERVICE, handlers)

    def _options(self, *_: object) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions(get_preferred_allocation_available=self.prefer is not None)

    def _list_and_watch(self, *_: object) -> Iterator[pb.ListAndWatchResponse]:
        changes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._changes.append(changes)
        self._before_ns = self._checkpoint_ns()
        self.streams += 1
        yield self._listing()
        while changes.get():
            yield self._listing()

    def _listing(self) -> pb.ListAndWatchResponse:
        return pb.ListAndWatchResponse(
            devices=[
                pb.Device(
                    ID=one,
                    health="Unhealthy" if one in self._ill else "Healthy",
                    topology=None
                    if numa is None
                    else pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa)]),
                )
                for one, numa in self._numa.items()
            ]
        )

    def _preferred(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        (one,) = request.container_requests
        call = RecordedCall(
            "GetPreferredAllocation",
            available=tuple(one.available_deviceIDs),
            must_include=tuple(one.must_include_deviceIDs),
            size=one.allocation_size,
        )
        self.calls.append(call)
        assert self.prefer is not None
        try:
            ids = self.prefer(call)
        except ValueError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        answer = pb.ContainerPreferredAllocationResponse(deviceIDs=ids)
        return pb.PreferredAllocationResponse(container_responses=[answer])

    def _allocate(self, request: pb.AllocateRequest, *_: object) -> pb.AllocateResponse:
        (one,) = request.container_requests
        ids = tuple(sorted(one.devices_ids))
        self.calls.append(call := RecordedCall("Allocate", ids=ids))
        self.meanwhile(call)
        answer = pb.ContainerAllocateResponse(envs={VARIABLE: ",".join(ids)})
        return pb.AllocateResponse(container_responses=[answer])


def _written(message: Message) -> bytes:
    return message.SerializeToString()


def register(kubelet_socket: Path, endpoint: str, resource: str) -> None:
    """Register a plugin that serves already. Raises `grpc.RpcError`."""
    with grpc.insecure_channel(f"unix:{kubelet_socket}") as channel:
        call: grpc.UnaryUnaryMultiCallable[pb.RegisterRequest, pb.Empty] = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=_written,
            response_deserializer=pb.Empty.FromString,
        )
        request = pb.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
        call(request, timeout=_DEADLINE_S)


def holders(node: KubeletNode, resource: str = RESOURCE) -> dict[tuple[str, str], tuple[str, ...]]:
    """Who has which devices, as PodResources reports it: by pod and container, ids sorted.

    This call makes the kubelet count again: during an allocation it may have a device allocated
    twice (plugin/kubelet/admission_gate.py).
    """
    request = resources_pb.ListPodResourcesRequest()
    answer = _pod_resources(node, "List", request, resources_pb.ListPodResourcesResponse)
    return {
        (pod.name, container): ids
        for pod in answer.pod_resources
        for container, ids in _devices(pod, resource).items()
    }


def held_by(node: KubeletNode, pod: str, resource: str = RESOURCE) -> dict[str, tuple[str, ...]]:
    """What one pod's containers have, by PodResources; changes nothing in the kubelet."""
    request = resources_pb.GetPodResourcesRequest(pod_name=pod, pod_namespace="default")
    answer = _pod_resources(node, "Get", request, resources_pb.GetPodResourcesResponse)
    return _devices(answer.pod_resources, resource)


def allocatable_devices(node: KubeletNode, resource: str = RESOURCE) -> tuple[str, ...]:
    """The devices that the kubelet would give away or has given, by PodResources.

    After a restart there are none until the plugin has registered and reported its list. The Node
    shows the devices of before until then, and a pod that is bound in between fails for good.
    """
    request = resources_pb.AllocatableResourcesRequest()
    kind = resources_pb.AllocatableResourcesResponse
    answer = _pod_resources(node, "GetAllocatableResources", request, kind)
    found = {
        id_ for one in answer.devices if one.resource_name == resource for id_ in one.device_ids
    }
    return tuple(sorted(found))


def _pod_resources(node: KubeletNode, verb: str, request: Message, kind: type[Answer]) -> Answer:
    with grpc.insecure_channel(f"unix:{node.pod_resources_socket}") as channel:
        call: grpc.UnaryUnaryMultiCallable[Message, Answer] = channel.unary_unary(
            f"/v1.PodResourcesLister/{verb}",
            request_serializer=_written,
            response_deserializer=kind.FromString,
        )
        return call(request, timeout=_DEADLINE_S, wait_for_ready=True)


def _devices(pod: resources_pb.PodResources, resource: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for container in pod.containers:
        for devices in container.devices:
            if devices.resource_name == resource:
                found.setdefault(container.name, set()).update(devices.device_ids)
    return {container: tuple(sorted(ids)) for container, ids in found.items()}
