"""Health of devices: which are unhealthy, why, and when they recover.

An event is about a GPU or about one partition of it. A device that is the whole GPU is affected by
the events of all its partitions, as in NVIDIA's plugin (k8s-device-plugin v0.20.0,
internal/rm/health.go). Every device that is affected is marked, replicas and all (NVIDIA's plugin
marks one). A fault of an unknown GPU marks all.

NVIDIA's plugin never takes a mark back. Here a mark has a remedy, which the vendor knows
(`plugin.machine.FaultRules`), and ends so:

    remedy                      at a poll where the GPU is at fault   where it responds
    no action, restart of the   quiet time begins again               ends after the quiet time
    application
    reset of the GPU            quiet time begins again; the reset    ends after the quiet time,
                                counts as seen                        once a reset was seen
    restart of the node,        stays                                 stays
    unknown

- A fault on what is marked already restarts the quiet time and keeps the graver remedy, with the
  code that it came from; one that needs a reset needs a new one.
- What cannot be observed from here stays. Marks that a reset of the GPU or a restart of the node
  clears are `lasting`: they are published, and the next process begins with those of the same boot.
  Of several on one scope that is the gravest such fault, also where the mark is of a fault with an
  unknown remedy, which the next process forgets.
- A GPU that was at fault and came back was reset or loaded again: nothing else is visible. One
  that was only late (`NO_ANSWER`) was not.
- Any mark for an unknown GPU ends after the quiet time: the GPU that is really broken is found by
  its own polls.
- The quiet time doubles with each mark on the same scope, up to `MAX_QUIET_S`, so that a GPU that
  breaks under every program is not offered to pod after pod.

A polled fault ends with the first poll that does not find it. One that comes again within
`MAX_QUIET_S` ends only after the quiet time, which doubles with each time: a GPU that answers late
now and then must not enter and leave the list of devices with every poll. While the machine does
not respond at all (`after_no_response`), nothing is healthy. ECC events change nothing, as in
NVIDIA's plugin; lost events are a reason to poll, not to mark.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plugin.machine import NO_ANSWER, EventKind, FaultCode, GpuEvent, Remedy
from topology.annotations import LastingFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.machine import Device, FaultRules

__all__ = ["MAX_QUIET_S", "QUIET_S", "HealthState"]

QUIET_S = 60.0
"""Default quiet time. The program that met the error must be gone before the GPU is offered again:
the kubelet gives a container 30 s to end (terminationGracePeriodSeconds, core/v1), and the cleanup
may report an error of its own after the one that caused it."""
MAX_QUIET_S = 3600.0
"""Longest quiet time: a GPU that fails under whatever runs costs one pod an hour."""

_QUIET_REMEDIES = frozenset({Remedy.NOTHING, Remedy.RESTART_APP})
_LASTING_REMEDIES = frozenset({Remedy.RESET_GPU, Remedy.RESTART_NODE})
_UNTIL = {
    Remedy.NOTHING: "until it stays quiet",
    Remedy.RESTART_APP: "until its program is gone and it stays quiet",
    Remedy.RESET_GPU: "until it is reset",
    Remedy.RESTART_NODE: "until the node restarts",
    Remedy.UNKNOWN: "until the plugin restarts",
}
"""How a reason ends. Reasons stand in the node's report, so they must not change with time."""


@dataclass(frozen=True, slots=True)
class FaultScope:
    """What an event is about: a GPU (None: unknown which), or the partition at an address on it."""

    gpu: str | None
    partition: tuple[int, ...] | None = None

    def affects(self, device: Device) -> bool:
        """Whether a device is this, lies in it, or contains it."""
        if self.gpu is None:
            return True
        if self.gpu != device.gpu.uuid:
            return False
        own = device.partition
        if self.partition is None or own is None:
            return True
        return self.partition == own.address


