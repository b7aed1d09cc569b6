"""The groups that wait: who is there, what is claimed for whom, whose binds may be written.

kube-scheduler places one pod after the other and knows of no group. Until all members are there and
a place for all is free, filter gives each the same constant reason. Then one plan claims devices
for all of them, and filter names to each its own node. kube-scheduler binds each in a goroutine of
its own and counts its CPU and memory meanwhile: bind calls are held until all are there, and only
then is any Binding written. So nothing is bound of a group that does not start; a deadline ends
every claim and every bind that is held (docs/adr/0028-groups-hold-their-binds.md).

The rules:

1. A member counts once the watch of pending pods shows it, and can be planned once filter was
   called for it: only then are the nodes known that kube-scheduler's own filters leave. Calls for
   a pod that has left or has a node change nothing.
2. Missing are the group's size less its members without GPUs, where the size counts them, less its
   bound members. A group is planned when no fewer members wait: for all of them, else for as many
   as are missing, those of the lowest ranks. Members beyond the size are placed as they come. So
   are those of a group of which some were bound: it has begun, and members may have ended.
3. A plan claims devices for all its members or for none, one plan after the other, and ends at
   `claim_s`. Higher priority goes first (the least of the members), then the older group; last
   those whose claims ended before all bind calls came. Each due group has its turn before one has
   a second (`extender.groups.reconcile.round_robin`), and pauses grow where there was no place.
4. A member that kube-scheduler does not offer its node, or whose devices are gone, is planned
   again near the others, before anything is bound (`extender.groups.claims`, for how often).
5. When no fewer bind calls are there than members are missing, the group is released: their
   Bindings are written. What becomes of them is `extender.bind`'s; a member whose Binding came to
   nothing for certain is missing then, and is placed near the others.
6. A member that is gone takes its claim with it; a group that is no longer complete loses all
   claims, so that bind calls that are held fail.
7. Nothing is planned before the pending pods were listed once. Pods of no group wait for no list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups.assigned_members import AssignedMembers
from extender.groups.claims import Claims
from extender.groups.filter_calls import answer_call
from extender.groups.members.bound_members import BoundMembers
from extender.groups.members.departed import Departed
from extender.groups.members.group import Member, Stage
from extender.groups.members.member_counts import MemberCounts
from extender.groups.members.waiting_members import WaitingMembers
from extender.groups.members.without_gpus import WithoutGpus
from extender.groups.near_bound import NearBound
from extender.groups.readings import GroupReadings
from extender.groups.reconcile.reconciler import Reconciler
from extender.groups.reconcile.waking import FEW_ASKED
from extender.groups.releases import Releases
from extender.pending import Requeue
from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extender.groups.members.group import Group
    from extender.groups.planning import OfferedNodes
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.state import LiveCluster
    from topology.annotations import Plan, PlanGroup

__all__ = ["Groups"]


class Groups:
    """The groups of one engine. Not thread-safe: called from the event loop only.

    `waiting_uids` are the members that have no node yet. `assigned` is for pods with a node,
    `near_bound` for members that do not wait, `releases` for bind calls.
    """

    def __init__(self, cluster: LiveCluster, rater: Rater, *, claim_s: float) -> None:
        self._cluster = cluster
        self._is_listed = False
        self._waiting = WaitingMembers()
        self._groups = self._waiting.groups
        self.waiting_uids = self._waiting.uids
        self._bound = BoundMembers()
        self._without_gpus = WithoutGpus()
        self._counts = MemberCounts(self._bound, self._without_gpus)
        self._claims = Claims(cluster, rater, self._bound, claim_s=claim_s)
        self.readings = GroupReadings(self._groups, self._counts, self._claims, cluster)
        self.releases = Releases(self._waiting, cluster, self._claims, self.readings.journal)
        self.near_bound = NearBound(self._bound, self._claims.planner)
        self._reconciler = Reconciler(cluster, self._claims, self.releases, self._counts)
        self._departed = Departed()
        self.assigned = AssignedMembers(
            self._groups, self._counts, depart=self.depart, review=self._review
        )

    # What the watches show.

    def see(self, request: PodRequest, now_s: float) -> None:
        """A pending pod; nothing for one that waits for no other."""
        if request.shape is None:
            self.lose(request.uid)
            if request.group is not None:
                key = request.namespace, request.group.name
                self.assigned.see_without_gpus(request.uid, key)
            return
        if self._has_node(request.uid):
            return  # the watch of pending pods is behind
        self._departed.discard(request.uid)
        joined = self._join(request, now_s)
        if joined is not None and not joined[1].is_watched:
            group, member = joined
            member.is_watched = True
            self._review(group)

    def keep_listed(self, uids: Iterable[str]) -> None:
        """All pending members were seen: who was seen and is not among them is gone.

        Nothing is planned before the first list: a group may have more members than were seen.
        """
        listed = frozenset(uids)
        self._is_listed = True
        self._without_gpus.keep_pending(listed)
        for uid in self._waiting.uids - listed:
            found = self._waiting.find(uid)
            if found is not None and found[1].is_watched:
                self.depart(uid)
        for uid in listed:
            found = self._waiting.find(uid)
            if found is not None and found[1].offer is None:
                group, member = found
                member.is_overdue = True  # filter may have been called for it before
                self._reconciler.add(group.key)

    def depart(self, uid: str) -> None:
        """A pod is gone, or has a node: filter calls that come yet do not count."""
        self._departed.add(uid)
        self.lose(uid)

    def lose(self, uid: str) -> None:
        """A pod is no member that waits, for now."""
        self._without_gpus.not_pending(uid)
        found = self._waiting.find(uid)
        if found is None:
            return
        group, member = found
        self._claims.give_back(member)
        self._waiting.remove(uid)
        if group.members:
            self._review(group)
        else:
            self._bound.start_over(group.key)

    # Filter.

    def filter(self, request: PodRequest, offer: OfferedNodes, now_s: float) -> Plan | Reason:
        """What is claimed for a member of a group with a size, or why it waits."""
        if request.uid in self._departed or self._has_node(request.uid):
            return Reason.GROUP_WAITING
        joined = self._join(request, now_s)
        if joined is None:
            return Reason.GROUP_WAITING
        group, member = joined
        found = answer_call(self._claims, group, member, offer, now_s)
        if group.is_due or member.filtered_s is None:
            self._reconciler.add(group.key)
        return found

    # Planning.

    def devices_freed(self, n_devices: int) -> None:
        """So many devices came free at most: groups that found no room may have it now."""
        self._reconciler.devices_freed(self._groups.values(), n_devices)

    def due(self, now_s: float) -> tuple[Requeue, ...]:
        """Plan what is due; the members to wake."""
        if not (self._is_listed and self._groups):
            return ()
        woken = self._reconciler.reconcile(self._groups, now_s)
        is_called = self.readings.is_placing(now_s)
        asked = [one.request for one in woken if is_called or one.n_asked <= FEW_ASKED]
        return tuple(Requeue(one.namespace, one.name, one.uid, None) for one in asked)

    def expire(self, now_s: float) -> None:
        """Claims end with their time, and plans that no bind has any more.

        Called after the cluster's assumptions have ended.
        """
        self._bound.expire(now_s)
        self._departed.expire(now_s)
        for key in tuple(self._reconciler.unsettled):
            group = self._groups.get(key)
            if group is None or not self._expire(group, now_s):
                del self._reconciler.unsettled[key]

    def _expire(self, group: Group, now_s: float) -> bool:
        """Whether there is more that ends with time."""
        is_over = self._claims.expire(group, now_s)
        if self._claims.retry_nodes(group, now_s) or is_over:
            self._reconciler.add(group.key)
        for uid, member in tuple(group.members.items()):
            is_released = member.is_unsure or member.stage is Stage.RELEASED
            if is_released and self._cluster.pods.get(uid) is None:
                self._missing_again(group, member)
            elif member.is_forgotten(now_s):
                self.lose(uid)
        return group.is_unsettled

    # Bind.

    def claim(self, uid: str) -> Plan | None:
        """What is claimed for a member; None for every other pod."""
        found = self._waiting.find(uid)
        return None if found is None else found[1].plan

    def arrive(self, uid: str) -> None:
        """The bind call of a member with a claim is there."""
        found = self._waiting.find(uid)
        if found is not None:
            group, member = found
            self.releases.arrive(group, member, self._counts.n_open(group))
            self._reconciler.add(group.key)

    def failed(self, uid: str) -> None:
        """A member's Binding came to nothing for certain: it is missing again."""
        found = self._waiting.find(uid)
        if found is not None and (found[1].is_unsure or found[1].stage is Stage.RELEASED):
            self._cluster.pods.forget(uid)
            self._missing_again(*found)

    def unsure(self, uid: str) -> None:
        """A member's Binding may have been written: its bind call is needed again, as the others'.

        No other plan is made for it before that is known.
        """
        found = self._waiting.find(uid)
        if found is not None and found[1].stage is Stage.RELEASED:
            group, member = found
            member.stage, member.is_unsure = Stage.CLAIMED, True
            self._review(group)

    def plan_group(self, request: PodRequest, node: str) -> PlanGroup | None:
        """The group in the plan of a pod on a node; None where it has none."""
        claimed = self.claim(request.uid)
        if claimed is not None and claimed.node == node:
            return claimed.group
        return self.near_bound.plan_group(request, node)

    # Reading.

    @property
    def n_groups(self) -> int:
        """Number of groups with members that wait."""
        return len(self._groups)

    # Inside.

    def _join(self, request: PodRequest, now_s: float) -> tuple[Group, Member] | None:
        """The member with its group; None for a pod that waits for no other."""
        wish, uid = request.group, request.uid
        if wish is None or not request.waits_for_others or request.shape is None or not uid:
            self.lose(uid)
            return None
        key = request.namespace, wish.name
        found = self._waiting.find(uid)
        if found is not None and found[0].key != key:
            self.lose(uid)
            found = None
        if found is None:
            member = Member(request, now_s)
            group = self._waiting.add(key, member)
            self._reconciler.unsettled[key] = None
            self._review(group)
            return group, member
        group, member = found
        if member.request is not request:
            before, member.request = member.request, request
            if (before.shape, before.group) != (request.shape, wish):
                self._claims.give_back(member)
                self._review(group)
        return found

    def _has_node(self, uid: str) -> bool:
        return self._bound.key_of(uid) is not None or self._cluster.bound(uid) is not None

    def _review(self, group: Group) -> None:
        """Members, or what they say, have changed."""
        group.is_due = True
        self._reconciler.add(group.key)
        if not group.n_watched:
            self._bound.start_over(group.key)
        if not group.is_alike:
            self._claims.drop(group)
            group.refuse(Reason.GROUP_DIFFERS, group.difference)
        elif not self._counts.is_complete(group) or group.refusal is Reason.GROUP_DIFFERS:
            self._claims.drop(group)
            group.refuse(Reason.GROUP_WAITING, "")
        else:
            self.releases.settle(group, self._counts.n_open(group))

    def _missing_again(self, group: Group, member: Member) -> None:
        member.stage, member.plan, member.is_unsure = Stage.WAITING, None, False
        self._review(group)
