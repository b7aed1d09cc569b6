"""The gateway: every input of an engine passes here as an event and can be recorded.

The shells change the engine and the live cluster through `Gateway.handle` alone, so that no input
that decides can be missing from the decision log. Reading needs no gateway, nor does what changes
no answer: machine types built elsewhere, effects taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, overload

from extender.engine import events
from extender.errors import MalformedPod, UserError, WireError
from extender.placement import WORK_S, RatingBudget
from extender.protocol import Answer, Outcome, Verb, messages, parse_pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.bind import Step
    from extender.engine.events import Output
    from extender.engine.verbs import Engine
    from extender.preemption import ReadNodes
    from extender.protocol import PodRequest
    from extender.state import LiveCluster
    from extender.unschedulable import Requeue
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
    """The way in to an engine, over an embedded cluster or a live one.

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
    def handle(self, event: events.BindEvent) -> Answer | Step: ...
    @overload
    def handle(self, event: events.PreemptEvent) -> Answer | ReadNodes: ...
    @overload
    def handle(self, event: events.RequeueDue) -> tuple[Requeue, ...]: ...
    @overload
    def handle(self, event: events.Event) -> Output: ...

    def handle(self, event: events.Event) -> Output:
        """Apply an event and return what it leads to.

        Raises `ValueError` for a verb that is not answered at once.
        """
        output: Output = None
        match event:
            case events.VerbCalled(Verb.EXPLAIN, body, at_s):
                return self.engine.answer(Verb.EXPLAIN, body, at_s)  # decides nothing
            case events.VerbCalled():
                event, output = self._call(event)
            case (
                events.BindRequested()
                | events.BindPodRead()
                | events.BindingWritten()
                | events.BindAbandoned()
            ):
                output = self._bind(event)
                if isinstance(output, Answer) and output.outcome is Outcome.OK:
                    self.engine.unschedulable.forget(output.pod_uid)
            case events.PreemptRequested() | events.PreemptNodesRead() | events.PreemptAbandoned():
                output = self._preempt(event)
            case events.RequeueDue(at_s):
                freed = sorted(self.cluster.take_freed_nodes())
                if not freed and not self.engine.unschedulable.n_pods:
                    return ()  # normal, twice a second: not worth a line in the log
                self.engine.unschedulable.change(freed, self.cluster, at_s)
                output = self.engine.unschedulable.due(self.cluster, at_s)
            case _:
                self._update(event, self.cluster)
        if self._reconciles_each:
            self.cluster.reconcile()
        if self._record is not None:
            self._record(event, output)
        return output

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

    def _bind(self, event: events.BindEvent) -> Answer | Step:
        binds = self.engine.binds
        match event:
            case events.BindRequested(call, at_s):
                return binds.begin(call, at_s)
            case events.BindPodRead(step, pod, at_s):
                return binds.read(step, pod, at_s)
            case events.BindingWritten(step, written, _):
                return binds.written(step, written)
            case events.BindAbandoned(step, detail, _):
                return binds.abandon(step, detail)

    def _preempt(self, event: events.PreemptEvent) -> Answer | ReadNodes:
        preemptions = self.engine.preemptions
        match event:
            case events.PreemptRequested(body, at_s):
                return preemptions.begin(body, at_s)
            case events.PreemptNodesRead(step, read, _):
                return preemptions.nodes_read(step, read)
            case events.PreemptAbandoned(step, detail, _):
                return preemptions.abandon(step, detail)

    def _update(self, event: events.StateEvent, cluster: LiveCluster) -> None:  # noqa: C901, PLR0912 - a table
        match event:
            case events.PodSeen(pod):
                cluster.pods.see(pod)
                self.engine.unschedulable.forget(pod.uid)
            case events.PodGone(uid):
                cluster.pods.lose(uid)
                self.engine.pod_ended(uid)
            case events.PodsListed(pods):
                for uid in cluster.pods.replace(pods):
                    self.engine.pod_ended(uid)
                for pod in pods:
                    self.engine.unschedulable.forget(pod.uid)
            case events.PodFetched(pod):
                cluster.pods.read(pod)
            case events.NodeSeen(node):
                cluster.see_node(node)
            case events.NodeGone(name):
                cluster.lose_node(name)
            case events.NodesListed(nodes):
                cluster.replace_nodes(nodes)
            case events.NominationSeen(pod):
                nomination = self._nomination(pod)
                if nomination is None:
                    cluster.pods.end_nomination(pod.uid)
                else:
                    cluster.pods.nominate(*nomination)
            case events.NominationGone(uid):
                cluster.pods.end_nomination(uid)
            case events.NominationsListed(pods):
                nominations = (one for pod in pods if (one := self._nomination(pod)) is not None)
                cluster.pods.replace_nominated(nominations)
            case events.FreshnessSet(is_synced, observed_at_s):
                cluster.set_freshness(is_synced=is_synced, observed_at_s=observed_at_s)
            case events.TimePassed(at_s):
                cluster.expire(at_s, in_flight=self.engine.binds.in_flight)
            case events.RequeueDropped(uid):
                self.engine.unschedulable.forget(uid)
            case events.RatingsResumed(n_states):
                self.engine.rate_deferred(n_states)

    def _nomination(self, pod: PodObject) -> tuple[PodRequest, str] | None:
        """What is claimed for a pod, and where; None where it requests no GPU or is not waiting."""
        if pod.nominated_node is None or pod.node_name is not None:
            return None
        if pod.is_deleting or pod.has_ended:
            # Its nomination stays written on it, but it will not be scheduled any more.
            return None
        try:
            content = messages.decode(messages.WirePod, pod.body)
            request = parse_pod(content, self.engine.rules.resources)
        except (WireError, MalformedPod, UserError):
            return None
        return None if request.shape is None else (request, pod.nominated_node)
