"""The shape of an audit: what its JSON holds, and what its text lays out.

It computes nothing (`topology.audit.compute` does). The field names are the JSON contract
(docs/schemas/audit.json, generated from these classes) under the rules of `topology.report.values`:
units stand in the names, GPUs are named by index, `null` means unknown, never zero; within
`schema_version` 1 fields may be added, but none goes or changes its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AuditFigure",
    "AuditReport",
    "AuditSet",
    "ClaimingPod",
    "DegradedGpu",
    "MachineAudit",
    "NotJudged",
    "PodCounts",
    "UnavailableNode",
    "UncoveredNode",
    "UnhealthyGpus",
]


@dataclass(frozen=True, slots=True)
class AuditFigure:
    """What a set is worth, or the mean over sets."""

    gbytes_per_s: float
    """Predicted all-reduce bus bandwidth, GB/s."""
    share: float
    """Share 0..1 of the empty machine's best set of that size."""


@dataclass(frozen=True, slots=True)
class MachineAudit:
    """The nodes of one machine type. Means are over the sets that are judged there."""

    digest: str
    """Digest of all that a set's value can depend on; machines of one type share it."""
    name: str
    """Its GPUs, such as 8x NVIDIA L4."""
    n_nodes: int
    """Nodes of this type."""
    n_nodes_free_unknown: int
    """Those where it is not known which GPUs are free: these count in no figure but GPUs."""
    n_gpus: int
    """GPUs of all its nodes."""
    n_free: int
    """Free and healthy GPUs that pods may be placed on, where it is known which these are: none of
    nodes that are cordoned or not ready (`unavailable_nodes`)."""
    n_stranded: int
    """Free GPUs on nodes where no set of four is placeable (of two, where it has fewer GPUs)."""
    n_unhealthy: int
    """GPUs that the node plugin reports as unhealthy."""
    n_pods: int
    """Pods with a set that is judged."""
    n_sets: int
    """Sets that are judged: containers with two or more GPUs."""
    has: AuditFigure | None
    """Mean of what the sets have; null where none is judged."""
    could_have: AuditFigure | None
    """Mean of what the node could have given each of them at this moment, the others staying."""
    best_effort: AuditFigure | None
    """Mean of what NVIDIA's best-effort policy would give from the same GPUs; null where the policy
    is not NVIDIA's to apply."""
    is_even: bool
    """Whether all sets of a size are worth the same, as on one NVSwitch fabric: no placement gains
    bandwidth there."""


@dataclass(frozen=True, slots=True)
class AuditSet:
    """The GPUs of one container that has two or more, and what they are worth."""

    namespace: str
    """Namespace of the pod."""
    pod: str
    """Name of the pod."""
    container: str
    """Name of the container."""
    node: str
    """Node of the pod."""
    machine: str
    """Digest of the machine type."""
    gpus: tuple[int, ...]
    """The set, ascending."""
    source: str
    """Who says so: report (the node plugin), status (the kubelet, in pod.status), allocated or
    plan (the pod's annotations)."""
    limit: str
    """What limits the set: switch, ring, relay, port, uplink or socket."""
    stated_error: float
    """How far off the prediction may be, as a share, by what limits the set."""
    has: AuditFigure
    """What it is worth."""
    could_have: AuditFigure
    """The best set of that size in its own and the node's free GPUs."""
    could_have_gpus: tuple[int, ...]
    """That set, ascending; the container's own where none is worth more."""
    best_effort: AuditFigure | None
    """What NVIDIA's best-effort policy would give from the same GPUs, the mean over the orders in
    which the kubelet may name them; null where the policy is not NVIDIA's to apply."""
    loss: float
    """1 - has / could_have, 0..1."""
    is_best: bool
    """Whether the loss is within the 10 % by which values count as equal."""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A container with GPUs that is in no figure, and why."""

    namespace: str
    """Namespace of the pod."""
    pod: str
    """Name of the pod."""
    container: str
    """Name of the container."""
    node: str
    """Node of the pod."""
    n_gpus: int
    """GPUs that it requests or has."""
    reason: str
    """One of a closed set of sentences."""
    has: AuditFigure | None
    """What it has, where that much is known."""


@dataclass(frozen=True, slots=True)
class UncoveredNode:
    """A node with GPUs of which the audit cannot judge sets, and why."""

    node: str
    """Name of the node."""
    n_gpus: int
    """GPUs that the kubelet offers or has."""
    reason: str
    """Why, in one sentence."""
    kind: str
    """Why, in a word: no-topology, unreadable, quantity, by-number, shared (GPUs in shares or
    partitions) or fewer (than the topology shows)."""


@dataclass(frozen=True, slots=True)
class UnavailableNode:
    """A node with GPUs that takes no new pods; its free GPUs count as free in no figure."""

    node: str
    """Name of the node."""
    n_free: int | None
    """Its free and healthy GPUs; null where it is not known which these are."""
    reason: str
    """cordoned, NotReady or cordoned and NotReady."""


@dataclass(frozen=True, slots=True)
class ClaimingPod:
    """A pod with resource claims (DRA), whose GPUs are not seen and may count as free."""

    namespace: str
    """Namespace of the pod."""
    pod: str
    """Name of the pod."""
    node: str
    """Node of the pod."""


@dataclass(frozen=True, slots=True)
class DegradedGpu:
    """A GPU with fewer links up than it should have, by the node's topology."""

    node: str
    """Name of the node."""
    gpu: int
    """Index of the GPU."""
    uuid: str | None
    """Kubelet device id."""
    kind: str
    """Kind of the links: nvlink, xgmi, c2c or metaxlink."""
    n_links: int
    """Links that are up."""
    n_expected: int
    """Links of the GPU's equals on the same node, or of its fabric if this is down (0: unknown)."""


