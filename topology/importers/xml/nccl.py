"""NCCL and RCCL topology XML -> `NodeTopology`.

What it answers: which GPUs and NICs a file that NCCL wrote (`NCCL_TOPO_DUMP_FILE`) or reads
(`NCCL_TOPO_FILE`) describes, their PCIe levels, and the links among the GPUs. It never turns an
absent `<nvlink>` into "no NVLink": a file without any says nothing about NVLink (cloud providers
leave it to NVML), so all links stay unknown. Once one GPU lists links, the others' silence counts.

Method (format: NVIDIA/nccl 5067397c, src/graph/xml.cc and topo.cc; ROCm/rccl for `<xgmi>`):

- GPUs are the `<gpu>` elements; in a file without any, PCI devices of a GPU class. Their order is
  `dev`, which NCCL sets to the NVML index, else the PCI address, in which NVML counts: Azure's ND
  A100 v4 file lists 0003 before 0001, while nvidia-smi starts at 0001.
- PCIe levels come from the tree (`topology.importers.xml.pcie_tree`); each `<pci>` that holds
  others is one switch. NCCL does not record host bridges, so devices of one `<cpu>` without a
  common switch may be PHB or NODE apart. Where a PCIe stack is a host bridge of its own (Intel
  since Skylake, AMD) they are taken for NODE, the farther of the two: `nvidia-smi` prints NODE on
  the two-socket machines of these platforms that were recorded, but for a few pairs behind one
  bifurcated slot. So are devices of two PCI domains, which no host bridge joins: GB300 and GH200,
  with a domain for each root port, print NODE. Elsewhere the level is unknown. A file with a single
  `<cpu>` does not separate NUMA nodes (AWS's p5 file of 2026 puts the GPUs of two sockets under
  one): neither NUMA node nor level is claimed.
- `<nvlink>` to a bridge of class 0x0680 ends at an NVSwitch: the sum of a GPU's counts is its
  number of ports. To a GPU it is a direct link, up as far as both ends count it. 0x068001 is a CPU.
  A GPU that names itself as the far end has links with an unknown far end (Azure's NC A100 v4
  file): pairs of two such GPUs stay unknown.
- NICs are `<net>` elements with a place in the PCI tree, and PCI devices of a network class. Those
  directly under `<cpu>` are software interfaces (bridges, bonds, virtual Ethernet) and left out.
  `speed` is in Mbit/s; of a socket it is NCCL's default of 10,000 where the kernel gives none
  (src/misc/socket.cc), so only that of an RDMA NIC is taken, and none that no NIC has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, InvalidTopology, quote
from topology.importers.xml.accelerator_links import LinkEnds, build_links
from topology.importers.xml.cpu_platform import x86_platform
from topology.importers.xml.nics import FoundNic, build_nics
from topology.importers.xml.pci_ids import (
    find_model_name,
    has_gpu_class,
    is_gpu,
    is_infiniband,
    is_network,
)
from topology.importers.xml.pcie_tree import PciPlace, PciTree
from topology.importers.xml.safe_xml import find_attribute, parse_xml
from topology.model import (
    GA102_GENERATION,
    MAX_GPUS,
    MAX_LINKS,
    MAX_NIC_GBIT_PER_S,
    CpuPlatform,
    Gpu,
    LinkKind,
    NodeTopology,
    PcieLevel,
    normalise_pci_bus_id,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

__all__ = ["import_nccl_xml"]

WHAT = "NCCL topology XML"

_GENERATIONS = {60: 1, 70: 2, 80: 3, 86: GA102_GENERATION, 90: 4, 100: 5, 103: 5}
"""NVLink generation by compute capability (NCCL topo.h, ncclTopoNVLinkBw)."""

_LINK_KINDS = {"nvlink": LinkKind.NVLINK, "xgmi": LinkKind.XGMI}
_CPU_CLASS = "0x068001"
_GPU_CLASSES = ("0x03", "0x12")

_RDMA_NAME = re.compile(r"mlx|rdma|efa|irdma|bnxt_re|cxi|hfi|qib|ib[ps]", re.IGNORECASE)
"""Names of verbs and libfabric devices: mlx5_0, rdmap79s0, irdma0, bnxt_re0, cxi0, ibp1s0."""
_EFA = re.compile(r"0xefa[0-9a-f]", re.IGNORECASE)
"""Device ids of AWS's Elastic Fabric Adapters, efa0 to efa3 so far."""

