"""What the picture of a machine consists of: shapes with places, sizes and colours.

What it answers: which lines, discs, boxes and texts show a node, its GPU sets and the legend, in
drawing order. It never draws (`topology.draw.render` does) and never rates a link or chooses a set.

Method: places from `topology.draw.layout`. Lengths are inches with the middle of the machine at the
origin, line widths and font sizes are points, angles are degrees. A pair's direct links become a
line, a switch port a line to the fabric's hub, as wide as there are links. Colours are the palette
of Okabe and Ito (2008, "Color Universal Design"), distinguishable with any kind of colour
vision; the legend names every set's GPUs besides.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.draw.layout import NIC_HEIGHT, NIC_LENGTH, Band, lay_out
from topology.draw.shapes import Box, Disc, Lines, Scene, Text, Wedge
from topology.errors import InvalidRequest, UnknownDevice, quote
from topology.model import AcceleratorLink, LinkKind, PcieLevel
from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topology.draw.shapes import Point, Segment, Shape
    from topology.model import NodeTopology

__all__ = ["SET_COLOURS", "compose_scene"]

SET_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442")
"""Okabe and Ito's palette without black, in an order that keeps neighbours far apart."""

_INK, _FAINT_INK, _LINE, _HUB = "#1b2226", "#59646d", "#8d99a3", "#37424a"
_SECTOR_FILL = {Band.HOST: "#f2f4f6", Band.PXB: "#e4e9ed", Band.PIX: "#d2dae1"}
_SECTOR_EDGE = {Band.HOST: "#b9c2ca", Band.PXB: "#a9b4bd", Band.PIX: "#94a1ac"}
_SECTOR_TEXT = {Band.HOST: "NUMA node", Band.PXB: "PCIe tree (PXB)", Band.PIX: "PCIe switch (PIX)"}
_KIND_TEXT = {
    LinkKind.NVLINK: "NVLink",
    LinkKind.XGMI: "XGMI",
    LinkKind.C2C: "C2C",
    LinkKind.METAXLINK: "MetaXLink",
}
_ROW = 0.2
_SAMPLE = 0.32
_LEAST_WIDTH, _MOST_LEGEND_WIDTH = 4.6, 6.4
_CHARACTER_WIDTH = 0.58 / 72
"""Mean width of a character of DejaVu Sans, inches per point of size, on the safe side."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What makes two lines alike; `colour` is None outside of sets."""

    link: AcceleratorLink
    is_up: bool
    colour: str | None

    def lines(self, segments: Sequence[Segment]) -> Lines:
        """More links make a wider line, up to 4.6 points at 4 and more."""
        width = min(1.2 * (self.link.n_links or 1) - 0.2, 4.6) if self.is_up else 1.4
        style = ":" if not self.is_up else "-" if self.link.n_links is not None else "--"
        return Lines(
            tuple(segments),
            self.colour or _LINE,
            width + (0.7 if self.colour else 0.0),
            style,
        )

    def text(self) -> str:
        name = _KIND_TEXT[self.link.kind]
        if not self.is_up:
            return f"{name}, down"
        if self.link.n_links is None:
            return f"{name}, links not counted"
        return f"{name}, {self.link.n_links} link{'s' if self.link.n_links > 1 else ''}"


