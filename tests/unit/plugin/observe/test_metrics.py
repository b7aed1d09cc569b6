"""The metrics of the agent: each is counted where it should be, and no label is unbounded."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from kube.errors import NotFound
from plugin.deviceplugin import (
    CallOutcome,
    DevicePluginCall,
    DevicePluginMethod,
    RegistrationChange,
    RegistrationPhase,
)
from plugin.observe import PluginMetrics
from plugin.publish import WriteFailure, WriteFailureReason
from tests.unit.plugin.machine_values import xid_event

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("note", "line"),
    [
        pytest.param(
            lambda m: m.answered(
                DevicePluginCall(GPU, DevicePluginMethod.ALLOCATE, CallOutcome.REFUSED, 0.004, "no")
            ),
            'coterie_plugin_calls_total{outcome="refused",resource="nvidia.com/gpu",'
            'verb="Allocate"} 1.0',
            id="a call",
        ),
        pytest.param(
            lambda m: m.answered(
                DevicePluginCall(GPU, DevicePluginMethod.ALLOCATE, CallOutcome.OK, 0.004)
            ),
            'coterie_plugin_call_duration_seconds_bucket{le="0.005",resource="nvidia.com/gpu",'
            'verb="Allocate"} 1.0',
            id="its time",
        ),
        pytest.param(
            lambda m: m.identified("lookup", 0.02),
            'coterie_plugin_identity_lookup_duration_seconds_count{how="lookup"} 1.0',
            id="identity",
        ),
        pytest.param(
            lambda m: m.chosen("planned"),
            'coterie_plugin_choices_total{why="planned"} 1.0',
            id="choice",
        ),
        pytest.param(
            lambda m: m.devices(GPU, n_healthy=7, n_unhealthy=1),
            'coterie_plugin_devices{resource="nvidia.com/gpu",state="unhealthy"} 1.0',
            id="devices",
        ),
        pytest.param(
            lambda m: m.registration_changed(RegistrationChange(GPU, RegistrationPhase.REGISTERED)),
            'coterie_plugin_registrations_total{resource="nvidia.com/gpu"} 1.0',
            id="registered",
        ),
        pytest.param(
            lambda m: (
                m.registration_changed(RegistrationChange(GPU, RegistrationPhase.REGISTERED)),
                m.registration_changed(RegistrationChange(GPU, RegistrationPhase.LOST)),
            ),
            'coterie_plugin_registered{resource="nvidia.com/gpu"} 0.0',
            id="lost",
        ),
        pytest.param(lambda m: m.written(), "coterie_plugin_node_writes_total 1.0", id="write"),
        pytest.param(
            lambda m: m.write_failed(
                WriteFailure(WriteFailureReason.ABSENT, NotFound(404, "NotFound", "no node"), 1.0)
            ),
            'coterie_plugin_node_write_failures_total{reason="absent"} 1.0',
            id="failed write",
        ),
        pytest.param(
            lambda m: m.gpu_event(xid_event("GPU-1", 79), counts=True),
            'coterie_plugin_gpu_events_total{counts="true",kind="xid"} 1.0',
            id="event",
        ),
        pytest.param(
            lambda m: m.reader_failed("faults"),
            'coterie_plugin_reader_failures_total{what="faults"} 1.0',
            id="reader",
        ),
        pytest.param(
            lambda m: m.kubelet_failed("pods"),
            'coterie_plugin_kubelet_failures_total{what="pods"} 1.0',
            id="kubelet",
        ),
        pytest.param(
            lambda m: m.differences({"without-plan": 2}),
            'coterie_plugin_differences{kind="without-plan"} 2.0',
            id="differences",
        ),
    ],
)
def test_what_is_noted_can_be_asked(note, line):
    """Each under its name and labels, as docs/plugin.md gives them."""
    metrics = PluginMetrics()
    note(metrics)
    text = generate_latest(metrics.registry).decode()
    assert line in text.splitlines()
    assert "GPU-1" not in text


@pytest.mark.parametrize(
    "line",
    [
        f'coterie_plugin_calls_total{{outcome="failed",resource="{GPU}",verb="Allocate"}} 0.0',
        f'coterie_plugin_registered{{resource="{GPU}"}} 0.0',
        'coterie_plugin_node_write_failures_total{reason="transient"} 0.0',
        'coterie_plugin_gpu_events_total{counts="true",kind="xid"} 0.0',
        'coterie_plugin_identity_lookup_duration_seconds_count{how="unreachable"} 0.0',
        'coterie_plugin_differences{kind="no-devices"} 0.0',
    ],
)
def test_series_begin_at_zero(line):
    """`increase()` does not see a series that appears at 1."""
    metrics = PluginMetrics()
    metrics.devices(GPU, n_healthy=8, n_unhealthy=0)
    assert line in generate_latest(metrics.registry).decode().splitlines()


def test_the_build_is_named_and_no_times_of_creation():
    """Who runs what; `_created` series are noise."""
    text = generate_latest(PluginMetrics().registry).decode()
    assert 'coterie_plugin_build_info{revision="' in text
    assert "_created" not in text
