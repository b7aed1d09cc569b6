"""A node as it was last seen: the resources that it serves, their devices, and what it reports.

Values that `extender.state.node_reader` makes of `NodeFacts`. They never change and guess nothing:
where a resource is *count-only* (no machine type), its ids only keep the count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.groups import DomainPath
from topology.node_affinity import KnownLabels
from topology.topology_manager import manager_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from extender.snapshot import MachineType
    from kube.objects import NodeFacts
    from topology.annotations import DevicesReport
    from topology.taints import Taint
    from topology.topology_manager import TopologyManager

__all__ = ["BY_COUNT", "NodeRecord", "NodeResource", "fingerprint", "mask_of"]

BY_COUNT = "by count"
"""Label of nodes whose devices are known by number alone."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeResource:
    """An extended resource that a node serves, and its devices; `name` is empty for none.

    `machine` is None where it is count-only, and `label` shows it; then `ids` are placeholders, as
    many as are allocatable, unless the topology names them and only the report is unreadable.
    `n_devices` counts those that the node has, also unhealthy ones that are no placeholder.
    `worth` is that of a device. `positions` is the index of each id, `unhealthy` the mask of those
    that the node reports as bad.
    """

    name: str
    ids: tuple[str, ...]
    machine: MachineType | None
    label: str
    worth: float
    unhealthy: int
    positions: Mapping[str, int] = field(repr=False)
    n_devices: int

    @classmethod
    def of(  # noqa: PLR0913 - all that a resource is made of
        cls,
        name: str,
        ids: tuple[str, ...],
        *,
        machine: MachineType | None,
        label: str,
        worth: float,
        report: DevicesReport,
        n_devices: int = 0,
    ) -> NodeResource:
        """Make one of what a node reports; it has as many devices as ids, or more."""
        positions = {one: i for i, one in enumerate(ids)}
        unhealthy = mask_of((one.id for one in report.unhealthy), positions)
        n_devices = max(n_devices, len(ids))
        return cls(name, ids, machine, label, worth, unhealthy, positions, n_devices)


@dataclass(frozen=True, slots=True, eq=False)
class NodeRecord:
    """A node as it was last seen.

    `resources` are those that it serves, in the order of the configuration; where it serves none,
    one without a name and without devices. `fingerprint` is equal for equal facts, within one
    process. `problems` are sentences about what could not be used. `path` are the network domains
    that the node is in, `labels` what is known of its labels. `kubernetes_taints` as in
    `NodeFacts`.
    """

    name: str
    zone: str
    resources: tuple[NodeResource, ...]
    has_soft_taint: bool
    report: DevicesReport
    problems: tuple[str, ...]
    fingerprint: int
    path: DomainPath = field(default_factory=DomainPath)
    labels: KnownLabels = field(default_factory=KnownLabels)
    kubernetes_taints: tuple[Taint, ...] = ()
    manager: TopologyManager | None = field(init=False, compare=False)
    """The node's Topology Manager where it confines pods; None where it does not, or is unknown."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "manager", manager_of(self.report))

    @property
    def is_unschedulable(self) -> bool:
        """Whether no new pod comes, but for those that tolerate its taints."""
        return bool(self.kubernetes_taints)

    @property
    def index_key(self) -> tuple[str, bool]:
        """What the node index of a snapshot holds: zone and taint, which matters where GPUs are."""
        return self.zone, self.has_soft_taint and self.resources[0].name != ""

    def index(self, resource: str) -> int | None:
        """The index of a resource among `resources`; None where the node does not serve it."""
        for i, one in enumerate(self.resources):
            if one.name == resource:
                return i
        return None


def fingerprint(facts: NodeFacts) -> int:
    """A number that is equal for equal facts, so that their texts need not be kept."""
    counts = (tuple(sorted(one.items())) for one in (facts.allocatable, facts.capacity))
    texts = (facts.topology, facts.devices, facts.worth, *sorted(facts.domains.items()))
    labels = tuple(sorted(facts.labels.items()))
    flags = facts.has_soft_taint, facts.kubernetes_taints
    return hash((facts.zone, flags, *counts, texts, labels))


def mask_of(ids: Iterable[str], positions: Mapping[str, int]) -> int:
    """Bits of the ids that the node has; others are left out.

    >>> mask_of(["b", "x"], {"a": 0, "b": 1})
    2
    """
    mask = 0
    for one in ids:
        position = positions.get(one)
        if position is not None:
            mask |= 1 << position
    return mask
