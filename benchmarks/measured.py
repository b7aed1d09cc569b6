"""The measured nodes: every GPU set's all-reduce bandwidth, beside the node's link labels.

Reads, for three 8-GPU nodes (V100, A6000, H100), the topology that `nvidia-smi topo -m` printed, as
a `NodeTopology`, and the NCCL bus bandwidth in GB/s that was measured on each of their 247 sets of
2 to 8 GPUs. It never rates a set itself.

Source of the data: BandPilot (arXiv 2506.15595), SusCom-Lab/BandPilot at de4dd93, MIT; the file is
not part of this project and is read from the place that `--shared` names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import BadData, MissingData
from topology.model import (
    NO_LINK,
    AcceleratorLink,
    Gpu,
    LinkKind,
    NodeTopology,
    PcieLevel,
    SwitchFabric,
    gpus_of,
    mask_of,
)
from topology.model.node_topology import MeasuredPair, Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "DEFAULT_SHARED",
    "SOURCE_NOTE",
    "MeasuredMachine",
    "fill_levels",
    "load_machines",
    "relabel_machine",
    "relabel_topology",
    "topology_from_labels",
    "with_measured_pairs",
]

DEFAULT_SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Where the data lies unless `--shared` names another place: beside the checkout."""

SOURCE_NOTE = (
    "measured by others: NCCL all-reduce bus bandwidth, BandPilot (arXiv 2506.15595), "
    "SusCom-Lab/BandPilot at de4dd93"
)
"""Every table that these measurements judge says whose they are."""

PAIR = 2
_NVLINK = re.compile(r"NV([0-9]+)")

_MODELS = {
    "V100": "Tesla V100-SXM2-32GB",
    "A6000": "NVIDIA RTX A6000",
    "H100_26": "NVIDIA H100 80GB HBM3",
}
"""GPU model of each machine of the file, which names them only in short."""
_SWITCHED = frozenset({"H100_26"})
"""Machines whose NV# labels are ports of an NVSwitch: a row sums up to more links than exist."""
_MESSAGE_BYTES = {"H100_26": 16 * 1024 * 1024}
"""Message size where it is known: the H100 values equal the source's 16777216 B run."""


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """A node and the measured bus bandwidth of each of its sets: mask -> GB/s."""

    name: str
    topology: NodeTopology
    gbytes_per_s: Mapping[int, float]
    message_bytes: int | None


def topology_from_labels(
    labels: Sequence[Sequence[str]], *, model: str, is_switched: bool, name: str | None = None
) -> NodeTopology:
    """Read a matrix of `nvidia-smi topo -m` labels.

    NV# hides the PCIe level, which is then unknown; every other label says that there is no NVLink.
    Raises `BadData` for a label that is neither.
    """
    n = len(labels)
    links = [[NO_LINK] * n for _ in range(n)]
    pcie = [[PcieLevel.UNKNOWN] * n for _ in range(n)]
    for i, row in enumerate(labels):
        for j, label in enumerate(row):
            match = _NVLINK.fullmatch(label)
            if match is not None:
                links[i][j] = AcceleratorLink(LinkKind.NVLINK, int(match.group(1)))
            elif label in {level.value for level in PcieLevel}:
                pcie[i][j] = PcieLevel(label)
            else:
                msg = f"link label {label!r} of GPUs {i} and {j}: expected NV1..NV36 or X, PIX..SYS"
                raise BadData(msg)
    fabrics: tuple[SwitchFabric, ...] = ()
    if is_switched:
        ports = tuple((i, max(link.n_links or 0 for link in row)) for i, row in enumerate(links))
        fabrics = (SwitchFabric(ports=ports),)
    return NodeTopology(
        gpus=tuple(Gpu(model=model) for _ in range(n)),
        links=tuple(tuple(row) for row in links),
        pcie=tuple(tuple(row) for row in pcie),
        fabrics=fabrics,
        name=name,
    )


def _machine(name: str, raw: Mapping[str, object], path: Path) -> MeasuredMachine:
    labels = raw.get("topo")
    measured = raw.get("busbw_GBps")
    if not isinstance(labels, list) or not isinstance(measured, dict):
        msg = f"{path}: machine {name} lacks 'topo' or 'busbw_GBps'"
        raise BadData(msg)
    bandwidth = {mask_of(int(digit) for digit in key): float(v) for key, v in measured.items()}
    n = len(labels)
    expected = {mask for mask in range(1 << n) if mask.bit_count() >= PAIR}
    if set(bandwidth) != expected:
        msg = f"{path}: machine {name} has {len(bandwidth)} sets, expected all {len(expected)}"
        raise BadData(msg)
    return MeasuredMachine(
        name=name,
        topology=topology_from_labels(
            labels,
            model=_MODELS.get(name, name),
            is_switched=name in _SWITCHED,
            name=f"measured-{name.lower()}",
        ),
        gbytes_per_s=bandwidth,
        message_bytes=_MESSAGE_BYTES.get(name),
    )


