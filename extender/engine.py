"""The extender without HTTP: request bytes in, answer bytes out, over a cluster's state.

What it answers: the verbs, with what they need kept between calls: the cluster, the rater's memory,
and the pods that filter has seen (bind names a pod by uid alone). Time is an argument, and nothing
waits for anybody, so the same calls in the same order give the same bytes: `extender.decisions`
replays them.

What it must never do: know HTTP (`extender.app`), read a clock, or log.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from extender import wire
from extender.errors import ExtenderError, MalformedPod, SettingsError, UserError, WireError
from extender.explain import explain_pod
from extender.ledger import Refused
from extender.rating import Rater, Refusal
from extender.reasons import Reason
from extender.request import PodRequest, parse_pod
from extender.verbs import filter_nodes, plan_bind, prioritize_nodes
from topology.errors import quote
from topology.remainder import Demand  # noqa: TC001 - pydantic reads Rules from the decision log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extender.embedded import EmbeddedCluster

__all__ = ["Answer", "Engine", "Outcome", "Rules", "Verb"]

NEEDS_NAMES = (
    "NodeNames is null, expected a list of node names: set nodeCacheCapable: true for this "
    "extender in the KubeSchedulerConfiguration"
)
MAX_REMEMBERED = 10_000
"""Pods remembered between filter and bind; kube-scheduler has few under way at a time, and a
forgotten one is filtered again. About 1 KB each."""
_A_TIME = "a finite number above 0"


class Verb(Enum):
    """What can be asked and recorded; END is a pod's end on the embedded cluster."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    BIND = "bind"
    EXPLAIN = "explain"
    END = "end"


class Outcome(Enum):
    """What became of a call.

    REFUSED: answered as asked, but no node (or no set) for the pod. FAILED: the caller gets an
    error.
    """

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decisions depend on; they open the decision log.

    Raises `SettingsError` for values that no settings could have had.
    """

    resources: tuple[str, ...]
    candidate_limit: int
    loss_bounds: tuple[float, ...]
    demand: Demand
    staleness_bound_s: float
    assume_s: float

    def __post_init__(self) -> None:
        bounds = self.loss_bounds
        is_ascending = list(bounds) == sorted(set(bounds)) and all(0 < one < 1 for one in bounds)
        is_named = len(set(self.resources)) == len(self.resources) > 0
        for name, is_meant, expected in (
            ("resources", is_named, "different names, at least one"),
            ("candidate_limit", self.candidate_limit >= 0, "0 or more"),
            ("loss_bounds", is_ascending and bounds, "ascending bounds in 0..1, at least one"),
            ("staleness_bound_s", 0 < self.staleness_bound_s < math.inf, _A_TIME),
            ("assume_s", 0 < self.assume_s < math.inf, _A_TIME),
        ):
            if not is_meant:
                msg = f"rule {name} is {getattr(self, name)}, expected {expected}"
                raise SettingsError(msg)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and what there is to say about it; `body` is JSON.

    `n_nodes` counts the nodes asked about, `n_named` those named in the answer.
    `placed_gbytes_per_s` is the predicted bandwidth of a set that was bound (0: nothing to reduce).
    """

    verb: Verb
    outcome: Outcome
    body: bytes
    generation: int
    reason: Reason | None = None
    detail: str = ""
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    n_nodes: int = 0
    n_named: int = 0
    placed_gbytes_per_s: float | None = None
    warnings: tuple[str, ...] = ()


