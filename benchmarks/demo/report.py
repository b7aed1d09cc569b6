"""The demo's report: one self-contained HTML file.

Shows the runs in figures and pictures. The file refers to nothing outside itself and works in light
and dark and on a phone. No figure is computed here (`benchmarks.demo.figures`); pictures of
machines are `topology.draw.render`'s, the section on jobs of several pods
`benchmarks.demo.groups.section`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined

from benchmarks.demo.examples import count_waits, longest_extra_wait
from benchmarks.demo.figures import has_affinity, show_percent
from benchmarks.demo.gains import OURS, RIVAL, count_tally, say_gain, say_result
from benchmarks.demo.groups.section import count_job_drawings, make_section
from benchmarks.demo.page_picture import page_picture
from benchmarks.demo.pods import DURATION_MINUTES, PRODUCT_LABEL
from benchmarks.masks import members
from topology.draw.render import draw_topology
from topology.draw.scene import SET_COLOURS, compose_scene
from topology.draw.shapes import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from markupsafe import Markup

    from benchmarks.demo.examples import Example
    from benchmarks.demo.figures import Figures, Span
    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.gains import Gain, Matched
    from benchmarks.demo.groups.comparison import GroupDemo
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.timeline import Placed, Run
    from benchmarks.report import Environment

__all__ = ["Demo", "Tile", "count_drawings", "gbytes", "make_tiles", "percent", "render_report"]

CLASS_BOUNDS = ((0.98, "a"), (0.90, "b"), (0.70, "c"), (0.0, "d"))
"""Least relative bandwidth of each colour; the extender's own loss classes (2, 10, 30 %)."""
POINTS_PER_INCH = 72
LEGEND_MARGIN = 0.16
"""Inches from the middle of the legend's first row up to where a picture is cut."""


