"""NVML's calls as typed methods, its error codes as `NvmlError`.

Peculiarities that end here (nvidia-ml-py 13.615.71): `NVML_P2P_CAPS_INDEX_READ` is the tuple
`(0,)`, so the number is used; PCI ids have eight digits of domain in mixed case, are unprintable
where a far end has none, and `FFFFFFFF:FF:FF.0` on GB200; `c_nvmlGpuFabricInfoV_t` is version 2,
which has no health summary, so version 3 is tried first.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NewType
from uuid import UUID

import pynvml as _untyped  # type: ignore[import-untyped]  # nvidia-ml-py ships no types

from plugin.nvidia.mig_profile import MigShape
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.raw_machine import RawFabric
from topology.errors import InvalidTopology
from topology.model import normalise_pci_bus_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "EventBit",
    "EventSet",
    "FieldId",
    "Handle",
    "Nvml",
    "NvmlCode",
    "NvmlEvent",
    "fault_text",
    "preload",
]

_nvml: Any = _untyped

Handle = NewType("Handle", object)
"""A GPU or MIG device, as NVML names it while the library is open."""
EventSet = NewType("EventSet", object)
"""What events arrive at."""

_READ = 0
"""NVML_P2P_CAPS_INDEX_READ (nvml.h)."""
_NO_BUS_ID = "ffffffff:ff:ff.0"
"""A far end without a PCI id (k8s-test-infra 3b2b865d, pkg/gpu/mocknvml/engine/device.go:1645)."""
_NODE_WORDS = 16
"""64-bit words that hold the kernel's most NUMA nodes: MAX_NUMNODES is 1024 (NODES_SHIFT 10)."""


