"""An audit as one page of HTML that needs nothing else: no script, no resource, light and dark.

What it answers: the report's tables with their full names, for a browser or an attachment. It
computes nothing. Every text is escaped, and a Content-Security-Policy forbids all but the style.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from topology.audit.values import AuditFigure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.audit.values import AuditReport, MachineAudit

__all__ = ["audit_html"]

MAX_ROWS = 1000
"""Rows of a table; the JSON has all."""
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #57606a; --page: #fff; --line: #d0d7de }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --quiet: #9198a1; --page: #0d1117; --line: #30363d }
}
body { color: var(--text); background: var(--page); font: 15px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 86rem; padding: 0 1rem }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left;
  vertical-align: top; white-space: nowrap }
td:last-child:not(.n) { white-space: normal; min-width: 6rem }
th { font-weight: 600 } .n { text-align: right } p.more, ul { color: var(--quiet) }
"""


@dataclass(frozen=True, slots=True)
class _AtLeast:
    """A count of which some is not known."""

    count: int


_Cell: TypeAlias = str | float | AuditFigure | _AtLeast | None


def audit_html(report: AuditReport) -> str:
    """Write the page."""
    pods, n_covered = report.pods, report.n_covered_nodes
    where = "" if n_covered == report.n_gpu_nodes else " on nodes where that is known"
    facts = (
        f"{report.n_gpu_nodes} of {report.n_nodes} nodes have GPUs, and {n_covered} are covered: "
        f"{report.n_gpus} GPUs, {report.n_free} free and {report.n_stranded} stranded{where}. "
        f"Of {pods.n_all} pods with GPUs "
        f"{pods.n_single} have no container with two, and so nothing to reduce."
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        _POLICY,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Coterie audit</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(report.headline)}</h1><p>{escape(facts)}</p>",
        *_tables(report),
        "<h2>Bounds</h2><ul>",
        *(f"<li>{escape(note)}</li>" for note in report.notes),
        "</ul></main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _tables(report: AuditReport) -> Iterable[str]:
    names = {one.digest: f"{one.name} ({one.digest[:8]})" for one in report.machines}
    figures = ("has", "could have", "NVIDIA best-effort", "re-placed")
    yield _table(
        "Machine types",
        ("machine", "nodes", "GPUs", "free", "stranded", "unhealthy", "pods", *figures),
        [
            (
                names[one.digest],
                *(one.n_nodes, one.n_gpus, _known(one.n_free, one), _known(one.n_stranded, one)),
                *(one.n_unhealthy, one.n_pods),
                *(one.has, one.could_have, one.best_effort, one.replaced),
            )
            for one in report.machines
        ],
        "Mean GB/s of the sets that are judged, and its share of the empty machine's best; "
        "+?: on some nodes it is not known which GPUs are free.",
    )
    yield _table(
        "Containers with two or more GPUs, the largest loss first",
        ("pod", "container", "node", "machine", "GPUs", *figures, "loses", "limited by"),
        [
            (
                f"{one.namespace}/{one.pod}",
                *(one.container, one.node, names[one.machine], ", ".join(map(str, one.gpus))),
                *(one.has, one.could_have, one.best_effort, one.replaced),
                f"{100 * one.loss:.0f} %",
                one.limit,
            )
            for one in report.sets
        ],
        "Predicted GB/s, and the share of the empty machine's best set of that size.",
    )
    yield _table(
        "Pods that may be on faster GPUs than they use",
        ("pod", "GPUs", "node", "worth", "node with free GPUs of lesser worth", "worth"),
        [
            (
                f"{one.namespace}/{one.pod}",
                *(one.n_gpus, one.node, one.worth_per_gpu, one.other_node),
                one.other_worth_per_gpu,
            )
            for one in report.faster_candidates
        ],
        "Candidates to look at, not errors; a V100 is worth 1.",
    )
    yield _table(
        "GPUs with links down",
        ("node", "GPU", "uuid", "kind", "links up", "expected"),
        [
            (one.node, one.gpu, one.uuid or "?", one.kind, one.n_links, one.n_expected)
            for one in report.degraded
        ],
    )
    yield _table(
        "Unhealthy GPUs",
        ("reason", "GPUs", "nodes"),
        [(one.reason, one.n_gpus, ", ".join(one.nodes)) for one in report.unhealthy],
    )
    yield _table(
        "Containers that are in no figure",
        ("pod", "container", "node", "GPUs", "reason"),
        [
            (f"{one.namespace}/{one.pod}", one.container, one.node, one.n_gpus, one.reason)
            for one in report.not_judged
        ],
    )
    yield _table(
        "Nodes that are not covered",
        ("node", "GPUs", "reason"),
        [(one.node, one.n_gpus, one.reason) for one in report.uncovered_nodes],
    )
    yield _table(
        "Nodes that take no pods, whose free GPUs do not count as free",
        ("node", "free GPUs", "reason"),
        [(one.node, one.n_free, one.reason) for one in report.unavailable_nodes],
    )
    yield _table(
        "Nodes where some free GPUs are in MIG mode, not known which",
        ("node",),
        [(one,) for one in report.split_nodes],
    )
    yield _table(
        "Pods with resource claims",
        ("pod", "node"),
        [(f"{one.namespace}/{one.pod}", one.node) for one in report.claiming_pods],
        "GPUs by DRA are not seen, and may count as free.",
    )


def _known(count: int, machine: MachineAudit) -> _Cell:
    return _AtLeast(count) if machine.n_nodes_free_unknown else count


def _table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[_Cell]],
    about: str = "",
) -> str:
    """A section with a table; nothing where it has no rows."""
    if not rows:
        return ""
    head = "".join(map(_heading, columns, rows[0]))
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows[:MAX_ROWS])
    left = len(rows) - MAX_ROWS
    more = f'<p class="more">… and {left} more in the JSON</p>' if left > 0 else ""
    note = f"<p>{escape(about)}</p>" if about else ""
    return (
        f'<h2>{escape(title)}</h2>{note}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>{more}"
    )


def _heading(column: str, below: _Cell) -> str:
    place = "" if isinstance(below, str) else ' class="n"'
    return f'<th scope="col"{place}>{escape(column)}</th>'


def _cell(value: _Cell) -> str:
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    if isinstance(value, AuditFigure):
        return f'<td class="n">{value.gbytes_per_s:.1f} ({100 * value.share:.0f} %)</td>'
    if isinstance(value, _AtLeast):
        return f'<td class="n">{value.count}+?</td>'
    return '<td class="n">–</td>' if value is None else f'<td class="n">{value:g}</td>'
