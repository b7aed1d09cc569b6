"""Which node and set a pod gets: the pairs of choices that the fleet benchmark compares.

For a node state (machine, free GPUs) and a pod size, a policy rates the state (a sort key, least
first) and chooses the set that the pod then gets there. States are rated once.

- Most-allocated node: kube-scheduler's NodeResourcesFit with `MostAllocated` on the GPU resource;
  equal scores are drawn at random, as kube-scheduler does (schedule_one.go, selectHost).
- Coterie's node: the extender's own comparison (`extender.placement.node_order`), then the node's
  order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from extender.placement import rank_fit
from extender.protocol import Shape
from topology.annotations import DEFAULT_POLICY
from topology.model import DEFAULT_RESOURCE, node_worth
from topology.select import ContainerRequest, ContainerRole, PodFit, fit_pod

if TYPE_CHECKING:
    from random import Random

    from benchmarks.rivals import NodeChooser, Rival
    from topology.annotations import PlacementPolicy
    from topology.model import NodeTopology
    from topology.select import MachineTables

__all__ = ["CoterieNodes", "FleetPolicy", "MachineType", "MostAllocated", "NodeOrder", "SortKey"]

SortKey = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MachineType:
    """A kind of node: its topology and tables, made once."""

    name: str
    topology: NodeTopology
    tables: MachineTables

    @property
    def worth(self) -> float:
        """What a GPU of it is worth."""
        return node_worth(self.topology.gpus).per_device


class NodeOrder(Protocol):
    """How a policy orders node states."""

    has_random_ties: bool

    def key(self, machine: MachineType, free: int, size: int) -> SortKey | None:
        """Sort key of a state, least first; None where the pod does not fit."""
        ...


class MostAllocated:
    """The node with the largest share of GPUs taken."""

    has_random_ties = True

    def key(self, machine: MachineType, free: int, size: int) -> SortKey | None:
        """Share of GPUs that would stay free."""
        left = free.bit_count() - size
        return (left / machine.topology.n_gpus,) if left >= 0 else None


class CoterieNodes:
    """The extender's order of nodes for a pod with one container."""

    has_random_ties = False

    def __init__(self, policy: PlacementPolicy = DEFAULT_POLICY) -> None:
        self._policy = policy
        self._fits: dict[tuple[MachineType, int, int], PodFit | None] = {}

    def fit(self, machine: MachineType, free: int, size: int) -> PodFit | None:
        """Return the set that Coterie takes in a state, None where the pod does not fit."""
        key = (machine, free, size)
        if key not in self._fits:
            fit = fit_pod(
                machine.tables,
                available=free,
                requests=self._shape(size).requests,
                policy=self._policy,
            )
            self._fits[key] = fit if isinstance(fit, PodFit) else None
        return self._fits[key]

    def _shape(self, size: int) -> Shape:
        request = ContainerRequest(name="0", size=size, role=ContainerRole.APP)
        return Shape(DEFAULT_RESOURCE, (request,), self._policy)

    def key(self, machine: MachineType, free: int, size: int) -> SortKey | None:
        """The extender's rank of a state."""
        fit = self.fit(machine, free, size)
        if fit is None:
            return None
        shape, n_free = self._shape(size), free.bit_count()
        return rank_fit(fit, shape, n_free=n_free, worth=machine.worth).key


class FleetPolicy:
    """A choice of node with a choice of set; without a rival the set is Coterie's own."""

    def __init__(self, name: str, nodes: NodeOrder, rival: Rival | None = None) -> None:
        self.name = name
        self.nodes = nodes
        self._rival = rival
        self._own = nodes if isinstance(nodes, CoterieNodes) else CoterieNodes()
        self._choosers: dict[MachineType, NodeChooser] = {}
        self._keys: dict[tuple[MachineType, int, int], SortKey | None] = {}

    def key(self, machine: MachineType, free: int, size: int) -> SortKey | None:
        """Sort key of a state, kept."""
        state = (machine, free, size)
        if state not in self._keys:
            self._keys[state] = self.nodes.key(machine, free, size)
        return self._keys[state]

    def take(self, machine: MachineType, free: int, size: int, rng: Random) -> int | None:
        """Return the set that the pod gets, as a mask."""
        if self._rival is None:
            fit = self._own.fit(machine, free, size)
            return None if fit is None else fit.used
        if machine not in self._choosers:
            self._choosers[machine] = self._rival.prepare(machine.topology)
        return self._choosers[machine].choose(free, size, rng)
