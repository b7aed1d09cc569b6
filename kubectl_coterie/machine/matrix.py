"""The matrix of links as `coterie-topology show` prints it, in colour, with its legend.

A label of a fast link is green, one of a slow one yellow or red, so that islands stand out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from topology.report.blocks import NoteLine, block_text
from topology.report.listing import list_show

if TYPE_CHECKING:
    from kubectl_coterie.terminal import Style
    from topology.report.blocks import Block
    from topology.report.values import ShowReport

__all__ = ["matrix_lines"]

_SECTIONS = ("Accelerator links", "PCIe levels", "Legend")
_LABEL = re.compile(
    r"(?<=\s)(?P<label>(?:NV|XG|MX|C2C-)(?:\d+|[?#])|PIX|PXB|PHB|NODE|SYS|\?)(?=\s|$)"
)
_COLOURS = {"PIX": "green", "PXB": "green", "PHB": "yellow", "NODE": "yellow", "SYS": "red"}
_LINK_COLOUR = "green"


def matrix_lines(report: ShowReport, style: Style) -> list[str]:
    """The tables of links and PCIe levels, and what their labels mean."""
    if len(report.gpus) == 1:
        return ["One GPU: it has no links to others."]
    kept: list[Block] = []
    is_wanted = False
    for block in list_show(report):
        if isinstance(block, NoteLine) and block.is_heading:
            is_wanted = block.text in _SECTIONS
        if is_wanted:
            kept.append(block)
    lines = block_text(kept).splitlines()
    legend = lines.index("Legend")
    tables = [_LABEL.sub(lambda found: _painted(found["label"], style), one) for one in lines]
    return tables[:legend] + [_explained(line, style) for line in lines[legend:]]


def _painted(label: str, style: Style) -> str:
    if label == "?":
        return style.paint(label, "dim")
    return style.paint(label, _COLOURS.get(label, _LINK_COLOUR))


def _explained(line: str, style: Style) -> str:
    """A line of the legend: its first word in the label's colour, and no word after it."""
    label, blank, text = line.partition(" ")
    if not _LABEL.match(f" {label}", 1):
        return line
    return f"{_painted(label, style)}{blank}{text}"
