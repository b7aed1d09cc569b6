"""The demo's tables for a terminal of 80 columns.

Puts the figures of the report into a few lines. It computes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from benchmarks.demo.figures import has_affinity, show_percent
from benchmarks.demo.gains import OURS, RIVAL, say_gain
from benchmarks.masks import members

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.demo.figures import Figures, Span
    from benchmarks.demo.gains import Matched
    from benchmarks.demo.report import Demo

__all__ = ["example_table", "gain_table", "policy_table", "span_table"]

WIDEST_NAME = len("NVIDIA best-effort")
FIGURE_COLUMNS = ("mean", "harmonic", "worst", "missed", "waited", "stranded", "free")


def policy_table(figures: Sequence[Figures]) -> Table:
    """One row for each policy, the last one in bold."""
    table = _table(
        "GB/s in % of each machine's best: pods of 2 and more GPUs without affinity none",
        ("policy",),
        FIGURE_COLUMNS,
    )
    table.caption = (
        "harmonic: harmonic mean, which slow pods lower most. "
        "missed: requested an affinity and did not get it (of these: required). "
        "waited: found no place when they arrived, mostly for want of free GPUs of their model. "
        "stranded: free GPUs that cannot be put together into pairs, and into fours, within 10 % "
        "of the machine's best. "
        "free: GPUs without a pod; both are mean numbers while the fleet is full"
    )
    table.caption_justify = "left"
    for one in figures:
        table.add_row(
            one.policy,
            *(show_percent(share, 1) for share in (one.mean, one.harmonic, one.worst)),
            f"{one.n_missed} ({one.n_required_missed})",
            str(one.n_waited) + (f", {one.n_unplaced} never ran" if one.n_unplaced else ""),
            _stranded(one.stranded),
            f"{one.n_free:.0f}",
            style="bold" if one is figures[-1] else None,
        )
    return table


def span_table(spans: Sequence[Span]) -> Table:
    """The same over several mixes."""
    title = f"The same over {spans[0].n_mixes} mixes: means, and the least and most of a mix"
    table = _table(title, ("policy",), FIGURE_COLUMNS[:-1])
    for one in spans:
        table.add_row(
            one.policy,
            _ranged(one.mean, one.mean_range),
            _ranged(one.harmonic, one.harmonic_range),
            show_percent(one.worst, 1),
            f"{one.n_missed:.1f} ({one.n_required_missed:.1f})",
            f"{one.n_waited:.1f}",
            _stranded(one.stranded),
            style="bold" if one is spans[-1] else None,
        )
    return table


def gain_table(demo: Demo) -> Table:
    """One row for each machine type: mean GB/s of the pods that all policies put there."""
    title = "Mean GB/s of pods that every policy put on the same machine type"
    rival = demo.spans[RIVAL].policy
    table = _table(title, ("machine",), ("pods", demo.spans[0].policy, rival, "Coterie"))
    table.add_column(f"gain over {rival}", max_width=23)
    for one in demo.gains:
        values = [one.gbytes_per_s[number] for number in (0, RIVAL, OURS)] if one.n_pods else []
        shown = [f"{value:.1f}" for value in values] or ["-"] * 3
        table.add_row(one.machine, str(one.n_pods), *shown, say_gain(one))
    table.columns[0].no_wrap = True
    for column, width in zip(table.columns[2:4], (len("kubelet"), len("best-effort")), strict=True):
        column.no_wrap = False
        column.max_width = width
    return table


def example_table(demo: Demo) -> Table:
    """One row for each policy under each example pod."""
    table = _table(
        "Pods on the same machine type", ("pod", "policy", "node", "GPUs"), ("GB/s", "%")
    )
    table.columns[0].max_width = 14
    table.columns[1].min_width = None
    table.columns[1].max_width = 18
    for column in table.columns[2:]:
        column.no_wrap = True
    notes: dict[str, None] = {}
    for example in demo.examples:
        one = example.matched
        if example.best_rival is not None:
            notes["loss: the largest that Coterie has against any rival"] = None
        rows = zip(demo.runs, one.placed, one.gbytes_per_s, one.shares, strict=True)
        for number, (run, placed, value, share) in enumerate(rows):
            if run.policy.endswith("on Coterie's node"):
                continue
            gpus = ",".join(str(gpu) for gpu in members(placed.place.gpus))
            if not has_affinity(placed, demo.nodes):
                gpus += "*"
                notes["*: not the requested affinity"] = None
            table.add_row(
                _example_label(one, number, is_loss=example.best_rival is not None),
                run.policy,
                placed.place.node,
                gpus,
                f"{value:.1f}",
                show_percent(share),
                end_section=run is demo.runs[OURS],
            )
    table.caption = "\n".join(notes) or None
    table.caption_justify = "left"
    return table


def _example_label(one: Matched, row: int, *, is_loss: bool) -> str:
    """What stands beside a row of an example: name, size and wish."""
    name = f"{one.pod.name}, loss" if is_loss else one.pod.name
    return {0: name, RIVAL: f"{one.pod.size} GPUs"}.get(row, one.pod.wish)


def _table(title: str, names: Iterable[str], figures: Iterable[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in names:
        table.add_column(name, min_width=WIDEST_NAME if name == "policy" else None)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _ranged(mean: float, ends: tuple[float, float]) -> str:
    return f"{show_percent(mean, 1)}\n{show_percent(ends[0], 1)}..{show_percent(ends[1], 1)}"


def _stranded(by_size: Mapping[int, float]) -> str:
    return ", ".join(f"{count:.1f}" for count in by_size.values())
