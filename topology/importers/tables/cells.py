"""One cell of a link matrix, as nvidia-smi and its likes print it.

What it answers: what a label such as `NV4`, `PIX`, `X` or `NV4/PXB` says about a pair of devices:
the accelerator link, the PCIe level, or both. A cell never says more than it prints: `NV4`
leaves the PCIe level unknown, `PIX` leaves the link unknown; what the matrix around it adds is
decided in `topology.importers.tables.label_matrix`.

Source of the labels: the legend of `nvidia-smi topo -m` (driver 340 to 580); SOC is the name that
drivers before 375 gave to SYS; MX is MetaX's `mx-smi topo -m`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from topology.model import MAX_LINKS, NO_LINK, UNKNOWN_LINK, AcceleratorLink, LinkKind, PcieLevel

__all__ = ["EXPECTED_CELLS", "SELF", "UNKNOWN", "Cell", "parse_cell"]

EXPECTED_CELLS = f"X, NV1..NV{MAX_LINKS}, MX, PIX, PXB, PHB, NODE or SYS"
"""What a message names as the labels that a matrix may hold."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one label says; either field may be unknown."""

    link: AcceleratorLink
    level: PcieLevel


SELF = Cell(NO_LINK, PcieLevel.SELF)
UNKNOWN = Cell(UNKNOWN_LINK, PcieLevel.UNKNOWN)

_LEVELS = {
    "PIX": PcieLevel.PIX,
    "PXB": PcieLevel.PXB,
    "PHB": PcieLevel.PHB,
    "NODE": PcieLevel.NODE,
    "SYS": PcieLevel.SYS,
    "SOC": PcieLevel.SYS,
}
_METAX = AcceleratorLink(LinkKind.METAXLINK, None)
_NVLINK = re.compile(r"NV([0-9]{1,2})")


def parse_cell(label: str) -> Cell | None:
    """Read one label; None where it is none of a matrix's.

    Two labels joined by a slash give link and level of one pair. `NV0` says that there is no
    link, `?` that nothing is known.

    >>> cell = parse_cell("NV4/PXB")
    >>> (cell.link.n_links, cell.level)
    (4, <PcieLevel.PXB: 'PXB'>)
    >>> parse_cell("0-31,64-95") is None
    True
    """
    if label == "X":
        return SELF
    if label == "?":
        return UNKNOWN
    link_label, slash, level_label = label.partition("/")
    link = _parse_link(link_label)
    if slash:
        level = _LEVELS.get(level_label)
        return None if link is None or level is None else Cell(link, level)
    if link is not None:
        return Cell(link, PcieLevel.UNKNOWN)
    level = _LEVELS.get(label)
    return None if level is None else Cell(UNKNOWN_LINK, level)


def _parse_link(label: str) -> AcceleratorLink | None:
    match = _NVLINK.fullmatch(label)
    if match is None:
        return _METAX if label == "MX" else None
    n_links = int(match[1])
    if n_links > MAX_LINKS:
        return None
    return AcceleratorLink(LinkKind.NVLINK, n_links) if n_links else NO_LINK
