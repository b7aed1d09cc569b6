"""The rules agree with the programs and the documentation."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.docs.markdown import ROOT, anchors
from tests.docs.metrics_table import all_metrics, unknown_parts

PAGE = ROOT / "docs" / "operations.md"
FILE = ROOT / "deploy" / "chart" / "files" / "rules.yaml"
GROUPS = yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"]: rule for rule in RULES if "record" in rule}
ROW = re.compile(
    r'^\| <a id="(?P<anchor>[\w-]+)"></a>`(?P<alert>\w+)` \((?P<severity>\w+)\): '
    r"`(?P<expr>[^`]+)`(?: for (?P<wait>\w+))? \| (?P<means>[^|]+) \| (?P<advice>[^|]+) \|$",
    re.MULTILINE,
)


def test_every_alert_is_documented_and_every_documented_one_is_there():
    """Whoever is woken reads what the page says, and it is what fired."""
    documented = {
        row["alert"]: (
            row["expr"].replace(r"\|", "|"),
            row["wait"],
            row["severity"],
            f"docs/operations.md#{row['anchor']}",
        )
        for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))
    }
    assert documented == {
        name: (
            rule["expr"],
            rule.get("for"),
            rule["labels"]["severity"],
            rule["annotations"]["runbook_url"],
        )
        for name, rule in ALERTS.items()
    }


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_leads_to_its_row(alert):
    """By its name in the anchor, so that links in old notifications keep their meaning."""
    url = ALERTS[alert]["annotations"]["runbook_url"]
    path, _, anchor = url.partition("#")
    assert path == PAGE.relative_to(ROOT).as_posix()
    assert anchor in anchors(PAGE)
    assert anchor.replace("-", "") == alert.lower()


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_what_it_means(alert):
    """One sentence for a pager, and a severity to route by."""
    rule = ALERTS[alert]
    summary = rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert summary[0].isupper()
    assert summary.endswith(".")
    assert ". " not in summary


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_name_metrics_that_exist(rule):
    """With labels and values that exist: on anything else a rule is silent for ever."""
    assert unknown_parts(rule["expr"], "coterie_", all_metrics()) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_gauges_of_the_cluster_are_not_summed_over_extenders(rule):
    """Each of two extenders exports all devices: a sum doubles them."""
    gauges = [
        one.name
        for one in all_metrics()
        if one.type == "gauge" and one.name.startswith("coterie_extender_")
    ]
    summed = re.findall(r"(?:sum|avg|count)(?: by \([^)]*\) )?\((\w+)", rule["expr"])
    assert set(summed).isdisjoint(gauges)


def test_recorded_series_have_names_of_their_own():
    """Level, metric and operation, by Prometheus' convention; level `coterie`."""
    assert all(re.fullmatch(r"coterie:[a-z_]+:[a-z0-9_]+", name) for name in RECORDED)
