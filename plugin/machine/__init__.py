"""A machine as values: its GPUs, partitions and devices, whatever vendor made them.

Knows no vendor library and no kubelet.
"""

from plugin.machine.devices import Device, Resource
from plugin.machine.inventory import MigStrategy
from plugin.machine.reader import (
    EventKind,
    GpuEvent,
    GpuReading,
    MachineReader,
    MachineReading,
    MigInstance,
)
from plugin.machine.sharing import (
    NO_SHARING,
    SharedPolicy,
    TimeSlicing,
    check_resource_name,
    read_sharing,
)
from plugin.machine.stock import Stock, StockRules, take_stock, topology_text

__all__ = [
    "NO_SHARING",
    "Device",
    "EventKind",
    "GpuEvent",
    "GpuReading",
    "MachineReader",
    "MachineReading",
    "MigInstance",
    "MigStrategy",
    "Resource",
    "SharedPolicy",
    "Stock",
    "StockRules",
    "TimeSlicing",
    "check_resource_name",
    "read_sharing",
    "take_stock",
    "topology_text",
]
