"""Makes a `MachineReading` from the raw values of NVML and sysfs.

Pure. A value that is missing stays unknown, and a GPU that fails costs no other GPU its values.

Method:

- Links and fabrics: `plugin.nvidia.nvml.nvlinks`.
- PCIe level of two GPUs: NVML's common ancestor (nvml.h, nvmlGpuTopologyLevel_t), as `nvidia-smi
  topo -m` prints it; where NVML has no value, the PCI tree of sysfs by the same definitions
  (`topology.importers.xml.pcie_tree`), each entry a port, so two ports a switch. A device that
  hangs on a root bus or behind an emulated root port was put there by a hypervisor: what NVML
  reports is true of the guest, not of the machine, so only SYS (another NUMA node) stays.
- PCIe level of NICs: the same tree.
- P2P: NVML's READ status of the pairs that no NVLink joins. Where some pairs may and others may
  not (chipsets that do not route it between sockets), those below one switch decide, as sets of
  GPUs that share an uplink are where it matters most; without such pairs it stays unknown.
- A GPU that fails keeps the facts of the last reading and its place; one that never answered has no
  uuid, so it cannot be listed; a note says so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from plugin.machine import GpuReading, MachineReading
from plugin.nvidia.gpu_node import gpu_node
from plugin.nvidia.nvml.nvlinks import GENERATIONS, fabric_fault, nvlink_matrix
from plugin.nvidia.nvml.raw_machine import pair_key
from topology.importers.xml.pcie_tree import PciTree
from topology.model import (
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    find_gpu_model,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.nvidia.nvml.raw_machine import RawGpu, RawMachine, UnreadGpu

__all__ = ["NOT_LISTED", "describe", "unlinked_pairs", "with_remembered"]

NOT_LISTED = "NVML does not list it any more"
"""The fault of a GPU that was there and is not counted now."""

_TREE = PciTree(bridges_per_switch=2, same_root=PcieLevel.PHB)

_ANCESTORS = {
    0: PcieLevel.PIX,
    10: PcieLevel.PIX,
    20: PcieLevel.PXB,
    30: PcieLevel.PHB,
    40: PcieLevel.NODE,
    50: PcieLevel.SYS,
}
"""NVML_TOPOLOGY_* (nvml.h): INTERNAL (one board, as Tesla K80), SINGLE, MULTIPLE, HOSTBRIDGE, NODE,
SYSTEM. Other numbers are unknown levels."""

_P2P_OK = 0
"""NVML_P2P_STATUS_OK (nvml.h)."""

_HEALTH = {2: "unhealthy", 3: "of limited capacity"}
"""NVML_GPU_FABRIC_HEALTH_SUMMARY_* that are reported (nvml.h)."""

_BYTES_PER_MIB = 1 << 20
_BELOW_ONE_SWITCH = frozenset({PcieLevel.PIX, PcieLevel.PXB})


def with_remembered(
    found: Sequence[RawGpu], unread: Sequence[UnreadGpu], before: Sequence[RawGpu]
) -> tuple[tuple[RawGpu, ...], tuple[str, ...]]:
    """GPUs to list, those that responded or did before; and notes of those that cannot be listed.

    GPUs known before keep their places; new ones go by NVML's index.
    """
    known = {gpu.uuid: gpu for gpu in before}
    gpus = [_as_known(gpu, known.get(gpu.uuid)) for gpu in found]
    answered = {gpu.uuid for gpu in found}
    reasons = {gpu.index: gpu.reason for gpu in unread}
    for gpu in before:
        if gpu.uuid not in answered:
            reason = reasons.pop(gpu.index, None)
            gpus.append(replace(gpu, fault=reason or NOT_LISTED))
    place = {gpu.uuid: i for i, gpu in enumerate(before)}
    gpus.sort(key=lambda gpu: (place.get(gpu.uuid, gpu.index), gpu.index, gpu.uuid))
    notes = tuple(
        f"GPU {index} is not listed, as its uuid cannot be read: {reason}"
        for index, reason in sorted(reasons.items())
    )
    return tuple(gpus), notes


def _as_known(gpu: RawGpu, known: RawGpu | None) -> RawGpu:
    if gpu.fault is None or known is None:
        return gpu
    return replace(known, index=gpu.index, fault=gpu.fault)


def unlinked_pairs(gpus: Sequence[RawGpu]) -> tuple[tuple[RawGpu, RawGpu], ...]:
    """The pairs that are known to have no NVLink: only there is P2P access that over PCIe."""
    links, _ = nvlink_matrix(gpus)
    return tuple(
        (gpus[i], gpus[j])
        for i, j in combinations(range(len(gpus)), 2)
        if links[i][j].kind is LinkKind.NONE
    )


def describe(raw: RawMachine) -> MachineReading:
    """The reading of a machine with at least one GPU.

    Raises `topology.errors.InvalidTopology` where the values contradict each other.
    """
    links, fabrics = nvlink_matrix(raw.gpus)
    pcie = _pcie_matrix(raw)
    gpus = tuple(_reading(gpu) for gpu in raw.gpus)
    topology = NodeTopology(
        gpus=tuple(gpu.gpu for gpu in gpus),
        links=links,
        pcie=pcie,
        nics=_nics(raw),
        fabrics=fabrics,
        p2p=_p2p(raw, pcie),
        cpu=raw.cpu,
    )
    return MachineReading(
        gpus=gpus,
        topology=topology,
        driver_version=raw.driver_version,
        notes=(
            *raw.notes,
            *_fault_notes(raw),
            *_generation_notes(raw),
            *_fabric_notes(raw),
            *_hidden_notes(raw),
        ),
        numa_distances=raw.numa_distances,
    )


def _memory_mib(gpu: RawGpu) -> int | None:
    mib = 0 if gpu.memory_bytes is None else gpu.memory_bytes // _BYTES_PER_MIB
    return mib or None


def _reading(gpu: RawGpu) -> GpuReading:
    return GpuReading(
        index=gpu.index,
        gpu=Gpu(
            uuid=gpu.uuid,
            pci_bus_id=gpu.pci_bus_id,
            model=gpu.model,
            memory_mib=_memory_mib(gpu),
            numa_node=gpu.numa_node,
            link_generation=_generation(gpu),
        ),
        nodes=() if gpu.minor is None else (gpu_node(gpu.minor),),
        is_partitioned=gpu.is_mig_enabled,
        partitions=gpu.instances,
        fault=gpu.fault,
        n_c2c_links=gpu.n_c2c_links,
        requests_recovery=gpu.requests_recovery,
    )


def _generation(gpu: RawGpu) -> int | None:
    """The generation of its links: the model's own where NVML says another.

    NVIDIA's mock NVML returns a generation where nvml.h has an enumerator, so that a GB200 would
    have the links of an A10.
    """
    reported, own = GENERATIONS.get(gpu.link_version or 0), _own_generation(gpu)
    return reported if reported is None or own is None else own


def _own_generation(gpu: RawGpu) -> int | None:
    model = find_gpu_model(gpu.model)
    return None if model is None else model.link_generation


# --- PCIe ---


def _pcie_matrix(raw: RawMachine) -> tuple[tuple[PcieLevel, ...], ...]:
    return tuple(
        tuple(PcieLevel.SELF if a is b else _level(raw, a, b) for b in raw.gpus) for a in raw.gpus
    )


def _level(raw: RawMachine, a: RawGpu, b: RawGpu) -> PcieLevel:
    ancestor = raw.ancestors.get(pair_key(a.uuid, b.uuid))
    level = PcieLevel.UNKNOWN if ancestor is None else _ANCESTORS.get(ancestor, PcieLevel.UNKNOWN)
    if a.place is None or b.place is None:
        return level
    if a.place.is_hidden or b.place.is_hidden:
        level = PcieLevel.SYS if level is PcieLevel.SYS else PcieLevel.UNKNOWN
    return _TREE.level(a.place, b.place) if level is PcieLevel.UNKNOWN else level


def _nics(raw: RawMachine) -> tuple[Nic, ...]:
    return tuple(
        Nic(
            name=nic.name,
            levels=tuple(
                PcieLevel.UNKNOWN if gpu.place is None else _TREE.level(nic.place, gpu.place)
                for gpu in raw.gpus
            ),
            pci_bus_id=nic.bus_id,
            numa_node=nic.place.numa_node,
            is_rdma=nic.is_rdma,
            gbit_per_s=nic.gbit_per_s,
        )
        for nic in raw.nics
    )


def _p2p(raw: RawMachine, pcie: tuple[tuple[PcieLevel, ...], ...]) -> P2pAccess:
    statuses: list[tuple[bool, bool]] = []
    for i, j in combinations(range(len(raw.gpus)), 2):
        status = raw.p2p.get(pair_key(raw.gpus[i].uuid, raw.gpus[j].uuid))
        if status is not None:
            statuses.append((pcie[i][j] in _BELOW_ONE_SWITCH, status == _P2P_OK))
    near = {is_ok for is_near, is_ok in statuses if is_near}
    verdicts = {is_ok for _, is_ok in statuses}
    if len(verdicts) > 1:
        verdicts = near
    if len(verdicts) != 1:
        return P2pAccess.UNKNOWN
    return P2pAccess.YES if verdicts.pop() else P2pAccess.NO


# --- notes ---


def _fault_notes(raw: RawMachine) -> tuple[str, ...]:
    faulty = (gpu for gpu in raw.gpus if gpu.fault is not None)
    return tuple(f"GPU {gpu.index} ({gpu.uuid}) cannot be used: {gpu.fault}" for gpu in faulty)


def _generation_notes(raw: RawMachine) -> tuple[str, ...]:
    by_text: dict[str, list[int]] = {}
    for gpu in raw.gpus:
        reported, own = GENERATIONS.get(gpu.link_version or 0), _generation(gpu)
        if reported != own:
            text = f"NVML says NVLink generation {reported}, {gpu.model} has {own}, which counts"
            by_text.setdefault(text, []).append(gpu.index)
    return tuple(f"{text} ({_named(gpus)})" for text, gpus in by_text.items())


def _fabric_notes(raw: RawMachine) -> tuple[str, ...]:
    by_text: dict[str, list[int]] = {}
    for gpu in raw.gpus:
        fault = fabric_fault(gpu.fabric)
        health = None if gpu.fabric is None else _HEALTH.get(gpu.fabric.health or 0)
        if gpu.links and fault is not None:
            by_text.setdefault(f"no NVLink through the fabric: {fault}", []).append(gpu.index)
        elif health is not None:
            by_text.setdefault(f"NVML calls the NVLink fabric {health}", []).append(gpu.index)
    return tuple(f"{text} ({_named(gpus)})" for text, gpus in by_text.items())


def _hidden_notes(raw: RawMachine) -> tuple[str, ...]:
    hidden = [gpu.index for gpu in raw.gpus if gpu.place is not None and gpu.place.is_hidden]
    if not hidden:
        return ()
    return (f"a hypervisor hides where these hang on PCIe: {_named(hidden)}; levels are unknown",)


def _named(indices: Sequence[int]) -> str:
    return f"GPU {', '.join(map(str, indices))}"
