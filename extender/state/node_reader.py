"""Reads a node's labels and annotations: resources, devices, machine type, health, holds.

`NodeFacts` becomes a checked `NodeRecord`, with a sentence for each problem. It never guesses: text
that cannot be read, or that contradicts the rest, makes a resource *count-only* (no machine type,
ids that only keep the count), never an error.

What the state of an annotation means (both annotations):

- absent: nothing is known; the node serves its resources by count;
- a newer minor version: read, its new fields ignored;
- broken, or of another major version: as if absent, and a problem that is reported to operators;
- a topology whose GPUs have no UUID, or of fewer devices than are allocatable: it does not name
  what the kubelet gives away, so no plan can; count-only, and reported;
- a topology of more devices than the node's capacity, beyond those of `FALLEN_GPUS`: the kubelet
  cannot give away what it names, and rating its sets could take seconds; count-only, reported, and
  no tables are built for it. A report needs no such check: ids that the node lacks are left out.

A node that serves nothing now has no tables built either: what its topology must name is unknown.

A node serves each of the configured resources of which more than 0 are allocatable (whole GPUs and
MIG profiles, say). A node without any serves nothing: one whose plugin has not registered looks
like that, and so does one that serves the resource through DRA. The topology is that of the first
configured resource that the node has (by its capacity, so that unhealthy devices do not pass it on
to the next one): GPUs, or partitions where these are offered under that name. The others are served
by count: what the kubelet counts as allocatable is healthy, and which partition a pod gets is for
the node's plugin to choose. Capacity counts what the resource counts.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from extender.state.domains import domain_labels
from extender.state.node_labels import known_labels
from extender.state.node_record import BY_COUNT, NodeRecord, NodeResource, fingerprint
from topology.annotations import DevicesReport, decode_devices
from topology.errors import CodecError, quote
from topology.groups import DEFAULT_FAMILIES, domain_path
from topology.model import (
    MAX_GPUS,
    UNKNOWN_WORTH,
    WORTH_EXPECTED,
    NodeWorth,
    decode_gpus,
    decode_topology,
    names,
    node_worth,
    parse_worth,
)
from topology.value import topology_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extender.snapshot import MachineType
    from extender.state.machine_types import NodeClasses
    from kube.objects import NodeFacts
    from topology.groups import LevelFamily
    from topology.model import Gpu, NodeTopology

__all__ = ["NodeReader"]

FALLEN_GPUS = 2
"""GPUs that a topology may name beyond the node's capacity, each with its partitions.

A GPU that fell off the bus leaves the capacity when the device plugin starts again, and stays in
the topology until the plugin, which may be another program, reads the machine again. They fall one
by one, or in pairs where two are behind one PCIe switch or on one module. Where more are missing,
plans would name devices that the kubelet does not have, so that counting serves better."""
MAX_PARTITIONS = 8
"""Partitions of one GPU in that count, so that a topology cannot put all its devices on one GPU.
MIG makes up to 7 (MIG User Guide, Supported MIG Profiles), AMD's CPX mode of an MI300X makes 8."""
MAX_AHEAD = 8192
"""Topologies remembered between `unbuilt` and `read` (1 KB each, and the text, which the caller has
anyway): a whole list of nodes. Forgotten ones are read again."""
MAX_UNKNOWN_MODELS = 1024
"""GPU models without a known worth that are remembered; then all are reported once more."""
_EMPTY_REPORT = DevicesReport()


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
    worth: NodeWorth
    is_measured: bool


