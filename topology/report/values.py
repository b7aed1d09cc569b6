"""The shape of what the command line says: one report per command.

What it answers: which fields `show`, `value`, `best`, `rank` and `recordings` give, for both faces:
tables for people and `--json` for programs. It computes nothing (`topology.report.compute` does).

The field names are the JSON contract (docs/schemas/, generated from these classes): units stand in
the names, GPUs are named by index, `null` means unknown, never zero. A field may be added within
`schema_version` 1; none changes its meaning or goes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "SCHEMA_VERSION",
    "BestReport",
    "FabricReport",
    "GpuReport",
    "MachineReport",
    "MeasurementReport",
    "NicReport",
    "PairReport",
    "RankReport",
    "RankedReport",
    "RecordingReport",
    "RecordingsReport",
    "RequestReport",
    "RunnerUpReport",
    "SelectedReport",
    "ShowReport",
    "UnfitReport",
    "ValueReport",
]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class MachineReport:
    """Which machine a report is about."""

    name: str | None
    """Its name, where the recording has one."""
    digest: str
    """Digest of all that a set's value can depend on; machines of one type share it."""
    n_gpus: int
    """Number of GPUs."""
    n_nics: int | None
    """Number of network ports; null where none is recorded, since no format says "none"."""
    n_models_unknown: int
    """GPUs whose model is not given, or not known here: their figures rest on assumptions."""
    has_links_down: bool
    """Whether links are known to be down: then losses are against the machine with all links up."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU."""

    index: int
    """Its place on the node, from 0; what every other field means by a GPU."""
    uuid: str | None
    """Kubelet device id."""
    pci_bus_id: str | None
    """PCI bus id, lower case."""
    model: str | None
    """Product name."""
    memory_mib: int | None
    """Memory, MiB."""
    numa_node: int | None
    """NUMA node."""
    link_generation: int | None
    """NVLink or XGMI generation, where the recording gives it."""
    parent: str | None
    """UUID of the physical GPU of a MIG instance or replica."""


@dataclass(frozen=True, slots=True)
class PairReport:
    """Two GPUs and the two independent facts about them."""

    gpus: tuple[int, int]
    """Indices, the lower first."""
    link: str | None
    """Kind of accelerator link: nvlink, xgmi, c2c, metaxlink or none."""
    n_links: int | None
    """Links that are up; 0 where there is none, null where unknown."""
    pcie_level: str | None
    """PIX, PXB, PHB, NODE or SYS."""


@dataclass(frozen=True, slots=True)
class FabricReport:
    """One switch fabric."""

    kind: str
    """Kind of its links: nvlink, xgmi, c2c or metaxlink."""
    is_up: bool
    """Whether it gives any link."""
    clique: str | None
    """Cluster UUID and clique, where it spans nodes."""
    gpus: tuple[int, ...]
    """Members, ascending."""
    n_links: tuple[int, ...]
    """Up links of each member, in the order of `gpus`."""


@dataclass(frozen=True, slots=True)
class NicReport:
    """One network port."""

    name: str
    """As the system prints it."""
    pci_bus_id: str | None
    """PCI bus id, lower case."""
    numa_node: int | None
    """NUMA node."""
    is_rdma: bool | None
    """Whether it does RDMA."""
    gbit_per_s: float | None
    """Rate of its link, Gbit/s; null also where no link is up."""
    pcie_levels: tuple[str | None, ...]
    """PIX, PXB, PHB, NODE or SYS to each GPU, in GPU order."""


@dataclass(frozen=True, slots=True)
class MeasurementReport:
    """What was measured on this node."""

    n_pairs: int
    """Number of measured pairs."""
    n_sets: int
    """Number of measured sets."""
    message_bytes: int | None
    """Message size of the run, bytes."""
    nccl_version: str | None
    """NCCL version of the run."""
    date: str | None
    """Date of the run, as its file gives it."""
    source: str | None
    """Where the figures come from."""


@dataclass(frozen=True, slots=True)
class ShowReport:
    """`show --json`: a machine."""

    schema_version: int
    """1."""
    machine: MachineReport
    """Which machine."""
    source: str | None
    """Where the recording comes from."""
    p2p: str
    """Whether GPUs reach each other's memory over PCIe: yes, no or unknown."""
    cpu: str
    """CPU platform, or unknown."""
    gpus: tuple[GpuReport, ...]
    """All GPUs, by index."""
    pairs: tuple[PairReport, ...]
    """All pairs of GPUs, in lexical order."""
    fabrics: tuple[FabricReport, ...]
    """All switch fabrics."""
    nics: tuple[NicReport, ...]
    """All network ports."""
    measurement: MeasurementReport | None
    """Measured bandwidths, where there are any."""
    links_down: tuple[str, ...]
    """GPUs with fewer links up than they should have, one sentence each, for people."""
    unknown: tuple[str, ...]
    """What is unknown, one sentence each, for people."""


