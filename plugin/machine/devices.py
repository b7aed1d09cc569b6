"""The devices that the kubelet hands out, and which GPU each is or is a part of.

What it answers: the values `Device` and `Resource`, for everybody above. A device is a whole GPU, a
MIG instance, or one of several replicas of either (time-slicing). It never says whether a device is
well (`plugin.health.book`) or who has it (`plugin.pods.holdings`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.machine.reader import MigInstance

__all__ = ["Device", "Resource"]


@dataclass(frozen=True, slots=True)
class Device:
    """One device of the kubelet's.

    `id` is the kubelet's device id: the uuid of the GPU or MIG instance, with `::n` behind it for
    replica n (k8s-device-plugin, internal/rm/devices.go). `gpu` is the place of its physical GPU in
    `MachineReading.gpus`, `gpu_uuid` that GPU's uuid. `numa_node` is None where unknown.
    """

    id: str
    gpu: int
    gpu_uuid: str
    numa_node: int | None = None
    instance: MigInstance | None = None
    replica: int | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """An extended resource of the node and its devices, in the machine's order."""

    name: str
    devices: tuple[Device, ...]
