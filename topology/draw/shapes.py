"""The shapes a picture is made of.

What it answers: which kinds of shape there are and what each needs to be drawn. They are plain
values: `topology.draw.scene` makes them, `topology.draw.render` renders them, tests compare them.
Lengths are inches from the middle of the machine, x to the right and y up; line widths and font
sizes are points; angles are degrees, counter-clockwise; colours are `#rrggbb` or a CSS name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Box",
    "Disc",
    "Lines",
    "Point",
    "Scene",
    "Segment",
    "Shape",
    "Text",
    "Wedge",
]

Point: TypeAlias = tuple[float, float]
Segment: TypeAlias = tuple[Point, Point]


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, or several, around (or right of) a point."""

    at: Point
    text: str
    size: float
    colour: str
    is_bold: bool = False
    is_left_aligned: bool = False
    turn_deg: float = 0.0
    backing: str | None = None


@dataclass(frozen=True, slots=True)
class Disc:
    """A filled disc with an outline."""

    at: Point
    radius: float
    fill: str
    edge: str


@dataclass(frozen=True, slots=True)
class Wedge:
    """A sector of a ring or, with `inner` 0, of a disc; `edge` None is no outline."""

    at: Point
    inner: float
    outer: float
    start_deg: float
    end_deg: float
    fill: str
    edge: str | None


@dataclass(frozen=True, slots=True)
class Lines:
    """Straight lines of one look. `style` is matplotlib's: "-", "--" or ":"."""

    segments: tuple[Segment, ...]
    colour: str
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Box:
    """A filled box around a point, turned about it."""

    at: Point
    width: float
    height: float
    fill: str
    edge: str
    turn_deg: float = 0.0
    is_dashed: bool = False


Shape: TypeAlias = Text | Disc | Wedge | Lines | Box


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole picture: it reaches from -width / 2 to width / 2 and from -below to above."""

    title: str
    width: float
    above: float
    below: float
    shapes: tuple[Shape, ...]
