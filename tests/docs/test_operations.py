"""docs/operations.md names every route, metric and reason that the extender has, and no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from extender.cluster import parse_cluster
from extender.decisions import make_engine
from extender.engine import Outcome, Verb
from extender.metrics import Metrics
from extender.reasons import Reason
from extender.settings import Settings
from extender.transitions import DeviceState
from tests.docs.markdown import ROOT

if TYPE_CHECKING:
    from enum import Enum

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_metric_is_explained():
    """A metric without a page is a number without a meaning."""
    cluster = "1x dgx-1-v100"
    engine = make_engine(parse_cluster(cluster), Settings(cluster=cluster).rules)
    text = Metrics(engine).render().decode()
    metrics = set(re.findall(r"^# TYPE (coterie_\w+?)(?:_created)? ", text, re.MULTILINE))
    assert set(re.findall(r"^\| `(coterie_\w+)` \|", PAGE, re.MULTILINE)) == metrics


def test_every_reason_is_explained():
    """A user who sees a sentence in an event looks it up here, word for word."""
    rows = re.findall(r"^\| `(?!coterie_)([a-z_]+)` \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert dict(rows) == {reason.label: reason.value for reason in Reason}


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
