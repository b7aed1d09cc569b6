"""The shipped recordings against the files that others recorded of the same machine types."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from topology.importers import import_text
from topology.model import AcceleratorLink, NodeTopology, PcieLevel
from topology.recordings import load_recording

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared

SAME_MACHINES = [
    ("dgx-1-v100", "smi/ucxpy-dgx1v-4nic.txt"),
    ("dgx-1-v100", "smi/msccl-dgx1v-4nic-unordered.txt"),
    ("dgx-a100", "smi/dgxa100-8x-12nic-truncated.txt"),
    ("dgx-a100", "nccl-xml/mlperf1.0-NVIDIA-dgxa100_nic_affinity.xml"),
    ("dgx-h100", "smi/cutlass-8x-nv18-noaffinity.txt"),
    ("hgx-h200", "smi/glm52-h200-8x-10nic.txt"),
    ("8x-a6000-bridged", "smi/bandpilot-a6000-8x-markdown.txt"),
    ("8x-b200", "hwloc/nixl-p6-b200.48xl.xml"),
    ("8x-rtx4090", "smi/bandpilot-rtx4090-8x-markdown.txt"),
    ("8x-h100-pcie-pairs", "smi/h100pcie-8x-nv12-pairs-2nic.txt"),
    ("4x-l40s", "smi/l40s-4x-2nic-issue106.txt"),
    ("4x-a100-sxm", "smi/polaris-a100-4x.txt"),
    ("8x-t4", "hwloc/mpibind-g4dnmetal.xml"),
    ("8x-l4", "hwloc/nixl-g6.48xl.xml"),
    ("8x-mi300x", "nccl-xml/rccl-topo_8p_940.xml"),
    ("8x-mi300x", "rocm/amdsmi-topology-8x.txt"),
    ("8x-mi50-pcie-2nic", "nccl-xml/rccl-topo_8p_pcie_2nic.xml"),
]


def _levels_differ(one: PcieLevel, other: PcieLevel) -> bool:
    return PcieLevel.UNKNOWN not in {one, other} and one is not other


def _links_differ(one: AcceleratorLink, other: AcceleratorLink) -> bool:
    if not (one.is_known and other.is_known):
        return False
    if None in {one.n_links, other.n_links}:
        return one.kind is not other.kind
    return one != other


def _differences(ours: NodeTopology, theirs: NodeTopology) -> list[str]:
    found = [
        f"NUMA node of GPU {i}: {a.numa_node}, {b.numa_node}"
        for i, (a, b) in enumerate(zip(ours.gpus, theirs.gpus, strict=True))
        if None not in {a.numa_node, b.numa_node} and a.numa_node != b.numa_node
    ]
    for i, j in combinations(range(ours.n_gpus), 2):
        if _links_differ(ours.links[i][j], theirs.links[i][j]):
            found.append(f"link {i}-{j}: {ours.links[i][j]}, {theirs.links[i][j]}")
        if _levels_differ(ours.pcie[i][j], theirs.pcie[i][j]):
            found.append(f"level {i}-{j}: {ours.pcie[i][j]}, {theirs.pcie[i][j]}")
    their_nics = {nic.name: nic for nic in theirs.nics}
    found += [
        f"level of {nic.name} to GPU {i}"
        for nic in ours.nics
        if nic.name in their_nics
        for i, level in enumerate(nic.levels)
        if _levels_differ(level, their_nics[nic.name].levels[i])
    ]
    if "unknown" not in {ours.cpu.value, theirs.cpu.value} and ours.cpu is not theirs.cpu:
        found.append(f"CPU: {ours.cpu}, {theirs.cpu}")
    return found


@pytest.mark.parametrize(("name", "file"), SAME_MACHINES)
def test_a_shipped_machine_agrees_with_its_source(shared: Path, name: str, file: str) -> None:
    """Re-expressed by hand, a machine must still say what the source says, wherever both know."""
    theirs = import_text((shared / "topologies" / file).read_text(encoding="utf-8"))
    ours = load_recording(name)
    assert ours.n_gpus == theirs.n_gpus
    assert _differences(ours, theirs) == []
