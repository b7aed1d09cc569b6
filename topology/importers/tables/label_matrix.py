"""A square of labels becomes links, PCIe levels and switch fabrics.

What it answers: what a complete GPU matrix says about every pair. It never invents a fact and never
hides a contradiction: `ImportFormatError` names the cells.

Rules:
- *No link or unknown.* nvidia-smi prints NV# where a pair has NVLink, so PIX..SYS means "no link"
  in a matrix that shows links: one that holds a link label somewhere, or whose legend or command
  says so (`shows_links`). `topo -mp` leaves NVLink out and looks the same but for its legend;
  there, and where the legend was cut off, the link stays unknown. A GPU whose model has no links
  has none in any matrix.
- *Asymmetric counts.* A link is as good as its worse end: NV2 against NV1 is NV1. Any other
  difference between the two halves is refused.
- *Switched.* A matrix is switched exactly if a GPU's NV# row adds up to more than the links that
  its model has (18 where unknown: NVLink 4 and 5, more than any earlier GPU). Then each GPU's
  port count is its row's maximum and every pair must hold the lesser of the two counts; else the
  matrix is neither a mesh nor a switch and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError
from topology.importers.tables.cells import SELF, Cell
from topology.model import (
    NO_LINK,
    AcceleratorLink,
    LinkKind,
    PcieLevel,
    SwitchFabric,
    find_gpu_model,
    gpus_of,
    islands_of,
    mask_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PairMatrices", "build_matrices"]

UNKNOWN_MODEL_LINKS = 18
"""Most NVLinks of any GPU up to Blackwell (nvml.h: NVML_NVLINK_MAX_LINKS; H100 and B200: 18)."""


@dataclass(frozen=True, slots=True)
class PairMatrices:
    """Links, levels and fabrics, in the order of the labels."""

    links: tuple[tuple[AcceleratorLink, ...], ...]
    pcie: tuple[tuple[PcieLevel, ...], ...]
    fabrics: tuple[SwitchFabric, ...]


def build_matrices(
    labels: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    *,
    models: Sequence[str | None],
    shows_links: bool,
) -> PairMatrices:
    """Turn n x n cells into matrices; `labels` name the GPUs in messages.

    Raises `ImportFormatError` where the diagonal is not X, X stands elsewhere, the halves
    contradict each other, or a switched matrix does not hold the lesser port counts.
    """
    n = len(labels)
    _check_diagonal(labels, cells)
    shown = shows_links or any(
        cells[i][j].link.is_known for i in range(n) for j in range(n) if i != j
    )
    linkless = [_links_of(model) == 0 for model in models]
    links = [[NO_LINK] * n for _ in range(n)]
    pcie = [[PcieLevel.SELF] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            pair = f"{labels[j]}-{labels[i]}"
            upper, lower = cells[j][i], cells[i][j]
            none = linkless[i] or linkless[j]
            link = _merge_links(pair, _complete(upper, shown, none), _complete(lower, shown, none))
            links[i][j] = links[j][i] = link
            pcie[i][j] = pcie[j][i] = _merge_levels(pair, upper.level, lower.level)
    limits = [_links_of(model) or UNKNOWN_MODEL_LINKS for model in models]
    return PairMatrices(
        links=tuple(map(tuple, links)),
        pcie=tuple(map(tuple, pcie)),
        fabrics=_find_fabrics(labels, links, limits),
    )


def _links_of(model: str | None) -> int | None:
    found = find_gpu_model(model)
    return None if found is None else found.links_per_gpu


def _check_diagonal(labels: Sequence[str], cells: Sequence[Sequence[Cell]]) -> None:
    for i, row in enumerate(cells):
        if row[i] is not SELF:
            msg = f"row {labels[i]} does not hold X in its own column {labels[i]}"
            raise ImportFormatError(msg)
        if sum(cell is SELF for cell in row) > 1:
            msg = f"row {labels[i]} holds X more than once, expected it in column {labels[i]} only"
            raise ImportFormatError(msg)


def _complete(cell: Cell, shown: bool, linkless: bool) -> AcceleratorLink:
    """The cell's link, or "none" where the matrix or the model rules one out."""
    if cell.link.is_known or not (linkless or (shown and cell.level is not PcieLevel.UNKNOWN)):
        return cell.link
    return NO_LINK


def _merge_links(pair: str, one: AcceleratorLink, other: AcceleratorLink) -> AcceleratorLink:
    if one == other or not other.is_known:
        return one
    if not one.is_known:
        return other
    if one.kind is not other.kind:
        msg = f"cells of pair {pair} contradict each other: {_say(one)} against {_say(other)}"
        raise ImportFormatError(msg)
    return min(one, other, key=lambda link: link.n_links or 0)


def _say(link: AcceleratorLink) -> str:
    return "no link" if link == NO_LINK else f"{link.kind.value} x {link.n_links or '?'}"


def _merge_levels(pair: str, one: PcieLevel, other: PcieLevel) -> PcieLevel:
    if one is other or other is PcieLevel.UNKNOWN:
        return one
    if one is PcieLevel.UNKNOWN:
        return other
    msg = f"cells of pair {pair} contradict each other: {one.value} against {other.value}"
    raise ImportFormatError(msg)


def _find_fabrics(
    labels: Sequence[str], links: Sequence[Sequence[AcceleratorLink]], limits: Sequence[int]
) -> tuple[SwitchFabric, ...]:
    counts = [
        [(link.n_links or 0) if link.kind is LinkKind.NVLINK else 0 for link in row]
        for row in links
    ]
    joined = [mask_of(j for j, count in enumerate(row) if count) for row in counts]
    groups = [gpus_of(group) for group in islands_of(joined, (1 << len(joined)) - 1)]
    return tuple(
        _fabric(labels, counts, group)
        for group in groups
        if any(sum(counts[i]) > limits[i] for i in group)
    )


def _fabric(
    labels: Sequence[str], counts: Sequence[Sequence[int]], group: Sequence[int]
) -> SwitchFabric:
    ports = {i: max(counts[i]) for i in group}
    for i in group:
        for j in group:
            lesser = min(ports[i], ports[j])
            if i != j and counts[i][j] != lesser:
                msg = (
                    f"pair {labels[i]}-{labels[j]} has {counts[i][j]} NVLinks, expected {lesser}: "
                    "a row adds up to more links than a GPU has, so all of them end at switches"
                )
                raise ImportFormatError(msg)
    return SwitchFabric(ports=tuple(ports.items()))
