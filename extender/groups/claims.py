"""What is claimed for the members of groups: devices for all of a plan, or for none.

A claim is an assumption of the cluster's (`LiveCluster.assume_all`), so that no other pod gets its
devices, and ends at `claim_s` at the latest. The rules are those of `extender.groups.groups`.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from extender.groups.figures import falls_short, predict
from extender.groups.group import Stage
from extender.groups.planning import JointPlan, JointPlanner, Near
from extender.protocol import Reason
from extender.state import DeviceState

if TYPE_CHECKING:
    from extender.groups.bound_members import BoundMembers
    from extender.groups.group import Group, Member
    from extender.placement import Rater
    from extender.state import LiveCluster
    from topology.groups import GroupValue

__all__ = ["Claims"]

AVOIDED_S = 60.0
"""How long nodes are left out that members were not offered again and again."""
MAX_REPLANS = 3
"""After so many plans that a member could not follow, all claims are given back."""
PLAN_PAUSE_S = 0.5
"""Between two plans of a group that found no room."""
GIVE_UP_PAUSE_S = 5.0
"""Before a group is planned again of which members could not follow plans."""
_OPEN = Stage.CLAIMED, Stage.HELD


class Claims:
    """Plans groups and keeps what they are to have."""

    def __init__(
        self, cluster: LiveCluster, rater: Rater, bound: BoundMembers, *, claim_s: float
    ) -> None:
        self._cluster = cluster
        self._bound = bound
        self._planner = JointPlanner(cluster, rater)
        self._claim_s = claim_s
        self._numbers = count(1)
        self.n_replans = 0

    @property
    def planner(self) -> JointPlanner:
        """What plans them."""
        return self._planner

    def plan(self, group: Group, n_missing: int, now_s: float) -> int:
        """Plan the members that can be, `n_missing` or more of them; returns how many were tried.

        All of them if there is a place, else as many as are missing, of the lowest ranks.
        """
        group.is_due = False
        ready = group.ready
        least = max(n_missing, 1)
        if not group.is_alike or len(ready) < least:
            return 0
        for node in [node for node, until_s in group.avoided.items() if until_s <= now_s]:
            del group.avoided[node]
        fixed = [one.plan.node for one in group.members.values() if one.plan is not None]
        near = Near(
            (*self._bound.nodes(group.key), *fixed),
            self._bound.former_nodes(group.key),
            group.avoided.keys(),
        )
        reason, detail = Reason.GROUP_NO_ROOM, ""
        for n_members in dict.fromkeys((len(ready), least)):
            some = ready[:n_members]
            found = self._planner.plan(
                [(one.request, one.offer) for one in some if one.offer is not None], near
            )
            if isinstance(found, JointPlan):
                value = self._value(group, found)
                detail = falls_short(value, (request for request, _ in found.placements))
                if detail:
                    reason = Reason.GROUP_TOO_SLOW
                elif self._claim(group, found, now_s):
                    group.value = value
                    if n_members < len(ready):
                        self._try_rest(group, now_s)
                    return n_members
            else:
                reason, detail = found.reason, found.detail
        if n_missing > 0:
            self.drop(group)
        group.refusal, group.detail = reason, detail
        group.next_plan_s = now_s + PLAN_PAUSE_S
        return len(ready)

    def _value(self, group: Group, found: JointPlan) -> GroupValue | None:
        """What the group is worth with this plan, and the members that have a node beside it."""
        pods = (self._cluster.pods.get(uid) for uid in self._bound.by_uid(group.key))
        bound = (pod.node_plan for pod in pods if pod is not None)
        claimed = (one.plan for one in group.members.values())
        plans = [plan for plan in (*bound, *claimed) if plan is not None]
        request, _ = found.placements[0]
        views = self._cluster.snapshot_of(request.resource).nodes
        return predict(
            [*plans, *(plan for _, plan in found.placements)], views, self._cluster.domains
        )

    def _try_rest(self, group: Group, now_s: float) -> None:
        """Members beyond the size that did not fit with the others are planned by themselves."""
        group.refusal, group.is_due = Reason.GROUP_NO_ROOM, True
        group.next_plan_s = now_s + PLAN_PAUSE_S

    def _claim(self, group: Group, found: JointPlan, now_s: float) -> bool:
        """Claim the devices of all, or of none; with claims that there are, they end together."""
        ends_s = now_s + self._claim_s
        if group.claims_end_s is not None and group.at(*_OPEN):
            ends_s = group.claims_end_s
        if self._cluster.assume_all(found.placements, deadline_s=ends_s) is not None:
            return False
        for request, plan in found.placements:
            member = group.members[request.uid]
            member.stage, member.plan, member.number = Stage.CLAIMED, plan, next(self._numbers)
            member.filtered_s = member.woken_s = None
        group.claims_end_s, group.detail = ends_s, ""
        group.level, group.domain = found.level, found.domain
        return True

    def is_intact(self, member: Member) -> bool:
        """Whether the devices of a claim are still there, healthy, and the member's."""
        if member.plan is None:
            return False
        return keeps(self._cluster, member.request.uid, member.plan.node, len(member.plan.ids))

    def plan_anew(self, group: Group, member: Member, now_s: float) -> None:
        """A member cannot have what is claimed for it: it is planned again.

        After `MAX_REPLANS` of them all that is claimed is given back, and the nodes that members
        were not offered are left out for a while.
        """
        if member.plan is not None:
            group.refused.add(member.plan.node)
        self.give_back(member)
        group.n_replans += 1
        self.n_replans += 1
        group.is_due, group.next_plan_s = True, now_s
        if group.n_replans > MAX_REPLANS:
            group.avoided |= dict.fromkeys(group.refused, now_s + AVOIDED_S)
            self.drop(group)
            group.n_replans, group.next_plan_s = 0, now_s + GIVE_UP_PAUSE_S
            group.refused.clear()

    def give_back(self, member: Member) -> None:
        """End a claim, unless a bind has its plan: that ends it itself."""
        if member.stage in _OPEN:
            self._cluster.pods.forget(member.request.uid)
            member.stage, member.plan = Stage.WAITING, None

    def drop(self, group: Group) -> None:
        """Give back all that is claimed for a group; bind calls that are held will fail."""
        for member in group.members.values():
            self.give_back(member)
        group.claims_end_s = None

    def expire(self, group: Group, now_s: float) -> None:
        """Claims end with their time.

        A member for which filter was not called since is not planned again before it is: its
        scheduler may have no node for it at all.
        """
        if group.claims_end_s is None or now_s < group.claims_end_s:
            return
        for member in group.at(*_OPEN):
            if member.filtered_s is None:
                member.offer = None
        self.drop(group)
        group.refusal, group.is_due = Reason.GROUP_WAITING, True


def keeps(cluster: LiveCluster, uid: str, node: str, n_devices: int) -> bool:
    """Whether a pod without a node has so many devices of one, all of them healthy."""
    pod = cluster.pods.get(uid)
    if pod is None or pod.node != node:
        return False
    mine = [state for _, state, owner in cluster.devices(node) if owner == uid]
    return len(mine) == n_devices and all(state is DeviceState.ASSUMED for state in mine)
