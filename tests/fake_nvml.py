"""A libnvidia-ml that is a Python object, below the real `pynvml`.

pynvml finds its functions by name in `pynvml.nvmlLib` and hands them ctypes arguments, so its own
marshalling is exercised. Symbols that are not here, or are in `missing`, are what an old driver
lacks. What real libraries do and this one follows (nvml.h, nvidia-ml-py 13.615.71, recordings):
PCI ids with eight digits of domain in capitals, the version enumerator of links (4.0 is 6), calls
past the last link INVALID_ARGUMENT, links of a GPU without NVLink NOT_SUPPORTED, the sentinel
`FFFFFFFF:FF:FF.0` for the far end on GB200, 0xFFFFFFFF as the instances of a whole GPU's event.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pynvml as _untyped  # type: ignore[import-untyped]  # nvidia-ml-py ships no types

from topology.model import GA102_GENERATION, LinkKind, P2pAccess, PcieLevel, find_gpu_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topology.model import NodeTopology

__all__ = [
    "NO_INSTANCE",
    "SENTINEL",
    "FakeFabric",
    "FakeGpu",
    "FakeLink",
    "FakeMig",
    "FakeNvml",
    "bus_id_of",
    "fake_of",
    "installed",
    "uuid_of",
]

_pynvml: Any = _untyped

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED = 0, 1, 2, 3
NOT_FOUND, TIMEOUT, LOST, VERSION_MISMATCH = 6, 10, 15, 25
NO_INSTANCE = 0xFFFFFFFF
SENTINEL = "FFFFFFFF:FF:FF.0"
TYPE_GPU, TYPE_NPU, TYPE_SWITCH, TYPE_UNKNOWN = 0, 1, 2, 255

ANCESTORS = {
    PcieLevel.PIX: 10,
    PcieLevel.PXB: 20,
    PcieLevel.PHB: 30,
    PcieLevel.NODE: 40,
    PcieLevel.SYS: 50,
}
VERSIONS = {1: 1, 2: 2, 3: 4, GA102_GENERATION: 5, 4: 6, 5: 7, 6: 8}
"""NVLink generation to NVML_NVLINK_VERSION_*."""
CAPABILITIES = (
    (r"P100", (6, 0)),
    (r"V100", (7, 0)),
    (r"T4", (7, 5)),
    (r"A100", (8, 0)),
    (r"A6000", (8, 6)),
    (r"L40S|L4|4090", (8, 9)),
    (r"H100|H200", (9, 0)),
    (r"B200", (10, 0)),
)
"""Compute capabilities of the products that are recorded (CUDA C++ Programming Guide)."""
XID = 0x8
_SUPPORTED_EVENTS = 0x1 | 0x2 | XID | 0x100


@dataclass
class FakeLink:
    """One NVLink: `state` as NVML_NVLINK_STATE_*, `bus_id` as NVML prints the far end's."""

    state: int = 1
    far_type: int = TYPE_SWITCH
    bus_id: str = "00000000:07:00.0"


@dataclass
class FakeFabric:
    """What nvmlDeviceGetGpuFabricInfoV returns."""

    state: int = 3
    status: int = 0
    cluster_uuid: bytes = bytes(16)
    clique_id: int = 0
    health: int = 1


@dataclass
class FakeMig:
    """A MIG device of a GPU, at an index of its own."""

    uuid: str
    name: str
    gi: int = 1
    ci: int = 0
    shape: tuple[int, int, int] = (1, 1, 9856)
    """Slices of GPU instance and compute instance, MiB."""


