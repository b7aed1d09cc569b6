"""NICs that an importer found -> the model's NICs.

What it answers: the `Nic` values of a machine, given each NIC's name and place in the PCI tree. It
never decides what a NIC is; that depends on the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError
from topology.model import Nic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.importers.xml.pcie_tree import PciPlace, PciTree

__all__ = ["MAX_NICS", "FoundNic", "build_nics"]

MAX_NICS = 512
"""Most NICs one node may have: as many as GPUs; 64 on the largest recorded machine (AWS p5)."""


@dataclass(frozen=True, slots=True)
class FoundNic:
    """One NIC as a file shows it; `is_rdma` and `gbit_per_s` are None where unknown."""

    name: str
    bus_id: str
    place: PciPlace
    is_rdma: bool | None
    gbit_per_s: float | None = None


def build_nics(
    found: Sequence[FoundNic], tree: PciTree, gpu_places: Sequence[PciPlace]
) -> tuple[Nic, ...]:
    """NICs in the order found; a name that comes again gets its number behind a `#`.

    Raises `ImportFormatError` above `MAX_NICS`.
    """
    if len(found) > MAX_NICS:
        msg = f"the file holds {len(found)} NICs, expected at most {MAX_NICS}"
        raise ImportFormatError(msg)
    times: dict[str, int] = {}
    nics: list[Nic] = []
    for nic in found:
        times[nic.name] = times.get(nic.name, 0) + 1
        nics.append(
            Nic(
                name=nic.name if times[nic.name] == 1 else f"{nic.name}#{times[nic.name]}",
                levels=tree.row(nic.place, gpu_places),
                pci_bus_id=nic.bus_id,
                numa_node=nic.place.numa_node,
                is_rdma=nic.is_rdma,
                gbit_per_s=nic.gbit_per_s,
            )
        )
    return tuple(nics)
