"""What is logged and counted of what happens: each event, its level and its fields."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import generate_latest

from kube.errors import NotFound
from plugin.allocation import (
    Allocation,
    AllocationRefusal,
    Ambiguous,
    DeviceRequest,
    UnknownRequester,
)
from plugin.allocation.preferred_allocation import AllocationBasis, RefusalReason
from plugin.allocator import IdentifiedBy
from plugin.deviceplugin import (
    CallOutcome,
    CallRefused,
    DevicePluginCall,
    DevicePluginMethod,
    RegistrationChange,
    RegistrationPhase,
)
from plugin.machine import EventKind, GpuEvent
from plugin.observe import Metrics, Witness
from plugin.pods import MismatchKind, PlanMismatch
from plugin.publish import WriteFailure
from plugin.publish.node_annotator import WriteFailureReason
from tests.unit.plugin.node_states import requester
from tests.unit.plugin.node_values import GPU, app, node_pod

POD = node_pod("a", app("main", 2))
TWIN = node_pod("b", app("main", 2))
ASK = DeviceRequest(GPU, frozenset("xyz"), frozenset("yx"), 2)
ASKED = {"resource": GPU, "size": 2, "n_available": 3}
FOR = {"pod": "default/a", "pod_uid": "uid-a", "container": "main"}
REFUSAL = AllocationRefusal(RefusalReason.TOO_FEW, "asked for 2, 1 are")


class Told:
    """A witness with a log and metrics to look at."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []
        self.n_allocated = 0
        self.metrics = Metrics()
        self.witness = Witness(self, self.metrics, on_allocated=self._allocated)

    def _allocated(self):
        self.n_allocated += 1

    def debug(self, event, **fields):
        """Note a detail."""
        self.lines.append(("debug", event, fields))

    def info(self, event, **fields):
        """Note an event."""
        self.lines.append(("info", event, fields))

    def warning(self, event, **fields):
        """Note a fault."""
        self.lines.append(("warning", event, fields))

    def counted(self, sample: str) -> bool:
        """Whether a sample has this value."""
        samples = generate_latest(self.metrics.registry).decode().splitlines()
        return f"coterie_plugin_{sample}" in samples


