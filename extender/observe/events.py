"""Events for users and operators, as values.

Answers and effects become Events on the pod or the node. The reasons are a closed set; a message
depends on its subject alone, so that repeats are recognised (`extender.observe.event_recorder`).
What kube-scheduler reports by itself (its FailedScheduling holds our refusals and bind errors word
for word) is not repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from extender.protocol import Reason, Verb
from extender.state import Mismatch, Missing, NodeProblem, PlanConflict
from kube.objects import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from extender.protocol import Answer
    from topology.annotations import ContainerPlan, Plan

__all__ = ["EventReason", "Note", "notes_of_answer", "notes_of_effect"]


class EventReason(Enum):
    """Reason of an Event; the value is what `kubectl describe` shows."""

    INVALID_REQUEST = "InvalidGpuRequest"
    UNSUPPORTED = "UnsupportedGpuRequest"
    BIND_REFUSED = "GpuBindRefused"
    ALLOCATED_OTHERWISE = "GpusAllocatedOtherwise"
    PLAN_CONFLICT = "GpuPlanConflict"
    MISSING = "GpusMissing"
    NODE_PROBLEM = "GpuNodeProblem"
    PLACED = "GpusPlaced"
    GROUP_WAITING = "GroupWaiting"
    GROUP_DIFFERS = "GroupDiffers"
    GROUP_NOT_BOUND = "GroupNotBound"
    GROUP_HAS_NO_ROOM = "GroupHasNoRoom"
    GROUP_PARTIAL = "GroupPartial"
    GROUP_PLACED = "GroupPlaced"

    @property
    def is_warning(self) -> bool:
        """Whether an operator should check it."""
        return self not in _NORMAL

    @property
    def is_frequent(self) -> bool:
        """Whether there is one for each pod: written with `events: all` alone."""
        return self is EventReason.PLACED


_NORMAL = frozenset({EventReason.PLACED, EventReason.GROUP_PLACED})


@dataclass(frozen=True, slots=True)
class Note:
    """One Event to write; `about` is a pod, or a node where its namespace is empty."""

    about: ObjectKey
    reason: EventReason
    message: str


def notes_of_answer(answer: Answer, *, of_plans: bool = False) -> Iterator[Note]:
    """The Events of an answer; `of_plans`: of the plan that was bound too, if any."""
    if not answer.pod_uid:
        return
    if answer.verb is Verb.FILTER:
        if answer.reason is Reason.INVALID_REQUEST:
            yield Note(_pod_of(answer), EventReason.INVALID_REQUEST, answer.detail)
        for warning in answer.warnings:
            yield Note(_pod_of(answer), EventReason.UNSUPPORTED, warning)
    elif answer.verb is Verb.BIND:
        if answer.reason is Reason.WRITE_REFUSED:
            yield Note(_pod_of(answer), EventReason.BIND_REFUSED, answer.detail)
        if of_plans and answer.plan is not None:
            yield Note(_pod_of(answer), EventReason.PLACED, _placed(answer.plan))


def notes_of_effect(effect: object) -> Iterator[Note]:
    """The Events of an effect of the live state."""
    match effect:
        case Mismatch():
            about = ObjectKey(effect.namespace, effect.name, effect.uid)
            planned, given = _devices(effect.planned), _devices(effect.containers)
            message = f"node {effect.node} gave {given or 'no GPU'}, planned was {planned}"
            yield Note(about, EventReason.ALLOCATED_OTHERWISE, message)
        case PlanConflict():
            about = ObjectKey(effect.namespace, effect.name, effect.uid)
            message = (
                f"the plan names {', '.join(effect.ids)} of node {effect.node}, which other pods "
                f"have ({', '.join(effect.owners)})"
            )
            yield Note(about, EventReason.PLAN_CONFLICT, message)
        case Missing():
            about = ObjectKey(effect.namespace, effect.name, effect.uid)
            lacking = "; ".join(
                f"{one.resource} for container {one.container}" for one in effect.missing
            )
            # What to do comes before the list: a long message is cut at its end.
            message = (
                f"the pod runs without GPUs that it requests: node {effect.node} started it before "
                "its kubelet knew of them; delete the pod, and its controller makes a new one "
                f"({lacking})"
            )
            yield Note(about, EventReason.MISSING, message)
        case NodeProblem():
            # kubectl looks for a node's events by its name as the uid too, as the kubelet writes.
            about = ObjectKey("", effect.node, effect.node)
            yield Note(about, EventReason.NODE_PROBLEM, effect.detail)
        case _:
            return


def _pod_of(answer: Answer) -> ObjectKey:
    namespace, _, name = answer.pod.partition("/")
    return ObjectKey(namespace, name, answer.pod_uid)


def _placed(plan: Plan) -> str:
    speed = plan.score_gbytes_per_s
    predicted = f", {speed:.1f} GB/s all-reduce predicted" if speed else ""
    return f"on node {plan.node}: {_devices(plan.containers)}{predicted}"


def _devices(containers: Iterable[ContainerPlan]) -> str:
    return "; ".join(f"{', '.join(one.ids)} for container {one.name}" for one in containers)
