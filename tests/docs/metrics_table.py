"""The tables of metrics, rendered from what the programs expose, and who else names one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.docs.settings_table import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

ENDINGS = {"counter": "_total", "info": "_info"}


def own_metrics(families: Iterable[Metric]) -> list[Metric]:
    """Those that are not the process's."""
    return [family for family in families if family.name.startswith("coterie_")]


def name_of(family: Metric) -> str:
    """The name in queries."""
    return family.name + ENDINGS.get(family.type, "")


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

    Labels are those in braces after a name, and in the `by (...)` of an aggregation over it.
    """
    known = {name_of(family): family for family in families}
    unknown: list[str] = []
    for name, matchers in re.findall(rf"({prefix}\w+)(?:{{([^}}]*)}})?", text):
        family = known.get(re.sub(r"_(bucket|count|sum)$", "", name))
        if family is None:
            unknown.append(name)
            continue
        for label, value in re.findall(r'(\w+)!?="([^"]*)"', matchers):
            if value not in {sample.labels.get(label) for sample in family.samples}:
                unknown.append(f"{name}{{{label}={value}}}")
    for by, name in re.findall(rf"by \(([^)]*)\) \([a-z_(]*?({prefix}\w+)", text):
        labels = {label for sample in known[name].samples for label in sample.labels}
        unknown += [f"{name} by {label}" for label in by.split(", ") if label not in labels]
    return unknown
