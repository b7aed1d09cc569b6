"""The JSON that Grafana imports, made of the panels in `deploy.monitoring.panels`.

`deploy/chart/files/dashboards` is generated from here by `make golden`; a test compares them, and
another has a real Prometheus answer every expression.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders.common import StackingConfig
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as StatPanel
from grafana_foundation_sdk.builders.timeseries import Panel as GraphPanel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

if TYPE_CHECKING:
    from deploy.monitoring.panels import Board, Graph, Stat

__all__ = ["dashboard_json"]

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH = 24
"""Columns of a dashboard (Grafana's grid)."""
_STAT_HEIGHT, _GRAPH_HEIGHT = 4, 8


def dashboard_json(board: Board) -> str:
    """The dashboard as Grafana imports it, with a newline at its end."""
    made = (
        Dashboard(board.title)
        .uid(board.uid)
        .tags(["coterie"])
        .time("now-6h", "now")
        .refresh("1m")
        .timezone("browser")
        .editable()
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable(board))
    )
    ids = count(1)
    for section in board.sections:
        row = Row(section.title)
        row.build().id_val = next(ids)
        made.with_row(row)
        for stat in section.stats:
            made.with_panel(_stat(stat, _WIDTH // len(section.stats)).id(next(ids)))
        for graph in section.graphs:
            made.with_panel(_graph(graph, _WIDTH // min(len(section.graphs), 3)).id(next(ids)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(board: Board) -> QueryVariable:
    return (
        QueryVariable(board.variable)
        .label(board.variable.capitalize())
        .datasource(_SOURCE)
        .query(f"label_values({board.of}, {board.variable})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003 - the library's setter
        .include_all(True)  # noqa: FBT003
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _stat(stat: Stat, width: int) -> StatPanel:
    query = Dataquery().expr(stat.expr).instant().ref_id("A")
    return (
        StatPanel()
        .title(stat.title)
        .datasource(_SOURCE)
        .unit(stat.unit)
        .height(_STAT_HEIGHT)
        .span(width)
        .with_target(query)
    )


def _graph(graph: Graph, width: int) -> GraphPanel:
    panel = (
        GraphPanel()
        .title(graph.title)
        .description(graph.note)
        .datasource(_SOURCE)
        .unit(graph.unit)
        .min(0)
        .height(_GRAPH_HEIGHT)
        .span(width)
    )
    if graph.is_stacked:
        panel.stacking(StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    for i, (expr, legend) in enumerate(graph.series):
        panel.with_target(
            Dataquery().expr(expr).range().legend_format(legend).ref_id(chr(ord("A") + i))
        )
    return panel