def load_machines(shared: Path) -> tuple[MeasuredMachine, ...]:
    """Load the measured machines in the file's order.

    Raises `MissingData` where the file is not there, `BadData` where it holds something else.
    """
    path = shared / "measured" / "subset_bandwidth.json"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"measured bandwidths: {path} cannot be read; name the folder with --shared"
        raise MissingData(msg) from error
    try:
        machines = dict(json.loads(text)["machines"])
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{path}: expected JSON with an object 'machines'"
        raise BadData(msg) from error
    return tuple(_machine(name, raw, path) for name, raw in machines.items())


def relabel_topology(topology: NodeTopology, order: Sequence[int]) -> NodeTopology:
    """Renumber the GPUs: new GPU i is old GPU `order[i]`."""
    place = {old: new for new, old in enumerate(order)}
    measurement = topology.measurement
    if measurement is not None:
        measurement = replace(
            measurement,
            pairs=tuple(
                sorted(
                    (
                        replace(
                            pair,
                            first=min(place[pair.first], place[pair.second]),
                            second=max(place[pair.first], place[pair.second]),
                        )
                        for pair in measurement.pairs
                    ),
                    key=lambda pair: (pair.first, pair.second),
                )
            ),
            sets=tuple(
                replace(entry, gpus=tuple(sorted(place[g] for g in entry.gpus)))
                for entry in measurement.sets
            ),
        )
    return replace(
        topology,
        gpus=tuple(topology.gpus[old] for old in order),
        links=tuple(tuple(topology.links[a][b] for b in order) for a in order),
        pcie=tuple(tuple(topology.pcie[a][b] for b in order) for a in order),
        nics=tuple(
            replace(nic, levels=tuple(nic.levels[old] for old in order)) for nic in topology.nics
        ),
        fabrics=tuple(
            replace(fabric, ports=tuple(sorted((place[g], n) for g, n in fabric.ports)))
            for fabric in topology.fabrics
        ),
        measurement=measurement,
    )


def relabel_machine(machine: MeasuredMachine, order: Sequence[int]) -> MeasuredMachine:
    """Renumber a machine's GPUs, and its measurements with them."""
    place = {old: new for new, old in enumerate(order)}
    return replace(
        machine,
        topology=relabel_topology(machine.topology, order),
        gbytes_per_s={
            mask_of(place[gpu] for gpu in gpus_of(mask)): value
            for mask, value in machine.gbytes_per_s.items()
        },
    )


def fill_levels(topology: NodeTopology, like: NodeTopology) -> NodeTopology:
    """Fill unknown PCIe levels from a recorded machine with the same links, however numbered.

    Takes the first numbering that agrees in every link and every known level: at most n! tries, for
    8 GPUs. Raises `BadData` where none does.
    """
    places = range(topology.n_gpus)
    pairs = [(i, j) for i in places for j in range(i)]
    for order in permutations(places) if like.n_gpus == topology.n_gpus else ():
        if all(
            topology.links[i][j] == like.links[order[i]][order[j]]
            and topology.pcie[i][j] in {PcieLevel.UNKNOWN, like.pcie[order[i]][order[j]]}
            for i, j in pairs
        ):
            return replace(
                topology, pcie=tuple(tuple(like.pcie[a][b] for b in order) for a in order)
            )
    msg = f"{topology.name}: no numbering of {like.name} has the same links and PCIe levels"
    raise BadData(msg)


def with_measured_pairs(machine: MeasuredMachine) -> NodeTopology:
    """Return the machine's topology carrying its own measured pairs, as a node may publish them."""
    pairs = tuple(
        MeasuredPair(gpus_of(mask)[0], gpus_of(mask)[1], value)
        for mask, value in sorted(machine.gbytes_per_s.items())
        if mask.bit_count() == PAIR
    )
    measurement = Measurement(pairs=pairs, message_bytes=machine.message_bytes)
    return replace(machine.topology, measurement=measurement)