_SEPARATE_HOST_BRIDGES = frozenset(
    {CpuPlatform.INTEL_SKL, CpuPlatform.INTEL_SPR, CpuPlatform.INTEL_ERP, CpuPlatform.AMD}
)


@dataclass(frozen=True, slots=True)
class _Device:
    """One PCI device of the file, with the element that makes it a GPU (None: its class alone)."""

    pci: Element
    bus_id: str
    place: PciPlace
    gpu: Element | None = None


@dataclass(slots=True)
class _Found:
    """What a walk through the tree collects, in document order."""

    gpus: list[_Device] = field(default_factory=list[_Device])
    bare_gpus: list[_Device] = field(default_factory=list[_Device])
    nics: list[FoundNic] = field(default_factory=list[FoundNic])


def import_nccl_xml(text: str, *, gpu_model: str | None = None) -> NodeTopology:
    """Read a NCCL or RCCL topology file; `gpu_model` names GPUs that the file does not.

    Raises `ImportFormatError` for text that is no such file, for NCCL *graph* files (`<graphs>`:
    rings that NCCL chose, not the machine), for a file of several hosts, and for one without a GPU.

    >>> import_nccl_xml(
    ...     '<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200">'
    ...     '<gpu dev="0" sm="80" rank="0" gdr="1"/></pci></cpu></system>'
    ... ).gpus[0].pci_bus_id
    '0000:01:00.0'
    """
    system = _find_system(text)
    cpus = [child for child in system if child.tag == "cpu"]
    found = _Found()
    for index, cpu in enumerate(cpus):
        _walk(cpu, _cpu_place(cpu, index, is_only=len(cpus) == 1), found)
    devices = _order(found.gpus or found.bare_gpus)
    if not devices:
        raise ImportFormatError(_no_gpu(system))
    if len(devices) > MAX_GPUS:
        msg = f"{WHAT} holds {len(devices)} GPUs, expected at most {MAX_GPUS}"
        raise ImportFormatError(msg)
    platform = _platform(cpus)
    tree = _tree(platform, n_cpus=len(cpus))
    places = [device.place for device in devices]
    ends = _link_ends(devices)
    try:
        links, fabrics = build_links(ends)
        return NodeTopology(
            gpus=tuple(_gpu(device, gpu_model) for device in devices),
            links=links,
            pcie=tree.matrix(places),
            nics=build_nics(found.nics, tree, places),
            fabrics=fabrics,
            cpu=platform,
        )
    except InvalidTopology as error:
        msg = f"{WHAT} contradicts itself: {error}"
        raise ImportFormatError(msg) from error


def _no_gpu(system: Element) -> str:
    """Why there is none: devices of a GPU class may be of vendors that are not known."""
    others = [pci for pci in system.iter("pci") if has_gpu_class(pci.get("class"))]
    if not others:
        return f"{WHAT} holds no GPU: no <gpu> element and no <pci> of a GPU class (0x03, 0x12)"
    vendors = sorted({find_attribute(pci, "vendor") or "?" for pci in others})
    return (
        f"{WHAT} holds no GPU of a known vendor: {len(others)} <pci> of a GPU class with vendor "
        f"{quote(', '.join(vendors))}, expected 0x10de (NVIDIA) or 0x1002 (AMD)"
    )


