"""Pods that wait and for which kube-scheduler has not called filter, as the watch shows them.

kube-scheduler counts GPUs, CPU and memory itself, and offers the extender the nodes that are left:
where none is left it calls no extender, so that the pool of rejected pods does not know the pod.
For people it waits all the same. This decides nothing and is no part of the engine's state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from extender.engine.events import PendingDeleted, PendingUpdated
from extender.protocol import read_request
from kube.errors import Unreadable
from topology.model import object_at, objects_at, parse_object, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from extender.engine import Engine
    from extender.engine.events import StateEvent
    from extender.protocol import PodRequest, Shape
    from kube.objects import PodObject

__all__ = ["NotOffered", "NotOfferedPod"]

MAX_MESSAGE = 300
"""Characters of the scheduler's message that are kept: it lists all nodes, by reason."""
MAX_PODS = 20_000
"""Pods kept, as of those that were rejected; beyond it the first seen is dropped."""


@dataclass(frozen=True, slots=True)
class NotOfferedPod:
    """A pod; `message` is what kube-scheduler says of it, empty before its first attempt.

    `since_s` is when it was created, Unix seconds.
    """

    namespace: str
    name: str
    uid: str
    request: PodRequest
    since_s: float
    message: str

    @property
    def shape(self) -> Shape | None:
        """What it requests."""
        return self.request.shape


class NotOffered:
    """The pending pods with GPUs that an engine's schedulers place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pods: dict[str, NotOfferedPod] = {}

    def take(self, event: StateEvent) -> None:
        """Take what the watch of pending pods shows; other events say nothing."""
        match event:
            case PendingUpdated(pod, _):
                self._see(pod)
            case PendingDeleted(uid):
                self._pods.pop(uid, None)
            case _:
                pass

    def pods(self) -> Iterator[NotOfferedPod]:
        """Those that are not known otherwise: neither rejected, nor bound or about to be."""
        rejected, bound = self._engine.unschedulable, self._engine.cluster.pods
        for uid, pod in self._pods.items():
            if rejected.pod(uid) is None and bound.get(uid) is None:
                yield pod

    @property
    def n_pods(self) -> int:
        """Their number. O(pending pods)."""
        return sum(1 for _ in self.pods())

    def _see(self, pod: PodObject) -> None:
        request = self._request(pod)
        if request is None or request.shape is None:
            self._pods.pop(pod.uid, None)
            return
        content = parse_object(pod.body)
        found = NotOfferedPod(
            pod.namespace,
            pod.name,
            pod.uid,
            replace(request, resource_version=""),  # else every event would make another pod
            _created_s(content),
            _message(content)[:MAX_MESSAGE],
        )
        if self._pods.get(pod.uid) != found:
            self._pods[pod.uid] = found
        if len(self._pods) > MAX_PODS:
            del self._pods[next(iter(self._pods))]

    def _request(self, pod: PodObject) -> PodRequest | None:
        """What a pod requests of us; None for every pod that is not ours, gated ones too."""
        rules = self._engine.rules
        is_away = pod.is_deleting or pod.has_ended or pod.is_gated or pod.node_name is not None
        if is_away or not any(one.encode() in pod.body for one in rules.resources):
            return None
        request = read_request(pod.body, rules.resources, rules.group_kinds)
        return request if request is not None and rules.serves(request.scheduler_name) else None


def _created_s(content: Mapping[str, object]) -> float:
    text = text_at(object_at(content, "metadata"), "creationTimestamp")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _message(content: Mapping[str, object]) -> str:
    """The message of the condition PodScheduled (core/v1 types.go), where it is False."""
    try:
        for one in objects_at(object_at(content, "status"), "conditions"):
            if one.get("type") == "PodScheduled" and one.get("status") == "False":
                return " ".join(text_at(one, "message").split())
    except Unreadable:
        pass
    return ""
