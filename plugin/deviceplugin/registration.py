"""Keeps resources registered with the kubelet.

While `run` lasts, each resource is served, and registered whenever there is a kubelet. The kubelet
loses a registration in three ways and never restores it by itself: it restarts (its socket is
replaced), its watch of the devices ends, or, before Kubernetes 1.37, another plugin registers the
same resource and ends: then the kubelet has no device and still watches ours (plugin/v1beta1/
handler.go, runClient), so that its healthy devices are read from time to time. In each case:

    wait for the kubelet's socket ──▶ serve ──▶ register ──▶ the kubelet watches ──▶ registered
      ▲                                            │ refused, no answer, no watch          │
      ├──────────────── pause, growing ◀───────────┘                                       │
      └── pause ◀── serve no longer ◀── watch ended, socket replaced, or devices unknown ──┘

A pause ends early when a new socket appears. The kubelet requests the options while it answers the
registration, so the server is started first (plugin/v1beta1/server.go, Register).

A pause has a part that never ends early, since before 1.37 the kubelet identifies a watch by the
resource's name alone: where it detects the end of one after the resource was registered again, it
closes the new one (plugin/v1beta1/handler.go, runClient). An old plugin that ends after its
successor has registered does that to the successor in any case; the successor sees its watch end,
and registers again. From 1.37 on a watch is identified by its socket, too, and each registration
has its own (`server`).

A kubelet's refusal is never final: the next kubelet may accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NoReturn, TypeVar

import grpc
import grpc.aio

from kube.errors import cut
from kube.watch import Backoff
from plugin.deviceplugin.kubelet_socket import CHECK_EVERY_S, KubeletSocket
from plugin.deviceplugin.messages import OPTIONS
from plugin.errors import RegistrationError
from plugin.kubelet_channel import kubelet_channel
from plugin.pb import deviceplugin_v1beta1_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from plugin.deviceplugin.kubelet_socket import SocketId
    from plugin.deviceplugin.server import ResourceServer, Serving
    from plugin.deviceplugin.service import DevicePluginService

__all__ = ["Registration", "RegistrationChange", "RegistrationPhase", "RegistrationTiming"]

T = TypeVar("T")

_VERSION = "v1beta1"
"""The one version there is (k8s.io/kubelet v0.36.3, pkg/apis/deviceplugin/v1beta1/constants.go)."""
_ENDED = "the kubelet ended its watch"
_REPLACED = "the kubelet's socket was replaced"
_FORGOTTEN = (
    "the kubelet has none of the devices, as after another plugin of the resource has ended"
)
_REGISTER = "/v1beta1.Registration/Register"


class RegistrationPhase(Enum):
    """The state of a resource's registration."""

    WAITING = "waiting"
    """There is no kubelet socket."""
    FAILED = "failed"
    """The registration failed; it will be retried."""
    REGISTERED = "registered"
    """The kubelet watches the devices."""
    LOST = "lost"
    """It was registered and is no longer; it will be again."""
    DISABLED = "disabled"
    """It is served; by the settings it is not registered with any kubelet."""


@dataclass(frozen=True, slots=True)
class RegistrationChange:
    """A change of a resource's registration; `delay_s` is the time until the next try.

    `detail` says why. A new kubelet may be tried sooner.
    """

    resource: str
    phase: RegistrationPhase
    detail: str = ""
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RegistrationTiming:
    """How long things may take, in seconds."""

    check_every_s: float = CHECK_EVERY_S
    """Between two checks of the kubelet's socket."""
    register_s: float = 12.0
    """For a registration. The kubelet tries for 10 s to reach us before it answers (plugin/v1beta1/
    client.go, dial)."""
    watch_s: float = 5.0
    """From the kubelet's answer to the begin of its watch, which follows at once."""
    first_delay_s: float = 0.1
    cap_delay_s: float = 5.0
    """Pauses. The cap decides how long a node offers no GPU once a fault is fixed."""
    recheck_s: float = 5.0
    """Between two requests for the devices that the kubelet knows; the second answer without any of
    ours counts, so that a node is without GPUs for twice that at most."""
    settle_s: float = 0.05
    """The part of a pause that never ends early: ample for what the kubelet does in a few lines
    when a watch ends."""
    steady_s: float = 10.0
    """A registration that lasted this long resets the backoff."""