CASES = [
    pytest.param(
        lambda w: w.called(
            DevicePluginCall(GPU, DevicePluginMethod.ALLOCATE, CallOutcome.REFUSED, 0.0041234, "no")
        ),
        (
            "warning",
            "call_failed",
            {
                "resource": GPU,
                "verb": "Allocate",
                "reason": "refused",
                "detail": "no",
                "ms": 4.123,
            },
        ),
        f'calls_total{{outcome="refused",resource="{GPU}",verb="Allocate"}} 1.0',
        id="a call that failed",
    ),
    pytest.param(
        lambda w: w.called(
            DevicePluginCall(GPU, DevicePluginMethod.ALLOCATE, CallOutcome.OK, 0.004)
        ),
        None,
        f'calls_total{{outcome="ok",resource="{GPU}",verb="Allocate"}} 1.0',
        id="a call that went well is no line",
    ),
    pytest.param(
        lambda w: w.identified(IdentifiedBy.ASKED, 0.004),
        None,
        'identity_lookup_duration_seconds_count{how="asked"} 1.0',
        id="identified",
    ),
    pytest.param(
        lambda w: w.answered(ASK, requester(POD), Allocation(("x", "y"), AllocationBasis.PLANNED)),
        ("debug", "answered", ASKED | FOR | {"ids": ["x", "y"], "why": "planned"}),
        'choices_total{why="planned"} 1.0',
        id="answered",
    ),
    pytest.param(
        lambda w: w.answered(ASK, requester(POD), REFUSAL),
        ("warning", "refused", ASKED | FOR | {"reason": str(REFUSAL)}),
        'choices_total{why="refused"} 1.0',
        id="answered with a refusal",
    ),
    pytest.param(
        lambda w: w.allocated(ASK, requester(POD), Allocation(("x", "y"), AllocationBasis.PLANNED)),
        ("info", "allocated", ASKED | FOR | {"ids": ["x", "y"], "why": "planned"}),
        None,
        id="allocated",
    ),
    pytest.param(
        lambda w: w.allocated(
            ASK, requester(POD), Allocation(("x", "y"), AllocationBasis.SUBSTITUTE, ("no nvlink",))
        ),
        (
            "warning",
            "allocated",
            ASKED | FOR | {"ids": ["x", "y"], "why": "substitute", "notes": ["no nvlink"]},
        ),
        None,
        id="allocated less than wished for",
    ),
    pytest.param(
        lambda w: w.allocated(ASK, UnknownRequester("no pod is known"), CallRefused("unwell")),
        (
            "warning",
            "refused",
            ASKED | {"detail": "no pod is known", "ids": ["x", "y"], "reason": "unwell"},
        ),
        None,
        id="allocate refused, to nobody known",
    ),
    pytest.param(
        lambda w: w.answered(
            ASK,
            Ambiguous((requester(POD), requester(TWIN))),
            Allocation(("x", "y"), AllocationBasis.SWAPPED),
        ),
        (
            "debug",
            "answered",
            ASKED | {"pods": ["default/a", "default/b"], "ids": ["x", "y"], "why": "swapped"},
        ),
        'choices_total{why="swapped"} 1.0',
        id="answered to one of several",
    ),
    pytest.param(
        lambda w: w.stands(RegistrationChange(GPU, RegistrationPhase.REGISTERED)),
        ("info", "standing", {"resource": GPU, "phase": "registered", "detail": "", "delay_s": 0}),
        f'registered{{resource="{GPU}"}} 1.0',
        id="registered",
    ),
    pytest.param(
        lambda w: w.stands(RegistrationChange(GPU, RegistrationPhase.LOST, "hung up")),
        (
            "warning",
            "standing",
            {"resource": GPU, "phase": "lost", "detail": "hung up", "delay_s": 0},
        ),
        f'registered{{resource="{GPU}"}} 0.0',
        id="lost",
    ),
    pytest.param(
        lambda w: w.stands(RegistrationChange(GPU, RegistrationPhase.FAILED, "refused", 0.12345)),
        (
            "warning",
            "standing",
            {"resource": GPU, "phase": "failed", "detail": "refused", "delay_s": 0.123},
        ),
        f'registered{{resource="{GPU}"}} 0.0',
        id="registration failed",
    ),
    pytest.param(
        lambda w: w.differs(PlanMismatch(MismatchKind.NO_PLAN, POD, "main", GPU, held=("x",))),
        (
            "warning",
            "difference",
            {
                "kind": "no-plan",
                "pod": "default/a",
                "pod_uid": "uid-a",
                "detail": "pod default/a container main has x without a plan",
            },
        ),
        None,
        id="a difference",
    ),
    pytest.param(
        lambda w: w.differences({"no-plan": 2}),
        None,
        'differences{kind="no-plan"} 2.0',
        id="how many differ",
    ),
    pytest.param(
        lambda w: w.gpu_event(GpuEvent(EventKind.XID, "GPU-1", 79), counts=True),
        (
            "warning",
            "gpu_event",
            {"kind": "xid", "uuid": "GPU-1", "xid": 79, "counts": True},
        ),
        'gpu_events_total{counts="true",kind="xid"} 1.0',
        id="an XID that counts",
    ),
    pytest.param(
        lambda w: w.gpu_event(GpuEvent(EventKind.XID, "GPU-1", 13), counts=False),
        ("info", "gpu_event", {"kind": "xid", "uuid": "GPU-1", "xid": 13, "counts": False}),
        'gpu_events_total{counts="false",kind="xid"} 1.0',
        id="an XID of a program",
    ),
    pytest.param(
        lambda w: w.reader_failed("read", "no driver", n_failures=1),
        ("warning", "reader_failed", {"what": "read", "reason": "no driver"}),
        'reader_failures_total{what="read"} 1.0',
        id="a question to the machine that failed",
    ),
    pytest.param(
        lambda w: w.reader_failed("read", "no driver", n_failures=2),
        None,
        'reader_failures_total{what="read"} 1.0',
        id="once more is counted, and no line",
    ),
    pytest.param(
        lambda w: w.reader_works("read"),
        ("info", "reader_works", {"what": "read"}),
        None,
        id="it works again",
    ),
    pytest.param(
        lambda w: w.written(("coterie.gpu/devices",), 7),
        ("info", "node_written", {"keys": ["coterie.gpu/devices"], "generation": 7}),
        "node_writes_total 1.0",
        id="a write",
    ),
    pytest.param(
        lambda w: w.failed(
            WriteFailure(WriteFailureReason.ABSENT, NotFound(404, "NotFound", "no such node"), 1.5)
        ),
        (
            "warning",
            "node_not_written",
            {
                "trouble": "absent",
                "detail": str(NotFound(404, "NotFound", "no such node")),
                "delay_s": 1.5,
            },
        ),
        'node_write_failures_total{trouble="absent"} 1.0',
        id="a write that failed",
    ),
]


@pytest.mark.parametrize(("happens", "line", "sample"), CASES)
def test_what_happens_is_told(happens, line, sample):
    """Queries and alerts stand on these names, levels and fields."""
    told = Told()
    happens(told.witness)
    assert told.lines == ([] if line is None else [line])
    assert sample is None or told.counted(sample)


def test_a_report_is_due_after_devices_were_given():
    """Not after a refusal: nobody has more than before."""
    told = Told()
    told.witness.allocated(ASK, requester(POD), CallRefused("unwell"))
    assert told.n_allocated == 0
    told.witness.allocated(ASK, requester(POD), Allocation(("x", "y"), AllocationBasis.PLANNED))
    told.witness.allocated(
        ASK, requester(POD), Allocation(("x", "y"), AllocationBasis.BEST, ("a note",))
    )
    assert told.n_allocated == 2


def test_the_same_trouble_is_one_line_and_every_time_counted():
    """Each call asks: a kubelet that is silent for an hour would fill the log."""
    told = Told()
    for trouble in ("silent", "silent", "", "", "silent", "no right"):
        told.witness.looked(trouble)
    assert [fields["detail"] for _, _, fields in told.lines] == ["silent", "silent", "no right"]
    assert {(level, event) for level, event, _ in told.lines} == {("warning", "kubelet_unread")}
    assert told.counted('kubelet_failures_total{what="look"} 4.0')
