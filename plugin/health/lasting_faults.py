"""Faults that outlive a plugin: how its report carries them, and which of them a new plugin takes.

None is taken after a restart of the node, and none of a GPU for which the driver requests no
recovery: it was reset while no plugin could see it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.health.state import HealthState
    from plugin.machine import MachineReading
    from topology.annotations import DevicesReport, LastingFault

__all__ = ["KnownFaults", "still_lasting", "with_lasting_faults"]


@dataclass(frozen=True, slots=True)
class KnownFaults:
    """What a plugin knew in the end, for the next one of its process.

    `is_restored`: what an earlier process published is among it, or over.
    """

    state: HealthState
    is_restored: bool


def with_lasting_faults(
    report: DevicesReport, state: HealthState, boot_id: str | None
) -> DevicesReport:
    """The report with the faults that a later plugin must know, if the boot is known."""
    faults = state.lasting()
    if boot_id is None or not faults:
        return report
    return replace(report, faults=faults, boot=boot_id)


def still_lasting(
    found: DevicesReport, reading: MachineReading, boot_id: str | None
) -> tuple[LastingFault, ...]:
    """The faults in the report of an earlier plugin that are not over."""
    if boot_id is None or found.boot != boot_id:
        return ()
    well = {gpu.uuid for gpu in reading.gpus if gpu.requests_recovery is False}
    return tuple(fault for fault in found.faults if fault.gpu not in well)
