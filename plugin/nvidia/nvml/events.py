"""What NVML's events say of GPUs.

What it answers: which `GpuEvent`s came since the last question. It must never judge an event
(`plugin.health.book`), nor open or close the library (`plugin.nvidia.nvml.reader`).

Method (NVIDIA/k8s-device-plugin v0.20.0, internal/rm/health.go): one event set for all GPUs, each
registered for those kinds that it supports: XIDs and ECC errors as there, and the driver's news of
MIG changes, of GPUs that went and of recovery actions, which say that everything is to be looked
at. NVML fills in 0xFFFFFFFF where no MIG instance is meant. A GPU that cannot register is polled
only; it makes no other deaf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.errors import NvmlError
from plugin.machine import EventKind, GpuEvent
from plugin.nvidia.nvml.library import EventBit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.nvidia.nvml.library import EventSet, Handle, Nvml, NvmlEvent

__all__ = ["EventWatch"]

_NO_INSTANCE = 0xFFFFFFFF
"""NVML_GPU_INSTANCE_ID_ANY, NVML_COMPUTE_INSTANCE_ID_ANY (nvml.h)."""

_KINDS = {
    EventBit.XID: EventKind.XID,
    EventBit.SINGLE_BIT_ECC: EventKind.ECC,
    EventBit.DOUBLE_BIT_ECC: EventKind.ECC,
    EventBit.MIG_CONFIG: EventKind.LOST_EVENTS,
    EventBit.GPU_UNAVAILABLE: EventKind.LOST_EVENTS,
    EventBit.RECOVERY_ACTION: EventKind.LOST_EVENTS,
}
_WANTED = sum(_KINDS)

_MOST_AT_ONCE = 256
"""Most events of one answer, so that a storm cannot hold the caller: NVIDIA's own plugin takes one
at a time."""


class EventWatch:
    """The events of some GPUs (handle by uuid) from now on; `deaf` are those that cannot tell any.

    Raises `NvmlError` where NVML has no event sets.
    """

    def __init__(self, nvml: Nvml, handles: Mapping[str, Handle]) -> None:
        self._nvml = nvml
        self._set: EventSet = nvml.make_events()
        self._uuids = {nvml.address(handle): uuid for uuid, handle in handles.items()}
        self.deaf = tuple(uuid for uuid, handle in handles.items() if not self._register(handle))

    @property
    def is_deaf(self) -> bool:
        """Whether no GPU can tell of anything."""
        return len(self.deaf) == len(self._uuids)

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
        told = self._nvml.wait(self._set, max(0, round(timeout_s * 1000)))
        events: list[GpuEvent] = []
        while told is not None:
            events.append(self._event(told))
            told = self._next() if len(events) < _MOST_AT_ONCE else None
        return tuple(events)

    def _next(self) -> NvmlEvent | None:
        """One that is there already; an error can wait until those before it were told."""
        try:
            return self._nvml.wait(self._set, 0)
        except NvmlError:
            return None

    def close(self) -> None:
        """Give the set back; nobody may be in `wait`."""
        self._nvml.free_events(self._set)

    def _event(self, told: NvmlEvent) -> GpuEvent:
        kind = _KINDS.get(told.kind, EventKind.LOST_EVENTS)
        return GpuEvent(
            kind=kind,
            uuid=self._uuids.get(told.device),
            xid=told.data if kind is EventKind.XID else None,
            gpu_instance=_instance(told.gpu_instance),
            compute_instance=_instance(told.compute_instance),
        )


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
