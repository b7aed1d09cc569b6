"""Link matrix and NVSwitch fabrics from where each GPU's NVLinks end.

A link that cannot be read is unknown, not absent.

Method:

- A far end has the type that NVML reports (GPU, switch, IBM's NPU). Where that is unknown or cannot
  be read (old driver), the PCI id decides: one of the machine's GPUs; none that can be read, which
  is a switch (as NCCL assumes: NVIDIA/nccl 5067397c, src/graph/xml.cc:970-987); else by the class
  in sysfs (0x0680: switch, src/graph/topo.cc).
- What is left is a link with an unknown far end: a GPU under an id that this machine does not have,
  or its own (virtual machines show such ids; Azure's NC A100 v4 does). A GPU under an id that sysfs
  has, but NVML does not list, is one that cannot be used here.
- A direct link is up as far as both ends count it. Where one end cannot be read, the other's
  count is used. Two GPUs that both have links with an unknown far end: unknown.
- GPUs with links to switches form one fabric, each clique (nvmlGpuFabricInfo) one of its own: a
  pair has the lesser count of up links, never summed. Registration that is not completed, or was
  so with an error, means no NVLink although links are up; these GPUs form a fabric that is down.
  Before Hopper NVML has no such state; then links that are up count.
- A GPU whose NVLinks are all down, on a machine of switches, is a member with no port.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.nvidia.nvml.raw_machine import FarType
from topology.model import (
    GA102_GENERATION,
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    LinkKind,
    SwitchFabric,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.nvidia.nvml.raw_machine import RawFabric, RawGpu, RawLink

__all__ = ["GENERATIONS", "clique_of", "fabric_fault", "is_awaiting_fabric", "nvlink_matrix"]

GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: GA102_GENERATION, 6: 4, 7: 5, 8: 6}
"""NVML_NVLINK_VERSION_* to NVLink generation (nvml.h; nvidia-ml-py 13.615.71): 1.0, 2.0, 2.2, 3.0,
3.1, 4.0, 5.0, 6.0. 3.1 is GA102's link of four lanes (Syllo/nvtop PR 469: two RTX 3090 report
5)."""

_SWITCH_CLASS = "0x0680"
_NPU_CLASS = "0x068001"
"""PCI classes of NVSwitch and of POWER9's end of a NVLink (NVIDIA/nccl src/graph/topo.cc)."""

_FABRIC_STATES = {1: "not started", 2: "in progress"}
_FABRIC_NOT_SUPPORTED = 0
_FABRIC_COMPLETED = 3
"""NVML_GPU_FABRIC_STATE_* (nvml.h)."""

_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"

LinkMatrix = tuple[tuple[AcceleratorLink, ...], ...]


@dataclass(slots=True)
class _Ends:
    """Where the links of one GPU go, by count; `is_known` is False where NVML has no value."""

    is_known: bool
    to_gpu: dict[int, int] = field(default_factory=dict[int, int])
    to_switch: int = 0
    unplaced: int = 0


def clique_of(fabric: RawFabric | None) -> str | None:
    """`<ClusterUUID>.<CliqueID>` where the GPU's fabric is up and spans nodes."""
    if fabric is None or fabric.state != _FABRIC_COMPLETED or fabric.cluster_uuid == _NO_CLUSTER:
        return None
    return f"{fabric.cluster_uuid}.{fabric.clique_id}"


def fabric_fault(fabric: RawFabric | None) -> str | None:
    """Why a GPU has no way through its NVSwitch fabric; None where it has, or is unknown.

    >>> from plugin.nvidia.nvml.raw_machine import RawFabric
    >>> fabric_fault(RawFabric(state=2)), fabric_fault(RawFabric(state=3)), fabric_fault(None)
    ('registration in progress', None, None)
    """
    if fabric is None or fabric.state == _FABRIC_NOT_SUPPORTED:
        return None
    if fabric.state == _FABRIC_COMPLETED:
        return f"registration failed with status {fabric.status}" if fabric.status else None
    return f"registration {_FABRIC_STATES.get(fabric.state, f'in state {fabric.state}')}"


def is_awaiting_fabric(gpu: RawGpu, fabric: RawFabric | None) -> bool:
    """Whether a GPU cannot be used until the fabric manager has registered it.

    CUDA cannot start on it then (cudaErrorSystemNotReady, 802). So it is with GPUs on NVSwitch; one
    with none of its NVLinks up is taken to be on one, as the fabric manager brings them up. MIG
    devices use no NVLink.
    """
    if fabric is None or fabric.state not in _FABRIC_STATES or gpu.is_mig_enabled:
        return False
    if not gpu.links:
        return gpu.n_links > 0
    return any(link.far_type == FarType.SWITCH or _looks_like_a_switch(link) for link in gpu.links)


