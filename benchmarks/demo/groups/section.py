"""The report's section on jobs of several pods: rows of its table, and the pool drawn.

Figures are those of `benchmarks.demo.groups.outcome`, the drawing that of
`benchmarks.fabric_drawing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.demo.groups.jobs import JOBS
from benchmarks.demo.groups.outcome import say_jobs
from benchmarks.demo.groups.pool import MACHINE, by_leaf
from benchmarks.demo.page_picture import page_picture
from benchmarks.fabric_drawing import FREE, OTHERS, Leaf, Panel, Style, draw_element
from benchmarks.masks import members
from topology.draw.scene import SET_COLOURS
from topology.groups import GROUP_STATED_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from markupsafe import Markup

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.groups.comparison import GroupDemo
    from benchmarks.demo.groups.outcome import JobOutcome, JobsRun, State

__all__ = ["JobPicture", "JobRow", "JobSection", "count_job_drawings", "make_section"]

STYLE = Style(
    width_inches=3.9,
    panel_inches=4.3,
    rest_inches=0.0,
    leaves_a_line=1,
    has_cells=True,
    name_width=1.7,
    row_height=0.85,
)
COLOURS = {job.name: SET_COLOURS[number] for number, job in enumerate(JOBS)}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job under one policy: figures for people, and its nodes by leaf."""

    policy: str
    is_ours: bool
    pods: str
    note: str
    where: tuple[str, ...]
    gbytes_per_s: float | None
    least_gbytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class JobPicture:
    """The pool at one moment under one policy."""

    title: str
    svg: Markup
    caption: str


@dataclass(frozen=True, slots=True)
class JobSection:
    """All that the section shows; `legend` has colours with what they are."""

    result: str
    machine: str
    n_nodes: int
    n_leaves: int
    error: float
    rows: tuple[tuple[str, str, str, tuple[JobRow, JobRow]], ...]
    pictures: tuple[JobPicture, ...]
    legend: tuple[tuple[str, str], ...]
    in_order: str


def count_job_drawings(demo: GroupDemo) -> int:
    """How many pictures the section has."""
    return 2 + _has_later(demo)


def make_section(demo: GroupDemo, advance: Callable[[], None]) -> JobSection:
    """Make the section; `advance` is called after each picture."""
    theirs, ours = demo.theirs, demo.ours
    shown = [(theirs, 0), (ours, 0)] + [(ours, 1)] * _has_later(demo)
    pictures: list[JobPicture] = []
    for run, number in shown:
        pictures.append(_picture(run, number, demo.pool))
        advance()
    rows = tuple(
        (one.job.name, one.job.shape, COLOURS[one.job.name], (_row(other, demo), _row(one, demo)))
        for other, one in zip(theirs.outcomes, ours.outcomes, strict=True)
    )
    legend = [(COLOURS[job.name], f"{job.name}, {job.shape}") for job in JOBS]
    return JobSection(
        result=say_jobs(theirs, ours),
        machine=MACHINE,
        n_nodes=len(demo.pool),
        n_leaves=len(by_leaf(demo.pool)),
        error=GROUP_STATED_ERROR,
        rows=rows,
        pictures=tuple(pictures),
        legend=(*legend, (OTHERS, "inference pods, which ran before")),
        in_order=_say_in_order(demo.in_order),
    )


def _has_later(demo: GroupDemo) -> bool:
    return any(one.starts for one in demo.ours.outcomes)


def _row(one: JobOutcome, demo: GroupDemo) -> JobRow:
    is_ours = any(one is other for other in demo.ours.outcomes)
    by_name = {leaf: [node.name for node in nodes] for leaf, nodes in by_leaf(demo.pool).items()}
    where = tuple(
        f"{leaf}: {', '.join(name for name in one.nodes if name in by_name[leaf])}"
        for leaf in one.leaves
    )
    return JobRow(
        (demo.ours if is_ours else demo.theirs).policy,
        is_ours,
        one.pods,
        one.note,
        where,
        None if one.value is None else one.value.gbytes_per_s,
        None if one.value is None else one.value.least_gbytes_per_s,
    )


def _picture(run: JobsRun, number: int, pool: Mapping[str, DemoNode]) -> JobPicture:
    state = run.states[number]
    held = {
        one.job.name: len(state.places(one.job)) * one.job.n_gpus
        for one in run.outcomes
        if state.places(one.job) and not state.is_whole(one.job)
    }
    whole = [one.job.name for one in run.outcomes if state.is_whole(one.job)]
    waits = [one.job.name for one in run.outcomes if one.starts is not None and one.starts > number]
    parts = [f"runs: {', '.join(whole)}"] if whole else []
    parts += [f"{name} holds {n_gpus} GPUs and cannot start" for name, n_gpus in held.items()]
    parts += [f"{name} waits and holds none" for name in waits if name not in held]
    when = "once all pods have come" if number == 0 else "when those have ended"
    title = f"{run.policy}, {when}"
    panel = Panel(title, _leaves(state, pool), frozenset(COLOURS[name] for name in held))
    return JobPicture(title, page_picture(draw_element(panel, STYLE)), "; ".join(parts))


def _leaves(state: State, pool: Mapping[str, DemoNode]) -> tuple[Leaf, ...]:
    colours = {name: [FREE] * node.n_gpus for name, node in pool.items()}
    for pod, place in state.placed:
        colour = OTHERS if pod.group is None else COLOURS[pod.group[0]]
        for gpu in members(place.gpus):
            colours[place.node][gpu] = colour
    return tuple(
        Leaf(
            tuple(tuple(colours[node.name]) for node in nodes),
            leaf,
            tuple(node.name for node in nodes),
        )
        for leaf, nodes in by_leaf(pool).items()
    )


def _say_in_order(run: JobsRun) -> str:
    """What one by one does where pods do not come in turn."""
    last = run.outcomes[-1]
    if last.starts is None or not last.n_at_once or any(one.starts for one in run.outcomes[:-1]):
        return ""
    return (
        f"Where all pods of {run.outcomes[-2].job.name} come before those of {last.job.name}, "
        f"both run one by one too, one after the other; {last.job.name} then holds "
        f"{last.n_at_once * last.job.n_gpus} GPUs while it waits."
    )
