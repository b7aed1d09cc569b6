"""Which devices a bind call gets: what is claimed for the pod, else the best that is free now.

It plans on the node that the scheduler chose and keeps the devices for the write. It writes nothing
(`extender.bind.state_machine`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.bind.attempt import BindTarget
from extender.bind.steps import PlannedFrom
from extender.placement import Refusal, plan_bind, plan_efficiency
from extender.protocol import Reason
from extender.state import DeviceState

if TYPE_CHECKING:
    from extender.groups import Groups, PodGroups
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.snapshot import NodeView
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
        if not self.cluster.snapshot.is_fresh(now_s, self.rules.staleness_bound_s):
            return Reason.STALE, ""
        if request.pod_group:
            self.pod_groups.reserve(request, node, now_s)
        planned = self._plan(request, node, now_s)
        if isinstance(planned, Planned):
            self.pod_groups.bound(request.uid)
        else:
            self.pod_groups.gone(request.uid)
        return planned

    def _plan(self, request: PodRequest, node: str, now_s: float) -> Planned | tuple[Reason, str]:
        snapshot = self.cluster.snapshot_for(request)
        view = snapshot.nodes.get(node)
        if view is None:
            return Reason.UNKNOWN_NODE, ""
        plan = self._choose(request, view, snapshot.generation)
        if isinstance(plan, Refusal):
            return plan.reason, plan.detail
        deadline_s = now_s + self.rules.assume_s
        refused = self.cluster.assume(request, plan, deadline_s=deadline_s)
        if refused is not None:
            return Reason.DEVICES_UNAVAILABLE, refused
        free = tuple([one for i, one in enumerate(view.ids) if view.free >> i & 1])
        efficiency = plan_efficiency(request, view, rater=self.rater)
        target = BindTarget(view.kind.name, efficiency)
        return Planned(plan, PlannedFrom(snapshot.generation, free), target)

    def is_intact(self, uid: str, plan: Plan) -> bool:
        """Whether the pod still has all of the plan's devices, and they are healthy."""
        kept = {
            one
            for one, state, owner in self.cluster.devices(plan.node)
            if owner == uid and state is DeviceState.ASSUMED
        }
        return kept == set(plan.ids)

    def _choose(self, request: PodRequest, view: NodeView, generation: int) -> Plan | Refusal:
        """What is kept for a member of a group, as far as it still holds; else what is best now.

        A kubelet that confines pods to NUMA nodes does so by what it has free when they come, so
        that what was claimed for a pod there is chosen again.
        """
        claim = self.groups.claim(request.uid) or self.pod_groups.reserved(request.uid)
        if (
            claim is not None
            and claim.node == view.name
            and claim.containers
            and view.kind.manager is None
            and self.is_intact(request.uid, claim)
        ):
            return claim if claim.group is not None else self._with_group(claim, request)
        plan = plan_bind(request, view, rater=self.rater, generation=generation)
        return plan if isinstance(plan, Refusal) else self._with_group(plan, request)

    def _with_group(self, plan: Plan, request: PodRequest) -> Plan:
        """The plan with the pod's group; the same one where it has none."""
        if request.group is None:
            return plan
        return replace(plan, group=self.groups.plan_group(request, plan.node))
