"""The machine as it is served: reading, devices, measured figures, and what sets are worth.

What it answers: the `Stock` of a reading under the settings. Pure, but up to a second of arithmetic
where the machine type is new (`topology.select.tables`): call it off the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plugin.errors import SettingsError
from plugin.machine.inventory import MigStrategy, take_inventory
from plugin.machine.sharing import NO_SHARING
from topology.errors import InvalidTopology
from topology.model import DEFAULT_RESOURCE, encode_topology
from topology.select import build_machine

if TYPE_CHECKING:
    from plugin.machine.devices import Device
    from plugin.machine.inventory import Inventory
    from plugin.machine.reader import MachineReading
    from plugin.machine.sharing import TimeSlicing
    from topology.model.measurement import Measurement
    from topology.select import Machine

__all__ = ["Stock", "StockRules", "take_stock", "topology_text"]


@dataclass(frozen=True, slots=True)
class StockRules:
    """What the settings say about devices; `measurement` is of the machine's whole GPUs."""

    strategy: MigStrategy = MigStrategy.NONE
    sharing: TimeSlicing = NO_SHARING
    resource: str = DEFAULT_RESOURCE
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Stock:
    """The machine as it is served: its reading, the devices made of it, and their value.

    `machine` rates the sets of the base resource, the first of `inventory`; None where no topology
    is published.
    """

    reading: MachineReading
    inventory: Inventory
    machine: Machine | None

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices of all resources."""
        return tuple(d for resource in self.inventory.resources for d in resource.devices)


def take_stock(reading: MachineReading, rules: StockRules) -> Stock:
    """Make the stock of a reading.

    Raises `SettingsError` where strategy or measured figures do not suit the machine.
    """
    if rules.measurement is not None:
        try:
            whole = replace(reading.topology, measurement=rules.measurement)
        except InvalidTopology as error:
            msg = f"setting measurements: {error}, expected figures of this machine's GPUs"
            raise SettingsError(msg) from error
        reading = replace(reading, topology=whole)
    inventory = take_inventory(
        reading, strategy=rules.strategy, sharing=rules.sharing, base=rules.resource
    )
    topology = inventory.topology
    return Stock(reading, inventory, None if topology is None else build_machine(topology))


def topology_text(stock: Stock) -> str | None:
    """What the Node is to carry as `coterie.gpu/topology`; None: nothing."""
    topology = stock.inventory.topology
    return None if topology is None else encode_topology(topology)
