"""A vendor of GPUs: everything that the plugin needs to know of it, as one value.

`plugin.vendor` chooses it; no other module knows which one it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plugin.container import ContainerAccess, NoAccess
    from plugin.machine.devices import Device
    from plugin.machine.evidence import Evidence
    from plugin.machine.faults import FaultRules
    from plugin.machine.inventory import Units
    from plugin.machine.reader import GpuReading, MachineReader, Partition
    from plugin.machine.served_machine import ServedMachine
    from plugin.machine.sharing import TimeSlicing
    from plugin.sysfs import Sysfs

__all__ = ["DeviceAccess", "SimulatedHardware", "Vendor", "WrittenFiles"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class DeviceAccess:
    """How containers reach the devices of a served machine, once that is prepared on the node.

    `grant` says what one container gets with its devices, at least one. `left_out` says
    which devices could not be described to container runtimes, and why. `lacks` says what will be
    missing in containers. `needs_runtime` names the settings, where a container gets nothing unless
    the vendor's own runtime starts it.
    """

    grant: Callable[[Sequence[Device]], ContainerAccess | NoAccess]
    left_out: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    needs_runtime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHardware:
    """How a simulated machine of a vendor looks.

    `uuid_prefix` is that of GPU uuids; `nodes` gives the device nodes of GPU number n. `codes` and
    `partitions` are the vendor's names for fault codes and partitions, in lower case the keys of
    the file of faults. `partition` makes one of its kind's short name, the parent's uuid, its index
    there and a made-up uuid; None where it breaks `partition_rule`, a sentence's end.
    """

    uuid_prefix: str
    nodes: Callable[[int], tuple[str, ...]]
    codes: str
    partitions: str
    partition_rule: str
    partition: Callable[[str, str, int, str], Partition | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """Files that `Vendor.open_access` left on this node; paths, in the order to remove them.

    `own` are as they were written, and a container that is started again may need them. `unused`
    no container needs. `changed` have names of ours and another content, so are another program's.
    """

    own: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor(Generic[S]):
    """A vendor of GPUs; `S` is its section of the settings.

    - `partitions` is what its partitions are called in a heading.
    - `visible_devices` is the variable by which programs see only the GPUs with these uuids.
    - `open_reader` gives this machine's reader; nothing is read yet.
    - `units_of` says what its GPUs and partitions are offered as, for the name of the base
      resource. Raises `SettingsError` where the settings do not suit the machine.
    - `open_access` prepares the node for containers that get devices: finds device nodes, writes
      CDI specifications. May take a minute: call it off the event loop. Raises `ReadingError` where
      a node that must be there is missing, `CdiError` where a specification cannot be written.
    - `written_files` finds what that left on the node, under the same settings. Raises `CdiError`.
    - `fault_rules` says what its fault codes mean.
    - `read_sharing` reads from the file's sections `RAW_KEYS` how devices are shared; the domain is
      that of the resource names. Raises `SettingsError`.
    - `facts_of` gives what else is known of a GPU, for the JSON of `discover`.
    - `evidence` says what a support bundle holds beside a reading.
    """

    default_resource: str
    partitions: str
    visible_devices: str
    open_reader: Callable[[S, Sysfs], MachineReader]
    units_of: Callable[[S, Sequence[GpuReading], str], Units]
    open_access: Callable[[S, Sysfs, ServedMachine], DeviceAccess]
    written_files: Callable[[S], WrittenFiles]
    fault_rules: Callable[[S], FaultRules]
    read_sharing: Callable[[Mapping[str, object], str], TimeSlicing]
    facts_of: Callable[[GpuReading], Mapping[str, object]]
    simulated: SimulatedHardware
    evidence: Evidence[S]
