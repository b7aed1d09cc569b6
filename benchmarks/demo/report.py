"""The demo's report: one self-contained HTML file.

Shows the runs in figures and pictures. The file refers to nothing outside itself and works in light
and dark and on a phone. No figure is computed here (`benchmarks.demo.figures`); pictures of
machines are `topology.draw.render`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.demo.figures import has_affinity, relative_by_machine, show_percent
from benchmarks.demo.pods import DURATION_MINUTES
from benchmarks.masks import members
from topology.draw.render import draw_topology
from topology.draw.scene import SET_COLOURS, compose_scene
from topology.draw.shapes import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.demo.figures import Duel, Figures, Span
    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.timeline import Placed, Run
    from benchmarks.report import Environment

__all__ = ["Demo", "count_drawings", "gbytes", "percent", "render_report"]

CLASS_BOUNDS = ((0.98, "a"), (0.90, "b"), (0.70, "c"), (0.0, "d"))
"""Least relative bandwidth of each colour; the extender's own loss classes (2, 10, 30 %)."""
_FONT = re.compile(r" ?font-family: [^;\"]*;?")
_FRAME = re.compile(r'width="[^"]*" height="[^"]*" viewBox="0 0 ([0-9.]+) [0-9.]+"')
POINTS_PER_INCH = 72
LEGEND_MARGIN = 0.16
"""Inches from the middle of the legend's first row up to where a picture is cut."""


@dataclass(frozen=True, slots=True)
class Demo:
    """Everything that the report shows. `runs` in the order of the columns, Coterie last.

    `showcased` are the first of `duels`; `spans` sum this mix and the further ones up.
    """

    seed: int
    cluster: str
    nodes: Mapping[str, DemoNode]
    pods: tuple[DemoPod, ...]
    runs: tuple[Run, ...]
    figures: tuple[Figures, ...]
    duels: tuple[Duel, ...]
    showcased: tuple[Duel, ...]
    spans: tuple[Span, ...]
    n_requests: int
    seconds: float
    environment: Environment
    version: str


@dataclass(frozen=True, slots=True)
class _Cell:
    """One GPU in the map of the fleet: its colour class and its tooltip."""

    colour: str
    title: str


@dataclass(frozen=True, slots=True)
class _Legend:
    """One pod in a picture: its colour there, and what is said of it."""

    colour: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class _Picture:
    """One machine drawn, with its heading and its caption."""

    policy: str
    svg: Markup
    caption: str
    legend: tuple[_Legend, ...] = ()


@dataclass(frozen=True, slots=True)
class _Machine:
    """One node of a machine type, under every policy."""

    machine: str
    node: str
    is_flat: bool
    pictures: tuple[_Picture, ...]


def count_drawings(demo: Demo) -> int:
    """How many machines the report draws."""
    return len(demo.runs) * len(_showcase(demo)) + 2 * len(demo.showcased)


