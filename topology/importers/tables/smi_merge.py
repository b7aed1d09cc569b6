"""Several matrices of one machine in one text become one topology.

What it answers: what two runs of nvidia-smi say together. People paste `topo -m` and `topo -mp` one
below the other: the first hides the PCIe level of linked pairs, the second hides the links. It must
never merge two machines: matrices that differ in their number of GPUs, or in any fact that both
know, are refused.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from topology.errors import ImportFormatError
from topology.model import UNKNOWN_LINK, NodeTopology, PcieLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["merge_topologies"]

T = TypeVar("T")


def merge_topologies(topologies: Sequence[NodeTopology]) -> NodeTopology:
    """Join one or more topologies of one machine; NICs are those of the longest list.

    Raises `ImportFormatError` where two of them contradict each other.
    """
    return reduce(_merge, dict.fromkeys(topologies))


def _merge(one: NodeTopology, other: NodeTopology) -> NodeTopology:
    if one.n_gpus != other.n_gpus:
        msg = f"number of GPUs ({one.n_gpus}, {other.n_gpus})"
        raise _contradiction(msg)
    (numa_nodes,) = _merge_rows("NUMA node", [_numa(one)], [_numa(other)], None)
    return replace(
        one,
        gpus=tuple(
            replace(gpu, numa_node=numa) for gpu, numa in zip(one.gpus, numa_nodes, strict=True)
        ),
        links=_merge_rows("link", one.links, other.links, UNKNOWN_LINK),
        pcie=_merge_rows("PCIe level", one.pcie, other.pcie, PcieLevel.UNKNOWN),
        nics=max(one.nics, other.nics, key=len),
        fabrics=one.fabrics or other.fabrics,
    )


def _numa(topology: NodeTopology) -> list[int | None]:
    return [gpu.numa_node for gpu in topology.gpus]


def _merge_rows(
    what: str, one: Sequence[Sequence[T]], other: Sequence[Sequence[T]], unknown: T
) -> tuple[tuple[T, ...], ...]:
    """Cell by cell the one that is known."""
    merged: list[tuple[T, ...]] = []
    for i, (row, other_row) in enumerate(zip(one, other, strict=True)):
        for j, (first, second) in enumerate(zip(row, other_row, strict=True)):
            if unknown not in (first, second) and first != second:
                msg = f"{what} in row {i}, column {j}"
                raise _contradiction(msg)
        merged.append(tuple(b if a == unknown else a for a, b in zip(row, other_row, strict=True)))
    return tuple(merged)


def _contradiction(what: str) -> ImportFormatError:
    return ImportFormatError(f"the text holds matrices of different machines: {what} differs")
