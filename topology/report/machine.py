"""What the command line says of a machine as such: its parts, what is unknown, what ships.

What it answers: the reports (`topology.report.values`) of `show` and `recordings`. It values no set
and loads no numpy, so that `show` starts fast (`topology.report.compute` does the rest). It prints
nothing and reads no file.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations
from typing import TYPE_CHECKING

from topology.model import (
    CpuPlatform,
    P2pAccess,
    PcieLevel,
    find_gpu_model,
    links_down,
    topology_digest,
)
from topology.report.values import (
    SCHEMA_VERSION,
    FabricReport,
    GpuReport,
    MachineReport,
    MeasurementReport,
    NicReport,
    PairReport,
    RecordingReport,
    RecordingsReport,
    ShowReport,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.model import NodeTopology

__all__ = ["machine_report", "report_recordings", "report_show"]


def machine_report(topology: NodeTopology) -> MachineReport:
    """Report which machine it is. No format says "there is no NIC": none recorded is unknown."""
    return MachineReport(
        name=topology.name,
        digest=topology_digest(topology),
        n_gpus=topology.n_gpus,
        n_nics=len(topology.nics) or None,
        n_models_unknown=sum(find_gpu_model(gpu.model) is None for gpu in topology.gpus),
        has_links_down=bool(links_down(topology)),
    )


def report_show(topology: NodeTopology) -> ShowReport:
    """Report a machine: what is known of it and what is not."""
    return ShowReport(
        schema_version=SCHEMA_VERSION,
        machine=machine_report(topology),
        source=topology.source,
        p2p=topology.p2p.value,
        cpu=topology.cpu.value,
        gpus=tuple(GpuReport(index=i, **asdict(gpu)) for i, gpu in enumerate(topology.gpus)),
        pairs=tuple(
            _pair_report(topology, i, j) for i, j in combinations(range(topology.n_gpus), 2)
        ),
        fabrics=tuple(
            FabricReport(
                kind=fabric.kind.value,
                is_up=fabric.is_up,
                clique=fabric.clique,
                gpus=tuple(gpu for gpu, _ in fabric.ports),
                n_links=tuple(n_links for _, n_links in fabric.ports),
            )
            for fabric in topology.fabrics
        ),
        nics=tuple(
            NicReport(
                name=nic.name,
                pci_bus_id=nic.pci_bus_id,
                numa_node=nic.numa_node,
                is_rdma=nic.is_rdma,
                gbit_per_s=nic.gbit_per_s,
                pcie_levels=tuple(_known_level(level) for level in nic.levels),
            )
            for nic in topology.nics
        ),
        measurement=_measurement_report(topology),
        links_down=tuple(
            f"GPU {one.gpu} has {one.n_links} of {one.n_expected} links up"
            for one in links_down(topology)
        ),
        unknown=tuple(_unknown(topology)),
    )


def report_recordings(recordings: Mapping[str, NodeTopology]) -> RecordingsReport:
    """Report the machines that ship with the project, by name."""
    return RecordingsReport(
        schema_version=SCHEMA_VERSION,
        recordings=tuple(
            RecordingReport(
                name=name,
                n_gpus=topology.n_gpus,
                models=tuple(
                    dict.fromkeys(gpu.model for gpu in topology.gpus if gpu.model is not None)
                ),
                n_nics=len(topology.nics) or None,
                source=topology.source,
            )
            for name, topology in sorted(recordings.items())
        ),
    )


# --- Parts ---------------------------------------------------------------------------------------


def _known_level(level: PcieLevel) -> str | None:
    return None if level is PcieLevel.UNKNOWN else level.value


def _pair_report(topology: NodeTopology, i: int, j: int) -> PairReport:
    link = topology.links[i][j]
    return PairReport(
        gpus=(i, j),
        link=link.kind.value if link.is_known else None,
        n_links=link.n_links if link.is_known else None,
        pcie_level=_known_level(topology.pcie[i][j]),
    )


def _measurement_report(topology: NodeTopology) -> MeasurementReport | None:
    measured = topology.measurement
    if measured is None:
        return None
    return MeasurementReport(
        n_pairs=len(measured.pairs),
        n_sets=len(measured.sets),
        message_bytes=measured.message_bytes,
        nccl_version=measured.nccl_version,
        date=measured.date,
        source=measured.source,
    )


def _unknown(topology: NodeTopology) -> list[str]:
    """What the recording leaves open, one sentence each, in the order of the report."""
    pairs = list(combinations(range(topology.n_gpus), 2))
    links = [topology.links[i][j] for i, j in pairs]
    counts = (
        ("NICs", [not topology.nics], "nodes"),
        ("model of the GPU", [gpu.model is None for gpu in topology.gpus], "GPUs"),
        ("NUMA node", [gpu.numa_node is None for gpu in topology.gpus], "GPUs"),
        ("accelerator link", [not link.is_known for link in links], "pairs"),
        ("number of links", [link.n_links is None for link in links], "pairs"),
        ("PCIe level", [topology.pcie[i][j] is PcieLevel.UNKNOWN for i, j in pairs], "pairs"),
        (
            "PCIe level to the GPU",
            [level is PcieLevel.UNKNOWN for nic in topology.nics for level in nic.levels],
            "NIC and GPU pairs",
        ),
        ("RDMA", [nic.is_rdma is None for nic in topology.nics], "NICs"),
        ("rate", [nic.gbit_per_s is None for nic in topology.nics], "NICs"),
        ("P2P access over PCIe", [topology.p2p is P2pAccess.UNKNOWN], "nodes"),
        ("CPU platform", [topology.cpu is CpuPlatform.UNKNOWN], "nodes"),
    )
    return [_share(label, flags, unit) for label, flags, unit in counts if any(flags)]


def _share(label: str, flags: Sequence[bool], unit: str) -> str:
    if unit == "nodes":
        return label
    return f"{label}: {'all' if all(flags) else f'{sum(flags)} of'} {len(flags)} {unit}"