def nvlink_matrix(gpus: Sequence[RawGpu]) -> tuple[LinkMatrix, tuple[SwitchFabric, ...]]:
    """Pair matrix (n x n) and fabrics, in the order of `gpus`; fabrics by their first member."""
    index_of = {gpu.pci_bus_id: i for i, gpu in enumerate(gpus) if gpu.pci_bus_id is not None}
    ends = [_ends_of(i, gpu, index_of) for i, gpu in enumerate(gpus)]
    fabrics = _fabrics(gpus, ends)
    inside = {
        (i, j): _through(fabric, min(n_i, n_j))
        for fabric in fabrics
        for i, n_i in fabric.ports
        for j, n_j in fabric.ports
    }
    for i in _off_fabrics(gpus, ends):
        for j in (j for j, end in enumerate(ends) if end.to_switch):
            inside[i, j] = inside[j, i] = UNKNOWN_LINK
    n = len(gpus)
    matrix = tuple(
        tuple(
            NO_LINK if i == j else inside[i, j] if (i, j) in inside else _direct(ends, i, j)
            for j in range(n)
        )
        for i in range(n)
    )
    return matrix, fabrics


def _ends_of(own_index: int, gpu: RawGpu, index_of: Mapping[str, int]) -> _Ends:
    ends = _Ends(is_known=gpu.links is not None)
    for link in gpu.links or ():
        peer = index_of.get(link.far_bus_id or "")
        if link.far_type == FarType.SWITCH or (peer is None and _looks_like_a_switch(link)):
            ends.to_switch += 1
        elif link.far_type == FarType.NPU or link.far_class == _NPU_CLASS:
            continue
        elif peer is not None and peer != own_index:
            ends.to_gpu[peer] = ends.to_gpu.get(peer, 0) + 1
        elif link.far_class is None:
            ends.unplaced += 1
    return ends


def _looks_like_a_switch(link: RawLink) -> bool:
    if link.far_type in {FarType.GPU, FarType.NPU}:
        return False
    if link.far_bus_id is None:
        return True
    far_class = link.far_class or ""
    return far_class.startswith(_SWITCH_CLASS) and far_class != _NPU_CLASS


def _fabrics(gpus: Sequence[RawGpu], ends: Sequence[_Ends]) -> tuple[SwitchFabric, ...]:
    groups: dict[tuple[bool, str | None], list[tuple[int, int]]] = {}
    keys = [_fabric_key(gpu.fabric) for gpu in gpus]
    unread = _off_fabrics(gpus, ends)
    for i, end in enumerate(ends):
        if end.to_switch and i not in unread:
            groups.setdefault(keys[i], []).append((i, end.to_switch))
    if not groups:
        return ()
    for i, (gpu, end) in enumerate(zip(gpus, ends, strict=True)):
        if end.is_known and not gpu.links and gpu.n_links:
            groups[keys[i] if keys[i] in groups else next(iter(groups))].append((i, 0))
    fabrics = [
        SwitchFabric(ports=tuple(sorted(ports)), is_up=is_up, clique=clique)
        for (is_up, clique), ports in groups.items()
    ]
    return tuple(sorted(fabrics, key=lambda fabric: fabric.ports[0]))


def _fabric_key(fabric: RawFabric | None) -> tuple[bool, str | None]:
    """What members of one fabric share: whether it is up, and the clique."""
    return fabric_fault(fabric) is None, clique_of(fabric)


def _off_fabrics(gpus: Sequence[RawGpu], ends: Sequence[_Ends]) -> set[int]:
    """GPUs with links to switches of which NVML does not say whether they are of a known clique."""
    members = [i for i, end in enumerate(ends) if end.to_switch]
    known = {_fabric_key(gpus[i].fabric) for i in members if gpus[i].fabric is not None}
    if not known or _fabric_key(None) in known:
        return set()
    return {i for i in members if gpus[i].fabric is None}


def _through(fabric: SwitchFabric, n_links: int) -> AcceleratorLink:
    return AcceleratorLink(LinkKind.NVLINK, n_links) if fabric.is_up and n_links else NO_LINK


def _direct(ends: Sequence[_Ends], i: int, j: int) -> AcceleratorLink:
    a, b = ends[i], ends[j]
    counts = [end.to_gpu.get(peer, 0) for end, peer in ((a, j), (b, i)) if end.is_known]
    n_links = min(counts, default=0)
    if n_links:
        return AcceleratorLink(LinkKind.NVLINK, n_links)
    if a.is_known and b.is_known:
        is_open = bool(a.unplaced and b.unplaced)
    else:
        # The one that can be read has links whose far end may be the other.
        is_open = not counts or bool(a.unplaced + b.unplaced + a.to_switch + b.to_switch)
    return UNKNOWN_LINK if is_open else NO_LINK
