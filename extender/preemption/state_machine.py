"""The preempt verb: whose eviction gives a pod its set of GPUs.

For each node on which kube-scheduler would evict pods it decides whether the pod would then have a
set that satisfies it, and with which victims instead if not. It never names a pod of equal or
higher priority. It reads nothing itself: a step names the nodes to read.

kube-scheduler counts GPUs; it takes the cheapest pods whose GPUs are enough, wherever they lie.
Method:

1. Free for the pod counts what is free, what it has claimed itself, and what pods of lower priority
   have claimed. Where that and the GPUs of the scheduler's victims hold a set, the node passes with
   these victims as they are. Preferred pods are satisfied by every set of their size.
2. A node whose healthy GPUs would not do even if all of them were free is dropped. So is one where
   the plans on pods show that those of lower priority do not hold enough.
3. Other victims may do on the rest. For choosing them, pods, budgets and room are needed in full
   (`extender.preemption.victims`), so at most `NODES_AT_ONCE` nodes are read: those whose own
   victims are the cheapest, and, if any node has passed, only those that could be cheaper than the
   cheapest of these. What the scheduler's victims cost is known from the plans on them; where it is
   not, it is taken as low for a node to be read and as high for one that passed. While no node
   passes, the next ones are read, up to `MAX_READ` in all.
4. The scheduler may know already of pods that have left, before the watches show it. That is
   visible where its victims are too few by our count; there any pod may have left, and the node is
   read. Pods that had a node before the reading and are not in it are gone.
5. On the node that the pod is nominated to, its GPUs may be about to come free: where all
   victims are terminating, the answer is an empty map, and the pod waits. That node is always read.

A premature refusal is expensive: after an empty map, and after an error as well, the pod waits
until an event that its own rejections wait for, or for five minutes (schedule_one.go of 1.36: what
PostFilter returns goes no further). Touching the pod wakes it only where filter refused it too: the
scheduler's NodeResourcesFit waits for nothing but pods that leave and nodes that grow.

A node is named only with victims, since kube-scheduler takes an empty list for an error. The lists
that come without victims (Kubernetes 1.38) are chosen from scratch; where one needs no victim at
all, the answer is empty too, because the pod has a place.

On a node without usable topology, or for a victim that we do not know, kube-scheduler's count
stands. Where the kubelet's Topology Manager applies, a set is one that it would give and admit;
there fewer free GPUs may do although more do not, so 2 checks only what the pod itself demands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from extender.errors import MalformedPod, UserError, WireError
from extender.preemption.node_pods import read_pod_on_node
from extender.preemption.overlays import LOWEST_PRIORITY, Priorities, RatedOverlays, settled
from extender.preemption.victims import Case, choose_victims
from extender.protocol import Answer, Outcome, Reason, Verb, failure, messages, parse_pod, responses
from kube.errors import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from extender.placement import Rater
    from extender.preemption.node_pods import NodeReading, PodOnNode
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.state import LiveCluster
    from kube.objects import DisruptionBudget

__all__ = ["MAX_READ", "NODES_AT_ONCE", "NodesRead", "Preemptions", "ReadNodes"]

NODES_AT_ONCE = 8
"""Nodes read for one step: each is two requests, and kube-scheduler schedules no pod meanwhile."""
MAX_READ = 32
"""Nodes read for one preemption while none passes."""
MAX_IN_FLIGHT = 100
"""Preemptions between two steps; a scheduler has one at a time. The oldest is dropped."""


@dataclass(frozen=True, slots=True)
class ReadNodes:
    """Read these nodes, their pods and all disruption budgets, from the API server itself.

    `preempt_id` is unique within one run.
    """

    preempt_id: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodesRead:
    """What was read; a node that is not there or could not be read in time is left out.

    `fault` is why the first one is missing.
    """

    nodes: tuple[NodeReading, ...]
    budgets: tuple[DisruptionBudget, ...] = ()
    fault: str = ""


_Named: TypeAlias = "dict[str, tuple[tuple[str, ...], int]]"
"""Victims' uids, and budgets violated, by node."""


