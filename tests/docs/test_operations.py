"""docs/operations.md names every route, metric and reason that the extender has, and no other."""

from __future__ import annotations

import re
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from extender.config import Settings
from extender.decision_log import Desk
from extender.embedded import make_engine, parse_cluster
from extender.http.routes import read_routes
from extender.http.verbs import Dependencies
from extender.observe import LiveMetrics, Metrics
from extender.observe.events import EventReason
from extender.protocol import Outcome, Reason, Verb
from extender.state import DeviceState
from tests.docs.markdown import ROOT, section
from tests.docs.settings_table import table

if TYPE_CHECKING:
    from enum import Enum

    from extender.http.verbs import Verbs

PATH = ROOT / "docs" / "operations.md"
PAGE = PATH.read_text(encoding="utf-8")


def test_every_metric_is_explained():
    """A metric without a page is a number without a meaning."""
    cluster = "1x dgx-1-v100"
    engine = make_engine(parse_cluster(cluster), Settings(cluster=cluster).rules)
    metrics = Metrics(engine)
    metrics.add_source(live_metrics().collect)
    told = set(re.findall(r"^# TYPE (coterie_\w+) ", metrics.render().decode(), re.MULTILINE))
    explained = set(re.findall(r"^\| `(coterie_\w+)` \|", PAGE, re.MULTILINE))
    assert explained == {name for name in told if not name.endswith("_created")}


def test_routes_are_generated(check_golden):
    """Whoever looks for a route finds each, with what it responds."""
    cluster = "1x dgx-1-v100"
    engine = make_engine(parse_cluster(cluster), Settings(cluster=cluster).rules)
    unused: Any = None
    app = read_routes(
        Dependencies(
            desk=Desk(engine),
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
    """What a live extender tells, of parts that have done nothing yet."""
    nothing: Any = defaultdict(int)
    idle: Any = SimpleNamespace(
        n_read=0,
        n_failed=0,
        n_open=0,
        n_refused=0,
        n_woken=0,
        n_in_vain=0,
        n_written=0,
        n_dropped=0,
        n_taken=0,
        n_faults=0,
        may_bind=False,
        watches=(),
        by_kind=nothing,
    )
    return LiveMetrics(idle, idle, idle, idle, idle, lambda: 0.0, idle)


@pytest.mark.parametrize("reason", EventReason)
def test_every_event_is_explained(reason):
    """Whoever finds a reason in `kubectl describe` looks it up here."""
    assert f"| `{reason.value}` |" in PAGE


def test_every_log_event_is_explained():
    """An event of the log that no page names is noise."""
    source = (ROOT / "extender" / "logkeys.py").read_text(encoding="utf-8")
    events, _, _ = source.partition("# Events.")[2].partition("# Keys.")
    named = set(re.findall(r'= "(\w+)"', events))
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
