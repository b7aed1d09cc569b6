"""Answers the calls of the device plugin API v1beta1 for one resource, by an `Allocator`.

The kubelet calls PreStartContainer only where the options say so, and ours do not: there is no such
method. Every error here fails a pod for good (the kubelet's devicemanager/manager.go; reason
UnexpectedAdmissionError), so few things are one:

    INVALID_ARGUMENT     a device that is not listed, a size that cannot be had
    FAILED_PRECONDITION  the allocator refuses
    DEADLINE_EXCEEDED    the allocator gives no answer in time; says where it waits
    INTERNAL             the allocator fails

The kubelet sets no deadline for GetPreferredAllocation and Allocate, and makes both calls in the
loop that starts every pod of the node (devicemanager/endpoint.go): the deadline here keeps a plugin
that hangs from halting the node. All that an allocator waits for ends `SPARE_S` before it, counted
from the arrival of the call, so that a kubelet which is slow to answer fails no pod. The spare
itself counts from when this process sees that time end: one that gets no processor time for as long
has done nothing meanwhile, and an error would fail a pod that can be answered.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import CoroutineType
from typing import TYPE_CHECKING, TypeVar, cast

import grpc

from kube.errors import cut
from plugin.deviceplugin.messages import OPTIONS, access_message, device_list_message
from plugin.deviceplugin.offer import CallRefused
from plugin.errors import PluginError
from plugin.pb import deviceplugin_v1beta1_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence

    from grpc.aio import ServicerContext

    from plugin.deviceplugin.offer import Offer

__all__ = [
    "DEADLINE_S",
    "FOLLOWS_WITHIN_S",
    "SPARE_S",
    "CallOutcome",
    "DevicePluginCall",
    "DevicePluginMethod",
    "DevicePluginService",
]

DEADLINE_S = 2.0
"""For a whole GetPreferredAllocation or Allocate: both hold up every pod of the node (ADR 0026)."""
SPARE_S = 0.5
"""The part of it that no wait may use: choosing and answering take some 10 ms, more on a machine
that is short of processor time."""
FOLLOWS_WITHIN_S = 0.2
"""Allocate follows GetPreferredAllocation, and one container the other, with nothing in between: a
millisecond, or far more on a machine that is busy."""
_SERVICE = "v1beta1.DevicePlugin"

T = TypeVar("T")
Request = TypeVar("Request")
Response = TypeVar("Response")


class DevicePluginMethod(Enum):
    """The calls that an allocator answers."""

    PREFERRED = "GetPreferredAllocation"
    ALLOCATE = "Allocate"


class CallOutcome(Enum):
    """How a call ended."""

    OK = "ok"
    INVALID = "invalid"
    REFUSED = "refused"
    LATE = "late"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DevicePluginCall:
    """A call that has been answered; `detail` says why where the outcome is not OK."""

    resource: str
    verb: DevicePluginMethod
    outcome: CallOutcome
    duration_s: float
    detail: str = ""


_CODES = {
    CallOutcome.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    CallOutcome.REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    CallOutcome.LATE: grpc.StatusCode.DEADLINE_EXCEEDED,
    CallOutcome.FAILED: grpc.StatusCode.INTERNAL,
}


class _Unanswerable(Exception):
    """The call ends without an answer."""

    def __init__(self, outcome: CallOutcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class DevicePluginService:
    """Serves one resource on one gRPC server; of no use for a second one.

    `began` is set when the kubelet (the first client) watches the devices, `ended` when it has
    stopped: the kubelet never starts a second watch by itself.
    """

    def __init__(
        self,
        offer: Offer,
        *,
        on_call: Callable[[DevicePluginCall], None],
        deadline_s: float = DEADLINE_S,
        follows_within_s: float = FOLLOWS_WITHIN_S,
    ) -> None:
        self._follows_within_s = follows_within_s
        self._resource = offer.resource
        self._device_list = offer.device_list
        self._allocator = offer.allocator
        self._on_call = on_call
        self._deadline_s = deadline_s
        self._n_under_way = 0
        self._ended_s = -follows_within_s
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server is given."""
        return grpc.method_handlers_generic_handler(
            _SERVICE,
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    self._get_options, pb.Empty.FromString, pb.DevicePluginOptions.SerializeToString
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    pb.Empty.FromString,
                    pb.ListAndWatchResponse.SerializeToString,
                ),
                DevicePluginMethod.PREFERRED.value: grpc.unary_unary_rpc_method_handler(
                    self._answering(DevicePluginMethod.PREFERRED, self._preferred),
                    pb.PreferredAllocationRequest.FromString,
                    pb.PreferredAllocationResponse.SerializeToString,
                ),
                DevicePluginMethod.ALLOCATE.value: grpc.unary_unary_rpc_method_handler(
                    self._answering(DevicePluginMethod.ALLOCATE, self._allocate),
                    pb.AllocateRequest.FromString,
                    pb.AllocateResponse.SerializeToString,
                ),
            },
        )

    async def idle(self) -> None:
        """Wait until no call of the allocator's is under way, nor likely to follow the last one.

        The kubelet closes the connection to a plugin whose watch ends, and fails a pod for which it
        has made half of its calls.
        """
        clock = asyncio.get_running_loop().time
        while True:
            await self._is_idle.wait()
            rest_s = self._ended_s + self._follows_within_s - clock()
            if rest_s <= 0:
                return
            await asyncio.sleep(rest_s)

    async def _get_options(self, _request: pb.Empty, _context: object) -> pb.DevicePluginOptions:
        return OPTIONS

    async def _list_and_watch(
        self, _request: pb.Empty, _context: object
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Send the whole list at once and after each change, until the caller or the server ends.

        Both ends arrive as a cancellation (grpc.aio).
        """
        is_first = not self.began.is_set()
        self.began.set()
        try:
            devices = self._device_list.devices
            while True:
                yield device_list_message(devices)
                devices = await self._device_list.changed_from(devices)
        finally:
            if is_first:
                self.ended.set()

    def _answering(
        self,
        verb: DevicePluginMethod,
        answer: Callable[[Request, float], Coroutine[object, object, Response]],
    ) -> Callable[[Request, ServicerContext[Request, Response]], Awaitable[Response]]:
        """Make a gRPC method of a function that may raise `_Unanswerable`."""

        async def method(request: Request, context: ServicerContext[Request, Response]) -> Response:
            clock = asyncio.get_running_loop().time
            began_s = clock()
            with self._under_way():
                response, outcome, detail = None, CallOutcome.OK, ""
                try:
                    until_s = began_s + self._deadline_s - SPARE_S
                    response = await self._in_time(verb, answer(request, until_s))
                except _Unanswerable as error:
                    outcome, detail = error.outcome, cut(f"{verb.value}: {error}")
                self._on_call(
                    DevicePluginCall(self._resource, verb, outcome, clock() - began_s, detail)
                )
            if response is None:
                await context.abort(_CODES[outcome], f"{self._resource}: {detail}")
            return response

        return method

    @contextmanager
    def _under_way(self) -> Generator[None]:
        self._n_under_way += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._n_under_way -= 1
            self._ended_s = asyncio.get_running_loop().time()
            if not self._n_under_way:
                self._is_idle.set()

    async def _in_time(self, verb: DevicePluginMethod, work: Coroutine[object, object, T]) -> T:
        """Do the work, but no longer than the deadline, even if it will not be cancelled.

        Where the process sees late that no wait may go on, the spare counts from then.
        """
        task = asyncio.create_task(work, name=f"{verb.value} of {self._resource}")
        waits_s = max(0.0, self._deadline_s - SPARE_S)
        try:
            for part_s in (waits_s, self._deadline_s - waits_s):
                await asyncio.wait((task,), timeout=part_s)
            if not task.done():
                where = _where(task.get_coro())
                msg = f"no answer within {self._deadline_s:g} s, waited in {where}"
                raise _Unanswerable(CallOutcome.LATE, msg)
            return task.result()
        except PluginError as error:
            raise _Unanswerable(CallOutcome.FAILED, str(error)) from error
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_forget)

    async def _preferred(
        self, request: pb.PreferredAllocationRequest, until_s: float
    ) -> pb.PreferredAllocationResponse:
        responses: list[pb.ContainerPreferredAllocationResponse] = []
        for one in request.container_requests:
            available, must_include = self._available(one), tuple(one.must_include_deviceIDs)
            size = one.allocation_size
            self._must_list(must_include)
            _must_be_possible(available, must_include, size)
            found = await self._allocator.preferred(
                available, must_include=must_include, size=size, until_s=until_s
            )
            responses.append(pb.ContainerPreferredAllocationResponse(deviceIDs=_granted(found)))
        return pb.PreferredAllocationResponse(container_responses=responses)

    async def _allocate(self, request: pb.AllocateRequest, until_s: float) -> pb.AllocateResponse:
        containers = tuple(tuple(one.devices_ids) for one in request.container_requests)
        for ids in containers:
            self._must_list(ids)
            if not ids:
                msg = "no devices for a container, expected at least one"
                raise _Unanswerable(CallOutcome.INVALID, msg)
        found = _granted(await self._allocator.allocate(containers, until_s=until_s))
        return pb.AllocateResponse(container_responses=[access_message(one) for one in found])

    def _available(self, one: pb.ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        """What may be chosen from, without what is not listed.

        The kubelet's picture may be older than the list, and a device that has gone meanwhile is no
        reason to fail a pod that can have others.
        """
        listed = self._device_list.ids
        return tuple(id_ for id_ in one.available_deviceIDs if id_ in listed)

    def _must_list(self, ids: Sequence[str]) -> None:
        unknown = sorted(set(ids) - self._device_list.ids)
        if unknown:
            n_listed = len(self._device_list.devices)
            msg = f"unknown devices {', '.join(unknown)}, expected some of the {n_listed} listed"
            raise _Unanswerable(CallOutcome.INVALID, msg)


def _must_be_possible(available: Sequence[str], must_include: Sequence[str], size: int) -> None:
    missing = sorted(set(must_include) - set(available))
    if missing:
        msg = f"must_include names {', '.join(missing)}, expected available devices alone"
        raise _Unanswerable(CallOutcome.INVALID, msg)
    least = max(1, len(must_include))
    if not least <= size <= len(available):
        msg = (
            f"allocation_size is {size}, expected {least} (must_include) "
            f"to {len(available)} (available and listed)"
        )
        raise _Unanswerable(CallOutcome.INVALID, msg)


def _granted(found: T | CallRefused) -> T:
    if isinstance(found, CallRefused):
        raise _Unanswerable(CallOutcome.REFUSED, found.reason)
    return found


def _where(coroutine: object) -> str:
    """Name the functions in which suspended work waits, outermost first, without asyncio's own."""
    names: list[str] = []
    while isinstance(coroutine, CoroutineType):
        frame = coroutine.cr_frame
        module = str(frame.f_globals.get("__name__")) if frame is not None else ""
        if module != __name__ and not module.startswith("asyncio"):
            names.append(f"{module}.{coroutine.__qualname__}")
        coroutine = cast("object", coroutine.cr_await)
    return " > ".join(names) or "nothing of ours"


def _forget(task: asyncio.Task[object]) -> None:
    """Consume the result of work that is no longer awaited."""
    if not task.cancelled():
        task.exception()
