"""Which devices are not to be given away, why, and when they may be again.

What it answers: from what happened (events), what is wrong now (polled faults) and the time, which
device ids are unhealthy and the reason for people. It must never look at a clock, ask a machine, or
forget a fault because a program started anew elsewhere.

An event is about a GPU or about one MIG instance of it, by GPU instance and compute instance, as in
NVIDIA's plugin (k8s-device-plugin v0.20.0, internal/rm/health.go): where either is missing or is
0xFFFFFFFF it is about the whole GPU, and a device that is the whole GPU is concerned by all its
instances. Every device of what is concerned is marked, replicas and all (NVIDIA's marks one). An
XID of an unknown GPU marks all.

NVIDIA's plugin never takes a mark back. Here a mark has a remedy (`plugin.nvidia.xids`), and ends
so:

    remedy                      at a poll where the GPU is at fault   where it answers
    no action, restart of the   quiet time begins anew                ends after the quiet time
    application
    reset of the GPU            quiet time begins anew; the reset     ends after the quiet time,
                                counts as seen                        once a reset was seen
    restart of the node,        stays                                 stays
    unknown

- An XID on what is marked already begins the quiet time anew and keeps the graver remedy, with the
  XID that it came from; one that asks for a reset wants a new one seen.
- What cannot be told from here stays: a restart of the node restarts this program too, and begins
  with an empty book; who repairs a GPU otherwise restarts the plugin.
- A GPU that stopped answering and came back was reset or loaded anew: nothing else is visible.
- Whatever is marked for an unknown GPU ends after the quiet time: the GPU that is really broken is
  found by its own polls.
- The quiet time doubles with each mark on the same thing, up to `MAX_QUIET_S`, so that a GPU that
  breaks under every program is not offered to pod after pod.

A polled fault counts while it is polled, and not longer. While the machine cannot be asked at all
(`after_silence`), nothing is healthy. ECC events are NVIDIA's to note and ignore, and so are they
here; lost events are a reason to poll, not to mark.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plugin.machine import EventKind
from plugin.nvidia.xids import Remedy, XidRules, remedy_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.machine import Device, GpuEvent

__all__ = ["MAX_QUIET_S", "QUIET_S", "HealthBook", "Mark", "Part"]

QUIET_S = 60.0
"""Default quiet time. The program that met the error must be gone before the GPU is offered again:
the kubelet gives a container 30 s to end (terminationGracePeriodSeconds, core/v1), and XID 45 of
its cleanup follows the error that caused it."""
MAX_QUIET_S = 3600.0
"""Longest quiet time: a GPU that fails under whatever runs costs one pod an hour."""

_NO_INSTANCE = 0xFFFFFFFF
"""What NVML says for "no instance" (nvmlEventData_t, nvml.h)."""
_QUIET_REMEDIES = frozenset({Remedy.NOTHING, Remedy.RESTART_APP})
_UNTIL = {
    Remedy.NOTHING: "until it stays quiet",
    Remedy.RESTART_APP: "until its program is gone and it stays quiet",
    Remedy.RESET_GPU: "until it is reset",
    Remedy.RESTART_NODE: "until the node restarts",
    Remedy.UNKNOWN: "until the plugin restarts",
}
"""How a reason ends. Reasons stand in the node's report, so they must not change with time."""


@dataclass(frozen=True, slots=True)
class Part:
    """What an event is about: a GPU (None: unknown which), or a MIG instance (GI, CI) of it."""

    gpu: str | None
    instance: tuple[int, int] | None = None

    def concerns(self, device: Device) -> bool:
        """Whether a device is this, lies in it, or holds it."""
        if self.gpu is None:
            return True
        if self.gpu != device.gpu_uuid:
            return False
        own = device.instance
        if self.instance is None or own is None:
            return True
        return self.instance == (own.gpu_instance, own.compute_instance)


@dataclass(frozen=True, slots=True)
class Mark:
    """Why a part is unhealthy: the gravest XID; since when all is quiet; whether it was reset."""

    xid: int
    remedy: Remedy
    quiet_since_s: float
    was_reset: bool = False