_TIMING = RegistrationTiming()


async def _unknown() -> None:
    """What a kubelet knows that is not read."""


class Registration:
    """Keeps what `servers` offer registered at the kubelet whose socket is at `socket`.

    `socket` None: serve, and register nowhere. The sockets of the servers have to lie in the folder
    of the kubelet's: it looks for them beside its own. `known` gives the healthy devices that the
    kubelet knows, by resource; None where it did not answer.
    """

    def __init__(  # noqa: PLR0913 - what it keeps, whom it informs, and what tests replace
        self,
        servers: Sequence[ResourceServer],
        socket: Path | None,
        *,
        on_change: Callable[[RegistrationChange], None],
        known: Callable[[], Awaitable[Mapping[str, AbstractSet[str]] | None]] = _unknown,
        timing: RegistrationTiming = _TIMING,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._servers = tuple(servers)
        self._path = socket
        self._on_change = on_change
        self._known = known
        self._timing = timing
        self._jitter = jitter
        self._phases: dict[str, RegistrationPhase] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """The resources that are to be registered and are not."""
        done = {RegistrationPhase.REGISTERED, RegistrationPhase.DISABLED}
        names = (server.offer.resource for server in self._servers)
        return tuple(name for name in names if self._phases.get(name) not in done)

    async def run(self) -> None:
        """Serve and keep registered until cancelled; then the kubelet sees every watch end."""
        async with asyncio.TaskGroup() as group:
            if self._path is None:
                for server in self._servers:
                    group.create_task(self._serve_alone(server))
                await asyncio.Event().wait()
            else:
                socket = KubeletSocket(self._path, check_every_s=self._timing.check_every_s)
                for server in self._servers:
                    group.create_task(self._keep(server, socket))
                await socket.watch()

    async def _serve_alone(self, server: ResourceServer) -> NoReturn:
        backoff = self._backoff()
        while True:
            try:
                async with server.serving():
                    self._notify(server, RegistrationPhase.DISABLED)
                    await asyncio.Event().wait()
            except RegistrationError as error:
                delay_s = backoff.next_s()
                self._notify(server, RegistrationPhase.FAILED, str(error), delay_s)
                await asyncio.sleep(delay_s)

    async def _keep(self, server: ResourceServer, socket: KubeletSocket) -> NoReturn:
        timing = self._timing
        backoff = self._backoff()
        clock = asyncio.get_running_loop().time
        last: SocketId | None = None
        while True:
            socket_id = await self._present(server, socket)
            if socket_id != last:
                # Another kubelet: failures with the one before do not count.
                backoff.reset()
                last = socket_id
            try:
                async with server.serving() as serving:
                    await self._enter(server, serving, socket, socket_id)
                    self._notify(server, RegistrationPhase.REGISTERED)
                    since_s = clock()
                    loss = await _before_replaced(
                        self._loss(server, serving.service), socket, socket_id
                    )
            except RegistrationError as error:
                phase, detail = RegistrationPhase.FAILED, str(error)
            else:
                phase, detail = RegistrationPhase.LOST, loss or _REPLACED
                if clock() - since_s >= timing.steady_s:
                    backoff.reset()
            delay_s = backoff.next_s()
            self._notify(server, phase, detail, delay_s)
            await asyncio.sleep(timing.settle_s)
            await _pause(socket, socket_id, delay_s)

    async def _present(self, server: ResourceServer, socket: KubeletSocket) -> SocketId:
        if socket.check() is None:
            self._notify(server, RegistrationPhase.WAITING, f"no socket at {socket.path}")
        return await socket.other_than(None)

    async def _enter(
        self,
        server: ResourceServer,
        serving: Serving,
        socket: KubeletSocket,
        socket_id: SocketId,
    ) -> None:
        """Register, and wait for the kubelet's watch.

        A kubelet that starts meanwhile may have removed our socket from its folder, and tries for
        10 s to reach us there: a new socket means not to wait for that.
        """

        async def enter() -> bool:
            await self._register(server, serving.path.name, socket.path)
            await self._watched(server, serving.service.began)
            return True

        if not await _before_replaced(enter(), socket, socket_id):
            msg = f"{server.offer.resource}: {_REPLACED} while we registered, expected it to stay"
            raise RegistrationError(msg)

    async def _loss(self, server: ResourceServer, service: DevicePluginService) -> str:
        """Wait until the kubelet has lost us; how."""
        ended = asyncio.ensure_future(service.ended.wait())
        forgotten = asyncio.ensure_future(self._forgotten(server))
        try:
            await asyncio.wait((ended, forgotten), return_when=asyncio.FIRST_COMPLETED)
            return _ENDED if ended.done() else _FORGOTTEN
        finally:
            ended.cancel()
            forgotten.cancel()
            await asyncio.gather(ended, forgotten, return_exceptions=True)

    async def _forgotten(self, server: ResourceServer) -> None:
        """Wait until the kubelet knows none of the devices that are healthy, twice in a row."""
        n_without = 0
        while n_without < 2:  # noqa: PLR2004 - once may be between our list and its taking it over
            await asyncio.sleep(self._timing.recheck_s)
            known = await self._known()
            healthy = {one.id for one in server.offer.device_list.devices if one.is_healthy}
            is_without = (
                known is not None
                and bool(healthy)
                and healthy.isdisjoint(known.get(server.offer.resource, ()))
            )
            n_without = n_without + 1 if is_without else 0

    async def _register(self, server: ResourceServer, endpoint: str, path: Path) -> None:
        """Register. The kubelet has requested the options when this returns."""
        request = pb.RegisterRequest(
            version=_VERSION,
            endpoint=endpoint,
            resource_name=server.offer.resource,
            options=OPTIONS,
        )
        async with kubelet_channel(path) as channel:
            register = channel.unary_unary(
                _REGISTER,
                request_serializer=pb.RegisterRequest.SerializeToString,
                response_deserializer=pb.Empty.FromString,
            )
            try:
                await register(request, timeout=self._timing.register_s)
            except grpc.aio.AioRpcError as error:
                msg = f"{server.offer.resource}: {self._refusal(endpoint, path, error)}"
                raise RegistrationError(msg) from error

    def _refusal(self, endpoint: str, path: Path, error: grpc.aio.AioRpcError) -> str:
        expected = {
            grpc.StatusCode.UNAVAILABLE: "a kubelet to listen there",
            grpc.StatusCode.DEADLINE_EXCEEDED: f"an answer within {self._timing.register_s:g} s",
        }.get(
            error.code(),
            f"it to speak {_VERSION}, to take the name and to reach {endpoint} in its folder",
        )
        said = cut(f"{error.code().name}: {error.details()}")
        return f"the kubelet at {path} did not take the registration ({said}), expected {expected}"

    async def _watched(self, server: ResourceServer, began: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._timing.watch_s):
                await began.wait()
        except TimeoutError as error:
            msg = (
                f"{server.offer.resource}: the kubelet took the registration and does not "
                f"list devices, expected ListAndWatch within {self._timing.watch_s:g} s"
            )
            raise RegistrationError(msg) from error

    def _backoff(self) -> Backoff:
        timing = self._timing
        return Backoff(first_s=timing.first_delay_s, cap_s=timing.cap_delay_s, jitter=self._jitter)

    def _notify(
        self,
        server: ResourceServer,
        phase: RegistrationPhase,
        detail: str = "",
        delay_s: float = 0.0,
    ) -> None:
        self._phases[server.offer.resource] = phase
        self._on_change(RegistrationChange(server.offer.resource, phase, detail, delay_s))


async def _before_replaced(
    work: Coroutine[object, object, T], socket: KubeletSocket, socket_id: SocketId
) -> T | None:
    """The result of the work, which ends when the socket is another one: then None."""
    if socket.check() not in {socket_id, None}:
        work.close()
        return None
    working = asyncio.ensure_future(work)
    replacing = asyncio.ensure_future(socket.other_than(socket_id))
    try:
        await asyncio.wait((working, replacing), return_when=asyncio.FIRST_COMPLETED)
        return None if replacing.done() else working.result()
    finally:
        working.cancel()
        replacing.cancel()
        await asyncio.gather(working, replacing, return_exceptions=True)


async def _pause(socket: KubeletSocket, socket_id: SocketId, at_most_s: float) -> None:
    """Wait, but no longer than until the socket is another one."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            await socket.other_than(socket_id)
