"""Which container has which GPUs of a node, and which are free: from what a cluster shows now.

What it answers: for a node and its pods the sets that are known by name, what is free, and what is
not known and why. It guesses nothing: where a pod's GPUs are known by number only, it is not known
either which GPUs of that node are free.

Who says which GPUs a container has, most trusted first:

1. the node's plugin, in `coterie.gpu/devices` on the Node (from the kubelet's PodResources);
2. the kubelet, in `pod.status` (from Kubernetes 1.36);
3. `coterie.gpu/allocated` on the pod;
4. `coterie.gpu/plan` on the pod.

The first that names the container counts, for this container alone. Where two containers name one
GPU, the more trusted one has it, then the first in the list, and the other's are not known.

A device that is no whole GPU of the topology (a partition, a replica of a shared GPU) makes no set.
A replica `GPU-…::2` takes its GPU all the same. The plugin's words about pods that have ended do
not count, and those about pods that are not in the list take their GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.annotations import DevicesReport, decode_allocation, decode_devices
from topology.audit.cluster.offer import described_resource, offer_of
from topology.audit.cluster.reasons import AuditProblem, ProblemKind, UnjudgedReason
from topology.errors import CodecError
from topology.model import decode_topology, gpus_of, mask_of, topology_digest
from topology.select import ContainerRequest, ContainerRole, pod_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topology.audit.cluster.objects import AuditNode, AuditPod
    from topology.model import NodeTopology

__all__ = ["HeldSet", "NodeHoldings", "Unjudged", "hold_node"]

SOURCES = ("report", "status", "allocated", "plan")
"""Who says which GPUs a container has, most trusted first."""


_PAIR = 2
_NO_REPORT = DevicesReport()


@dataclass(frozen=True, slots=True)
class HeldSet:
    """Two or more GPUs of one container, as a mask, and who says so."""

    pod: AuditPod
    container: str
    mask: int
    source: str


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A container that cannot be judged; `mask` is what it has, 0 where that is not known."""

    pod: AuditPod
    container: str
    n_gpus: int
    reason: UnjudgedReason
    mask: int = 0


@dataclass(slots=True)
class NodeHoldings:
    """A node and who has its GPUs.

    `topology` is None where it cannot be used. `resource` is the one whose devices it names, and
    `parts` those that are no whole GPUs. `located` are the GPUs of pods with known ones, `free` the
    healthy ones that no pod has: None where that is not known, and `problems` say why. Of the free
    ones `n_split` are in MIG mode, not known which, and cannot be had.
    """

    node: AuditNode
    n_gpus: int
    resource: str = ""
    topology: NodeTopology | None = None
    digest: str = ""
    parts: int = 0
    report: DevicesReport = _NO_REPORT
    unhealthy: int = 0
    sets: list[HeldSet] = field(default_factory=list[HeldSet])
    unjudged: list[Unjudged] = field(default_factory=list[Unjudged])
    located: int = 0
    free: int | None = None
    n_split: int = 0
    n_unlisted: int = 0
    problems: list[AuditProblem] = field(default_factory=list[AuditProblem])


@dataclass(frozen=True, slots=True)
class _Named:
    """The devices of a container: whole GPUs as a mask, and whether all its devices are such."""

    pod: AuditPod
    container: str
    n_requested: int
    source: str
    mask: int
    is_whole: bool
    is_init: bool


def hold_node(node: AuditNode, pods: Sequence[AuditPod], ended: frozenset[str]) -> NodeHoldings:
    """Find out who has which GPUs of a node; `ended` are the uids of pods that have ended.

    `pods` are those of the node that have not. O(devices + pods).
    """
    found = NodeHoldings(node, 0)
    _read_annotations(found)
    resource = found.resource = described_resource(node, pods, n_gpus=found.n_gpus)
    if found.topology is None:
        offered = node.allocatable.get(resource, 0)
        found.n_gpus = max(offered, node.capacity.get(resource, 0))
        found.unjudged += [
            Unjudged(pod, one.name, n, UnjudgedReason.NO_TOPOLOGY)
            for pod in pods
            for one in pod.containers
            if (n := one.n_gpus(resource)) >= _PAIR
        ]
        return found
    gpus = found.topology.gpus
    positions = {gpu.uuid: i for i, gpu in enumerate(gpus) if gpu.uuid is not None}
    found.parts = mask_of(i for i, gpu in enumerate(gpus) if gpu.parent is not None)
    found.unhealthy = mask_of(
        positions[one.id] for one in found.report.unhealthy if one.id in positions
    )
    fixed, is_known = _NodeReader(found, positions).read(pods, ended)
    offer = offer_of(node, resource, found.topology, found.unhealthy)
    free = offer.gpus & ~(found.located | fixed | found.unhealthy)
    if offer.problem is not None:
        found.problems.append(offer.problem)
    elif is_known:
        is_none_left = free.bit_count() <= offer.n_split
        found.n_split = 0 if is_none_left else offer.n_split
        found.free = 0 if is_none_left and offer.n_split else free
    return found


