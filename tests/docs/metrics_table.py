"""The tables of metrics, rendered from what the programs expose, and who else names one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from extender.observe import ExtenderMetrics
from extender.protocol import Answer, Outcome, Verb
from plugin.observe import PluginMetrics
from tests.docs.settings_table import table
from tests.live_metrics import idle_metrics
from tests.unit.extender.engines import engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

ENDINGS = {"counter": "_total", "info": "_info"}
TARGET_LABELS = {"job", "node", "pod"}
"""Labels of every series that is scraped with deploy/monitoring/podmonitor.yaml."""


def own_metrics(families: Iterable[Metric]) -> list[Metric]:
    """Those that are not the process's."""
    return [family for family in families if family.name.startswith("coterie_")]


def name_of(family: Metric) -> str:
    """The name in queries."""
    return family.name + ENDINGS.get(family.type, "")


def extender_metrics() -> list[Metric]:
    """The metrics of every extender, of one that has bound a pod."""
    metrics = ExtenderMetrics(engine({"count": 1, "machine": "dgx-1-v100"}))
    bound = Answer(
        Verb.BIND,
        Outcome.OK,
        b"",
        0,
        placed_gbytes_per_s=1.0,
        placed_efficiency=1.0,
        machine="8x-l4",
        size_gpus=2,
    )
    metrics.observe(bound, 0.0)  # only machines on which pods were placed have a series
    metrics.render(is_ready=True, now_s=0.0)
    return own_metrics(metrics.registry.collect())


def plugin_metrics() -> list[Metric]:
    """The metrics of the plugin, of a node that serves a resource."""
    metrics = PluginMetrics()
    metrics.follow(["nvidia.com/gpu"], is_serving=True)
    return own_metrics(metrics.registry.collect())


def all_metrics() -> list[Metric]:
    """Those of both programs, on a cluster."""
    live = own_metrics(idle_metrics().collect())
    return [*extender_metrics(), *live, *plugin_metrics()]


def metrics_section(families: Iterable[Metric]) -> str:
    """One row per metric: name, labels and help."""
    rows = [
        (
            f"`{name_of(family)}`",
            ", ".join(
                f"`{label}`"
                for label in dict.fromkeys(label for one in family.samples for label in one.labels)
                if label != "le"
            ),
            family.documentation,
        )
        for family in own_metrics(families)
    ]
    return f"\n{table(('metric', 'labels', 'meaning'), rows)}\n"


def unknown_parts(text: str, prefix: str, families: Iterable[Metric]) -> list[str]:
    """What a text names of metrics that no family has: a name, a label, or a label's value.

    Labels are those in braces after a name, and in the `by (...)` of an aggregation over it; those
    of a target are known.
    """
    known = {name_of(family): family for family in families}

    def find(name: str) -> Metric | None:
        return known.get(re.sub(r"_(bucket|count|sum)$", "", name))

    unknown: list[str] = []
    for name, matchers in re.findall(rf"({prefix}\w+)(?:{{([^}}]*)}})?", text):
        family = find(name)
        if family is None:
            unknown.append(name)
            continue
        for label, operator, value in re.findall(r'(\w+)(!?=~?|!~)"([^"]*)"', matchers):
            known_values = {sample.labels.get(label) for sample in family.samples}
            named = value.replace("\\|", "|").split("|") if "~" in operator else [value]
            unknown += [f"{name}{{{label}={one}}}" for one in named if one not in known_values]
    for by, name in re.findall(rf"by \(([^)]*)\) \([a-z_(]*?({prefix}\w+)", text):
        family = find(name)
        samples = () if family is None else family.samples
        labels = TARGET_LABELS | {label for sample in samples for label in sample.labels}
        unknown += [f"{name} by {label}" for label in by.split(", ") if label not in labels]
    return unknown
