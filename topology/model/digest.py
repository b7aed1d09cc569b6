"""The key of a machine type.

What it answers: which nodes are the same to a set's value, whatever their parts are called, so that
they share one set of tables. It reads no text and writes none but the key.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from topology.model.codec import levels_text, links_text
from topology.model.measurement import pair_classes, set_figures
from topology.model.node_topology import PcieLevel

if TYPE_CHECKING:
    from topology.model.node_topology import Measurement, Nic, NodeTopology

__all__ = ["topology_digest"]

_USED_LEVELS = frozenset({PcieLevel.PIX, PcieLevel.PXB, PcieLevel.UNKNOWN})
"""Where a NIC is near a GPU, or may be."""


def topology_digest(topology: NodeTopology) -> str:
    """Digest of all that a set's value can depend on: nodes with one digest share their tables.

    32 hexadecimal digits: SHA-256 over a canonical form, cut to 16 bytes. Left out: uuids, PCI bus
    ids, names, sources, dates, NCCL versions, clique ids, and which NIC is which. A device's parent
    counts only by which devices share it, a NIC's rate only where a group of pods may use it.
    """
    parents = list(dict.fromkeys(gpu.parent for gpu in topology.gpus if gpu.parent is not None))
    measured = topology.measurement
    form = [
        topology.p2p.value,
        topology.cpu.value,
        [
            [
                gpu.model,
                gpu.memory_mib,
                gpu.numa_node,
                gpu.link_generation,
                None if gpu.parent is None else parents.index(gpu.parent),
            ]
            for gpu in topology.gpus
        ],
        [links_text(row) for row in topology.links],
        [levels_text(row[:i]) for i, row in enumerate(topology.pcie)],
        sorted(_nic_form(nic) for nic in topology.nics),
        sorted([fabric.kind.value, fabric.is_up, *fabric.ports] for fabric in topology.fabrics),
        None if measured is None else _measured_form(measured),
    ]
    canonical = json.dumps(form, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _nic_form(nic: Nic) -> list[str]:
    """Level and kind; the rate too where it enters a group's value (`topology.groups`)."""
    form = [levels_text(nic.levels), str(nic.is_rdma)]
    is_far = _USED_LEVELS.isdisjoint(nic.levels)
    if nic.gbit_per_s is None or nic.is_rdma is False or is_far:
        return form
    return [*form, f"{nic.gbit_per_s:g}"]


def _measured_form(measured: Measurement) -> list[object]:
    """Only what enters the tables: classes of pairs, not raw figures, or each node were a type."""
    return [
        [[*pair, figure] for pair, figure in pair_classes(measured).items()],
        [[*gpus, figure] for gpus, figure in set_figures(measured).items()],
        measured.message_bytes,
    ]