@dataclass(frozen=True, slots=True)
class Demo:
    """Everything that the report shows. `runs` in the order of the columns, Coterie last.

    `runs` and `figures` are of the first mix; `spans`, `matched`, `gains` and `examples` of all.
    """

    seed: int
    cluster: str
    nodes: Mapping[str, DemoNode]
    pods: tuple[DemoPod, ...]
    runs: tuple[Run, ...]
    figures: tuple[Figures, ...]
    spans: tuple[Span, ...]
    matched: tuple[Matched, ...]
    gains: tuple[Gain, ...]
    examples: tuple[Example, ...]
    jobs: GroupDemo
    n_requests: int
    seconds: float
    environment: Environment
    version: str


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure at the top: Coterie's, that of NVIDIA's best-effort, and what it is."""

    ours: str
    theirs: str
    text: str


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
    """How many pictures the report draws."""
    n_machines = len(demo.runs) * len(_showcase(demo)) + 2 * len(demo.examples)
    return n_machines + count_job_drawings(demo.jobs)


def render_report(demo: Demo, *, advance: Callable[[], None] = lambda: None) -> str:
    """Write the page; `advance` is called after each picture drawn.

    The same demo gives the same page.
    """
    templates = Templates(
        loader=PackageLoader("benchmarks.demo", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "percent": percent,
        "gbytes": gbytes,
        "gpus": _gpus,
        "gain": say_gain,
        "class": _class,
    }
    return templates.get_template("report.html.j2").render(
        demo=demo,
        n_gpus=sum(node.n_gpus for node in demo.nodes.values()),
        n_machines=len({node.machine for node in demo.nodes.values()}),
        plain=demo.figures[0],
        rival=demo.figures[RIVAL],
        ours=demo.figures[OURS],
        result=say_result(demo.matched, demo.nodes, demo.spans),
        tiles=make_tiles(demo),
        spreads=[_spread(run, demo) for run in demo.runs],
        waits=[count_waits(run, demo.pods, demo.nodes) for run in demo.runs],
        extra_wait=longest_extra_wait(demo.runs[OURS], demo.runs[RIVAL]),
        examples=[_example(one, demo, advance) for one in demo.examples],
        jobs=make_section(demo.jobs, advance),
        fleet=_fleet_map(demo),
        machines=[_machine(node, demo, advance) for node in _showcase(demo)],
        durations=DURATION_MINUTES,
        label=PRODUCT_LABEL,
    )


def make_tiles(demo: Demo) -> tuple[Tile, ...]:
    """The figures at the top, over all mixes, each beside that of NVIDIA's best-effort."""
    ours, rival, plain = demo.spans[OURS], demo.spans[RIVAL], demo.spans[0]
    versus = f"Coterie vs {rival.policy}"
    tiles: list[Tile] = []
    if demo.matched:
        columns = list(zip(*(one.shares for one in demo.matched), strict=True))
        means = [percent(fmean(column), 1) for column in columns]
        worst = [percent(min(column)) for column in columns]
        tally = count_tally(demo.matched)
        n_flat = sum(gain.n_pods for gain in demo.gains if gain.is_flat)
        tiles += [
            Tile(
                means[OURS],
                means[RIVAL],
                f"of the machine's best bandwidth, mean of {len(demo.matched)} pods on the same "
                f"machine types: {versus} ({plain.policy} {means[0]})",
            ),
            Tile(
                worst[OURS],
                worst[RIVAL],
                f"the worst of these pods: {versus} ({plain.policy} {worst[0]})",
            ),
            Tile(
                f"{tally.faster}",
                f"{tally.slower}",
                f"of these pods are faster with Coterie vs with {rival.policy}; {tally.equal} are "
                f"equal, {n_flat} of the {len(demo.matched)} on machines where every set is "
                "equally fast",
            ),
        ]
    tiles += [
        Tile(
            f"{ours.n_required_missed:.1f}",
            f"{rival.n_required_missed:.1f}",
            f"pods of a mix without the affinity that they required: {versus} "
            f"({plain.policy} {plain.n_required_missed:.1f})",
        ),
        Tile(
            f"{ours.n_waited:.1f}",
            f"{rival.n_waited:.1f}",
            f"pods of a mix of {len(demo.pods)} that waited: {versus} "
            f"({plain.policy} {plain.n_waited:.1f})",
        ),
    ]
    return tuple(tiles)


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
    return page_picture(draw_topology(node.topology, sets=sets, title=node.name), height)


def _example(example: Example, demo: Demo, advance: Callable[[], None]) -> dict[str, object]:
    """One of the example pods: its request, and where each policy put it."""
    matched = example.matched
    rows = [
        {
            "policy": run.policy,
            "node": one.place.node,
            "gpus": one.place.gpus,
            "value": value,
            "share": share,
            "colour": _class(share),
            "missed": not has_affinity(one, demo.nodes),
            "waited": one.waited_minutes,
        }
        for run, one, value, share in zip(
            demo.runs, matched.placed, matched.gbytes_per_s, matched.shares, strict=True
        )
    ]
    pictures: list[_Picture] = []
    for number in (RIVAL if example.best_rival is None else example.best_rival, OURS):
        one = matched.placed[number]
        drawing = _draw(demo.nodes[one.place.node], [one])
        pictures.append(_Picture(demo.runs[number].policy, drawing, _bandwidth(one, demo)))
        advance()
    rival = None if example.best_rival is None else demo.runs[example.best_rival].policy
    return {"of": matched, "rows": rows, "pictures": pictures, "rival": rival}


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
    return tuple(sorted(chosen.values(), key=lambda node: node.is_flat))


def _machine(node: DemoNode, demo: Demo, advance: Callable[[], None]) -> _Machine:
    pictures: list[_Picture] = []
    for run in demo.runs:
        held = [one for one in run.busiest.running if one.place.node == node.name]
        n_free = run.busiest.free[node.name].bit_count()
        caption = f"{len(held)} pod{'s' if len(held) != 1 else ''}, {n_free} free"
        picture = _Picture(run.policy, _draw(node, held), caption, _legend(held, demo))
        pictures.append(picture)
        advance()
    return _Machine(node.machine, node.name, node.is_flat, tuple(pictures))
