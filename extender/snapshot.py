"""The cluster at one moment, as the verbs see it.

What it answers: for each node its kind (machine type and resource), its devices, which of them are
free and where it stands. Immutable: a change makes a new snapshot that shares everything that did
not change. It never learns anything by itself; a feed makes it.

Nodes of one kind with the same devices free are alike to every pod: they share a *state*, and the
verbs rate each state once. Where the kubelet's Topology Manager has a say, what is claimed counts
in the state too: the kubelet knows of no claim, and confines a pod by all that it has free.

What the verbs need of every node asked about lies in arrays by node position, so that 5,000 nodes
cost a few array operations and not 5,000 turns of a loop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from extender.wire import score_head

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from topology.numa_hints import TopologyManager
    from topology.select import Machine

__all__ = [
    "ClusterSnapshot",
    "MachineType",
    "NodeKind",
    "NodeView",
    "make_snapshot",
    "make_view",
    "with_free",
]

_KIND_BITS = 32
"""Room in a state for the index of every kind ever made in this process: 4 billion."""
_SPARE_STATES = 1024
"""State numbers that may go out of use before they are handed out anew."""


@dataclass(frozen=True, slots=True, eq=False)
class MachineType:
    """A machine type: the digest of its topology, and what selects its sets."""

    digest: str
    selector: Machine


@dataclass(frozen=True, slots=True, eq=False)
class NodeKind:
    """What nodes share: the resource they serve, their machine type, how their kubelets align.

    `machine` is None where the node has no usable topology; `manager` is None where the Topology
    Manager confines nobody, or nobody told. `index` is unique among all kinds ever
    made in this process: caches are keyed by it.
    """

    index: int
    name: str
    resource: str
    machine: MachineType | None
    manager: TopologyManager | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """One node. `free` has bit i set where device i may be given away; ids in device order.

    `state` is equal for nodes that are alike to every pod. `host_json` is the name as JSON.
    `reserved` are devices that are kept for others, though the kubelet has them free; 0 for a kind
    without a Topology Manager, where that makes no difference.
    """

    name: str
    zone: str
    kind: NodeKind
    ids: tuple[str, ...]
    free: int
    state: int
    host_json: str
    reserved: int = 0


def make_view(  # noqa: PLR0913 - all that a view is made of
    name: str,
    *,
    zone: str,
    kind: NodeKind,
    ids: tuple[str, ...],
    free: int,
    reserved: int = 0,
) -> NodeView:
    """Make a node's view; `reserved` may be given for any kind."""
    if kind.manager is None:
        reserved = 0
    state = _state(kind, free, reserved << len(ids))
    return NodeView(name, zone, kind, ids, free, state, json.dumps(name), reserved)


def with_free(view: NodeView, free: int) -> NodeView:
    """The same node with other devices free; none of them is reserved any more."""
    reserved = view.reserved & ~free
    state = _state(view.kind, free, reserved << len(view.ids))
    return replace(view, free=free, reserved=reserved, state=state)


def _state(kind: NodeKind, free: int, reserved_above: int) -> int:
    return (reserved_above | free) << _KIND_BITS | kind.index


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
    """All nodes, by position 0..n-1. `generation` is the ledger's.

    Static: `positions` by name, `zone_ids` int64[n], `ties` uint64[n] (a hash of each name),
    `score_heads` (each node's part of a prioritize answer), `has_soft_taints` (some node carries a
    PreferNoSchedule taint). Per moment: `views` and `state_ids` int64[n], small numbers that are
    equal for equal states; `state_numbers` maps a view's state to its number.

    `observed_at_s` is when the feed last heard from its source, None for a feed inside this
    process, which cannot lag. `is_synced` is False until the feed has seen everything once.
    """

    positions: Mapping[str, int]
    zone_ids: NDArray[np.int64]
    ties: NDArray[np.uint64]
    score_heads: Sequence[str]
    has_soft_taints: bool
    views: Sequence[NodeView]
    state_ids: NDArray[np.int64]
    state_numbers: Mapping[int, int]
    generation: int
    is_synced: bool = True
    observed_at_s: float | None = None

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Views by name."""
        return _Nodes(self.positions, self.views)

    def is_fresh(self, now_s: float, bound_s: float) -> bool:
        """Whether a refusal may be based on this: synced, and heard from within the bound."""
        if not self.is_synced:
            return False
        return self.observed_at_s is None or now_s - self.observed_at_s <= bound_s

    def with_free(self, changed: Mapping[str, int], generation: int) -> ClusterSnapshot:
        """The same cluster with other free masks on some of its nodes."""
        views = (self.views[self.positions[name]] for name in changed)
        return self.with_views([with_free(view, changed[view.name]) for view in views], generation)

    def with_views(self, changed: Iterable[NodeView], generation: int) -> ClusterSnapshot:
        """The same cluster with other views of some of its nodes, in the same zones."""
        views = list(self.views)
        state_ids = self.state_ids.copy()
        numbers = dict(self.state_numbers)
        for view in changed:
            position = self.positions[view.name]
            views[position] = view
            state_ids[position] = numbers.setdefault(view.state, len(numbers))
        if len(numbers) > 2 * len(views) + _SPARE_STATES:
            numbers, state_ids = _number_states(views)
        return replace(
            self,
            views=views,
            state_ids=state_ids,
            state_numbers=numbers,
            generation=generation,
        )


def make_snapshot(
    views: Sequence[NodeView], *, generation: int = 0, has_soft_taints: bool = False
) -> ClusterSnapshot:
    """Make the first snapshot of a cluster; the views' names are different."""
    zones = {zone: i for i, zone in enumerate(sorted({view.zone for view in views}))}
    numbers, state_ids = _number_states(views)
    return ClusterSnapshot(
        positions={view.name: i for i, view in enumerate(views)},
        zone_ids=np.array([zones[view.zone] for view in views], dtype=np.int64),
        ties=np.array([_hash(view.name) for view in views], dtype=np.uint64),
        score_heads=tuple(score_head(view.name) for view in views),
        has_soft_taints=has_soft_taints,
        views=tuple(views),
        state_ids=state_ids,
        state_numbers=numbers,
        generation=generation,
    )


def _number_states(views: Sequence[NodeView]) -> tuple[dict[int, int], NDArray[np.int64]]:
    numbers: dict[int, int] = {}
    ids = [numbers.setdefault(view.state, len(numbers)) for view in views]
    return numbers, np.array(ids, dtype=np.int64)


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
