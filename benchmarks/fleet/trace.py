"""The openb trace of Alibaba's GPU cluster: pods, nodes, and which recording stands for a node.

Reads which whole-GPU pods came and went, with their CPU and memory, and on what machines. Pods that
request a share of one GPU, which Coterie does not place, are left out and counted; pods without
GPUs stay, since they take CPU and memory.

The trace names GPU models (some of them masked) but no links, so which recorded machine stands for
a node is our own choice (`RECORDINGS`): a node of n GPUs is the first n GPUs of that recording.
Source: FGD (ATC'23), hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0; read from the place
that `--shared` names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.errors import BadData
from benchmarks.trace_rows import read_rows
from topology.recordings import load_recording

if TYPE_CHECKING:
    from pathlib import Path

    from topology.model import NodeTopology

__all__ = [
    "RECORDINGS",
    "TraceNode",
    "TracePod",
    "TracePods",
    "cut_topology",
    "load_nodes",
    "load_pods",
    "recording_of",
]

WHOLE_GPU = 1000
"""gpu_milli of a pod that requests whole GPUs."""

RECORDINGS = {
    "P100": "dgx-1-p100",
    "V100M16": "dgx-1-v100",
    "V100M32": "dgx-1-v100",
    "T4": "8x-t4",
    "A10": "8x-l4",
    "G2": "8x-a6000-bridged",
    "G3": "dgx-a100",
}
"""GPU model of the trace to the recording that stands for it. G2 and G3 are masked there: 8 GPUs
with 96 cores and 384 GiB, and with 128 cores and 768 GiB; a PCIe machine with bridges and an
NVSwitch machine are our stand-ins. T4 and A10 have no NVLink, and neither have their stand-ins."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node: CPU in thousandths of a core, memory in MiB, and its recording."""

    name: str
    cpu_milli: int
    memory_mib: int
    n_gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """One pod; times in seconds, None where the trace gives none. `n_gpus` whole GPUs, maybe 0."""

    name: str
    cpu_milli: int
    memory_mib: int
    n_gpus: int
    created_s: int | None
    deleted_s: int | None


@dataclass(frozen=True, slots=True)
class TracePods:
    """The pods that are replayed, in the trace's order, and how many were dropped as fractional."""

    pods: tuple[TracePod, ...]
    n_fractional: int

    def first(self, n_pods: int) -> TracePods:
        """The first pods only, for a smoke run."""
        return replace(self, pods=self.pods[:n_pods])


def _count(row: dict[str, str], column: str, path: Path) -> int:
    text = row[column]
    if not text.isdigit():
        msg = f"{path}: {column} is {text[:40]!r}, expected a whole number"
        raise BadData(msg)
    return int(text)


def load_nodes(path: Path) -> tuple[TraceNode, ...]:
    """Read the nodes; raises `BadData` for a GPU model that no recording stands for."""
    nodes = tuple(
        TraceNode(
            name=row["sn"],
            cpu_milli=_count(row, "cpu_milli", path),
            memory_mib=_count(row, "memory_mib", path),
            n_gpus=_count(row, "gpu", path),
            model=row["model"],
        )
        for row in read_rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    )
    unknown = sorted({node.model for node in nodes} - RECORDINGS.keys())
    if unknown:
        msg = f"{path}: GPU models {unknown}, expected one of {sorted(RECORDINGS)}"
        raise BadData(msg)
    return nodes


def load_pods(path: Path) -> TracePods:
    """Read the pods of a trace; fractional ones are dropped and counted."""
    pods: list[TracePod] = []
    n_fractional = 0
    for row in read_rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        n_gpus = _count(row, "num_gpu", path)
        if n_gpus and _count(row, "gpu_milli", path) != WHOLE_GPU:
            n_fractional += 1
            continue
        is_timed = bool(row.get("creation_time"))
        pods.append(
            TracePod(
                name=row["name"],
                cpu_milli=_count(row, "cpu_milli", path),
                memory_mib=_count(row, "memory_mib", path),
                n_gpus=n_gpus,
                created_s=_count(row, "creation_time", path) if is_timed else None,
                deleted_s=_count(row, "deletion_time", path) if is_timed else None,
            )
        )
    return TracePods(tuple(pods), n_fractional)


def cut_topology(topology: NodeTopology, n_gpus: int) -> NodeTopology:
    """Return the first GPUs of a machine as a machine of its own, without its measurement."""
    kept = range(n_gpus)
    return replace(
        topology,
        gpus=topology.gpus[:n_gpus],
        links=tuple(row[:n_gpus] for row in topology.links[:n_gpus]),
        pcie=tuple(row[:n_gpus] for row in topology.pcie[:n_gpus]),
        nics=tuple(replace(nic, levels=nic.levels[:n_gpus]) for nic in topology.nics),
        fabrics=tuple(
            replace(fabric, ports=ports)
            for fabric in topology.fabrics
            if (ports := tuple(port for port in fabric.ports if port[0] in kept))
        ),
        measurement=None,
    )


@cache
def recording_of(model: str, n_gpus: int) -> NodeTopology:
    """Return the machine that stands for a node of the trace."""
    topology = load_recording(RECORDINGS[model])
    return topology if topology.n_gpus == n_gpus else cut_topology(topology, n_gpus)
