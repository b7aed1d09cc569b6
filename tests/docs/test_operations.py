"""docs/operations.md names every route and metric that the extender has, and no other."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from extender.clocks import SteadyClock
from extender.config import ExtenderSettings
from extender.engine import Gateway, make_engine
from extender.http.routes import read_routes
from extender.http.verbs import Dependencies
from extender.protocol import Outcome, Verb
from extender.runtime import STALE
from extender.state import DeviceState
from extender.watch import InformerSet
from tests.docs.markdown import ROOT, section
from tests.docs.metrics_table import (
    extender_metrics,
    metrics_section,
    own_metrics,
    unknown_parts,
)
from tests.docs.settings_table import table
from tests.live_metrics import idle_metrics

if TYPE_CHECKING:
    from enum import Enum

    from extender.http.verbs import Verbs
    from extender.watch.state_sync import Watch

PATH = ROOT / "docs" / "operations.md"
PAGE = PATH.read_text(encoding="utf-8")


def test_metrics_are_generated(check_golden):
    """A metric without a page is a number without a meaning."""
    before, _, after = section(PATH.read_text(encoding="utf-8"), "metrics")
    check_golden(PATH, before + metrics_section(extender_metrics()) + after)
    before, _, after = section(PATH.read_text(encoding="utf-8"), "live metrics")
    check_golden(PATH, before + metrics_section(idle_metrics().collect()) + after)


def test_routes_are_generated(check_golden):
    """Whoever looks for a route finds each, with what it responds."""
    engine = make_engine(ExtenderSettings().rules)
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


def test_what_is_said_of_metrics_holds():
    """A query on a name, a label or a value that is gone finds nothing: its alert never fires."""
    families = [*extender_metrics(), *own_metrics(idle_metrics().collect())]
    assert unknown_parts(PAGE, "coterie_extender_", families) == []


def alerts() -> list[str]:
    """The expressions of the extender's alerts."""
    table_ = PAGE.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    rows = table_.partition("|---|---|---|\n")[2].splitlines()
    return [row.split("`")[3] for row in rows if row.startswith("| ")]


def test_alerts_are_expressions_of_promql():
    """As far as they use it: a vector, its increase or a quantile, aggregated, against a number."""
    matchers = r'\{\w+!?="\w*"(?:, \w+!?="\w*")*\}'
    vector = rf"[a-z]\w*(?:{matchers})?"
    rate = rf"increase\({vector}\[\d+[smh]\]\)"
    whole = rf"(?:sum|max)(?: by \(\w+(?:, \w+)*\) )?\((?:{rate}|{vector})\)"
    compared = rf"(?:time\(\) - )?(?:{whole}|{vector})(?: - time\(\))? (?:==|>|<) \d+"
    rates = r'rate\([a-z]\w*_bucket\{\w+=~"\w+(?:\\\|\w+)*"\}\[\d+m\]\)'
    quantile = rf"histogram_quantile\(0\.\d+, sum by \(\w+, le\) \({rates}\)\) > \d+(?:\.\d+)?"
    forms = rf"{compared}|absent\({vector}\)|{quantile}"
    wrong = [one for one in alerts() if not re.fullmatch(forms, one)]
    assert (len(alerts()), wrong) == (14, [])


def test_gauges_of_the_cluster_are_aggregated_by_max():
    """Each replica exports them: a sum would count every pod as often as there are replicas."""
    families = [*extender_metrics(), *own_metrics(idle_metrics().collect())]
    gauges = [one.name for one in families if one.type == "gauge"]
    summed = [one for one in alerts() for name in gauges if name in one and "sum" in one]
    assert summed == []


@pytest.mark.parametrize(
    ("is_synced", "opened", "shown"),
    [
        pytest.param(False, (), "not listed yet: nodes, assigned_pods", id="not listed"),
        pytest.param(
            True,
            ("uid",),
            "N pods that may have GPUs and have no plan are still to be read from the API server",
            id="pods to read",
        ),
        pytest.param(True, (), "not synced yet", id="not synced"),
    ],
)
def test_every_answer_of_readyz_is_explained(is_synced, opened, shown):
    """Whoever reads a 503 looks it up here, word for word but for its figures and names."""
    nothing: Any = None
    prober: Any = SimpleNamespace(open=frozenset(opened))
    feed = InformerSet(
        nothing, prober, lambda: (), nothing, nothing, lambda _: False, nothing, nothing
    )
    feed.handle = lambda _: None
    feed.clock = SteadyClock()
    feed.watches = tuple(
        cast("Watch", SimpleNamespace(name=name, is_synced=is_synced, observed_at_s=None))
        for name in ("nodes", "assigned_pods")
    )

    async def said() -> str | None:
        feed.listed()
        return feed.missing

    sentence = asyncio.run(said())
    assert sentence is not None
    assert sentence.replace("1 pods", "N pods") == shown
    assert f"| `{shown}`" in PAGE


def test_staleness_is_explained():
    """What `/readyz` says of a state that was complete."""
    assert f"| `{STALE}` |" in PAGE


def test_every_log_event_is_explained():
    """An event of the log that no page names is noise."""
    source = (ROOT / "extender" / "logkeys.py").read_text(encoding="utf-8")
    named = set(re.findall(r'= "(\w+)"', source))
    assert [name for name in named if f"`{name}`" not in PAGE] == []


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
    assert posted == {verb.value for verb in Verb}