@dataclass(frozen=True, slots=True)
class UnhealthyGpus:
    """GPUs that node plugins report as unhealthy for one reason."""

    reason: str
    """The reason, in the node plugin's words."""
    n_gpus: int
    """How many."""
    nodes: tuple[str, ...]
    """Nodes that have them, ascending."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods on nodes with GPUs that request some and have not ended."""

    n_all: int
    """All of them."""
    n_single: int
    """Those of which no container has two GPUs: they have nothing to reduce."""
    n_judged: int
    """Those of which a set is judged."""
    n_best: int
    """Those whose every judged set is as good as the best that the node could give."""
    n_losing: int
    """Those with a judged set that is not."""
    mean_loss: float | None
    """Mean of the losses listed for these, 0..1, each by the set that loses most; null where there
    is none."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """`audit -o json`: what a cluster loses now."""

    schema_version: int
    """1."""
    message_bytes: int
    """Message size that the figures hold for, bytes."""
    headline: str
    """The result in one sentence, for people."""
    notes: tuple[str, ...]
    """What the figures are and are not, one sentence each, for people."""
    n_nodes: int
    """Nodes in the list."""
    n_gpu_nodes: int
    """Nodes with GPUs."""
    n_covered_nodes: int
    """Those of which it is known which GPUs are free: all but `uncovered_nodes`."""
    n_gpus: int
    """GPUs of all nodes."""
    n_free: int
    """Free and healthy GPUs that pods may be placed on, where it is known which these are."""
    n_stranded: int
    """Free GPUs on nodes where no set of four is placeable (of two, where it has fewer GPUs)."""
    pods: PodCounts
    """How many pods there are, and how many lose."""
    n_gpus_of_unlisted_pods: int
    """GPUs that the node plugins report with pods that are not in the list of pods."""
    n_pods_of_unlisted_nodes: int
    """Pods with GPUs on nodes that are not in the list of nodes; they are in no other figure."""
    machines: tuple[MachineAudit, ...]
    """Machine types, the most GPUs first."""
    sets: tuple[AuditSet, ...]
    """Judged sets, the largest loss first."""
    not_judged: tuple[NotJudged, ...]
    """Containers with GPUs that are in no figure, and single GPUs that are not known by name."""
    uncovered_nodes: tuple[UncoveredNode, ...]
    """Nodes with GPUs whose sets cannot be judged, by name."""
    split_nodes: tuple[str, ...]
    """Nodes where some free GPUs are in MIG mode, not known which: their figures take these to be
    the ones without which their pods could have least."""
    unavailable_nodes: tuple[UnavailableNode, ...]
    """Nodes with GPUs that are cordoned or not ready, by name."""
    claiming_pods: tuple[ClaimingPod, ...]
    """Pods with resource claims (DRA) on nodes of the list, by namespace and name."""
    degraded: tuple[DegradedGpu, ...]
    """GPUs with links that are down."""
    unhealthy: tuple[UnhealthyGpus, ...]
    """Unhealthy GPUs by reason, the most first."""
