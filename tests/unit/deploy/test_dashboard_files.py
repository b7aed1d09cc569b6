"""The dashboards' files are what the code makes, and name what there is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.monitoring import DASHBOARDS, dashboard_json
from tests.docs.markdown import ROOT
from tests.docs.metrics_table import all_metrics, unknown_parts

FILES = ROOT / "deploy" / "chart" / "files"
RULES = yaml.safe_load((FILES / "rules.yaml").read_text(encoding="utf-8"))
RECORDED = {one["record"] for group in RULES["groups"] for one in group["rules"] if "record" in one}
PER_REPLICA = {"coterie_extender_ready", "coterie_extender_build_info"}
BOARDS = pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.uid)


def made(board) -> dict[str, Any]:
    """The dashboard as JSON."""
    content: dict[str, Any] = json.loads(dashboard_json(board))
    return content


def expressions(board) -> list[str]:
    """All its expressions."""
    return [one["expr"] for panel in made(board)["panels"] for one in panel.get("targets", ())]


@BOARDS
def test_files_are_generated(board, check_golden):
    """Who imports them has what the code says; Helm reads nothing outside the chart."""
    check_golden(FILES / "dashboards" / f"{board.uid}.json", dashboard_json(board))


def test_there_is_no_other_file():
    """A dashboard that was renamed would stay behind."""
    found = {path.stem for path in (FILES / "dashboards").iterdir()}
    assert found == {board.uid for board in DASHBOARDS}


@BOARDS
def test_the_json_is_grafanas(board):
    """Its own model reads it and writes the same."""
    content = made(board)
    again = json.dumps(Dashboard.from_json(content), cls=JSONEncoder)
    assert json.loads(again) == content


@BOARDS
def test_panels_are_apart_and_of_the_chosen_source(board):
    """Panels of one id or place hide each other; a fixed data source is another cluster's."""
    panels = made(board)["panels"]
    ids = [one["id"] for one in panels]
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
    assert len(set(ids)) == len(set(places)) == len(panels)
    sources = {one["datasource"]["uid"] for one in panels if one["type"] != "row"}
    assert sources == {"${datasource}"}
    assert len({one["title"] for one in panels if one["type"] != "row"}) == sum(
        one["type"] != "row" for one in panels
    )


@BOARDS
def test_expressions_name_what_exists(board):
    """Metrics, labels, values and recorded series; else the panel is empty."""
    text = "\n".join(expressions(board)).replace('=~"$', '="$')
    plain = re.sub(r'(, )?\w+="\$\w+"', "", text)
    assert unknown_parts(plain, "coterie_", all_metrics()) == []
    assert set(re.findall(r"coterie:[\w:]+", text)) <= RECORDED


@BOARDS
def test_the_state_of_the_cluster_is_not_summed_over_extenders(board):
    """Each of two extenders exports it."""
    summed = {
        name
        for expr in expressions(board)
        for name in re.findall(r"(?:sum|count)(?: by \([^)]*\) )?\((coterie_extender_\w+)", expr)
    }
    gauges = {one.name for one in all_metrics() if one.type == "gauge"}
    assert summed & gauges <= PER_REPLICA
