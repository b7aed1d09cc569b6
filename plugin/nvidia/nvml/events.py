"""NVML's events as `GpuEvent`s: one event set.

Method (NVIDIA/k8s-device-plugin v0.20.0, internal/rm/health.go): one event set for all GPUs, each
registered for those kinds that it supports: XIDs and ECC errors as there, and the driver's events
of MIG changes, lost GPUs and recovery actions, after which everything is read again. Where NVML
refuses these kinds together, it registers none of them (nvml.h, nvmlDeviceRegisterEvents); then
XIDs are registered alone. NVML fills in 0xFFFFFFFF where no MIG instance is meant. A GPU that
cannot register is polled only, and does not affect the others; nor does one that does not answer.

The GPU of an event is found by its handle, and where that is none of those that were registered, by
its uuid, as NVIDIA's plugin does: an event of an unknown GPU would mark all of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from plugin.machine import EventKind, FaultCode, GpuEvent
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.library import EventBit
from plugin.nvidia.xids import XID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.nvidia.nvml.gpu_calls import GpuCalls
    from plugin.nvidia.nvml.library import EventSet, Handle, Nvml, NvmlEvent

__all__ = ["EventWatch"]

_NO_INSTANCE = 0xFFFFFFFF
"""NVML_GPU_INSTANCE_ID_ANY, NVML_COMPUTE_INSTANCE_ID_ANY (nvml.h)."""

_KINDS = {
    EventBit.XID: EventKind.FAULT,
    EventBit.SINGLE_BIT_ECC: EventKind.ECC,
    EventBit.DOUBLE_BIT_ECC: EventKind.ECC,
    EventBit.MIG_CONFIG: EventKind.LOST_EVENTS,
    EventBit.GPU_UNAVAILABLE: EventKind.LOST_EVENTS,
    EventBit.RECOVERY_ACTION: EventKind.LOST_EVENTS,
}
_WANTED = sum(_KINDS)

_MOST_AT_ONCE = 256
"""Most events of one call, so that a storm cannot hold the caller: NVIDIA's own plugin takes one
at a time."""


class EventWatch:
    """The events of some GPUs (handle by uuid) from now on; `heard` are those that report XIDs.

    Registering takes `register_s` at most. Raises `NvmlError` where NVML has no event sets.
    """

    def __init__(
        self, nvml: Nvml, handles: Mapping[str, Handle], calls: GpuCalls, *, register_s: float
    ) -> None:
        self._nvml = nvml
        self._set: EventSet = nvml.make_events()
        self._uuids = {nvml.address(handle): uuid for uuid, handle in handles.items()}
        self._error: NvmlError | None = None
        registered = calls.run(
            {uuid: partial(self._register, handle) for uuid, handle in handles.items()}, register_s
        )
        self.heard = frozenset(uuid for uuid, has_xids in registered.items() if has_xids)

    def _register(self, handle: Handle) -> bool:
        """Whether XIDs will arrive."""
        try:
            supported = self._nvml.event_kinds(handle) & _WANTED
        except NvmlError:
            return False
        has_xids = bool(supported & EventBit.XID)
        if supported and self._is_registered(handle, supported):
            return has_xids
        return has_xids and self._is_registered(handle, EventBit.XID)

    def _is_registered(self, handle: Handle, kinds: int) -> bool:
        try:
            self._nvml.register(handle, kinds, self._set)
        except NvmlError:
            return False
        return True

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """The first event within the time and all that are there with it; () where none came.

        Raises `NvmlError` where NVML cannot wait; then this watch is of no more use, and is to be
        closed: after NVML_ERROR_UNKNOWN its set is undefined (nvml.h, nvmlEventSetWait).
        """
        if self._error is not None:
            raise self._error
        event = self._nvml.wait(self._set, max(0, round(timeout_s * 1000)))
        events: list[GpuEvent] = []
        while event is not None:
            events.append(self._event(event))
            event = self._next() if len(events) < _MOST_AT_ONCE else None
        return tuple(events)

    def _next(self) -> NvmlEvent | None:
        """One that is there already; an error is raised by the next `wait`."""
        try:
            return self._nvml.wait(self._set, 0)
        except NvmlError as error:
            self._error = error
            return None

    def close(self) -> None:
        """Free the set, while no thread is in `wait`."""
        self._nvml.free_events(self._set)

    def _event(self, event: NvmlEvent) -> GpuEvent:
        kind = _KINDS.get(event.kind, EventKind.LOST_EVENTS)
        return GpuEvent(
            kind=kind,
            uuid=self._uuid(event.device),
            code=FaultCode(XID, event.data) if kind is EventKind.FAULT else None,
            partition=_partition(event),
        )

    def _uuid(self, handle: Handle) -> str | None:
        """The uuid of an event's GPU; None where NVML does not know it either."""
        address = self._nvml.address(handle)
        known = self._uuids.get(address)
        if known is not None or not address:
            return known
        try:
            return self._nvml.uuid(handle)
        except NvmlError:
            return None


def _partition(event: NvmlEvent) -> tuple[int, int] | None:
    """A MIG device only where both instances are named, as in NVIDIA's plugin."""
    address = (event.gpu_instance, event.compute_instance)
    return None if _NO_INSTANCE in address else address
