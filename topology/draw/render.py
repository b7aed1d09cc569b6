"""A machine as a picture: its GPUs, links, groups and NICs, with GPU sets in colour.

What it answers: what a node looks like and where some sets lie in it, as SVG text (small enough to
embed dozens in one page, without any reference to the outside) or as a PNG file. It decides
nothing: `topology.draw.scene` says what stands where in which colour. Importing it without
matplotlib (the optional extra `draw`) raises `ImportError` with a sentence that says so.

Method: one matplotlib artist for each shape. The same input gives the same bytes under one version
of matplotlib: ids are salted with a constant and no date is written.
"""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import TYPE_CHECKING

try:
    from matplotlib import (
        patches,
        rc_context,  # pyright: ignore[reportUnknownVariableType] - half typed
    )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.path import Path as Curve
    from matplotlib.text import Text as Label
except ModuleNotFoundError as error:
    _MESSAGE = (
        "drawing needs matplotlib: install the extra `draw` (in a checkout, pip install '.[draw]')"
    )
    raise ImportError(_MESSAGE, name="matplotlib") from error

from topology.draw.scene import compose_scene
from topology.draw.shapes import Box, Disc, Lines, Text, Wedge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.artist import Artist

    from topology.draw.shapes import Scene, Shape
    from topology.model import NodeTopology

__all__ = ["draw_topology", "save_png", "svg_element"]

PNG_DPI = 160
"""Dots per inch of a PNG up to `PNG_MOST_INCHES`; bigger pictures get fewer."""
PNG_MOST_INCHES = 12.0

_TAG = re.compile("<[^>]*>")
_DECIMALS = re.compile(r"(\.\d\d)\d+")
_COUNTED_ID = re.compile(r' id="[a-z0-9]+_\d+"')


def _lines(shape: Lines) -> Artist:
    """Draw all lines as one path: one element of the SVG however many there are."""
    return patches.PathPatch(
        Curve(
            [point for segment in shape.segments for point in segment],
            [Curve.MOVETO, Curve.LINETO] * len(shape.segments),
        ),
        fill=False,
        edgecolor=shape.colour,
        linewidth=shape.width,
        linestyle=shape.style,
        capstyle="butt",
    )


def _disc(shape: Disc) -> Artist:
    """Draw a disc as a marker: the SVG then holds its outline once, however many there are."""
    return Line2D(
        [shape.at[0]],
        [shape.at[1]],
        marker="o",
        markersize=2 * 72 * shape.radius,
        markerfacecolor=shape.fill,
        markeredgecolor=shape.edge,
        markeredgewidth=min(1.1, 12 * shape.radius),
    )


def _wedge(shape: Wedge) -> Artist:
    return patches.Wedge(
        shape.at,
        shape.outer,
        shape.start_deg,
        shape.end_deg,
        width=shape.outer - shape.inner,
        facecolor=shape.fill,
        edgecolor=shape.edge or "none",
        linewidth=0.8,
    )


def _box(shape: Box) -> Artist:
    x, y = shape.at
    return patches.Rectangle(
        (x - shape.width / 2, y - shape.height / 2),
        shape.width,
        shape.height,
        angle=shape.turn_deg,
        rotation_point="center",
        facecolor=shape.fill,
        edgecolor=shape.edge,
        linewidth=0.8,
        linestyle="--" if shape.is_dashed else "-",
        joinstyle="round",
    )


def _label(shape: Text) -> Artist:
    label = Label(
        *shape.at,
        text=shape.text,
        fontsize=shape.size,
        fontweight="bold" if shape.is_bold else "normal",
        color=shape.colour,
        rotation=shape.turn_deg,
        rotation_mode="anchor",
        horizontalalignment="left" if shape.is_left_aligned else "center",
        verticalalignment="center" if shape.turn_deg else "center_baseline",
        parse_math=False,
    )
    if shape.backing is not None:
        label.set_bbox({"facecolor": shape.backing, "edgecolor": "none", "pad": 1.0})
    return label


