"""What one node gives to a set that spans nodes.

What it answers: of the GPUs that a group has on one node, what they are worth among themselves,
which NICs are near them, what their PCIe ports carry, and which switch fabric joins them. It never
looks at another node (`topology.groups.value_group`), and chooses nothing.

Near is what the wish `nic` calls near: an RDMA NIC within PXB (`topology.value.nics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.errors import InvalidRequest, UnknownDevice
from topology.model import find_gpu_model, mask_of, pcie_rate
from topology.select import MachineTables
from topology.select.large_machine import value_of
from topology.value import STATED_ERROR, Limit, is_known_set, rdma_nics_near

if TYPE_CHECKING:
    from topology.model import Nic
    from topology.select import Machine
    from topology.value import FabricPorts

__all__ = ["GroupShare", "OwnValue"]


@dataclass(frozen=True, slots=True)
class OwnValue:
    """What a set is worth on its own node: GB/s, 0 for one GPU; `least` is less the stated error.

    `is_known`: it rests on no unknown.
    """

    gbytes_per_s: float
    least_gbytes_per_s: float
    is_known: bool


@dataclass(frozen=True, slots=True)
class GroupShare:
    """All GPUs that a group has on one node: those of all its members there, ascending.

    `clique` is `<ClusterUUID>.<CliqueID>` of the node's NVLink fabric where that spans nodes, None
    elsewhere. It is the node's own: nodes of one machine type differ in it, so that of
    `machine.topology` may be another node's. Raises `UnknownDevice` for a GPU that the node does
    not have, `InvalidRequest` for GPUs that are none or not ascending.

    >>> from topology.recordings import load_recording
    >>> from topology.select import build_machine
    >>> share = GroupShare(build_machine(load_recording("dgx-h100")), (0, 1, 4))
    >>> [nic.name for nic in share.near_nics]
    ['mlx5_0', 'mlx5_3', 'mlx5_6']
    """

    machine: Machine
    gpus: tuple[int, ...]
    clique: str | None = None

    def __post_init__(self) -> None:
        if not self.gpus or list(self.gpus) != sorted(set(self.gpus)):
            msg = (
                f"share of a group is {self.gpus}, expected at least one GPU, each once, ascending"
            )
            raise InvalidRequest(msg)
        for gpu in (self.gpus[0], self.gpus[-1]):
            if not 0 <= gpu < self.machine.n_gpus:
                n = self.machine.n_gpus
                msg = f"share of a group: GPU {gpu} is not there, expected 0..{n - 1}"
                raise UnknownDevice(msg)

    @property
    def mask(self) -> int:
        """The set as a mask."""
        return mask_of(self.gpus)

    @property
    def own(self) -> OwnValue:
        """The set's value on its node, as `topology.select` rates it, measurements included."""
        machine, mask = self.machine, self.mask
        if isinstance(machine, MachineTables):
            value, limit = float(machine.value[mask]), Limit(int(machine.limit[mask]))
            is_known = bool(machine.is_known[mask])
        else:
            value, limit = value_of(machine, mask)
            is_known = is_known_set(machine.topology, mask, limit)
        return OwnValue(value, value * (1 - STATED_ERROR[limit]), is_known)

    @property
    def near_nics(self) -> tuple[Nic, ...]:
        """The RDMA NICs near any of the GPUs, each once."""
        return rdma_nics_near(self.machine.topology, self.mask)

    @property
    def ports_gbytes_per_s(self) -> float:
        """What the PCIe ports of the GPUs carry together, GB/s: the way to any NIC."""
        models = (find_gpu_model(self.machine.topology.gpus[i].model) for i in self.gpus)
        return sum(pcie_rate(model.pcie_generation if model else None) for model in models)

    @property
    def fabric(self) -> FabricPorts | None:
        """The up switch fabric that holds all the GPUs; None where there is none."""
        mask = self.mask
        fabrics = self.machine.capacities.fabrics
        return next((fabric for fabric in fabrics if mask & ~fabric.members == 0), None)

    @property
    def has_known_ports(self) -> bool:
        """Whether the link generation, and so the rate of a port, is known of every GPU."""
        gpus = [self.machine.topology.gpus[i] for i in self.gpus]
        models = [find_gpu_model(gpu.model) for gpu in gpus]
        return all(
            gpu.link_generation is not None or (model and model.link_generation is not None)
            for gpu, model in zip(gpus, models, strict=True)
        )
