"""What the agent tells of itself: one place that turns what happens into log lines and metrics.

What it answers: every witness that the agent's parts ask for. It must never decide anything, nor
wait. `plugin.logkeys` names events and fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plugin import logkeys
from plugin.allocation import AllocationRefusal, Ambiguous, Identified
from plugin.deviceplugin import CallOutcome, CallRefused, RegistrationPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.allocation import Allocation, DeviceRequest, Requester
    from plugin.allocator import IdentifiedBy
    from plugin.deviceplugin import DevicePluginCall, RegistrationChange
    from plugin.machine import GpuEvent
    from plugin.observe.metrics import Metrics
    from plugin.pods import PlanMismatch
    from plugin.publish import WriteFailure

__all__ = ["Logger", "Witness"]


class Logger(Protocol):
    """What we need of structlog's bound logger."""

    def debug(self, event: str, **fields: object) -> object:
        """Log a detail."""
        ...

    def info(self, event: str, **fields: object) -> object:
        """Log an event."""
        ...

    def warning(self, event: str, **fields: object) -> object:
        """Log a fault."""
        ...


class Witness:
    """Notes what happens. `on_allocated` is called after each Allocate that gave devices."""

    def __init__(self, log: Logger, metrics: Metrics, *, on_allocated: Callable[[], None]) -> None:
        self._log = log
        self._metrics = metrics
        self._on_allocated = on_allocated
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """What the last look at the kubelet did not tell, and why; empty: nothing."""
        return self._trouble

    # --- the kubelet's calls ---

    def called(self, call: DevicePluginCall) -> None:
        """Take note of a call that was answered."""
        self._metrics.answered(call)
        if call.outcome is not CallOutcome.OK:
            self._log.warning(
                logkeys.CALL_FAILED,
                **{
                    logkeys.RESOURCE: call.resource,
                    logkeys.VERB: call.verb.value,
                    logkeys.REASON: call.outcome.value,
                    logkeys.DETAIL: call.detail,
                    logkeys.MILLISECONDS: round(1000 * call.duration_s, 3),
                },
            )

    def identified(self, how: IdentifiedBy, duration_s: float) -> None:
        """Take note of how it was found out who asks, and how long that took."""
        self._metrics.identified(how.value, duration_s)

    def looked(self, trouble: str) -> None:
        """Take note of a look at the kubelet; the same trouble is logged once."""
        if trouble:
            self._metrics.kubelet_failed("look")
        if trouble and trouble != self._trouble:
            self._log.warning(logkeys.KUBELET_UNREAD, **{logkeys.DETAIL: trouble})
        self._trouble = trouble

    def answered(
        self, request: DeviceRequest, requester: Requester, found: Allocation | AllocationRefusal
    ) -> None:
        """Take note of an answer to GetPreferredAllocation."""
        fields = _asked(request, requester)
        if isinstance(found, AllocationRefusal):
            self._metrics.chosen("refused")
            self._log.warning(logkeys.REFUSED, **fields, **{logkeys.REASON: str(found)})
            return
        self._metrics.chosen(found.why.value)
        self._log.debug(
            logkeys.ANSWERED,
            **fields,
            **{logkeys.IDS: list(found.ids), logkeys.WHY: found.why.value},
        )

    def allocated(
        self, request: DeviceRequest, requester: Requester, found: Allocation | CallRefused
    ) -> None:
        """Take note of an answer to Allocate: one line for each container."""
        fields = _asked(request, requester) | {logkeys.IDS: sorted(request.must_include)}
        if isinstance(found, CallRefused):
            self._log.warning(logkeys.REFUSED, **fields, **{logkeys.REASON: found.reason})
            return
        told = fields | {logkeys.WHY: found.why.value}
        if found.notes:
            self._log.warning(logkeys.ALLOCATED, **told, **{logkeys.NOTES: list(found.notes)})
        else:
            self._log.info(logkeys.ALLOCATED, **told)
        self._on_allocated()

    def stands(self, change: RegistrationChange) -> None:
        """Take note of how a resource stands with the kubelet."""
        self._metrics.standing(change)
        is_fault = change.phase in {RegistrationPhase.FAILED, RegistrationPhase.LOST}
        (self._log.warning if is_fault else self._log.info)(
            logkeys.STANDING,
            **{
                logkeys.RESOURCE: change.resource,
                logkeys.PHASE: change.phase.value,
                logkeys.DETAIL: change.detail,
                logkeys.DELAY_S: round(change.delay_s, 3),
            },
        )

    def unpublished(self, reason: str) -> None:
        """Take note of a report that cannot be published."""
        self._metrics.unpublished()
        self._log.warning(logkeys.NODE_NOT_WRITTEN, **{logkeys.DETAIL: reason})

    def differs(self, mismatch: PlanMismatch) -> None:
        """Take note of a difference between plan and reality that has begun."""
        self._log.warning(
            logkeys.DIFFERENCE,
            **{
                logkeys.KIND: mismatch.kind.value,
                logkeys.POD: f"{mismatch.pod.namespace}/{mismatch.pod.name}",
                logkeys.POD_UID: mismatch.pod.uid,
                logkeys.DETAIL: str(mismatch),
            },
        )

    def differences(self, counts: Mapping[str, int]) -> None:
        """Take note of how many there are now, by kind."""
        self._metrics.differences(counts)

    # --- the machine ---

    def gpu_event(self, event: GpuEvent, *, counts: bool) -> None:
        """Take note of an event of a GPU."""
        self._metrics.gpu_event(event, counts=counts)
        (self._log.warning if counts else self._log.info)(
            logkeys.GPU_EVENT,
            **{
                logkeys.KIND: event.kind.value,
                logkeys.UUID: event.uuid,
                logkeys.XID: event.xid,
                logkeys.COUNTS: counts,
            },
        )

    def reader_failed(self, what: str, reason: str, *, n_failures: int) -> None:
        """Take note of a question to the machine that failed; logged the first time."""
        self._metrics.reader_failed(what)
        if n_failures == 1:
            self._log.warning(logkeys.READER_FAILED, **{logkeys.WHAT: what, logkeys.REASON: reason})

    def reader_works(self, what: str) -> None:
        """Take note that it works again."""
        self._log.info(logkeys.READER_WORKS, **{logkeys.WHAT: what})

    # --- the Node ---

    def written(self, keys: tuple[str, ...], generation: int) -> None:
        """Take note of a write of the Node."""
        self._metrics.written()
        self._log.info(
            logkeys.NODE_WRITTEN, **{logkeys.KEYS: list(keys), logkeys.GENERATION: generation}
        )

    def failed(self, fault: WriteFailure) -> None:
        """Take note of a request to the API server that failed."""
        self._metrics.write_failed(fault)
        self._log.warning(
            logkeys.NODE_NOT_WRITTEN,
            **{
                logkeys.TROUBLE: fault.trouble.value,
                logkeys.DETAIL: str(fault.error),
                logkeys.DELAY_S: round(fault.delay_s, 3),
            },
        )


def _asked(request: DeviceRequest, requester: Requester) -> dict[str, object]:
    fields: dict[str, object] = {
        logkeys.RESOURCE: request.resource,
        logkeys.SIZE: request.size,
        logkeys.N_AVAILABLE: len(request.available),
    }
    if isinstance(requester, Identified):
        fields[logkeys.POD] = f"{requester.pod.namespace}/{requester.pod.name}"
        fields[logkeys.POD_UID] = requester.pod.uid
        fields[logkeys.CONTAINER] = requester.container.name
    elif isinstance(requester, Ambiguous):
        names = (f"{one.pod.namespace}/{one.pod.name}" for one in requester.candidates)
        fields[logkeys.PODS] = list(dict.fromkeys(names))
    else:
        fields[logkeys.DETAIL] = requester.reason
    return fields
