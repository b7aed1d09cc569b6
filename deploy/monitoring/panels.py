"""What the dashboards show: the panels of each, with their expressions.

Gauges of the cluster's state are the same on all extenders and taken by max; what each extender
counts itself is summed. `deploy.monitoring.dashboards` makes Grafana's JSON of it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DASHBOARDS", "Board", "Graph", "Section", "Stat"]


@dataclass(frozen=True, slots=True)
class Stat:
    """One number: what it says, its expression, and Grafana's name of its unit."""

    title: str
    expr: str
    unit: str = "short"


@dataclass(frozen=True, slots=True)
class Graph:
    """Curves over time: an expression, and the legend of its series; `more` are further ones.

    `note` is what is good or bad about them; `is_stacked` where the series add up to a whole.
    """

    title: str
    expr: str
    legend: str
    unit: str = "short"
    note: str = ""
    is_stacked: bool = False
    more: tuple[tuple[str, str], ...] = ()

    @property
    def series(self) -> tuple[tuple[str, str], ...]:
        """All expressions with their legends."""
        return (self.expr, self.legend), *self.more


@dataclass(frozen=True, slots=True)
class Section:
    """A row: numbers, then graphs."""

    title: str
    stats: tuple[Stat, ...] = ()
    graphs: tuple[Graph, ...] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; `variable` is a label of the series `of` whose values can be chosen."""

    uid: str
    title: str
    variable: str
    of: str
    sections: tuple[Section, ...]


def _rate(by: str, metric: str) -> str:
    """How often a second, over five minutes."""
    return f"sum by ({by}) (rate({metric}[5m]))"


def _hour(by: str, metric: str) -> str:
    """How often in an hour."""
    return f"sum by ({by}) (increase({metric}[1h]))"


def _quantile(share: float, by: str, buckets: str, window: str) -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({buckets}[{window}])))"


_OF_MACHINE = '{machine=~"$machine"}'
_SET = "{{size}} of {{machine}}"
_NODE = 'node=~"$node"'
_ON = f"{{{_NODE}}}"
_PLUGIN = f'{{job="coterie-plugin", {_NODE}}}'
_ANSWERS = "coterie_extender_answers_total"
_UNSCHEDULABLE = "coterie_extender_unschedulable_pods"
_HEARD = "coterie_extender_watch_last_heard_timestamp_seconds"

_CLUSTER = Board(
    uid="coterie-cluster",
    title="Coterie / Cluster",
    variable="machine",
    of="coterie_extender_placeable_sets",
    sections=(
        Section(
            "Now",
            stats=(
                Stat("Extenders ready", "sum(coterie_extender_ready)"),
                Stat("GPUs", "sum(max by (state) (coterie_extender_devices))"),
                Stat("Free", "coterie:free_devices:ratio", "percentunit"),
                Stat("Pods waiting", f"sum(max by (reason) ({_UNSCHEDULABLE}))"),
                Stat("Longest wait", "max(coterie_extender_longest_pending_seconds)", "s"),
            ),
        ),
        Section(
            "Capacity",
            graphs=(
                Graph(
                    "GPUs by state",
                    "max by (state) (coterie_extender_devices) > 0",
                    "{{state}}",
                    note="The unhealthy states are capacity that is lost or will be. `free` "
                    "includes GPUs of nodes that take no new pod, which the next graph shows.",
                    is_stacked=True,
                ),
                Graph(
                    "GPUs free on nodes that take no new pod",
                    "max(coterie_extender_unavailable_devices)",
                    "unavailable",
                    note="Cordoned, not ready, unreachable or under pressure. The share of free "
                    "GPUs, placeable sets and stranded GPUs leave them out.",
                ),
                Graph(
                    "Placeable sets",
                    f"coterie:placeable_sets:max{_OF_MACHINE}",
                    _SET,
                    note="So many pods of a size can still be placed within 10 % of the best.",
                ),
                Graph(
                    "Stranded GPUs",
                    f"coterie:stranded_devices:max{_OF_MACHINE}",
                    _SET,
                    note="Free GPUs of nodes without any such set of the size: fragmentation.",
                ),
            ),
        ),
        Section(
            "Placement",
            graphs=(
                Graph(
                    "Efficiency of bound sets, mean of an hour",
                    f"coterie:placed_efficiency_ratio:avg1h{_OF_MACHINE}",
                    _SET,
                    "percentunit",
                    "Predicted bandwidth by that of the best set on the empty machine.",
                ),
                Graph(
                    "Bandwidth of bound sets, mean of an hour",
                    f"coterie:placed_bandwidth_bytes_per_second:avg1h{_OF_MACHINE}",
                    _SET,
                    "Bps",
                    "Predicted all-reduce bus bandwidth.",
                ),
                Graph(
                    "Binds",
                    _rate("outcome", f'{_ANSWERS}{{verb="bind"}}'),
                    "{{outcome}}",
                    "ops",
                    more=(("sum(rate(coterie_extender_replans_total[5m]))", "planned again"),),
                ),
            ),
        ),
        Section(
            "Waiting pods",
            graphs=(
                Graph(
                    "Pods that wait, by reason",
                    f"max by (reason) ({_UNSCHEDULABLE})",
                    "{{reason}}",
                    is_stacked=True,
                ),
                Graph(
                    "Wait of pods that were placed, 90th percentile",
                    _quantile(
                        0.9, "reason", "coterie_extender_pending_duration_seconds_bucket", "1h"
                    ),
                    "{{reason}}",
                    "s",
                ),
                Graph(
                    "Requeues",
                    _rate("result", "coterie_extender_requeues_total"),
                    "{{result}}",
                    "ops",
                ),
            ),
        ),
        Section(
            "The extenders",
            graphs=(
                Graph(
                    "Time of a call, 99th percentile",
                    "coterie:request_duration_seconds:p99_rate5m",
                    "{{verb}}",
                    "s",
                    "Filter and prioritize run inside kube-scheduler's serial cycle.",
                ),
                Graph(
                    "Errors by verb and reason",
                    _rate("verb, reason", f'{_ANSWERS}{{outcome="failed"}}') + " > 0",
                    "{{verb}}: {{reason}}",
                    "ops",
                    "kube-scheduler retries these pods.",
                ),
                Graph(
                    "Share of binds that failed",
                    "coterie:bind_failed:ratio_rate5m",
                    "failed",
                    "percentunit",
                ),
                Graph(
                    "Since a watch heard from the API server",
                    f"max by (source) (time() - {_HEARD})",
                    "{{source}}",
                    "s",
                ),
                Graph(
                    "Differences from plans, in an hour",
                    "max by (kind) (increase(coterie_extender_discrepancies_total[1h]))",
                    "{{kind}}",
                ),
                Graph(
                    "Memory",
                    "process_resident_memory_bytes and on (pod) coterie_extender_ready",
                    "{{pod}}",
                    "bytes",
                ),
                Graph(
                    "Versions",
                    "count by (version) (coterie_extender_build_info)",
                    "extender {{version}}",
                    more=(
                        ("count by (version) (coterie_plugin_build_info)", "plugin {{version}}"),
                    ),
                ),
            ),
        ),
    ),
)

_ON_NODES = Board(
    uid="coterie-node",
    title="Coterie / Node",
    variable="node",
    of="coterie_plugin_devices",
    sections=(
        Section(
            "Now",
            stats=(
                Stat("Plugins scraped", f"sum(up{_PLUGIN})"),
                Stat("Not registered", f"count(coterie_plugin_registered{_ON} == 0) or vector(0)"),
                Stat("Unhealthy", f'sum(coterie_plugin_devices{{state="unhealthy", {_NODE}}})'),
                Stat("Links up", f"sum(coterie_plugin_accelerator_links{_ON})"),
                Stat("Without events", f"sum(coterie_plugin_gpus_without_events{_ON})"),
                Stat("Restart needed", f"sum(coterie_plugin_restart_needed{_ON})"),
            ),
        ),
        Section(
            "The machine",
            graphs=(
                Graph(
                    "Devices",
                    f"sum by (resource, state) (coterie_plugin_devices{_ON})",
                    "{{resource}} {{state}}",
                    is_stacked=True,
                ),
                Graph(
                    "Accelerator links up",
                    f"coterie_plugin_accelerator_links{_ON}",
                    "{{node}}",
                    note="A fall is a link that went down.",
                ),
                Graph(
                    "Events of GPUs, in an hour",
                    _hour("node, kind", f"coterie_plugin_gpu_events_total{_ON}"),
                    "{{node}} {{kind}}",
                ),
                Graph(
                    "Failed reads of the machine, in an hour",
                    _hour("node, what", f"coterie_plugin_reader_failures_total{_ON}"),
                    "{{node}} {{what}}",
                ),
            ),
        ),
        Section(
            "Allocation",
            graphs=(
                Graph(
                    "Calls of the kubelet",
                    _rate("verb, outcome", f"coterie_plugin_calls_total{_ON}"),
                    "{{verb}} {{outcome}}",
                    "ops",
                ),
                Graph(
                    "Time of a call, 99th percentile",
                    _quantile(
                        0.99, "verb", f"coterie_plugin_call_duration_seconds_bucket{_ON}", "5m"
                    ),
                    "{{verb}}",
                    "s",
                    "Pods with GPUs start that much later.",
                ),
                Graph(
                    "How the container of a call was found",
                    _rate("how", f"coterie_plugin_identity_lookup_duration_seconds_count{_ON}"),
                    "{{how}}",
                    "ops",
                ),
                Graph(
                    "Preferred allocations by basis",
                    _rate("basis", f"coterie_plugin_preferred_allocations_total{_ON}"),
                    "{{basis}}",
                    "ops",
                    is_stacked=True,
                ),
                Graph(
                    "Containers whose devices are not as planned",
                    f"sum by (kind) (coterie_plugin_plan_mismatches{_ON})",
                    "{{kind}}",
                ),
                Graph(
                    "Registrations, in an hour",
                    _hour("node, resource", f"coterie_plugin_registrations_total{_ON}"),
                    "{{node}} {{resource}}",
                    note="More than one for each start of kubelet or plugin: two plugins.",
                ),
            ),
        ),
        Section(
            "The plugin",
            graphs=(
                Graph(
                    "Writes of the Node, in an hour",
                    f"sum(increase(coterie_plugin_node_writes_total{_ON}[1h]))",
                    "written",
                    more=(
                        (
                            _hour("reason", f"coterie_plugin_node_write_failures_total{_ON}"),
                            "failed: {{reason}}",
                        ),
                    ),
                ),
                Graph(
                    "Failed requests to the kubelet, in an hour",
                    _hour("node", f"coterie_plugin_kubelet_failures_total{_ON}"),
                    "{{node}}",
                ),
                Graph("Memory", f"process_resident_memory_bytes{_PLUGIN}", "{{node}}", "bytes"),
                Graph(
                    "Processor",
                    f"rate(process_cpu_seconds_total{_PLUGIN}[5m])",
                    "{{node}}",
                    "percentunit",
                ),
            ),
        ),
    ),
)

DASHBOARDS = (_CLUSTER, _ON_NODES)
