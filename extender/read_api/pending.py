"""The pods that wait, as JSON in the order of their names.

They are those that filter rejected, and those that kube-scheduler offers no node for
(`extender.pending`): why, since when, what they request, and how many members of their group are
here. Whose end would make room is added as they are read (`extender.read_api.would_fit`).
`PendingTable.refresh` makes the JSON of those that changed, yielding to the event loop meanwhile.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extender.protocol import Reason
from extender.read_api.bodies import PendingGroup, PendingRequest, WaitingBody
from extender.read_api.encoding import encoder
from extender.read_api.pacing import paced
from topology.select import pod_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from extender.engine import Engine
    from extender.pending import WaitingPod

__all__ = ["Pending", "PendingTable"]

_encode = encoder(WaitingBody)


@dataclass(frozen=True, slots=True)
class Pending:
    """The pods that wait. `keys` ascending, `pods` by key; `revision` grows with every change."""

    revision: int = 0
    keys: Sequence[str] = ()
    pods: Mapping[str, tuple[WaitingPod, bytes]] = field(
        default_factory=dict[str, "tuple[WaitingPod, bytes]"]
    )
    groups: Mapping[str, PendingGroup] = field(default_factory=dict[str, PendingGroup])


class PendingTable:
    """The newest `Pending` of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._pending = Pending()

    async def refresh(self) -> Pending:
        """The pods that wait now. O(pods) comparisons, and the pods that changed."""
        async with self._lock:
            self._pending = await self._next(self._pending)
            return self._pending

    async def _next(self, before: Pending) -> Pending:
        keys, pods = list(before.keys), dict[str, "tuple[WaitingPod, bytes]"]()
        groups: dict[str, PendingGroup] = {}
        is_changed = False
        async for pod in paced([*self._engine.waiting()]):
            key = f"{pod.namespace}/{pod.name} {pod.uid}"
            old = before.pods.get(key)
            if old is None:
                insort(keys, key)
            group = self._group(pod)
            if group is not None:
                groups[key] = group
            is_same = old is not None and old[0] is pod and before.groups.get(key) == group
            pods[key] = old if old is not None and is_same else (pod, self._json(pod, group))
            is_changed = is_changed or old is None or old[1] != pods[key][1]
        async for key in paced([key for key in before.keys if key not in pods]):
            del keys[bisect_left(keys, key)]
            is_changed = True
        return Pending(before.revision + is_changed, keys, pods, groups)

    def _group(self, pod: WaitingPod) -> PendingGroup | None:
        """The group of a pod; None also for an invalid request."""
        request = pod.request
        if request is None or request.group is None:
            return None
        name, size = request.group.name, request.group.size
        n_here, n_bound, known_size = self._engine.groups.readings.counts((pod.namespace, name))
        return {
            "name": name,
            "size": known_size or size,
            "n_here": n_here + n_bound,
            "n_bound": n_bound,
        }

    def _json(self, pod: WaitingPod, group: PendingGroup | None) -> bytes:
        reason = pod.reason
        sentence = f"{reason.value}: {pod.message}" if pod.message else reason.value
        is_offered = reason is not Reason.NOT_OFFERED
        content: WaitingBody = {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            **self._request(pod),
            "group": group,
            "reason": sentence,
            "reason_label": reason.label,
            "reason_short": reason.short(pod.shape) if is_offered else sentence,
            "since_unix_s": round(pod.since_s, 3),
            "last_filtered_unix_s": round(pod.seen_s, 3) if is_offered else None,
        }
        return _encode(content)

    def _request(self, pod: WaitingPod) -> PendingRequest:
        """What it requests; unknown for an invalid request."""
        request, shape = pod.request, pod.shape
        if request is None or shape is None:
            return {
                "resource": None,
                "size_gpus": None,
                "containers": [],
                "affinity": None,
                "policy": None,
                "min_bandwidth_gbytes_per_s": None,
            }
        return {
            "resource": shape.resource,
            "size_gpus": pod_size(shape.requests),
            "containers": [
                {"name": name, "size": one.size}
                for name, one in zip(request.containers, shape.requests, strict=True)
            ],
            "affinity": shape.policy.affinity.value,
            "policy": shape.policy.strength.value,
            "min_bandwidth_gbytes_per_s": shape.policy.min_bandwidth_gbytes_per_s,
        }
