"""The tables of metrics, rendered from what the programs expose."""

from __future__ import annotations

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
