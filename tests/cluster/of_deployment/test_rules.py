"""Each alert fires where its row of docs/operations.md says so, and not elsewhere; by promtool.

The series are those of two extenders, `a` and `b`, and of the plugin on a node, as they are scraped
with deploy/monitoring/podmonitor.yaml.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.control.manifests import DEPLOY
from tests.cluster.programs.build import promtool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.cluster

FILE = DEPLOY / "chart" / "files" / "rules.yaml"
RULES = [
    rule
    for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = [rule["record"] for rule in RULES if "record" in rule]
N = {"node": "n1"}
GPU = {**N, "resource": "nvidia.com/gpu"}
MISMATCHES = "coterie_plugin_plan_mismatches"
ANSWERS = "coterie_extender_answers_total"


def extender(name: str, *values: str, **labels: str) -> dict[str, str]:
    """A series of each of two extenders, with these values (promtool's notation) by minute."""
    pods = zip("ab", values, strict=True)
    return {_series(f"coterie_extender_{name}", {"pod": pod, **labels}): one for pod, one in pods}


def plugin(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series of the plugin on the node."""
    return {_series(f"coterie_plugin_{name}", {**N, **labels}): values}


def _series(name: str, labels: Mapping[str, str]) -> str:
    matchers = ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
    return f"{name}{{{matchers}}}"


@dataclass(frozen=True)
class Case:
    """Series by which an alert fires at `at_min`, with these labels, and series by which not.

    `begins_min` is when its expression begins to hold.
    """

    fires: Mapping[str, str]
    silent: Mapping[str, str]
    labels: Mapping[str, str]
    at_min: int = 30
    begins_min: int = 0


LOOKUPS = "identity_lookup_duration_seconds_count"
DURATION = "request_duration_seconds_bucket"
BUCKET = "call_duration_seconds_bucket"
SLOW = {**GPU, "verb": "Allocate"}
UNAVAILABLE = "kube_daemonset_status_number_unavailable"
PODS = {"namespace": "coterie-node", "daemonset": "coterie-plugin"}
GROUP_INCOMPLETE = {"verb": "bind", "outcome": "failed", "reason": "group_incomplete"}
CASES = {
    "CoterieExtenderNotReady": Case(
        extender("ready", "0x60", "0x60"), extender("ready", "0x60", "1x60"), {}
    ),
    "CoterieExtenderAbsent": Case({}, extender("ready", "0x60", "_x60"), {}),
    "CoterieExtenderReplicaNotReady": Case(
        extender("ready", "0x60", "1x60"),
        extender("ready", "0x2 1x60", "1x60"),
        {"pod": "a"},
    ),
    "CoterieExtenderWatchSilent": Case(
        extender("watch_last_heard_timestamp_seconds", "0x60", "0+60x60", source="nodes"),
        extender("watch_last_heard_timestamp_seconds", "0+60x60", "0+60x60", source="nodes"),
        {"pod": "a", "source": "nodes"},
        begins_min=2,
    ),
    "CoterieExtenderCertificateExpires": Case(
        extender(
            "certificate_not_after_timestamp_seconds",
            "1000000x60",
            "2000000x60",
            certificate="serving",
        ),
        extender(
            "certificate_not_after_timestamp_seconds",
            "1300000x60",
            "2000000x60",
            certificate="serving",
        ),
        {"pod": "a", "certificate": "serving"},
    ),
    "CoterieExtenderPodsUnreadable": Case(
        extender("refused_probes", "0x60", "1x60"), extender("refused_probes", "0x60", "0x60"), {}
    ),
    "CoterieExtenderCallsFail": Case(
        extender(
            "answers_total",
            "0x20 2x60",
            "0x20 2x60",
            verb="filter",
            outcome="failed",
            reason="stale",
        ),
        extender(
            "answers_total",
            "0x20 1x60",
            "0x20 1x60",
            verb="filter",
            outcome="failed",
            reason="stale",
        )
        | extender("answers_total", "0+9x60", "0+9x60", verb="bind", outcome="ok", reason="")
        | extender("answers_total", "0x20 64x60", "0x60", **GROUP_INCOMPLETE),
        {"verb": "filter", "reason": "stale"},
    ),
    "CoterieExtenderSlow": Case(
        extender(DURATION, "0+95x60", "0+100x60", verb="filter", le="1.0")
        | extender(DURATION, "0+100x60", "0+100x60", verb="filter", le="5.0")
        | extender(DURATION, "0+100x60", "0+100x60", verb="filter", le="+Inf"),
        extender(DURATION, "0+100x60", "0+100x60", verb="filter", le="0.005")
        | extender(DURATION, "0+100x60", "0+100x60", verb="filter", le="+Inf")
        | extender(DURATION, "0+1x60", "0+1x60", verb="bind", le="1.0")
        | extender(DURATION, "0+9x60", "0+9x60", verb="bind", le="5.0")
        | extender(DURATION, "0+9x60", "0+9x60", verb="bind", le="+Inf"),
        {"verb": "filter"},
        begins_min=1,
    ),
    "CoterieExtenderEventsLost": Case(
        extender("events_total", "0x20 1x60", "0x60", result="dropped"),
        extender("events_total", "0x20 1x60", "0x60", result="written"),
        {"result": "dropped"},
    ),
    "CoterieExtenderRequeuesFail": Case(
        extender("requeues_total", "0x20 1x60", "0x60", result="failed"),
        extender("requeues_total", "0x20 1x60", "0x60", result="requeued"),
        {},
    ),
    "CoteriePodsPending": Case(
        extender("longest_pending_seconds", "3700x60", "0x60", reason="not_enough_free"),
        extender("longest_pending_seconds", "3500x60", "3500x60", reason="not_enough_free"),
        {"reason": "not_enough_free"},
    ),
    "CoterieGroupsPartial": Case(
        extender("groups_total", "0x20 1x60", "0x20 0x60", outcome="partial"),
        extender("groups_total", "0x20 1x60", "0x20 1x60", outcome="whole"),
        {},
    ),
    "CoterieGroupsNotBound": Case(
        extender("answers_total", "0x2 0+8x60", "0x60", **GROUP_INCOMPLETE),
        extender("answers_total", "0x2 64x60", "0x60", **GROUP_INCOMPLETE),
        {},
        at_min=45,
        begins_min=3,
    ),
    "CoterieDiscrepancies": Case(
        extender("discrepancies_total", "0x20 1x60", "0x20 1x60", kind="mismatch"),
        extender("discrepancies_total", "0x20 1x60", "0x20 1x60", kind="agreement"),
        {"kind": "mismatch"},
    ),
    "CoteriePluginUnavailable": Case(
        {_series(UNAVAILABLE, {**PODS, "instance": "x"}): "1x60"},
        {
            _series(UNAVAILABLE, {**PODS, "instance": "x"}): "1x5 0x60",
            _series(UNAVAILABLE, {"daemonset": "nvidia-device-plugin"}): "1x60",
        },
        PODS,
    ),
    "CoteriePluginDown": Case(
        {_series("up", {**N, "job": "coterie-plugin"}): "0x60"},
        {
            _series("up", {**N, "job": "coterie-plugin"}): "0x5 1x60",
            _series("up", {**N, "job": "other"}): "0x60",
        },
        {**N, "job": "coterie-plugin"},
    ),
    "CoteriePluginNotRegistered": Case(
        plugin("registered", "0x60", resource="nvidia.com/gpu"),
        plugin("registered", "1x60", resource="nvidia.com/gpu"),
        GPU,
    ),
    "CoteriePluginMachineUnreadable": Case(
        plugin("reader_failures_total", "0x20 1x60", what="read"),
        plugin("reader_failures_total", "5x60", what="read"),
        {**N, "what": "read"},
    ),
    "CoteriePluginRegistersRepeatedly": Case(
        plugin("registrations_total", "0x20 4x60", resource="nvidia.com/gpu"),
        plugin("registrations_total", "0x20 1x60", resource="nvidia.com/gpu"),
        GPU,
    ),
    "CoterieDevicesUnhealthy": Case(
        plugin("devices", "1x60", resource="nvidia.com/gpu", state="unhealthy"),
        plugin("devices", "1x10 0x60", resource="nvidia.com/gpu", state="unhealthy")
        | plugin("devices", "8x60", resource="nvidia.com/gpu", state="healthy"),
        {**GPU, "state": "unhealthy"},
    ),
    "CoterieLinksLost": Case(
        plugin("accelerator_links", "24x10 23x60", pod="p1"),
        plugin("accelerator_links", "24x10 _x60", pod="p1")
        | plugin("accelerator_links", "_x10 24x60", pod="p2"),
        N,
        begins_min=11,
    ),
    "CoteriePodsWithoutDevices": Case(
        plugin("plan_mismatches", "1x60", kind="no-devices"),
        plugin("plan_mismatches", "0x60", kind="no-devices"),
        {**N, "kind": "no-devices"},
    ),
    "CoteriePodsWithoutPlan": Case(
        plugin("plan_mismatches", "1x60", kind="no-plan"),
        plugin("plan_mismatches", "0x60", kind="no-plan"),
        {**N, "kind": "no-plan"},
    ),
    "CoteriePodsWithOtherDevices": Case(
        plugin("plan_mismatches", "1x60", kind="other-devices"),
        plugin("plan_mismatches", "0x60", kind="other-devices"),
        {**N, "kind": "other-devices"},
    ),
    "CoteriePlansIgnored": Case(
        plugin("plan_mismatches", "1x60", kind="unknown-plan"),
        plugin("plan_mismatches", "0x60", kind="unknown-plan"),
        {**N, "kind": "unknown-plan"},
    ),
    "CoteriePlansUnreadable": Case(
        plugin("plan_mismatches", "1x60", kind="bad-plan"),
        plugin("plan_mismatches", "0x60", kind="bad-plan"),
        {**N, "kind": "bad-plan"},
    ),
    "CoterieKubeletUnreachable": Case(
        plugin("kubelet_failures_total", "0+1x60"),
        plugin("kubelet_failures_total", "0x20 1x60"),
        N,
    ),
    "CoterieNodeWritesFail": Case(
        plugin("node_write_failures_total", "0x20 1x60", reason="refused"),
        plugin("node_write_failures_total", "3x60", reason="refused"),
        {**N, "reason": "refused"},
    ),
    "CoteriePluginCallsFail": Case(
        plugin(
            "calls_total", "0x20 1x60", outcome="late", resource="nvidia.com/gpu", verb="Allocate"
        ),
        plugin("calls_total", "0+1x60", outcome="ok", resource="nvidia.com/gpu", verb="Allocate")
        | plugin(
            "calls_total", "0+1x60", outcome="refused", resource="nvidia.com/gpu", verb="Allocate"
        ),
        {**SLOW, "outcome": "late"},
    ),
    "CoteriePluginCallsRefused": Case(
        plugin(
            "calls_total",
            "0x20 1x60",
            outcome="refused",
            resource="nvidia.com/gpu",
            verb="Allocate",
        ),
        plugin("calls_total", "0+1x60", outcome="ok", resource="nvidia.com/gpu", verb="Allocate"),
        {**SLOW, "outcome": "refused"},
    ),
    "CoteriePluginSlow": Case(
        plugin(BUCKET, "0x60", le="0.1", resource="nvidia.com/gpu", verb="Allocate")
        | plugin(BUCKET, "0+10x60", le="0.2", resource="nvidia.com/gpu", verb="Allocate")
        | plugin(BUCKET, "0+10x60", le="+Inf", resource="nvidia.com/gpu", verb="Allocate"),
        plugin(BUCKET, "0+10x60", le="0.1", resource="nvidia.com/gpu", verb="Allocate")
        | plugin(BUCKET, "0+10x60", le="+Inf", resource="nvidia.com/gpu", verb="Allocate"),
        SLOW,
    ),
    "CoterieGpusWithoutEvents": Case(
        plugin("gpus_without_events", "1x60"), plugin("gpus_without_events", "1x10 0x60"), N
    ),
    "CoteriePluginRestartNeeded": Case(
        plugin("restart_needed", "1x60"), plugin("restart_needed", "0x60"), N
    ),
}
PLACED = {"machine": "m", "size": "4"}
SETS = extender("placeable_sets", "3x90", "3x90", **PLACED) | extender(
    "stranded_devices", "2x90", "2x90", **PLACED
)
VALUES = {
    "coterie:free_devices:ratio": (
        extender("devices", "6x90", "6x90", state="free")
        | extender("devices", "2x90", "2x90", state="bound")
        | extender("unavailable_devices", "2x90", "2x90"),
        {},
        0.5,
    ),
    "coterie:placeable_sets:max": (SETS, PLACED, 3),
    "coterie:stranded_devices:max": (SETS, PLACED, 2),
    "coterie:placed_bandwidth_bytes_per_second:avg1h": (
        extender("placed_bandwidth_bytes_per_second_sum", "0+100x90", "0+200x90", **PLACED)
        | extender("placed_bandwidth_bytes_per_second_count", "0+1x90", "0+1x90", **PLACED),
        PLACED,
        150,
    ),
    "coterie:placed_efficiency_ratio:avg1h": (
        extender("placed_efficiency_ratio_sum", "0+0.5x90", "0+1x90", **PLACED)
        | extender("placed_efficiency_ratio_count", "0+1x90", "0+1x90", **PLACED),
        PLACED,
        0.75,
    ),
    "coterie:bind_failed:ratio_rate5m": (
        extender("answers_total", "0+1x90", "0+0x90", verb="bind", outcome="failed")
        | extender("answers_total", "0+3x90", "0+0x90", verb="bind", outcome="ok"),
        {},
        0.25,
    ),
    "coterie:request_duration_seconds:p99_rate5m": (
        extender("request_duration_seconds_bucket", "0+1x90", "0+1x90", verb="filter", le="1.0")
        | extender("request_duration_seconds_bucket", "0+2x90", "0+2x90", verb="filter", le="+Inf"),
        {"verb": "filter"},
        1.0,
    ),
}
"""For each recorded series: what it is made of, its labels, and its value after an hour."""


def alert_tests(alert: str) -> list[dict[str, Any]]:
    """That it fires when its time is over, not before, and not by the other series."""
    rule, case = ALERTS[alert], CASES[alert]
    summary = rule["annotations"]["summary"]
    for label, value in case.labels.items():
        summary = summary.replace(f"{{{{ $labels.{label} }}}}", value)
    fired = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": summary},
    }
    waits_min = int(rule.get("for", "0m").removesuffix("m"))
    early = [case.begins_min + waits_min - 1] if waits_min else []
    fires = [_expected(alert, case.at_min, [fired]), *(_expected(alert, at, []) for at in early)]
    return [
        _group(case.fires, f"{alert} fires", alert_rule_test=fires),
        _group(
            case.silent, f"{alert} is silent", alert_rule_test=[_expected(alert, case.at_min, [])]
        ),
    ]


def _expected(alert: str, at_min: int, alerts: list[Any]) -> dict[str, Any]:
    return {"eval_time": f"{at_min}m", "alertname": alert, "exp_alerts": alerts}


def _group(series: Mapping[str, str], name: str, **tests: Any) -> dict[str, Any]:
    given = [{"series": one, "values": values} for one, values in series.items()]
    return {"name": name, "interval": "1m", "input_series": given, **tests}


def run(tmp_path: Path, *groups: dict[str, Any]) -> None:
    """Run tests of the rules with promtool."""
    file = tmp_path / "tests.yaml"
    content = {"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": list(groups)}
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    done = subprocess.run(
        [promtool(), "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_have_no_fault():
    """As promtool's own checks go, all of them."""
    done = subprocess.run(
        [promtool(), "check", "rules", "--lint=all", "--lint-fatal", FILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_fires_and_is_silent(tmp_path, alert):
    """One that never fires is worse than none; one that fires for nothing is switched off."""
    run(tmp_path, *alert_tests(alert))


@pytest.mark.parametrize("record", RECORDED)
def test_recorded_series_have_the_values_of_one_cluster(tmp_path, record):
    """Two extenders export the same state, and each counts its own binds."""
    series, labels, value = VALUES[record]
    sample = {"labels": _series(record, labels), "value": value}
    expected = [{"expr": record, "eval_time": "70m", "exp_samples": [sample]}]
    run(tmp_path, _group(series, record, promql_expr_test=expected))


UNAVAILABLE_OF_A = _series("coterie_extender_unavailable_devices", {"pod": "a"})


@pytest.mark.parametrize(
    ("unavailable", "share"),
    [
        pytest.param({}, 0.75, id="extenders that do not count them"),
        pytest.param({UNAVAILABLE_OF_A: "6x90"}, 0.0, id="one that does, beside one that does not"),
        pytest.param(extender("unavailable_devices", "0x90", "6x90"), 0.75, id="two that differ"),
    ],
)
def test_the_share_of_free_devices_is_of_one_replica(tmp_path, unavailable, share):
    """The most that one of those sees that count them: two do not see a change at one moment."""
    record = "coterie:free_devices:ratio"
    free = extender("devices", "6x90", "6x90", state="free")
    series = free | extender("devices", "2x90", "2x90", state="bound") | unavailable
    sample = {"labels": record, "value": share}
    expected = [{"expr": record, "eval_time": "70m", "exp_samples": [sample]}]
    run(tmp_path, _group(series, record, promql_expr_test=expected))


def test_there_is_no_case_without_a_rule():
    """A renamed alert must not leave its test behind."""
    assert set(CASES) == set(ALERTS)
    assert set(VALUES) == set(RECORDED)
