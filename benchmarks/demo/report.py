"""The demo's report: one self-contained HTML file.

Shows the runs in figures and pictures. The file refers to nothing outside itself and works in light
and dark and on a phone. No figure is computed here (`benchmarks.demo.results`); pictures of
machines are `topology.draw.render`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.demo.jobs import JOBS, MACHINE, by_leaf, say_jobs
from benchmarks.demo.pods import DURATION_MINUTES, PRODUCT_LABEL
from benchmarks.demo.results import OURS, RIVAL, say_gain, say_result, show_percent
from topology.draw.render import draw_topology
from topology.draw.scene import SET_COLOURS
from topology.groups import GROUP_STATED_ERROR
from topology.model import gpus_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.jobs import JobsRun
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.results import Example, Figures, Gain, Matched
    from benchmarks.demo.timeline import Placed, Run
    from benchmarks.report import Environment

__all__ = ["Demo", "render_report"]

CLASS_BOUNDS = ((0.98, "a"), (0.90, "b"), (0.70, "c"), (0.0, "d"))
"""Least relative bandwidth of each colour; the extender's own loss classes (2, 10, 30 %)."""
JOB_COLOURS = {job.name: SET_COLOURS[number] for number, job in enumerate(JOBS)}


@dataclass(frozen=True, slots=True)
class Demo:
    """Everything that is shown. `runs` and `figures` in the order of the columns, Coterie last.

    `runs` are of the first of `n_mixes` mixes, which has `pods`; `figures`, `matched`, `gains` and
    `examples` of all. `jobs` are one by one and by Coterie.
    """

    seed: int
    n_mixes: int
    cluster: str
    nodes: Mapping[str, DemoNode]
    pods: tuple[DemoPod, ...]
    runs: tuple[Run, ...]
    figures: tuple[Figures, ...]
    matched: tuple[Matched, ...]
    gains: tuple[Gain, ...]
    examples: tuple[Example, ...]
    pool: Mapping[str, DemoNode]
    jobs: tuple[JobsRun, JobsRun]
    n_requests: int
    seconds: float
    environment: Environment
    version: str


@dataclass(frozen=True, slots=True)
class _Cell:
    """One GPU in a map: its class, its tooltip, and its colour where it has one of its own."""

    kind: str
    title: str
    colour: str = ""


def render_report(demo: Demo) -> str:
    """Write the page; the same demo gives the same page."""
    templates = Templates(
        loader=PackageLoader("benchmarks.demo", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"percent": _percent, "gbytes": _gbytes, "gain": say_gain, "class": _class}
    return templates.get_template("report.html.j2").render(
        demo=demo,
        n_gpus=sum(node.n_gpus for node in demo.nodes.values()),
        n_machines=len({node.machine for node in demo.nodes.values()}),
        rival=demo.figures[RIVAL],
        result=say_result(demo.matched, demo.figures, len(demo.pods)),
        examples=[_example(one, demo) for one in demo.examples],
        fleet=_fleet_map(demo),
        jobs_result=say_jobs(*demo.jobs),
        job_rows=[*zip(*(run.outcomes for run in demo.jobs), strict=True)],
        job_maps=[(run.policy, _job_map(run, demo.pool)) for run in demo.jobs],
        job_colours=[(JOB_COLOURS[job.name], f"{job.name}, {job.shape}") for job in JOBS],
        job_machine=MACHINE,
        n_leaves=len(by_leaf(demo.pool)),
        error=GROUP_STATED_ERROR,
        durations=DURATION_MINUTES,
        label=PRODUCT_LABEL,
    )


def _percent(share: float, digits: int = 0) -> str:
    return f"{show_percent(share, digits)} %"


def _gbytes(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _class(share: float) -> str:
    return next(name for least, name in CLASS_BOUNDS if share >= least)


def _example(example: Example, demo: Demo) -> dict[str, object]:
    """One of the example pods: its request, and where each policy put it."""
    matched = example.matched
    rows = [
        {
            "policy": figures.policy,
            "node": one.place.node,
            "gpus": ", ".join(str(gpu) for gpu in gpus_of(one.place.gpus)),
            "value": value,
            "share": share,
            "missed": not demo.nodes[one.place.node].has_affinity(
                one.place.gpus, one.pod.policy.affinity
            ),
            "waited": one.waited_minutes,
        }
        for figures, one, value, share in zip(
            demo.figures, matched.placed, matched.gbytes_per_s, matched.shares, strict=True
        )
    ]
    rival = RIVAL if example.best_rival is None else example.best_rival
    pictures = [
        (demo.figures[number].policy, _draw(matched.placed[number], demo))
        for number in (rival, OURS)
    ]
    is_loss = example.best_rival is not None
    return {"of": matched, "rows": rows, "pictures": pictures, "is_loss": is_loss}


def _draw(one: Placed, demo: Demo) -> Markup:
    node = demo.nodes[one.place.node]
    sets = [(one.pod.name, gpus_of(one.place.gpus))]
    return Markup(draw_topology(node.topology, sets=sets, title=node.name))  # noqa: S704 - our own drawing, escaped there


def _fleet_map(demo: Demo) -> list[tuple[str, list[list[_Cell]]]]:
    """Every node with a strip of cells for each policy, right after the last arrival."""
    by_run = [
        {(one.place.node, gpu): one for one in run.running for gpu in gpus_of(one.place.gpus)}
        for run in demo.runs
    ]
    return [
        (
            node.name,
            [
                [_cell(held.get((node.name, gpu)), gpu, node) for gpu in range(node.n_gpus)]
                for held in by_run
            ],
        )
        for node in demo.nodes.values()
    ]


def _cell(one: Placed | None, gpu: int, node: DemoNode) -> _Cell:
    if one is None:
        return _Cell("free", f"GPU {gpu}: free")
    pod, gpus = one.pod, one.place.gpus
    title = f"GPU {gpu}: {pod.name}, {pod.size} GPU{'s' if pod.size > 1 else ''}, {pod.wish}"
    if pod.size == 1:
        return _Cell("one", title)
    share = node.relative(gpus)
    title += f": {_gbytes(node.value_gbytes_per_s(gpus))} GB/s, {_percent(share)} of the best"
    return _Cell(_class(share) if pod.is_judged else "none", title)


def _job_map(
    run: JobsRun, pool: Mapping[str, DemoNode]
) -> list[tuple[str, list[tuple[str, list[_Cell]]]]]:
    """Every node by its leaf with a cell for each GPU, once all pods had come."""
    started = {one.job.name for one in run.outcomes if one.starts == 0}
    cells = {
        name: [_Cell("free", f"GPU {gpu}: free") for gpu in range(node.n_gpus)]
        for name, node in pool.items()
    }
    for pod, place in run.placed:
        job = "" if pod.group is None else pod.group[0]
        kind = "held" if job and job not in started else "one" if not job else "job"
        for gpu in gpus_of(place.gpus):
            title = f"GPU {gpu}: {pod.name}"
            cells[place.node][gpu] = _Cell(kind, title, JOB_COLOURS.get(job, ""))
    return [
        (leaf, [(name, cells[name]) for name in names]) for leaf, names in by_leaf(pool).items()
    ]
