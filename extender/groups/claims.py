"""What is claimed for the members of groups: devices for all of a plan, or for none.

A claim is an assumption of the cluster's (`LiveCluster.assume_all`), so that no other pod gets its
devices, and ends at `claim_s` at the latest. The rules are those of `extender.groups.groups`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from extender.groups.members.group import NO_PLACE, Stage
from extender.groups.near_members import near_members
from extender.groups.planning import JointPlan, JointPlanner
from extender.protocol import Reason
from extender.state import DeviceState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from extender.groups.members.bound_members import BoundMembers
    from extender.groups.members.group import Group, Member
    from extender.groups.planning import OfferedNodes
    from extender.placement import Rater
    from extender.state import LiveCluster
    from topology.annotations import Plan

__all__ = ["Claims"]

AVOIDED_S = 60.0
"""How long nodes are left out that members were not offered again and again."""
MOST_S = 300.0
"""How long it is remembered how many members nodes take, as kube-scheduler tries pods again at the
latest: the CPU or memory that lacked there may be free by then, which no call shows, since each
member alone is offered the node."""
MAX_REPLANS = 3
"""After so many plans that a member could not follow, all claims are given back."""
PLAN_PAUSE_S = 0.5
"""Between two plans of a group that found no room; doubled with each one, until as many devices
came free as its members request."""
MOST_PLAN_PAUSE_S = 8.0
"""The longest of these pauses: a place may also come from few devices."""
GIVE_UP_PAUSE_S = 5.0
"""Before a group is planned again of which members could not follow plans, or did not come to bind:
others may have the devices meanwhile. Doubled each time that claims ended with their time."""
MOST_GIVE_UP_PAUSE_S = 300.0
"""The longest of these pauses, which is five times as long as devices are claimed."""
_OPEN = Stage.CLAIMED, Stage.HELD
_MOST_DOUBLINGS = 10


class Claims:
    """Plans groups and keeps what they are to have."""

    def __init__(
        self,
        cluster: LiveCluster,
        rater: Rater,
        bound: BoundMembers,
        *,
        claim_s: float,
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
        near = near_members(group, self._bound)
        reason, detail = Reason.GROUP_NO_ROOM, ""
        for n_members, most_elsewhere in self._tries(group, len(ready), least):
            some = ready[:n_members]
            found = self._planner.plan(
                [(one.request, _reach(group, one)) for one in some],
                replace(near, most_elsewhere=most_elsewhere),
                self._plans(group),
            )
            if isinstance(found, JointPlan):
                if self._claim(group, found, now_s):
                    if n_members < len(ready):
                        self._try_rest(group, now_s)
                    return n_members
            else:
                reason, detail = found.reason, found.detail
        if n_missing > 0:
            self.drop(group)
        group.refuse(reason, detail)
        group.planned_s, group.n_freed = now_s, 0
        pause_s = PLAN_PAUSE_S * 2 ** min(group.n_no_room, _MOST_DOUBLINGS)
        group.next_plan_s = now_s + min(pause_s, MOST_PLAN_PAUSE_S)
        group.n_no_room += 1
        return len(ready)

    def _tries(self, group: Group, n_ready: int, n_least: int) -> Iterator[tuple[int, int | None]]:
        """How many members to plan, and how many of them a node takes of which that is not known.

        Where a node took fewer than were planned there, others are expected to take no more: it is
        mostly CPU or memory that members request. Only where there is no such place is it tried.
        """
        for most in dict.fromkeys((min(group.most.values(), default=None), None)):
            for n_members in dict.fromkeys((n_ready, n_least)):
                yield n_members, most

    def freed(self, group: Group, n_devices: int) -> None:
        """At most so many devices came free: a group that found no room may have it now."""
        if group.refusal not in NO_PLACE:
            return
        group.is_due = True
        group.n_freed += n_devices
        if group.n_freed >= sum(one.request.size_gpus for one in group.ready):
            self.try_soon(group)

    def try_soon(self, group: Group) -> None:
        """A group that found no room is planned after the shortest pause again."""
        if group.n_no_room:
            group.next_plan_s = min(group.next_plan_s, group.planned_s + PLAN_PAUSE_S)
            group.n_no_room = group.n_freed = 0

    def _plans(self, group: Group) -> list[Plan]:
        """Those of the members that have a node or a claim."""
        pods = (self._cluster.pods.get(uid) for uid in self._bound.by_uid(group.key))
        bound = (pod.node_plan for pod in pods if pod is not None)
        claimed = (one.plan for one in group.members.values())
        return [plan for plan in (*bound, *claimed) if plan is not None]

    def _try_rest(self, group: Group, now_s: float) -> None:
        """Members beyond the size that did not fit with the others are planned by themselves."""
        group.refuse(Reason.GROUP_NO_ROOM)
        group.is_due = True
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
        group.claims_end_s, group.detail, group.n_no_room = ends_s, "", 0
        group.level, group.domain, group.value = found.level, found.domain, found.value
        return True

    def is_intact(self, member: Member) -> bool:
        """Whether the devices of a claim are still there, healthy, and the member's."""
        if member.plan is None:
            return False
        return keeps(self._cluster, member.request.uid, member.plan.node, len(member.plan.ids))

    def replan(
        self, group: Group, member: Member, now_s: float, *, is_offered: bool = False
    ) -> None:
        """A member cannot have what is claimed for it: it is planned again.

        `is_offered`: its node is as good as it was, but not its devices. After `MAX_REPLANS` of
        them all that is claimed is given back, and the nodes that members were not offered are left
        out for a while.
        """
        if member.plan is not None and is_offered:
            group.refused.add(member.plan.node)
        elif member.plan is not None:
            self._learn(group, member, member.plan.node, now_s)
        self.give_back(member)
        group.n_replans += 1
        self.n_replans += 1
        group.is_due, group.next_plan_s = True, now_s
        if group.n_replans > MAX_REPLANS:
            group.avoided |= dict.fromkeys(group.refused, now_s + AVOIDED_S)
            group.n_replans = 0
            group.refused.clear()
            self._fail(group, now_s, GIVE_UP_PAUSE_S)

    def _learn(self, group: Group, member: Member, node: str, now_s: float) -> None:
        """What it says of a node that kube-scheduler does not offer it to a member.

        Where other members are there it takes no more of them, and those that are planned there and
        were not tried yet are planned again too.
        """
        there = [one for one in group.members.values() if one is not member and _is_on(one, node)]
        untried = [one for one in there if one.stage is Stage.CLAIMED and one.filtered_s is None]
        n_bound = sum(on == node for on in self._bound.nodes(group.key))
        n_there = n_bound + len(there) - len(untried)
        if not n_there:
            group.refused.add(node)
            return
        group.most[node] = n_there
        group.most_end_s = group.most_end_s or now_s + MOST_S
        for one in untried:
            self.give_back(one)

    def give_back(self, member: Member) -> None:
        """End a claim, unless a bind has its plan, or may have written it: that ends it itself."""
        if member.is_unsure and member.stage is Stage.HELD:
            member.stage = Stage.CLAIMED
        elif member.stage in _OPEN and not member.is_unsure:
            self._cluster.pods.forget(member.request.uid)
            member.stage, member.plan = Stage.WAITING, None

    def drop(self, group: Group) -> None:
        """Give back all that is claimed for a group; bind calls that are held will fail."""
        for member in group.members.values():
            self.give_back(member)
        group.claims_end_s = None

    def _fail(self, group: Group, now_s: float, pause_s: float) -> None:
        """All claims end though not every bind call came; others may have the devices first."""
        self.drop(group)
        group.n_failed += 1
        times = "once" if group.n_failed == 1 else f"{group.n_failed} times"
        group.is_due = True
        detail = f"devices were claimed {times}, and bind was not called for all in time"
        group.refuse(Reason.GROUP_NOT_BOUND, detail)
        group.next_plan_s = now_s + pause_s

    def expire(self, group: Group, now_s: float) -> bool:
        """Claims end with their time; whether they did.

        A member for which filter was not called since is not planned again before it is: its
        scheduler may have no node for it at all.
        """
        if group.claims_end_s is None or now_s < group.claims_end_s:
            return False
        is_lapsed = False
        for member in group.at(*_OPEN):
            is_lapsed = is_lapsed or not member.is_unsure
            if member.filtered_s is None:
                member.offer = None
        if is_lapsed:
            pause_s = GIVE_UP_PAUSE_S * 2 ** min(group.n_lapsed, _MOST_DOUBLINGS)
            group.n_lapsed += 1
            self._fail(group, now_s, min(pause_s, MOST_GIVE_UP_PAUSE_S))
        group.claims_end_s = None
        return True

    def retry_nodes(self, group: Group, now_s: float) -> bool:
        """Nodes that took few members are tried again after a time; whether it has come."""
        if group.most_end_s is None or now_s < group.most_end_s:
            return False
        group.forget_refusals()
        group.is_due = True
        return True


def _reach(group: Group, member: Member) -> OfferedNodes:
    """The nodes that a member may be planned to; it was tried.

    Those of its last call, or what others show of the next one. A sample may have left others out,
    but those of earlier ones are known to be as good.
    """
    assert member.offer is not None  # noqa: S101 - as its caller says
    if member.is_sampled and group.sampled is not None:
        return group.sampled
    return member.expected or member.offer


def _is_on(member: Member, node: str) -> bool:
    return member.plan is not None and member.plan.node == node


def keeps(cluster: LiveCluster, uid: str, node: str, n_devices: int) -> bool:
    """Whether a pod without a node has so many devices of one, all of them healthy."""
    pod = cluster.pods.get(uid)
    if pod is None or pod.node != node:
        return False
    mine = [state for _, state, owner in cluster.devices(node) if owner == uid]
    return len(mine) == n_devices and all(state is DeviceState.ASSUMED for state in mine)
