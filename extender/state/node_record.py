"""A node's labels and annotations, read once: resource, devices, machine type, health, holds.

`NodeFacts` becomes a checked `NodeRecord`, with a sentence for each problem. It never guesses: text
that cannot be read, or that contradicts the rest, makes the node *count-only* (no machine type, ids
that only keep the count), never an error.

What the state of an annotation means (both annotations):

- absent: nothing is known; the node serves its resource by count;
- a newer minor version: read, its new fields ignored;
- broken, or of another major version: as if absent, and a problem that is reported to operators;
- a topology whose GPUs have no UUID, or of fewer devices than are allocatable: it does not name
  what the kubelet gives away, so no plan can; count-only, and reported;
- a topology of more devices than the node's capacity, beyond those of `FALLEN_GPUS`: the kubelet
  cannot give away what it names, and rating its sets could take seconds; count-only, reported, and
  no tables are built for it. A report needs no such check: ids that the node lacks are left out.

A node that serves nothing now has no tables built either: what its topology must name is unknown.

The node's resource is the first of the configured ones of which more than 0 are allocatable. A node
without any serves nothing: one whose plugin has not registered looks like that, and so does one
that serves the resource through DRA. Capacity counts what the resource counts, and so does the
topology: GPUs, or partitions where these are offered under that name.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from topology.annotations import DevicesReport, decode_devices
from topology.errors import CodecError
from topology.model import MAX_GPUS, decode_gpus, decode_topology, names
from topology.value import topology_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.snapshot import MachineType
    from extender.state.machine_types import Kinds
    from kube.objects import NodeFacts
    from topology.model import Gpu, NodeTopology

__all__ = ["BY_COUNT", "NodeReader", "NodeRecord", "fingerprint", "mask_of"]

_SERVES_NOTHING = "serves no GPU resource"
BY_COUNT = "by count"
"""Label of nodes whose devices are known by number alone."""
FALLEN_GPUS = 2
"""GPUs that a topology may name beyond the node's capacity, each with its partitions.

A GPU that fell off the bus leaves the capacity when the device plugin starts again, and stays in
the topology until the agent, which may be another program, reads the machine again. They fall one
by one, or in pairs where two are behind one PCIe switch or on one module. Where more are missing,
plans would name devices that the kubelet does not have, so that counting serves better."""
MAX_PARTITIONS = 8
"""Partitions of one GPU in that count, so that a topology cannot put all its devices on one GPU.
MIG makes up to 7 (MIG User Guide, Supported MIG Profiles), AMD's CPX mode of an MI300X makes 8."""
MAX_AHEAD = 8192
"""Topologies remembered between `unbuilt` and `read` (1 KB each, and the text, which the caller has
anyway): a whole list of nodes. Forgotten ones are read again."""
_EMPTY_REPORT = DevicesReport()


@dataclass(frozen=True, slots=True, eq=False)
class NodeRecord:
    """A node as it was last seen. `resource` is empty where it serves nothing.

    `machine` is None where it is count-only, and `label` shows it; then `ids` are placeholders, as
    many as are allocatable, unless the topology names them and only the report is unreadable.
    `positions` is the index of each id. `fingerprint` is equal for equal facts, within one process.
    `problems` are sentences about what could not be used.
    """

    name: str
    zone: str
    resource: str
    ids: tuple[str, ...]
    machine: MachineType | None
    label: str
    has_soft_taint: bool
    report: DevicesReport
    unhealthy: int
    problems: tuple[str, ...]
    fingerprint: int
    positions: Mapping[str, int] = field(repr=False)

    @property
    def index_key(self) -> tuple[str, bool]:
        """What the node index of a snapshot holds: zone and taint, which matters where GPUs are."""
        return self.zone, self.has_soft_taint and self.resource != ""


@dataclass(frozen=True, slots=True)
class _Named:
    """How many devices a topology has and names; `n_spare`: those of `FALLEN_GPUS` of its GPUs."""

    n_gpus: int
    n_named: int
    n_spare: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a topology's text comes to; the text itself is read again where more is wanted."""

    digest: str
    label: str
    ids: tuple[str, ...]
    named: _Named
    is_measured: bool


