"""Link matrix and switch fabrics from where each GPU says its links end.

What it answers: given for every GPU its count of links to each other GPU, to switches, and to far
unknown ends, what each pair has. It never makes "no link" out of silence: where no
GPU says anything about links, every pair is unknown.

Method: a direct link is up as far as both ends count it, so a pair has the lesser count. GPUs with
switch ports form one fabric, in which a pair has the lesser number of ports, never summed per pair.
A pair of GPUs that both have links with unknown far ends may be linked: unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.model import NO_LINK, UNKNOWN_LINK, AcceleratorLink, LinkKind, SwitchFabric

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LinkEnds", "build_links"]

LinkMatrix = tuple[tuple[AcceleratorLink, ...], ...]


@dataclass(slots=True)
class LinkEnds:
    """One GPU's links: `kind` is UNKNOWN as long as the GPU says nothing about links."""

    kind: LinkKind = LinkKind.UNKNOWN
    to_gpu: dict[int, int] = field(default_factory=dict[int, int])
    to_switch: int = 0
    n_unplaced: int = 0


def build_links(ends: Sequence[LinkEnds]) -> tuple[LinkMatrix, tuple[SwitchFabric, ...]]:
    """Pair matrix (n x n) and fabrics of the GPUs in order.

    >>> build_links([LinkEnds(), LinkEnds()])[0][0][1].is_known
    False
    """
    has_links = any(end.kind is not LinkKind.UNKNOWN for end in ends)
    ports = tuple((i, end.to_switch) for i, end in enumerate(ends) if end.to_switch)
    kind = next((end.kind for end in ends if end.to_switch), LinkKind.NVLINK)
    fabrics = (SwitchFabric(ports=ports, kind=kind),) if ports else ()
    matrix = tuple(
        tuple(
            NO_LINK if i == j else _pair(ends, i, j) if has_links else UNKNOWN_LINK
            for j in range(len(ends))
        )
        for i in range(len(ends))
    )
    return matrix, fabrics


def _pair(ends: Sequence[LinkEnds], i: int, j: int) -> AcceleratorLink:
    a, b = ends[i], ends[j]
    if a.to_switch and b.to_switch:
        return AcceleratorLink(a.kind, min(a.to_switch, b.to_switch))
    direct = min(a.to_gpu.get(j, 0), b.to_gpu.get(i, 0))
    if direct:
        return AcceleratorLink(a.kind, direct)
    return UNKNOWN_LINK if a.n_unplaced and b.n_unplaced else NO_LINK