class NodeReader:
    """Reads nodes; remembers for a while what it read ahead of `read`."""

    def __init__(
        self,
        resources: Sequence[str],
        classes: NodeClasses,
        gpu_worth: Sequence[tuple[str, float]] = (),
        families: Sequence[LevelFamily] = DEFAULT_FAMILIES,
    ) -> None:
        self._resources = tuple(resources)
        self._classes = classes
        self._gpu_worth = gpu_worth
        self._families = families
        self._domain_labels = domain_labels(families)
        # For each GPU model that is in no row of the table, the node on which it is reported.
        self._unknown_models: dict[str, str] = {}
        self._ahead: dict[str, _Reading] = {}

    def unbuilt(self, facts: NodeFacts) -> NodeTopology | None:
        """The topology whose machine type `read` would have to build, None if there is none."""
        text, resource = facts.topology, self._described(facts)
        if text is None or facts.allocatable.get(resource, 0) <= 0:
            return None
        reading, topology = self._ahead.get(text), None
        if reading is None:
            topology, _ = _decode(text, facts, resource)
            if topology is None:
                return None
            reading = _read_topology(topology, self._gpu_worth)
            if len(self._ahead) >= MAX_AHEAD:
                self._ahead.clear()
            self._ahead[text] = reading
        if self._classes.has(reading.digest) or _misfit(reading.named, facts, resource):
            return None
        return decode_topology(text) if topology is None else topology

    def offer_machine(self, machine: MachineType) -> None:
        """Take a machine type built elsewhere (`build_machine_type`), for the same demand."""
        self._classes.offer(machine)

    def read(self, facts: NodeFacts) -> NodeRecord:
        """Read a node; never raises."""
        problems: list[str] = []
        served = [one for one in self._resources if facts.allocatable.get(one, 0) > 0]
        report, resources = _EMPTY_REPORT, _SERVES_NOTHING
        if served:
            described, reading, machine = self._described(facts), None, None
            if facts.topology is not None and described in served:
                reading, machine = self._machine(facts, facts.topology, described, problems)
            worth = UNKNOWN_WORTH
            if reading is not None:
                worth = self._worth(facts, reading.worth, problems)
            report, is_readable = _read_report(facts.devices, problems)
            resources = tuple(
                _counted(one, facts.allocatable[one], facts.capacity.get(one, 0))
                if reading is None or one != described
                # Where it is unknown which devices are bad, none may be chosen by name.
                else NodeResource.of(
                    one,
                    reading.ids,
                    machine=machine if is_readable else None,
                    label=reading.label if is_readable else BY_COUNT,
                    worth=worth,
                    report=report,
                )
                for one in served
            )
        return NodeRecord(
            name=sys.intern(facts.name),
            zone=sys.intern(facts.zone),
            resources=resources,
            has_soft_taint=facts.has_soft_taint,
            report=report,
            problems=tuple(problems),
            fingerprint=fingerprint(facts),
            path=domain_path(facts.domains, self._families),
            labels=known_labels(facts, self._domain_labels),
            kubernetes_taints=facts.kubernetes_taints,
        )

    def _worth(self, facts: NodeFacts, worth: NodeWorth, problems: list[str]) -> float:
        """What a device is worth: by the node's label, else by its GPUs' models."""
        if facts.worth is not None:
            per_gpu = parse_worth(facts.worth)
            if per_gpu is not None:
                return per_gpu * worth.gpus_per_device
            problems.append(
                f"label {names.WORTH} is {quote(facts.worth)}, expected {WORTH_EXPECTED}: the "
                "models of the node's GPUs decide what these are worth"
            )
        if len(self._unknown_models) > MAX_UNKNOWN_MODELS:
            self._unknown_models.clear()
        problems.extend(
            f"GPU model {quote(model)} has no known worth and counts as {UNKNOWN_WORTH:g}, like a "
            f"V100: set gpu_worth or label its nodes {names.WORTH} (reported for one node of the "
            "model)"
            for model in worth.unknown_models
            if self._unknown_models.setdefault(model, facts.name) == facts.name
        )
        return worth.per_device

    def _described(self, facts: NodeFacts) -> str:
        """The resource whose devices the topology names: the first that the node has, or empty."""
        return next((one for one in self._resources if _has(facts, one)), "")

    def _machine(
        self, facts: NodeFacts, text: str, resource: str, problems: list[str]
    ) -> tuple[_Reading, MachineType] | tuple[None, None]:
        """The machine type, if the topology names the devices that the kubelet gives away."""
        reading, topology = self._ahead.pop(text, None), None
        if reading is None:
            topology, problem = _decode(text, facts, resource)
            reading = None if topology is None else _read_topology(topology, self._gpu_worth)
        else:
            problem = _misfit(reading.named, facts, resource)
        if reading is None or problem:
            problems.append(problem)
            return None, None
        if topology is None and (reading.is_measured or not self._classes.has(reading.digest)):
            topology = decode_topology(text)
        return reading, self._classes.machine(reading.digest, topology)


def _has(facts: NodeFacts, resource: str) -> bool:
    """Whether the node has such devices, be they all unhealthy."""
    return facts.allocatable.get(resource, 0) > 0 or facts.capacity.get(resource, 0) > 0


def _counted(resource: str, n_healthy: int, n_devices: int) -> NodeResource:
    """A resource whose devices are known by number: those allocatable, and all of its capacity."""
    return NodeResource.of(
        resource,
        _placeholders(min(n_healthy, MAX_GPUS)),
        machine=None,
        label=BY_COUNT,
        worth=UNKNOWN_WORTH,
        report=_EMPTY_REPORT,
        n_devices=max(n_healthy, n_devices),
    )


def _decode(
    text: str, facts: NodeFacts, resource: str
) -> tuple[NodeTopology, str] | tuple[None, str]:
    """The topology, or why it is not used. The pairs of one that is not used are not read."""
    try:
        problem = _misfit(_names_of(decode_gpus(text)), facts, resource)
        return (None, problem) if problem else (decode_topology(text), "")
    except CodecError as error:
        return None, str(error)


def _names_of(gpus: Sequence[Gpu]) -> _Named:
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


def _read_topology(topology: NodeTopology, gpu_worth: Sequence[tuple[str, float]]) -> _Reading:
    digest = topology_digest(topology)
    return _Reading(
        digest=digest,
        label=_label(tuple(gpu.model for gpu in topology.gpus), digest[:8]),
        ids=tuple(sys.intern(gpu.uuid) for gpu in topology.gpus if gpu.uuid is not None),
        named=_names_of(topology.gpus),
        worth=node_worth(topology.gpus, gpu_worth),
        is_measured=topology.measurement is not None,
    )


def _read_report(text: str | None, problems: list[str]) -> tuple[DevicesReport, bool]:
    """The report (empty where there is none), and whether all of it could be read."""
    if text is not None:
        try:
            return decode_devices(text), True
        except CodecError as error:
            problems.append(str(error))
            return _EMPTY_REPORT, False
    return _EMPTY_REPORT, True


_SERVES_NOTHING: tuple[NodeResource, ...] = (
    NodeResource(
        "", (), None, "serves no GPU resource", UNKNOWN_WORTH, 0, positions={}, n_devices=0
    ),
)


@lru_cache(maxsize=MAX_GPUS + 1)
def _placeholders(count: int) -> tuple[str, ...]:
    return tuple(f"device-{i}" for i in range(count))


@lru_cache(maxsize=256)
def _label(models: tuple[str | None, ...], digest: str) -> str:
    """The machine type's name; the digest distinguishes one with a dead link from a whole one."""
    counts = Counter("unknown GPU" if model is None else model for model in models)
    named = " + ".join(f"{count}x {model}" for model, count in counts.items())
    return f"{named} ({digest})"
