"""Accelerator links in a few lines: switch fabrics as one line each, direct links by their number.

Links that are down are marked where they can be known: at a fabric's ports, and where a GPU has
fewer direct links than others of its model.
"""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

from kubectl_coterie.machine.numbers import ranges
from topology.model import LinkKind, links_down

if TYPE_CHECKING:
    from kubectl_coterie.terminal import Style
    from topology.model import NodeTopology, SwitchFabric

__all__ = ["link_lines"]

WIDTH = 76
_FABRIC = {LinkKind.NVLINK: "NVSwitch"}
_KIND = {
    LinkKind.NVLINK: "NVLink",
    LinkKind.XGMI: "XGMI",
    LinkKind.C2C: "C2C",
    LinkKind.METAXLINK: "MetaXLink",
}


def link_lines(topology: NodeTopology, style: Style) -> list[str]:
    """The lines, fabrics first."""
    lines = [line for fabric in topology.fabrics for line in _fabric(fabric, style)]
    direct, n_unknown = _direct(topology)
    for (kind, count), pairs in sorted(direct.items(), key=lambda one: _order(*one[0])):
        unit = "links not counted" if count is None else f"{count} link{'s' * (count > 1)}"
        head = f"{_KIND[kind]}, {unit}: "
        text = "  ".join(f"{i}-{j}" for i, j in pairs)
        lines += textwrap.wrap(
            head + text, WIDTH, subsequent_indent=" " * len(head), break_on_hyphens=False
        )
    lines += [style.paint(text, "red") for text in _down(topology) or _fewer(topology)]
    if n_unknown:
        lines.append(f"Links of {n_unknown} pairs are unknown.")
    if not lines and topology.n_gpus > 1:
        lines.append("No accelerator links: GPUs reach each other over PCIe.")
    return lines


def _fabric(fabric: SwitchFabric, style: Style) -> list[str]:
    name = _FABRIC.get(fabric.kind, f"{_KIND[fabric.kind]} switch")
    gpus = ranges(gpu for gpu, _ in fabric.ports)
    if not fabric.is_up:
        return [f"{name}: GPUs {gpus}, {style.paint('down', 'red')}"]
    most = max(n for _, n in fabric.ports)
    return [f"{name}: GPUs {gpus}, {most} links each"]


def _direct(
    topology: NodeTopology,
) -> tuple[dict[tuple[LinkKind, int | None], list[tuple[int, int]]], int]:
    """Pairs by kind and number of direct links, and how many pairs are unknown."""
    fabric_of = {gpu: k for k, fabric in enumerate(topology.fabrics) for gpu, _ in fabric.ports}
    found: dict[tuple[LinkKind, int | None], list[tuple[int, int]]] = defaultdict(list)
    n_unknown = 0
    for i, j in combinations(range(topology.n_gpus), 2):
        link = topology.links[i][j]
        if i in fabric_of and fabric_of[i] == fabric_of.get(j):
            continue
        if link.is_up:
            found[link.kind, link.n_links].append((i, j))
        n_unknown += not link.is_known
    return found, n_unknown


def _order(kind: LinkKind, count: int | None) -> tuple[str, int]:
    return kind.value, -(count or 0)


def _down(topology: NodeTopology) -> list[str]:
    """GPUs with links down, but for those of a fabric that is down itself."""
    dead = {gpu for fabric in topology.fabrics if not fabric.is_up for gpu, _ in fabric.ports}
    return [
        f"GPU{one.gpu} has {one.n_links} of {one.n_expected} links: "
        f"{one.n_expected - one.n_links} down"
        for one in links_down(topology)
        if one.gpu not in dead
    ]


def _fewer(topology: NodeTopology) -> list[str]:
    """GPUs with fewer direct links than most of their model, where the product says nothing.

    GPUs without any are left out: bridges may be there for some pairs alone.
    """
    if topology.fabrics:
        return []
    totals = [sum(link.n_links or 0 for link in row if link.is_up) for row in topology.links]
    models = [gpu.model for gpu in topology.gpus]
    lines: list[str] = []
    for model in dict.fromkeys(models):
        linked = [i for i, one in enumerate(models) if one == model and totals[i]]
        if not linked:
            continue
        usual = Counter(totals[i] for i in linked).most_common(1)[0][0]
        lines += [
            f"GPU{i} has {totals[i]} links where others have {usual}: one may be down"
            for i in linked
            if totals[i] < usual
        ]
    return lines