def _find_system(text: str) -> Element:
    root = parse_xml(text, WHAT)
    if root.tag == "graphs":
        msg = f"{WHAT}: this is a NCCL graph file (<graphs>), which holds rings and no topology"
        raise ImportFormatError(msg)
    if root.tag != "system":
        msg = f"{WHAT}: root element is {quote(root.tag)}, expected 'system'"
        raise ImportFormatError(msg)
    hosts = {cpu.get("host_hash") for cpu in root.iter("cpu")} - {None}
    if len(hosts) > 1:
        msg = f"{WHAT} holds {len(hosts)} hosts (host_hash), expected one"
        raise ImportFormatError(msg)
    return root


def _whole(element: Element, name: str) -> int | None:
    """Read a whole number; None where the attribute is absent or empty."""
    value = find_attribute(element, name)
    if value is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,9}", value):
        msg = f"{WHAT}: {name} of <{element.tag}> is {quote(value)}, expected a whole number"
        raise ImportFormatError(msg)
    return int(value)


def _bus_id(element: Element, name: str) -> str:
    value = find_attribute(element, name)
    try:
        return normalise_pci_bus_id(value or "")
    except InvalidTopology as error:
        msg = f"{WHAT}: {name} of <{element.tag}>: {error}"
        raise ImportFormatError(msg) from error


def _cpu_place(cpu: Element, index: int, *, is_only: bool) -> PciPlace:
    """Place of the root complex of one `<cpu>`; elements with one NUMA node are one root."""
    numa_id = _whole(cpu, "numaid")
    if numa_id is None or numa_id < 0:
        return PciPlace(root=f"cpu {index}", bridges=(), numa_node=None)
    return PciPlace(root=f"numa {numa_id}", bridges=(), numa_node=None if is_only else numa_id)


def _walk(parent: Element, place: PciPlace, found: _Found) -> None:
    """Collect GPUs and NICs below an element; recursion is bounded by `safe_xml.MAX_DEPTH`."""
    for pci in parent:
        if pci.tag != "pci":
            continue
        bus_id = _bus_id(pci, "busid")
        domain = bus_id.split(":")[0]
        root = place.root if place.bridges else f"{place.root}, domain {domain}"
        # A device on bus 0 of a domain, with nothing above it, sits on the root bus itself.
        is_hidden = not place.bridges and bus_id.split(":")[1] == "00"
        here = PciPlace(root, place.bridges, place.numa_node, is_hidden)
        device = _Device(pci, bus_id, here)
        found.gpus.extend(_Device(pci, bus_id, here, child) for child in pci if child.tag == "gpu")
        nets = [net for nic in pci if nic.tag == "nic" for net in nic.iter("net")]
        found.nics.extend(_nic(device, net) for net in nets)
        if any(child.tag == "pci" for child in pci):
            below = PciPlace(root, (*place.bridges, bus_id), place.numa_node)
            _walk(pci, below, found)
        elif is_gpu(pci.get("class"), pci.get("vendor"), device=pci.get("device")):
            found.bare_gpus.append(device)
        elif is_network(pci.get("class")) and not nets:
            found.nics.append(_nic(device, None))


def _nic(device: _Device, net: Element | None) -> FoundNic:
    """A NIC; one that the file gives no name is called by its PCI address."""
    name = "" if net is None else (net.get("name") or "").strip()
    is_rdma: bool | None = None
    if is_infiniband(device.pci.get("class")) or _EFA.fullmatch(device.pci.get("device") or ""):
        is_rdma = True
    elif name:
        # What NCCL drives through verbs or libfabric is called so; all else it used as a socket.
        is_rdma = _RDMA_NAME.match(name) is not None
    rate = _gbit_per_s(net) if net is not None and is_rdma else None
    return FoundNic(name or device.bus_id, device.bus_id, device.place, is_rdma, rate)


def _gbit_per_s(net: Element) -> float | None:
    text = net.get("speed") or ""
    mbit = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    return mbit / 1000 if 0 < mbit <= 1000 * MAX_NIC_GBIT_PER_S else None