class NvmlCode:
    """nvmlReturn_t (nvml.h) as far as it is distinguished."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


class EventBit:
    """nvmlEventType* (nvml.h) that are handled here."""

    SINGLE_BIT_ECC = 0x1
    DOUBLE_BIT_ECC = 0x2
    XID = 0x8
    MIG_CONFIG = 0x100
    GPU_UNAVAILABLE = 0x4000
    RECOVERY_ACTION = 0x8000


class FieldId:
    """NVML_FI_DEV_* (nvml.h): ids of `Nvml.fields`; the scope of NVLINK_GET_STATE is the link."""

    NVLINK_LINK_COUNT = 91
    NVSWITCH_CONNECTED_LINK_COUNT = 147
    NVLINK_GET_STATE = 165
    C2C_LINK_COUNT = 170
    GPU_RECOVERY_ACTION = 230


@dataclass(frozen=True, slots=True)
class NvmlEvent:
    """nvmlEventData: `kind` is one bit of nvmlEventType*, `data` the XID where it is about one.

    `device` is the GPU's handle; it may have another address (`Nvml.address`) than the one that was
    registered.
    """

    device: Handle
    kind: int
    data: int
    gpu_instance: int
    compute_instance: int


class Nvml:
    """The library. Every method may raise `NvmlError` with NVML's code and the call's name."""

    MAX_LINKS: int = _nvml.NVML_NVLINK_MAX_LINKS

    def open(self) -> None:
        """Load and initialise the library; code 0 where there is none on this machine."""
        try:
            self._call("nvmlInit")
        except NvmlError as error:
            if error.code != NvmlCode.LIBRARY_NOT_FOUND:
                raise
            msg = (
                "libnvidia-ml.so.1 not found: install the NVIDIA driver, or set "
                "driver_root_ctr_path to where this container sees the driver's root"
            )
            raise NvmlError(msg) from error

    def close(self) -> None:
        """Shut the library down; handles are invalid from then on."""
        self._call("nvmlShutdown")

    def driver_version(self) -> str:
        """The driver's version, as 580.65.06."""
        return str(self._call("nvmlSystemGetDriverVersion"))

    def count(self) -> int:
        """How many GPUs there are, those that fail included."""
        return int(self._call("nvmlDeviceGetCount"))

    def handle(self, index: int) -> Handle:
        """The GPU of NVML's index."""
        return Handle(self._call("nvmlDeviceGetHandleByIndex", index))

    def handle_of(self, uuid: str) -> Handle:
        """The GPU of a uuid."""
        return Handle(self._call("nvmlDeviceGetHandleByUUID", uuid))

    def address(self, handle: Handle) -> int:
        """What distinguishes a GPU's handle from another's, and is in its events."""
        return int(ctypes.cast(_pointer(handle), ctypes.c_void_p).value or 0)

    # --- one GPU ---

    def uuid(self, handle: Handle) -> str:
        """The uuid of a GPU (`GPU-...`) or MIG device (`MIG-...`)."""
        return str(self._call("nvmlDeviceGetUUID", handle))

    def name(self, handle: Handle) -> str:
        """The product's name; a MIG device's ends in ` MIG ` and its profile."""
        return str(self._call("nvmlDeviceGetName", handle))

    def bus_id(self, handle: Handle) -> str | None:
        """The PCI id as `dddd:bb:dd.f`; None where NVML has none that can be read."""
        return _bus_id(self._call("nvmlDeviceGetPciInfo", handle))

    def memory_bytes(self, handle: Handle) -> int:
        """The GPU's memory."""
        return int(self._call("nvmlDeviceGetMemoryInfo", handle).total)

    def minor(self, handle: Handle) -> int:
        """The number of `/dev/nvidia<minor>`."""
        return int(self._call("nvmlDeviceGetMinorNumber", handle))

    def compute_capability(self, handle: Handle) -> tuple[int, int]:
        """CUDA's compute capability: (9, 0) is Hopper."""
        major, minor = self._call("nvmlDeviceGetCudaComputeCapability", handle)
        return int(major), int(minor)

    def fields(self, handle: Handle, ids: Sequence[tuple[int, int]]) -> tuple[int | None, ...]:
        """Values of (field, scope) in one call; None where NVML has no value for one."""
        values = self._call("nvmlDeviceGetFieldValues", handle, list(ids))
        return tuple(None if value.nvmlReturn else _number(value) for value in values)

    def memory_nodes(self, handle: Handle) -> tuple[int, ...]:
        """NUMA nodes whose memory is nearest to the GPU, ascending."""
        words = self._call("nvmlDeviceGetMemoryAffinity", handle, _NODE_WORDS, 0)
        bits = sum(int(word) << (64 * i) for i, word in enumerate(words))
        return tuple(node for node in range(64 * _NODE_WORDS) if bits >> node & 1)

    def fabric(self, handle: Handle) -> RawFabric:
        """What the GPU knows of its NVLink fabric, by version 3 of the structure, else 2.

        Drivers before R545 have one call without versions.
        """
        try:
            info = self._versioned_fabric(handle)
        except NvmlError as error:
            if error.code != NvmlCode.FUNCTION_NOT_FOUND:
                raise
            info = _nvml.c_nvmlGpuFabricInfo_t()
            self._call("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info))
        return RawFabric(
            state=int(info.state),
            status=int(info.status),
            cluster_uuid=str(UUID(bytes=bytes(info.clusterUuid))),
            clique_id=int(info.cliqueId),
            health=int(info.healthSummary) if hasattr(info, "healthSummary") else None,
        )

    def _versioned_fabric(self, handle: Handle) -> Any:  # noqa: ANN401 - pynvml is untyped
        info = _nvml.c_nvmlGpuFabricInfo_v3_t()
        try:
            self._call("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
        except NvmlError as error:
            if error.code not in {NvmlCode.ARGUMENT_VERSION_MISMATCH, NvmlCode.INVALID_ARGUMENT}:
                raise
            info = _nvml.c_nvmlGpuFabricInfo_v2_t()
            self._call("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
        return info

    # --- NVLink ---

    def link_state(self, handle: Handle, link: int) -> bool:
        """Whether a NVLink is up."""
        return bool(self._call("nvmlDeviceGetNvLinkState", handle, link))

    def link_version(self, handle: Handle, link: int) -> int:
        """NVML_NVLINK_VERSION_* of a NVLink: an enumerator, not the generation."""
        return int(self._call("nvmlDeviceGetNvLinkVersion", handle, link))

    def far_type(self, handle: Handle, link: int) -> int:
        """NVML_NVLINK_DEVICE_TYPE_* of the far end."""
        return int(self._call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link))

    def far_bus_id(self, handle: Handle, link: int) -> str | None:
        """PCI id of the far end; None where there is none, or the sentinel."""
        return _bus_id(self._call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))

    # --- pairs ---

    def common_ancestor(self, a: Handle, b: Handle) -> int:
        """NVML_TOPOLOGY_*: what is nearest to both on PCIe."""
        return int(self._call("nvmlDeviceGetTopologyCommonAncestor", a, b))

    def p2p_read_status(self, a: Handle, b: Handle) -> int:
        """NVML_P2P_STATUS_* of reads from one by the other; 0 is OK."""
        return int(self._call("nvmlDeviceGetP2PStatus", a, b, _READ))

    # --- MIG ---

    def is_mig_enabled(self, handle: Handle) -> bool:
        """Whether MIG is on now, whatever the next reset brings."""
        current, _pending = self._call("nvmlDeviceGetMigMode", handle)
        return bool(current)

    def max_mig_devices(self, handle: Handle) -> int:
        """Most MIG devices that the GPU can have; their indices may have gaps."""
        return int(self._call("nvmlDeviceGetMaxMigDeviceCount", handle))

    def mig_device(self, handle: Handle, index: int) -> Handle:
        """The MIG device of an index within its GPU; code NOT_FOUND for a gap."""
        return Handle(self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index))

    def mig_ids(self, mig: Handle) -> tuple[int, int]:
        """Ids of the GPU instance and the compute instance."""
        return (
            int(self._call("nvmlDeviceGetGpuInstanceId", mig)),
            int(self._call("nvmlDeviceGetComputeInstanceId", mig)),
        )

    def mig_shape(self, mig: Handle) -> MigShape:
        """How large a MIG device is: slices and memory."""
        found = self._call("nvmlDeviceGetAttributes", mig)
        return MigShape(
            gpu_slices=int(found.gpuInstanceSliceCount),
            compute_slices=int(found.computeInstanceSliceCount),
            memory_mib=int(found.memorySizeMB),
        )

    # --- events ---

    def make_events(self) -> EventSet:
        """An empty event set."""
        return EventSet(self._call("nvmlEventSetCreate"))

    def event_kinds(self, handle: Handle) -> int:
        """Bits of nvmlEventType* that the GPU can report."""
        return int(self._call("nvmlDeviceGetSupportedEventTypes", handle))

    def register(self, handle: Handle, kinds: int, events: EventSet) -> None:
        """Let a GPU's events of these kinds arrive at the set."""
        self._call("nvmlDeviceRegisterEvents", handle, kinds, events)

    def wait(self, events: EventSet, timeout_ms: int) -> NvmlEvent | None:
        """The next event; None where none came within the time. Blocks, and cannot be woken."""
        try:
            data = self._call("nvmlEventSetWait_v2", events, timeout_ms)
        except NvmlError as error:
            if error.code != NvmlCode.TIMEOUT:
                raise
            return None
        return NvmlEvent(
            device=Handle(data.device),
            kind=int(data.eventType),
            data=int(data.eventData),
            gpu_instance=int(data.gpuInstanceId),
            compute_instance=int(data.computeInstanceId),
        )

    def free_events(self, events: EventSet) -> None:
        """Free an event set, while no thread waits at it."""
        self._call("nvmlEventSetFree", events)

    def _call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - pynvml is untyped
        try:
            return getattr(_nvml, name)(*arguments)
        except _nvml.NVMLError as error:
            msg = f"{name}: {error}"
            raise NvmlError(msg, int(error.value)) from error
        except UnicodeDecodeError as error:
            msg = f"{name}: {error.object[:40]!r} is no UTF-8, expected text"
            raise NvmlError(msg, NvmlCode.NO_DATA) from error


