"""The demo's tables for a terminal of 80 columns.

Puts the figures of the report into a few lines. It computes none.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from benchmarks.demo.jobs import MACHINE, by_leaf
from benchmarks.demo.results import OURS, RIVAL, say_gain, show_percent
from topology.groups import GROUP_STATED_ERROR
from topology.model import gpus_of
from topology.text_table import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.demo.jobs import JobOutcome
    from benchmarks.demo.report import Demo

__all__ = ["show_tables"]

WIDTH = 80


def show_tables(demo: Demo) -> str:
    """All tables, each below its title and above what its columns mean."""
    return "\n\n".join((_policies(demo), _gains(demo), _examples(demo), _jobs(demo)))


def _policies(demo: Demo) -> str:
    rows = [
        (
            one.policy,
            show_percent(one.mean, 1),
            show_percent(one.worst, 1),
            f"{one.n_missed:.1f} ({one.n_required_missed:.1f})",
            f"{one.n_waited:.1f}" + (f", {one.n_unplaced:.1f} never ran" if one.n_unplaced else ""),
        )
        for one in demo.figures
    ]
    return _shown(
        f"GB/s in % of each machine's best, over {demo.n_mixes} mixes of {len(demo.pods)} pods",
        table(rows, ("policy", "mean", "worst", "missed", "waited"), right={1, 2, 3, 4}),
        "Pods of 2 and more GPUs without affinity none. missed: pods of a mix that requested an "
        "affinity and did not get it (of these: required). waited: pods of a mix that found no "
        "place when they arrived, mostly for want of free GPUs of their model.",
    )


def _gains(demo: Demo) -> str:
    policies = (0, RIVAL, OURS)
    rows = [
        (
            one.machine,
            str(one.n_pods),
            *(f"{one.gbytes_per_s[number]:.1f}" if one.n_pods else "-" for number in policies),
            say_gain(one),
        )
        for one in demo.gains
    ]
    header = ("machine", "pods", *(demo.figures[number].policy for number in policies), "gain")
    return _shown(
        "Mean GB/s of pods that every policy put on the same machine type",
        table(
            rows,
            header,
            right={1, 2, 3, 4},
            max_widths={2: len("kubelet"), 3: len("best-effort"), 5: 21},
        ),
        f"gain: Coterie's GB/s over those of {demo.figures[RIVAL].policy}.",
    )


def _examples(demo: Demo) -> str:
    notes: dict[str, None] = {}
    rows: list[Sequence[str]] = []
    for example in demo.examples:
        one = example.matched
        labels = (one.pod.name, f"{one.pod.size} GPUs", one.pod.wish)
        if example.best_rival is not None:
            labels = (f"{one.pod.name}, loss", *labels[1:])
            notes["loss: the largest that Coterie has against any rival."] = None
        cells = zip(labels, demo.figures, one.placed, one.gbytes_per_s, one.shares, strict=True)
        for label, policy, placed, value, share in cells:
            gpus = ",".join(str(gpu) for gpu in gpus_of(placed.place.gpus))
            node = demo.nodes[placed.place.node]
            if not node.has_affinity(placed.place.gpus, one.pod.policy.affinity):
                gpus += "*"
                notes["*: not the requested affinity."] = None
            figures = (f"{value:.1f}", show_percent(share))
            rows.append((label, policy.policy, node.name, gpus, *figures))
    header = ("pod", "policy", "node", "GPUs", "GB/s", "%")
    shown = table(rows, header, right={4, 5}, max_widths={0: 14}, gap=" ")
    return _shown("Pods on the same machine type", shown, " ".join(notes))


def _jobs(demo: Demo) -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        theirs, ours = demo.jobs
        for other, one in zip(theirs.outcomes, ours.outcomes, strict=True):
            yield one.job.name, theirs.policy, *_job_cells(other)
            yield one.job.shape, ours.policy, *_job_cells(one)

    header = ("job", "placed", "pods with a node", "nodes", "leaves", "GB/s")
    return _shown(
        f"Jobs of several pods on {len(demo.pool)} x {MACHINE} under "
        f"{len(by_leaf(demo.pool))} leaves",
        table([*rows()], header, right={3, 4, 5}),
        "A job runs once all its pods are placed. one by one: most-allocated node, GPUs by "
        "NVIDIA's rules. GB/s: predicted for the whole job, in brackets the least: the model "
        f"may be {100 * GROUP_STATED_ERROR:.0f} % too high for several nodes.",
    )


def _job_cells(one: JobOutcome) -> tuple[str, ...]:
    """Predicted GB/s with, in brackets, the least; a dash for a job that never runs."""
    value = one.value
    shown = "-"
    if value is not None and value.gbytes_per_s is not None:
        shown = f"{value.gbytes_per_s:.0f} ({value.least_gbytes_per_s or 0:.0f})"
    return one.pods, str(len(one.nodes)), str(len(one.leaves)), shown


def _shown(title: str, lines: Sequence[str], caption: str = "") -> str:
    said = ["", *wrap(caption, WIDTH)] if caption else []
    return "\n".join([title, "", *lines, *said])