@dataclass
class FakeGpu:
    """A GPU; a change counts from the next call on.

    `error` answers every call about the GPU but `known_by_heart`; `handle_error` the call for its
    handle. `errors` are codes of single symbols. Calls of a GPU that `hangs` (only those of
    `hanging`, if any) return once that is set.
    """

    uuid: str
    bus_id: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 85_520_809_984
    minor: int = 0
    capability: tuple[int, int] = (9, 0)
    links: list[FakeLink] = field(default_factory=list)
    version: int = 6
    has_state_fields: bool = True
    n_switch_links: int | None = None
    n_links_field: int | None = None
    n_c2c_links: int | None = None
    recovery_action: int | None = 0
    fabric: FakeFabric | None = None
    memory_nodes: tuple[int, ...] = ()
    mig: dict[int, FakeMig] | None = None
    supported_events: int = _SUPPORTED_EVENTS
    refused_events: int = 0
    """Kinds that it calls supported and does not register."""
    event_address: int | None = None
    """Of its handle in events, where that is another than the registered one."""
    error: int | None = None
    handle_error: int | None = None
    errors: dict[str, int] = field(default_factory=dict)
    known_by_heart: frozenset[str] = frozenset()
    hangs: threading.Event | None = None
    hanging: frozenset[str] = frozenset()

    def answer(self, symbol: str) -> None:
        """Return when a call of this symbol is answered."""
        if self.hangs is not None and symbol in (self.hanging or {symbol}):
            self.hangs.wait(60)


@dataclass
class _Set:
    registered: dict[int, int] = field(default_factory=dict)
    events: deque[tuple[int, int, int, int, int]] = field(default_factory=deque)


class FakeNvml:
    """The library; `calls` counts by symbol, `missing` symbols do not exist, `errors` always fail.

    `after` holds what runs at the end of each successful call of a symbol.
    `fabric_versions` are the structures that the driver knows.
    """

    def __init__(self, gpus: list[FakeGpu]) -> None:
        self.gpus = gpus
        self.driver_version = "580.65.06"
        self.calls: Counter[str] = Counter()
        self.missing: set[str] = set()
        self.errors: dict[str, int] = {}
        self.after: dict[str, Callable[[], object]] = {}
        self.ancestors: dict[tuple[str, str], int] = {}
        self.p2p: dict[tuple[str, str], int] = {}
        self.fabric_versions = {2, 3}
        self.n_opened = 0
        self.is_loaded = True
        self.wait_error: int | None = None
        self.is_waiting = threading.Event()
        self.sets: dict[int, _Set] = {}
        self._addresses: dict[str, int] = {}
        self.changed = threading.Condition()
        self._counting = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self.__dict__.get("missing", ()) or name not in _SYMBOLS:
            raise AttributeError(name)

        def symbol(*arguments: Any) -> int:
            with self._counting:
                self.calls[name] += 1
            if name != "nvmlInitWithFlags" and not (self.n_opened and self.is_loaded):
                return UNINITIALIZED
            if name in self.errors:
                return self.errors[name]
            try:
                _SYMBOLS[name](self, *arguments)
            except _NvmlFailure as failure:
                return failure.code
            if name in self.after:
                self.after[name]()
            return SUCCESS

        return symbol

    # --- what tests do ---

    @property
    def n_calls(self) -> int:
        return sum(self.calls.values())

    def happen(
        self,
        index: int,
        data: int,
        *,
        kind: int = XID,
        gi: int = NO_INSTANCE,
        ci: int = NO_INSTANCE,
    ) -> None:
        """Let an event of a GPU happen; only event sets that registered it get it."""
        address = self.address(self.gpus[index].uuid)
        override = self.gpus[index].event_address
        with self.changed:
            for event_set in self.sets.values():
                if event_set.registered.get(address, 0) & kind:
                    event_set.events.append(
                        (address if override is None else override, kind, data, gi, ci)
                    )
            self.changed.notify_all()

    def fail_waits(self, code: int | None) -> None:
        """Let every wait fail, those under way too."""
        with self.changed:
            self.wait_error = code
            self.changed.notify_all()

    def reload(self) -> None:
        """The driver is reloaded: a process that opened the library before has to open it again."""
        self.n_opened = 0
        self.sets.clear()
        self._addresses = {uuid: address + 8 for uuid, address in self._addresses.items()}

    # --- handles ---

    def address(self, uuid: str) -> int:
        return self._addresses.setdefault(uuid, 0x10000 + 0x100 * len(self._addresses))

    def gpu_at(self, handle: Any, symbol: str) -> FakeGpu:
        address = _address_of(handle)
        for gpu in self.gpus:
            if address in {self.address(gpu.uuid), gpu.event_address}:
                gpu.answer(symbol)
                if symbol in gpu.errors:
                    raise _NvmlFailure(gpu.errors[symbol])
                if gpu.error is not None and symbol not in gpu.known_by_heart:
                    raise _NvmlFailure(gpu.error)
                return gpu
        raise _NvmlFailure(INVALID_ARGUMENT)

    def mig_at(self, handle: Any) -> FakeMig:
        address = _address_of(handle)
        for gpu in self.gpus:
            for mig in (gpu.mig or {}).values():
                if self.address(mig.uuid) == address:
                    return mig
        raise _NvmlFailure(INVALID_ARGUMENT)


