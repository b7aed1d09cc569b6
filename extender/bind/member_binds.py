"""Binds of a group's members: held until the calls of all of them are there.

It stands in front of `extender.bind.state_machine`, which does what follows once the group is
released, with the plan that was claimed for the pod. Every other pod's call is passed on as it is.

A call is held by the step `HoldBind`, which ends when the group is released, when its claims are
gone, or when the scheduler will not wait much longer. Until then nothing was written for any
member. On a node whose kubelet aligns to NUMA nodes each call is: it is planned in its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.bind.steps import HoldBind
from extender.protocol import Answer, Outcome, Reason, Verb, failure
from topology.errors import quote

if TYPE_CHECKING:
    from extender.bind.attempt import BindCall
    from extender.bind.state_machine import Binds
    from extender.bind.steps import AnyStep
    from extender.groups import Groups
    from extender.protocol import messages
    from extender.state import LiveCluster

__all__ = ["MemberBinds"]


@dataclass(frozen=True, slots=True)
class _Held:
    """A call that waits."""

    step: HoldBind
    call: BindCall


class MemberBinds:
    """Holds binds over one cluster."""

    def __init__(self, binds: Binds, groups: Groups, cluster: LiveCluster) -> None:
        self._binds = binds
        self._groups = groups
        self._cluster = cluster
        self._held: dict[str, _Held] = {}
        self._n_holds = 0

    def begin(self, call: BindCall, now_s: float) -> Answer | AnyStep:
        """Handle a bind call, of a member or not."""
        args = call.args
        if args is None or args.pod_uid not in self._groups.waiting_uids:
            return self._binds.begin(call, now_s)
        claim = self._groups.claim(args.pod_uid)
        if claim is None:
            return self._fail(args, Reason.GROUP_NOT_PLANNED)
        if claim.node != args.node:
            detail = f"they are on node {claim.node}"
            return self._fail(args, Reason.GROUP_NOT_PLANNED, detail)
        if args.pod_uid in self._held:
            return self._fail(args, Reason.UNDER_WAY)
        self._groups.arrive(args.pod_uid)
        if self._groups.releases.is_released(args.pod_uid) and not self._cluster.aligns(args.node):
            return self._binds.begin(call, now_s)
        self._n_holds += 1
        step = HoldBind(self._n_holds, args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        self._held[args.pod_uid] = _Held(step, call)
        return step

    def held(self, step: HoldBind, now_s: float) -> Answer | AnyStep:
        """The wait has ended: the Binding may be written, or the call failed."""
        held = self._held.get(step.uid)
        if held is None or held.step.bind_id != step.bind_id or held.call.args is None:
            text = f"pod {step.namespace}/{step.name} ({step.uid}): {Reason.UNDER_WAY.value}"
            generation = self._cluster.snapshot.generation
            return failure(Verb.BIND, Reason.UNDER_WAY, text, generation)
        del self._held[step.uid]
        if self._groups.releases.is_released(step.uid):
            return self._binds.begin(held.call, now_s)
        self._groups.releases.leave(step.uid)
        is_member = step.uid in self._groups.waiting_uids
        if not is_member and self._cluster.bound(step.uid) is None:
            self._cluster.pods.forget(step.uid)  # it left after its group was released
        return self._fail(held.call.args, Reason.GROUP_INCOMPLETE)

    def ended(self, answer: Answer) -> None:
        """A bind call was answered: a member whose Binding came to nothing is missing again.

        One whose Binding may come true is held again with the others, if it comes again.
        """
        if answer.outcome is Outcome.OK:
            return
        if self._binds.is_unsettled(answer.pod_uid):
            self._groups.unsure(answer.pod_uid)
        elif not self._binds.may_still_commit(answer.pod_uid):
            self._groups.failed(answer.pod_uid)

    def _fail(self, args: messages.BindingArgs, reason: Reason, detail: str = "") -> Answer:
        title = f"pod {args.pod_namespace}/{args.pod_name} ({args.pod_uid})"
        text = ": ".join(
            filter(None, (f"{title} on node {quote(args.node)}", reason.value, detail))
        )
        failed = failure(Verb.BIND, reason, text, self._cluster.snapshot.generation)
        return Answer(
            Verb.BIND,
            Outcome.FAILED,
            failed.body,
            failed.generation,
            reason,
            text,
            pod=f"{args.pod_namespace}/{args.pod_name}",
            pod_uid=args.pod_uid,
            node=args.node,
        )
