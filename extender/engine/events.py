"""Every input of an engine, as a value.

A closed set: what is not here cannot change an answer. `extender.engine.gateway` handles each one;
the decision log's lines are derived from them (`extender.decision_log.format`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from extender.bind import AnyStep, BindCall, HoldBind, ReadPod, WriteBinding, Written
    from extender.pending import Requeue
    from extender.preemption import NodesRead, ReadNodes
    from extender.protocol import Answer, RawBody, Verb
    from kube.objects import NodeFacts, PodFacts, PodObject

__all__ = [
    "BindAbandoned",
    "BindEvent",
    "BindHeld",
    "BindPodRead",
    "BindRequested",
    "BindingWritten",
    "Event",
    "FreshnessSet",
    "NodeDeleted",
    "NodeUpdated",
    "NodesListed",
    "NominationDeleted",
    "NominationUpdated",
    "NominationsListed",
    "Output",
    "PendingDeleted",
    "PendingListed",
    "PendingUpdated",
    "PodDeleted",
    "PodFetched",
    "PodUpdated",
    "PodsListed",
    "PreemptAbandoned",
    "PreemptEvent",
    "PreemptNodesRead",
    "PreemptRequested",
    "RatingsResumed",
    "RequeueDropped",
    "RequeueDue",
    "StateEvent",
    "TimePassed",
    "VerbCalled",
]


@dataclass(frozen=True, slots=True)
class VerbCalled:
    """A call that is answered at once; `body` is the request as it came.

    `n_rated` is how many node states it had time to rate, None where it had for all: what a
    clock decided in the first run is repeated by the count.
    """

    verb: Verb
    body: RawBody
    at_s: float
    n_rated: int | None = None


@dataclass(frozen=True, slots=True)
class RatingsResumed:
    """There is time to rate so many of the node states that calls left out."""

    n_states: int


# What the watches report. None of these has an output.


@dataclass(frozen=True, slots=True)
class NodeUpdated:
    """A node as the watch shows it."""

    node: NodeFacts


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A node is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    """A complete list of nodes: what is not in it is gone."""

    nodes: tuple[NodeFacts, ...]


@dataclass(frozen=True, slots=True)
class PodUpdated:
    """An assigned pod as the metadata watch shows it."""

    pod: PodFacts


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """An assigned pod ended or is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodsListed:
    """A complete list of assigned pods: what was seen and is not in it is gone."""

    pods: tuple[PodFacts, ...]


@dataclass(frozen=True, slots=True)
class PodFetched:
    """An assigned pod, read in full as a `Probe` requests."""

    pod: PodObject


@dataclass(frozen=True, slots=True)
class NominationUpdated:
    """A pending pod that is nominated to a node, as the watch shows it in full."""

    pod: PodObject


@dataclass(frozen=True, slots=True)
class NominationDeleted:
    """The pod is no longer nominated, is bound or is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class NominationsListed:
    """A complete list of nominated pods: what is not in it is no longer nominated."""

    pods: tuple[PodObject, ...]


@dataclass(frozen=True, slots=True)
class PendingUpdated:
    """A member of a group without a node, as the watch shows it in full."""

    pod: PodObject
    at_s: float


@dataclass(frozen=True, slots=True)
class PendingDeleted:
    """The pod has a node, is gone, or is no member any more."""

    uid: str


@dataclass(frozen=True, slots=True)
class PendingListed:
    """A complete list of members without a node: each was seen, and who is not in it is gone."""

    uids: tuple[str, ...]
    at_s: float


@dataclass(frozen=True, slots=True)
class FreshnessSet:
    """Whether all collections are listed, and up to when the API server was heard."""

    is_synced: bool
    observed_at_s: float | None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is `at_s` now: assumptions that nothing confirmed may expire."""

    at_s: float


# Requeueing pods that filter rejected.


@dataclass(frozen=True, slots=True)
class RequeueDue:
    """Take the pods to requeue now: after each batch of changes and about twice a second."""

    at_s: float


@dataclass(frozen=True, slots=True)
class RequeueDropped:
    """A rejected pod is gone or bound, or somebody else has requeued it."""

    uid: str


# A bind, between whose steps the executor does the I/O. Each step ends in exactly one event.


@dataclass(frozen=True, slots=True)
class BindRequested:
    """A bind call came."""

    call: BindCall
    at_s: float


@dataclass(frozen=True, slots=True)
class BindPodRead:
    """The pod's JSON as the API server gave it; None for 404."""

    step: ReadPod
    pod: RawBody | None
    at_s: float


@dataclass(frozen=True, slots=True)
class BindingWritten:
    """How writing the Binding ended."""

    step: WriteBinding
    written: Written
    at_s: float


@dataclass(frozen=True, slots=True)
class BindHeld:
    """The wait for the other members of the pod's group has ended."""

    step: HoldBind
    at_s: float


@dataclass(frozen=True, slots=True)
class BindAbandoned:
    """The step will not be finished: out of time, a failed read, a shutdown."""

    step: AnyStep
    detail: str
    at_s: float


# A preemption, in the same way.


@dataclass(frozen=True, slots=True)
class PreemptRequested:
    """A preempt call came; `body` is the request as it came."""

    body: RawBody
    at_s: float


@dataclass(frozen=True, slots=True)
class PreemptNodesRead:
    """The nodes, pods and budgets as the API server gave them."""

    step: ReadNodes
    read: NodesRead
    at_s: float


@dataclass(frozen=True, slots=True)
class PreemptAbandoned:
    """The nodes will not be read."""

    step: ReadNodes
    detail: str
    at_s: float


StateEvent: TypeAlias = (
    NodeUpdated
    | NodeDeleted
    | NodesListed
    | PodUpdated
    | PodDeleted
    | PodsListed
    | PodFetched
    | NominationUpdated
    | NominationDeleted
    | NominationsListed
    | PendingUpdated
    | PendingDeleted
    | PendingListed
    | FreshnessSet
    | TimePassed
    | RequeueDropped
    | RatingsResumed
)
BindEvent: TypeAlias = BindRequested | BindHeld | BindPodRead | BindingWritten | BindAbandoned
PreemptEvent: TypeAlias = PreemptRequested | PreemptNodesRead | PreemptAbandoned
Event: TypeAlias = VerbCalled | StateEvent | RequeueDue | BindEvent | PreemptEvent

Output: TypeAlias = "Answer | AnyStep | ReadNodes | tuple[Requeue, ...] | None"
"""What an event leads to: an answer, a step for the executor, pods to requeue, or nothing."""
