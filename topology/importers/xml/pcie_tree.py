"""PCIe levels from places in a PCI tree.

What it answers: how far two PCI devices are apart, in the words of `nvidia-smi topo -m`, given
where each hangs. NCCL topology files and hwloc files both hold a PCI tree and nothing else about
PCIe distance, so both importers use this. It never reads a file, and where the tree does not show a
level it says unknown.

Method (legend of `nvidia-smi topo -m`; nvml.h, nvmlGpuTopologyLevel_t):

- One switch between the two: PIX; several: PXB. A file lists either whole switches (NCCL) or every
  bridge of the kernel's tree, where a switch is one upstream and one downstream port (hwloc).
- Nothing in common below one host bridge: PHB, which only hwloc shows.
- Different host bridges: NODE within a NUMA node, SYS between two. NUMA nodes of one socket (NPS4)
  count as different: `nvidia-smi` prints SYS on the machines in NPS4 mode that were recorded.
- A device on the root bus itself, with no root port above it, was put there by a hypervisor: its
  real place is hidden. An AWS p4d shows all its GPUs so, while AWS publishes the true tree (two
  GPUs and a NIC behind each switch) as an NCCL file; they contradict unless hidden means unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.model import PcieLevel, symmetric

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PciPlace", "PciTree"]


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where one PCI device hangs.

    `root` names the subtree it belongs to: a host bridge, or in NCCL files a CPU. `bridges` are the
    bridges or switches above it, from the root down. `is_hidden` is set for a device on a root bus.
    """

    root: str
    bridges: tuple[str, ...]
    numa_node: int | None
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class PciTree:
    """How one format draws its tree.

    `bridges_per_switch` is 1 where an entry of `PciPlace.bridges` is a switch, 2 where it is a
    port. `same_root` is the level of two devices of one root that share no bridge.
    """

    bridges_per_switch: int
    same_root: PcieLevel

    def level(self, a: PciPlace, b: PciPlace) -> PcieLevel:
        """Level of two different devices; symmetric.

        >>> tree = PciTree(bridges_per_switch=1, same_root=PcieLevel.NODE)
        >>> tree.level(PciPlace("0", ("03:00.0",), 0), PciPlace("0", ("03:00.0", "05:00.0"), 0))
        <PcieLevel.PXB: 'PXB'>
        """
        if a.root == b.root:
            shared = _n_shared(a.bridges, b.bridges)
            if shared:
                deepest = max(len(a.bridges), len(b.bridges)) - shared
                return PcieLevel.PIX if deepest < self.bridges_per_switch else PcieLevel.PXB
            level = self.same_root
        elif a.numa_node is None or b.numa_node is None:
            return PcieLevel.UNKNOWN
        else:
            level = PcieLevel.NODE if a.numa_node == b.numa_node else PcieLevel.SYS
        is_hidden = (a.is_hidden or b.is_hidden) and level is not PcieLevel.SYS
        return PcieLevel.UNKNOWN if is_hidden else level

    def row(self, device: PciPlace, places: Sequence[PciPlace]) -> tuple[PcieLevel, ...]:
        """Levels of a device that is not in `places` to each that is, in their order."""
        return tuple(self.level(device, place) for place in places)

    def matrix(self, places: Sequence[PciPlace]) -> tuple[tuple[PcieLevel, ...], ...]:
        """The n x n levels among n devices; SELF on the diagonal."""
        return symmetric(len(places), PcieLevel.SELF, lambda i, j: self.level(places[i], places[j]))


def _n_shared(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the common beginning of two paths."""
    shared = 0
    for above_a, above_b in zip(a, b, strict=False):  # the shorter path ends the comparison
        if above_a != above_b:
            break
        shared += 1
    return shared
