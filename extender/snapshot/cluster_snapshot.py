"""The cluster at one moment, as the verbs see it.

For each node: its class (machine type and resource), its devices, which of them are free, and its
zone. Immutable: a change makes a new snapshot that shares everything that did not change.

Nodes of one class with the same devices free are alike to every pod: they share a *state*, and the
verbs rate each state once. Where the kubelet's Topology Manager applies, what is claimed counts
in the state too: the kubelet knows of no claim, and confines a pod by all that it has free.

The names and zones of the nodes are in its node index (`extender.snapshot.node_index`), which
changes less often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from extender.snapshot.node_index import make_node_index
from topology.model import masks_by
from topology.select import LargeMachine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from extender.snapshot.node_index import NodeIndex
    from topology.select import Machine
    from topology.topology_manager import TopologyManager

__all__ = [
    "SHARED",
    "ClusterSnapshot",
    "MachineType",
    "NodeClass",
    "NodeView",
    "make_snapshot",
    "make_view",
    "with_free",
    "with_masks",
]

_CLASS_BITS = 32
"""Room in a state for the index of every class ever made in this process: 4 billion."""
SHARED = "-SHARED"
"""Behind the model in the label of GPU feature discovery, where GPUs are shared in time."""
SPARE_STATES = 1024
"""State numbers that may go out of use before they are given out again."""


@dataclass(frozen=True, slots=True, eq=False)
class MachineType:
    """A machine type: the digest of its topology, and what selects its sets.

    `near_best` are the counts of `topology.select.near_best_counts` by size, for the sizes of the
    demand that the empty machine holds; none for a machine of more than 16 devices.
    """

    digest: str
    selector: Machine
    near_best: Mapping[int, NDArray[np.int8]] = field(default_factory=dict[int, "NDArray[np.int8]"])

    @property
    def is_rated_slowly(self) -> bool:
        """Whether each set is valued by itself, by no table: above 16 devices, unequal links."""
        return isinstance(self.selector, LargeMachine) and not self.selector.is_even


@dataclass(frozen=True, slots=True, eq=False)
class NodeClass:
    """What nodes share: resource, machine type, how their kubelets align, what a GPU is worth.

    `machine` is None where the node has no usable topology; `manager` is None where the Topology
    Manager confines no pod, or is not known. `worth` is that of a device (`topology.model`,
    `node_worth`). `product` is the model that a label names, and `n_devices` how many the node has,
    also unhealthy ones: both for nodes without a usable topology; 0 for others.
    `index` is unique among all kinds ever made in this process: caches are keyed by it.
    """

    index: int
    name: str
    resource: str
    machine: MachineType | None
    manager: TopologyManager | None = None
    worth: float = 1.0
    product: str = ""
    n_devices: int = 0
    models: Mapping[str, int] = field(init=False, repr=False)
    """The mask of the devices of each GPU model, which is named as in the label of a Node; empty
    for GPUs of which it is unknown."""

    def __post_init__(self) -> None:
        models = {self.product.removesuffix(SHARED): -1}
        if self.machine is not None:
            gpus = self.machine.selector.topology.gpus
            models = masks_by("-".join((gpu.model or "").split()) for gpu in gpus)
        object.__setattr__(self, "models", models)


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """One node. `free` has bit i set where device i may be given away; ids in device order.

    `state` is equal for nodes that are alike to every pod.
    `reserved` are devices that are kept for others, though the kubelet has them free; 0 for a class
    without a Topology Manager, where that makes no difference.
    """

    name: str
    zone: str
    node_class: NodeClass
    ids: tuple[str, ...]
    free: int
    state: int
    reserved: int = 0

    def ids_of(self, mask: int) -> tuple[str, ...]:
        """The ids of the devices in a mask, in device order."""
        return tuple([one for i, one in enumerate(self.ids) if mask >> i & 1])

    def mask_of(self, ids: Iterable[str]) -> int:
        """The mask of the devices with these ids, those that are here."""
        wanted = frozenset(ids)
        return sum(1 << i for i, one in enumerate(self.ids) if one in wanted)


def make_view(  # noqa: PLR0913 - all that a view is made of
    name: str,
    *,
    zone: str,
    node_class: NodeClass,
    ids: tuple[str, ...],
    free: int,
    reserved: int = 0,
) -> NodeView:
    """Make a node's view; `reserved` may be given for any class."""
    if node_class.manager is None:
        reserved = 0
    state = _state(node_class, free, reserved << len(ids))
    return NodeView(name, zone, node_class, ids, free, state, reserved)


