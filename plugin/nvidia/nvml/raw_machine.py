"""The raw values of a machine, as NVML and sysfs report them.

Numbers are NVML's own enumerators; None is unknown, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.model import CpuPlatform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.machine import Partition
    from topology.importers.xml.nics import FoundNic
    from topology.importers.xml.pcie_tree import PciPlace

__all__ = ["FarType", "RawFabric", "RawGpu", "RawLink", "RawMachine", "UnreadGpu", "pair_key"]

PairKey = tuple[str, str]


class FarType:
    """NVML_NVLINK_DEVICE_TYPE_* (nvml.h); 255 is "unknown"."""

    GPU = 0
    NPU = 1
    SWITCH = 2


@dataclass(frozen=True, slots=True)
class RawLink:
    """The far end of a NVLink that is up.

    `far_type` is a `FarType`. `far_bus_id` is lower case `dddd:bb:dd.f`, None where
    NVML gave no id, an unreadable one or the sentinel `FFFFFFFF:FF:FF.0` of GB200. `far_class` is
    the PCI class of that id in sysfs (`0x068000`).
    """

    far_type: int | None = None
    far_bus_id: str | None = None
    far_class: str | None = None


@dataclass(frozen=True, slots=True)
class RawFabric:
    """nvmlGpuFabricInfo: `state` 0..3, `status` a nvmlReturn_t, `health` the summary of version 3.

    `cluster_uuid` as 32 hexadecimal digits with dashes; all zero where the fabric stays within one
    node.
    """

    state: int
    status: int = 0
    cluster_uuid: str = "00000000-0000-0000-0000-000000000000"
    clique_id: int = 0
    health: int | None = None


@dataclass(frozen=True, slots=True)
class RawGpu:
    """One physical GPU.

    `links` are those that are up; None where NVML reported no links, () where none is up.
    `n_links` counts those that are there, up or not. `link_version` is NVML's enumerator, not the
    generation. `numa_node` is the CPUs' node.
    """

    index: int
    uuid: str
    pci_bus_id: str | None = None
    model: str | None = None
    memory_bytes: int | None = None
    minor: int | None = None
    numa_node: int | None = None
    place: PciPlace | None = None
    links: tuple[RawLink, ...] | None = None
    n_links: int = 0
    link_version: int | None = None
    fabric: RawFabric | None = None
    n_c2c_links: int | None = None
    is_mig_enabled: bool = False
    instances: tuple[Partition, ...] = ()
    requests_recovery: bool | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class UnreadGpu:
    """A GPU that NVML counts but whose uuid cannot be read: `reason` is for people."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class RawMachine:
    """A machine; by pair, `ancestors` (nvmlGpuTopologyLevel_t) and `p2p` (nvmlGpuP2PStatus_t).

    P2P is that of reading. A pair that is in neither was not read or has no value.
    `numa_distances` as in `plugin.machine.reader.MachineReading`.
    """

    gpus: tuple[RawGpu, ...]
    ancestors: Mapping[PairKey, int] = field(default_factory=dict[PairKey, int])
    p2p: Mapping[PairKey, int] = field(default_factory=dict[PairKey, int])
    nics: tuple[FoundNic, ...] = ()
    cpu: CpuPlatform = CpuPlatform.UNKNOWN
    numa_distances: tuple[tuple[int, tuple[int, ...]], ...] = ()
    driver_version: str | None = None
    notes: tuple[str, ...] = ()


def pair_key(a: str, b: str) -> PairKey:
    """The name of a pair of uuids, whichever comes first.

    >>> pair_key("GPU-b", "GPU-a")
    ('GPU-a', 'GPU-b')
    """
    return (a, b) if a <= b else (b, a)
