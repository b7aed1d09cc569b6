"""A machine type as JSON: its GPUs, NICs and links, and where they stand in its picture.

Of a machine type, not of a node: without UUIDs and bus ids. Made once for each digest.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

from extender.read_api.bodies import (
    MachineCount,
    MachineLink,
    MachineParts,
    MachineScene,
    SectorKind,
    SizeKey,
)
from extender.read_api.encoding import encoder, merged
from extender.read_api.figures import SIZE_KEYS, SIZES
from topology.draw.layout import Band, lay_out
from topology.model import LinkKind, PcieLevel
from topology.select import MachineTables, Selected, select_set

if TYPE_CHECKING:
    from extender.read_api.figures import SetFigures
    from extender.snapshot import MachineType
    from topology.model import AcceleratorLink, NodeTopology

__all__ = ["MachinesJson"]

MAX_DRAWN_GPUS = 72
"""Largest machine whose links and picture are shown: the pairs grow with its square."""
MAX_KEPT = 1024
"""Machine types whose JSON is remembered; beyond it all are forgotten."""
_LINK_PREFIX = {
    LinkKind.NVLINK: "NV",
    LinkKind.XGMI: "XG",
    LinkKind.C2C: "C2C-",
    LinkKind.METAXLINK: "MX",
}


_KINDS: dict[Band, SectorKind] = {Band.PIX: "pix", Band.PXB: "pxb", Band.HOST: "host"}
_encode_parts, _encode_count = encoder(MachineParts), encoder(MachineCount)


class MachinesJson:
    """The JSON of machine types."""

    def __init__(self, figures: SetFigures) -> None:
        self._figures = figures
        self._kept: dict[str, bytes] = {}

    def of(self, machine: MachineType, name: str, n_nodes: int) -> bytes:
        """A machine type of this name, and how many nodes have it."""
        if machine.digest not in self._kept:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[machine.digest] = _encode_parts(self._parts(machine))
        count = _encode_count({"topology": machine.digest, "machine": name, "nodes": n_nodes})
        return merged(count, self._kept[machine.digest])

    def _parts(self, machine: MachineType) -> MachineParts:
        topology = machine.selector.topology
        is_drawn = topology.n_gpus <= MAX_DRAWN_GPUS
        return {
            "gpus": [
                {"index": i, "model": gpu.model, "numa_node": gpu.numa_node}
                for i, gpu in enumerate(topology.gpus)
            ],
            "nics": [
                {
                    "name": nic.name,
                    "numa_node": nic.numa_node,
                    "is_rdma": nic.is_rdma,
                    "gbit_per_s": nic.gbit_per_s,
                    "pcie": [_level(level) for level in nic.levels],
                }
                for nic in topology.nics
            ]
            or None,
            "links": self._links(machine) if is_drawn else None,
            "best_gbytes_per_s": _best(machine),
            "scene": _scene(topology) if is_drawn else None,
        }

    def _links(self, machine: MachineType) -> list[MachineLink]:
        topology = machine.selector.topology
        links: list[MachineLink] = []
        for a, b in combinations(range(topology.n_gpus), 2):
            pcie = _level(topology.pcie[a][b])
            links.append(
                {
                    "a": a,
                    "b": b,
                    "label": _link(topology.links[a][b]) or pcie,
                    "pcie": pcie,
                    "gbytes_per_s": self._figures.worth(machine, 1 << a | 1 << b)["gbytes_per_s"],
                }
            )
        return links


def _level(level: PcieLevel) -> str | None:
    return None if level is PcieLevel.UNKNOWN else level.value


def _link(link: AcceleratorLink) -> str | None:
    """As `nvidia-smi topo -m` prints it; None where there is none, or it is unknown."""
    if not link.is_up:
        return None
    return f"{_LINK_PREFIX[link.kind]}{'?' if link.n_links is None else link.n_links}"


def _best(machine: MachineType) -> dict[SizeKey, float] | None:
    """GB/s of the best set of each size on the empty machine; None where sets have no table."""
    if machine.is_rated_slowly:
        return None
    selector, best = machine.selector, dict[SizeKey, float]()
    for key, size in zip(SIZE_KEYS, SIZES, strict=True):
        if size > selector.n_gpus:
            break
        if isinstance(selector, MachineTables):
            best[key] = round(selector.best_value[size], 3)
            continue
        selected = select_set(selector, available=selector.all_gpus, size=size)
        if isinstance(selected, Selected):
            best[key] = round(selected.value_gbytes_per_s, 3)
    return best


def _scene(topology: NodeTopology) -> MachineScene:
    """Places in inches from the middle, x to the right and y up; angles in degrees."""
    layout = lay_out(topology)
    return {
        "extent": _round(layout.extent),
        "gpu_radius": _round(layout.gpu_radius),
        "gpus": [(_round(one.x), _round(one.y)) for one in layout.gpus],
        "hubs": [(_round(one.x), _round(one.y)) for one in layout.hubs],
        "nics": [
            {
                "label": one.label,
                "x": _round(one.place.x),
                "y": _round(one.place.y),
                "angle_deg": _round(math.degrees(one.place.angle)),
            }
            for one in layout.nics
        ],
        "sectors": [
            {
                "kind": _KINDS[one.band],
                "label": one.label,
                "inner": _round(one.inner),
                "outer": _round(one.outer),
                "start_deg": _round(one.start_deg),
                "end_deg": _round(one.end_deg),
            }
            for one in layout.sectors
        ],
    }


def _round(number: float) -> float:
    return round(number, 3)
