"""docs/operations.md names every route, metric and reason that the extender has, and no other."""

from __future__ import annotations

import re
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from extender.config import ExtenderSettings
from extender.embedded import make_engine, parse_cluster
from extender.engine import Gateway
from extender.http.routes import read_routes
from extender.http.verbs import Dependencies
from extender.observe import ExtenderMetrics, LiveMetrics
from extender.observe.events import EventReason
from extender.protocol import Answer, Outcome, Reason, Verb
from extender.state import DeviceState
from tests.docs.markdown import ROOT, section
from tests.docs.metrics_table import metrics_section
from tests.docs.settings_table import table

if TYPE_CHECKING:
    from enum import Enum

    from extender.http.verbs import Verbs

PATH = ROOT / "docs" / "operations.md"
PAGE = PATH.read_text(encoding="utf-8")


def test_metrics_are_generated(check_golden):
    """A metric without a page is a number without a meaning."""
    cluster = "1x dgx-1-v100"
    engine = make_engine(parse_cluster(cluster), ExtenderSettings(cluster=cluster).rules)
    metrics = ExtenderMetrics(engine)
    bound = Answer(
        Verb.BIND, Outcome.OK, b"", 0, placed_gbytes_per_s=1.0, machine="8x-l4", size_gpus=2
    )
    metrics.observe(bound, 0.0)  # only machines on which pods were placed have a series
    metrics.render()
    before, _, after = section(PATH.read_text(encoding="utf-8"), "metrics")
    check_golden(PATH, before + metrics_section(metrics.registry.collect()) + after)
    before, _, after = section(PATH.read_text(encoding="utf-8"), "live metrics")
    check_golden(PATH, before + metrics_section(live_metrics().collect()) + after)


def test_routes_are_generated(check_golden):
    """Whoever looks for a route finds each, with what it responds."""
    cluster = "1x dgx-1-v100"
    engine = make_engine(parse_cluster(cluster), ExtenderSettings(cluster=cluster).rules)
    unused: Any = None
    app = read_routes(
        Dependencies(
            gateway=Gateway(engine),
            metrics=unused,
            log=unused,
            clock=unused,
            timer=unused,
            body_limit_bytes=0,
            is_ready=unused,
            verbs=cast("Verbs", object()),
        )
    )
    rows = [
        (f"`{method.upper()} {path}`", operation["description"])
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    ]
    before, _, after = section(PATH.read_text(encoding="utf-8"), "routes")
    check_golden(PATH, f"{before}\n{table(('route', 'response'), rows)}\n{after}")


def live_metrics() -> LiveMetrics:
    """The metrics of a live extender whose parts have done nothing yet."""
    nothing: Any = defaultdict(int)
    counts = SimpleNamespace(n_lists=0, n_events=0, n_faults=0, n_unread=0)
    idle: Any = SimpleNamespace(
        n_read=0,
        n_failed=0,
        n_open=0,
        n_refused=0,
        n_requeued=0,
        n_skipped=0,
        n_written=0,
        n_dropped=0,
        n_taken=0,
        n_faults=0,
        may_bind=False,
        watches=[SimpleNamespace(name="nodes", observed_at_s=0.0, counts=counts)],
        by_kind=nothing,
    )
    return LiveMetrics(idle, idle, idle, idle, idle, lambda: 0.0, lambda: 0.0, idle)


@pytest.mark.parametrize("reason", EventReason)
def test_every_event_is_explained(reason):
    """Whoever finds a reason in `kubectl describe` looks it up here."""
    assert f"| `{reason.value}` |" in PAGE


def test_every_log_event_is_explained():
    """An event of the log that no page names is noise."""
    source = (ROOT / "extender" / "logkeys.py").read_text(encoding="utf-8")
    named = set(re.findall(r'= "(\w+)"', source))
    assert [name for name in named if f"`{name}`" not in PAGE] == []


def test_reasons_are_generated(check_golden):
    """A user who sees a sentence in an event looks it up here, word for word."""
    before, _, after = section(PATH.read_text(encoding="utf-8"), "reasons")
    rows = [(f"`{reason.label}`", reason.value, reason.advice) for reason in Reason]
    shown = table(("label", "sentence", "what to do"), rows)
    check_golden(PATH, f"{before}\n{shown}\n{after}")


@pytest.mark.parametrize(
    ("label", "values"), [("verb", Verb), ("outcome", Outcome), ("state", DeviceState)]
)
def test_every_label_value_is_explained(label: str, values: type[Enum]):
    """Whoever writes a query must find the values as the metrics have them."""
    (row,) = re.findall(rf"^\| `{label}` \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == [value.value for value in values]


def test_every_verb_has_its_route():
    """The verbs that are posted, each once."""
    posted = set(re.findall(r"`POST /(\w+)`", PAGE))
    assert posted == {verb.value for verb in Verb} - {Verb.END.value}
