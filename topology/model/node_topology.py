"""What a node's accelerators are and how they are connected.

What it answers: which GPUs, NICs and switch fabrics a node has, and for each pair of GPUs two
independent facts: the accelerator link (NVLink, XGMI ...; how many links are up) and the PCIe
level. Either may be *unknown*: `nvidia-smi topo -m` prints NV# in the place of the PCIe level, and
a NCCL topology file without NVLink elements says nothing about NVLink. Unknown is not zero.

What it must never do: rate a link (`topology.model.links`, `topology.value.set_value`), read a file
(`topology.importers`), or hold anything that changes while a pod runs.

All values are frozen and check themselves when made: `InvalidTopology` names the object, the value
and what was expected. GPUs are numbered 0..n-1 by their place in `NodeTopology.gpus`; every matrix
is n x n, symmetric, in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from topology.errors import InvalidTopology, quote
from topology.model.measurement import (
    MAX_MEASURED,
    MIN_MEASURED,
    MeasuredPair,
    MeasuredSet,
    Measurement,
    first_repeated,
)
from topology.model.pci_bus_id import is_pci_bus_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "MAX_GPUS",
    "MAX_LINKS",
    "MAX_MEASURED",
    "MAX_NIC_GBIT_PER_S",
    "MIN_MEASURED",
    "NO_LINK",
    "UNKNOWN_LINK",
    "AcceleratorLink",
    "CpuPlatform",
    "Gpu",
    "LinkKind",
    "MeasuredPair",
    "MeasuredSet",
    "Measurement",
    "Nic",
    "NodeTopology",
    "P2pAccess",
    "PcieLevel",
    "SwitchFabric",
    "symmetric",
]

T = TypeVar("T")

MAX_GPUS = 512
"""Most devices one node may have. Above any machine of 2026 (72 GPUs in an NVL72 domain; 56 MIG
slices on 8 GPUs), below what would make a matrix a burden (512 x 512 pairs)."""
MAX_LINKS = 36
"""Most links between two GPUs: NVML_NVLINK_MAX_LINKS (nvml.h, nvidia-ml-py 13.615.71)."""
MAX_NIC_GBIT_PER_S = 10_000
"""Fastest NIC: above any port of 2026 (1,600 Gbit/s), below what files of NCCL and RCCL state where
they got the unit wrong (200,000 for 200)."""


class LinkKind(Enum):
    """Kind of accelerator link between two GPUs; NONE and UNKNOWN are kinds of their own."""

    NVLINK = "nvlink"
    XGMI = "xgmi"
    C2C = "c2c"
    METAXLINK = "metaxlink"
    NONE = "none"
    UNKNOWN = "unknown"


class PcieLevel(Enum):
    """How far two devices are apart on PCIe, as `nvidia-smi topo -m` names it, nearest first.

    SELF is the device itself. UNKNOWN is not a distance and never ranks best.
    """

    SELF = "X"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"
    UNKNOWN = "?"

    @property
    def rank(self) -> int:
        """0 (SELF) .. 5 (SYS); UNKNOWN is 6, behind everything known."""
        return _PCIE_RANK[self]


_PCIE_RANK = {level: rank for rank, level in enumerate(PcieLevel)}


class P2pAccess(Enum):
    """Whether GPUs read and write each other's memory over PCIe (NVML P2PStatus, NCCL P2P)."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class CpuPlatform(Enum):
    """What carries traffic between sockets; the classes that NCCL distinguishes (topo.h)."""

    INTEL_BDW = "intel-bdw"
    INTEL_SKL = "intel-skl"
    INTEL_SPR = "intel-spr"
    INTEL_ERP = "intel-erp"
    AMD = "amd"
    POWER9 = "power9"
    ARM = "arm"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AcceleratorLink:
    """The direct accelerator link of a pair, or what two switch ports give a pair.

    `n_links` counts the links that are up, 1..36; None where there are links but their
    count is unknown (rocm-smi); 0 exactly for NONE and UNKNOWN.
    """

    kind: LinkKind
    n_links: int | None

    def __post_init__(self) -> None:
        if self.kind in {LinkKind.NONE, LinkKind.UNKNOWN}:
            if self.n_links != 0:
                msg = f"link {self.kind.value}: n_links is {self.n_links}, expected 0"
                raise InvalidTopology(msg)
        elif self.n_links is not None and not 1 <= self.n_links <= MAX_LINKS:
            msg = f"link {self.kind.value}: n_links is {self.n_links}, expected 1..{MAX_LINKS}"
            raise InvalidTopology(msg)

    @property
    def is_known(self) -> bool:
        """Whether anything is known, "no link" included."""
        return self.kind is not LinkKind.UNKNOWN

    @property
    def is_up(self) -> bool:
        """Whether at least one link is known to be up."""
        return self.kind not in {LinkKind.NONE, LinkKind.UNKNOWN}


