"""Where the parts of a machine stand in the drawing: GPUs and NICs by NUMA node and PCIe switch.

A NIC stands beside the switch that it shares with a GPU (PIX, else PXB), else in its NUMA node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.draw.pcie_groups import pcie_groups
from topology.model import PcieLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.model import Nic, NodeTopology

__all__ = ["Host", "Switch", "hosts_of"]


@dataclass(frozen=True, slots=True)
class Switch:
    """GPUs of one PCIe switch or of a tree of them, with NICs; or GPUs of no known switch."""

    label: str
    gpus: tuple[int, ...]
    nics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """A NUMA node, or GPUs whose NUMA nodes are unknown; `nics` stand beside no switch."""

    label: str
    switches: tuple[Switch, ...]
    nics: tuple[str, ...] = ()


def hosts_of(topology: NodeTopology) -> list[Host]:
    """The parts in order of NUMA node; what has none comes last."""
    nic_of_group = _nics_by_first_gpu(topology)
    placed = {name for names in nic_of_group.values() for name in names}
    rest = [nic for nic in topology.nics if nic.name not in placed]
    hosts: list[Host] = []
    for label, gpus in _numa_groups(topology):
        switches = _switches(topology, set(gpus), nic_of_group)
        nics = tuple(nic.name for nic in rest if _stands_in(nic, gpus, topology))
        rest = [nic for nic in rest if nic.name not in nics]
        hosts.append(Host(label, switches, nics))
    if rest:
        hosts.append(Host("NICs elsewhere", (), tuple(nic.name for nic in rest)))
    return hosts


def _numa_groups(topology: NodeTopology) -> list[tuple[str, tuple[int, ...]]]:
    numbers = [gpu.numa_node for gpu in topology.gpus]
    known = sorted({number for number in numbers if number is not None})
    groups = [
        (f"NUMA {number}", tuple(i for i, one in enumerate(numbers) if one == number))
        for number in known
    ]
    unknown = {i for i, one in enumerate(numbers) if one is None}
    # Those of one NUMA node by their PCIe levels; which one it is is not known.
    near = [
        members
        for group in pcie_groups(topology, PcieLevel.NODE)
        if (members := tuple(sorted(unknown.intersection(group))))
    ]
    if all(len(members) == 1 for members in near) and len(near) > 1:
        near = [tuple(sorted(unknown))]
    return [*groups, *(("NUMA node unknown", members) for members in near)]


def _switches(
    topology: NodeTopology, gpus: set[int], nics: dict[tuple[int, ...], list[str]]
) -> tuple[Switch, ...]:
    """One switch is PIX, a tree of them PXB; GPUs of no known switch stand together."""
    found: list[Switch] = []
    alone: list[int] = []
    for group in pcie_groups(topology, PcieLevel.PXB):
        members = tuple(gpu for gpu in group if gpu in gpus)
        beside = tuple(nics.get(group, ())) if members and members[0] == group[0] else ()
        if not members:
            continue
        if len(members) == 1 and not beside:
            alone += members
        else:
            found.append(Switch(_label(topology, members), members, beside))
    if alone:
        found.append(Switch("PCIe", tuple(alone)))
    return tuple(found)


def _label(topology: NodeTopology, gpus: Sequence[int]) -> str:
    first = gpus[0]
    is_one = all(topology.pcie[first][gpu].rank <= PcieLevel.PIX.rank for gpu in gpus)
    return "PCIe switch" if is_one else "PCIe switches"


def _nics_by_first_gpu(topology: NodeTopology) -> dict[tuple[int, ...], list[str]]:
    """The NICs within PXB of a GPU, by that GPU's group."""
    found: dict[tuple[int, ...], list[str]] = {}
    for group in pcie_groups(topology, PcieLevel.PXB):
        for nic in topology.nics:
            if any(nic.levels[gpu].rank <= PcieLevel.PXB.rank for gpu in group):
                found.setdefault(group, []).append(nic.name)
    return found


def _stands_in(nic: Nic, gpus: Sequence[int], topology: NodeTopology) -> bool:
    numbers = {topology.gpus[gpu].numa_node for gpu in gpus}
    if nic.numa_node is not None and numbers != {None}:
        return nic.numa_node in numbers
    return any(nic.levels[gpu].rank <= PcieLevel.NODE.rank for gpu in gpus)
