"""docs/chart.md shows the chart's values as values.yaml has them, and its modes as ci/ has them."""

from __future__ import annotations

import re

import yaml

from tests.docs.chart_values import CHART, chart_values, values_section
from tests.docs.markdown import ROOT, section

PAGE = ROOT / "docs" / "chart.md"


def test_values_are_generated(check_golden):
    """A value that changes must change on the page too; `make golden` rewrites it."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), "chart values")
    check_golden(PAGE, before + values_section() + after)


def test_values_that_documents_name_exist():
    """A misspelt value in a command is refused by the chart, but only when somebody runs it."""
    known = {one.path for one in chart_values()}
    guide = ROOT / "docs" / "operator-guide.md"
    pages = (PAGE, guide, ROOT / "docs" / "migrate.md", CHART / "templates" / "NOTES.txt")
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    named = set(re.findall(r"--set(?:-string)? ([\w.]+)=", text))
    named |= set(re.findall(r"`([\w.]+)=[^`]+`", PAGE.read_text(encoding="utf-8")))
    assert named >= {"image.registry", "mode", "plugin.mode", "plugin.driverRoot"}
    assert named <= known


def test_every_mode_is_shown():
    """The reader chooses by this table."""
    modes = {
        yaml.safe_load(path.read_text(encoding="utf-8"))["mode"]
        for path in (CHART / "ci").glob("*.yaml")
    }
    table = PAGE.read_text("utf-8").partition("| `mode` |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert set(shown) == modes
