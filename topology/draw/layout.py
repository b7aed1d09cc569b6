"""Where the parts of a machine stand in its picture.

What it answers: for each GPU, NIC group, switch fabric and PCIe group of a node a place on a plane
(inches, origin in the middle), such that nothing overlaps and groups stay together. It never
draws (`topology.draw.render`) and never rates a link.

Method: GPUs stand on one circle, so no link ever runs through a third GPU and the same rule serves
1 and 72 of them. Nested groups (`topology.draw.pcie_groups`: surely within PIX, then PXB, then the
NUMA node) are contiguous arcs and become ring sectors around their GPUs. NICs stand outside their
nearest GPUs, in the innermost sector that holds both. A fabric is a hub at the middle of its GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topology.draw.pcie_groups import pcie_groups
from topology.model import NearestGpus, PcieLevel, nearest_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.model import Nic, NodeTopology

__all__ = [
    "NIC_HEIGHT",
    "NIC_LENGTH",
    "Band",
    "Layout",
    "NicSpot",
    "Place",
    "Sector",
    "lay_out",
]

GPU_RADIUS = 0.2
"""Radius of a GPU's disc up to about 96 GPUs, inches."""
SLOT = 0.56
"""Distance of neighbouring GPUs on the circle, inches."""
LEAST_RADIUS = 1.1
MOST_RADIUS = 8.6
"""Bounds of the circle, inches: above some 96 GPUs the discs shrink instead."""
NIC_LENGTH = 0.54
NIC_HEIGHT = 0.17
NIC_NAME_CHARACTERS = 10
"""Size of a NIC's box, inches, and the longest name that fits in it."""


class Band(Enum):
    """What a sector holds together, innermost first."""

    PIX = "PIX"
    PXB = "PXB"
    HOST = "NUMA"


# How far a sector reaches beyond its GPUs' slots (in slots) and discs (in inches).
_MARGIN_SLOTS = {Band.PIX: 0.0, Band.PXB: 0.06, Band.HOST: 0.12}
_MARGIN_INCHES = {Band.PIX: 0.08, Band.PXB: 0.14, Band.HOST: 0.20}
_SIBLING_GAP_SLOTS = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """A point: x and y in inches, and its direction from the middle in radians."""

    x: float
    y: float
    angle: float


@dataclass(frozen=True, slots=True)
class Sector:
    """A ring sector around the GPUs of one group: radii in inches, angles in degrees.

    `start_deg` < `end_deg`, counter-clockwise; a difference of 360 is the whole ring. `label` is
    None where the group has no name of its own.
    """

    band: Band
    label: str | None
    inner: float
    outer: float
    start_deg: float
    end_deg: float


@dataclass(frozen=True, slots=True)
class NicSpot:
    """NICs with the same nearest GPUs, drawn as one box."""

    label: str
    place: Place


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of all parts. `gpus` and `hubs` are in the order of the topology."""

    gpus: tuple[Place, ...]
    hubs: tuple[Place, ...]
    sectors: tuple[Sector, ...]
    nics: tuple[NicSpot, ...]
    gpu_radius: float
    ring_radius: float
    extent: float


@dataclass(frozen=True, slots=True)
class _Group:
    band: Band
    gpus: tuple[int, ...]
    label: str | None


def _host_groups(topology: NodeTopology) -> list[tuple[frozenset[int], str | None]]:
    """Group by NUMA node where every GPU's is known, else by PCIe level NODE or nearer."""
    numa = [gpu.numa_node for gpu in topology.gpus]
    if None not in numa:
        return [
            (frozenset(i for i, other in enumerate(numa) if other == node), f"NUMA {node}")
            for node in sorted(set(numa), key=numa.index)
        ]
    return [(frozenset(part), None) for part in pcie_groups(topology, PcieLevel.NODE)]


def _partitions(topology: NodeTopology) -> dict[Band, list[tuple[frozenset[int], str | None]]]:
    """Give the partition of the GPUs at each band; a finer one never crosses a coarser one."""
    host = _host_groups(topology)
    parts: dict[Band, list[tuple[frozenset[int], str | None]]] = {Band.HOST: host}
    coarser = [group for group, _ in host]
    for band, level in ((Band.PXB, PcieLevel.PXB), (Band.PIX, PcieLevel.PIX)):
        found = [frozenset(part) for part in pcie_groups(topology, level)]
        cut = [part & whole for whole in coarser for part in found if part & whole]
        parts[band] = [(part, None) for part in cut]
        coarser = cut
    return parts


