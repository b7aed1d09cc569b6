"""An audit laid out for a terminal: one screen of notes and tables, as wide as it is said to be.

What it answers: which lines a person sees first; the JSON has everything. It computes nothing. All
foreign text passes `topology.printable`; names are cut inside where they would not fit, and notes
are wrapped.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from topology.audit.findings import list_findings
from topology.audit.shortened import shorten
from topology.report.blocks import Grid, NoteLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.audit.findings import AuditFinding
    from topology.audit.values import AuditFigure, AuditReport, MachineAudit
    from topology.report.blocks import Block

__all__ = ["LEAST_WIDTH", "WIDTH", "list_audit"]

WIDTH = 100
"""Columns of the screen that it is meant for, where it is not known."""
LEAST_WIDTH = 40
"""Columns that notes are wrapped to at least; tables need `WIDTH`, and are never narrower."""
MAX_MACHINES = 6
MAX_PODS = 10
_GPUS_WIDTH, _LEAST_MACHINE_WIDTH = 12, 12
_GAP = 2
"""Blanks between two columns of a table (`topology.text_table`)."""
_DIGEST_DIGITS = 4
_VENDORS = ("NVIDIA ", "GeForce ", "Tesla ", "AMD ", "Instinct ")
"""Words of product names that tell no two apart."""


def list_audit(report: AuditReport, width: int = WIDTH) -> list[Block]:
    """List the result, machine types, the pods that lose most, what else was found, the bounds.

    Notes are wrapped to `width` columns, and names are cut to keep tables inside them, or inside
    100 where there are fewer.
    """
    width, wide = max(width, LEAST_WIDTH), max(width, WIDTH)
    blocks: list[Block] = [NoteLine(line) for line in textwrap.wrap(report.headline, width)]
    if report.machines:
        blocks += _machines(report, wide)
    if report.pods.n_losing:
        blocks += _worst(report, wide)
    found = [line for one in list_findings(report) for line in _with_step(one, width)]
    if found:
        blocks.append(NoteLine("Also found", is_heading=True))
        blocks += map(NoteLine, found)
    if report.machines:
        blocks.append(NoteLine("Bounds", is_heading=True))
        blocks += [NoteLine(line) for note in report.notes for line in _wrap(note, width)]
    return blocks


def _with_step(one: AuditFinding, width: int) -> list[str]:
    """A finding and its next step, on a line of its own where it does not fit behind."""
    lines = _wrap(one.text, width, indent="  ")
    step = f"-> {one.step}"
    if len(lines[-1]) + 1 + len(step) <= width:
        return [*lines[:-1], f"{lines[-1]} {step}"]
    return [*lines, *(f"  {line}" for line in _wrap(step, width - 2, indent="   "))]


def _wrap(text: str, width: int, *, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def _machines(report: AuditReport, width: int) -> list[Block]:
    shown = report.machines[:MAX_MACHINES]
    rows = [
        (
            *(str(one.n_nodes), str(one.n_gpus), _known(one.n_free, one)),
            *(_known(one.n_stranded, one), str(one.n_pods)),
            *map(_cell, (one.has, one.could_have, one.best_effort)),
        )
        for one in shown
    ]
    columns = (
        *("nodes", "GPUs", "free", "stranded", "pods"),
        *("has", "could", "NVIDIA"),
    )
    names = _short_names(report.machines, _left(width, columns, rows))
    n_unknown = sum(one.n_nodes_free_unknown for one in shown)
    on_nodes = "1 node" if n_unknown == 1 else f"{n_unknown} nodes"
    title = "Machine types: mean GB/s of sets and its share of the empty machine's best"
    return [
        NoteLine(title, is_heading=True),
        Grid(
            ("machine", *columns),
            tuple((name, *row) for name, row in zip(names, rows, strict=False)),
            frozenset(range(1, len(columns) + 1)),
        ),
        *_more(len(report.machines) - MAX_MACHINES),
        *([NoteLine(f"+?: on {on_nodes} it is not known which GPUs are free")] * bool(n_unknown)),
    ]


def _worst(report: AuditReport, width: int) -> list[Block]:
    losing = [one for one in report.sets if not one.is_best]
    shown = losing[:MAX_PODS]
    rows = [
        (
            *shorten([",".join(map(str, one.gpus))], _GPUS_WIDTH),
            *map(_cell, (one.has, one.could_have, one.best_effort)),
            f"{100 * one.loss:.0f} %",
        )
        for one in shown
    ]
    columns = ("GPUs", "has", "could", "NVIDIA", "loses")
    pods, nodes = _share(
        [f"{one.namespace}/{one.pod}" for one in shown],
        [one.node for one in shown],
        _left(width, columns, rows) - _GAP,
    )
    return [
        NoteLine(
            "Pods that lose most (could: best of own and free GPUs; NVIDIA: its best-effort)",
            is_heading=True,
        ),
        Grid(
            ("pod", "node", *columns),
            tuple((pod, node, *row) for pod, node, row in zip(pods, nodes, rows, strict=True)),
            frozenset({3, 4, 5, 6}),
        ),
        *_more(len(losing) - MAX_PODS),
    ]


def _left(width: int, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Columns of the screen that a table leaves for what stands before these."""
    return width - sum(_GAP + max(map(len, column)) for column in zip(columns, *rows, strict=True))


def _share(pods: Sequence[str], nodes: Sequence[str], width: int) -> tuple[list[str], list[str]]:
    """Both kinds of names inside a width: what one does not need the other may have."""
    most_pods, most_nodes = max(map(len, pods)), max(map(len, nodes))
    for_pods = max(3 * width // 5, width - most_nodes)
    for_nodes = width - min(for_pods, most_pods)
    return shorten(pods, for_pods), shorten(nodes, for_nodes)


def _known(count: int, machine: MachineAudit) -> str:
    """A count, marked where some of it is not known."""
    return f"{count}+?" if machine.n_nodes_free_unknown else str(count)


def _short_names(machines: Sequence[MachineAudit], width: int) -> list[str]:
    """Names that fit; types of one name get digits of their digests."""
    width = max(width, _LEAST_MACHINE_WIDTH)
    bare: list[str] = []
    for one in machines:
        name = one.name
        for vendor in _VENDORS:
            name = name.replace(vendor, "")
        bare.append(name)
    counts = Counter(bare)
    return [
        shorten([name], width)[0]
        if counts[name] == 1
        else f"{shorten([name], width - 1 - _DIGEST_DIGITS)[0]} {one.digest[:_DIGEST_DIGITS]}"
        for name, one in zip(bare, machines, strict=True)
    ]


def _cell(figure: AuditFigure | None) -> str:
    """GB/s in three digits, and the share.

    >>> from topology.audit.values import AuditFigure
    >>> _cell(AuditFigure(49.856, 0.5)), _cell(AuditFigure(236.7, 1.0)), _cell(None)
    ('49.9  50%', '237 100%', '-')
    """
    if figure is None:
        return "-"
    value = figure.gbytes_per_s
    digits = 0 if value >= 99.95 else 1  # noqa: PLR2004 - three digits
    return f"{value:.{digits}f} {100 * figure.share:3.0f}%"


def _more(count: int) -> list[Block]:
    return [NoteLine(f"… and {count} more")] if count > 0 else []
