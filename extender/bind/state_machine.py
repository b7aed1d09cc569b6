"""Bind as steps: what to do next for a pod that gets a node, until there is an answer.

Answers a bind call; the caller does the I/O that a step requests. It never waits, never reads a
clock and never reports success unless the API server accepted the binding.

A bind call assumes its plan the moment it comes, then writes. The rules:

1. Read first (`ReadPod`) where the pod was not seen in a filter call, or where an earlier write of
   it may still come true. A pod that names none of our resources, or another scheduler, is refused.
2. ACCEPTED confirms the plan. GONE, REJECTED and UNSENT are certain: nothing was written, the plan
   is forgotten.
3. After CONFLICT the pod shows which one it was. Bound to this node under this uid: success
   (another call was quicker, or our own write whose answer was lost). Gone, re-created, being
   deleted, gated, bound elsewhere: an error, the plan is forgotten. Merely changed: read again,
   fit checked again, written once more with the version that was read.
4. After UNKNOWN the pod is read too, but only a pod that is bound is an answer. An unbound one may
   yet be bound by the write in flight, unless its version has moved on: a write carries the version
   as its precondition, so one with an older version cannot come true any more. Until then the plan
   stays assumed, the caller gets an error, and the pod's next bind call reads it first: the
   same plan is written again, or, where it cannot come true any more, forgotten. REJECTED and
   UNSENT are certain for that repeat alone: the first write may still be applied, and the plan
   stays assumed. No request is in flight for longer than an assumption is kept: after that time
   the next call plans again.
5. A second call while the first is in flight is refused; it plans nothing.

A plan that was lost meanwhile (its node is gone, a device of it is unhealthy or taken) is
replaced by one from what is free now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.bind.attempt import (
    BindAttempt,
    BindPhase,
    BindTarget,
    not_managed_reason,
    unbindable_reason,
)
from extender.bind.bind_planner import Planned
from extender.bind.steps import ReadPod, WriteBinding, WriteResult
from extender.errors import MalformedPod, UserError, WireError
from extender.protocol import Answer, Outcome, Reason, Verb, failure, messages, parse_pod, responses
from topology.annotations import decode_plan
from topology.errors import CodecError, quote
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Collection

    from extender.bind.attempt import BindCall
    from extender.bind.bind_planner import BindPlanner
    from extender.bind.steps import PlannedFrom, Step, Written
    from extender.groups import Groups
    from extender.pending import PendingPods
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.state import LiveCluster

__all__ = ["Binds"]

MAX_WRITES = 2
"""Writes in one bind call: a pod that changes faster than that is left to the next call."""
MAX_UNSETTLED = 10_000
"""Binds without a known outcome that are kept; of others assumptions are left, which time ends."""
_SUCCESS = responses.encode_bind()
_NOT_WRITTEN = {
    WriteResult.REJECTED: Reason.WRITE_REFUSED,
    WriteResult.UNSENT: Reason.WRITE_UNSENT,
}
_GONE = frozenset({Reason.POD_GONE, Reason.POD_RECREATED, Reason.POD_DELETED})


class Binds:
    """The binds in flight over one cluster; `unsettled` ones may be written still, by uid."""

    def __init__(
        self,
        cluster: LiveCluster,
        rules: Rules,
        *,
        planner: BindPlanner,
        pending: PendingPods,
        groups: Groups,
    ) -> None:
        self._cluster = cluster
        self._rules = rules
        self._groups = groups
        self._planner = planner
        self._pending = pending
        self._in_flight: dict[str, BindAttempt] = {}
        self.unsettled: dict[str, BindAttempt] = {}
        self._n_begun = 0

    @property
    def in_flight(self) -> Collection[str]:
        """Pods with a bind call in flight: what is assumed for them must not end by the clock."""
        return self._in_flight.keys()

    def may_still_commit(self, uid: str) -> bool:
        """Whether a Binding of the pod may be written still, or was, as far as is known."""
        return uid in self.unsettled or uid in self._in_flight

    def is_unsettled(self, uid: str) -> bool:
        """Whether a bind call of the pod ended, and its Binding may come true."""
        return uid in self.unsettled and uid not in self._in_flight

    def never_commits(self, request: PodRequest) -> bool:
        """Whether a Binding of unknown outcome never is made: filter shows a newer, unbound pod."""
        earlier = self.unsettled.get(request.uid)
        if earlier is None or not earlier.is_older(request.resource_version):
            return False
        self._forget(earlier)
        del self.unsettled[request.uid]
        return True

    def ended(self, uid: str) -> None:
        """The pod is no more."""
        self.unsettled.pop(uid, None)

    # The steps.

    def begin(self, call: BindCall, now_s: float) -> Answer | Step:
        """Handle a bind call."""
        args = call.args
        if args is None:
            return failure(Verb.BIND, Reason.MALFORMED, call.fault, self._generation)
        self._n_begun += 1
        bind = BindAttempt(
            bind_id=self._n_begun,
            namespace=args.pod_namespace,
            name=args.pod_name,
            uid=args.pod_uid,
            node=args.node,
            ends_s=now_s + self._rules.assume_s,
        )
        bound = self._cluster.bound(bind.uid)
        if bound is not None:
            self.unsettled.pop(bind.uid, None)
            return self._bound(bind, bound.node)
        other = self._in_flight.get(bind.uid)
        if other is not None and now_s < other.ends_s:
            return self._fail(bind, Reason.UNDER_WAY)
        if other is not None:
            self._leave(other, Reason.UNDER_WAY)
        if bind.uid in self.unsettled:
            return self._read(bind, BindPhase.UNSETTLED)
        request = self._pending.recall(bind.uid, f"{bind.namespace}/{bind.name}")
        if request is None:
            return self._read(bind, BindPhase.UNSEEN)
        return self._place(bind, request, now_s)

    def read(self, step: ReadPod, body: bytes | None, now_s: float) -> Answer | Step:
        """The pod was read; None: there is none of that name."""
        bind = self._current(step)
        if bind is None:
            return self._taken_over(step)
        pod = self._pod(bind, body)
        if isinstance(pod, Answer):
            return pod
        if pod.metadata.uid != bind.uid:
            detail = f"its uid is {quote(pod.metadata.uid)}"
            return self._undo(bind, Reason.POD_RECREATED, detail)
        if pod.spec.node_name:
            return self._found_bound(bind, pod, pod.spec.node_name, now_s)
        barred = unbindable_reason(pod)
        if barred is not None:
            return self._undo(bind, barred)
        return self._found_unbound(bind, pod, now_s)

    def written(self, step: WriteBinding, written: Written) -> Answer | Step:
        """The write ended."""
        bind = self._current(step)
        if bind is None:
            return self._taken_over(step)
        if written.result is WriteResult.ACCEPTED:
            return self._accepted(bind)
        if written.result is WriteResult.GONE:
            return self._undo(bind, Reason.POD_GONE, written.detail)
        refused = _NOT_WRITTEN.get(written.result)
        if refused is not None and bind.repeats_until_s is not None:
            earlier = replace(bind, ends_s=bind.repeats_until_s)
            return self._leave(earlier, Reason.OUTCOME_UNKNOWN, written.detail)
        if refused is not None:
            return self._undo(bind, refused, written.detail)
        is_conflict = written.result is WriteResult.CONFLICT
        return self._read(bind, BindPhase.CONFLICT if is_conflict else BindPhase.UNKNOWN)

    def abandon(self, step: Step, detail: str) -> Answer:
        """The step will not be finished. A plan that may still be bound stays assumed."""
        bind = self._current(step)
        if bind is None:
            return self._taken_over(step)
        is_writing = bind.phase is BindPhase.WRITING
        return self._leave(bind, Reason.OUTCOME_UNKNOWN if is_writing else Reason.NOT_READ, detail)

    def _pod(self, bind: BindAttempt, body: bytes | None) -> messages.WirePod | Answer:
        if body is None:
            is_unseen = bind.phase is BindPhase.UNSEEN
            return self._undo(bind, Reason.UNKNOWN_POD if is_unseen else Reason.POD_GONE)
        try:
            return messages.decode(messages.WirePod, body)
        except WireError as error:
            return self._leave(bind, Reason.NOT_READ, str(error))

    # Planning and writing.

    def _place(self, bind: BindAttempt, request: PodRequest, now_s: float) -> Answer | Step:
        """Plan and write, if the pod is one of ours."""
        refused = not_managed_reason(request, self._rules)
        if refused is not None:
            return self._fail(bind, *refused)
        if request.shape is None:
            version = request.resource_version
            bare = bind.writing(request, None, target=BindTarget(), version=version)
            return self._write(bare, None, now_s)
        return self._plan(bind, request, now_s)

    def _plan(self, bind: BindAttempt, request: PodRequest, now_s: float) -> Answer | Step:
        """Plan from what is free now, assume, write."""
        found = self._planner.plan(request, bind.node, now_s)
        if not isinstance(found, Planned):
            return self._fail(bind, *found)
        version = request.resource_version
        planned = bind.writing(request, found.plan, target=found.target, version=version)
        return self._write(planned, found.planned_from, now_s)

    def _write(
        self, bind: BindAttempt, planned_from: PlannedFrom | None, now_s: float
    ) -> WriteBinding:
        if bind.plan is not None:
            self._cluster.pods.renew(bind.uid, deadline_s=now_s + self._rules.assume_s)
        self.unsettled.pop(bind.uid, None)
        self._in_flight[bind.uid] = bind
        return bind.write_step(planned_from)

    def _write_again(self, bind: BindAttempt, pod: messages.WirePod, now_s: float) -> Answer | Step:
        """The pod as it is now: the same plan where it still holds, else another."""
        request = self._parse(bind, pod)
        if isinstance(request, Answer):
            return request
        is_same = bind.request is not None and bind.request.shape == request.shape
        if is_same and (bind.plan is None or self._planner.is_intact(bind.uid, bind.plan)):
            version = request.resource_version
            changed = bind.writing(request, bind.plan, target=bind.target, version=version)
            return self._write(changed, None, now_s)
        self._forget(bind)
        again = replace(bind, plan=None, n_replans=bind.n_replans + 1)
        return self._place(again, request, now_s)

    # After reading the pod.

    def _found_unbound(
        self, bind: BindAttempt, pod: messages.WirePod, now_s: float
    ) -> Answer | Step:
        if bind.phase is BindPhase.CONFLICT:
            if bind.n_writes >= MAX_WRITES:
                return self._undo(bind, Reason.POD_CHANGED)
            return self._write_again(bind, pod, now_s)
        if bind.phase is BindPhase.UNKNOWN:
            if bind.is_dead(pod):
                return self._undo(bind, Reason.OUTCOME_UNKNOWN, "it was not, and changed since")
            return self._leave(bind, Reason.OUTCOME_UNKNOWN)
        earlier = self.unsettled.get(bind.uid)
        if earlier is not None and not earlier.is_dead(pod) and now_s < earlier.ends_s:
            return self._write_earlier(bind, earlier, now_s)
        if earlier is not None:
            self._forget(earlier)
            del self.unsettled[bind.uid]
        request = self._parse(bind, pod)
        return request if isinstance(request, Answer) else self._place(bind, request, now_s)

    def _write_earlier(
        self, bind: BindAttempt, earlier: BindAttempt, now_s: float
    ) -> Answer | Step:
        """An earlier call's write may yet come true: no other plan may be written beside it."""
        is_intact = earlier.plan is None or self._planner.is_intact(bind.uid, earlier.plan)
        if earlier.node != bind.node or not is_intact:
            return self._leave(bind, Reason.OUTCOME_UNKNOWN)
        return self._write(bind.repeating(earlier), None, now_s)

    def _found_bound(
        self, bind: BindAttempt, pod: messages.WirePod, node: str, now_s: float
    ) -> Answer:
        """Adopt what the pod has; the watch will show the same."""
        text = (pod.metadata.annotations or {}).get(names.PLAN)
        mine = self._writer(bind)
        self.unsettled.pop(bind.uid, None)
        if mine.n_writes > 0 and mine.node == node and text == mine.annotations.get(names.PLAN):
            answer = self._accepted(mine)
            return answer if node == bind.node else self._bound(bind, node)
        self._forget(mine)
        self._adopt(pod, node, text, now_s)
        return self._bound(bind, node)

    def _adopt(self, pod: messages.WirePod, node: str, text: str | None, now_s: float) -> None:
        """Keep the devices of a plan that another writer bound, until the watch shows it."""
        try:
            request = parse_pod(pod, self._rules.resources, self._rules.group_kinds)
            plan = decode_plan(text or "")
        except (MalformedPod, UserError, CodecError):
            return
        deadline_s = now_s + self._rules.assume_s
        if plan.node == node and self._cluster.assume(request, plan, deadline_s=deadline_s) is None:
            self._cluster.pods.confirm(request.uid)

    def _parse(self, bind: BindAttempt, pod: messages.WirePod) -> PodRequest | Answer:
        try:
            request = parse_pod(pod, self._rules.resources, self._rules.group_kinds)
        except (UserError, MalformedPod) as error:
            reason = Reason.INVALID_REQUEST if isinstance(error, UserError) else Reason.MALFORMED
            return self._undo(bind, reason, str(error))
        self._pending.accept(request)
        return request

    # Ending.

    def _accepted(self, bind: BindAttempt) -> Answer:
        self._in_flight.pop(bind.uid, None)
        if bind.plan is not None:
            self._cluster.pods.confirm(bind.uid)
            if bind.plan.group and self._cluster.bound(bind.uid):  # else it has ended meanwhile
                self._groups.assigned.see(bind.uid, bind.namespace, bind.plan.group, bind.node)
        return self._placed(bind)

    def _placed(self, bind: BindAttempt) -> Answer:
        """Success of a binding that this extender wrote.

        It has the generation that was planned from. For the newer one the state would have to
        reconcile now, which the next reader does anyway, together with later watch events.
        """
        generation = self._generation if bind.plan is None else bind.plan.generation
        return bind.success(_SUCCESS, generation)

    def _bound(self, bind: BindAttempt, node: str) -> Answer:
        """The pod has a node already, whoever bound it."""
        if node == bind.node:
            self._end(bind)
            return replace(bind.answer(Outcome.OK, _SUCCESS, self._generation), detail="again")
        detail = f"bound to node {node}, expected {quote(bind.node)}"
        return self._error(bind, Reason.BOUND_ELSEWHERE, f"{bind.title}: {detail}")

    def _undo(self, bind: BindAttempt, reason: Reason, detail: str = "") -> Answer:
        """Nothing was bound and nothing will be: forget the plan."""
        self._forget(self._writer(bind))
        self.unsettled.pop(bind.uid, None)
        if reason in _GONE:
            self._pending.forget(bind.uid)
        return self._fail(bind, reason, detail)

    def _leave(self, bind: BindAttempt, reason: Reason, detail: str = "") -> Answer:
        """What was written may come true: keep the plan for the next call."""
        if bind.n_writes > 0:
            self.unsettled[bind.uid] = bind
            if len(self.unsettled) > MAX_UNSETTLED:
                del self.unsettled[next(iter(self.unsettled))]
        return self._fail(bind, reason, detail)

    def _writer(self, bind: BindAttempt) -> BindAttempt:
        """The bind that wrote last for this pod: this one, else an earlier one not settled."""
        return bind if bind.n_writes > 0 else self.unsettled.get(bind.uid, bind)

    def _forget(self, bind: BindAttempt) -> None:
        if bind.plan is not None and bind.n_writes > 0:
            self._cluster.pods.forget(bind.uid)

    def _fail(self, bind: BindAttempt, reason: Reason, detail: str = "") -> Answer:
        title = f"{bind.title} on node {quote(bind.node)}"
        text = ": ".join(filter(None, (title, reason.value, detail)))
        return self._error(bind, reason, text)

    def _error(self, bind: BindAttempt, reason: Reason, text: str) -> Answer:
        self._end(bind)
        failed = failure(Verb.BIND, reason, text, self._generation)
        answer = bind.answer(Outcome.FAILED, failed.body, failed.generation)
        return replace(answer, reason=reason, detail=failed.detail)

    def _end(self, bind: BindAttempt) -> None:
        current = self._in_flight.get(bind.uid)
        if current is not None and current.bind_id == bind.bind_id:
            del self._in_flight[bind.uid]

    def _current(self, step: Step) -> BindAttempt | None:
        """The bind that the step belongs to; None where another call has taken over."""
        bind = self._in_flight.get(step.uid)
        return bind if bind is not None and bind.bind_id == step.bind_id else None

    def _taken_over(self, step: Step) -> Answer:
        text = f"pod {step.namespace}/{step.name} ({step.uid}): {Reason.UNDER_WAY.value}"
        return failure(Verb.BIND, Reason.UNDER_WAY, text, self._generation)

    def _read(self, bind: BindAttempt, phase: BindPhase) -> ReadPod:
        self._in_flight[bind.uid] = replace(bind, phase=phase)
        return ReadPod(bind.bind_id, bind.namespace, bind.name, bind.uid, bind.node)

    @property
    def _generation(self) -> int:
        return self._cluster.snapshot.generation