def _drawn_groups(topology: NodeTopology) -> list[_Group]:
    """Choose the groups worth a sector: named, or of several GPUs and not drawn closer in."""
    parts = _partitions(topology)
    groups: list[_Group] = []
    for band in Band:
        for part, label in parts[band]:
            is_drawn_inside = any(frozenset(group.gpus) == part for group in groups)
            if label is not None or (len(part) > 1 and not is_drawn_inside):
                groups.append(_Group(band, tuple(sorted(part)), label))
    return groups


def _order(topology: NodeTopology) -> list[int]:
    """Order the GPUs around the circle: groups together, by lowest index at every level."""
    parts = _partitions(topology)
    lowest = {band: {gpu: min(part) for part, _ in parts[band] for gpu in part} for band in Band}
    return sorted(
        range(topology.n_gpus),
        key=lambda gpu: (lowest[Band.HOST][gpu], lowest[Band.PXB][gpu], lowest[Band.PIX][gpu], gpu),
    )


def _gap(left: int, right: int, groups: Sequence[_Group]) -> float:
    """Room between two neighbours on the circle, in slots, for the sectors that end there."""
    ending = [g.band for g in groups if (left in g.gpus) != (right in g.gpus)]
    if not ending:
        return 0.0
    return 2 * max(_MARGIN_SLOTS[band] for band in ending) + _SIBLING_GAP_SLOTS


def _positions(order: Sequence[int], groups: Sequence[_Group]) -> tuple[dict[int, float], float]:
    """Give each GPU's place along the circle and the circle's length, both in slots."""
    gaps = [_gap(order[k - 1], gpu, groups) for k, gpu in enumerate(order)]
    along = gaps[0] / 2
    places: dict[int, float] = {}
    for k, gpu in enumerate(order):
        along += (gaps[k] if k else 0.0) + 0.5
        places[gpu] = along
        along += 0.5
    return places, along + gaps[0] / 2


def _nic_groups(topology: NodeTopology) -> dict[NearestGpus, list[Nic]]:
    """NICs by the GPUs they stand beside: of unknown levels those at their NUMA node, else all."""
    numa_nodes = [gpu.numa_node for gpu in topology.gpus]
    groups: dict[NearestGpus, list[Nic]] = {}
    for nic in topology.nics:
        level, gpus = nearest_gpus(nic.levels, nic.numa_node, numa_nodes)
        if level is PcieLevel.UNKNOWN:
            level = PcieLevel.NODE if gpus else level
            gpus = gpus or tuple(range(topology.n_gpus))
        groups.setdefault(NearestGpus(level, gpus), []).append(nic)
    return groups


def _nic_label(nics: Sequence[Nic]) -> str:
    if len(nics) > 1:
        return f"{len(nics)} NICs"
    return nics[0].name if len(nics[0].name) <= NIC_NAME_CHARACTERS else "NIC"


def _spread(angles: Sequence[float], least: float) -> list[float]:
    """Push angles apart, in order, until neighbours are `least` radians apart (not the wrap)."""
    placed: list[float] = []
    for angle in angles:
        placed.append(min(angle, placed[-1] - least) if placed else angle)
    return placed


class _Circle:
    """The circle of one machine: from slots along it to points."""

    def __init__(self, topology: NodeTopology) -> None:
        self.groups = _drawn_groups(topology)
        self.places, self.length = _positions(_order(topology), self.groups)
        wanted = self.length * SLOT / (2 * math.pi)
        self.radius = min(max(wanted, LEAST_RADIUS), MOST_RADIUS) if topology.n_gpus > 1 else 0.0
        self.gpu_radius = GPU_RADIUS * min(1.0, MOST_RADIUS / wanted)
        # Two GPUs stand side by side; more begin at the left and run along the top.
        self.first_angle = math.pi * (1.5 if topology.n_gpus <= 2 else 1.0)  # noqa: PLR2004 - a pair

    def angle(self, slot: float) -> float:
        return self.first_angle - 2 * math.pi * slot / self.length

    def at(self, angle: float, radius: float) -> Place:
        return Place(radius * math.cos(angle), radius * math.sin(angle), angle)

    def middle_angle(self, gpus: Sequence[int]) -> float:
        """Direction of the middle of some GPUs; of the first where they balance out."""
        angles = [self.angle(self.places[gpu]) for gpu in gpus]
        x, y = sum(map(math.cos, angles)), sum(map(math.sin, angles))
        if math.hypot(x, y) < 1e-6 * len(angles):
            return angles[0] - math.pi / len(self.places)
        return math.atan2(y, x)

    def sector(self, group: _Group, outer: float) -> Sector:
        slots = [self.places[gpu] for gpu in group.gpus]
        margin = 0.5 + _MARGIN_SLOTS[group.band]
        start = math.degrees(self.angle(max(slots) + margin))
        end = math.degrees(self.angle(min(slots) - margin))
        inner = max(0.0, self.radius - self.gpu_radius - _MARGIN_INCHES[group.band])
        if len(slots) == len(self.places):
            start, end = -90.0, 270.0
        return Sector(group.band, group.label, inner, outer, start, end)


