"""Small machines for the tests of what containers get."""

from __future__ import annotations

from plugin.machine import Device, GpuReading, MachineReading, MigInstance
from plugin.nvidia.container.device_nodes import CONTROL_NODES, Extra, PresentNodes
from topology.model import NO_LINK, UNKNOWN_LINK, Gpu, NodeTopology, PcieLevel

INSTANCES = (
    MigInstance("MIG-aa", "1g.10gb", 0, gpu_instance=7, compute_instance=0),
    MigInstance("MIG-bb", "1g.10gb", 1, gpu_instance=8, compute_instance=1),
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


def machine() -> MachineReading:
    """Two whole GPUs whose minor numbers are not their indices, and one with two MIG instances."""
    gpus = (
        GpuReading(0, "GPU-0", minor=1),
        GpuReading(1, "GPU-1", minor=0),
        GpuReading(2, "GPU-2", minor=2, is_mig_enabled=True, instances=INSTANCES),
    )
    n = range(len(gpus))
    return MachineReading(
        gpus,
        NodeTopology(
            gpus=tuple(Gpu(uuid=gpu.uuid) for gpu in gpus),
            links=tuple(tuple(NO_LINK if a == b else UNKNOWN_LINK for b in n) for a in n),
            pcie=tuple(
                tuple(PcieLevel.SELF if a == b else PcieLevel.UNKNOWN for b in n) for a in n
            ),
        ),
    )


def gpu(place: int, replica: int | None = None) -> Device:
    """A whole GPU of that machine, or a replica of it."""
    uuid = f"GPU-{place}"
    return Device(uuid if replica is None else f"{uuid}::{replica}", place, uuid, replica=replica)


def mig(index: int) -> Device:
    """A MIG instance of its last GPU."""
    return Device(INSTANCES[index].uuid, 2, "GPU-2", instance=INSTANCES[index])
