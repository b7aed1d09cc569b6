"""An API server whose watches deliver when a test says so: one of pending, one of assigned pods."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from extender.bind import WriteResult
from extender.engine.events import (
    Event,
    PendingDeleted,
    PendingListed,
    PendingUpdated,
    PodDeleted,
    PodFetched,
    PodsListed,
    PodUpdated,
)
from kube.objects import PodFacts, read_pod
from tests.unit.extender.api_server import FakeApiServer
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.bind import WriteBinding, Written
    from extender.state import Probe
    from tests.unit.extender.api_server import FakePod

    Due: TypeAlias = Callable[[float], Event]

__all__ = ["LateServer"]


@dataclass
class LateServer:
    """Pods, and the events that each watch has not delivered, which take the time."""

    api: FakeApiServer = field(default_factory=FakeApiServer)
    pending: list[Due] = field(default_factory=list)
    assigned: list[Due] = field(default_factory=list)

    def show(self, pod: FakePod) -> None:
        """A new pod."""
        whole = read_pod(json.loads(pod.as_json()))
        self.pending.append(lambda now_s: PendingUpdated(whole, now_s))

    def delete(self, pod: FakePod) -> None:
        """A client deletes a pod."""
        del self.api.pods[f"default/{pod.content['metadata']['name']}"]
        uid = pod.uid
        if pod.node is None:
            self.pending.append(lambda _: PendingDeleted(uid))
        else:
            self.assigned.append(lambda _: PodDeleted(uid))

    def write(self, step: WriteBinding) -> Written:
        """A Binding, and what the watches show of it."""
        written = self.api.write(step)
        if written.result is WriteResult.ACCEPTED:
            pod = self.api.pods[f"{step.namespace}/{step.name}"]
            facts, uid = _facts(pod), pod.uid
            self.assigned.append(lambda _: PodUpdated(facts))
            self.pending.append(lambda _: PendingDeleted(uid))
        return written

    def lists(self, now_s: float) -> tuple[Event, ...]:
        """Complete lists, in the place of what was not delivered."""
        self.pending.clear()
        self.assigned.clear()
        pods = self.api.pods.values()
        assigned = tuple(_facts(one) for one in pods if one.node is not None)
        waiting = [read_pod(json.loads(one.as_json())) for one in pods if one.node is None]
        seen = (PendingUpdated(one, now_s) for one in waiting)
        listed = PendingListed(tuple(one.uid for one in waiting), now_s)
        return PodsListed(assigned), *seen, listed

    def read(self, probe: Probe) -> Event:
        """A pod that is looked for."""
        pod = self.api.pods.get(f"{probe.namespace}/{probe.name}")
        if pod is None or pod.uid != probe.uid:
            return PodDeleted(probe.uid)
        return PodFetched(read_pod(json.loads(pod.as_json())))


def _facts(pod: FakePod) -> PodFacts:
    name, plan = pod.content["metadata"]["name"], pod.plan[names.PLAN]
    return PodFacts(pod.uid, "default", name, str(pod.version), plan, None, may_request=True)