@dataclass(frozen=True, slots=True)
class HealthBook:
    """What is known to be wrong. Each method gives the next book; none changes this one.

    `n_marks` counts the marks that each part ever got; `silence` says why the machine cannot be
    asked.
    """

    rules: XidRules = field(default_factory=XidRules)
    quiet_s: float = QUIET_S
    marks: Mapping[Part, Mark] = field(default_factory=dict[Part, Mark])
    n_marks: Mapping[Part, int] = field(default_factory=dict[Part, int])
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    silence: str | None = None

    def counts(self, event: GpuEvent) -> bool:
        """Whether an event makes anything unhealthy."""
        if event.kind is not EventKind.XID:
            return False
        return not self.rules.is_off and self.rules.counts(_xid(event))

    def after_event(self, event: GpuEvent, now_s: float) -> HealthBook:
        """Something happened."""
        if not self.counts(event):
            return self
        part, xid = _part(event), _xid(event)
        new = Mark(xid, remedy_of(xid), now_s)
        mark = self.marks.get(part)
        if mark is not None:
            return replace(self, marks={**self.marks, part: _graver(mark, new)})
        n_marks = self.n_marks.get(part, 0) + 1
        return replace(
            self,
            marks={**self.marks, part: new},
            n_marks={**self.n_marks, part: n_marks},
        )

    def after_poll(self, faults: Mapping[str, str], now_s: float) -> HealthBook:
        """The machine was asked: these GPUs are at fault, and why; the others answer."""
        if self.rules.is_off:
            return self
        marks: dict[Part, Mark] = {}
        for part, mark in self.marks.items():
            if part.gpu in faults:
                marks[part] = replace(mark, quiet_since_s=now_s, was_reset=True)
            elif not self._is_over(part, mark, now_s):
                marks[part] = mark
        return replace(self, marks=marks, faults=dict(faults), silence=None)

    def after_silence(self, reason: str) -> HealthBook:
        """The machine cannot be asked, for this reason."""
        return self if self.rules.is_off else replace(self, silence=reason)

    def unhealthy(self, devices: Iterable[Device]) -> dict[str, str]:
        """Why devices are not to be given away, by id; those that are well are absent.

        What is polled comes before marks, a graver mark before a lesser one, then the lower XID.
        """
        found = ((device, self._reason(device)) for device in devices)
        return {device.id: reason for device, reason in found if reason is not None}

    def _reason(self, device: Device) -> str | None:
        if self.silence is not None:
            return self.silence
        if device.gpu_uuid in self.faults:
            return self.faults[device.gpu_uuid]
        marks = [
            (mark.remedy.rank, -mark.xid, part.gpu is None, mark)
            for part, mark in self.marks.items()
            if part.concerns(device)
        ]
        if not marks:
            return None
        _, _, is_of_unknown_gpu, mark = max(marks, key=lambda one: one[:3])
        if is_of_unknown_gpu:
            return f"XID {mark.xid} of an unknown GPU, {_UNTIL[Remedy.NOTHING]}"
        return f"XID {mark.xid}, {_UNTIL[mark.remedy]}"

    def _is_over(self, part: Part, mark: Mark, now_s: float) -> bool:
        """Whether the mark of a part that answers ends now."""
        doublings = min(self.n_marks[part] - 1, 30)  # any delay is at its cap by then
        quiet_s = min(self.quiet_s * (1 << doublings), max(self.quiet_s, MAX_QUIET_S))
        if now_s - mark.quiet_since_s < quiet_s:
            return False
        is_reset = mark.remedy is Remedy.RESET_GPU and mark.was_reset
        return is_reset or mark.remedy in _QUIET_REMEDIES or part.gpu is None


def _xid(event: GpuEvent) -> int:
    """The number of an XID event; 0, which has no known remedy, where the driver told none."""
    return event.xid or 0


def _part(event: GpuEvent) -> Part:
    gpu_instance, compute_instance = event.gpu_instance, event.compute_instance
    if gpu_instance is None or compute_instance is None:
        return Part(event.uuid)
    if _NO_INSTANCE in {gpu_instance, compute_instance}:
        return Part(event.uuid)
    return Part(event.uuid, (gpu_instance, compute_instance))


def _graver(mark: Mark, new: Mark) -> Mark:
    """One mark of two: the graver remedy (then the earlier mark), quiet from the later on."""
    kept = new if new.remedy.rank > mark.remedy.rank else mark
    was_reset = mark.was_reset and new.remedy is not Remedy.RESET_GPU
    return replace(kept, quiet_since_s=new.quiet_since_s, was_reset=was_reset)