class Engine:
    """The verbs over one cluster. Not thread-safe: called from the event loop only."""

    def __init__(self, cluster: EmbeddedCluster, rules: Rules) -> None:
        self.cluster = cluster
        self.rules = rules
        self._rater = Rater(loss_bounds=rules.loss_bounds)
        self._seen: OrderedDict[str, PodRequest] = OrderedDict()

    @property
    def n_ratings(self) -> int:
        """Ratings that the memory holds."""
        return self._rater.n_entries

    def is_ready(self, now_s: float) -> bool:
        """Whether the state is fresh enough to answer from."""
        return self.cluster.snapshot.is_fresh(now_s, self.rules.staleness_bound_s)

    def answer(self, verb: Verb, body: bytes, now_s: float) -> Answer:
        """Answer one call; `body` is the request as it came (for END, the pod's uid)."""
        handlers = {
            Verb.FILTER: self._filter,
            Verb.PRIORITIZE: self._prioritize,
            Verb.BIND: self._bind,
            Verb.EXPLAIN: self._explain,
            Verb.END: self._end,
        }
        return handlers[verb](body, now_s)

    def failure(self, verb: Verb, reason: Reason, detail: str) -> Answer:
        """Tell the caller what is wrong, in-band where the verb has a field for it."""
        if verb is Verb.FILTER:
            body = wire.encode_filter((), error=detail)
        elif verb is Verb.BIND:
            body = wire.encode_bind(detail)
        else:
            body = json.dumps({"error": detail}).encode()
        generation = self.cluster.snapshot.generation
        return Answer(verb, Outcome.FAILED, body, generation, reason, detail)

    def _filter(self, body: bytes, now_s: float) -> Answer:
        asked = self._read(Verb.FILTER, body, now_s)
        if isinstance(asked, Answer):
            return asked
        request, names = asked
        self._remember(request)
        if request.shape is None:
            body = wire.encode_filter([json.dumps(name) for name in names])
            said = self._said(Verb.FILTER, request, body)
            return replace(said, n_nodes=len(names), n_named=len(names))
        filtered = filter_nodes(
            request,
            names,
            self.cluster.snapshot,
            rater=self._rater,
            candidate_limit=self.rules.candidate_limit,
        )
        body = wire.encode_filter(
            filtered.names_json, failed=filtered.failed, unresolvable=filtered.unresolvable
        )
        return replace(
            self._said(Verb.FILTER, request, body),
            outcome=Outcome.OK if filtered.n_feasible else Outcome.REFUSED,
            reason=filtered.main_reason,
            n_nodes=len(names),
            n_named=len(filtered.names_json),
        )

    def _prioritize(self, body: bytes, now_s: float) -> Answer:
        asked = self._read(Verb.PRIORITIZE, body, now_s)
        if isinstance(asked, Answer):
            return asked
        request, names = asked
        if request.shape is None:
            entries = [wire.score_head(name) + wire.score_tail(0) for name in names]
        else:
            entries = prioritize_nodes(request, names, self.cluster.snapshot, rater=self._rater)
        said = self._said(Verb.PRIORITIZE, request, wire.encode_prioritize(entries))
        return replace(said, n_nodes=len(names), n_named=len(entries))

    def _read(self, verb: Verb, body: bytes, now_s: float) -> tuple[PodRequest, list[str]] | Answer:
        """Read what filter and prioritize are asked, or answer at once what is wrong with it."""
        try:
            args = wire.decode(wire.ExtenderArgs, body)
        except WireError as error:
            return self.failure(verb, Reason.MALFORMED, str(error))
        if args.node_names is None:
            return self.failure(verb, Reason.MALFORMED, NEEDS_NAMES)
        if not self.is_ready(now_s):
            return self._stale(verb)
        request = self._parse(verb, args.pod, args.node_names)
        return request if isinstance(request, Answer) else (request, args.node_names)

    def _parse(self, verb: Verb, pod: wire.Pod, names: Sequence[str]) -> PodRequest | Answer:
        try:
            return parse_pod(pod, self.rules.resources)
        except (MalformedPod, UserError) as error:
            # What the pod asked for before somebody edited it is not to be bound any more.
            self._seen.pop(pod.metadata.uid, None)
            if verb is Verb.FILTER and isinstance(error, UserError):
                return self._refuse_pod(pod.metadata, names, str(error))
            return self.failure(verb, _reason(error), str(error))

    def _bind(self, body: bytes, now_s: float) -> Answer:
        try:
            args = wire.decode(wire.BindingArgs, body)
        except WireError as error:
            return self.failure(Verb.BIND, Reason.MALFORMED, str(error))
        title = f"pod {args.pod_namespace}/{args.pod_name} ({args.pod_uid})"
        bound = self.cluster.pod(args.pod_uid)
        if bound is not None:
            return self._bound_before(title, bound.node, args.node)
        request = self._seen.get(args.pod_uid)
        if request is None or request.full_name != f"{args.pod_namespace}/{args.pod_name}":
            detail = f"{title}: {Reason.UNKNOWN_POD.value}"
            return self.failure(Verb.BIND, Reason.UNKNOWN_POD, detail)
        if args.node not in self.cluster.snapshot.nodes:
            detail = f"{title}: node {quote(args.node)}: {Reason.UNKNOWN_NODE.value}"
            return self.failure(Verb.BIND, Reason.UNKNOWN_NODE, detail)
        return self._bind_new(request, args.node, now_s)

    def _bind_new(self, request: PodRequest, node: str, now_s: float) -> Answer:
        if not self.is_ready(now_s):
            return self._stale(Verb.BIND)
        if request.shape is None:
            self.cluster.place(request, node)
            return replace(self._said(Verb.BIND, request, wire.encode_bind()), node=node)
        return self._bind_plan(request, node, now_s)

    def _bind_plan(self, request: PodRequest, node: str, now_s: float) -> Answer:
        snapshot = self.cluster.snapshot
        plan = plan_bind(
            request, snapshot.nodes[node], rater=self._rater, generation=snapshot.generation
        )
        title = f"pod {request.full_name} ({request.uid}) on node {node}"
        if isinstance(plan, Refusal):
            detail = ": ".join(filter(None, (title, plan.reason.value, plan.detail)))
            return self.failure(Verb.BIND, plan.reason, detail)
        placed = self.cluster.place_plan(request, plan, deadline_s=now_s + self.rules.assume_s)
        if isinstance(placed, Refused):
            return self.failure(Verb.BIND, Reason.LEDGER, f"{title}: {placed.detail}")
        said = self._said(Verb.BIND, request, wire.encode_bind())
        return replace(said, node=node, placed_gbytes_per_s=plan.score_gbytes_per_s)

    def _bound_before(self, title: str, node: str, asked: str) -> Answer:
        if node != asked:
            detail = f"{title}: bound to node {node}, expected {quote(asked)}"
            return self.failure(Verb.BIND, Reason.BOUND_ELSEWHERE, detail)
        generation = self.cluster.snapshot.generation
        return Answer(Verb.BIND, Outcome.OK, wire.encode_bind(), generation, detail="again")

    def _explain(self, body: bytes, _now_s: float) -> Answer:
        try:
            request = parse_pod(_bare_pod(body), self.rules.resources)
        except (WireError, MalformedPod, UserError) as error:
            return self.failure(Verb.EXPLAIN, _reason(error), str(error))
        told = explain_pod(request, self.cluster.snapshot, rater=self._rater)
        return self._said(Verb.EXPLAIN, request, json.dumps(told).encode())

    def _end(self, body: bytes, _now_s: float) -> Answer:
        uid = body.decode(errors="replace")
        self._seen.pop(uid, None)
        pod = self.cluster.end(uid)
        if pod is None:
            detail = f"pod {quote(uid)} is not bound, expected the uid of a bound pod"
            return self.failure(Verb.END, Reason.UNKNOWN_POD, detail)
        body = json.dumps(pod.as_json()).encode()
        return Answer(
            Verb.END,
            Outcome.OK,
            body,
            self.cluster.snapshot.generation,
            pod=f"{pod.namespace}/{pod.name}",
            pod_uid=uid,
            node=pod.node,
        )

    def _refuse_pod(self, meta: wire.ObjectMeta, names: Sequence[str], message: str) -> Answer:
        """A user's mistake is a reason on every node: the pod parks until somebody edits it."""
        text = f"{Reason.INVALID_REQUEST.value}: {message}"
        return Answer(
            Verb.FILTER,
            Outcome.REFUSED,
            wire.encode_filter((), unresolvable=dict.fromkeys(names, text)),
            self.cluster.snapshot.generation,
            Reason.INVALID_REQUEST,
            message,
            pod=f"{meta.namespace}/{meta.name}",
            pod_uid=meta.uid,
            n_nodes=len(names),
        )

    def _stale(self, verb: Verb) -> Answer:
        bound_s = self.rules.staleness_bound_s
        detail = f"{Reason.STALE.value}: not synced, or last heard of over {bound_s} s ago"
        return self.failure(verb, Reason.STALE, detail)

    def _said(self, verb: Verb, request: PodRequest, body: bytes) -> Answer:
        return Answer(
            verb,
            Outcome.OK,
            body,
            self.cluster.snapshot.generation,
            pod=request.full_name,
            pod_uid=request.uid,
            warnings=request.warnings,
        )

    def _remember(self, request: PodRequest) -> None:
        if not request.uid:
            return
        self._seen[request.uid] = request
        self._seen.move_to_end(request.uid)
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)


def _reason(error: ExtenderError) -> Reason:
    return Reason.INVALID_REQUEST if isinstance(error, UserError) else Reason.MALFORMED


def _bare_pod(body: bytes) -> wire.Pod:
    """A pod, alone or under "Pod" as in the scheduler's requests."""
    try:
        return wire.decode(wire.Pod, body)
    except WireError as error:
        try:
            return wire.decode(wire.ExtenderArgs, body).pod
        except WireError:
            raise error from None
