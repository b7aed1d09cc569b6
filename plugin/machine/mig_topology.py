"""The topology of some GPUs of a machine, or of the MIG instances on them.

What it answers: from a machine's topology and a list of parts (a physical GPU, or an instance of
one), the topology of exactly these parts, in that order. It must never decide which parts are
served (`plugin.machine.inventory`), nor rate anything.

A whole GPU keeps its links, its fabric and what was measured. A MIG instance has no way to another
GPU or instance but through the host: no GPU to GPU P2P, PCIe or NVLink, is supported
(NVIDIA MIG User Guide, Deployment Considerations). Two instances of one GPU are at `PIX`: no
bridge lies between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topology.model import NO_LINK, AcceleratorLink, Gpu, NodeTopology, P2pAccess, PcieLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.machine.reader import MigInstance
    from topology.model import SwitchFabric
    from topology.model.node_topology import Measurement

__all__ = ["Part", "topology_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """GPU number `gpu` of the machine, or one of its instances."""

    gpu: int
    instance: MigInstance | None = None


def topology_of(whole: NodeTopology, parts: Sequence[Part]) -> NodeTopology:
    """The topology of these parts, at least one; no GPU twice, nor beside its own instances."""
    if [one.gpu for one in parts] == list(range(whole.n_gpus)) and not _has_instances(parts):
        return whole
    fabrics = tuple(
        fabric for fabric in (_fabric(one, parts) for one in whole.fabrics) if fabric is not None
    )
    return replace(
        whole,
        gpus=tuple(_gpu(whole.gpus[one.gpu], one.instance) for one in parts),
        links=tuple(tuple(_link(whole, one, other) for other in parts) for one in parts),
        pcie=tuple(tuple(_level(whole, one, other) for other in parts) for one in parts),
        nics=tuple(
            replace(nic, levels=tuple(nic.levels[one.gpu] for one in parts)) for nic in whole.nics
        ),
        fabrics=fabrics,
        p2p=P2pAccess.NO if _has_instances(parts) else whole.p2p,
        measurement=_measurement(whole.measurement, parts),
    )


def _has_instances(parts: Sequence[Part]) -> bool:
    return any(one.instance is not None for one in parts)


def _gpu(gpu: Gpu, instance: MigInstance | None) -> Gpu:
    if instance is None:
        return gpu
    model = None if gpu.model is None else f"{gpu.model} MIG {instance.profile}"
    return replace(
        gpu,
        uuid=instance.uuid,
        model=model,
        memory_mib=instance.memory_mib,
        link_generation=None,
        parent=gpu.uuid,
    )


def _link(whole: NodeTopology, one: Part, other: Part) -> AcceleratorLink:
    is_whole = one.instance is None and other.instance is None
    return whole.links[one.gpu][other.gpu] if is_whole else NO_LINK


def _level(whole: NodeTopology, one: Part, other: Part) -> PcieLevel:
    if one.gpu == other.gpu and one != other:
        return PcieLevel.PIX
    return whole.pcie[one.gpu][other.gpu]


def _fabric(fabric: SwitchFabric, parts: Sequence[Part]) -> SwitchFabric | None:
    counts = dict(fabric.ports)
    ports = tuple(
        (place, counts[one.gpu])
        for place, one in enumerate(parts)
        if one.instance is None and one.gpu in counts
    )
    return replace(fabric, ports=ports) if ports else None


def _measurement(measurement: Measurement | None, parts: Sequence[Part]) -> Measurement | None:
    """What was measured among whole GPUs that are all there."""
    if measurement is None:
        return None
    place = {one.gpu: i for i, one in enumerate(parts) if one.instance is None}
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