class _NvmlFailure(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_SYMBOLS: dict[str, Callable[..., None]] = {}


def _symbol(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def keep(function: Callable[..., None]) -> Callable[..., None]:
        _SYMBOLS[name] = function
        return function

    return keep


def _address_of(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _target(reference: Any) -> Any:
    """What a `ctypes.byref` points to."""
    return reference._obj  # noqa: SLF001 - ctypes has no public name for it


def _put(reference: Any, value: int) -> None:
    _target(reference).value = value


def _put_handle(reference: Any, address: int) -> None:
    ctypes.c_void_p.from_address(ctypes.addressof(_target(reference))).value = address


def _number(argument: Any) -> int:
    return int(getattr(argument, "value", argument))


# --- the library and its GPUs ---


@_symbol("nvmlInitWithFlags")
def _init(nvml: FakeNvml, _flags: Any) -> None:
    if not nvml.is_loaded:
        raise _NvmlFailure(9)
    nvml.n_opened += 1


@_symbol("nvmlShutdown")
def _shutdown(nvml: FakeNvml) -> None:
    nvml.n_opened -= 1


@_symbol("nvmlSystemGetDriverVersion")
def _driver(nvml: FakeNvml, text: Any, _size: Any) -> None:
    text.value = nvml.driver_version.encode()


@_symbol("nvmlDeviceGetCount_v2")
def _count(nvml: FakeNvml, count: Any) -> None:
    _put(count, len(nvml.gpus))


@_symbol("nvmlDeviceGetHandleByIndex_v2")
def _by_index(nvml: FakeNvml, index: Any, handle: Any) -> None:
    gpu = nvml.gpus[_number(index)]
    gpu.answer("nvmlDeviceGetHandleByIndex_v2")
    if gpu.handle_error is not None:
        raise _NvmlFailure(gpu.handle_error)
    _put_handle(handle, nvml.address(gpu.uuid))


@_symbol("nvmlDeviceGetHandleByUUID")
def _by_uuid(nvml: FakeNvml, uuid: Any, handle: Any) -> None:
    for gpu in nvml.gpus:
        if gpu.uuid.encode() == uuid.value:
            gpu.answer("nvmlDeviceGetHandleByUUID")
            if gpu.handle_error is not None:
                raise _NvmlFailure(gpu.handle_error)
            _put_handle(handle, nvml.address(gpu.uuid))
            return
        for mig in (gpu.mig or {}).values():
            if mig.uuid.encode() == uuid.value:
                _put_handle(handle, nvml.address(mig.uuid))
                return
    raise _NvmlFailure(NOT_FOUND)


@_symbol("nvmlDeviceGetUUID")
def _uuid(nvml: FakeNvml, handle: Any, text: Any, _size: Any) -> None:
    try:
        text.value = nvml.mig_at(handle).uuid.encode()
    except _NvmlFailure:
        text.value = nvml.gpu_at(handle, "nvmlDeviceGetUUID").uuid.encode()


@_symbol("nvmlDeviceGetName")
def _name(nvml: FakeNvml, handle: Any, text: Any, _size: Any) -> None:
    try:
        text.value = nvml.mig_at(handle).name.encode("latin-1")
    except _NvmlFailure:
        text.value = nvml.gpu_at(handle, "nvmlDeviceGetName").name.encode("latin-1")


@_symbol("nvmlDeviceGetPciInfo_v3")
def _pci(nvml: FakeNvml, handle: Any, info: Any) -> None:
    _target(info).busId = nvml.gpu_at(handle, "nvmlDeviceGetPciInfo_v3").bus_id.encode("latin-1")


@_symbol("nvmlDeviceGetMemoryInfo")
def _memory(nvml: FakeNvml, handle: Any, info: Any) -> None:
    _target(info).total = nvml.gpu_at(handle, "nvmlDeviceGetMemoryInfo").memory_bytes


@_symbol("nvmlDeviceGetMinorNumber")
def _minor(nvml: FakeNvml, handle: Any, minor: Any) -> None:
    _put(minor, nvml.gpu_at(handle, "nvmlDeviceGetMinorNumber").minor)


@_symbol("nvmlDeviceGetCudaComputeCapability")
def _capability(nvml: FakeNvml, handle: Any, major: Any, minor: Any) -> None:
    capability = nvml.gpu_at(handle, "nvmlDeviceGetCudaComputeCapability").capability
    _put(major, capability[0])
    _put(minor, capability[1])


@_symbol("nvmlDeviceGetNumaNodeId")
def _numa_node_id(nvml: FakeNvml, handle: Any, _node: Any) -> None:
    nvml.gpu_at(handle, "nvmlDeviceGetNumaNodeId")
    raise _NvmlFailure(NOT_SUPPORTED)


@_symbol("nvmlDeviceGetMemoryAffinity")
def _affinity(nvml: FakeNvml, handle: Any, size: Any, words: Any, _scope: Any) -> None:
    nodes = nvml.gpu_at(handle, "nvmlDeviceGetMemoryAffinity").memory_nodes
    if not nodes:
        raise _NvmlFailure(NOT_SUPPORTED)
    for node in nodes:
        word, bit = divmod(node, 64)
        assert word < _number(size)
        _target(words)[word] |= 1 << bit


@_symbol("nvmlDeviceGetFieldValues")
def _fields(nvml: FakeNvml, handle: Any, count: Any, values: Any) -> None:
    gpu = nvml.gpu_at(handle, "nvmlDeviceGetFieldValues")
    for value in list(_target(values))[: _number(count)]:
        number = _field(gpu, int(value.fieldId), int(value.scopeId))
        value.nvmlReturn = NOT_SUPPORTED if number is None else SUCCESS
        value.valueType = _pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        value.value.uiVal = number or 0


def _field(gpu: FakeGpu, wanted: int, scope: int) -> int | None:
    if wanted == _pynvml.NVML_FI_DEV_NVLINK_GET_STATE:
        has_state = gpu.has_state_fields and scope < len(gpu.links)
        return gpu.links[scope].state if has_state else None
    return {
        _pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: gpu.n_links_field,
        _pynvml.NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT: gpu.n_switch_links,
        _pynvml.NVML_FI_DEV_C2C_LINK_COUNT: gpu.n_c2c_links,
        _pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: gpu.recovery_action,
    }.get(wanted)


@_symbol("nvmlDeviceGetGpuFabricInfo")
def _old_fabric(nvml: FakeNvml, handle: Any, info: Any) -> None:
    fabric = nvml.gpu_at(handle, "nvmlDeviceGetGpuFabricInfo").fabric
    if fabric is None:
        raise _NvmlFailure(NOT_SUPPORTED)
    _fill_fabric(fabric, _target(info))


def _fill_fabric(fabric: FakeFabric, filled: Any) -> None:
    filled.state, filled.status, filled.cliqueId = fabric.state, fabric.status, fabric.clique_id
    for i, byte in enumerate(fabric.cluster_uuid):
        filled.clusterUuid[i] = byte


@_symbol("nvmlDeviceGetGpuFabricInfoV")
def _fabric(nvml: FakeNvml, handle: Any, info: Any) -> None:
    fabric = nvml.gpu_at(handle, "nvmlDeviceGetGpuFabricInfoV").fabric
    filled = _target(info)
    if filled.version >> 24 not in nvml.fabric_versions:
        raise _NvmlFailure(VERSION_MISMATCH)
    if fabric is None:
        raise _NvmlFailure(NOT_SUPPORTED)
    _fill_fabric(fabric, filled)
    if hasattr(filled, "healthSummary"):
        filled.healthSummary = fabric.health


# --- NVLink ---


def _link(nvml: FakeNvml, handle: Any, link: Any, symbol: str) -> tuple[FakeGpu, FakeLink]:
    gpu = nvml.gpu_at(handle, symbol)
    if not gpu.links:
        raise _NvmlFailure(NOT_SUPPORTED)
    if _number(link) >= len(gpu.links):
        raise _NvmlFailure(INVALID_ARGUMENT)
    return gpu, gpu.links[_number(link)]


@_symbol("nvmlDeviceGetNvLinkState")
def _state(nvml: FakeNvml, handle: Any, link: Any, state: Any) -> None:
    number = _link(nvml, handle, link, "nvmlDeviceGetNvLinkState")[1].state
    if number < 0:
        raise _NvmlFailure(NOT_SUPPORTED)
    _put(state, int(number in {1, 2}))


@_symbol("nvmlDeviceGetNvLinkVersion")
def _version(nvml: FakeNvml, handle: Any, link: Any, version: Any) -> None:
    _put(version, _link(nvml, handle, link, "nvmlDeviceGetNvLinkVersion")[0].version)


@_symbol("nvmlDeviceGetNvLinkRemoteDeviceType")
def _far_type(nvml: FakeNvml, handle: Any, link: Any, far_type: Any) -> None:
    symbol = "nvmlDeviceGetNvLinkRemoteDeviceType"
    _put(far_type, _link(nvml, handle, link, symbol)[1].far_type)


@_symbol("nvmlDeviceGetNvLinkRemotePciInfo_v2")
def _far_pci(nvml: FakeNvml, handle: Any, link: Any, info: Any) -> None:
    bus_id = _link(nvml, handle, link, "nvmlDeviceGetNvLinkRemotePciInfo_v2")[1].bus_id
    _target(info).busId = bus_id.encode("latin-1")


# --- pairs ---


def _pair(nvml: FakeNvml, a: Any, b: Any, symbol: str) -> tuple[str, str]:
    first, second = sorted((nvml.gpu_at(a, symbol).uuid, nvml.gpu_at(b, symbol).uuid))
    return first, second


@_symbol("nvmlDeviceGetTopologyCommonAncestor")
def _ancestor(nvml: FakeNvml, a: Any, b: Any, level: Any) -> None:
    pair = _pair(nvml, a, b, "nvmlDeviceGetTopologyCommonAncestor")
    if pair not in nvml.ancestors:
        raise _NvmlFailure(NOT_SUPPORTED)
    _put(level, nvml.ancestors[pair])


@_symbol("nvmlDeviceGetP2PStatus")
def _p2p(nvml: FakeNvml, a: Any, b: Any, index: Any, status: Any) -> None:
    assert index == 0
    pair = _pair(nvml, a, b, "nvmlDeviceGetP2PStatus")
    if pair not in nvml.p2p:
        raise _NvmlFailure(NOT_SUPPORTED)
    _put(status, nvml.p2p[pair])


# --- MIG ---


@_symbol("nvmlDeviceGetMigMode")
def _mig_mode(nvml: FakeNvml, handle: Any, current: Any, pending: Any) -> None:
    gpu = nvml.gpu_at(handle, "nvmlDeviceGetMigMode")
    if gpu.capability < (8, 0):
        raise _NvmlFailure(NOT_SUPPORTED)
    _put(current, int(gpu.mig is not None))
    _put(pending, int(gpu.mig is not None))


@_symbol("nvmlDeviceGetMaxMigDeviceCount")
def _mig_count(nvml: FakeNvml, handle: Any, count: Any) -> None:
    nvml.gpu_at(handle, "nvmlDeviceGetMaxMigDeviceCount")
    _put(count, 7)


@_symbol("nvmlDeviceGetMigDeviceHandleByIndex")
def _mig_handle(nvml: FakeNvml, handle: Any, index: Any, mig_handle: Any) -> None:
    gpu = nvml.gpu_at(handle, "nvmlDeviceGetMigDeviceHandleByIndex")
    mig = (gpu.mig or {}).get(_number(index))
    if mig is None:
        raise _NvmlFailure(NOT_FOUND)
    _put_handle(mig_handle, nvml.address(mig.uuid))


@_symbol("nvmlDeviceGetGpuInstanceId")
def _gi(nvml: FakeNvml, handle: Any, number: Any) -> None:
    _put(number, nvml.mig_at(handle).gi)


@_symbol("nvmlDeviceGetComputeInstanceId")
def _ci(nvml: FakeNvml, handle: Any, number: Any) -> None:
    _put(number, nvml.mig_at(handle).ci)


@_symbol("nvmlDeviceGetAttributes_v2")
def _attributes(nvml: FakeNvml, handle: Any, attributes: Any) -> None:
    shape = nvml.mig_at(handle).shape
    found = _target(attributes)
    found.gpuInstanceSliceCount, found.computeInstanceSliceCount = shape[:2]
    found.memorySizeMB = shape[2]


# --- events ---


@_symbol("nvmlEventSetCreate")
def _make_set(nvml: FakeNvml, handle: Any) -> None:
    address = 0x9000000 + 0x100 * (nvml.calls["nvmlEventSetCreate"])
    nvml.sets[address] = _Set()
    _put_handle(handle, address)


@_symbol("nvmlDeviceGetSupportedEventTypes")
def _kinds(nvml: FakeNvml, handle: Any, kinds: Any) -> None:
    _put(kinds, nvml.gpu_at(handle, "nvmlDeviceGetSupportedEventTypes").supported_events)


@_symbol("nvmlDeviceRegisterEvents")
def _register(nvml: FakeNvml, handle: Any, kinds: Any, event_set: Any) -> None:
    gpu = nvml.gpu_at(handle, "nvmlDeviceRegisterEvents")
    if _number(kinds) & (~gpu.supported_events | gpu.refused_events):
        raise _NvmlFailure(NOT_SUPPORTED)
    nvml.sets[_address_of(event_set)].registered[_address_of(handle)] = _number(kinds)


@_symbol("nvmlEventSetWait_v2")
def _wait(nvml: FakeNvml, event_set: Any, data: Any, timeout_ms: Any) -> None:
    waited = nvml.sets[_address_of(event_set)]
    nvml.is_waiting.set()
    with nvml.changed:
        nvml.changed.wait_for(
            lambda: waited.events or nvml.wait_error is not None, _number(timeout_ms) / 1000
        )
        if nvml.wait_error is not None:
            raise _NvmlFailure(nvml.wait_error)
        if not waited.events:
            raise _NvmlFailure(TIMEOUT)
        address, kind, number, gi, ci = waited.events.popleft()
    filled = _target(data)
    filled.eventType, filled.eventData, filled.gpuInstanceId, filled.computeInstanceId = (
        kind,
        number,
        gi,
        ci,
    )
    ctypes.c_void_p.from_address(ctypes.addressof(filled)).value = address


@_symbol("nvmlEventSetFree")
def _free_set(nvml: FakeNvml, event_set: Any) -> None:
    del nvml.sets[_address_of(event_set)]


# --- machines ---


def uuid_of(index: int) -> str:
    """The uuid that `fake_of` gives a GPU."""
    return f"GPU-00000000-0000-4000-8000-{index:012x}"


def bus_id_of(index: int) -> str:
    """The PCI id that `fake_of` gives a GPU, as the kernel prints it."""
    return f"0000:{0x1A + 0x0B * index:02x}:00.0"


def _printed(bus_id: str) -> str:
    """The same as NVML prints it."""
    return f"0000{bus_id}".upper()


def fake_of(topology: NodeTopology) -> FakeNvml:
    """The library on a recorded machine of NVIDIA's; what the recording does not know fails."""
    gpus = [_gpu_of(topology, index) for index in range(topology.n_gpus)]
    for i, j in combinations(range(topology.n_gpus), 2):
        link = topology.links[i][j]
        is_through_switch = any(
            {i, j} <= {gpu for gpu, _ in fabric.ports} for fabric in topology.fabrics
        )
        if link.kind is LinkKind.NVLINK and not is_through_switch:
            for _ in range(link.n_links or 0):
                gpus[i].links.append(FakeLink(1, TYPE_GPU, _printed(bus_id_of(j))))
                gpus[j].links.append(FakeLink(1, TYPE_GPU, _printed(bus_id_of(i))))
    for gpu in gpus:
        model = find_gpu_model(gpu.name)
        n_more = (model.links_per_gpu if model else 0) - len(gpu.links)
        gpu.links += [FakeLink(0, TYPE_UNKNOWN, "") for _ in range(n_more)]
    nvml = FakeNvml(gpus)
    for i, j in combinations(range(topology.n_gpus), 2):
        pair = (uuid_of(i), uuid_of(j))
        level = topology.pcie[i][j]
        if level is not PcieLevel.UNKNOWN:
            nvml.ancestors[pair] = ANCESTORS[level]
        if topology.p2p is not P2pAccess.UNKNOWN:
            nvml.p2p[pair] = 0 if topology.p2p is P2pAccess.YES else 2
    return nvml


def _gpu_of(topology: NodeTopology, index: int) -> FakeGpu:
    gpu = topology.gpus[index]
    name = gpu.model or ""
    model = find_gpu_model(name)
    capability = next(version for pattern, version in CAPABILITIES if re.search(pattern, name))
    fake = FakeGpu(
        uuid=uuid_of(index),
        bus_id=_printed(bus_id_of(index)),
        name=name,
        minor=index,
        capability=capability,
        version=VERSIONS.get(model.link_generation or 0, 0) if model else 0,
        has_state_fields=capability >= (9, 0),
        memory_nodes=() if gpu.numa_node is None else (gpu.numa_node,),
    )
    for fabric in topology.fabrics:
        n_links = dict(fabric.ports).get(index, 0)
        bus_id = SENTINEL if "GB200" in name else "00000000:C1:00.0"
        fake.links += [FakeLink(1, TYPE_SWITCH, bus_id) for _ in range(n_links)]
        if capability >= (9, 0):
            fake.fabric = FakeFabric(state=3 if fabric.is_up else 2)
            fake.n_switch_links = n_links
    return fake


@contextmanager
def installed(fake: object | None) -> Iterator[None]:
    """Let pynvml find this library; None: none at all."""
    cache = _pynvml._nvmlGetFunctionPointer_cache  # noqa: SLF001 - pynvml cannot be reset otherwise
    before = _pynvml.nvmlLib, _pynvml.CDLL
    cache.clear()
    _pynvml.nvmlLib, _pynvml.CDLL = fake, _no_library
    try:
        yield
    finally:
        cache.clear()
        _pynvml.nvmlLib, _pynvml.CDLL = before


def _no_library(name: str) -> None:
    raise OSError(name)
