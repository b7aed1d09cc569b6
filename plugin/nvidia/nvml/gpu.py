"""Reads one GPU through NVML: its `RawGpu`, with as few calls as possible, and its fault.

Method:

- Three calls show whether a GPU works: its uuid, its memory (which NVML reads from the driver,
  where NVML may cache name and PCI id) and the recovery action that the driver requests. Any error
  there but that of a missing value (`NO_VALUE_CODES`) is a fault of this GPU.
- A GPU on NVSwitch that the fabric manager has not registered yet is at fault, too.
- So is one of which a call about MIG fails unexpectedly: it may be partitioned, so it must not be
  offered whole. One that was at fault stays so until a poll finds MIG off, or a reading has its MIG
  devices: MIG may have been switched on meanwhile.
- Other errors are a fault only where NVML reports that the GPU is gone; else the value stays
  unknown. A call that the driver lacks is noted once, and so is every unexpected error.
- Link states: from Hopper on by field, all in one call, as NCCL does (NVIDIA/nccl 5067397c,
  src/graph/xml.cc:951-963, NVML_FI_DEV_NVLINK_GET_STATE for compute capability 9.0 on); before, by
  nvmlDeviceGetNvLinkState while it succeeds. A link that sleeps is up: it wakes when it is used.
- Far ends are read one by one, unless the count of links to switches is that of the links up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from plugin.machine import Partition
from plugin.nvidia.mig_profile import mig_profile
from plugin.nvidia.mig_strategy import MIG
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.library import FieldId, NvmlCode, fault_text
from plugin.nvidia.nvml.nvlinks import is_awaiting_fabric
from plugin.nvidia.nvml.raw_machine import FarType, RawGpu, RawLink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.nvidia.nvml.library import Handle, Nvml
    from plugin.sysfs import Sysfs

__all__ = [
    "FABRIC_NOT_READY",
    "LIBRARY_GONE_CODES",
    "MIG_NOT_READ",
    "QUIET_CODES",
    "FarEnds",
    "GpuReader",
]

T = TypeVar("T")
FarEnds = dict[tuple[str, int], RawLink]
"""By uuid and link: where a link ends does not change while the driver runs, only its state."""

NO_VALUE_CODES = frozenset(
    {
        NvmlCode.INVALID_ARGUMENT,
        NvmlCode.NOT_SUPPORTED,
        NvmlCode.NO_PERMISSION,
        NvmlCode.NOT_FOUND,
        NvmlCode.FUNCTION_NOT_FOUND,
        NvmlCode.NO_DATA,
        NvmlCode.ARGUMENT_VERSION_MISMATCH,
        NvmlCode.DEPRECATED,
        NvmlCode.NOT_READY,
    }
)
"""Codes that say that NVML has no such value here, for us or at all; the GPU may be healthy."""
QUIET_CODES = frozenset(
    {NvmlCode.INVALID_ARGUMENT, NvmlCode.NOT_SUPPORTED, NvmlCode.NOT_FOUND, NvmlCode.NO_DATA}
)
"""Those that are ordinary: a product without the feature."""
GONE_CODES = frozenset({NvmlCode.GPU_IS_LOST, NvmlCode.RESET_REQUIRED, NvmlCode.GPU_NOT_FOUND})
"""Codes about the GPU itself, whichever call returned them."""

LIBRARY_GONE_CODES = frozenset(
    {NvmlCode.UNINITIALIZED, NvmlCode.DRIVER_NOT_LOADED, NvmlCode.LIB_RM_VERSION_MISMATCH}
)
"""Codes about the driver, not a GPU: handles are invalid."""

FABRIC_NOT_READY = "the fabric manager has not registered it"
"""The fault of a GPU on NVSwitch while nvmlGpuFabricInfo says not started, or in progress."""
MIG_NOT_READ = "its MIG devices have not been read yet"
"""The fault of a GPU that was at fault and has MIG enabled, which its last reading does not say."""

_HOPPER = 9
"""Major compute capability from which NCCL reads link states by field."""
_UP_STATES = frozenset({1, 2})
"""NVML_NVLINK_STATE_ACTIVE and _SLEEP; 0 is inactive, 3 active with its traffic disabled."""
_RECOVERY_ACTIONS = {
    1: "reset of the GPU",
    2: "reboot of the node",
    3: "end of peer-to-peer traffic",
    4: "end of its work, then a reset",
    6: "reset of its PCIe bus",
    7: "reboot of the system",
}
"""NVML_GPU_RECOVERY_ACTION_* (nvml.h; docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, "Error
Recovery and Response Flags") for which no new work should start. 0 is none; 5, recovery of the IMEX
domain, is about other nodes."""


def _recovery_fault(action: int | None) -> str | None:
    """Why the driver wants no new work on a GPU; None where it requests nothing, or is unknown.

    >>> _recovery_fault(1), _recovery_fault(0)
    ('the driver requests a reset of the GPU', None)
    """
    wanted = _RECOVERY_ACTIONS.get(action or 0)
    return None if wanted is None else f"the driver requests a {wanted}"


@dataclass(frozen=True, slots=True)
class _Fields:
    """The values of one call for fields; `states` by link, of those that have one."""

    n_links: int | None
    n_switch_links: int | None
    n_c2c_links: int | None
    recovery_action: int | None
    states: Mapping[int, int]


class GpuReader:
    """Reads GPUs one after the other; `notes` collects what could not be read, once each.

    `far_ends` are those that are known already; those that are read are added.
    """

    def __init__(self, nvml: Nvml, sysfs: Sysfs, far_ends: FarEnds) -> None:
        self._nvml = nvml
        self._sysfs = sysfs
        self._far_ends = far_ends
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, and why."""
        return tuple(self._notes)

    def fault_of(self, handle: Handle, gpu: RawGpu, *, was_at_fault: bool) -> str | None:
        """Why a GPU, as it was read last, cannot be used now: two calls, three with a fabric.

        One more, for its MIG mode, where it was at fault since its last reading without. Raises
        `NvmlError` where the library lost its driver; so does `read`.
        """
        try:
            self._vital(lambda: self._nvml.memory_bytes(handle))
            wanted = ((FieldId.GPU_RECOVERY_ACTION, 0),)
            values = self._vital(lambda: self._nvml.fields(handle, wanted))
            fabric = None if gpu.fabric is None else self._try(lambda: self._nvml.fabric(handle))
            may_have_mig = was_at_fault and not gpu.is_mig_enabled
            has_unread_mig = may_have_mig and self._is_mig_enabled(handle)
        except NvmlError as error:
            return _fault(error)
        fault = None if values is None else _recovery_fault(values[0])
        if fault is None and is_awaiting_fabric(gpu, fabric):
            return FABRIC_NOT_READY
        return fault or (MIG_NOT_READ if has_unread_mig else None)

    def read(self, index: int, handle: Handle, uuid: str) -> RawGpu:
        """All values; where the GPU fails on the way, those read until then and its fault."""
        gpu = RawGpu(index=index, uuid=uuid)
        try:
            for part in (self._identity, self._condition, self._mig):
                gpu = part(handle, gpu)
        except NvmlError as error:
            return replace(gpu, fault=_fault(error))
        if gpu.fault is None and is_awaiting_fabric(gpu, gpu.fabric):
            return replace(gpu, fault=FABRIC_NOT_READY)
        return gpu

    def note_error(self, error: NvmlError) -> None:
        """Note an error of another call, unless it is an ordinary one."""
        if error.code not in QUIET_CODES:
            self.note(f"NVML has no value: {error}")

    def note(self, text: str) -> None:
        """Add a note, if it is a new one."""
        self._notes[text] = None

    # --- parts ---

    def _identity(self, handle: Handle, gpu: RawGpu) -> RawGpu:
        nvml = self._nvml
        bus_id = self._try(lambda: nvml.bus_id(handle))
        place = None if bus_id is None else self._sysfs.place(bus_id)
        numa_node = None if bus_id is None else self._sysfs.numa_node(bus_id)
        if numa_node is None:
            nodes = self._try(lambda: nvml.memory_nodes(handle)) or ()
            numa_node = nodes[0] if len(nodes) == 1 else None
        name = self._try(lambda: nvml.name(handle)) or ""
        return replace(
            gpu,
            pci_bus_id=bus_id,
            model=name.strip() or None,
            minor=self._try(lambda: nvml.minor(handle)),
            numa_node=numa_node,
            place=None if place is None else replace(place, numa_node=numa_node),
        )

    def _condition(self, handle: Handle, gpu: RawGpu) -> RawGpu:
        memory = self._vital(lambda: self._nvml.memory_bytes(handle))
        fields = self._fields(handle)
        gpu = replace(
            gpu,
            memory_bytes=memory,
            n_c2c_links=fields.n_c2c_links,
            fabric=self._try(lambda: self._nvml.fabric(handle)),
            requests_recovery=(
                None if fields.recovery_action is None else fields.recovery_action > 0
            ),
            fault=_recovery_fault(fields.recovery_action),
        )
        states = self._link_states(handle, fields)
        if states is None:
            return gpu
        up = tuple(link for link, is_up in states.items() if is_up)
        version = self._try(lambda: self._nvml.link_version(handle, up[0])) if up else None
        is_switched = bool(up) and fields.n_switch_links == len(up)
        return replace(
            gpu,
            n_links=len(states),
            links=tuple(
                RawLink(far_type=FarType.SWITCH)
                if is_switched
                else self._far_end(handle, gpu, link)
                for link in up
            ),
            link_version=version,
        )

    def _fields(self, handle: Handle) -> _Fields:
        links = range(self._nvml.MAX_LINKS)
        wanted = (
            (FieldId.NVLINK_LINK_COUNT, 0),
            (FieldId.NVSWITCH_CONNECTED_LINK_COUNT, 0),
            (FieldId.C2C_LINK_COUNT, 0),
            (FieldId.GPU_RECOVERY_ACTION, 0),
            *((FieldId.NVLINK_GET_STATE, link) for link in links),
        )
        values = self._vital(lambda: self._nvml.fields(handle, wanted))
        if values is None:
            return _Fields(None, None, None, None, {})
        n_links, n_switch_links, n_c2c_links, action, *states = values
        return _Fields(
            n_links=n_links,
            n_switch_links=n_switch_links,
            n_c2c_links=n_c2c_links,
            recovery_action=action,
            states={link: state for link, state in enumerate(states) if state is not None},
        )

    def _link_states(self, handle: Handle, fields: _Fields) -> Mapping[int, bool] | None:
        """Whether each link is up, by link; {} where there is none, None where unknown."""
        if fields.states:
            capability = self._try(lambda: self._nvml.compute_capability(handle))
            if capability is not None and capability[0] >= _HOPPER:
                return {link: state in _UP_STATES for link, state in fields.states.items()}
        states: dict[int, bool] = {}
        for link in range(self._nvml.MAX_LINKS):
            if len(states) == fields.n_links:
                break
            try:
                states[link] = self._nvml.link_state(handle, link)
            except NvmlError as error:
                if error.code == NvmlCode.NOT_SUPPORTED and fields.n_links:
                    continue  # a link that this product was sold without
                if error.code in {NvmlCode.NOT_SUPPORTED, NvmlCode.INVALID_ARGUMENT}:
                    break  # past the last
                self._check(error, is_vital=False)
                return None
        return states

    def _far_end(self, handle: Handle, gpu: RawGpu, link: int) -> RawLink:
        known = self._far_ends.get((gpu.uuid, link))
        if known is not None:
            return known
        far_type = self._try(lambda: self._nvml.far_type(handle, link))
        bus_id = None
        if far_type not in {FarType.NPU, FarType.SWITCH}:
            bus_id = self._try(lambda: self._nvml.far_bus_id(handle, link))
        far_end = RawLink(
            far_type=far_type,
            far_bus_id=bus_id,
            far_class=None if bus_id is None else self._sysfs.pci_class(bus_id),
        )
        if far_type in {FarType.GPU, FarType.NPU, FarType.SWITCH}:
            self._far_ends[gpu.uuid, link] = far_end
        return far_end

    def _mig(self, handle: Handle, gpu: RawGpu) -> RawGpu:
        if not self._is_mig_enabled(handle):
            return gpu
        instances: list[Partition] = []
        for index in range(self._vital(lambda: self._nvml.max_mig_devices(handle)) or 0):
            instance = self._mig_instance(handle, index, gpu)
            if instance is not None:
                instances.append(instance)
        return replace(gpu, is_mig_enabled=True, instances=tuple(instances))

    def _is_mig_enabled(self, handle: Handle) -> bool:
        return bool(self._vital(lambda: self._nvml.is_mig_enabled(handle)))

    def _mig_instance(self, handle: Handle, index: int, gpu: RawGpu) -> Partition | None:
        nvml = self._nvml
        mig = self._vital(lambda: nvml.mig_device(handle, index))
        if mig is None:
            return None
        uuid = self._vital(lambda: nvml.uuid(mig))
        ids = self._vital(lambda: nvml.mig_ids(mig))
        shape = self._try(lambda: nvml.mig_shape(mig))
        name = self._try(lambda: nvml.name(mig))
        profile = mig_profile(name, shape, gpu_memory_bytes=gpu.memory_bytes)
        if uuid is None or ids is None or profile is None:
            self.note(f"MIG device {index} of {gpu.uuid} has no uuid, ids or profile; left out")
            return None
        return Partition(
            id=uuid,
            kind=f"{MIG} {profile}",
            parent=gpu.uuid,
            index=index,
            address=ids,
            memory_mib=None if shape is None else shape.memory_mib or None,
        )

    # --- errors ---

    def _try(self, call: Callable[[], T]) -> T | None:
        """A call's value, if any. Raises `NvmlError` where GPU or driver is gone."""
        try:
            return call()
        except NvmlError as error:
            self._check(error, is_vital=False)
            return None

    def _vital(self, call: Callable[[], T]) -> T | None:
        """As `_try`, but any unexpected error is a fault of the GPU."""
        try:
            return call()
        except NvmlError as error:
            self._check(error, is_vital=True)
            return None

    def _check(self, error: NvmlError, *, is_vital: bool) -> None:
        is_expected = error.code in NO_VALUE_CODES
        is_gone = error.code in GONE_CODES | LIBRARY_GONE_CODES
        if is_gone or (is_vital and not is_expected):
            raise error
        self.note_error(error)


def _fault(error: NvmlError) -> str:
    if error.code in LIBRARY_GONE_CODES:
        raise error
    return fault_text(error)