def _artist(shape: Shape) -> Artist:
    match shape:
        case Text():
            return _label(shape)
        case Lines():
            return _lines(shape)
        case Disc():
            return _disc(shape)
        case Wedge():
            return _wedge(shape)
        case _:
            return _box(shape)


def _figure(scene: Scene) -> Figure:
    figure = Figure(figsize=(scene.width, scene.above + scene.below), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))  # pyright: ignore[reportUnknownMemberType] - half typed
    axes.set_axis_off()
    axes.set_xlim(-scene.width / 2, scene.width / 2)
    axes.set_ylim(-scene.below, scene.above)
    for order, shape in enumerate(scene.shapes):
        artist = _artist(shape)
        artist.set_zorder(order)
        axes.add_artist(artist)
        artist.set_clip_on(False)
    return figure


def _render(figure: Figure, *, is_svg: bool, dpi: float = 72) -> bytes:
    target = io.BytesIO()
    canvas = FigureCanvasSVG(figure) if is_svg else FigureCanvasAgg(figure)
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type")) if is_svg else None
    with (
        warnings.catch_warnings(),
        rc_context(
            {"svg.fonttype": "none", "svg.hashsalt": "coterie", "font.family": "DejaVu Sans"}
        ),
    ):
        # A name in a script that DejaVu Sans lacks is still right in the SVG, where text is text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.print_figure(  # pyright: ignore[reportUnknownMemberType] - half typed
            target, format="svg" if is_svg else "png", dpi=dpi, metadata=nothing
        )
    return target.getvalue()


def _shortened(tag: re.Match[str]) -> str:
    """Cut coordinates to 0.01 points (matplotlib writes six decimals) and drop counted ids.

    Nothing refers to those ids, and two pictures in one page would give them twice.
    """
    return _COUNTED_ID.sub("", _DECIMALS.sub(r"\1", tag.group()))


def draw_topology(
    topology: NodeTopology,
    *,
    sets: Sequence[tuple[str, Sequence[int]]] = (),
    title: str | None = None,
) -> str:
    """Draw a machine, each named set in its own colour, as one `<svg>` element.

    `title` defaults to the topology's name. The text starts with `<svg` (no XML prolog), so it may
    stand in HTML as it is; it refers to nothing outside. Raises what `compose_scene` raises.
    """
    scene = compose_scene(topology, sets=sets, title=title)
    return svg_element(_render(_figure(scene), is_svg=True).decode(), title=scene.title)


def svg_element(text: str, *, title: str) -> str:
    """What matplotlib wrote as an SVG file, as one `<svg>` element that may stand in HTML.

    It is shortened, has `title` as its name, and styles nothing outside itself. Only for figures
    of which no part refers to another one by an id (none is clipped).
    """
    svg = _TAG.sub(_shortened, text[text.index("<svg") :])
    # matplotlib's style sheet has a rule for every element, which in a page would reach beyond the
    # picture: the root passes it on to its own elements alone.
    head, _, rest = svg.partition(">")
    _, _, rest = rest.partition("*{")
    rule, _, rest = rest.partition("}")
    _, _, body = rest.partition("</defs>")
    return f'{head} role="img" style="{rule}">\n <title>{escape(title)}</title>{body}'


def save_png(
    topology: NodeTopology,
    path: Path,
    *,
    sets: Sequence[tuple[str, Sequence[int]]] = (),
    title: str | None = None,
) -> None:
    """Write the same picture as a PNG file; raises what `draw_topology` raises, and `OSError`."""
    figure = _figure(compose_scene(topology, sets=sets, title=title))
    dpi = PNG_DPI * min(1.0, PNG_MOST_INCHES / max(figure.get_size_inches()))
    path.write_bytes(_render(figure, is_svg=False, dpi=dpi))
