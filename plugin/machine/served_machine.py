"""The machine as it is served: reading, devices, measured figures, and the value of its GPU sets.

Up to a second of arithmetic where the machine type is new (`topology.select.tables`): call it off
the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from plugin.machine.inventory import take_inventory, whole_gpus
from plugin.machine.sharing import NO_SHARING
from topology.errors import InvalidTopology
from topology.model import DEFAULT_RESOURCE, encode_topology
from topology.select import build_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugin.machine.devices import Device
    from plugin.machine.inventory import Inventory, Units
    from plugin.machine.reader import GpuReading, MachineReading
    from plugin.machine.sharing import TimeSlicing
    from topology.model.measurement import Measurement
    from topology.select import Machine

__all__ = ["ServedMachine", "ServingRules", "serve_machine"]


@dataclass(frozen=True, slots=True)
class ServingRules:
    """The settings about devices; `measurement` is of the machine's whole GPUs.

    `units_of` gives the units of each resource, for these GPUs and the base resource's name.
    """

    units_of: Callable[[Sequence[GpuReading], str], Units] = whole_gpus
    sharing: TimeSlicing = NO_SHARING
    resource: str = DEFAULT_RESOURCE
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True)
class ServedMachine:
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

    @property
    def n_links_up(self) -> int:
        """Accelerator links that are known to be up: between GPUs, each once, and into switches."""
        topology = self.reading.topology
        members = [{gpu for gpu, _ in fabric.ports} for fabric in topology.fabrics]
        ports = sum(n for one in topology.fabrics if one.is_up for _, n in one.ports)
        direct = (
            topology.links[i][j].n_links or 0
            for i, j in combinations(range(topology.n_gpus), 2)
            if not any(i in one and j in one for one in members)
        )
        return ports + sum(direct)

    @property
    def topology_text(self) -> str | None:
        """The text of `coterie.gpu/topology` for the Node; None: nothing."""
        topology = self.inventory.topology
        return None if topology is None else encode_topology(topology)


def serve_machine(reading: MachineReading, rules: ServingRules) -> ServedMachine:
    """The machine as the rules have it served.

    Raises `SettingsError` where the settings or the measured figures do not suit the machine.
    """
    if rules.measurement is not None:
        try:
            whole = replace(reading.topology, measurement=rules.measurement)
        except InvalidTopology as error:
            msg = f"setting measurements: {error}, expected figures of this machine's GPUs"
            raise SettingsError(msg) from error
        reading = replace(reading, topology=whole)
    inventory = take_inventory(
        reading, units_of=rules.units_of, sharing=rules.sharing, base=rules.resource
    )
    topology = inventory.topology
    return ServedMachine(reading, inventory, None if topology is None else build_machine(topology))
