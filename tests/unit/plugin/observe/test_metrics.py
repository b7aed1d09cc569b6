"""The metrics of the plugin: which series exist before anything happens."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from plugin.observe import PluginMetrics

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    "line",
    [
        f'coterie_plugin_calls_total{{outcome="failed",resource="{GPU}",verb="Allocate"}} 0.0',
        f'coterie_plugin_registered{{resource="{GPU}"}} 0.0',
        'coterie_plugin_node_write_failures_total{reason="transient"} 0.0',
        'coterie_plugin_gpu_events_total{counts="true",kind="xid"} 0.0',
        'coterie_plugin_identity_lookup_duration_seconds_count{how="unreachable"} 0.0',
        'coterie_plugin_plan_mismatches{kind="no-devices"} 0.0',
    ],
)
def test_series_begin_at_zero(line):
    """`increase()` does not see a series that appears at 1."""
    metrics = PluginMetrics()
    metrics.follow([GPU], is_serving=True)
    assert line in generate_latest(metrics.registry).decode().splitlines()


def test_the_build_is_named_and_no_times_of_creation():
    """Who runs what; `_created` series are noise."""
    text = generate_latest(PluginMetrics().registry).decode()
    assert 'coterie_plugin_build_info{revision="' in text
    assert "_created" not in text
