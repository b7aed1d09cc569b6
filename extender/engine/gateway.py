"""The gateway: every input of an engine passes here as an event and can be recorded.

The shells change the engine and the live cluster through `Gateway.handle` alone, so that no input
that decides can be missing from the decision log. Reading needs no gateway, nor does what changes
no answer: machine types built elsewhere, effects taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, overload

from extender.bind import HoldBind
from extender.engine import events
from extender.engine.assigned_pods import show_by_count
from extender.placement import WORK_S, RatingBudget
from extender.protocol import Answer, Verb, has_group, read_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.bind import AnyStep
    from extender.engine.events import Output
    from extender.engine.verbs import Engine
    from extender.pending import Requeue
    from extender.preemption import ReadNodes
    from extender.protocol import PodRequest
    from extender.state import LiveCluster
    from kube.objects import PodObject

    Record: TypeAlias = Callable[[events.Event, Output], None]

__all__ = ["Gateway", "RatingLimit"]


@dataclass(frozen=True, slots=True)
class RatingLimit:
    """Seconds that a call may take for rating, by a timer of this thread's processor time.

    Not of wall time: on a busy machine a call that waits for a processor would rate nothing.
    """

    seconds: float
    timer: Callable[[], float]

    def budget(self) -> RatingBudget:
        """The budget of one call, which runs from its first rating on; that one it always allows.

        A rating that would not end within the budget, by what it counts, is not begun.
        """
        began_s: list[float] = []

        def is_spent(work: int) -> bool:
            now_s = self.timer()
            if not began_s:
                began_s.append(now_s)
                return False
            return now_s - began_s[0] + work * WORK_S >= self.seconds

        return RatingBudget(is_spent)


class Gateway:
    """The way in to an engine.

    `record` is called with each event and what it led to.

    A cluster reconciles when its state is read, many inputs at once. The first reader may be a
    metrics scrape, which is no decision and not in the log; so a run that is recorded reconciles
    after each event, as its replay does (`reconciles_each`).

    `limit` bounds the time that filter and prioritize may take for rating; without one they rate
    all, or as many states as the event says.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        record: Record | None = None,
        reconciles_each: bool = False,
        limit: RatingLimit | None = None,
    ) -> None:
        self.engine = engine
        self._limit = limit
        self._record = record
        self._reconciles_each = reconciles_each or record is not None

    @property
    def cluster(self) -> LiveCluster:
        """The state that is decided from."""
        return self.engine.cluster

    @overload
    def handle(self, event: events.VerbCalled) -> Answer: ...
    @overload
    def handle(self, event: events.StateEvent) -> None: ...
    @overload
    def handle(self, event: events.BindEvent) -> Answer | AnyStep: ...
    @overload
    def handle(self, event: events.PreemptEvent) -> Answer | ReadNodes: ...
    @overload
    def handle(self, event: events.RequeueDue) -> tuple[Requeue, ...]: ...
    @overload
    def handle(self, event: events.Event) -> Output: ...

    def handle(self, event: events.Event) -> Output:  # noqa: C901, PLR0912 - a table
        """Apply an event and return what it leads to.

        Raises `ValueError` for a verb that is not answered at once.
        """
        output: Output = None
        match event:
            case events.VerbCalled(Verb.EXPLAIN, body, at_s):
                return self.engine.answer(Verb.EXPLAIN, body, at_s)  # decides nothing
            case events.VerbCalled():
                event, output = self._call(event)
            case events.BindRequested(call, at_s):
                output = self.engine.member_binds.begin(call, at_s)
            case events.BindHeld(step, at_s):
                output = self.engine.member_binds.held(step, at_s)
            case events.BindPodRead(step, pod, at_s):
                output = self.engine.binds.read(step, pod, at_s)
            case events.BindingWritten(step, written, _):
                output = self.engine.binds.written(step, written)
            case events.BindAbandoned(step, detail, at_s):
                if isinstance(step, HoldBind):
                    output = self.engine.member_binds.held(step, at_s)
                else:
                    output = self.engine.binds.abandon(step, detail)
            case events.PreemptRequested() | events.PreemptNodesRead() | events.PreemptAbandoned():
                output = self._preempt(event)
            case events.RequeueDue(at_s):
                due = self._due(at_s)
                if due is None:
                    return ()  # normal, twice a second: not worth a line in the log
                output = due
            case _:
                self._update(event, self.cluster)
        if isinstance(output, Answer) and output.verb is Verb.BIND:
            self.engine.bind_answered(output)
        if self._reconciles_each:
            self.cluster.reconcile()
        if self._record is not None:
            self._record(event, output)
        return output

    def _due(self, at_s: float) -> tuple[Requeue, ...] | None:
        """The pods to requeue, after the groups were planned; None where there is nothing to do."""
        freed = sorted(self.cluster.take_freed_nodes())
        groups, pending = self.engine.groups, self.engine.pending
        if not groups.n_groups:
            self.cluster.domains.prepare()  # a first group need not wait for it
        is_waited = pending.n_rejected or groups.n_groups
        if not (freed or is_waited):
            return None
        pending.change(freed, self.cluster, at_s)
        if freed and groups.n_groups:
            nodes = self.cluster.snapshot.nodes
            groups.devices_freed(sum(nodes[one].free.bit_count() for one in freed))
        members = groups.due(at_s) if self.engine.is_ready(at_s) else ()
        return members + pending.due(self.cluster, at_s)

    def _call(self, event: events.VerbCalled) -> tuple[events.VerbCalled, Answer]:
        """The answer, and the event with what its time was enough for."""
        budget: RatingBudget | None = None
        if event.n_rated is not None:
            budget = RatingBudget.of_states(event.n_rated)
        elif self._limit is not None:
            budget = self._limit.budget()
        answer = self.engine.answer(event.verb, event.body, event.at_s, budget)
        if budget is not None and budget.n_deferred:
            event = replace(event, n_rated=budget.n_rated)
        return event, answer

    def _preempt(self, event: events.PreemptEvent) -> Answer | ReadNodes:
        preemptions = self.engine.preemptions
        match event:
            case events.PreemptRequested(body, at_s):
                return preemptions.begin(body, at_s)
            case events.PreemptNodesRead(step, read, _):
                return preemptions.nodes_read(step, read)
            case events.PreemptAbandoned(step, detail, _):
                return preemptions.abandon(step, detail)

    def _update(self, event: events.StateEvent, cluster: LiveCluster) -> None:  # noqa: C901, PLR0912, PLR0915 - a table
        match event:
            case events.PodUpdated(pod):
                cluster.pods.update(pod)
                self.engine.pod_bound(pod)
            case events.PodDeleted(uid):
                cluster.pods.delete(uid)
                self.engine.pod_ended(uid)
            case events.PodsListed(pods):
                for uid in cluster.pods.replace(pods):
                    self.engine.pod_ended(uid)
                self.engine.groups.assigned.keep(pod.uid for pod in pods)
                for pod in pods:
                    self.engine.pod_bound(pod)
            case events.PodFetched(pod):
                cluster.pods.read(pod)
                self._show_read(pod, cluster)
            case events.NodeUpdated(node):
                cluster.update_node(node)
            case events.NodeDeleted(name):
                cluster.delete_node(name)
            case events.NodesListed(nodes):
                cluster.replace_nodes(nodes)
            case events.NominationUpdated(pod):
                nomination = self._nomination(pod)
                if nomination is None:
                    cluster.pods.nominations.end(pod.uid)
                else:
                    cluster.pods.nominations.add(*nomination)
            case events.NominationDeleted(uid):
                cluster.pods.nominations.end(uid)
            case events.NominationsListed(pods):
                nominations = (one for pod in pods if (one := self._nomination(pod)) is not None)
                cluster.pods.nominations.replace(nominations)
            case events.PendingUpdated(pod, at_s):
                member = self._waiting(pod)
                if member is None:
                    self.engine.groups.lose(pod.uid)
                else:
                    self.engine.groups.see(member, at_s)
            case events.PendingDeleted(uid):
                self.engine.groups.depart(uid)
            case events.PendingListed(uids, _):
                self.engine.groups.keep_listed(uids)
            case events.FreshnessSet(is_synced, observed_at_s):
                cluster.set_freshness(is_synced=is_synced, observed_at_s=observed_at_s)
            case events.TimePassed(at_s):
                cluster.expire(at_s, in_flight=self.engine.binds.in_flight)
                self.engine.groups.expire(at_s)
                self.engine.pod_groups.expire(at_s)
            case events.RequeueDropped(uid):
                self.engine.pending.end_wait(uid)
            case events.RatingsResumed(n_states):
                self.engine.rate_deferred(n_states)

    def _nomination(self, pod: PodObject) -> tuple[PodRequest, str] | None:
        """What is claimed for a pod, and where; None where it requests no GPU or is not waiting."""
        if pod.nominated_node is None or pod.node_name is not None:
            return None
        if pod.is_deleting or pod.has_ended:
            # Its nomination stays written on it, but it will not be scheduled any more.
            return None
        request = self._request(pod)
        return None if request is None else (request, pod.nominated_node)

    def _show_read(self, pod: PodObject, cluster: LiveCluster) -> None:
        """What a reading in full says of the pod's group."""
        known = cluster.pods.get(pod.uid)
        if known is None or pod.is_deleting or known.deletion_grace_s is not None:
            self.engine.groups.assigned.end(pod.uid)
            return
        if known.plan is not None or pod.node_name is None:
            return
        # On a node where devices are only counted a member has no plan that names its group.
        request = self._request(pod)
        if request is not None and self.engine.rules.serves(request.scheduler_name):
            show_by_count(request, pod.node_name, self.engine.groups)

    def _waiting(self, pod: PodObject) -> PodRequest | None:
        """A member of a group that waits; None for every other pod, gated ones too."""
        if pod.node_name is not None or pod.is_deleting or pod.has_ended or pod.is_gated:
            return None
        rules = self.engine.rules
        if not has_group(pod.labels, pod.annotations, rules.group_kinds):
            return None
        request = self._read(pod)
        if request is None or request.group is None:
            return None
        # One without GPUs counts whoever places it.
        is_ours = rules.serves(request.scheduler_name)
        return request if request.shape is None or is_ours else None

    def _request(self, pod: PodObject) -> PodRequest | None:
        """What a pod requests; None where that is no GPU, or cannot be read."""
        request = self._read(pod)
        return None if request is None or request.shape is None else request

    def _read(self, pod: PodObject) -> PodRequest | None:
        rules = self.engine.rules
        return read_request(pod.body, rules.resources, rules.group_kinds)