def with_free(view: NodeView, free: int) -> NodeView:
    """The same node with other devices free; none of them is reserved any more."""
    return with_masks(view, free=free, reserved=view.reserved & ~free)


def with_masks(view: NodeView, *, free: int, reserved: int) -> NodeView:
    """The same node with other devices free and reserved; the same object where nothing differs."""
    if view.node_class.manager is None:
        reserved = 0
    if free == view.free and reserved == view.reserved:
        return view
    state = _state(view.node_class, free, reserved << len(view.ids))
    return NodeView(view.name, view.zone, view.node_class, view.ids, free, state, reserved)


def _state(node_class: NodeClass, free: int, reserved_above: int) -> int:
    return (reserved_above | free) << _CLASS_BITS | node_class.index


class _Nodes(Mapping[str, NodeView]):
    """Views by name, in order of position."""

    def __init__(self, positions: Mapping[str, int], views: Sequence[NodeView]) -> None:
        self._positions = positions
        self._views = views

    def __getitem__(self, name: str) -> NodeView:
        return self._views[self._positions[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """All nodes of a node index, by their positions. `generation` grows with every change.

    `state_ids` int64[n] are small numbers that are equal for equal states; `state_numbers` maps a
    view's state to its number, `samples` has a view of each number, which no node need have now.

    `observed_at_s` is up to when the watches are complete, None for a cluster inside this
    process, which cannot lag. `is_synced` is False until the feed has seen everything once.
    """

    node_index: NodeIndex
    views: Sequence[NodeView]
    state_ids: NDArray[np.int64]
    state_numbers: Mapping[int, int]
    samples: Sequence[NodeView]
    generation: int
    is_synced: bool = True
    observed_at_s: float | None = None

    @property
    def positions(self) -> Mapping[str, int]:
        """Positions by name."""
        return self.node_index.positions

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Views by name."""
        return _Nodes(self.positions, self.views)

    def view(self, name: str) -> NodeView | None:
        """The view of a node; None where it is not here."""
        position = self.node_index.positions.get(name)
        return None if position is None else self.views[position]

    def is_fresh(self, now_s: float, bound_s: float) -> bool:
        """Whether a refusal may be based on this: synced, and not older than the bound."""
        if not self.is_synced:
            return False
        return self.observed_at_s is None or now_s - self.observed_at_s <= bound_s

    def with_free(self, changed: Mapping[str, int], generation: int) -> ClusterSnapshot:
        """The same cluster with other free masks on some of its nodes."""
        views = (self.views[self.positions[name]] for name in changed)
        return self.with_views([with_free(view, changed[view.name]) for view in views], generation)

    def with_views(self, changed: Sequence[NodeView], generation: int) -> ClusterSnapshot:
        """The same cluster with other views of some of its nodes, in the same zones."""
        views, state_ids = self.views, self.state_ids
        numbers, samples = self.state_numbers, self.samples
        positions = self.node_index.positions
        if changed:
            shown = list(views)
            for view in changed:
                shown[positions[view.name]] = view
            views, state_ids = shown, state_ids.copy()
        for view in changed:
            number = numbers.get(view.state)
            if number is None:
                number = len(numbers)
                numbers, samples = {**numbers, view.state: number}, (*samples, view)
            state_ids[positions[view.name]] = number
        if len(numbers) > 2 * len(views) + SPARE_STATES:
            numbers, samples, state_ids = _number_states(views)
        return ClusterSnapshot(
            self.node_index,
            views,
            state_ids,
            numbers,
            samples,
            generation,
            self.is_synced,
            self.observed_at_s,
        )


def make_snapshot(
    views: Sequence[NodeView], *, generation: int = 0, soft_tainted: Collection[str] = ()
) -> ClusterSnapshot:
    """Make the first snapshot of a cluster; the views' names are different.

    `soft_tainted` are the names of the nodes with a PreferNoSchedule taint.
    """
    node_index = make_node_index(
        [view.name for view in views],
        [view.zone for view in views],
        soft_tainted=soft_tainted,
    )
    numbers, samples, state_ids = _number_states(views)
    return ClusterSnapshot(node_index, tuple(views), state_ids, numbers, samples, generation)


def _number_states(
    views: Sequence[NodeView],
) -> tuple[Mapping[int, int], Sequence[NodeView], NDArray[np.int64]]:
    samples: dict[int, NodeView] = {}
    for view in views:
        samples.setdefault(view.state, view)
    numbers = {state: number for number, state in enumerate(samples)}
    ids = np.array([numbers[view.state] for view in views], dtype=np.int64)
    return numbers, tuple(samples.values()), ids