class _Composer:
    """One composition in progress: the inputs, checked, and what all parts need."""

    def __init__(
        self, topology: NodeTopology, sets: Sequence[tuple[str, Sequence[int]]], title: str | None
    ) -> None:
        self.topology = topology
        self.layout = lay_out(topology)
        self.spots = [(place.x, place.y) for place in self.layout.gpus]
        self.hubs = [(place.x, place.y) for place in self.layout.hubs]
        self.sets = [(printable(name), _members(name, gpus, topology)) for name, gpus in sets]
        self.title = printable(title or topology.name or f"{topology.n_gpus} GPUs")
        self.looks = self._looks()
        self.width = max(2 * self.layout.extent + 0.3, _LEAST_WIDTH)

    def scene(self) -> Scene:
        legend, height = self._legend(top=-self.layout.extent - 0.2)
        above = self.layout.extent + 0.62
        return Scene(
            title=self.title,
            width=self.width,
            above=above,
            below=self.layout.extent + height + 0.2,
            shapes=(
                *self._header(above),
                *self._sectors(),
                *self._links(),
                *self._weak_ports(),
                *self._middle(),
                *self._gpus(),
                *self._nics(),
                *legend,
            ),
        )

    # Links

    def _colour(self, *gpus: int) -> str | None:
        """Give the colour of the first set that holds all of these GPUs."""
        for k, (_, members) in enumerate(self.sets):
            if members.issuperset(gpus):
                return _set_colour(k)
        return None

    def _looks(self) -> dict[_Look, list[Segment]]:
        """Group all lines by look: direct links outside of fabrics, then switch ports."""
        looks: dict[_Look, list[Segment]] = {}
        fabrics = {gpu: k for k, f in enumerate(self.topology.fabrics) for gpu, _ in f.ports}
        for i, row in enumerate(self.topology.links):
            for j, link in enumerate(row[:i]):
                is_switched = i in fabrics and fabrics[i] == fabrics.get(j)
                if link.is_up and not is_switched:
                    look = _Look(link, is_up=True, colour=self._colour(i, j))
                    looks.setdefault(look, []).append((self.spots[j], self.spots[i]))
        for fabric, hub in zip(self.topology.fabrics, self.hubs, strict=True):
            for gpu, n_links in fabric.ports:
                is_up = fabric.is_up and n_links > 0
                link = AcceleratorLink(fabric.kind, n_links or None)
                look = _Look(link, is_up=is_up, colour=self._colour(gpu) if is_up else None)
                looks.setdefault(look, []).append((self.spots[gpu], hub))
        return looks

    def _links(self) -> list[Shape]:
        """Draw the lines of sets above the rest."""
        ordered = sorted(self.looks.items(), key=lambda item: item[0].colour is not None)
        return [look.lines(segments) for look, segments in ordered]

    def _weak_ports(self) -> list[Shape]:
        """Write the count on a switch port that has fewer links up than the fabric's best."""
        texts: list[Shape] = []
        for fabric, hub in zip(self.topology.fabrics, self.hubs, strict=True):
            best = max(n_links for _, n_links in fabric.ports)
            for gpu, n_links in fabric.ports:
                if n_links < best:
                    x, y = self.spots[gpu]
                    at = (0.6 * x + 0.4 * hub[0], 0.6 * y + 0.4 * hub[1])
                    texts.append(Text(at, str(n_links), 7, _INK, is_bold=True, backing="white"))
        return texts

    # Parts

    def _header(self, above: float) -> list[Shape]:
        models = Counter(gpu.model or "GPU of unknown model" for gpu in self.topology.gpus)
        text = ", ".join(f"{n} × {printable(model)}" for model, n in models.items())
        title = _cut(self.title, self.width - 0.2, 11)
        subtitle = _cut(text, self.width - 0.2, 8)
        return [
            Text((0, above - 0.2), title, 11, _INK, is_bold=True),
            Text((0, above - 0.42), subtitle, 8, _FAINT_INK),
        ]

    def _sectors(self) -> list[Shape]:
        shapes: list[Shape] = []
        for band in reversed(Band):
            for s in (s for s in self.layout.sectors if s.band is band):
                fill, edge = _SECTOR_FILL[band], _SECTOR_EDGE[band]
                shapes.append(Wedge((0, 0), s.inner, s.outer, s.start_deg, s.end_deg, fill, edge))
                if s.label is not None:
                    angle = math.radians((s.start_deg + s.end_deg) / 2)
                    radius = s.outer + 0.11
                    at = (radius * math.cos(angle), radius * math.sin(angle))
                    turn = _along(angle)
                    shapes.append(Text(at, s.label, 7.5, _FAINT_INK, turn_deg=turn))
        return shapes

    def _middle(self) -> list[Shape]:
        """Draw the hubs or, where no line is drawn, say why the middle is empty."""
        shapes: list[Shape] = []
        for fabric, hub in zip(self.topology.fabrics, self.hubs, strict=True):
            is_nvlink = fabric.kind is LinkKind.NVLINK
            name = "NVSwitch" if is_nvlink else f"{_KIND_TEXT[fabric.kind]} switch"
            name += "" if fabric.is_up else " (down)"
            fill, ink = (_HUB, "white") if fabric.is_up else ("white", _FAINT_INK)
            width = 0.075 * len(name) + 0.2
            shapes.append(Box(hub, width, 0.3, fill, _INK, is_dashed=not fabric.is_up))
            shapes.append(Text(hub, name, 8, ink, is_bold=True))
        if not self.looks and self.topology.n_gpus > 1:
            is_known = all(link.is_known for row in self.topology.links for link in row)
            text = "no direct\nGPU links" if is_known else "direct links\nunknown"
            shapes.append(Text((0, 0), text, 8, _FAINT_INK))
        return shapes

    def _gpus(self) -> list[Shape]:
        shapes: list[Shape] = []
        radius = self.layout.gpu_radius
        for gpu, at in enumerate(self.spots):
            fills = [_set_colour(k) for k, (_, members) in enumerate(self.sets) if gpu in members]
            shapes.append(Disc(at, radius, fills[0] if fills else "white", _INK))
            for k, fill in enumerate(fills[1:], start=1):
                start, end = 90 + 360 * k / len(fills), 90 + 360 * (k + 1) / len(fills)
                shapes.append(Wedge(at, 0, 0.95 * radius, start, end, fill, None))
            ink = _ink_on(fills[0]) if len(fills) == 1 else _INK
            shapes.append(Text(at, str(gpu), 47.5 * radius, ink, is_bold=True))
        return shapes

    def _nics(self) -> list[Shape]:
        shapes: list[Shape] = []
        for nic in self.layout.nics:
            at, turn = (nic.place.x, nic.place.y), _along(nic.place.angle)
            shapes.append(Box(at, NIC_LENGTH, NIC_HEIGHT, "white", _INK, turn_deg=turn))
            shapes.append(Text(at, printable(nic.label), 6, _INK, turn_deg=turn))
        return shapes

    # Legend

    def _rows(self) -> list[tuple[str, Callable[[Point], Shape]]]:
        """List the machine's own parts, then what is unknown: a text and how to draw its sample."""
        rows: list[tuple[str, Callable[[Point], Shape]]] = []
        plain = {_Look(look.link, look.is_up, colour=None) for look in self.looks}
        for look in sorted(plain, key=lambda a: (not a.is_up, a.link.n_links or 0, a.text())):
            if look.text() not in {text for text, _ in rows}:
                rows.append((look.text(), _line_sample(look)))
        present = {sector.band for sector in self.layout.sectors}
        rows.extend(
            (_SECTOR_TEXT[band], _box_sample(_SECTOR_FILL[band], _SECTOR_EDGE[band]))
            for band in reversed(Band)
            if band in present
        )
        if self.layout.nics:
            rows.append(("NIC, beside its nearest GPUs", _box_sample("white", _INK)))
        rows.extend((text, _question_mark) for text in _unknowns(self.topology))
        return rows

    def _legend(self, *, top: float) -> tuple[list[Shape], float]:
        """Write the parts in two columns, below them one row for each set; and their height."""
        left = -min(self.width, _MOST_LEGEND_WIDTH) / 2 + 0.15
        column = -left + 0.05
        indent = _SAMPLE + 0.1
        shapes: list[Shape] = []
        rows = self._rows()
        for k, (text, sample) in enumerate(rows):
            x, y = left + column * (k % 2), top - _ROW * (k // 2)
            shapes.append(sample((x + _SAMPLE / 2, y)))
            shapes.append(_entry((x + indent, y), text, column - indent))
        n_lines = math.ceil(len(rows) / 2)
        for k, (name, members) in enumerate(self.sets, start=n_lines):
            y = top - _ROW * k
            fill = _set_colour(k - n_lines)
            shapes.append(Disc((left + _SAMPLE / 2, y), 0.07, fill, _INK))
            text = f"{name}: GPU {', '.join(map(str, sorted(members)))}"
            shapes.append(_entry((left + indent, y), text, -2 * left - indent))
        return shapes, _ROW * (n_lines + len(self.sets))


def _line_sample(look: _Look) -> Callable[[Point], Shape]:
    return lambda at: look.lines([((at[0] - _SAMPLE / 2, at[1]), (at[0] + _SAMPLE / 2, at[1]))])


def _box_sample(fill: str, edge: str) -> Callable[[Point], Shape]:
    return lambda at: Box(at, _SAMPLE, 0.12, fill, edge)


def _entry(at: Point, text: str, inches: float) -> Shape:
    return Text(at, _cut(text, inches, 7.5), 7.5, _INK, is_left_aligned=True)


def _question_mark(at: Point) -> Shape:
    return Text(at, "?", 8, _FAINT_INK, is_bold=True)


def _members(name: str, gpus: Sequence[int], topology: NodeTopology) -> frozenset[int]:
    if not gpus:
        msg = f"set {quote(name)} holds no GPU, expected at least one"
        raise InvalidRequest(msg)
    for gpu in gpus:
        if not 0 <= gpu < topology.n_gpus:
            msg = f"set {quote(name)}: GPU {gpu} is not there, expected 0..{topology.n_gpus - 1}"
            raise UnknownDevice(msg)
    return frozenset(gpus)


def _unknowns(topology: NodeTopology) -> list[str]:
    pairs = [(i, j) for i in range(topology.n_gpus) for j in range(i)]
    counts = {
        "links": sum(not topology.links[i][j].is_known for i, j in pairs),
        "PCIe": sum(topology.pcie[i][j] is PcieLevel.UNKNOWN for i, j in pairs),
    }
    return [
        f"{label} unknown: {'all' if count == len(pairs) else f'{count} of {len(pairs)}'} pairs"
        for label, count in counts.items()
        if count
    ]


def _cut(text: str, inches: float, size: float) -> str:
    most = int(inches / (size * _CHARACTER_WIDTH))
    return text if len(text) <= most else text[: most - 1] + "…"


def _set_colour(index: int) -> str:
    return SET_COLOURS[index % len(SET_COLOURS)]


def _along(angle: float) -> float:
    """Turn a text along the circle where it stands (radians from the middle), never upside down."""
    turn = math.degrees(angle) % 360 - 90
    return turn - 180 if turn > 90 + 1e-6 else turn


def _ink_on(fill: str) -> str:
    """Choose dark or white text by the higher contrast ratio with the fill (WCAG 2.2)."""
    parts = [int(fill[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]  # noqa: PLR2004 - sRGB
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
    dark = 0.064  # luminance of _INK, with the same 0.05 added
    return "white" if 1.05 / luminance > luminance / dark else _INK


def compose_scene(
    topology: NodeTopology,
    *,
    sets: Sequence[tuple[str, Sequence[int]]] = (),
    title: str | None = None,
) -> Scene:
    """Compose the picture of a machine, each named set in its own colour.

    `title` defaults to the topology's name. Above seven sets colours repeat; a GPU in several sets
    shows all their colours. Raises `UnknownDevice` for a GPU that the node does not have,
    `InvalidRequest` for an empty set. O(n^2) in GPUs.
    """
    return _Composer(topology, sets, title).scene()
