"""The audit of a cluster: the report of what its pods have and could have.

What it answers: the whole report (`topology.audit.values`), whoever scheduled the pods and
whichever device plugin gave the GPUs. Figures come from the functions that place pods. What is not
known is named and is in no figure. It changes nothing and reads no file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from topology.audit.cluster import hold_node
from topology.audit.figures import MachineFigures
from topology.audit.judging import figure, judge_node, leave_split_gpus_out
from topology.audit.sentences import headline, notes
from topology.audit.values import (
    AuditFigure,
    AuditReport,
    AuditSet,
    ClaimingPod,
    DegradedGpu,
    MachineAudit,
    NotJudged,
    PodCounts,
    UnavailableNode,
    UncoveredNode,
    UnhealthyGpus,
)
from topology.model import REFERENCE_MESSAGE_BYTES, links_down

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topology.audit.cluster import AuditCluster, AuditPod, NodeHoldings, Unjudged
    from topology.model import NodeTopology

__all__ = ["audit"]

SCHEMA_VERSION = 1
_PAIR = 2


@dataclass(slots=True)
class _MachineType:
    """The nodes of one machine type and what is judged there."""

    figures: MachineFigures
    nodes: list[NodeHoldings] = field(default_factory=list["NodeHoldings"])
    sets: list[AuditSet] = field(default_factory=list[AuditSet])


def audit(cluster: AuditCluster) -> AuditReport:
    """Audit what runs on a cluster.

    O(nodes + pods) and, for each machine type, its tables and one computation for each state of
    its GPUs that occurs (`topology.audit.figures`).
    """
    running = _running(cluster.pods)
    ended = frozenset(pod.uid for pod in cluster.pods if pod.has_ended)
    nodes = [
        hold_node(node, running.get(node.name, ()), ended)
        for node in cluster.nodes
        if node.name in running
        or node.topology is not None
        or node.unreadable
        or _has_gpus(node.capacity)
        or _has_gpus(node.allocatable)
    ]
    types, unjudged = _judge(nodes)
    sets = sorted(
        (one for machine in types.values() for one in machine.sets),
        key=lambda one: (-one.loss, one.namespace, one.pod, one.container),
    )
    pods = [(pod, node) for node in nodes for pod in running.get(node.node.name, ())]
    counts = _count_pods(pods, sets)
    machines = sorted(
        (_machine_audit(digest, one) for digest, one in types.items()),
        key=lambda one: (-one.n_gpus, one.name, one.digest),
    )
    by_name = sorted(nodes, key=lambda node: node.node.name)
    n_covered = sum(not node.problems for node in nodes)
    return AuditReport(
        schema_version=SCHEMA_VERSION,
        message_bytes=REFERENCE_MESSAGE_BYTES,
        headline=headline(counts, n_nodes=len(nodes), n_covered=n_covered),
        notes=notes(machines),
        n_nodes=len(cluster.nodes),
        n_gpu_nodes=len(nodes),
        n_covered_nodes=n_covered,
        n_gpus=sum(node.n_gpus for node in nodes),
        n_free=sum(one.n_free for one in machines),
        n_stranded=sum(one.n_stranded for one in machines),
        pods=counts,
        n_gpus_of_unlisted_pods=sum(node.n_unlisted for node in nodes),
        n_pods_of_unlisted_nodes=sum(map(len, running.values())) - len(pods),
        machines=tuple(machines),
        sets=tuple(sets),
        not_judged=_not_judged(unjudged),
        uncovered_nodes=tuple(
            UncoveredNode(node.node.name, node.n_gpus, problem.text, problem.kind.value)
            for node in by_name
            for problem in node.problems
        ),
        split_nodes=tuple(node.node.name for node in by_name if node.n_split),
        unavailable_nodes=tuple(map(_unavailable, filter(_takes_none, by_name))),
        claiming_pods=_claiming_pods(cluster),
        degraded=tuple(
            one
            for node in by_name
            if node.topology is not None
            for one in _degraded(node.node.name, node.topology)
        ),
        unhealthy=_unhealthy(nodes),
    )


def _running(pods: Iterable[AuditPod]) -> Mapping[str, Sequence[AuditPod]]:
    """The pods that have not ended, by node."""
    running: dict[str, list[AuditPod]] = defaultdict(list)
    for pod in pods:
        if not pod.has_ended:
            running[pod.node].append(pod)
    return dict(running)


def _has_gpus(counts: Mapping[str, int]) -> bool:
    return any(counts.values())


_Left = tuple["Unjudged", "NodeHoldings", "AuditFigure | None"]


def _judge(nodes: Iterable[NodeHoldings]) -> tuple[dict[str, _MachineType], list[_Left]]:
    """The machine types with their sets, and the containers that are in no figure."""
    types: dict[str, _MachineType] = {}
    unjudged: list[_Left] = []
    for node in nodes:
        unjudged += [(one, node, None) for one in node.unjudged]
        if node.topology is None:
            continue
        machine = types.get(node.digest)
        if machine is None:
            machine = types[node.digest] = _MachineType(MachineFigures(node.topology))
        leave_split_gpus_out(node, machine.figures)
        machine.nodes.append(node)
        sets, left = judge_node(node, machine.figures)
        machine.sets += sets
        unjudged += [
            (one, node, figure(machine.figures.worth(one.mask)) if one.mask else None)
            for one in left
        ]
    return types, unjudged


def _count_pods(
    pods: Sequence[tuple[AuditPod, NodeHoldings]], sets: Iterable[AuditSet]
) -> PodCounts:
    worst: dict[tuple[str, str], AuditSet] = {}
    for one in sets:  # the largest loss first
        worst.setdefault((one.namespace, one.pod), one)
    losses = [one.loss for one in worst.values() if not one.is_best]
    single = [
        pod
        for pod, node in pods
        if all(one.n_gpus(node.resource) < _PAIR for one in pod.containers)
    ]
    return PodCounts(
        n_all=len(pods),
        n_single=len(single),
        n_judged=len(worst),
        n_best=len(worst) - len(losses),
        n_losing=len(losses),
        mean_loss=round(fmean(losses), 4) if losses else None,
    )


def _machine_audit(digest: str, machine: _MachineType) -> MachineAudit:
    nodes, sets = machine.nodes, machine.sets
    topology = machine.figures.machine.topology
    models = Counter(gpu.model or "unknown GPU" for gpu in topology.gpus)
    free = [node.free for node in nodes if node.free is not None and node.node.takes_pods]
    return MachineAudit(
        digest=digest,
        name=" + ".join(f"{count}x {model}" for model, count in models.items()),
        n_nodes=len(nodes),
        n_nodes_free_unknown=sum(node.free is None for node in nodes),
        n_gpus=sum(node.n_gpus for node in nodes),
        n_free=sum(mask.bit_count() for mask in free),
        n_stranded=sum(machine.figures.n_stranded(mask) for mask in free),
        n_unhealthy=sum(node.unhealthy.bit_count() for node in nodes),
        n_pods=len({(one.namespace, one.pod) for one in sets}),
        n_sets=len(sets),
        has=_mean([one.has for one in sets]),
        could_have=_mean([one.could_have for one in sets]),
        best_effort=_mean([one.best_effort for one in sets if one.best_effort is not None]),
        is_even=machine.figures.is_even,
    )


def _mean(figures: Sequence[AuditFigure]) -> AuditFigure | None:
    if not figures:
        return None
    return AuditFigure(
        round(fmean(one.gbytes_per_s for one in figures), 3),
        round(fmean(one.share for one in figures), 4),
    )


def _not_judged(unjudged: Iterable[_Left]) -> tuple[NotJudged, ...]:
    found = (
        NotJudged(
            namespace=one.pod.namespace,
            pod=one.pod.name,
            container=one.container,
            node=node.node.name,
            n_gpus=one.n_gpus,
            reason=one.reason.value,
            has=has,
        )
        for one, node, has in unjudged
    )
    return tuple(sorted(found, key=lambda one: (one.reason, one.namespace, one.pod, one.container)))


def _takes_none(node: NodeHoldings) -> bool:
    return not node.node.takes_pods


def _unavailable(node: NodeHoldings) -> UnavailableNode:
    reasons = {"cordoned": node.node.is_cordoned, "NotReady": not node.node.is_ready}
    reason = " and ".join(word for word, is_so in reasons.items() if is_so)
    n_free = None if node.free is None else node.free.bit_count()
    return UnavailableNode(node.node.name, n_free, reason)


def _claiming_pods(cluster: AuditCluster) -> tuple[ClaimingPod, ...]:
    names = {node.name for node in cluster.nodes}
    found = (
        ClaimingPod(one.namespace, one.name, one.node)
        for one in cluster.claiming
        if one.node in names
    )
    return tuple(sorted(found, key=lambda one: (one.namespace, one.pod)))


def _degraded(node: str, topology: NodeTopology) -> Iterator[DegradedGpu]:
    for one in links_down(topology):
        uuid = topology.gpus[one.gpu].uuid
        yield DegradedGpu(node, one.gpu, uuid, one.kind.value, one.n_links, one.n_expected)


def _unhealthy(nodes: Iterable[NodeHoldings]) -> tuple[UnhealthyGpus, ...]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for one in node.report.unhealthy:
            by_reason[one.reason].append(node.node.name)
    found = (
        UnhealthyGpus(reason, len(names), tuple(sorted(set(names))))
        for reason, names in by_reason.items()
    )
    return tuple(sorted(found, key=lambda one: (-one.n_gpus, one.reason)))