NO_LINK = AcceleratorLink(LinkKind.NONE, 0)
UNKNOWN_LINK = AcceleratorLink(LinkKind.UNKNOWN, 0)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU (or one allocatable part of one); None means unknown.

    `uuid` is the kubelet device id. `pci_bus_id` is lower case `dddd:bb:dd.f`. `memory_mib` in MiB.
    `link_generation` is the NVLink generation 1..6 (XGMI: 1..4) where it is known other than from
    the model's name. `parent` is the uuid of the physical GPU of a MIG instance or replica.
    """

    uuid: str | None = None
    pci_bus_id: str | None = None
    model: str | None = None
    memory_mib: int | None = None
    numa_node: int | None = None
    link_generation: int | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        if self.uuid is not None and not 1 <= len(self.uuid) <= 63:  # noqa: PLR2004 - Device.ID limit of api.proto
            msg = f"GPU uuid {quote(self.uuid)}: expected 1..63 characters (kubelet device id)"
            raise InvalidTopology(msg)
        if self.pci_bus_id is not None and not is_pci_bus_id(self.pci_bus_id):
            msg = f"GPU pci_bus_id {quote(self.pci_bus_id)}: expected lower-case dddd:bb:dd.f"
            raise InvalidTopology(msg)
        if self.model is not None and not self.model.strip():
            msg = f"GPU model {quote(self.model)}: expected a name, or None where unknown"
            raise InvalidTopology(msg)
        for label, value, lowest in (
            ("memory_mib", self.memory_mib, 1),
            ("numa_node", self.numa_node, 0),
            ("link_generation", self.link_generation, 1),
        ):
            if value is not None and value < lowest:
                msg = f"GPU {label} is {value}, expected at least {lowest}, or None where unknown"
                raise InvalidTopology(msg)


@dataclass(frozen=True, slots=True)
class Nic:
    """One network port and its PCIe level to each GPU, in GPU order.

    `name` as the system prints it (mlx5_0, NIC0). `is_rdma` is None where unknown. `gbit_per_s` is
    the rate of its link, up to `MAX_NIC_GBIT_PER_S`; None where unknown or no link is up, never 0.
    """

    name: str
    levels: tuple[PcieLevel, ...]
    pci_bus_id: str | None = None
    numa_node: int | None = None
    is_rdma: bool | None = None
    gbit_per_s: float | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            msg = f"NIC name {quote(self.name)}: expected a name"
            raise InvalidTopology(msg)
        if PcieLevel.SELF in self.levels:
            gpu = self.levels.index(PcieLevel.SELF)
            msg = f"NIC {self.name}: level X to GPU {gpu}, expected PIX..SYS"
            raise InvalidTopology(msg)
        if self.pci_bus_id is not None and not is_pci_bus_id(self.pci_bus_id):
            msg = f"NIC {self.name}: pci_bus_id {quote(self.pci_bus_id)}, expected dddd:bb:dd.f"
            raise InvalidTopology(msg)
        if self.numa_node is not None and self.numa_node < 0:
            msg = f"NIC {self.name}: numa_node is {self.numa_node}, expected at least 0, or None"
            raise InvalidTopology(msg)
        if self.gbit_per_s is not None and not 0 < self.gbit_per_s <= MAX_NIC_GBIT_PER_S:
            msg = (
                f"NIC {self.name}: gbit_per_s is {self.gbit_per_s}, expected above 0 and at most "
                f"{MAX_NIC_GBIT_PER_S}, or None where unknown"
            )
            raise InvalidTopology(msg)


@dataclass(frozen=True, slots=True)
class SwitchFabric:
    """An NVSwitch (or NVLink Switch) fabric: GPUs whose links end at switches, not at peers.

    `ports` gives each member's count of up links: pairs (GPU index, n_links), ascending by index.
    Two members reach each other at the lesser of their counts, never summed per pair. A fabric that
    is not up gives no NVLink: then `is_up` is False and the pairs hold NO_LINK. `clique` is
    `<ClusterUUID>.<CliqueID>` of nvmlDeviceGetGpuFabricInfo where the fabric spans nodes.
    """

    ports: tuple[tuple[int, int], ...]
    kind: LinkKind = LinkKind.NVLINK
    is_up: bool = True
    clique: str | None = None

    def __post_init__(self) -> None:
        members = [gpu for gpu, _ in self.ports]
        if len(members) < 1 or members != sorted(set(members)):
            msg = f"fabric members are {members}, expected ascending, different GPU indices"
            raise InvalidTopology(msg)
        for gpu, n_links in self.ports:
            if not 0 <= n_links <= MAX_LINKS:
                msg = f"fabric port of GPU {gpu}: {n_links} links, expected 0..{MAX_LINKS}"
                raise InvalidTopology(msg)
        if self.kind in {LinkKind.NONE, LinkKind.UNKNOWN}:
            msg = f"fabric kind is {self.kind.value}, expected a kind of link"
            raise InvalidTopology(msg)

    def pair_links(self) -> Iterator[tuple[tuple[int, int], AcceleratorLink]]:
        """The link of each pair of members, (i, j) with i < j."""
        for (i, n_i), (j, n_j) in combinations(self.ports, 2):
            lesser = min(n_i, n_j) if self.is_up else 0
            yield (i, j), AcceleratorLink(self.kind, lesser) if lesser else NO_LINK


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """A node's accelerators: the static part, which does not change while the machine runs.

    `links[i][j]` and `pcie[i][j]` are symmetric n x n matrices in the order of `gpus`; their
    diagonals are NO_LINK and PcieLevel.SELF. Pairs inside an up fabric hold the lesser port count.

    >>> pair = NodeTopology(
    ...     gpus=(Gpu(), Gpu()),
    ...     links=(
    ...         (NO_LINK, AcceleratorLink(LinkKind.NVLINK, 2)),
    ...         (AcceleratorLink(LinkKind.NVLINK, 2), NO_LINK),
    ...     ),
    ...     pcie=((PcieLevel.SELF, PcieLevel.UNKNOWN), (PcieLevel.UNKNOWN, PcieLevel.SELF)),
    ... )
    >>> pair.n_gpus
    2
    """

    gpus: tuple[Gpu, ...]
    links: tuple[tuple[AcceleratorLink, ...], ...]
    pcie: tuple[tuple[PcieLevel, ...], ...]
    nics: tuple[Nic, ...] = ()
    fabrics: tuple[SwitchFabric, ...] = ()
    p2p: P2pAccess = P2pAccess.UNKNOWN
    cpu: CpuPlatform = CpuPlatform.UNKNOWN
    measurement: Measurement | None = None
    name: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        n = len(self.gpus)
        if not 1 <= n <= MAX_GPUS:
            msg = f"topology has {n} GPUs, expected 1..{MAX_GPUS}"
            raise InvalidTopology(msg)
        uuids = [gpu.uuid for gpu in self.gpus if gpu.uuid is not None]
        if len(uuids) != len(set(uuids)):
            twice = first_repeated(uuids)
            msg = f"GPU uuid {quote(twice)} is given twice, expected once"
            raise InvalidTopology(msg)
        _check_matrix("links", self.links, n, NO_LINK)
        _check_matrix("pcie", self.pcie, n, PcieLevel.SELF)
        for i, row in enumerate(self.pcie):
            if row.count(PcieLevel.SELF) > 1:
                msg = f"pcie row {i} holds X off the diagonal, expected PIX..SYS or unknown"
                raise InvalidTopology(msg)
        for nic in self.nics:
            if len(nic.levels) != n:
                msg = f"NIC {nic.name}: {len(nic.levels)} levels, expected one for each of {n} GPUs"
                raise InvalidTopology(msg)
        nic_names = [nic.name for nic in self.nics]
        if len(nic_names) != len(set(nic_names)):
            twice = first_repeated(nic_names)
            msg = f"NIC {quote(twice)} is given twice, expected once"
            raise InvalidTopology(msg)
        self._check_fabrics(n)
        if self.measurement is not None:
            _check_measurement(self.measurement, n)

    def _check_fabrics(self, n: int) -> None:
        seen: set[int] = set()
        for fabric in self.fabrics:
            for gpu, _ in fabric.ports:
                if gpu >= n or gpu < 0 or gpu in seen:
                    msg = f"fabric member GPU {gpu}: expected 0..{n - 1}, in one fabric only"
                    raise InvalidTopology(msg)
                seen.add(gpu)
            for (i, j), expected in fabric.pair_links():
                if self.links[j][i] != expected:
                    msg = (
                        f"fabric pair {i}-{j}: link is {self.links[j][i]}, expected {expected} "
                        "(the lesser of the two port counts)"
                    )
                    raise InvalidTopology(msg)

    @property
    def n_gpus(self) -> int:
        """Number of GPUs, 1..512."""
        return len(self.gpus)


def _check_matrix(label: str, matrix: Sequence[Sequence[object]], n: int, diagonal: object) -> None:
    if len(matrix) != n or any(len(row) != n for row in matrix):
        shape = f"{len(matrix)} x {sorted({len(row) for row in matrix})}"
        msg = f"{label} matrix is {shape}, expected {n} x {n}"
        raise InvalidTopology(msg)
    for i in range(n):
        if matrix[i][i] != diagonal:
            msg = f"{label}[{i}][{i}] is {matrix[i][i]}, expected {diagonal}"
            raise InvalidTopology(msg)
        for j in range(i):
            if matrix[i][j] != matrix[j][i]:
                msg = (
                    f"{label}[{i}][{j}] is {matrix[i][j]} but [{j}][{i}] is {matrix[j][i]}, "
                    "expected equal"
                )
                raise InvalidTopology(msg)


def _check_measurement(measurement: Measurement, n: int) -> None:
    for gpus, _ in measurement.figures:
        if gpus[-1] >= n:
            msg = f"measured set {gpus}: GPU {gpus[-1]} is not there, expected 0..{n - 1}"
            raise InvalidTopology(msg)


def symmetric(n: int, diagonal: T, cell: Callable[[int, int], T]) -> tuple[tuple[T, ...], ...]:
    """An n x n matrix of a fact about pairs: `cell(i, j)` is called once for each, i > j.

    >>> symmetric(3, "X", lambda i, j: f"{i}{j}")
    (('X', '10', '20'), ('10', 'X', '21'), ('20', '21', 'X'))
    """
    below = [[cell(i, j) for j in range(i)] for i in range(n)]
    return tuple(
        (*row, diagonal, *(below[j][i] for j in range(i + 1, n))) for i, row in enumerate(below)
    )
