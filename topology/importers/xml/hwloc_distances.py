"""Accelerator links from the bandwidth matrices of a hwloc file.

What it answers: which pairs of GPUs hwloc saw linked, from its `XGMIBandwidth`, `XGMIHops` and
`NVLinkBandwidth` structures (`<distances2>`, hwloc 2.5 and later). It never counts links, and it
never reads a missing structure as "no link".

Method (open-mpi/hwloc topology-rsmi.c, topology-nvml.c): an entry above 0 in both directions is a
link; where hops are given, only those of one hop are links of the pair's own. The XGMI figure is a
constant, 100 GB/s for any number of links, and NVLink's needs the generation, so links are not
counted. ROCm SMI reports one hop for every pair of a hive on MI250X, so a pair that XGMI serves
through a third GPU looks linked there. Structures over objects of several types (NVLink with
NVSwitches or CPUs in it, `<distances2hetero>`) are left unread; then links stay unknown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, quote
from topology.model import MAX_GPUS, NO_LINK, UNKNOWN_LINK, AcceleratorLink, LinkKind, symmetric

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree.ElementTree import Element

__all__ = ["link_matrix"]

WHAT = "hwloc XML"

_KINDS = {"XGMIBandwidth": LinkKind.XGMI, "NVLinkBandwidth": LinkKind.NVLINK}
Values = dict[tuple[str, str], int]


def link_matrix(
    root: Element, os_devices: Sequence[Sequence[str | None]]
) -> tuple[tuple[AcceleratorLink, ...], ...]:
    """Pair matrix (n x n) of n GPUs; `os_devices` gives the gp_index of each GPU's OS devices.

    Raises `ImportFormatError` for a structure whose numbers do not make a square matrix.
    """
    n = len(os_devices)
    structures = {e.get("name") or "": e for e in root.iter("distances2")}
    name = next((name for name in _KINDS if name in structures), None)
    if name is None:
        return symmetric(n, NO_LINK, lambda _i, _j: UNKNOWN_LINK)
    bandwidth = _read(structures[name])
    hops = _read(structures["XGMIHops"]) if "XGMIHops" in structures else {}
    named = [_named_in(bandwidth, indices) for indices in os_devices]
    kind = _KINDS[name]
    return symmetric(n, NO_LINK, lambda i, j: _pair(kind, bandwidth, hops, (named[i], named[j])))


def _named_in(values: Values, indices: Sequence[str | None]) -> str | None:
    """The one of a GPU's OS devices that the structure speaks of; None where it is not in it."""
    return next((index for index in indices if index and (index, index) in values), None)


def _pair(
    kind: LinkKind, bandwidth: Values, hops: Values, pair: tuple[str | None, str | None]
) -> AcceleratorLink:
    a, b = pair
    if a is None or b is None:
        return UNKNOWN_LINK
    is_linked = bandwidth[a, b] > 0 and bandwidth[b, a] > 0
    is_own = hops.get((a, b), 1) == 1 and hops.get((b, a), 1) == 1
    return AcceleratorLink(kind, None) if is_linked and is_own else NO_LINK


def _read(structure: Element) -> Values:
    """Matrix of a structure, by pairs of the indices that it lists."""
    name = structure.get("name")
    indices = _numbers(structure, "indexes")
    values = _numbers(structure, "u64values")
    n = len(indices)
    if not 1 <= n <= MAX_GPUS or len(set(indices)) != n or len(values) != n * n:
        msg = (
            f"{WHAT}: {name} has {n} indexes and {len(values)} values, "
            f"expected 1..{MAX_GPUS} different indexes and their square"
        )
        raise ImportFormatError(msg)
    pairs = ((a, b) for a in indices for b in indices)
    return {pair: int(value) for pair, value in zip(pairs, values, strict=True)}


def _numbers(structure: Element, tag: str) -> list[str]:
    """Whole numbers of all elements of a tag; hwloc wraps long rows into several."""
    words = [word for part in structure.iter(tag) for word in (part.text or "").split()]
    for word in words:
        if not re.fullmatch(r"[0-9]{1,20}", word):
            msg = f"{WHAT}: {structure.get('name')} holds {quote(word)}, expected whole numbers"
            raise ImportFormatError(msg)
    return words
