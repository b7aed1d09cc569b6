"""A bind call as it came, and one in flight, as values.

The latter is what is known of the call and of what it wrote, compared with a pod that was read.
It decides nothing (`extender.bind.state_machine`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from extender.bind.steps import WriteBinding
from extender.errors import WireError
from extender.protocol import Answer, Outcome, Reason, Verb, messages
from topology.annotations import encode_plan
from topology.errors import quote
from topology.model import names

if TYPE_CHECKING:
    from extender.bind.steps import PlannedFrom
    from extender.protocol import PodRequest, RawBody
    from extender.rules import Rules
    from topology.annotations import Plan

__all__ = [
    "BindAttempt",
    "BindCall",
    "BindPhase",
    "BindTarget",
    "not_managed_reason",
    "unbindable_reason",
]


@dataclass(frozen=True, slots=True)
class BindCall:
    """The body of a bind call, decoded once: `args`, or the `fault` for which there are none."""

    body: RawBody
    args: messages.BindingArgs | None
    fault: str = ""

    @classmethod
    def decode(cls, body: bytes) -> BindCall:
        """Read a request body."""
        try:
            return cls(body, messages.decode(messages.BindingArgs, body))
        except WireError as error:
            return cls(body, None, str(error))


class BindPhase(Enum):
    """Where a bind stands: held for its group, writing, or reading the pod, and why."""

    UNSEEN = "unseen"
    UNSETTLED = "unsettled"
    HELD = "held"
    WRITING = "writing"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BindTarget:
    """The kind of a plan's node, and the plan's efficiency there (`extender.protocol.Answer`)."""

    machine: str = ""
    efficiency: float | None = None


@dataclass(frozen=True, slots=True)
class BindAttempt:
    """One bind call in flight, or one whose outcome is not known yet.

    `version` is the pod's in the latest write; `plan` is None for a pod without GPUs, `target`
    what metrics show of it. From `ends_s` on another call may take over if this one has not
    ended. Until `repeats_until_s` an earlier call's write of the same plan and version may still
    succeed, whatever becomes of this one's; None where there is no such write.
    """

    bind_id: int
    namespace: str
    name: str
    uid: str
    node: str
    ends_s: float
    phase: BindPhase = BindPhase.UNSEEN
    request: PodRequest | None = None
    plan: Plan | None = None
    target: BindTarget = BindTarget()
    version: str = ""
    n_writes: int = 0
    n_replans: int = 0
    repeats_until_s: float | None = None

    @property
    def title(self) -> str:
        """The pod, for messages."""
        return f"pod {self.namespace}/{self.name} ({self.uid})"

    @property
    def annotations(self) -> dict[str, str]:
        """What the binding writes on the pod: its plan, if its containers have one."""
        if self.plan is None or not self.plan.containers:
            return {}
        return {names.PLAN: encode_plan(self.plan)}

    def writing(
        self,
        request: PodRequest | None,
        plan: Plan | None,
        *,
        target: BindTarget,
        version: str,
    ) -> BindAttempt:
        """This call, about to write a plan, for the first time or once more."""
        return replace(
            self,
            phase=BindPhase.WRITING,
            request=request,
            plan=plan,
            target=target,
            version=version,
            n_writes=self.n_writes + 1,
            repeats_until_s=None,
        )

    def repeating(self, earlier: BindAttempt) -> BindAttempt:
        """This call, about to write what an earlier one wrote."""
        same = self.writing(
            earlier.request, earlier.plan, target=earlier.target, version=earlier.version
        )
        return replace(same, repeats_until_s=earlier.ends_s)

    def write_step(self, planned_from: PlannedFrom | None) -> WriteBinding:
        """The step that writes it."""
        return WriteBinding(
            self.bind_id,
            self.namespace,
            self.name,
            self.uid,
            self.version,
            self.node,
            self.annotations,
            planned_from,
        )

    def answer(self, outcome: Outcome, body: bytes, generation: int) -> Answer:
        """The answer to the call, without what only a failure or a plan has."""
        return Answer(
            Verb.BIND,
            outcome,
            body,
            generation,
            pod=f"{self.namespace}/{self.name}",
            pod_uid=self.uid,
            node=self.node,
            n_replans=self.n_replans,
            warnings=self.request.warnings if self.request is not None else (),
        )

    def success(self, body: bytes, generation: int) -> Answer:
        """The answer to a call whose binding was written, with what was placed."""
        answer = self.answer(Outcome.OK, body, generation)
        if self.request is None or self.plan is None:
            return answer
        return replace(
            answer,
            placed_gbytes_per_s=self.plan.score_gbytes_per_s,
            placed_efficiency=self.target.efficiency,
            machine=self.target.machine,
            size_gpus=self.request.size_gpus,
            plan=self.plan if self.plan.containers else None,
        )

    def is_dead(self, pod: messages.WirePod) -> bool:
        """Whether the latest write cannot come true any more: its precondition fails for good."""
        return bool(self.version) and pod.metadata.resource_version != self.version

    def is_older(self, version: str) -> bool:
        """Whether the latest write was made for an earlier version of the pod than this one."""
        return self.version.isdecimal() and version.isdecimal() and int(self.version) < int(version)


def unbindable_reason(pod: messages.WirePod) -> Reason | None:
    """Why the API server will bind this pod to no node, if so."""
    if pod.metadata.deletion_timestamp is not None:
        return Reason.POD_DELETED
    return Reason.POD_GATED if pod.spec.scheduling_gates else None


def not_managed_reason(request: PodRequest, rules: Rules) -> tuple[Reason, str] | None:
    """Why this extender may not bind the pod, with detail, if so.

    Else any caller of bind could have any pod bound to any node.
    """
    if not request.is_managed:
        return Reason.NO_RESOURCE, f"expected one of: {', '.join(rules.resources)}"
    if rules.scheduler_names and request.scheduler_name not in rules.scheduler_names:
        expected = ", ".join(rules.scheduler_names)
        found = quote(request.scheduler_name)
        return Reason.OTHER_SCHEDULER, f"schedulerName is {found}, expected one of: {expected}"
    return None