@dataclass(frozen=True, slots=True)
class FaultMark:
    """Why a scope is unhealthy: the gravest fault; since when there is no new one; reset or not.

    `lasting` is the gravest fault that a later process must know: another one than `code` where the
    remedy of that is unknown.
    """

    code: FaultCode
    remedy: Remedy
    quiet_since_s: float
    was_reset: bool = False
    lasting: FaultCode | None = None


@dataclass(frozen=True, slots=True)
class PolledFault:
    """Why a poll found a GPU unusable, when the last one did, and how often it began.

    `is_now`: the last poll found it. `counts`: that, or it has not stayed away for long enough.
    """

    reason: str
    seen_s: float
    n_times: int = 1
    is_now: bool = True
    counts: bool = True


@dataclass(frozen=True, slots=True)
class HealthState:
    """All known faults. Each method gives the next state; none changes this one.

    `rules` are the vendor's. `n_marks` counts the marks that each scope ever got; `faults` are by
    uuid; `no_response` says why the whole machine does not respond.
    """

    rules: FaultRules
    quiet_s: float = QUIET_S
    marks: Mapping[FaultScope, FaultMark] = field(default_factory=dict[FaultScope, FaultMark])
    n_marks: Mapping[FaultScope, int] = field(default_factory=dict[FaultScope, int])
    faults: Mapping[str, PolledFault] = field(default_factory=dict[str, PolledFault])
    no_response: str | None = None

    def counts(self, event: GpuEvent) -> bool:
        """Whether an event makes anything unhealthy."""
        if event.kind is not EventKind.FAULT or event.code is None or self.rules.is_off:
            return False
        return self.rules.counts(event.code.number)

    def after_event(self, event: GpuEvent, now_s: float) -> HealthState:
        """After an event."""
        if event.code is None or not self.counts(event):
            return self
        scope = FaultScope(event.uuid, event.partition)
        remedy = self._remedy_of(event.code)
        lasting = event.code if remedy in _LASTING_REMEDIES else None
        new = FaultMark(event.code, remedy, now_s, lasting=lasting)
        mark = self.marks.get(scope)
        if mark is not None:
            return replace(self, marks={**self.marks, scope: self._graver(mark, new)})
        n_marks = self.n_marks.get(scope, 0) + 1
        return replace(
            self, marks={**self.marks, scope: new}, n_marks={**self.n_marks, scope: n_marks}
        )

    def after_poll(self, faults: Mapping[str, str], now_s: float) -> HealthState:
        """After a poll: these GPUs are at fault, and why; the others respond."""
        if self.rules.is_off:
            return self
        marks: dict[FaultScope, FaultMark] = {}
        for scope, mark in self.marks.items():
            reason = None if scope.gpu is None else faults.get(scope.gpu)
            if reason is not None:
                was_reset = mark.was_reset or reason != NO_ANSWER
                marks[scope] = replace(mark, quiet_since_s=now_s, was_reset=was_reset)
            elif not self._is_over(scope, mark, now_s):
                marks[scope] = mark
        polled = {
            uuid: self._polled(uuid, faults.get(uuid), now_s) for uuid in {**self.faults, **faults}
        }
        kept = {uuid: fault for uuid, fault in polled.items() if fault is not None}
        return replace(self, marks=marks, faults=kept, no_response=None)

    def after_no_response(self, reason: str) -> HealthState:
        """After the machine stopped answering, for this reason."""
        return self if self.rules.is_off else replace(self, no_response=reason)

    def lasting(self) -> tuple[LastingFault, ...]:
        """The marks of known GPUs that a later process must know, in a stable order."""
        found = (
            LastingFault(scope.gpu, code.kind, code.number, scope.partition or ())
            for scope, mark in self.marks.items()
            if scope.gpu is not None and (code := self._lasting_of(mark)) is not None
        )
        return tuple(sorted(found, key=lambda one: (one.gpu, one.partition)))

    def _lasting_of(self, mark: FaultMark) -> FaultCode | None:
        """The fault of a mark that a later process must know; a reset is over for it, too."""
        if mark.lasting is None:
            return None
        is_reset = mark.was_reset and self._remedy_of(mark.lasting) is Remedy.RESET_GPU
        return None if is_reset else mark.lasting

    def with_lasting(self, faults: Iterable[LastingFault], now_s: float) -> HealthState:
        """With the marks of an earlier process, where they count and none like them is known."""
        state = self
        for one in faults:
            code = FaultCode(one.kind, one.number)
            known = state.marks.get(FaultScope(one.gpu, one.partition or None))
            if known is None or known.lasting is None:
                event = GpuEvent(EventKind.FAULT, one.gpu, code, one.partition or None)
                state = state.after_event(event, now_s)
        return state

    def unhealthy(self, devices: Iterable[Device]) -> dict[str, str]:
        """Why devices are unhealthy, by id; healthy ones are absent.

        What is polled comes before marks, a graver mark before a lesser one, then the lower code.
        """
        found = ((device, self._reason(device)) for device in devices)
        return {device.id: reason for device, reason in found if reason is not None}

    def _reason(self, device: Device) -> str | None:
        if self.no_response is not None:
            return self.no_response
        fault = self.faults.get(device.gpu.uuid)
        if fault is not None and fault.counts:
            return fault.reason
        marks = [
            (mark.remedy.rank, -mark.code.number, scope.gpu is None, mark)
            for scope, mark in self.marks.items()
            if scope.affects(device)
        ]
        if not marks:
            return None
        _, _, is_of_unknown_gpu, mark = max(marks, key=lambda one: one[:3])
        if is_of_unknown_gpu:
            return f"{mark.code} of an unknown GPU, {_UNTIL[Remedy.NOTHING]}"
        return f"{mark.code}, {_UNTIL[mark.remedy]}"

    def _polled(self, uuid: str, reason: str | None, now_s: float) -> PolledFault | None:
        """What is known of a GPU's polled faults after a poll that found this; None: nothing."""
        before = self.faults.get(uuid)
        if reason is not None:
            n_times = 1 if before is None else before.n_times + (not before.is_now)
            return PolledFault(reason, now_s, n_times)
        if before is None or now_s - before.seen_s >= max(self.quiet_s, MAX_QUIET_S):
            return None
        quiet_s = 0.0 if before.n_times == 1 else self._quiet_time_s(before.n_times - 1)
        return replace(before, is_now=False, counts=now_s - before.seen_s < quiet_s)

    def _quiet_time_s(self, n_times: int) -> float:
        doublings = min(n_times - 1, 30)  # any delay is at its cap by then
        return min(self.quiet_s * (1 << doublings), max(self.quiet_s, MAX_QUIET_S))

    def _is_over(self, scope: FaultScope, mark: FaultMark, now_s: float) -> bool:
        """Whether the mark of a scope that responds ends now."""
        if now_s - mark.quiet_since_s < self._quiet_time_s(self.n_marks[scope]):
            return False
        is_reset = mark.remedy is Remedy.RESET_GPU and mark.was_reset
        return is_reset or mark.remedy in _QUIET_REMEDIES or scope.gpu is None

    def _graver(self, mark: FaultMark, new: FaultMark) -> FaultMark:
        """One mark of two: the graver remedy (then the earlier mark), quiet from the later on."""
        kept = new if new.remedy.rank > mark.remedy.rank else mark
        was_reset = mark.was_reset and new.remedy is not Remedy.RESET_GPU
        known = [code for code in (mark.lasting, new.lasting) if code is not None]
        lasting = max(known, key=lambda code: self._remedy_of(code).rank, default=None)
        return replace(kept, quiet_since_s=new.quiet_since_s, was_reset=was_reset, lasting=lasting)

    def _remedy_of(self, code: FaultCode) -> Remedy:
        return self.rules.remedy_of(code.number)
