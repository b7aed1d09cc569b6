"""The verbs: request bytes in, answer bytes out, over a cluster's state.

Filter, prioritize and explain are answered at once. Bind and preempt need the API server and are
therefore state machines (`extender.bind`, `extender.preemption`), which stand here beside what they
share between calls: the rater's memory, the pods that filter has seen (bind names a pod by uid
alone) and those that it rejected.

The same calls in the same order give the same bytes: `extender.decision_log.replay` does so. It
must never know HTTP (`extender.http.routes`), read a clock, or log.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from extender.bind import BindPlanner, Binds, MemberBinds
from extender.engine.assigned_pods import show_assigned
from extender.engine.explain import explain_bound, explain_pod, warn_of_scheduler
from extender.engine.explain_group import explain_group, warn_of_level
from extender.engine.group_filter import GroupFilter
from extender.engine.near_filter import filter_near
from extender.engine.pod_group_filter import filter_sibling
from extender.engine.request_reader import CallReader, read_bare_pod, why_unreadable
from extender.errors import MalformedPod, UserError, WireError
from extender.groups import Groups, PodGroups
from extender.pending import PendingPods, WaitingPod
from extender.placement import DomainFreeCapacity, Rater, filter_nodes, prioritize_nodes
from extender.preemption import Preemptions
from extender.protocol import (
    Answer,
    Outcome,
    Reason,
    Verb,
    failure,
    parse_pod,
    read_tolerations,
    responses,
)
from extender.state import LiveCluster
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from extender.placement import Filtered, RatingBudget
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.snapshot import ClusterSnapshot, RequestedNodes
    from kube.objects import PodFacts

__all__ = ["Engine", "make_engine"]


def make_engine(rules: Rules) -> Engine:
    """An engine over a cluster of which nothing is known yet."""
    cluster = LiveCluster(
        rules.resources,
        demand=rules.demand,
        gpu_worth=rules.gpu_worth,
        families=rules.group_families,
    )
    return Engine(cluster, rules)


class Engine:
    """The verbs over one cluster. Not thread-safe: called from the event loop only."""

    def __init__(self, cluster: LiveCluster, rules: Rules) -> None:
        self.cluster = cluster
        self.rules = rules
        self._rater = Rater(loss_bounds=rules.loss_bounds, prefer=rules.prefer)
        # Its own: what explain has rated must not save time in calls, which a replay repeats.
        self._explain_rater = Rater(loss_bounds=rules.loss_bounds, prefer=rules.prefer)
        self._free_capacity = DomainFreeCapacity(lambda: cluster.domains)
        self.groups = Groups(cluster, self._rater, claim_s=rules.claim_s)
        self.pending = PendingPods(self._rater, wake_after_s=rules.wake_after_s)
        self._calls = CallReader(cluster, rules, self.pending)
        self._group_filter = GroupFilter(self.groups)
        self.pod_groups = PodGroups(cluster, self._rater, assume_s=rules.assume_s)
        planner = BindPlanner(cluster, rules, self._rater, self.groups, self.pod_groups)
        self.binds = Binds(
            cluster, rules, planner=planner, pending=self.pending, groups=self.groups
        )
        self.member_binds = MemberBinds(self.binds, self.groups, cluster)
        self.preemptions = Preemptions(
            cluster,
            rules,
            self._rater,
            others=self.groups.near_bound.other_models,
        )

    @property
    def n_ratings(self) -> int:
        """Ratings that the memory holds."""
        return self._rater.n_entries

    def is_ready(self, now_s: float) -> bool:
        """Whether the state is fresh enough to answer from."""
        return self.cluster.snapshot.is_fresh(now_s, self.rules.staleness_bound_s)

    @property
    def n_deferred(self) -> int:
        """Node states that are still to be rated for some shape."""
        return self._rater.n_deferred

    def rate_deferred(self, n_states: int) -> None:
        """Rate so many of them."""
        self._rater.rate_deferred(n_states)

    def answer(
        self, verb: Verb, body: bytes, now_s: float, budget: RatingBudget | None = None
    ) -> Answer:
        """Answer a call that needs no I/O; `body` is the request as it came.

        `budget` bounds what filter and prioritize rate. Raises `ValueError` for BIND and
        PREEMPT, which need I/O.
        """
        match verb:
            case Verb.FILTER:
                return self._filter(body, now_s, budget)
            case Verb.PRIORITIZE:
                return self._prioritize(body, now_s, budget)
            case Verb.EXPLAIN:
                return self._explain(body)
            case _:
                msg = f"{verb.value} is not answered at once"
                raise ValueError(msg)

    def failure(self, verb: Verb, reason: Reason, detail: str) -> Answer:
        """Report to the caller what is wrong, in-band where the verb has a field for it."""
        return failure(verb, reason, detail, self.cluster.snapshot.generation)

    def waiting(self) -> Iterator[WaitingPod]:
        """The pods that wait, for people: also those that filter was not called for."""
        placed = self.cluster.pods
        return self.pending.waiting(lambda uid: placed.get(uid) is not None)

    def pod_ended(self, uid: str) -> None:
        """The pod is gone: drop what is kept of it."""
        self.pending.forget(uid)
        self.groups.depart(uid)
        self.groups.assigned.end(uid)
        self.pod_groups.gone(uid)
        self.binds.ended(uid)

    def pod_bound(self, pod: PodFacts) -> None:
        """A watch shows a pod with a node."""
        self.pending.end_wait(pod.uid)
        self.pod_groups.bound(pod.uid)
        show_assigned(pod, self.groups, self.rules.group_kinds)

    def bind_answered(self, answer: Answer) -> None:
        """A bind call ended."""
        self.member_binds.ended(answer)
        if answer.outcome is Outcome.OK:
            self.pending.end_wait(answer.pod_uid)

    def _filter(self, body: bytes, now_s: float, budget: RatingBudget | None) -> Answer:
        read = self._calls.read(Verb.FILTER, body, now_s)
        if isinstance(read, Answer):
            return read
        request, requested = read.request, read.nodes
        self.groups.readings.called_s = now_s
        if request.shape is None:
            self.pending.accept(request)
            return self._name_all(request, requested)
        if request.waits_for_others:
            return self._filter_member(request, requested, now_s)
        if request.pod_group and request.uid:
            budget, generation = None, None
            choose = partial(self._choose_nodes, request, requested)
            filtered = filter_sibling(request, now_s, choose, self.pod_groups, self._rater)
        else:
            snapshot = self.cluster.snapshot_for(request)
            generation = snapshot.generation
            filtered = self._choose_nodes(request, requested, snapshot, budget=budget)
        n_deferred = 0 if budget is None else budget.n_deferred
        if n_deferred and not filtered.n_feasible:
            return self._fail_unrated(request, n_deferred)
        waited = self._note_rejection(request, requested, filtered.main_reason, now_s)
        body = responses.encode_filter(
            filtered.names_json,
            failed_json=filtered.failed_json,
            unresolvable_json=filtered.unresolvable_json,
        )
        answer = self._answer(
            Verb.FILTER,
            request,
            body,
            generation,
            outcome=Outcome.OK if filtered.n_feasible else Outcome.REFUSED,
            reason=filtered.main_reason,
            n_nodes=len(requested),
            n_named=len(filtered.names_json),
            n_deferred=n_deferred,
        )
        if waited is None or not filtered.n_feasible:
            return answer
        return replace(answer, waited_s=now_s - waited.since_s, waited_for=waited.reason)

    def _name_all(self, request: PodRequest, requested: RequestedNodes) -> Answer:
        """A pod without GPUs may have any node."""
        names = requested.names(self.cluster.snapshot.node_index)
        body = responses.encode_filter([json.dumps(name) for name in names])
        return self._answer(
            Verb.FILTER, request, body, n_nodes=len(requested), n_named=len(requested)
        )

    def _fail_unrated(self, request: PodRequest, n_deferred: int) -> Answer:
        """A refusal might be wrong, and the pod would wait for minutes."""
        detail = f"{Reason.NOT_RATED.value}: {n_deferred} kinds of nodes left"
        answer = self.failure(Verb.FILTER, Reason.NOT_RATED, detail)
        return replace(answer, pod=request.full_name, pod_uid=request.uid, n_deferred=n_deferred)

    def _choose_nodes(  # noqa: PLR0913 - what a choice depends on
        self,
        request: PodRequest,
        requested: RequestedNodes,
        snapshot: ClusterSnapshot,
        siblings: Sequence[str] = (),
        later: NDArray[np.bool_] | None = None,
        *,
        budget: RatingBudget | None = None,
    ) -> Filtered:
        free_capacity = None
        if self.cluster.domains.has_network:
            free_capacity = self._free_capacity.of(request, snapshot)
        named = partial(
            filter_nodes,
            request,
            snapshot=snapshot,
            rater=self._rater,
            rules=self.rules,
            budget=budget,
            free_capacity=free_capacity,
        )
        if request.group is None:
            return named(requested)
        near_bound = self.groups.near_bound
        return filter_near(
            request,
            requested,
            snapshot,
            near_bound=near_bound,
            named=named,
            siblings=siblings,
            later=later,
        )

    def _filter_member(
        self, request: PodRequest, requested: RequestedNodes, now_s: float
    ) -> Answer:
        """The node that is claimed for a member of a group, or why it waits."""
        if self.binds.never_commits(request):
            self.groups.failed(request.uid)
        node_index = self.cluster.snapshot.node_index
        found = self._group_filter.answer(request, requested, node_index, now_s)
        self._note_rejection(request, None, found.reason, now_s)
        return self._answer(
            Verb.FILTER,
            request,
            found.body,
            outcome=Outcome.OK if found.reason is None else Outcome.REFUSED,
            reason=found.reason,
            n_nodes=len(requested),
            n_named=int(found.reason is None),
        )

    def _note_rejection(
        self,
        request: PodRequest,
        requested: RequestedNodes | None,
        reason: Reason | None,
        now_s: float,
    ) -> WaitingPod | None:
        """Remember a pod for which filter named no node, and why; None: it may be bound now.

        Without requested nodes it waits for its group, and is woken by that. Returns how a pod that
        may be bound now waited before.
        """
        if reason is None or not request.uid:
            return self.pending.accept(request)
        pod = WaitingPod(
            request.uid,
            request.namespace,
            request.name,
            reason,
            now_s,
            now_s,
            request,
        )
        if requested is None:
            self.pending.reject(pod)
            return None
        node_index = self.cluster.snapshot.node_index
        names = requested.names(node_index)
        self.pending.reject(pod, requested=names, known=node_index.positions)
        return None

    def _prioritize(self, body: bytes, now_s: float, budget: RatingBudget | None) -> Answer:
        read = self._calls.read(Verb.PRIORITIZE, body, now_s)
        if isinstance(read, Answer):
            return read
        request, requested, generation = read.request, read.nodes, None
        if request.shape is None:
            names = requested.names(self.cluster.snapshot.node_index)
            entries = [responses.score_head(name) + responses.score_tail(0) for name in names]
        else:
            snapshot = self.cluster.snapshot_for(request)
            generation, free_capacity = snapshot.generation, None
            if self.cluster.domains.has_network:
                free_capacity = self._free_capacity.of(request, snapshot)
            entries = prioritize_nodes(
                request,
                requested,
                snapshot,
                rater=self._rater,
                budget=budget,
                free_capacity=free_capacity,
            )
        body = responses.encode_prioritize(entries)
        n_nodes, n_named = len(requested), len(entries)
        n_deferred = 0 if budget is None else budget.n_deferred
        return self._answer(
            Verb.PRIORITIZE,
            request,
            body,
            generation,
            n_nodes=n_nodes,
            n_named=n_named,
            n_deferred=n_deferred,
        )

    def _explain(self, body: bytes) -> Answer:
        try:
            pod = read_bare_pod(body)
            request = parse_pod(pod, self.rules.resources, self.rules.group_kinds)
        except (WireError, MalformedPod, UserError) as error:
            return self.failure(Verb.EXPLAIN, why_unreadable(error), str(error))
        cluster, rater = self.cluster, self._explain_rater
        if pod.spec.node_name:
            explanation = explain_bound(request, pod, cluster, rater=rater)
        else:
            explanation = explain_pod(
                request,
                cluster,
                rater=rater,
                free_capacity=self._free_capacity.of(request, cluster.snapshot_for(request)),
                rejected=self.pending.rejected(request.uid),
                tolerations=read_tolerations(pod.spec),
            )
            explanation["warnings"] += warn_of_scheduler(request, self.rules)
        plan_text = (pod.metadata.annotations or {}).get(names.PLAN)
        group = explain_group(request, self.groups.readings, cluster, plan_text)
        if group is not None:
            explanation["group"] = group
        return self._answer(Verb.EXPLAIN, request, json.dumps(explanation).encode())

    def _answer(  # noqa: PLR0913 - one for each field of an answer
        self,
        verb: Verb,
        request: PodRequest,
        body: bytes,
        generation: int | None = None,
        *,
        outcome: Outcome = Outcome.OK,
        reason: Reason | None = None,
        n_nodes: int = 0,
        n_named: int = 0,
        n_deferred: int = 0,
    ) -> Answer:
        warnings = request.warnings
        if request.group is not None:
            warnings += warn_of_level(request, self.cluster)
        return Answer(
            verb,
            outcome,
            body,
            self.cluster.snapshot.generation if generation is None else generation,
            reason,
            pod=request.full_name,
            pod_uid=request.uid,
            n_nodes=n_nodes,
            n_named=n_named,
            warnings=warnings,
            n_deferred=n_deferred,
        )
