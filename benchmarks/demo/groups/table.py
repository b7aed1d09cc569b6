"""The demo's jobs of several pods as a table for a terminal of 80 columns.

It computes no figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from benchmarks.demo.groups.pool import MACHINE, by_leaf
from topology.groups import GROUP_STATED_ERROR

if TYPE_CHECKING:
    from benchmarks.demo.groups.comparison import GroupDemo
    from benchmarks.demo.groups.outcome import JobOutcome

__all__ = ["job_table"]


def job_table(demo: GroupDemo) -> Table:
    """Two rows for each job, one by one and as a group."""
    table = Table(
        title=(
            f"Jobs of several pods on {len(demo.pool)} x {MACHINE} under "
            f"{len(by_leaf(demo.pool))} leaves"
        ),
        caption=(
            "A job runs once all its pods are placed. one by one: most-allocated node, GPUs by "
            "NVIDIA's rules. GB/s: predicted for the whole job, in brackets the least: the model "
            f"may be {100 * GROUP_STATED_ERROR:.0f} % too high for several nodes"
        ),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in ("job", "placed", "pods with a node"):
        table.add_column(name, no_wrap=True)
    for name in ("nodes", "leaves", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for theirs, ours in zip(demo.theirs.outcomes, demo.ours.outcomes, strict=True):
        table.add_row(ours.job.name, demo.theirs.policy, *_cells(theirs))
        table.add_row(
            ours.job.shape, demo.ours.policy, *_cells(ours), style="bold", end_section=True
        )
    return table


def _cells(one: JobOutcome) -> tuple[str, ...]:
    pods = f"{one.pods}, {one.note}" if one.note else one.pods
    return pods, str(len(one.nodes)), str(len(one.leaves)), _bandwidth(one)


def _bandwidth(one: JobOutcome) -> str:
    """Predicted GB/s and, in brackets, the least; a dash for a job that never runs."""
    value = one.value
    if value is None or value.gbytes_per_s is None or value.least_gbytes_per_s is None:
        return "-"
    return f"{value.gbytes_per_s:.0f} ({value.least_gbytes_per_s:.0f})"
