"""An audit laid out for a terminal: one screen of notes and tables, 100 columns wide.

What it answers: which lines a person sees first; the JSON has everything. It computes nothing. All
foreign text passes `topology.printable`, and is cut where it would not fit.
"""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from topology.printable import printable
from topology.report.listing import Grid, NoteLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.audit.values import AuditFigure, AuditReport, MachineAudit
    from topology.report.listing import Block

__all__ = ["list_audit"]

WIDTH = 100
"""Columns of the screen that it is meant for."""
MAX_MACHINES = 6
MAX_PODS = 10
MAX_REASONS = 4
MOST_NAMED = 3
_MACHINE_WIDTH, _POD_WIDTH, _NODE_WIDTH, _GPUS_WIDTH = 18, 26, 18, 12
_DIGEST_DIGITS = 4
_VENDORS = ("NVIDIA ", "GeForce ", "Tesla ", "AMD ", "Instinct ")
"""Words of product names that tell no two apart."""


def list_audit(report: AuditReport) -> list[Block]:
    """List the result, machine types, the pods that lose most, what else was found, the bounds."""
    blocks: list[Block] = [NoteLine(line) for line in textwrap.wrap(report.headline, WIDTH)]
    if report.machines:
        blocks += _machines(report)
    if report.pods.n_losing:
        blocks += _worst(report)
    found = list(_found(report))
    if found:
        blocks.append(NoteLine("Also found", is_heading=True))
        blocks += [NoteLine(_cut(line, WIDTH)) for line in found]
    if report.machines:
        blocks.append(NoteLine("Bounds", is_heading=True))
        blocks += [NoteLine(line) for note in report.notes for line in textwrap.wrap(note, WIDTH)]
    return blocks


def _machines(report: AuditReport) -> list[Block]:
    names = _short_names(report.machines)
    rows = tuple(
        (
            name,
            str(one.n_nodes),
            str(one.n_gpus),
            str(one.n_free),
            str(one.n_stranded),
            str(one.n_pods),
            *map(_cell, (one.has, one.could_have, one.best_effort, one.replaced)),
        )
        for name, one in zip(names, report.machines[:MAX_MACHINES], strict=False)
    )
    columns = (
        *("machine", "nodes", "GPUs", "free", "stranded", "pods"),
        *("has", "could", "NVIDIA", "re-placed"),
    )
    title = "Machine types: mean GB/s of sets and its share of the empty machine's best"
    return [
        NoteLine(title, is_heading=True),
        Grid(columns, rows, frozenset(range(1, len(columns)))),
        *_more(len(report.machines) - MAX_MACHINES),
    ]


def _worst(report: AuditReport) -> list[Block]:
    losing = [one for one in report.sets if not one.is_best]
    rows = tuple(
        (
            _cut(f"{one.namespace}/{one.pod}", _POD_WIDTH),
            _cut(one.node, _NODE_WIDTH),
            _cut(",".join(map(str, one.gpus)), _GPUS_WIDTH),
            *map(_cell, (one.has, one.could_have, one.best_effort)),
            f"{100 * one.loss:.0f} %",
        )
        for one in losing[:MAX_PODS]
    )
    columns = ("pod", "node", "GPUs", "has", "could", "NVIDIA", "loses")
    return [
        NoteLine(
            "Pods that lose most (could: best of own and free GPUs; NVIDIA: its best-effort)",
            is_heading=True,
        ),
        Grid(columns, rows, frozenset({3, 4, 5, 6})),
        *_more(len(losing) - MAX_PODS),
    ]


def _found(report: AuditReport) -> Iterable[str]:
    """What else was found, a line each."""
    candidates = [f"{one.namespace}/{one.pod}" for one in report.faster_candidates]
    if candidates:
        n_pods = _count(len(candidates), "pod")
        yield f"{n_pods} may be on faster GPUs than they use: {_some(candidates)}"
    if report.degraded:
        gpus = [
            f"{one.node} GPU {one.gpu} ({one.n_links} of {one.n_expected})"
            for one in report.degraded
        ]
        yield f"{_count(len(gpus), 'GPU')} with links down: {_some(gpus)}"
    if report.unhealthy:
        reasons = [f"{one.reason} ({one.n_gpus})" for one in report.unhealthy]
        n_gpus = sum(one.n_gpus for one in report.unhealthy)
        yield f"{_count(n_gpus, 'unhealthy GPU')}: {_some(reasons)}"
    pods: dict[str, list[str]] = defaultdict(list)
    for one in report.not_judged:
        pods[one.reason].append(f"{one.namespace}/{one.pod}")
    by_count = sorted(pods.items(), key=lambda one: (-len(one[1]), one[0]))
    for reason, names in by_count[:MAX_REASONS]:
        yield f"{_count(len(names), 'container')} not judged, {reason}: {_some(names)}"
    if report.uncovered_nodes:
        first = {one.node: one.reason for one in reversed(report.uncovered_nodes)}
        nodes = [f"{node} ({reason})" for node, reason in sorted(first.items())]
        yield f"{_count(len(nodes), 'node')} not covered: {_some(nodes)}"
    if report.n_gpus_of_unlisted_pods:
        n_gpus_there = _count(report.n_gpus_of_unlisted_pods, "GPU")
        yield f"{n_gpus_there} of pods that are not in the list of pods"
    if report.n_pods_of_unlisted_nodes:
        n_pods_there = _count(report.n_pods_of_unlisted_nodes, "pod")
        yield f"{n_pods_there} with GPUs on nodes that are not in the list of nodes"


def _short_names(machines: Sequence[MachineAudit]) -> list[str]:
    """Names that fit; types of one name get digits of their digests."""
    bare: list[str] = []
    for one in machines:
        name = one.name
        for vendor in _VENDORS:
            name = name.replace(vendor, "")
        bare.append(name)
    counts = Counter(bare)
    return [
        _cut(name, _MACHINE_WIDTH)
        if counts[name] == 1
        else f"{_cut(name, _MACHINE_WIDTH - 1 - _DIGEST_DIGITS)} {one.digest[:_DIGEST_DIGITS]}"
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


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = list(dict.fromkeys(names))
    n_shown = min(len(shown), MOST_NAMED)
    more = f" and {len(shown) - n_shown} more" if len(shown) > n_shown else ""
    return f"{', '.join(shown[:n_shown])}{more}"


def _cut(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"