def render_report(demo: Demo, *, advance: Callable[[], None] = lambda: None) -> str:
    """Write the page; `advance` is called after each machine drawn.

    The same demo gives the same page.
    """
    templates = Templates(
        loader=PackageLoader("benchmarks.demo", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"percent": percent, "gbytes": gbytes, "gpus": _gpus}
    return templates.get_template("report.html.j2").render(
        demo=demo,
        n_gpus=sum(node.n_gpus for node in demo.nodes.values()),
        n_machines=len({node.machine for node in demo.nodes.values()}),
        plain=demo.figures[0],
        ours=demo.figures[-1],
        spreads=[_spread(run, demo) for run in demo.runs],
        tally=_tally(demo),
        showcased=[_showcased(duel, demo, advance) for duel in demo.showcased],
        fleet=_fleet_map(demo),
        machines=[_machine(node, demo, advance) for node in _showcase(demo)],
        by_machine=_by_machine(demo),
        durations=DURATION_MINUTES,
    )


def percent(share: float, digits: int = 0) -> str:
    """A share for people; only a whole one is 100 %."""
    return f"{show_percent(share, digits)} %"


def gbytes(value: float) -> str:
    """A bandwidth with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _gpus(mask: int) -> str:
    return ", ".join(str(gpu) for gpu in members(mask))


def _value(one: Placed, demo: Demo) -> float:
    return demo.nodes[one.place.node].value_gbytes_per_s(one.place.gpus)


def _relative(one: Placed, demo: Demo) -> float:
    return demo.nodes[one.place.node].relative(one.place.gpus)


def _class(share: float) -> str:
    return next(name for least, name in CLASS_BOUNDS if share >= least)


def _spread(run: Run, demo: Demo) -> dict[str, int]:
    """How many judged pods fall into each colour."""
    counts = {name: 0 for _, name in CLASS_BOUNDS}
    for one in run.placed:
        if one.pod.is_judged:
            counts[_class(_relative(one, demo))] += 1
    return counts


def _tally(demo: Demo) -> dict[str, int]:
    """For how many judged pods Coterie's share is above, equal to or below the plain kubelet's."""
    gaps = [round(duel.gap, 6) for duel in demo.duels]
    return {
        "above": sum(gap > 0 for gap in gaps),
        "equal": sum(gap == 0 for gap in gaps),
        "below": sum(gap < 0 for gap in gaps),
    }


def _legend(held: Sequence[Placed], demo: Demo) -> tuple[_Legend, ...]:
    """The pods of a picture in the order in which they were drawn."""
    return tuple(
        _Legend(SET_COLOURS[i % len(SET_COLOURS)], one.pod.name, _bandwidth(one, demo))
        for i, one in enumerate(held)
    )


def _bandwidth(one: Placed, demo: Demo) -> str:
    if one.pod.size == 1:
        return "one GPU"
    return f"{gbytes(_value(one, demo))} GB/s, {percent(_relative(one, demo))}"


def _draw(node: DemoNode, held: Sequence[Placed]) -> Markup:
    """Draw a machine with its pods. Fonts, size and legend are the page's.

    The drawing's own legend, its left-aligned texts, is too small beside three others: it is cut.
    """
    sets = tuple((one.pod.name, members(one.place.gpus)) for one in held)
    scene = compose_scene(node.topology, sets=sets, title=node.name)
    rows = [
        shape.at[1] for shape in scene.shapes if isinstance(shape, Text) and shape.is_left_aligned
    ]
    bottom = max(rows) + LEGEND_MARGIN if rows else -scene.below
    height = POINTS_PER_INCH * (scene.above - bottom)
    svg = draw_topology(node.topology, sets=sets, title=node.name)
    svg = _FRAME.sub(rf'viewBox="0 0 \1 {height:.2f}"', _FONT.sub("", svg), count=1)
    return Markup(svg)  # noqa: S704 - our own drawing, escaped there


def _showcased(duel: Duel, demo: Demo, advance: Callable[[], None]) -> dict[str, object]:
    """One of the showcased pods: its request, and where each policy put it."""
    uid = duel.ours.pod.uid
    rows: list[dict[str, object]] = []
    for run in demo.runs:
        one = next((placed for placed in run.placed if placed.pod.uid == uid), None)
        if one is None:
            continue
        node = demo.nodes[one.place.node]
        rows.append(
            {
                "policy": run.policy,
                "node": node.name,
                "gpus": one.place.gpus,
                "value": _value(one, demo),
                "share": _relative(one, demo),
                "colour": _class(_relative(one, demo)),
                "missed": not has_affinity(one, demo.nodes),
                "waited": one.waited_minutes,
            }
        )
    pictures: list[_Picture] = []
    for run, one in ((demo.runs[0], duel.theirs), (demo.runs[-1], duel.ours)):
        node = demo.nodes[one.place.node]
        pictures.append(_Picture(run.policy, _draw(node, [one]), _bandwidth(one, demo)))
        advance()
    return {"pod": duel.ours.pod, "rows": rows, "pictures": pictures}


def _fleet_map(demo: Demo) -> list[dict[str, object]]:
    """Every node with a strip of cells for each policy, right after the last arrival."""
    by_run = [
        {
            (one.place.node, gpu): one
            for one in run.busiest.running
            for gpu in members(one.place.gpus)
        }
        for run in demo.runs
    ]
    return [
        {
            "name": node.name,
            "strips": [
                [_cell(held.get((node.name, gpu)), gpu, demo) for gpu in range(node.n_gpus)]
                for held in by_run
            ],
        }
        for node in demo.nodes.values()
    ]


def _cell(one: Placed | None, gpu: int, demo: Demo) -> _Cell:
    if one is None:
        return _Cell("free", f"GPU {gpu}: free")
    pod = one.pod
    title = f"GPU {gpu}: {pod.name}, {pod.size} GPU{'s' if pod.size > 1 else ''}, {pod.wish}"
    if pod.size == 1:
        return _Cell("one", title)
    title += f": {gbytes(_value(one, demo))} GB/s, {percent(_relative(one, demo))} of the best"
    return _Cell(_class(_relative(one, demo)) if pod.is_judged else "none", title)


def _showcase(demo: Demo) -> tuple[DemoNode, ...]:
    """One node of each machine type: the one with the most sets of several GPUs over all policies.

    Machines on which sets differ come first. Equal ones: the first in the fleet's order.
    """
    counts = dict.fromkeys(demo.nodes, 0)
    for run in demo.runs:
        for one in run.busiest.running:
            counts[one.place.node] += one.pod.size > 1
    chosen: dict[str, DemoNode] = {}
    for name, node in demo.nodes.items():
        if node.machine not in chosen or counts[name] > counts[chosen[node.machine].name]:
            chosen[node.machine] = node
    return tuple(sorted(chosen.values(), key=_is_flat))


def _is_flat(node: DemoNode) -> bool:
    """Whether every set of a size is worth the same, within 2 %: a switched fabric."""
    everything = (1 << node.n_gpus) - 1
    return all(
        node.relative(mask) >= CLASS_BOUNDS[0][0]
        for mask in range(1, everything + 1)
        if mask.bit_count() > 1
    )


def _machine(node: DemoNode, demo: Demo, advance: Callable[[], None]) -> _Machine:
    pictures: list[_Picture] = []
    for run in demo.runs:
        held = [one for one in run.busiest.running if one.place.node == node.name]
        n_free = run.busiest.free[node.name].bit_count()
        caption = f"{len(held)} pod{'s' if len(held) != 1 else ''}, {n_free} free"
        picture = _Picture(run.policy, _draw(node, held), caption, _legend(held, demo))
        pictures.append(picture)
        advance()
    return _Machine(node.machine, node.name, _is_flat(node), tuple(pictures))


def _by_machine(demo: Demo) -> list[dict[str, object]]:
    shares = [relative_by_machine(run, demo.nodes) for run in demo.runs]
    counts: dict[str, int] = {}
    for node in demo.nodes.values():
        counts[node.machine] = counts.get(node.machine, 0) + 1
    return [
        {
            "machine": machine,
            "n_nodes": n_nodes,
            "cells": [
                {"n": of[machine][0], "share": of[machine][1], "colour": _class(of[machine][1])}
                for of in shares
            ],
        }
        for machine, n_nodes in counts.items()
    ]
