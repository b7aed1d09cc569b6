"""What is logged and counted of what happens: each event, its level and its fields."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import generate_latest

from kube.errors import NotFound
from plugin.allocation import Allocation, Ambiguous, DeviceRequest, UnknownRequester
from plugin.allocation.preferred_allocation import AllocationBasis
from plugin.allocator import AllocationAnswer, Identification, IdentifiedBy
from plugin.deviceplugin import (
    CallOutcome,
    CallRefused,
    DevicePluginCall,
    DevicePluginMethod,
    RegistrationChange,
    RegistrationPhase,
)
from plugin.kubelet import KubeletRead
from plugin.observe import PluginMetrics, Telemetry
from plugin.pods import MismatchKind, PlanMismatch
from plugin.publish import (
    AccessChecked,
    EventFailed,
    NodeWritten,
    PlanMismatches,
    ReportRejected,
    WriteFailure,
)
from plugin.publish.node_annotator import WriteFailureReason
from tests.unit.plugin.machine_values import xid_event
from tests.unit.plugin.node_states import requester
from tests.unit.plugin.node_values import GPU, app, node_pod

POD = node_pod("a", app("main", 2))
TWIN = node_pod("b", app("main", 2))
REQUEST = DeviceRequest(GPU, frozenset("xyz"), frozenset("yx"), 2)
REQUESTED = {"resource": GPU, "size": 2, "n_available": 3}
FOR = {"pod": "default/a", "pod_uid": "uid-a", "container": "main"}
GIVEN = {"ids": ["x", "y"], "basis": "planned"}
IDENTIFIED = requester(POD)
PLANNED = Allocation(("x", "y"), AllocationBasis.PLANNED)
REFUSED = CallRefused("unhealthy")
MISMATCH = PlanMismatch(MismatchKind.NO_PLAN, POD, "main", GPU, held=("x",))
PREFERRED, ALLOCATE = DevicePluginMethod.PREFERRED, DevicePluginMethod.ALLOCATE


def answer(method, of, result):
    """An answer to the one request of these tests."""
    return AllocationAnswer(method, REQUEST, of, result)


class Recorder:
    """Telemetry with a log and metrics to look at."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []
        self.metrics = PluginMetrics()
        self.telemetry = Telemetry(self, self.metrics)

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
        lambda t: t.call_answered(
            DevicePluginCall(GPU, DevicePluginMethod.ALLOCATE, CallOutcome.REFUSED, 0.0041234, "no")
        ),
        (
            "warning",
            "call_failed",
            {"resource": GPU, "verb": "Allocate", "reason": "refused", "detail": "no", "ms": 4.123},
        ),
        f'calls_total{{outcome="refused",resource="{GPU}",verb="Allocate"}} 1.0',
        id="a call that failed",
    ),
    pytest.param(
        lambda t: t.call_answered(
            DevicePluginCall(GPU, DevicePluginMethod.ALLOCATE, CallOutcome.OK, 0.004)
        ),
        None,
        f'calls_total{{outcome="ok",resource="{GPU}",verb="Allocate"}} 1.0',
        id="a call that went well is no line",
    ),
    pytest.param(
        lambda t: t.allocator_event(Identification(IdentifiedBy.LOOKUP, 0.004)),
        None,
        'identity_lookup_duration_seconds_count{how="lookup"} 1.0',
        id="identified",
    ),
    pytest.param(
        lambda t: t.allocator_event(answer(PREFERRED, IDENTIFIED, PLANNED)),
        ("debug", "preferred_allocation", REQUESTED | FOR | GIVEN),
        'preferred_allocations_total{basis="planned"} 1.0',
        id="a preferred allocation",
    ),
    pytest.param(
        lambda t: t.allocator_event(answer(PREFERRED, IDENTIFIED, REFUSED)),
        ("warning", "refused", REQUESTED | FOR | {"reason": "unhealthy"}),
        'preferred_allocations_total{basis="refused"} 1.0',
        id="a preferred allocation that is refused",
    ),
    pytest.param(
        lambda t: t.allocator_event(answer(ALLOCATE, IDENTIFIED, PLANNED)),
        ("info", "allocated", REQUESTED | FOR | GIVEN),
        None,
        id="allocated",
    ),
    pytest.param(
        lambda t: t.allocator_event(
            answer(
                ALLOCATE,
                IDENTIFIED,
                Allocation(("x", "y"), AllocationBasis.SUBSTITUTE, ("no nvlink",)),
            )
        ),
        (
            "warning",
            "allocated",
            REQUESTED | FOR | {"ids": ["x", "y"], "basis": "substitute", "notes": ["no nvlink"]},
        ),
        None,
        id="allocated less than preferred by the pod",
    ),
    pytest.param(
        lambda t: t.allocator_event(answer(ALLOCATE, UnknownRequester("no pod"), REFUSED)),
        (
            "warning",
            "refused",
            REQUESTED | {"detail": "no pod", "ids": ["x", "y"], "reason": "unhealthy"},
        ),
        None,
        id="an Allocate of an unknown requester is refused",
    ),
    pytest.param(
        lambda t: t.allocator_event(
            answer(
                PREFERRED,
                Ambiguous((IDENTIFIED, requester(TWIN))),
                Allocation(("x", "y"), AllocationBasis.SWAPPED),
            )
        ),
        (
            "debug",
            "preferred_allocation",
            REQUESTED | {"pods": ["default/a", "default/b"], "ids": ["x", "y"], "basis": "swapped"},
        ),
        'preferred_allocations_total{basis="swapped"} 1.0',
        id="a preferred allocation for one of several",
    ),
    pytest.param(
        lambda t: t.report_event(ReportRejected("too long")),
        (
            "warning",
            "node_write_failed",
            {"reason": "report", "detail": "too long", "delay_s": None},
        ),
        'node_write_failures_total{reason="report"} 1.0',
        id="a report that no annotation can hold",
    ),
    pytest.param(
        lambda t: t.access_event(AccessChecked(("no libcuda.so",))),
        ("warning", "access_checked", {"problems": ["no libcuda.so"]}),
        None,
        id="containers may get no usable GPU",
    ),
    pytest.param(
        lambda t: t.access_event(AccessChecked(())),
        ("info", "access_checked", {"problems": []}),
        None,
        id="containers can use their GPUs again",
    ),
    pytest.param(
        lambda t: t.access_event(EventFailed("403")),
        ("warning", "event_failed", {"detail": "403"}),
        None,
        id="an Event that is refused",
    ),
    pytest.param(
        lambda t: t.topology_manager("restricted", "pod"),
        ("info", "topology_manager", {"policy": "restricted", "scope": "pod"}),
        None,
        id="the Topology Manager is known",
    ),
    pytest.param(
        lambda t: t.machine_read({GPU: 8}, ["a note"]),
        ("info", "machine_read", {"n_devices": {GPU: 8}, "notes": ["a note"]}),
        None,
        id="a machine that is served",
    ),
    pytest.param(
        lambda t: t.machine_read({GPU: 8}, ["a note"], ["a mistake"]),
        ("warning", "machine_read", {"n_devices": {GPU: 8}, "notes": ["a mistake", "a note"]}),
        None,
        id="a machine that does not suit the settings",
    ),
    pytest.param(
        lambda t: t.links_read(23),
        None,
        "accelerator_links 23.0",
        id="links that are up",
    ),
    pytest.param(
        lambda t: t.devices_changed({"x": "XID 79"}),
        ("warning", "devices_changed", {"unhealthy": {"x": "XID 79"}}),
        None,
        id="a device is unhealthy",
    ),
    pytest.param(
        lambda t: t.devices_changed({}),
        ("info", "devices_changed", {"unhealthy": {}}),
        None,
        id="all devices are healthy",
    ),
    pytest.param(
        lambda t: t.cdi_failed("no node"),
        ("warning", "cdi_failed", {"reason": "no node"}),
        None,
        id="a device without a CDI specification",
    ),
    pytest.param(
        lambda t: t.devices_listed(GPU, n_healthy=7, n_unhealthy=1),
        None,
        f'devices{{resource="{GPU}",state="unhealthy"}} 1.0',
        id="devices are listed",
    ),
    pytest.param(
        lambda t: t.registration_changed(RegistrationChange(GPU, RegistrationPhase.REGISTERED)),
        (
            "info",
            "registration",
            {"resource": GPU, "phase": "registered", "detail": "", "delay_s": 0},
        ),
        f'registered{{resource="{GPU}"}} 1.0',
        id="registered",
    ),
    pytest.param(
        lambda t: t.registration_changed(
            RegistrationChange(GPU, RegistrationPhase.LOST, "hung up")
        ),
        (
            "warning",
            "registration",
            {"resource": GPU, "phase": "lost", "detail": "hung up", "delay_s": 0},
        ),
        f'registered{{resource="{GPU}"}} 0.0',
        id="lost",
    ),
    pytest.param(
        lambda t: t.registration_changed(
            RegistrationChange(GPU, RegistrationPhase.FAILED, "refused", 0.12345)
        ),
        (
            "warning",
            "registration",
            {"resource": GPU, "phase": "failed", "detail": "refused", "delay_s": 0.123},
        ),
        f'registered{{resource="{GPU}"}} 0.0',
        id="registration failed",
    ),
    pytest.param(
        lambda t: t.report_event(PlanMismatches((MISMATCH,), {"no-plan": 2})),
        (
            "warning",
            "plan_mismatch",
            {
                "kind": "no-plan",
                "pod": "default/a",
                "pod_uid": "uid-a",
                "detail": "pod default/a container main has x without a plan",
            },
        ),
        'plan_mismatches{kind="no-plan"} 2.0',
        id="a mismatch",
    ),
    pytest.param(
        lambda t: t.gpu_event(xid_event("GPU-1", 79), counts=True),
        ("warning", "gpu_event", {"kind": "xid", "uuid": "GPU-1", "xid": 79, "counts": True}),
        'gpu_events_total{counts="true",kind="xid"} 1.0',
        id="an XID that counts",
    ),
    pytest.param(
        lambda t: t.gpu_event(xid_event("GPU-1", 13), counts=False),
        ("info", "gpu_event", {"kind": "xid", "uuid": "GPU-1", "xid": 13, "counts": False}),
        'gpu_events_total{counts="false",kind="xid"} 1.0',
        id="an XID of a program",
    ),
    pytest.param(
        lambda t: t.reader_failed("read", "no driver", n_failures=1),
        ("warning", "reader_failed", {"what": "read", "reason": "no driver"}),
        'reader_failures_total{what="read"} 1.0',
        id="a question to the machine that failed",
    ),
    pytest.param(
        lambda t: t.reader_failed("read", "no driver", n_failures=2),
        None,
        'reader_failures_total{what="read"} 1.0',
        id="once more is counted, and no line",
    ),
    pytest.param(
        lambda t: t.reader_works("read"),
        ("info", "reader_recovered", {"what": "read"}),
        None,
        id="it works again",
    ),
    pytest.param(
        lambda t: t.write_event(NodeWritten(("coterie.gpu/devices",), 7)),
        ("info", "node_written", {"keys": ["coterie.gpu/devices"], "generation": 7}),
        "node_writes_total 1.0",
        id="a write",
    ),
    pytest.param(
        lambda t: t.write_event(
            WriteFailure(WriteFailureReason.ABSENT, NotFound(404, "NotFound", "no such node"), 1.5)
        ),
        (
            "warning",
            "node_write_failed",
            {
                "reason": "absent",
                "detail": str(NotFound(404, "NotFound", "no such node")),
                "delay_s": 1.5,
            },
        ),
        'node_write_failures_total{reason="absent"} 1.0',
        id="a write that failed",
    ),
]


@pytest.mark.parametrize(("happens", "line", "sample"), CASES)
def test_each_event_is_logged_and_counted(happens, line, sample):
    """Log queries and alerts depend on these names, levels and fields."""
    recorder = Recorder()
    happens(recorder.telemetry)
    assert recorder.lines == ([] if line is None else [line])
    assert sample is None or recorder.counted(sample)


def test_an_error_that_lasts_is_logged_once_and_counted_each_time():
    """Each call reads the kubelet: one that is unreachable for an hour would fill the log."""
    recorder = Recorder()
    for error in ("silent", "silent", ""):
        recorder.telemetry.allocator_event(KubeletRead(error))
    for error in ("", "silent", "no right"):
        recorder.telemetry.report_event(KubeletRead(error))
    assert [fields["detail"] for _, _, fields in recorder.lines] == ["silent", "silent", "no right"]
    assert {line[:2] for line in recorder.lines} == {("warning", "kubelet_unreachable")}
    assert recorder.counted("kubelet_failures_total 4.0")