@dataclass(frozen=True, slots=True)
class ValueReport:
    """`value --json`: what one set is worth."""

    schema_version: int
    """1."""
    machine: MachineReport
    """Which machine."""
    gpus: tuple[int, ...]
    """The set, ascending."""
    message_bytes: int
    """Message size that the figures hold for, bytes."""
    value_gbytes_per_s: float
    """Predicted all-reduce bus bandwidth, GB/s; 0 for one GPU, which has nothing to reduce."""
    floor_gbytes_per_s: float
    """The same less the model's stated error: what min-bandwidth is compared with, GB/s."""
    value_class: int
    """Class of the value among all sets of that size; 0 is the best."""
    limit: str
    """What limits it: nothing, switch, ring, relay, port, uplink or socket."""
    loss: float
    """1 - value / value of the best set of that size, with all links up, 0..1."""
    best_gpus: tuple[int, ...] | None
    """The best set of that size on the empty machine; null where none is of one GPU model."""
    best_value_gbytes_per_s: float | None
    """Its value, GB/s; null as above."""
    whole_value_gbytes_per_s: float
    """What the loss is against, GB/s: the best set's value with all links up."""
    is_measured: bool
    """Whether this very set was measured."""
    is_known: bool
    """Whether the value may satisfy a min-bandwidth: it rests on nothing unknown."""
    has_nvlink: bool
    """Whether the set satisfies affinity nvlink."""
    has_switch: bool
    """Whether the set satisfies affinity pcie-switch."""
    has_numa: bool
    """Whether the set satisfies affinity numa."""
    has_nic: bool
    """Whether the set satisfies a required NIC."""


@dataclass(frozen=True, slots=True)
class RequestReport:
    """The request."""

    size_gpus: int
    """Number of GPUs."""
    free: tuple[int, ...]
    """Free GPUs, ascending."""
    must_include: tuple[int, ...]
    """GPUs that the set must hold, ascending."""
    affinity: str
    """any, nvlink, pcie-switch, numa or none."""
    policy: str
    """preferred or required."""
    min_bandwidth_gbytes_per_s: float | None
    """Least bandwidth after the stated error, GB/s."""
    nic: str
    """unset, preferred or required."""


@dataclass(frozen=True, slots=True)
class SelectedReport:
    """The set that was chosen."""

    gpus: tuple[int, ...]
    """The set, ascending."""
    value_gbytes_per_s: float
    """Predicted all-reduce bus bandwidth, GB/s; 0 for one GPU."""
    value_class: int
    """Class of the value among all sets of that size; 0 is the best."""
    limit: str
    """What limits it: nothing, switch, ring, relay, port, uplink or socket."""
    loss: float
    """1 - value / value of the best set of that size on the empty machine, with all links up,
    0..1."""
    is_known: bool
    """Whether the value may satisfy a min-bandwidth: it rests on nothing unknown."""
    satisfies_affinity: bool
    """Whether the affinity level holds; true where none was requested."""
    remainder_cost_gpus: float
    """What taking the set costs future pods, in GPU-equivalents."""


@dataclass(frozen=True, slots=True)
class UnfitReport:
    """Why no set fits."""

    reason: str
    """One of a closed set of sentences."""
    detail: str
    """The request and its result."""


@dataclass(frozen=True, slots=True)
class RunnerUpReport:
    """The set that would be chosen without the chosen one, and why it was not."""

    gpus: tuple[int, ...]
    """The set, ascending."""
    value_gbytes_per_s: float
    """Predicted all-reduce bus bandwidth, GB/s; 0 for one GPU."""
    decided_by: str
    """First difference in the order of preference: affinity, nic, value_class, class_sum,
    closeness, remainder, raw_sum, value, packing (above 16 GPUs) or indices."""
    figures: tuple[float, float] | None
    """That of the chosen set, then of this one (remainder: cost in GPU-equivalents); null for
    affinity, nic, closeness, packing and indices."""


@dataclass(frozen=True, slots=True)
class BestReport:
    """`best --json`: the best set of a size; exactly one of `selected` and `unfit` is given."""

    schema_version: int
    """1."""
    machine: MachineReport
    """Which machine."""
    request: RequestReport
    """The request."""
    selected: SelectedReport | None
    """The set; null where none fits (exit code 1)."""
    unfit: UnfitReport | None
    """Why none fits; null where one does."""
    runner_up: RunnerUpReport | None
    """The next set; null where there is no other, or where no other was compared."""
    is_every_set_compared: bool
    """False above 16 GPUs, where the set is packed and not compared with all others."""


@dataclass(frozen=True, slots=True)
class RankedReport:
    """One set of a ranking."""

    rank: int
    """Place in the order of preference, from 1."""
    group: int
    """Group of equal sets, from 1: in a group only the indices decide."""
    gpus: tuple[int, ...]
    """The set, ascending."""
    value_gbytes_per_s: float
    """Predicted all-reduce bus bandwidth, GB/s; 0 for one GPU."""
    value_class: int
    """Class of the value among all sets of that size; 0 is the best."""
    limit: str
    """What limits it: nothing, switch, ring, relay, port, uplink or socket."""
    is_known: bool
    """Whether the value may satisfy a min-bandwidth: it rests on nothing unknown."""
    class_sum: float
    """First tie-break in a class, GB/s: measured pair classes summed, else links per GPU."""
    raw_sum: float
    """Last tie-break but the indices: measured figures summed; 0 where nothing was measured."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """`rank --json`: every set of a size, in the order of preference on the empty machine."""

    schema_version: int
    """1."""
    machine: MachineReport
    """Which machine."""
    size_gpus: int
    """Number of GPUs in each set."""
    n_sets: int
    """Number of sets of that size; more than are listed where a limit was given."""
    message_bytes: int
    """Message size that the figures hold for, bytes."""
    sets: tuple[RankedReport, ...]
    """The sets, best first."""


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """One machine that ships with the project."""

    name: str
    """What to give as FILE."""
    n_gpus: int
    """Number of GPUs."""
    models: tuple[str, ...]
    """GPU models, each once."""
    n_nics: int | None
    """Number of network ports; null where none is recorded."""
    source: str | None
    """Where the recording comes from."""


@dataclass(frozen=True, slots=True)
class RecordingsReport:
    """`recordings --json`: the machines that ship with the project."""

    schema_version: int
    """1."""
    recordings: tuple[RecordingReport, ...]
    """The machines, by name."""
