"""What an audit found beside the figures, for a terminal: one line per reason, with what to do.

What it answers: which nodes, containers and GPUs a person has to look at, how many there are of
each kind, and the next step. It computes nothing and wraps no line; the JSON has all
names. All foreign text passes `topology.printable`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.audit.cluster import ProblemKind, UnjudgedReason
from topology.audit.shortened import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topology.audit.values import AuditReport

__all__ = ["AuditFinding", "list_findings"]

MOST_NAMED = 3
_NAME_WIDTH = 48
_BY_DESIGN = "not judged by design"
_NODES: Mapping[str, tuple[str, str]] = {
    ProblemKind.NO_TOPOLOGY.value: (
        "no annotation coterie.gpu/topology",
        "install the node plugin as a reporter there, or read its log where it runs",
    ),
    ProblemKind.UNREADABLE.value: (
        "an annotation that cannot be read (-o json says why)",
        "run the reporter and this program in one version",
    ),
    ProblemKind.QUANTITY.value: (
        "a number of GPUs that cannot be read (-o json says which)",
        "correct status.capacity and status.allocatable of the node",
    ),
    ProblemKind.BY_NUMBER.value: (
        "GPUs of pods known by number only",
        "see that the reporter runs there; for new pods audit again after 30 s",
    ),
    ProblemKind.SHARED.value: ("GPUs in shares (time-slicing, MPS) or in MIG mode", _BY_DESIGN),
    ProblemKind.FEWER.value: (
        "fewer GPUs offered than the topology shows healthy",
        "read the log of the device plugin there: it holds GPUs back",
    ),
}
"""By the kind of a node's problem: what it is, for one node or several, and the next step."""
_CONTAINERS: Mapping[str, tuple[str, str]] = {
    UnjudgedReason.NO_TOPOLOGY.value: (
        "no topology of the node that can be read",
        "cover the node first, as above",
    ),
    UnjudgedReason.BY_NUMBER.value: (
        "GPUs known by number only",
        "see that the reporter runs there; for new pods audit again after 30 s",
    ),
    UnjudgedReason.NOT_WHOLE.value: ("no whole GPUs but shares or MIG instances", _BY_DESIGN),
    UnjudgedReason.RUNS_WITHOUT.value: (
        "running without the GPUs that were requested",
        "delete the pod, so that it starts again with GPUs",
    ),
    UnjudgedReason.TWO_OWNERS.value: (
        "a GPU that another container has too, by a source that is trusted as much or more",
        "audit again after 30 s: one of the two sources is out of date",
    ),
    UnjudgedReason.FREE_UNKNOWN.value: (
        "free GPUs of the node not known",
        "cover the node first, as above",
    ),
    UnjudgedReason.UNEQUAL.value: ("more than 16 GPUs with unequal links on the node", _BY_DESIGN),
}
"""The same by the reason of a container."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """What was found, and the next step."""

    text: str
    step: str


def list_findings(report: AuditReport) -> Iterator[AuditFinding]:
    """List what was found, what hinders the audit first."""
    yield from _uncovered(report)
    yield from _not_judged(report)
    yield from _without_figures(report)
    yield from _hardware(report)
    if report.n_gpus_of_unlisted_pods:
        n_gpus = _count(report.n_gpus_of_unlisted_pods, "GPU")
        text = f"{n_gpus} of pods that are not in the list of pods"
        yield AuditFinding(text, "list the pods of all namespaces")
    if report.n_pods_of_unlisted_nodes:
        n_pods = _count(report.n_pods_of_unlisted_nodes, "pod")
        text = f"{n_pods} with GPUs on nodes that are not in the list of nodes"
        yield AuditFinding(text, "list all nodes")


def _uncovered(report: AuditReport) -> Iterator[AuditFinding]:
    """Each node once, by its first problem."""
    kinds = {one.node: one.kind for one in reversed(report.uncovered_nodes)}
    yield from _by_reason(sorted((kind, node) for node, kind in kinds.items()), "node", _NODES)


def _not_judged(report: AuditReport) -> Iterator[AuditFinding]:
    found = [(one.reason, f"{one.namespace}/{one.pod}") for one in report.not_judged]
    yield from _by_reason(found, "container", _CONTAINERS)


def _by_reason(
    found: Sequence[tuple[str, str]], noun: str, texts: Mapping[str, tuple[str, str]]
) -> Iterator[AuditFinding]:
    """A line for each reason, the most frequent first."""
    names: dict[str, list[str]] = defaultdict(list)
    for reason, name in found:
        names[reason].append(name)
    verb = "covered" if noun == "node" else "judged"
    for reason, those in sorted(names.items(), key=lambda one: (-len(one[1]), one[0])):
        text, step = texts[reason]
        count = _count(len(those), noun)
        yield AuditFinding(f"{count} not {verb}, {text}: {_some(those)}", step)


def _without_figures(report: AuditReport) -> Iterator[AuditFinding]:
    """GPUs that count as free and are not, or the other way round."""
    nodes = [f"{one.node} ({one.reason})" for one in report.unavailable_nodes]
    if nodes:
        n_free = sum(one.n_free or 0 for one in report.unavailable_nodes)
        yield AuditFinding(
            f"{_count(len(nodes), 'node')} cordoned or NotReady, with {_count(n_free, 'GPU')} that "
            f"would be free and {'is' if n_free == 1 else 'are'} not counted: {_some(nodes)}",
            "uncordon or repair to use them",
        )
    pods = [f"{one.namespace}/{one.pod}" for one in report.claiming_pods]
    if pods:
        yield AuditFinding(
            f"GPUs by DRA are not seen, and may count as free; {_count(len(pods), 'pod')} with "
            f"resource claims: {_some(pods)}",
            "list the claims: kubectl get resourceclaims -A",
        )
    if report.split_nodes:
        count = _count(len(report.split_nodes), "node")
        yield AuditFinding(
            f"{count} with free GPUs in MIG mode, not known which, so that the figures take the "
            f"least favourable ones: {_some(report.split_nodes)}",
            "run the reporter there with MIG_STRATEGY=mixed",
        )


def _hardware(report: AuditReport) -> Iterator[AuditFinding]:
    if report.degraded:
        gpus = [
            f"{one.node} GPU {one.gpu} ({one.n_links} of {one.n_expected})"
            for one in report.degraded
        ]
        yield AuditFinding(
            f"{_count(len(gpus), 'GPU')} with links down: {_some(gpus)}",
            "drain the node, and reset or repair the GPU",
        )
    if report.unhealthy:
        reasons = [f"{one.reason} ({one.n_gpus})" for one in report.unhealthy]
        n_gpus = sum(one.n_gpus for one in report.unhealthy)
        yield AuditFinding(
            f"{_count(n_gpus, 'unhealthy GPU')}: {_some(reasons)}",
            "drain the node, and reset or replace the GPU",
        )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    unique = list(dict.fromkeys(names))
    shown = shorten(unique[:MOST_NAMED], _NAME_WIDTH)
    n_more = len(unique) - len(shown)
    return ", ".join(shown) + (f" and {n_more} more" if n_more else "")
