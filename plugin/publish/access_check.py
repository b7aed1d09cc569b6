"""Whether containers can use what they are given on this node.

Two ways lead to a container that runs without an error and without a GPU, or does not start at all:
a specification for container runtimes that lacks something, and a variable that only the vendor's
own runtime reads where another is the node's default. The second is known from our own pod:
what it sees of the machine comes from that runtime, and if its RuntimeClass names it, the default
is another one, or may be.

The findings are emitted, and are an Event on the Node, whenever they change.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from kube.client import ObjectEvent
from kube.errors import KubeError
from kube.objects import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from plugin.machine import DeviceAccess
    from plugin.pods import NodePod

__all__ = ["AccessCheck", "AccessChecked", "AccessEvent", "EventApi", "EventFailed"]

_REASON = "GpuAccessProblem"
_COMPONENT = "coterie-plugin"


class EventApi(Protocol):
    """What is needed of `kube.client.server`."""

    async def create_event(self, event: ObjectEvent) -> None:
        """Write an Event. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class AccessChecked:
    """Why containers may not be able to use their devices, for people; empty: they can."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventFailed:
    """The Event on the Node could not be written."""

    detail: str


AccessEvent = AccessChecked | EventFailed


class AccessCheck:
    """Used on one event loop. `node` is this node's name, `pod_uid` that of our own pod.

    `emit` reports what happens, for logs.
    """

    def __init__(
        self, api: EventApi, node: str, *, pod_uid: str | None, emit: Callable[[AccessEvent], None]
    ) -> None:
        self._api = api
        self._node = node
        self._pod_uid = pod_uid
        self._emit = emit
        self._access: DeviceAccess | None = None
        self._runtime_class = ""
        self._writing: asyncio.Task[None] | None = None
        self.problems: tuple[str, ...] = ()
        """The findings; empty: none, or nothing is given to containers yet."""

    def see_access(self, access: DeviceAccess) -> None:
        """Check what containers get from now on."""
        self._access = access
        self._check()

    def see_pods(self, pods: Iterable[NodePod]) -> None:
        """Check with the node's pods, our own among them."""
        self._runtime_class = next(
            (pod.runtime_class for pod in pods if pod.uid == self._pod_uid), self._runtime_class
        )
        self._check()

    def stop(self) -> None:
        """Write no more."""
        if self._writing is not None:
            self._writing.cancel()

    def _check(self) -> None:
        found = () if self._access is None else _problems(self._access, self._runtime_class)
        if found == self.problems:
            return
        self.problems = found
        self._emit(AccessChecked(found))
        if found:
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        """Write one Event, like the kubelet's own with the node's name as uid."""
        event = ObjectEvent(
            about=ObjectKey("", self._node, self._node),
            is_warning=True,
            reason=_REASON,
            message=f"containers may get no usable GPU: {'; '.join(self.problems)}",
            at=datetime.now(UTC),
            component=_COMPONENT,
            instance=self._node,
        )
        try:
            await self._api.create_event(event)
        except KubeError as error:
            self._emit(EventFailed(str(error)))


def _problems(access: DeviceAccess, runtime_class: str) -> tuple[str, ...]:
    if not (access.needs_runtime and runtime_class):
        return access.lacks
    unknown_default = (
        f"{access.needs_runtime} needs the vendor's container runtime, which may not be the node's "
        f"default: this pod has it by RuntimeClass {runtime_class}, and pods without it get no GPU"
    )
    return (*access.lacks, unknown_default)
