"""The classes of nodes: each machine type's tables once, and a small number for each class.

It gives each node its `NodeClass`, so that nodes that are alike to every pod share tables, ratings
and states. What no node uses any more is dropped now and then (`NodeClasses.keep`), since nodes
come and go, and every new measurement, dead link or worth makes another type or class. An index is
never used again: caches are keyed by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from extender.snapshot import MachineType, NodeClass
from topology.select import MachineTables, build_machine, near_best_counts, with_raw_figures
from topology.value import topology_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from topology.model import NodeTopology
    from topology.model.measurement import MeasuredPair, MeasuredSet
    from topology.select import Machine
    from topology.topology_manager import TopologyManager
    from topology.value import Demand

    _ClassKey: TypeAlias = tuple[
        str, str, MachineType | None, TopologyManager | None, float, str, int
    ]

    _Raw: TypeAlias = tuple[str, tuple[MeasuredPair, ...], tuple[MeasuredSet, ...]]

__all__ = ["NodeClasses", "build_machine_type"]

MAX_RAW_TYPES, MAX_RAW_BYTES = 16_384, 64 << 20
"""Bounds on machine types with a node's own raw figures, which break ties alone; further nodes
share their machine type's. The second is what their figures may take in memory."""
SPARE = 64
"""Types and classes without a node that are kept beside twice as many as have one: the tables of a
machine type of 16 GPUs take some 4 MB."""
MAX_OFFERED = 1024
"""Machine types that are kept for nodes to come, built elsewhere and not used yet."""
_RAW_BYTES_PER_SET = 12
"""`tie` and `raw_sum` of `topology.select.tables.MachineTables`, for each mask."""


def build_machine_type(topology: NodeTopology, demand: Demand) -> MachineType:
    """Build the tables of a topology; for 16 GPUs that may take a second."""
    selector = build_machine(topology, demand)
    return MachineType(topology_digest(topology), selector, _near_best(selector, demand))


class NodeClasses:
    """Makes each machine type once, tables included, unless it is offered."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._machines: dict[str, MachineType] = {}
        self._raw: dict[_Raw, MachineType] = {}
        self._raw_bytes = 0
        self._classes: dict[_ClassKey, NodeClass] = {}
        self._n_classes = 0
        self._offered: dict[str, None] = {}
        self._room = SPARE

    @property
    def is_crowded(self) -> bool:
        """Whether `keep` is due."""
        return len(self._machines) + len(self._raw) + len(self._classes) > self._room

    def keep(self, machines: Iterable[MachineType], classes: Iterable[NodeClass]) -> None:
        """Drop what is none of these, nor of a node to come. O(types and classes)."""
        used, used_classes = frozenset(machines), frozenset(classes)
        digests = {one.digest for one in used} | self._offered.keys()
        self._machines = {key: one for key, one in self._machines.items() if key in digests}
        self._raw = {key: one for key, one in self._raw.items() if one in used}
        self._raw_bytes = sum(_raw_bytes(one.selector.n_gpus) for one in self._raw.values())
        self._classes = {key: one for key, one in self._classes.items() if one in used_classes}
        self._room = 2 * (len(self._machines) + len(self._raw) + len(self._classes)) + SPARE

    def offer(self, machine: MachineType) -> None:
        """Take over a machine type built elsewhere for the same demand; the first one counts."""
        if machine.digest not in self._machines:
            self._machines[machine.digest] = machine
            self._offered[machine.digest] = None
            if len(self._offered) > MAX_OFFERED:
                del self._offered[next(iter(self._offered))]

    def has(self, digest: str) -> bool:
        """Whether the tables of this machine type are there."""
        return digest in self._machines

    def machine(self, digest: str, topology: NodeTopology | None = None) -> MachineType:
        """The machine type of a digest, with the raw figures that the node itself measured.

        The topology may be left out where the machine type is there and nothing was measured.
        Raises `KeyError` where it had to be given.
        """
        self._offered.pop(digest, None)
        if topology is None:
            return self._machines[digest]
        if digest not in self._machines:
            self._machines[digest] = build_machine_type(topology, self._demand)
        shared = self._machines[digest]
        measured = topology.measurement
        if measured is None or not isinstance(shared.selector, MachineTables):
            return shared
        key = (digest, measured.pairs, measured.sets)
        if key not in self._raw:
            n_bytes = _raw_bytes(topology.n_gpus)
            if len(self._raw) >= MAX_RAW_TYPES or self._raw_bytes + n_bytes > MAX_RAW_BYTES:
                return shared
            self._raw_bytes += n_bytes
            selector = with_raw_figures(shared.selector, topology)
            self._raw[key] = MachineType(digest, selector, shared.near_best)
        return self._raw[key]

    def node_class(  # noqa: PLR0913, PLR0917 - all that makes a class
        self,
        name: str,
        resource: str,
        machine: MachineType | None,
        manager: TopologyManager | None,
        worth: float,
        product: str,
        n_devices: int,
    ) -> NodeClass:
        """The class of nodes with this name, resource and machine type (None: by count).

        `manager` is their kubelets' Topology Manager where it applies; nodes by count have none,
        since it is not known which of their devices is where. `worth` is that of a device.
        `product` is the label of their GPUs' model, and `n_devices` how many they have: these count
        where the machine type is unknown.
        """
        key = (name, resource, machine, manager, worth, "", 0)
        if machine is None:
            key = (name, resource, None, None, worth, product, n_devices)
        if key not in self._classes:
            self._classes[key] = NodeClass(self._n_classes, *key)
            self._n_classes += 1
        return self._classes[key]


def _near_best(selector: Machine, demand: Demand) -> Mapping[int, NDArray[np.int8]]:
    if not isinstance(selector, MachineTables):
        return {}
    sizes = (size for size, _ in demand.sizes if size <= selector.n_gpus)
    counts = ((size, near_best_counts(selector, size)) for size in sizes)
    return {size: table for size, table in counts if table[-1]}


def _raw_bytes(n_gpus: int) -> int:
    return _RAW_BYTES_PER_SET << n_gpus
