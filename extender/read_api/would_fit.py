"""Which pods would have to end for pending pods to fit, as their explanation has it.

Pods of one shape, priority and node affinity share an answer, which is kept until a node or a pod
changes. Within one page only the first `MAX_SHAPES` of them are looked at, so that equal pages of
one state are equal. It walks in turns with pauses, and ends nothing
(`extender.engine.blocking_pods`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from extender.allowed_nodes import AllowedNodes
from extender.engine.blocking_pods import blocking_turns
from extender.engine.offers import blocked_offer_json
from extender.placement import Rank, Rater, Refusal
from extender.protocol import MAY_PASS, PodRequest
from extender.read_api.bodies import WouldFitBody
from extender.read_api.encoding import encoder
from extender.read_api.pacing import drive, paced
from extender.what_if import rate_in_turns
from topology.select import pod_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.engine import Engine
    from extender.engine.blocking_pods import BlockingPods
    from extender.pending import WaitingPod
    from extender.protocol import Reason, Shape
    from extender.read_api.cluster_table import Cluster
    from extender.snapshot import NodeView, Overlay
    from topology.node_affinity import RequiredNodeAffinity

    Key: TypeAlias = tuple[Shape, int, RequiredNodeAffinity]

__all__ = ["WouldFit"]

MAX_SHAPES = 8
"""Shapes looked at for one page: each takes some 10 ms where no node has room (5,000 nodes)."""
MAX_RATINGS = 16_384
"""Ratings kept between generations, a quarter of what the verbs keep."""
_encode = encoder(WouldFitBody)
_NONE = _encode({"would_fit": None})


class WouldFit:
    """The answers for the newest generation that was read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        rules = engine.rules
        self._rater = Rater(
            loss_bounds=rules.loss_bounds, prefer=rules.prefer, max_entries=MAX_RATINGS
        )
        self._lock = asyncio.Lock()
        self._revision = -1, -1
        self._kept: dict[Key, bytes] = {}

    async def of(self, cluster: Cluster, pods: Sequence[WaitingPod]) -> Sequence[bytes]:
        """The JSON for each of a page's pods: the fewest pods whose end makes room, or null.

        Null where a node fits now, where none was found within the bounds, where the request is
        invalid, and beyond `MAX_SHAPES`.
        """
        found: dict[Key, bytes] = {}
        keys = [self._key(pod) for pod in pods]
        revision = cluster.generation, cluster.revision
        async with self._lock:
            if self._revision != revision:
                self._revision, self._kept = revision, {}
            for key in keys:
                if key is None or len(found) >= MAX_SHAPES:
                    continue
                if key not in self._kept:
                    self._kept[key] = await self._find(cluster, *key)
                found[key] = self._kept[key]
        return [_NONE if key is None else found.get(key, _NONE) for key in keys]

    def _key(self, pod: WaitingPod) -> Key | None:
        """What the answer depends on; None for an invalid request."""
        request = pod.request
        if request is None or request.shape is None:
            return None
        return request.shape, request.priority, request.node_affinity

    async def _find(
        self, cluster: Cluster, shape: Shape, priority: int, affinity: RequiredNodeAffinity
    ) -> bytes:
        size_gpus = pod_size(shape.requests)
        request = PodRequest("", "", "", shape, size_gpus=size_gpus, priority=priority)
        snapshot = cluster.moment.snapshot_for(request)
        allowed = AllowedNodes(affinity, cluster.moment.nodes)
        unschedulable = cluster.moment.unschedulable
        views: list[NodeView] = []
        # By name, as the search takes them: sorted already, its own sort takes no time.
        async for name in paced(cluster.names):
            view = snapshot.views[snapshot.positions[name]]
            is_rated_slowly = (
                view.node_class.machine is not None and view.node_class.machine.is_rated_slowly
            )
            is_offered = name not in unschedulable
            if not is_rated_slowly and is_offered and allowed.allows(view):
                views.append(view)
        by_state = {view.state: view for view in views}
        turns = rate_in_turns(request, tuple(by_state.values()), self._rater)
        ratings = await drive(turns)
        if any(isinstance(one, Rank) for one in ratings.values()):
            return _NONE
        groups: dict[Reason, list[NodeView]] = {}
        async for view in paced(views):
            rating = ratings[view.state]
            if isinstance(rating, Refusal) and rating.reason in MAY_PASS:
                groups.setdefault(rating.reason, []).append(view)

        def overlay(view: NodeView) -> Overlay:
            return cluster.moment.overlay(view).named(self._engine.cluster.pods.name_of)

        found = [
            blocking
            for of_reason in groups.values()
            if (blocking := await drive(blocking_turns(request, of_reason, overlay, self._rater)))
        ]
        least = _least(found)
        if least is None:
            return _NONE
        return _encode({"would_fit": blocked_offer_json(least)})


def _least(found: Iterable[BlockingPods]) -> BlockingPods | None:
    """That of the fewest pods, then GPUs, then the node that comes first by name."""
    return min(found, key=lambda one: (len(one.pods), one.n_gpus, one.view.name), default=None)
