"""docs/plugin.md names every metric, label value, log event and route of the plugin, no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from plugin import logkeys
from plugin.allocation import AllocationBasis
from plugin.allocator import IdentifiedBy
from plugin.deviceplugin import CallOutcome, DevicePluginMethod, RegistrationPhase
from plugin.machine import EventKind
from plugin.pods import MismatchKind
from plugin.publish import WriteFailureReason
from tests.docs.markdown import ROOT, section
from tests.docs.metrics_table import metrics_section, plugin_metrics, unknown_parts

if TYPE_CHECKING:
    from enum import Enum

PATH = ROOT / "docs" / "plugin.md"
PAGE = PATH.read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_metrics_are_generated(check_golden):
    """A metric without a page is a number without a meaning."""
    before, _, after = section(PATH.read_text(encoding="utf-8"), "metrics")
    check_golden(PATH, before + metrics_section(plugin_metrics()) + after)


def test_alerts_are_on_metrics_that_exist():
    """An alert on a name that is gone never rings."""
    assert "coterie_plugin_registered == 0" in OPERATIONS
    assert unknown_parts(OPERATIONS, "coterie_plugin_", plugin_metrics()) == []


def test_a_plugin_that_does_not_run_is_noticed():
    """It has no metrics of its own: a comparison with one never holds."""
    (alerts,) = re.findall(r"\nAlerts, and what to do:\n\n(.+?)\n\n", OPERATIONS, re.DOTALL)
    assert "`max by (namespace, daemonset) (kube_daemonset_status_number_unavailable{" in alerts
    assert '`up{job="coterie-plugin"} == 0`' in alerts


@pytest.mark.parametrize("kind", MismatchKind)
def test_every_difference_has_its_advice(kind):
    """Whoever is woken by one must know what to do."""
    assert f'plan_mismatches{{kind="{kind.value}"}}' in OPERATIONS


@pytest.mark.parametrize(
    ("label", "values"),
    [
        pytest.param("verb", {one.value for one in DevicePluginMethod}, id="verb"),
        pytest.param("outcome", {one.value for one in CallOutcome}, id="outcome"),
        pytest.param("how", {one.value for one in IdentifiedBy}, id="how"),
        pytest.param("basis", {*(one.value for one in AllocationBasis), "refused"}, id="basis"),
        pytest.param("reason", {*(one.value for one in WriteFailureReason), "report"}, id="reason"),
    ],
)
def test_every_label_value_is_explained(label: str, values: set[str]):
    """Whoever writes a query must find the values as the metrics have them."""
    (row,) = re.findall(rf"^\| `{label}` \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`", row)) == values


@pytest.mark.parametrize(
    ("of", "values"),
    [
        pytest.param("events", EventKind, id="events"),
        pytest.param("mismatches", MismatchKind, id="mismatches"),
    ],
)
def test_every_kind_is_explained(of: str, values: type[Enum]):
    """One label of two metrics, with values of its own in each."""
    (row,) = re.findall(rf"^\| `kind` of {of} \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`([\w-]+)`", row) == [one.value for one in values]


def test_every_failed_read_is_explained():
    """Whoever sees one rise must know what was read."""
    (row,) = re.findall(r"^\| `what` \| ([^|]+) \|$", PAGE, re.MULTILINE)
    (family,) = (one for one in plugin_metrics() if one.name.endswith("reader_failures"))
    values = [one.labels["what"] for one in family.samples]
    assert re.findall(r"`(\w+)`", row) == values


def test_every_log_event_is_explained():
    """An event of the log that no page names is noise."""
    named = {getattr(logkeys, name) for name in logkeys.__all__}
    rows = re.findall(r"^\| ([^|]+) \|", PAGE.partition("\n## Log\n")[2], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == named


def test_every_phase_is_named():
    """The first thing to look for where a node offers no GPU."""
    (row,) = re.findall(r"^\| `registration` \| ([^|]+) \|", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == [one.value for one in RegistrationPhase]