def fault_text(error: NvmlError) -> str:
    """The fault that an error means for its GPU, whichever call returned it.

    The text is published, so it must not change from one call to the next.

    >>> fault_text(NvmlError("nvmlDeviceGetUUID: GPU is lost", 15))
    'NVML: GPU is lost'
    """
    return f"NVML: {_nvml.NVMLError(error.code)}" if error.code else str(error)


def preload(library: Path) -> None:
    """Load NVML's library from a place where the loader would not look for it.

    A library of the same name (DT_SONAME) that is loaded already is taken, wherever it came from
    (dlopen(3)). Raises `NvmlError` where the file is no such library.
    """
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        msg = f"{library} cannot be loaded, expected the NVIDIA driver's library: {error}"
        raise NvmlError(msg) from error


def _pointer(handle: Handle) -> Any:  # noqa: ANN401 - a ctypes pointer to an opaque structure
    return handle


def _number(value: Any) -> int:  # noqa: ANN401 - pynvml is untyped
    """A field's value by its type; the fields read here are whole numbers."""
    members = {
        _nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        _nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        _nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        _nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        _nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
        _nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
    }
    return int(getattr(value.value, members.get(value.valueType, "uiVal")))


def _bus_id(info: Any) -> str | None:  # noqa: ANN401 - pynvml is untyped
    """Lower case with four digits of domain; None for what is no id, or stands for none."""
    # pynvml's own attribute access would decode the bytes and raise for unprintable ones.
    raw: bytes = ctypes.Structure.__getattribute__(info, "busId")
    try:
        bus_id = normalise_pci_bus_id(raw.decode("ascii", errors="replace"))
    except InvalidTopology:
        return None
    return None if bus_id == _NO_BUS_ID else bus_id
