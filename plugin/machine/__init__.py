"""A machine as values: its GPUs, partitions and devices, whatever vendor made them.

Knows no vendor library and no kubelet.
"""

from plugin.machine.devices import Device, Resource, check_resource_name
from plugin.machine.evidence import (
    Argument,
    CallLog,
    Evidence,
    HandleArgument,
    LibraryCall,
    Memory,
    Program,
)
from plugin.machine.faults import FaultCode, FaultRules, Remedy
from plugin.machine.inventory import Units, whole_gpus
from plugin.machine.partition_topology import Unit
from plugin.machine.reader import (
    NO_ANSWER,
    EventKind,
    GpuEvent,
    GpuReading,
    MachineReader,
    MachineReading,
    Partition,
    ReaderCondition,
)
from plugin.machine.served_machine import ServedMachine, ServingRules, serve_machine
from plugin.machine.sharing import NO_SHARING, SharedPolicy, TimeSlicing
from plugin.machine.vendor import DeviceAccess, SimulatedHardware, Vendor, WrittenFiles

__all__ = [
    "NO_ANSWER",
    "NO_SHARING",
    "Argument",
    "CallLog",
    "Device",
    "DeviceAccess",
    "EventKind",
    "Evidence",
    "FaultCode",
    "FaultRules",
    "GpuEvent",
    "GpuReading",
    "HandleArgument",
    "LibraryCall",
    "MachineReader",
    "MachineReading",
    "Memory",
    "Partition",
    "Program",
    "ReaderCondition",
    "Remedy",
    "Resource",
    "ServedMachine",
    "ServingRules",
    "SharedPolicy",
    "SimulatedHardware",
    "TimeSlicing",
    "Unit",
    "Units",
    "Vendor",
    "WrittenFiles",
    "check_resource_name",
    "serve_machine",
    "whole_gpus",
]
