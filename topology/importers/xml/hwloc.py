"""hwloc XML (versions 1, 2 and 3) -> `NodeTopology`.

What it answers: which GPUs and NICs an `lstopo --of xml` file describes, where they hang in the
PCI tree and at which NUMA node, and the links among them where hwloc wrote a bandwidth matrix. It
never takes the absence of such a matrix for "no NVLink": hwloc writes one only when built with NVML
or ROCm SMI.

Method (open-mpi/hwloc 3b37b024, doc/hwloc.doxy and hwloc.dtd, hwloc2.dtd):

- A GPU is a PCI device of a GPU class and vendor that a driver has taken: hwloc shows an OS device
  (nvml0, cuda0, rsmi0, opencl0d0, card0 ...) below it. Where libraries could not say which PCI
  device theirs is (OpenCL in virtual machines), the OS devices hang elsewhere; then their number
  must be that of the PCI devices. Functions of one PCI device are one GPU. Order: NVML's index,
  ROCm SMI's, PCI address.
- PCIe levels come from the tree of bridges (`topology.importers.xml.pcie_tree`); the NUMA node is
  the only one in the nodeset of the object that holds the host bridge.
- Links come from bandwidth matrices (`topology.importers.xml.hwloc_distances`).
- A NIC is a PCI device with a network or OpenFabrics OS device; the latter means RDMA. hwloc writes
  no rate of a port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, InvalidTopology, quote
from topology.importers.xml.cpu_platform import x86_platform
from topology.importers.xml.hwloc_distances import link_matrix
from topology.importers.xml.nics import FoundNic, build_nics
from topology.importers.xml.pci_ids import find_model_name, is_gpu, is_infiniband
from topology.importers.xml.pcie_tree import PciPlace, PciTree
from topology.importers.xml.safe_xml import find_attribute, parse_xml
from topology.model import MAX_GPUS, CpuPlatform, Gpu, NodeTopology, PcieLevel, normalise_pci_bus_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from xml.etree.ElementTree import Element

__all__ = ["import_hwloc_xml"]

WHAT = "hwloc XML"

_TREE = PciTree(bridges_per_switch=2, same_root=PcieLevel.PHB)
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE)
_COMPUTE_NAME = re.compile(r"(nvml|cuda|rsmi|opencl)[0-9]+")
_RUNTIMES = ("nvml", "cuda", "rsmi", "opencl")
"""Libraries that name a GPU, in the order in which their name for its model is trusted."""

_MOST_NODESET_WORDS = 64

# hwloc_obj_osdev_type_e: a number up to version 2 (hwloc.h 2.9), a set of bits from version 3 on.
_V2_GPU = {1, 5}
_V2_NETWORK = 2
_V2_RDMA = 3
_V3_GPU = 4 | 8
_V3_NETWORK = 16
_V3_RDMA = 32


@dataclass(frozen=True, slots=True)
class _OsDevice:
    """What the operating system or a library calls a device."""

    name: str
    is_gpu: bool
    is_network: bool
    is_rdma: bool
    gp_index: str | None
    infos: dict[str, str]


@dataclass(frozen=True, slots=True)
class _PciDevice:
    """A PCI device with the OS devices below it; class and ids are None where the file has none."""

    bus_id: str
    place: PciPlace
    pci_class: str | None
    vendor: str | None
    device: str | None
    os_devices: tuple[_OsDevice, ...]

    @property
    def is_driven(self) -> bool:
        """Whether a driver made a GPU of it."""
        return any(device.is_gpu for device in self.os_devices)

    @property
    def is_gpu(self) -> bool:
        """Whether class and vendor, or a compute library, make it a GPU."""
        named = any(_COMPUTE_NAME.match(device.name) for device in self.os_devices)
        is_display = is_gpu(self.pci_class, self.vendor, device=self.device)
        return is_display or (self.pci_class is None and named)


@dataclass(slots=True)
class _Found:
    """What a walk through the tree collects, in document order."""

    devices: list[_PciDevice] = field(default_factory=list[_PciDevice])
    loose: list[_OsDevice] = field(default_factory=list[_OsDevice])
    infos: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    n_host_bridges: int = 0
    is_version_3: bool = False


def import_hwloc_xml(text: str, *, gpu_model: str | None = None) -> NodeTopology:
    """Read a hwloc XML file; `gpu_model` names GPUs that the file does not.

    Raises `ImportFormatError` for text that is no hwloc XML, lstopo's console output (which shows
    no PCI tree) included, and for a file without a GPU that a driver has taken.
    """
    root = _find_topology(text)
    found = _Found(is_version_3=(root.get("version") or "").startswith("3"))
    _walk(root, PciPlace(root="machine", bridges=(), numa_node=None), found)
    gpus = _order(_find_gpus(found))
    places = [gpu.place for gpu in gpus]
    os_devices = [[device.gp_index for device in gpu.os_devices] for gpu in gpus]
    default_model = _model_name(_misplaced(found)) or gpu_model
    try:
        return NodeTopology(
            gpus=tuple(_gpu(gpu, default_model) for gpu in gpus),
            links=link_matrix(root, os_devices),
            pcie=_TREE.matrix(places),
            nics=build_nics(_find_nics(found), _TREE, places),
            cpu=_platform(found.infos),
        )
    except InvalidTopology as error:
        msg = f"{WHAT} contradicts itself: {error}"
        raise ImportFormatError(msg) from error


def _find_topology(text: str) -> Element:
    if re.match(r"\s*Machine\b", text):
        msg = f"{WHAT}: this is lstopo's console output, which shows no PCI tree, expected XML"
        raise ImportFormatError(msg)
    root = parse_xml(text, WHAT)
    if root.tag != "topology":
        msg = f"{WHAT}: root element is {quote(root.tag)}, expected 'topology'"
        raise ImportFormatError(msg)
    return root


def _infos(element: Element) -> dict[str, str]:
    return {
        info.get("name") or "": (info.get("value") or "").strip()
        for info in element
        if info.tag == "info"
    }


def _walk(parent: Element, place: PciPlace, found: _Found) -> None:
    """Collect devices below an object; recursion is bounded by `safe_xml.MAX_DEPTH`."""
    found.infos.append(_infos(parent))
    for child in parent:
        kind = child.get("type") if child.tag == "object" else None
        if kind is None:
            continue
        if kind == "PCIDev":
            found.devices.append(_pci_device(child, place, found))
        elif kind == "OSDev":
            found.loose.append(_os_device(child, found))
        elif kind == "Bridge":
            _walk(child, _below_bridge(child, place, found), found)
        else:
            _walk(child, _below_object(child, place), found)


def _below_object(element: Element, place: PciPlace) -> PciPlace:
    nodeset = find_attribute(element, "nodeset")
    numa_node = place.numa_node if nodeset is None else _only_node(nodeset)
    return PciPlace(place.root, place.bridges, numa_node)


def _only_node(nodeset: str) -> int | None:
    """Index of the only NUMA node in a set such as `0x1,,0x00000101`; None for none or several."""
    words = nodeset.split(",")
    if len(words) > _MOST_NODESET_WORDS:
        return None
    bits = 0
    for word in words:
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{0,8}", word):
            return None
        bits = bits << 32 | int(word.removeprefix("0x") or "0", 16)
    return bits.bit_length() - 1 if bits.bit_count() == 1 else None


def _below_bridge(element: Element, place: PciPlace, found: _Found) -> PciPlace:
    if (element.get("bridge_type") or "").startswith("0"):
        found.n_host_bridges += 1
        return PciPlace(f"host bridge {found.n_host_bridges}", (), place.numa_node)
    return PciPlace(place.root, (*place.bridges, _bus_id(element)), place.numa_node)


def _bus_id(element: Element) -> str:
    try:
        return normalise_pci_bus_id(element.get("pci_busid") or "")
    except InvalidTopology as error:
        msg = f"{WHAT}: pci_busid of a {element.get('type')}: {error}"
        raise ImportFormatError(msg) from error


def _pci_device(element: Element, place: PciPlace, found: _Found) -> _PciDevice:
    match = _PCI_TYPE.match(element.get("pci_type") or "")
    pci_class, vendor, device = match.groups() if match else (None, None, None)
    return _PciDevice(
        bus_id=_bus_id(element),
        place=PciPlace(place.root, place.bridges, place.numa_node, is_hidden=not place.bridges),
        pci_class=pci_class,
        vendor=vendor,
        device=device,
        os_devices=tuple(
            _os_device(child, found)
            for child in element.iter("object")
            if child.get("type") == "OSDev"
        ),
    )


def _os_device(element: Element, found: _Found) -> _OsDevice:
    text = find_attribute(element, "osdev_type") or "0"
    if not re.fullmatch(r"[0-9]{1,4}", text):
        msg = f"{WHAT}: osdev_type is {quote(text)}, expected a number"
        raise ImportFormatError(msg)
    number = int(text)
    is_v3 = found.is_version_3
    infos = _infos(element)
    is_gpu_type = bool(number & _V3_GPU) if is_v3 else number in _V2_GPU
    return _OsDevice(
        name=(element.get("name") or "").strip(),
        is_gpu=is_gpu_type and infos.get("OpenCLDeviceType", "GPU") == "GPU",
        is_network=bool(number & _V3_NETWORK) if is_v3 else number == _V2_NETWORK,
        is_rdma=bool(number & _V3_RDMA) if is_v3 else number == _V2_RDMA,
        gp_index=find_attribute(element, "gp_index"),
        infos=infos,
    )


def _find_gpus(found: _Found) -> list[_PciDevice]:
    """GPUs that a driver has taken, one per PCI device (functions merged)."""
    candidates = [device for device in found.devices if device.is_gpu]
    driven = [device for device in candidates if device.is_driven]
    if not driven and candidates and _most_by_runtime(_misplaced(found)) == len(candidates):
        driven = candidates
    one_each = {gpu.bus_id.rpartition(".")[0]: gpu for gpu in reversed(driven)}
    if not one_each:
        msg = (
            f"{WHAT} holds no GPU that a driver has taken "
            f"({len(candidates)} PCI devices of a GPU class, none with an OS device)"
        )
        raise ImportFormatError(msg)
    if len(one_each) > MAX_GPUS:
        msg = f"{WHAT} holds {len(one_each)} GPUs, expected at most {MAX_GPUS}"
        raise ImportFormatError(msg)
    return list(one_each.values())


def _misplaced(found: _Found) -> list[_OsDevice]:
    """OS devices of GPUs that hang anywhere but below a GPU."""
    others = [os for device in found.devices if not device.is_gpu for os in device.os_devices]
    return [device for device in (*found.loose, *others) if device.is_gpu]


def _most_by_runtime(devices: Iterable[_OsDevice]) -> int:
    """Number of GPUs that the most complete library saw; several name each GPU once."""
    names = [device.name for device in devices]
    return max(sum(name.startswith(runtime) for name in names) for runtime in _RUNTIMES)


def _order(gpus: list[_PciDevice]) -> list[_PciDevice]:
    """GPUs by NVML's index, else ROCm SMI's, else PCI address."""
    for runtime in ("nvml", "rsmi"):
        indices = [_index_in(runtime, gpu) for gpu in gpus]
        known = [index for index in indices if index is not None]
        if len(set(known)) == len(gpus):
            return [gpu for _, gpu in sorted(zip(known, gpus, strict=True), key=lambda p: p[0])]
    return sorted(gpus, key=lambda gpu: (len(gpu.bus_id), gpu.bus_id))


def _index_in(runtime: str, gpu: _PciDevice) -> int | None:
    for device in gpu.os_devices:
        match = re.fullmatch(rf"{runtime}([0-9]{{1,4}})", device.name)
        if match:
            return int(match[1])
    return None


def _gpu(gpu: _PciDevice, default_model: str | None) -> Gpu:
    named = _model_name(gpu.os_devices) or find_model_name(gpu.vendor, gpu.device)
    uuids = (device.infos.get("NVIDIAUUID") for device in gpu.os_devices)
    return Gpu(
        uuid=next((uuid for uuid in uuids if uuid), None),
        pci_bus_id=gpu.bus_id,
        model=named or default_model,
        numa_node=gpu.place.numa_node,
    )


def _model_name(devices: Iterable[_OsDevice]) -> str | None:
    """Model on which the most trusted library that names one agrees with itself."""
    listed = list(devices)
    for runtime in _RUNTIMES:
        mine = {d.infos.get("GPUModel") or "" for d in listed if d.name.startswith(runtime)} - {""}
        if mine:
            return mine.pop() if len(mine) == 1 else None
    return None


def _find_nics(found: _Found) -> list[FoundNic]:
    is_any_rdma = any(os.is_rdma for device in found.devices for os in device.os_devices)
    nics: list[FoundNic] = []
    for device in found.devices:
        rdma = [os.name for os in device.os_devices if os.is_rdma]
        network = [os.name for os in device.os_devices if os.is_network]
        if not rdma and not network:
            continue
        is_rdma = True if rdma or is_infiniband(device.pci_class) else None
        # A file that shows RDMA devices at all shows those of every NIC that has one.
        is_rdma = False if is_rdma is None and is_any_rdma else is_rdma
        name = next((name for name in (*rdma, *network) if name), device.bus_id)
        nics.append(FoundNic(name, device.bus_id, device.place, is_rdma))
    return nics


def _platform(infos: list[dict[str, str]]) -> CpuPlatform:
    """Processor class that all packages share."""
    architectures = {info["Architecture"] for info in infos if "Architecture" in info}
    if "aarch64" in architectures:
        return CpuPlatform.ARM
    platforms = {_cpu_platform(info) for info in infos if "CPUModel" in info or "CPUVendor" in info}
    return platforms.pop() if len(platforms) == 1 else CpuPlatform.UNKNOWN


def _cpu_platform(info: dict[str, str]) -> CpuPlatform:
    if info.get("CPUModel", "").startswith("POWER9"):
        return CpuPlatform.POWER9
    family, model = (info.get(f"CPU{part}Number", "") for part in ("Family", "Model"))
    return x86_platform(
        info.get("CPUVendor"),
        family=int(family) if re.fullmatch(r"[0-9]{1,6}", family) else None,
        model=int(model) if re.fullmatch(r"[0-9]{1,6}", model) else None,
    )