class NodeReader:
    """Reads nodes; remembers for a while what it read ahead of `read`."""

    def __init__(self, resources: Sequence[str], kinds: Kinds) -> None:
        self._resources = tuple(resources)
        self._kinds = kinds
        self._ahead: dict[str, _Reading] = {}

    def unbuilt(self, facts: NodeFacts) -> NodeTopology | None:
        """The topology whose machine type `read` would have to build, None if there is none."""
        text, resource = facts.topology, self._resource(facts)
        if text is None or not resource:
            return None
        reading, topology = self._ahead.get(text), None
        if reading is None:
            topology, _ = _decode(text, facts, resource)
            if topology is None:
                return None
            reading = _read_topology(topology)
            if len(self._ahead) >= MAX_AHEAD:
                self._ahead.clear()
            self._ahead[text] = reading
        if self._kinds.has(reading.digest) or _misfit(reading.named, facts, resource):
            return None
        return decode_topology(text) if topology is None else topology

    def offer_machine(self, machine: MachineType) -> None:
        """Take a machine type built elsewhere (`build_machine_type`), for the same demand."""
        self._kinds.offer(machine)

    def read(self, facts: NodeFacts) -> NodeRecord:
        """Read a node; never raises."""
        problems: list[str] = []
        resource = self._resource(facts)
        ids: tuple[str, ...] = ()
        machine, label, report = None, _SERVES_NOTHING, _EMPTY_REPORT
        if resource:
            ids, label = _placeholders(min(facts.allocatable[resource], MAX_GPUS)), BY_COUNT
            if facts.topology is not None:
                reading, machine = self._machine(facts, facts.topology, resource, problems)
                if reading is not None:
                    ids, label = reading.ids, reading.label
            report, is_readable = _read_report(facts.devices, problems)
            if not is_readable:
                # Which devices are bad is unknown, so none may be chosen by name.
                machine, label = None, BY_COUNT
        positions = {one: i for i, one in enumerate(ids)}
        return NodeRecord(
            name=sys.intern(facts.name),
            zone=sys.intern(facts.zone),
            resource=resource,
            ids=ids,
            machine=machine,
            label=label,
            has_soft_taint=facts.has_soft_taint,
            report=report,
            unhealthy=mask_of((one.id for one in report.unhealthy), positions),
            problems=tuple(problems),
            fingerprint=fingerprint(facts),
            positions=positions,
        )

    def _resource(self, facts: NodeFacts) -> str:
        """The resource that the node serves, empty if none."""
        return next((one for one in self._resources if facts.allocatable.get(one, 0) > 0), "")

    def _machine(
        self, facts: NodeFacts, text: str, resource: str, problems: list[str]
    ) -> tuple[_Reading, MachineType] | tuple[None, None]:
        """The machine type, if the topology names the devices that the kubelet gives away."""
        reading, topology = self._ahead.pop(text, None), None
        if reading is None:
            topology, problem = _decode(text, facts, resource)
            reading = None if topology is None else _read_topology(topology)
        else:
            problem = _misfit(reading.named, facts, resource)
        if reading is None or problem:
            problems.append(problem)
            return None, None
        if topology is None and (reading.is_measured or not self._kinds.has(reading.digest)):
            topology = decode_topology(text)
        return reading, self._kinds.machine(reading.digest, topology)


def _decode(
    text: str, facts: NodeFacts, resource: str
) -> tuple[NodeTopology, str] | tuple[None, str]:
    """The topology, or why it is not used. The pairs of one that is not used are not read."""
    try:
        problem = _misfit(_named(decode_gpus(text)), facts, resource)
        return (None, problem) if problem else (decode_topology(text), "")
    except CodecError as error:
        return None, str(error)


def _named(gpus: Sequence[Gpu]) -> _Named:
    partitions = Counter(gpu.parent for gpu in gpus if gpu.parent is not None)
    per_gpu = min(max(partitions.values(), default=1), MAX_PARTITIONS)
    n_named = sum(gpu.uuid is not None for gpu in gpus)
    return _Named(len(gpus), n_named, FALLEN_GPUS * per_gpu)


def _misfit(named: _Named, facts: NodeFacts, resource: str) -> str:
    """Why a topology does not name what the kubelet gives away; empty if it does."""
    n_named, n_devices = named.n_named, facts.allocatable[resource]
    if n_named < named.n_gpus:
        return f"topology: {n_named} of {named.n_gpus} GPUs have a uuid, expected all"
    if n_devices > n_named:
        return (
            f"topology: {n_named} GPUs, but {n_devices} devices are allocatable: expected "
            "every device to be named"
        )
    # A kubelet's capacity includes what is allocatable; a status without capacity says that much.
    capacity = max(facts.capacity.get(resource, 0), n_devices)
    if n_named > capacity + named.n_spare:
        return (
            f"topology: {n_named} devices are named, but the capacity of node {facts.name} is "
            f"{capacity} of {resource}, expected at most {capacity + named.n_spare} names (of "
            f"{FALLEN_GPUS} GPUs more, which may have fallen off): restart the node plugin there, "
            "which reads the machine again; where another program wrote the annotation "
            f"{names.TOPOLOGY}, correct or remove it"
        )
    return ""


def _read_topology(topology: NodeTopology) -> _Reading:
    digest = topology_digest(topology)
    return _Reading(
        digest=digest,
        label=_label(tuple(gpu.model for gpu in topology.gpus), digest[:8]),
        ids=tuple(sys.intern(gpu.uuid) for gpu in topology.gpus if gpu.uuid is not None),
        named=_named(topology.gpus),
        is_measured=topology.measurement is not None,
    )


def fingerprint(facts: NodeFacts) -> int:
    """A number that is equal for equal facts, so that their texts need not be kept."""
    counts = (tuple(sorted(one.items())) for one in (facts.allocatable, facts.capacity))
    texts = (facts.topology, facts.devices)
    return hash((facts.zone, facts.has_soft_taint, *counts, texts))


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


def _read_report(text: str | None, problems: list[str]) -> tuple[DevicesReport, bool]:
    """The report (empty where there is none), and whether all of it could be read."""
    if text is not None:
        try:
            return decode_devices(text), True
        except CodecError as error:
            problems.append(str(error))
            return _EMPTY_REPORT, False
    return _EMPTY_REPORT, True


@lru_cache(maxsize=MAX_GPUS + 1)
def _placeholders(count: int) -> tuple[str, ...]:
    return tuple(f"device-{i}" for i in range(count))


@lru_cache(maxsize=256)
def _label(models: tuple[str | None, ...], digest: str) -> str:
    """The machine type's name; the digest distinguishes one with a dead link from a whole one."""
    counts = Counter("unknown GPU" if model is None else model for model in models)
    named = " + ".join(f"{count}x {model}" for model, count in counts.items())
    return f"{named} ({digest})"
