"""Small machines for the tests of what containers get."""

from __future__ import annotations

from dataclasses import replace

from plugin.machine import Device, MachineReading
from plugin.nvidia.container.device_nodes import CONTROL_NODES, Extra, PresentNodes
from tests.unit.plugin.machine_values import gpu_reading, mig_device
from topology.model import NO_LINK, UNKNOWN_LINK, NodeTopology, PcieLevel

INSTANCES = (
    mig_device("MIG-aa", "1g.10gb", 0, 7, 0, parent="GPU-2"),
    mig_device("MIG-bb", "1g.10gb", 1, 8, 1, parent="GPU-2"),
)
CAPABILITIES = {
    "gpu2/gi7/access": 66,
    "gpu2/gi7/ci0/access": 67,
    "gpu2/gi8/access": 75,
    "gpu2/gi8/ci1/access": 77,
}
"""As /proc/driver/nvidia-caps/mig-minors would list them."""
PRESENT = PresentNodes(
    control=CONTROL_NODES,
    capabilities=CAPABILITIES,
    extras={Extra.GDS: ("/dev/nvidia-fs0",), Extra.MOFED: ("/dev/infiniband/rdma_cm",)},
)


GPUS = (
    gpu_reading(0, "GPU-0", minor=1),
    gpu_reading(1, "GPU-1", minor=0),
    gpu_reading(2, "GPU-2", minor=2, partitions=INSTANCES),
)


def machine() -> MachineReading:
    """Two whole GPUs whose minor numbers are not their indices, and one with two MIG instances."""
    n = range(len(GPUS))
    return MachineReading(
        GPUS,
        NodeTopology(
            gpus=tuple(one.gpu for one in GPUS),
            links=tuple(tuple(NO_LINK if a == b else UNKNOWN_LINK for b in n) for a in n),
            pcie=tuple(
                tuple(PcieLevel.SELF if a == b else PcieLevel.UNKNOWN for b in n) for a in n
            ),
        ),
    )


def gpu(place: int, replica: int | None = None) -> Device:
    """A whole GPU of that machine, or a replica of it."""
    uuid = f"GPU-{place}"
    id_ = uuid if replica is None else f"{uuid}::{replica}"
    return Device(id_, place, GPUS[place], replica=replica)


def mig(index: int) -> Device:
    """A MIG device of its last GPU."""
    return Device(INSTANCES[index].id, 2, GPUS[2], partition=INSTANCES[index])


def without_nodes(device: Device) -> Device:
    """A device whose GPU has no known device node."""
    return replace(device, gpu=replace(device.gpu, nodes=()))