def _read_annotations(found: NodeHoldings) -> None:
    node = found.node
    try:
        if node.topology is None:
            text = "it has no annotation coterie.gpu/topology"
            found.problems.append(AuditProblem(ProblemKind.NO_TOPOLOGY, text))
            return
        topology = decode_topology(node.topology)
        if node.devices is not None:
            found.report = decode_devices(node.devices)
    except CodecError as error:
        found.problems.append(AuditProblem(ProblemKind.UNREADABLE, str(error)))
        return
    if any(gpu.uuid is None for gpu in topology.gpus):
        text = "topology: GPUs have no uuid, expected one for each"
        found.problems.append(AuditProblem(ProblemKind.UNREADABLE, text))
        return
    found.topology, found.digest = topology, topology_digest(topology)
    found.n_gpus = topology.n_gpus


class _NodeReader:
    """Reads the pods of a node whose topology is known."""

    def __init__(self, found: NodeHoldings, positions: Mapping[str, int]) -> None:
        self._found = found
        self._resource = found.resource
        self._domain = found.resource.partition("/")[0]
        self._positions = positions
        self._fixed = 0
        self._n_unknown = 0
        # By GPU the pod that has it, and whether an init container, which may hand it on.
        self._taken: dict[int, tuple[str, bool]] = {}

    def read(self, pods: Sequence[AuditPod], ended: frozenset[str]) -> tuple[int, bool]:
        """Fill in sets and what is not known; returns the fixed GPUs, and whether all is known."""
        report = self._found.report
        reported: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for hold in report.holds:
            if hold.uid not in ended and self._is_ours(hold.resource, hold.ids):
                reported.setdefault(hold.uid, []).append((hold.container, hold.ids))
        lacking = {
            (one.uid, one.container) for one in report.missing if one.resource == self._resource
        }
        named = [one for pod in pods for one in self._name(pod, reported.pop(pod.uid, []), lacking)]
        for one in sorted(named, key=lambda one: SOURCES.index(one.source)):
            self._hold(one)
        for holds in reported.values():
            mask = self._shares(one for _, ids in holds for one in ids) & ~self._found.located
            self._found.n_unlisted += (mask & ~self._fixed).bit_count()
            self._fixed |= mask
        if self._n_unknown:
            containers = "1 container" if self._n_unknown == 1 else f"{self._n_unknown} containers"
            text = f"GPUs of {containers} are known by number only: which are free is not known"
            self._found.problems.append(AuditProblem(ProblemKind.BY_NUMBER, text))
        return self._fixed, not self._n_unknown

    def _is_ours(self, resource: str, ids: Sequence[str]) -> bool:
        return resource == self._resource or any(one in self._positions for one in ids)

    def _is_foreign(self, resources: Iterable[str]) -> bool:
        """Whether another device plugin gave the devices: any GPU of the node may be of them."""
        return all(one.partition("/")[0] != self._domain for one in resources)

    def _shares(self, ids: Iterable[str]) -> int:
        """The GPUs of which some ids are, or are shares."""
        bases = (one.partition("::")[0] for one in ids)
        return mask_of({self._positions[one] for one in bases if one in self._positions})

    def _name(
        self,
        pod: AuditPod,
        reported: Sequence[tuple[str, tuple[str, ...]]],
        lacking: set[tuple[str, str]],
    ) -> list[_Named]:
        """The containers of a pod whose devices are known; the others become `unjudged`."""
        ids = self._ids(pod, reported)
        named: list[_Named] = []
        unknown: list[tuple[str, int]] = []
        known: set[str] = set()
        for one in pod.containers:
            n = one.requests.get(self._resource, 0)
            source, own = ids.get(one.name, ("", ()))
            known.update(own)
            if (pod.uid, one.name) in lacking and not own:
                self._leave(pod, one.name, n, UnjudgedReason.RUNS_WITHOUT)
            elif own and len(own) >= n:
                mask = self._shares(own)
                is_whole = mask.bit_count() == len(own) and not mask & self._found.parts
                is_whole = is_whole and all(device in self._positions for device in own)
                is_init = one.role is ContainerRole.INIT
                named.append(_Named(pod, one.name, n, source, mask, is_whole, is_init))
            elif not n and self._is_foreign(one.requests):
                unknown.append((one.name, max(one.requests.values())))
            elif not n:
                self._leave(pod, one.name, max(one.requests.values()), UnjudgedReason.NOT_WHOLE)
            elif one.role is not ContainerRole.INIT:
                unknown.append((one.name, n))
        if not unknown:
            unknown = self._unnamed(pod, known, lacking)
        for container, n in unknown:
            self._n_unknown += 1
            self._leave(pod, container, n, UnjudgedReason.BY_NUMBER)
        return named

    def _unnamed(
        self, pod: AuditPod, known: set[str], lacking: set[tuple[str, str]]
    ) -> list[tuple[str, int]]:
        """What a pod has beside the devices that are named, such as an init container's."""
        if any(uid == pod.uid for uid, _ in lacking):
            return []
        requests = tuple(
            ContainerRequest(one.name, n, one.role)
            for one in pod.containers
            if (n := one.requests.get(self._resource, 0))
        )
        n_more = pod_size(requests) - len(known) if requests else 0
        return [(requests[0].name, n_more)] if n_more > 0 else []

    def _ids(
        self, pod: AuditPod, reported: Sequence[tuple[str, tuple[str, ...]]]
    ) -> dict[str, tuple[str, tuple[str, ...]]]:
        """By container the most trusted source that names devices of this node, and these."""
        status = [
            (one.container, one.ids) for one in pod.status if self._is_ours(one.resource, one.ids)
        ]
        by_source = zip(
            SOURCES,
            (reported, status, self._planned(pod, pod.allocated), self._planned(pod, pod.plan)),
            strict=True,
        )
        found: dict[str, tuple[str, tuple[str, ...]]] = {}
        for source, named in by_source:
            of_source: dict[str, tuple[str, ...]] = {}
            for container, ids in named:
                of_source[container] = of_source.get(container, ()) + ids
            for container, ids in of_source.items():
                found.setdefault(container, (source, ids))
        return found

    def _planned(self, pod: AuditPod, text: str | None) -> list[tuple[str, tuple[str, ...]]]:
        """What an annotation says; nothing where it cannot be read or is about another node."""
        if text is None:
            return []
        try:
            node, containers = decode_allocation(text)
        except CodecError:
            return []
        if node != pod.node:
            return []
        return [(one.name, one.ids) for one in containers if self._is_ours(one.resource, one.ids)]

    def _hold(self, one: _Named) -> None:
        found = self._found
        if not one.is_whole:
            self._fixed |= one.mask
            self._leave(one.pod, one.container, max(one.n_requested, 1), UnjudgedReason.NOT_WHOLE)
            return
        gpus = gpus_of(one.mask)
        if any(self._is_anothers(one, gpu) for gpu in gpus):
            self._n_unknown += 1
            self._leave(one.pod, one.container, one.mask.bit_count(), UnjudgedReason.TWO_OWNERS)
            return
        if not one.is_init and one.mask.bit_count() >= _PAIR:
            found.sets.append(HeldSet(one.pod, one.container, one.mask, one.source))
        found.located |= one.mask
        for gpu in gpus:
            self._taken[gpu] = (one.pod.uid, one.is_init)

    def _is_anothers(self, one: _Named, gpu: int) -> bool:
        uid, is_init = self._taken.get(gpu, (one.pod.uid, True))
        return uid != one.pod.uid or not (is_init or one.is_init)

    def _leave(self, pod: AuditPod, container: str, n_gpus: int, reason: UnjudgedReason) -> None:
        self._found.unjudged.append(Unjudged(pod, container, n_gpus, reason))
