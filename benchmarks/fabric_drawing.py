"""How a network with the jobs on it is drawn: a square for a leaf, a row for a node, a cell a GPU.

Draws what it is given, as SVG; it places and rates nothing. The same panels give the same bytes
under one version of matplotlib.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from topology.draw.render import svg_element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

__all__ = ["FREE", "OTHERS", "Leaf", "Panel", "Style", "draw_element"]

FREE, OTHERS = "#ffffff", "#c3cbd3"
"""Colours of a free GPU, and of what is no part of a group; frames have that one too."""
_INK = "#1f2933"
_HEIGHT = 0.84
"""Of a row's bars; the rest is the gap to the next row."""
_BETWEEN = 2.0
"""Cells between two leaves."""
_GAP = 0.06
"""Beside each cell."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The nodes of a leaf: the colour of each GPU, and names where they are to be shown."""

    rows: tuple[tuple[str, ...], ...]
    name: str = ""
    row_names: tuple[str, ...] = ()

    @property
    def n_gpus(self) -> int:
        """GPUs of the node that has most."""
        return max(len(row) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Panel:
    """One state of the network; `held` are colours of which only the outlines are drawn."""

    title: str
    leaves: tuple[Leaf, ...]
    held: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Style:
    """How large, and how much is written.

    `panel_inches` is a panel's height, `rest_inches` that of legend and caption. With `has_cells`
    each GPU has a cell of its own, free ones too; else equal neighbours of a row are one bar.
    `name_width` is the room for names of nodes beside their rows, in cells.
    """

    width_inches: float = 8.2
    panel_inches: float = 1.35
    rest_inches: float = 0.7
    leaves_a_line: int = 15
    has_cells: bool = False
    name_width: float = 0.0
    row_height: float = 1.0
    """Of a cell, by its width."""


def draw_element(panel: Panel, style: Style) -> str:
    """One panel as an `<svg>` element that may stand in HTML; its title is its name only."""
    figure = _figure([replace(panel, title="")], style)
    for axes in figure.axes:
        for artist in axes.get_children():
            artist.set_clip_on(False)
    return svg_element(to_svg(figure), title=panel.title)


def to_svg(figure: Figure) -> str:
    """A figure as SVG, the same bytes for the same figure."""
    out = io.StringIO()
    with rc_context({"svg.hashsalt": "coterie", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_figure(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _figure(panels: Sequence[Panel], style: Style) -> Figure:
    size = (style.width_inches, style.panel_inches * len(panels) + style.rest_inches)
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, place + 1)
        _draw(axes, panel, style)
        axes.set_title(panel.title, fontsize=9, loc="left")
    return figure


def _draw(axes: Axes, panel: Panel, style: Style) -> None:
    across = max(leaf.n_gpus for leaf in panel.leaves) + _BETWEEN + style.name_width
    down = max(len(leaf.rows) for leaf in panel.leaves) + _BETWEEN
    n_lines = -(-len(panel.leaves) // style.leaves_a_line)
    for number, leaf in enumerate(panel.leaves):
        line, column = divmod(number, style.leaves_a_line)
        _draw_leaf(axes, leaf, (column * across, -line * down), panel.held, style)
    right = style.leaves_a_line * across - style.name_width
    beyond = _BETWEEN - 2 * _GAP if style.has_cells else 0.0
    axes.set_xlim(-1 - style.name_width, right - beyond)
    axes.set_ylim(-n_lines * down + 1 + beyond, 1)
    axes.set_aspect(style.row_height)
    axes.set_axis_off()


def _draw_leaf(
    axes: Axes, leaf: Leaf, corner: tuple[float, float], held: frozenset[str], style: Style
) -> None:
    left, top = corner
    size = (float(leaf.n_gpus), float(len(leaf.rows)))
    frame = Rectangle(
        (left, top - len(leaf.rows)), *size, fill=False, edgecolor=OTHERS, linewidth=1
    )
    axes.add_patch(frame)
    if leaf.name:
        axes.text(left, top + 0.2, leaf.name, fontsize=9, color=_INK)
    for number, row in enumerate(leaf.rows):
        for begin, end in _bars(row, style):
            at = (left + begin, top - number - 0.92)
            bar = _bar(at, end - begin, row[begin], is_held=row[begin] in held, style=style)
            if bar is not None:
                axes.add_patch(bar)
    for number, name in enumerate(leaf.row_names):
        axes.text(
            left - 0.3, top - number - 0.5, name, fontsize=8, color=_INK, ha="right", va="center"
        )


def _bars(row: Sequence[str], style: Style) -> Iterator[tuple[int, int]]:
    """Where the bars of a row begin and end."""
    begin = 0
    while begin < len(row):
        end = begin + 1
        while not style.has_cells and end < len(row) and row[end] == row[begin]:
            end += 1
        yield begin, end
        begin = end


def _bar(
    at: tuple[float, float], width: int, colour: str, *, is_held: bool, style: Style
) -> Rectangle | None:
    """One bar; None where GPUs are free and have no cells."""
    if not style.has_cells:
        return None if colour == FREE else Rectangle(at, width, _HEIGHT, color=colour, lw=0)
    at, width_in = (at[0] + _GAP, at[1]), width - 2 * _GAP
    if colour == FREE:
        return Rectangle(at, width_in, _HEIGHT, fill=False, edgecolor=OTHERS, linewidth=0.6)
    if is_held:
        return Rectangle(at, width_in, _HEIGHT, fill=False, edgecolor=colour, linewidth=1.4)
    return Rectangle(at, width_in, _HEIGHT, color=colour, lw=0)
