"""NVML's events as `GpuEvent`s.

Method (NVIDIA/k8s-device-plugin v0.20.0, internal/rm/health.go): one event set for all GPUs, each
registered for those kinds that it supports: XIDs and ECC errors as there, and the driver's events
of MIG changes, lost GPUs and recovery actions, after which everything is read again. NVML fills in
0xFFFFFFFF where no MIG instance is meant. A GPU that cannot register is polled only, and does not
affect the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.machine import EventKind, FaultCode, GpuEvent
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.library import EventBit
from plugin.nvidia.xids import XID

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """The events of some GPUs (handle by uuid) from now on; `is_empty` where none reports any.

    Raises `NvmlError` where NVML has no event sets.
    """

    def __init__(self, nvml: Nvml, handles: Mapping[str, Handle]) -> None:
        self._nvml = nvml
        self._set: EventSet = nvml.make_events()
        self._uuids = {nvml.address(handle): uuid for uuid, handle in handles.items()}
        registered = [self._register(handle) for handle in handles.values()]
        self.is_empty = not any(registered)

    def _register(self, handle: Handle) -> bool:
        try:
            kinds = self._nvml.event_kinds(handle) & _WANTED
            if kinds:
                self._nvml.register(handle, kinds, self._set)
        except NvmlError:
            return False
        return bool(kinds & EventBit.XID)

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """The first event within the time and all that are there with it; () where none came.

        Raises `NvmlError` where NVML cannot wait; then this watch is of no more use.
        """
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
        except NvmlError:
            return None

    def close(self) -> None:
        """Free the set, while no thread is in `wait`."""
        self._nvml.free_events(self._set)

    def _event(self, event: NvmlEvent) -> GpuEvent:
        kind = _KINDS.get(event.kind, EventKind.LOST_EVENTS)
        return GpuEvent(
            kind=kind,
            uuid=self._uuids.get(event.device),
            code=FaultCode(XID, event.data) if kind is EventKind.FAULT else None,
            partition=_partition(event),
        )


def _partition(event: NvmlEvent) -> tuple[int, int] | None:
    """A MIG device only where both instances are named, as in NVIDIA's plugin."""
    address = (event.gpu_instance, event.compute_instance)
    return None if _NO_INSTANCE in address else address