@dataclass(frozen=True, slots=True)
class _Preemption:
    """One call in flight. `waiting`: nodes not read yet, the most promising first.

    `settled`: the pods on the nodes being read that had a node before the reading began.
    """

    preempt_id: int
    request: PodRequest
    pod: PodOnNode
    given: Mapping[str, messages.MetaVictims | messages.Victims]
    passing: _Named
    waiting: tuple[str, ...]
    settled: frozenset[str] = frozenset()
    n_read: int = 0
    n_missed: int = 0


class Preemptions:
    """Preemptions over one cluster. Not thread-safe: called from the event loop only.

    `others` are those of some nodes that a member of a group does not get
    (`extender.groups.near_bound`): no pod is evicted there for it.
    """

    def __init__(
        self,
        cluster: LiveCluster,
        rules: Rules,
        rater: Rater,
        *,
        others: Callable[[PodRequest, Iterable[str]], Collection[str]] = lambda _, __: (),
    ) -> None:
        self._others = others
        self._cluster = cluster
        self._rules = rules
        self._rater = rater
        self._in_flight: dict[int, _Preemption] = {}
        self._last_id = 0

    def begin(self, body: bytes, now_s: float) -> Answer | ReadNodes:
        """Answer a preempt call, or return what to read first."""
        generation = self._cluster.snapshot.generation
        try:
            args = messages.decode(messages.PreemptionArgs, body)
            request = parse_pod(args.pod, self._rules.resources, self._rules.group_kinds)
            pod = read_pod_on_node(args.pod_content)
        except (WireError, MalformedPod, Unreadable) as error:
            return failure(Verb.PREEMPT, Reason.MALFORMED, str(error), generation)
        except UserError as error:
            return failure(Verb.PREEMPT, Reason.INVALID_REQUEST, str(error), generation)
        self._last_id += 1
        call = _Preemption(self._last_id, request, pod, args.victims, {}, ())
        if not self._cluster.snapshot.is_fresh(now_s, self._rules.staleness_bound_s):
            bound_s = self._rules.staleness_bound_s
            detail = f"{Reason.STALE.value}: not synced, or last heard of over {bound_s} s ago"
            return self._fail(call, Reason.STALE, detail)
        if request.waits_for_others:
            return self._refuse(call, Reason.GROUP_UNDECIDED)
        if request.shape is None:
            passing = {name: _unchanged(one) for name, one in args.victims.items() if one.uids}
            return self._finish(replace(call, passing=passing))
        return self._sort(call)

    def nodes_read(self, step: ReadNodes, read: NodesRead) -> Answer | ReadNodes:
        """Take what a step requested; nodes that are left out count as not readable."""
        call = self._in_flight.pop(step.preempt_id, None)
        if call is None:
            return self._unknown(step)
        nodes = RatedOverlays(self._cluster, self._rater, call.request)
        passing = dict(call.passing)
        for reading in read.nodes:
            node = nodes.get(reading.name)
            given = call.given.get(reading.name)
            if node is None or given is None:
                continue
            node = node.without(call.settled - reading.uids)
            chosen = choose_victims(
                Case(
                    pod=call.pod,
                    reading=reading,
                    given=given.uids,
                    free=node.view.free,
                    held=node.held,
                    budgets=read.budgets,
                    quality=node.quality,
                )
            )
            if chosen is None:
                continue
            if chosen.is_in_progress and reading.name == call.request.nominated_node:
                return self._refuse(call, Reason.PREEMPTION_IN_PROGRESS)
            if chosen.uids:
                passing[reading.name] = (chosen.uids, chosen.n_violations)
            elif given.uids and not chosen.is_in_progress:
                # The scheduler sees a pod that we do not: bound a moment ago, or nominated.
                passing[reading.name] = _unchanged(given)
            elif not chosen.is_in_progress:
                return self._refuse(call, Reason.NO_NEED)
        n_missed = call.n_missed + len(step.names) - len(read.nodes)
        call = replace(call, passing=passing, n_missed=n_missed)
        if passing or call.n_read >= MAX_READ or not call.waiting:
            return self._finish(call, read.fault)
        return self._read(call)

    def abandon(self, step: ReadNodes, detail: str) -> Answer:
        """The step will not be finished: out of time, an API server that is down."""
        call = self._in_flight.pop(step.preempt_id, None)
        if call is None:
            return self._unknown(step)
        call = replace(call, n_missed=call.n_missed + len(step.names))
        return self._finish(call, detail)

    # The scheduler's own victims.

    def _sort(self, call: _Preemption) -> Answer | ReadNodes:
        """Sort the nodes: those that pass as they are, those to be read, those that never will."""
        nodes = RatedOverlays(self._cluster, self._rater, call.request)
        priorities = Priorities(self._cluster, call.given, call.request.priority)
        others = self._others(call.request, call.given)
        passing: _Named = {}
        candidates: list[str] = []
        for name, given in call.given.items():
            node = nodes.get(name)
            is_too_high = any(priorities.is_too_high(uid) for uid in given.uids)
            if node is None or is_too_high or name in others:
                continue
            is_nominated = name == call.request.nominated_node
            if given.uids and not is_nominated and node.is_enough(given.uids):
                passing[name] = _unchanged(given)
            elif node.has_machine:
                may_go = [
                    uid
                    for uid in node.held
                    if node.is_behind(given.uids) or not priorities.is_too_high(uid)
                ]
                if node.may_do(may_go):
                    candidates.append(name)
        costs = {
            name: priorities.cost(call.given[name], unknown=LOWEST_PRIORITY) for name in candidates
        }
        if passing:
            highest = call.request.priority - 1
            bound = min(priorities.cost(call.given[one], unknown=highest) for one in passing)
            candidates = [
                name
                for name in candidates
                if costs[name] < bound or name == call.request.nominated_node
            ]
        candidates.sort(key=lambda name: (name != call.request.nominated_node, costs[name], name))
        call = replace(call, passing=passing, waiting=tuple(candidates))
        return self._read(call) if candidates else self._finish(call)

    def _read(self, call: _Preemption) -> ReadNodes:
        names = call.waiting[: min(NODES_AT_ONCE, MAX_READ - call.n_read)]
        call = replace(
            call,
            waiting=call.waiting[len(names) :],
            n_read=call.n_read + len(names),
            settled=settled(self._cluster, names),
        )
        self._in_flight[call.preempt_id] = call
        if len(self._in_flight) > MAX_IN_FLIGHT:
            del self._in_flight[next(iter(self._in_flight))]
        return ReadNodes(call.preempt_id, names)

    # Answers.

    def _finish(self, call: _Preemption, detail: str = "") -> Answer:
        if call.passing:
            return self._answer(call, Outcome.OK, call.passing)
        if call.n_missed:
            text = ": ".join(filter(None, (Reason.NODES_NOT_READ.value, detail)))
            return self._fail(call, Reason.NODES_NOT_READ, text)
        return self._refuse(call, Reason.NO_VICTIMS)

    def _refuse(self, call: _Preemption, reason: Reason) -> Answer:
        return replace(self._answer(call, Outcome.REFUSED, {}), reason=reason)

    def _fail(self, call: _Preemption, reason: Reason, detail: str) -> Answer:
        failed = failure(Verb.PREEMPT, reason, detail, self._generation)
        answer = self._answer(call, Outcome.FAILED, {})
        return replace(answer, body=failed.body, reason=reason, detail=detail)

    def _answer(self, call: _Preemption, outcome: Outcome, named: _Named) -> Answer:
        return Answer(
            Verb.PREEMPT,
            outcome,
            responses.encode_preempt(named),
            self._generation,
            pod=call.request.full_name,
            pod_uid=call.request.uid,
            n_nodes=len(call.given),
            n_named=len(named),
            warnings=call.request.warnings,
        )

    def _unknown(self, step: ReadNodes) -> Answer:
        detail = f"preemption {step.preempt_id} is not under way any more"
        return failure(Verb.PREEMPT, Reason.NODES_NOT_READ, detail, self._generation)

    @property
    def _generation(self) -> int:
        return self._cluster.snapshot.generation


def _unchanged(given: messages.MetaVictims | messages.Victims) -> tuple[tuple[str, ...], int]:
    return given.uids, given.n_pdb_violations
