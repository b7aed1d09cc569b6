"""Reads filter and prioritize requests: the pod and the nodes, or at once what is wrong with them.

kube-scheduler sends thousands of node names for each pod. On cores shared with other programs every
object touched is a cache miss, so a body in the form that Go writes is cut, not parsed: its names
are compared as bytes, and a pod that comes again, as prioritize does after filter, is read once
(ADR 0012, 0014). A body in which anything is unusual (white space, an escaped or an unknown name, a
pod that cannot be read) is read field by field, which says what is wrong.

It answers for no pod that can be read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extender.errors import ExtenderError, MalformedPod, UserError, WireError
from extender.pending import WaitingPod
from extender.protocol import Answer, Outcome, Reason, Verb, failure, messages, parse_pod, responses
from extender.snapshot import RequestedNodes, locate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from extender.pending import PendingPods
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.snapshot import NodeIndex
    from extender.state import LiveCluster

__all__ = [
    "NEEDS_NAMES",
    "CallReader",
    "NodesRequest",
    "RequestReader",
    "read_bare_pod",
    "why_unreadable",
]

NEEDS_NAMES = (
    "NodeNames is null, expected a list of node names: set nodeCacheCapable: true for this "
    "extender in the KubeSchedulerConfiguration"
)


@dataclass(frozen=True, slots=True, eq=False)
class NodesRequest:
    """A request of filter or prioritize."""

    request: PodRequest
    nodes: RequestedNodes


class RequestReader:
    """Reads requests in the form that Go writes, for pods with the managed `resources`.

    `group_kinds` are those whose groups are inferred.
    """

    def __init__(self, resources: Sequence[str], group_kinds: Collection[str] = ()) -> None:
        self._resources = resources
        self._group_kinds = group_kinds
        self._pod: tuple[bytes, PodRequest] | None = None

    def read(self, body: bytes, node_index: NodeIndex) -> NodesRequest | None:
        """Read a request of filter or prioritize; None where anything is unusual."""
        cut = messages.cut_names(body)
        if cut is None:
            return None
        head, texts = cut
        positions = node_index.locate_json(texts)
        if positions is None:
            return None
        if self._pod is None or self._pod[0] != head:
            try:
                pod = messages.decode(messages.ExtenderArgs, head + messages.NO_NAMES).pod
                self._pod = head, parse_pod(pod, self._resources, self._group_kinds)
            except (WireError, MalformedPod, UserError):
                return None
        return NodesRequest(self._pod[1], RequestedNodes(positions))


@dataclass(slots=True, eq=False)
class CallReader:
    """Reads the calls of one engine."""

    cluster: LiveCluster
    rules: Rules
    pending: PendingPods
    _requests: RequestReader = field(init=False)

    def __post_init__(self) -> None:
        self._requests = RequestReader(self.rules.resources, self.rules.group_kinds)

    def read(self, verb: Verb, body: bytes, now_s: float) -> NodesRequest | Answer:
        """Read a filter or prioritize request, or answer at once what is wrong with it."""
        snapshot = self.cluster.snapshot_of("")
        is_ready = snapshot.is_fresh(now_s, self.rules.staleness_bound_s)
        read = self._requests.read(body, snapshot.node_index) if is_ready else None
        return self._read_fields(verb, body, now_s, is_ready=is_ready) if read is None else read

    def _read_fields(
        self, verb: Verb, body: bytes, now_s: float, *, is_ready: bool
    ) -> NodesRequest | Answer:
        """The same, field by field."""
        try:
            args = messages.decode(messages.ExtenderArgs, body)
        except WireError as error:
            return self._failure(verb, Reason.MALFORMED, str(error))
        if args.node_names is None:
            return self._failure(verb, Reason.MALFORMED, NEEDS_NAMES)
        if not is_ready:
            bound_s = self.rules.staleness_bound_s
            detail = f"{Reason.STALE.value}: not synced, or last heard of over {bound_s} s ago"
            return self._failure(verb, Reason.STALE, detail)
        request = self._parse(verb, args.pod, args.node_names, now_s)
        if isinstance(request, Answer):
            return request
        return NodesRequest(request, locate(args.node_names, self.cluster.snapshot.node_index))

    def _parse(
        self, verb: Verb, pod: messages.WirePod, names: Sequence[str], now_s: float
    ) -> PodRequest | Answer:
        try:
            return parse_pod(pod, self.rules.resources, self.rules.group_kinds)
        except (MalformedPod, UserError) as error:
            if verb is Verb.FILTER and isinstance(error, UserError):
                return self._refuse_pod(pod.metadata, names, str(error), now_s)
            # What the pod requested before it was edited is neither bound nor requeued any more.
            self.pending.forget(pod.metadata.uid)
            return self._failure(verb, why_unreadable(error), str(error))

    def _refuse_pod(
        self, meta: messages.ObjectMeta, names: Sequence[str], message: str, now_s: float
    ) -> Answer:
        """A user's mistake is a reason on every node: the pod waits until it is edited."""
        tail = responses.reason_tail(f"{Reason.INVALID_REQUEST.value}: {message}")
        reason = Reason.INVALID_REQUEST
        pod = WaitingPod(meta.uid, meta.namespace, meta.name, reason, now_s, now_s, None)
        self.pending.reject(pod)
        return Answer(
            Verb.FILTER,
            Outcome.REFUSED,
            responses.encode_filter(
                (), unresolvable_json=[json.dumps(name) + tail for name in names]
            ),
            self.cluster.snapshot.generation,
            Reason.INVALID_REQUEST,
            message,
            pod=f"{meta.namespace}/{meta.name}",
            pod_uid=meta.uid,
            n_nodes=len(names),
        )

    def _failure(self, verb: Verb, reason: Reason, detail: str) -> Answer:
        return failure(verb, reason, detail, self.cluster.snapshot.generation)


def why_unreadable(error: ExtenderError) -> Reason:
    """The reason for a pod that could not be read."""
    return Reason.INVALID_REQUEST if isinstance(error, UserError) else Reason.MALFORMED


def read_bare_pod(body: bytes) -> messages.WirePod:
    """A pod, alone or under "Pod" as in the scheduler's requests. Raises `WireError`."""
    try:
        return messages.decode(messages.WirePod, body)
    except WireError as error:
        try:
            return messages.decode(messages.ExtenderArgs, body).pod
        except WireError:
            raise error from None
