"""What the command line says about a machine, computed.

What it answers: for a node and a question, the report (`topology.report.values`) that the commands
print. Everything in it comes from the same public functions that the extender calls, so that a
figure on the command line is the figure that a pod is placed by. It prints nothing and reads no
file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from topology.annotations import DEFAULT_POLICY, Affinity, NicRule, PlacementPolicy, Strength
from topology.errors import InvalidRequest, UnknownDevice
from topology.model import REFERENCE_MESSAGE_BYTES, CpuPlatform, P2pAccess, PcieLevel
from topology.report.values import (
    SCHEMA_VERSION,
    BestReport,
    FabricReport,
    GpuReport,
    MachineReport,
    MeasurementReport,
    NicReport,
    PairReport,
    RankedReport,
    RankReport,
    RecordingReport,
    RecordingsReport,
    RequestReport,
    SelectedReport,
    ShowReport,
    UnfitReport,
    ValueReport,
)
from topology.select import MachineTables, Selected, Unfit, build_machine, rank_sets, select_set
from topology.value import MAX_TABLE_GPUS, STATED_ERROR, gpus_of, mask_of, topology_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from topology.model import NodeTopology
    from topology.select import Machine

__all__ = [
    "BestQuery",
    "report_best",
    "report_rank",
    "report_recordings",
    "report_show",
    "report_value",
]

_LEAST_GBYTES_PER_S = 1e-6
"""A bound that every known value meets: with it a request shows whether the value is known."""


@dataclass(frozen=True, slots=True)
class BestQuery:
    """What `best` answers: a size and, of the node's GPUs, which are free and which must be in.

    `free` None means all of them.
    """

    size: int
    free: tuple[int, ...] | None = None
    must_include: tuple[int, ...] = ()
    policy: PlacementPolicy = DEFAULT_POLICY


def report_show(topology: NodeTopology) -> ShowReport:
    """Report a machine: what is known of it and what is not."""
    return ShowReport(
        schema_version=SCHEMA_VERSION,
        machine=_machine_report(topology),
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
                pcie_levels=tuple(_known_level(level) for level in nic.levels),
            )
            for nic in topology.nics
        ),
        measurement=_measurement_report(topology),
        unknown=tuple(_unknown(topology)),
    )


def report_value(topology: NodeTopology, gpus: Collection[int]) -> ValueReport:
    """Report what one set is worth beside the best set of its size on the empty machine.

    Raises `UnknownDevice` for a GPU that the node does not have, `InvalidRequest` for an empty set.
    """
    mask = _mask(topology, gpus, "set")
    if not mask:
        msg = "set holds no GPU, expected at least one"
        raise InvalidRequest(msg)
    members = gpus_of(mask)
    machine = build_machine(topology)
    # Affinity none takes any set as it is, also one of mixed models.
    own = _select(machine, mask, PlacementPolicy(affinity=Affinity.NONE))
    if isinstance(own, Unfit):  # pragma: no cover - no condition is set that a free set could fail
        raise InvalidRequest(own.reason.value)
    best = select_set(machine, available=machine.all_gpus, size=len(members))
    return ValueReport(
        schema_version=SCHEMA_VERSION,
        machine=_machine_report(topology),
        gpus=members,
        message_bytes=REFERENCE_MESSAGE_BYTES,
        value_gbytes_per_s=own.value_gbytes_per_s,
        floor_gbytes_per_s=own.value_gbytes_per_s * (1 - STATED_ERROR[own.limit]),
        value_class=own.value_class,
        limit=own.limit.name.lower(),
        loss=own.loss,
        best_gpus=None if isinstance(best, Unfit) else best.gpus,
        best_value_gbytes_per_s=None if isinstance(best, Unfit) else best.value_gbytes_per_s,
        is_measured=isinstance(machine, MachineTables) and _is_measured(topology, members),
        is_known=_holds(
            machine, mask, PlacementPolicy(min_bandwidth_gbytes_per_s=_LEAST_GBYTES_PER_S)
        ),
        has_nvlink=_holds(machine, mask, _required(Affinity.NVLINK)),
        has_switch=_holds(machine, mask, _required(Affinity.PCIE_SWITCH)),
        has_numa=_holds(machine, mask, _required(Affinity.NUMA)),
        has_nic=_holds(machine, mask, PlacementPolicy(nic=NicRule.REQUIRED)),
    )


def report_best(topology: NodeTopology, question: BestQuery) -> BestReport:
    """Report the best set for a question, or why there is none.

    Raises `UnknownDevice` for a GPU that the node does not have, `InvalidRequest` for a size
    outside 1..n, or for a minimum bandwidth with one GPU.
    """
    if question.size > topology.n_gpus:
        msg = f"size is {question.size}, expected 1..{topology.n_gpus}"
        raise InvalidRequest(msg)
    if question.size == 1 and question.policy.min_bandwidth_gbytes_per_s is not None:
        msg = "min-bandwidth with size 1, expected 2 GPUs or more: one has nothing to reduce"
        raise InvalidRequest(msg)
    machine = build_machine(topology)
    free = machine.all_gpus
    if question.free is not None:
        free = _mask(topology, question.free, "free set")
    must_include = _mask(topology, question.must_include, "must-include set")
    found = select_set(
        machine,
        available=free,
        must_include=must_include,
        size=question.size,
        policy=question.policy,
    )
    return BestReport(
        schema_version=SCHEMA_VERSION,
        machine=_machine_report(topology),
        request=RequestReport(
            size_gpus=question.size,
            free=gpus_of(free),
            must_include=gpus_of(must_include),
            affinity=question.policy.affinity.value,
            policy=question.policy.strength.value,
            min_bandwidth_gbytes_per_s=question.policy.min_bandwidth_gbytes_per_s,
            nic=question.policy.nic.value,
        ),
        selected=None if isinstance(found, Unfit) else _selected_report(found),
        unfit=UnfitReport(found.reason.value, found.detail) if isinstance(found, Unfit) else None,
    )


def report_rank(topology: NodeTopology, size: int, *, limit: int | None = None) -> RankReport:
    """Report every set of a size, best first; at most `limit` of them.

    Raises `InvalidRequest` for a size outside 1..n, and above 16 GPUs, where sets are too many.
    """
    machine = build_machine(topology)
    if not isinstance(machine, MachineTables):
        msg = (
            f"the node has {topology.n_gpus} GPUs, expected at most {MAX_TABLE_GPUS} "
            "to rank every set; request the best one instead"
        )
        raise InvalidRequest(msg)
    ranked = rank_sets(machine, size)
    return RankReport(
        schema_version=SCHEMA_VERSION,
        machine=_machine_report(topology),
        size_gpus=size,
        n_sets=len(ranked),
        message_bytes=REFERENCE_MESSAGE_BYTES,
        sets=tuple(
            RankedReport(
                rank=rank,
                gpus=entry.gpus,
                value_gbytes_per_s=entry.value_gbytes_per_s,
                value_class=entry.value_class,
                limit=entry.limit.name.lower(),
                class_sum=entry.class_sum,
                raw_sum=entry.raw_sum,
            )
            for rank, entry in enumerate(ranked[:limit], start=1)
        ),
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
                n_nics=len(topology.nics),
                source=topology.source,
            )
            for name, topology in sorted(recordings.items())
        ),
    )


# --- Parts ---------------------------------------------------------------------------------------


def _mask(topology: NodeTopology, gpus: Collection[int], label: str) -> int:
    for gpu in gpus:
        if not 0 <= gpu < topology.n_gpus:
            msg = f"{label}: GPU {gpu} is not there, expected 0..{topology.n_gpus - 1}"
            raise UnknownDevice(msg)
    return mask_of(gpus)


def _select(machine: Machine, mask: int, policy: PlacementPolicy) -> Selected | Unfit:
    """Select exactly this set, if it meets the policy."""
    return select_set(
        machine, available=mask, must_include=mask, size=mask.bit_count(), policy=policy
    )


def _holds(machine: Machine, mask: int, policy: PlacementPolicy) -> bool:
    return isinstance(_select(machine, mask, policy), Selected)


def _required(affinity: Affinity) -> PlacementPolicy:
    return PlacementPolicy(affinity=affinity, strength=Strength.REQUIRED)


def _selected_report(found: Selected) -> SelectedReport:
    return SelectedReport(
        gpus=found.gpus,
        value_gbytes_per_s=found.value_gbytes_per_s,
        value_class=found.value_class,
        limit=found.limit.name.lower(),
        loss=found.loss,
        satisfies_affinity=found.satisfies_affinity,
        remainder_cost_gpus=found.remainder_cost_gpus,
    )


def _machine_report(topology: NodeTopology) -> MachineReport:
    return MachineReport(topology.name, topology_digest(topology), topology.n_gpus)


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


def _is_measured(topology: NodeTopology, gpus: tuple[int, ...]) -> bool:
    measured = topology.measurement
    return measured is not None and gpus in dict(measured.figures)


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
        ("P2P access over PCIe", [topology.p2p is P2pAccess.UNKNOWN], "nodes"),
        ("CPU platform", [topology.cpu is CpuPlatform.UNKNOWN], "nodes"),
    )
    return [_share(label, flags, unit) for label, flags, unit in counts if any(flags)]


def _share(label: str, flags: Sequence[bool], unit: str) -> str:
    if unit == "nodes":
        return label
    return f"{label}: {'all' if all(flags) else f'{sum(flags)} of'} {len(flags)} {unit}"
