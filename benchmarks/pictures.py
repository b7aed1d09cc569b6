"""The README's pictures: one machine with two GPU sets, and the measured results as a chart.

`python -m benchmarks.pictures` writes them as SVG to docs/images/. Every figure in the chart is
read from benchmarks/results/efficiency.json; the bandwidths of the two sets are the core's own.
The same inputs give the same bytes under one version of matplotlib.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmarks.errors import BenchmarkError
from topology.draw.render import draw_topology
from topology.recordings import load_recording
from topology.select import build_tables
from topology.value import mask_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BARS", "DEFAULT_OUT", "Bar", "Group", "draw_chart", "draw_set", "read_groups", "to_svg"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "efficiency.json"
DEFAULT_OUT = ROOT / "docs" / "images"

MACHINE = "dgx-1-v100"
GOOD_SET = (0, 1, 2, 3)
POOR_SET = (0, 3, 5, 6)
"""One of the sets that NVLink does not connect: the kubelet's random order may return any."""

DARK = "#1f2933"
DARKEST = "#0a5a94"
NEAR_THE_TOP = 0.9
"""A worst case above this gets no figure of its own: it would cover the mean's."""

BARS = {
    "random (exact expectation)": ("Kubelet (random)", "#9aa5b1"),
    "NVIDIA best-effort": ("NVIDIA best-effort", "#d99a2b"),
    "Coterie, labels": ("Coterie", "#4a90c4"),
    "Coterie, measured pairs": ("Coterie, measured pairs", DARKEST),
}
"""The chart's bars: row of the benchmark's table -> legend and colour."""

MACHINES = {
    "V100": "8x V100\nNVLink mesh",
    "A6000": "8x A6000\nNVLink bridges",
    "H100_26": "8x H100\none NVSwitch",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One policy on one machine: shares in 0..1 of the best bandwidth that could be had."""

    label: str
    colour: str
    mean: float
    worst: float


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one machine, in the order of `BARS`."""

    machine: str
    bars: tuple[Bar, ...]


def read_groups(results: Path = RESULTS) -> tuple[Group, ...]:
    """The chart's groups, from the benchmark's own results.

    Raises `BenchmarkError` where a row or a machine is missing.
    """
    table: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))["tables"][0]
    rows = {row[0]: row[1:] for row in table["rows"]}
    columns: list[str] = table["columns"][1:]
    groups: list[Group] = []
    for machine, title in MACHINES.items():
        missing = [row for row in BARS if row not in rows]
        if missing or f"{machine} mean" not in columns:
            lacks = missing[0] if missing else f"{machine} mean"
            msg = f"{results} has no {lacks!r}, expected it: run `python -m benchmarks efficiency`"
            raise BenchmarkError(msg)
        at = columns.index(f"{machine} mean")
        bars = tuple(
            Bar(label, colour, rows[row][at], rows[row][at + 1])
            for row, (label, colour) in BARS.items()
        )
        groups.append(Group(title, bars))
    return tuple(groups)


def draw_chart(groups: Iterable[Group]) -> str:
    """The chart as SVG: a bar for each mean, a line for the worst case."""
    figure = Figure(figsize=(8.2, 3.6), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    listed = tuple(groups)
    width = 0.8 / len(BARS)
    for i, group in enumerate(listed):
        for j, bar in enumerate(group.bars):
            x = i - 0.4 + (j + 0.5) * width
            label = bar.label if i == 0 else None
            axes.bar(x, bar.mean, width * 0.92, color=bar.colour, label=label)
            ink = DARK if bar.colour != DARKEST else "white"
            axes.hlines(bar.worst, x - width * 0.4, x + width * 0.4, color=ink, linewidth=1.6)
            axes.text(x, bar.mean + 0.015, f"{bar.mean:.3f}", ha="center", fontsize=7.5)
            if bar.worst < NEAR_THE_TOP:
                label = f"{bar.worst:.2f}"
                axes.text(x, bar.worst + 0.015, label, ha="center", fontsize=7, color=ink)
    axes.hlines([], 0, 0, color=DARK, linewidth=1.6, label="worst case")
    axes.set_xticks(range(len(listed)), [group.machine for group in listed])
    axes.set_ylim(0, 1.08)
    axes.set_ylabel("measured bandwidth /\nbest available set")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(BARS) + 1, frameon=False, fontsize=8)
    return to_svg(figure)


def draw_set(gpus: tuple[int, ...], title: str) -> str:
    """The machine with one set in colour; the title has the set's predicted bandwidth."""
    topology = load_recording(MACHINE)
    value = build_tables(topology).value[mask_of(gpus)]
    caption = f"{title}: {value:.0f} GB/s"
    return draw_topology(topology, sets=[("4 GPUs", gpus)], title=caption)


def to_svg(figure: Figure) -> str:
    """A figure as SVG, the same bytes for the same figure."""
    out = io.StringIO()
    with rc_context({"svg.hashsalt": "coterie", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_figure(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def main(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = DEFAULT_OUT,
) -> None:
    """Write the README's pictures."""
    out.mkdir(parents=True, exist_ok=True)
    pictures = {
        "planned-set.svg": draw_set(GOOD_SET, "Coterie's set"),
        "poor-set.svg": draw_set(POOR_SET, "A poor set"),
        "measured-results.svg": draw_chart(read_groups()),
    }
    for name, text in pictures.items():
        (out / name).write_text(text, encoding="utf-8")
        typer.echo(f"written: {out / name}")


if __name__ == "__main__":
    typer.run(main)
