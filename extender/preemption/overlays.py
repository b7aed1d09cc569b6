"""What a pod could have on a node if others left, and what evicting them costs, as far as known.

It computes the free devices of a node once some pods are gone, whether a set of them satisfies the
pod, and what evicting a pod costs; all from the state and the plans on pods. It never chooses
victims (`extender.preemption.victims` does, `extender.preemption.state_machine` names them) and
reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extender.placement import Rank
from extender.preemption.victims import PRIORITY_SHIFT
from extender.protocol import messages
from extender.snapshot import Overlay, with_free
from extender.state import DeviceState
from topology.annotations import decode_plan
from topology.errors import CodecError
from topology.select import PodFit, fit_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.state import LiveCluster

__all__ = ["LOWEST_PRIORITY", "Priorities", "RatedOverlay", "RatedOverlays", "settled"]

_SETTLED = frozenset(
    {
        DeviceState.BOUND,
        DeviceState.HELD,
        DeviceState.BOUND_UNHEALTHY,
        DeviceState.HELD_UNHEALTHY,
    }
)
"""States of devices whose pod the API server shows on the node."""
LOWEST_PRIORITY = -PRIORITY_SHIFT
"""The lowest priority that a pod can have (int32)."""


class RatedOverlays:
    """The nodes as one pod may use them."""

    def __init__(self, cluster: LiveCluster, rater: Rater, request: PodRequest) -> None:
        self._cluster = cluster
        self._snapshot = cluster.snapshot_for(request)
        self._rater = rater
        self._request = request

    def get(self, name: str) -> RatedOverlay | None:
        """A node that we know and that serves the pod's resource."""
        view = self._snapshot.view(name)
        shape = self._request.shape
        if view is None or shape is None or view.node_class.resource != shape.resource:
            return None
        held = dict(self._cluster.overlay(view).held)
        held.pop(self._request.uid, None)
        return RatedOverlay(view, held, self._rater, self._request)


@dataclass(frozen=True, slots=True)
class RatedOverlay(Overlay):
    """One node as the pod may use it; `held` are the others, by uid."""

    rater: Rater
    request: PodRequest

    @property
    def has_machine(self) -> bool:
        """Whether we know which devices lie where."""
        return self.view.node_class.machine is not None

    def is_enough(self, uids: Sequence[str]) -> bool:
        """Whether a set satisfies the pod once these are gone; counts are the scheduler's."""
        if not self.has_machine:
            return self.quality((1 << len(self.view.ids)) - 1) is not None
        return self.quality(self.free_without(uids)) is not None

    def may_do(self, uids: Sequence[str]) -> bool:
        """Whether a set may satisfy the pod once some of these are gone.

        Where the kubelet's Topology Manager applies, fewer free devices may do although more do
        not: it confines a pod by what is free.
        """
        if self.is_enough(uids):
            return True
        node_class, shape = self.view.node_class, self.request.shape
        if node_class.manager is None or node_class.machine is None or shape is None:
            return False
        fit = fit_pod(
            node_class.machine.selector,
            available=self.free_without(uids),
            requests=shape.requests,
            policy=shape.policy,
        )
        return isinstance(fit, PodFit)

    def is_behind(self, given: Iterable[str]) -> bool:
        """Whether the scheduler's victims would not do for its own count: it knows of more free.

        Pods that have left, and whose end the watches have not shown yet.
        """
        return self.free_without(given).bit_count() < self.request.size_gpus

    def quality(self, free: int) -> tuple[object, ...] | None:
        """How good the best set is if these devices are free; less is better."""
        (rating,) = self.rater.rate(self.request, (with_free(self.view, free),))
        return rating.key if isinstance(rating, Rank) else None


@dataclass(frozen=True, slots=True)
class Priorities:
    """What is known of victims' priorities without reading them.

    From the plans on pods, or from the pods themselves where the scheduler sent them whole.
    """

    cluster: LiveCluster
    given: Mapping[str, messages.MetaVictims | messages.Victims]
    own: int
    known: dict[str, int | None] = field(default_factory=dict[str, "int | None"])

    def __post_init__(self) -> None:
        for victims in self.given.values():
            if isinstance(victims, messages.Victims):
                for pod in victims.pods or ():
                    self.known[pod.metadata.uid] = pod.spec.priority or 0

    def of(self, uid: str) -> int | None:
        """The pod's priority, None if it is not known."""
        if uid not in self.known:
            self.known[uid] = self._planned(uid)
        return self.known[uid]

    def is_too_high(self, uid: str) -> bool:
        """Whether the pod is known to be as important as ours, or more."""
        priority = self.of(uid)
        return priority is not None and priority >= self.own

    def cost(
        self, victims: messages.MetaVictims | messages.Victims, *, unknown: int
    ) -> tuple[int, int, int, int]:
        """What the scheduler's victims cost, as far as it is known (`victims.Cost`)."""
        known = [self.of(uid) for uid in victims.uids]
        priorities = [unknown if one is None else one for one in known]
        return (
            victims.n_pdb_violations,
            max(priorities, default=LOWEST_PRIORITY),
            sum(one + PRIORITY_SHIFT for one in priorities),
            len(priorities),
        )

    def _planned(self, uid: str) -> int | None:
        pod = self.cluster.bound(uid)
        try:
            return decode_plan(pod.plan_text or "").priority if pod is not None else None
        except CodecError:
            return None


def settled(cluster: LiveCluster, names: Iterable[str]) -> frozenset[str]:
    """The pods on these nodes that a reading will show unless they are gone."""
    return frozenset(
        owner
        for name in names
        for _, state, owner in cluster.devices(name)
        if owner is not None and state in _SETTLED
    )
