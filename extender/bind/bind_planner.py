"""Which devices a bind call gets: what is claimed for the pod, else the best that is free now.

It plans on the node that the scheduler chose and keeps the devices for the write. It writes nothing
(`extender.bind.state_machine`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.bind.attempt import BindTarget
from extender.bind.steps import PlannedFrom
from extender.placement import Refusal, plan_fit
from extender.protocol import Reason
from extender.state import DeviceState

if TYPE_CHECKING:
    from extender.groups import Groups, PodGroups
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state import LiveCluster
    from topology.annotations import Plan

__all__ = ["BindPlanner", "Planned"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan whose devices are assumed, what it was made from, and what metrics show of it."""

    plan: Plan
    planned_from: PlannedFrom
    target: BindTarget


@dataclass(frozen=True, slots=True)
class BindPlanner:
    """Plans over one cluster."""

    cluster: LiveCluster
    rules: Rules
    rater: Rater
    groups: Groups
    pod_groups: PodGroups

    def plan(self, request: PodRequest, node: str, now_s: float) -> Planned | tuple[Reason, str]:
        """Plan from what is free now and assume, or say why not, with detail."""
        snapshot = self.cluster.snapshot_for(request)
        if not snapshot.is_fresh(now_s, self.rules.staleness_bound_s):
            return Reason.STALE, ""
        if not request.pod_group:
            return self._plan(request, node, snapshot, now_s)
        self.pod_groups.reserve(request, node, now_s)
        planned = self._plan(request, node, self.cluster.snapshot_for(request), now_s)
        end = self.pod_groups.bound if isinstance(planned, Planned) else self.pod_groups.gone
        end(request.uid)
        return planned

    def _plan(
        self, request: PodRequest, node: str, snapshot: ClusterSnapshot, now_s: float
    ) -> Planned | tuple[Reason, str]:
        view = snapshot.view(node)
        if view is None:
            return Reason.UNKNOWN_NODE, ""
        fit, kept = self.rater.choose(request, view), None
        if request.group is not None or request.pod_group:
            kept = self._kept(request, view)
        if isinstance(fit, Refusal):
            if kept is None:
                return fit.reason, fit.detail
            fit = None
        plan = kept or plan_fit(request, view, fit, generation=snapshot.generation)
        if request.group is not None and plan.group is None:
            plan = replace(plan, group=self.groups.plan_group(request, node))
        deadline_s = now_s + self.rules.assume_s
        refused = self.cluster.assume(request, plan, deadline_s=deadline_s)
        if refused is not None:
            return Reason.DEVICES_UNAVAILABLE, refused
        efficiency = None if fit is None else 1.0 - max(one.loss for _, one in fit.containers)
        target = BindTarget(view.node_class.name, efficiency)
        return Planned(plan, PlannedFrom(snapshot.generation, view.ids_of(view.free)), target)

    def is_intact(self, uid: str, plan: Plan) -> bool:
        """Whether the pod still has all of the plan's devices, and they are healthy."""
        kept = {
            one
            for one, state, owner in self.cluster.devices(plan.node)
            if owner == uid and state is DeviceState.ASSUMED
        }
        return kept == set(plan.ids)

    def _kept(self, request: PodRequest, view: NodeView) -> Plan | None:
        """What is kept for a member of a group, as far as it still holds.

        A kubelet that confines pods to NUMA nodes does so by what it has free when they come, so
        that what was claimed for a pod there is chosen again.
        """
        claim = self.groups.claim(request.uid) or self.pod_groups.reserved(request.uid)
        if (
            claim is not None
            and claim.node == view.name
            and claim.containers
            and view.node_class.manager is None
            and self.is_intact(request.uid, claim)
        ):
            return claim
        return None
