"""The demo's tables for a terminal of 80 columns.

Puts the figures of the report into a few lines. It computes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from benchmarks.demo.figures import show_percent
from benchmarks.masks import members

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.demo.figures import Figures, Span
    from benchmarks.demo.report import Demo

__all__ = ["policy_table", "showcase_table", "span_table"]

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
        "missed: requested an affinity and did not get it (of these: required). "
        "stranded: free GPUs that make no pair, no four within 10 % of the machine's best"
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


def showcase_table(demo: Demo) -> Table:
    """Two rows for each of the showcased pods: the first policy and the last."""
    table = _table("The pods that differ most", ("pod", "policy", "node", "GPUs"), ("GB/s", "%"))
    table.columns[0].max_width = 14
    table.columns[1].min_width = None
    for column in table.columns[1:]:
        column.no_wrap = True
    for duel in demo.showcased:
        pod = duel.ours.pod
        labels = (pod.name, f"{pod.size} GPUs, {pod.wish}")
        for run, one, what in zip(
            (demo.runs[0], demo.runs[-1]), (duel.theirs, duel.ours), labels, strict=True
        ):
            node, gpus = demo.nodes[one.place.node], one.place.gpus
            table.add_row(
                what,
                run.policy,
                node.name,
                ",".join(str(gpu) for gpu in members(gpus)),
                f"{node.value_gbytes_per_s(gpus):.1f}",
                show_percent(node.relative(gpus)),
                end_section=one is duel.ours,
            )
    return table


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
