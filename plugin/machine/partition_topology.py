"""The topology of some GPUs of a machine, or of partitions of them.

A whole GPU keeps its links, its fabric and its measured figures. A partition reaches other GPUs and
partitions through the host only: no GPU to GPU P2P, PCIe or NVLink, is supported between MIG
devices (MIG User Guide, Deployment Considerations), and of other vendors' partitions no more is
assumed. Two partitions of one GPU are at `PIX`: no bridge lies between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topology.model import NO_LINK, AcceleratorLink, Gpu, NodeTopology, P2pAccess, PcieLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.machine.reader import Partition
    from topology.model import SwitchFabric
    from topology.model.node_topology import Measurement

__all__ = ["Unit", "topology_of"]


@dataclass(frozen=True, slots=True)
class Unit:
    """GPU number `gpu` of the machine, or one of its partitions."""

    gpu: int
    partition: Partition | None = None


def topology_of(whole: NodeTopology, units: Sequence[Unit]) -> NodeTopology:
    """The topology of these units, at least one; no GPU twice, nor beside its own partitions."""
    if [one.gpu for one in units] == list(range(whole.n_gpus)) and not _has_partitions(units):
        return whole
    fabrics = tuple(
        fabric for fabric in (_fabric(one, units) for one in whole.fabrics) if fabric is not None
    )
    return replace(
        whole,
        gpus=tuple(_gpu(whole.gpus[one.gpu], one.partition) for one in units),
        links=tuple(tuple(_link(whole, one, other) for other in units) for one in units),
        pcie=tuple(tuple(_level(whole, one, other) for other in units) for one in units),
        nics=tuple(
            replace(nic, levels=tuple(nic.levels[one.gpu] for one in units)) for nic in whole.nics
        ),
        fabrics=fabrics,
        p2p=P2pAccess.NO if _has_partitions(units) else whole.p2p,
        measurement=_measurement(whole.measurement, units),
    )


def _has_partitions(units: Sequence[Unit]) -> bool:
    return any(one.partition is not None for one in units)


def _gpu(gpu: Gpu, partition: Partition | None) -> Gpu:
    if partition is None:
        return gpu
    model = None if gpu.model is None else f"{gpu.model} {partition.kind}"
    return replace(
        gpu,
        uuid=partition.id,
        model=model,
        memory_mib=partition.memory_mib,
        link_generation=None,
        parent=gpu.uuid,
    )


def _link(whole: NodeTopology, one: Unit, other: Unit) -> AcceleratorLink:
    is_whole = one.partition is None and other.partition is None
    return whole.links[one.gpu][other.gpu] if is_whole else NO_LINK


def _level(whole: NodeTopology, one: Unit, other: Unit) -> PcieLevel:
    if one.gpu == other.gpu and one != other:
        return PcieLevel.PIX
    return whole.pcie[one.gpu][other.gpu]


def _fabric(fabric: SwitchFabric, units: Sequence[Unit]) -> SwitchFabric | None:
    counts = dict(fabric.ports)
    ports = tuple(
        (place, counts[one.gpu])
        for place, one in enumerate(units)
        if one.partition is None and one.gpu in counts
    )
    return replace(fabric, ports=ports) if ports else None


def _measurement(measurement: Measurement | None, units: Sequence[Unit]) -> Measurement | None:
    """The figures measured among whole GPUs that are all served."""
    if measurement is None:
        return None
    place = {one.gpu: i for i, one in enumerate(units) if one.partition is None}
    pairs = tuple(
        replace(
            pair,
            first=min(place[pair.first], place[pair.second]),
            second=max(place[pair.first], place[pair.second]),
        )
        for pair in measurement.pairs
        if {pair.first, pair.second} <= place.keys()
    )
    sets = tuple(
        replace(one, gpus=tuple(sorted(place[gpu] for gpu in one.gpus)))
        for one in measurement.sets
        if place.keys() >= set(one.gpus)
    )
    return replace(measurement, pairs=pairs, sets=sets) if pairs or sets else None