def _nic_ring(
    circle: _Circle, members: Sequence[tuple[tuple[int, ...], list[Nic]]], radius: float
) -> list[NicSpot]:
    if not members:
        return []
    ring = sorted(((circle.middle_angle(gpus), nics) for gpus, nics in members), key=_by_angle)
    angles = _spread([angle for angle, _ in ring], (NIC_LENGTH + 0.1) / radius)
    return [
        NicSpot(_nic_label(nics), circle.at(angle, radius))
        for angle, (_, nics) in zip(angles, ring, strict=True)
    ]


def _by_angle(item: tuple[float, list[Nic]]) -> tuple[float, str]:
    return (-item[0], item[1][0].name)


def _hub(topology: NodeTopology, circle: _Circle, index: int) -> Place:
    """Middle of a fabric's GPUs: the circle's own middle where it holds all of them."""
    members = [gpu for gpu, _ in topology.fabrics[index].ports]
    spots = [circle.at(circle.angle(circle.places[gpu]), circle.radius) for gpu in members]
    if len(members) == topology.n_gpus:
        return Place(0.0, 0.0, 0.0)
    x = sum(spot.x for spot in spots) / len(spots)
    y = sum(spot.y for spot in spots) / len(spots)
    return Place(0.6 * x, 0.6 * y, math.atan2(y, x))


def lay_out(topology: NodeTopology) -> Layout:
    """Place all parts of a machine; deterministic, O(n^2) in GPUs.

    NICs within PXB of a GPU stand in that GPU's PCIe sector, those on its NUMA node outside of the
    PCIe sectors, all others (SYS or unknown to every GPU) outside of everything.

    >>> from topology.model.node_topology import NO_LINK, Gpu, NodeTopology, PcieLevel
    >>> lone = NodeTopology(gpus=(Gpu(),), links=((NO_LINK,),), pcie=((PcieLevel.SELF,),))
    >>> lay_out(lone).gpus
    (Place(x=0.0, y=0.0, angle=0.0),)
    """
    circle = _Circle(topology)
    groups = _nic_groups(topology)
    near = [
        (gpus, nics) for (level, gpus), nics in groups.items() if level.rank <= PcieLevel.PXB.rank
    ]
    host = [
        (gpus, nics)
        for (level, gpus), nics in groups.items()
        if PcieLevel.PXB.rank < level.rank <= PcieLevel.NODE.rank
    ]
    far = [
        (gpus, nics) for (level, gpus), nics in groups.items() if level.rank >= PcieLevel.SYS.rank
    ]
    edge = circle.radius + circle.gpu_radius
    spots: list[NicSpot] = []
    outer: dict[Band, float] = {}
    step = NIC_HEIGHT + 0.08
    spots += _nic_ring(circle, near, edge + step - NIC_HEIGHT / 2)
    edge += step if near else 0.0
    outer[Band.PIX] = edge + _MARGIN_INCHES[Band.PIX]
    outer[Band.PXB] = edge + _MARGIN_INCHES[Band.PXB]
    spots += _nic_ring(circle, host, outer[Band.PXB] + step - NIC_HEIGHT * 0.7)
    edge += step if host else 0.0
    outer[Band.HOST] = edge + _MARGIN_INCHES[Band.HOST]
    label_edge = outer[Band.HOST] + 0.22
    spots += _nic_ring(circle, far, label_edge + NIC_HEIGHT / 2)
    return Layout(
        gpus=tuple(
            circle.at(circle.angle(circle.places[gpu]), circle.radius)
            if topology.n_gpus > 1
            else Place(0.0, 0.0, 0.0)
            for gpu in range(topology.n_gpus)
        ),
        hubs=tuple(_hub(topology, circle, k) for k in range(len(topology.fabrics))),
        sectors=tuple(circle.sector(group, outer[group.band]) for group in circle.groups),
        nics=tuple(spots),
        gpu_radius=circle.gpu_radius,
        ring_radius=circle.radius,
        extent=label_edge + (NIC_HEIGHT if far else 0.0),
    )