def _order(devices: list[_Device]) -> list[_Device]:
    """GPUs by `dev` where each has one of its own, else by PCI address."""
    indices = [None if d.gpu is None else _whole(d.gpu, "dev") for d in devices]
    known = [index for index in indices if index is not None]
    if len(set(known)) == len(devices):
        pairs = sorted(zip(known, devices, strict=True), key=lambda pair: pair[0])
        return [device for _, device in pairs]
    return sorted(devices, key=lambda device: (len(device.bus_id), device.bus_id))


def _gpu(device: _Device, gpu_model: str | None) -> Gpu:
    named = find_model_name(device.pci.get("vendor"), device.pci.get("device"))
    generation = None
    if device.gpu is not None and any(child.tag == "nvlink" for child in device.gpu):
        generation = _GENERATIONS.get(_whole(device.gpu, "sm") or 0)
    return Gpu(
        pci_bus_id=device.bus_id,
        model=named or gpu_model,
        numa_node=device.place.numa_node,
        link_generation=generation,
    )


def _link_ends(devices: list[_Device]) -> list[LinkEnds]:
    """Where each GPU's links go, by what its `<nvlink>` and `<xgmi>` elements say."""
    index_of = {device.bus_id: index for index, device in enumerate(devices)}
    if len(index_of) < len(devices):
        twice = next(d.bus_id for i, d in enumerate(devices) if index_of[d.bus_id] != i)
        msg = f"{WHAT}: two GPUs have the bus id {twice}, expected one"
        raise ImportFormatError(msg)
    return [
        _ends_of(index, device.gpu, index_of) if device.gpu is not None else LinkEnds()
        for index, device in enumerate(devices)
    ]


def _ends_of(own_index: int, gpu: Element, index_of: dict[str, int]) -> LinkEnds:
    ends = LinkEnds()
    for element in gpu:
        kind = _LINK_KINDS.get(element.tag)
        if kind is None:
            continue
        count = _whole(element, "count")
        if count is None or not 0 <= count <= MAX_LINKS:
            msg = f"{WHAT}: count of <{element.tag}> is {count}, expected 0..{MAX_LINKS}"
            raise ImportFormatError(msg)
        ends.kind = kind
        target = (find_attribute(element, "target") or "").lower()
        far_class = (find_attribute(element, "tclass") or "").lower()
        peer = index_of.get(target)
        if peer == own_index:
            ends.n_unplaced += count
        elif peer is not None:
            ends.to_gpu[peer] = ends.to_gpu.get(peer, 0) + count
        elif not far_class.startswith((_CPU_CLASS, *_GPU_CLASSES)):
            # NCCL takes every other class for an NVSwitch, a far end that a VM hides included.
            ends.to_switch += count
    return ends


def _platform(cpus: list[Element]) -> CpuPlatform:
    """Processor class that all `<cpu>` elements share (NCCL topo.cc, ncclTopoAddCpu)."""
    platforms = {_cpu_platform(cpu) for cpu in cpus}
    return platforms.pop() if len(platforms) == 1 else CpuPlatform.UNKNOWN


def _cpu_platform(cpu: Element) -> CpuPlatform:
    arch = cpu.get("arch")
    if arch == "x86_64":
        family, model = _whole(cpu, "familyid"), _whole(cpu, "modelid")
        return x86_platform(cpu.get("vendor"), family=family, model=model)
    other = {"ppc64": CpuPlatform.POWER9, "arm64": CpuPlatform.ARM}
    return other.get(arch or "", CpuPlatform.UNKNOWN)


def _tree(platform: CpuPlatform, *, n_cpus: int) -> PciTree:
    is_node = n_cpus > 1 and platform in _SEPARATE_HOST_BRIDGES
    same_root = PcieLevel.NODE if is_node else PcieLevel.UNKNOWN
    return PciTree(bridges_per_switch=1, same_root=same_root)
