"""The groups that wait: who is there, what is claimed for whom, whose binds may be written.

kube-scheduler places one pod after the other and knows of no group. Until all members are there and
a place for all is free, filter gives each the same constant reason. Then one plan claims devices
for all of them, and filter names to each its own node. kube-scheduler binds each in a goroutine of
its own and counts its CPU and memory meanwhile: bind calls are held until all are there, and only
then is any Binding written. So nothing is bound of a group that does not start; a deadline ends
every claim and every bind that is held (facts, figures and what was tried:
docs/adr/0028-groups-hold-their-binds.md).

The rules:

1. A member counts once the watch of pending pods shows it, and can be planned once filter was
   called for it: only then are the nodes known that kube-scheduler's own filters leave.
2. Missing are the group's size less its members without GPUs, where the size counts them, less its
   bound members. A group is planned when no fewer members wait: for all of them, else for as many
   as are missing, those of the lowest ranks. Members beyond the size are placed as they come.
3. A plan claims devices for all its members or for none, one plan after the other, and ends at
   `claim_s`. Higher priority goes first (the least of the members), then the older group.
4. A member that kube-scheduler does not offer its node, or whose devices are gone, is planned
   again near the others, before anything is bound (`extender.groups.claims`, for how often).
5. When no fewer bind calls are there than members are missing, the group is released: their
   Bindings are written. What becomes of them is `extender.bind`'s; a member whose Binding came to
   nothing for certain is missing then, and is placed near the others.
6. A member that is gone takes its claim with it; a group that is no longer complete loses all
   claims, so that bind calls that are held fail.
7. Where several replicas run, the Lease's holder alone plans and wakes; a change of holder ends all
   claims.
8. Nothing is planned before the pending pods were listed once. Pods of no group wait for no list.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from extender.groups.bound_members import BoundMembers
from extender.groups.claims import Claims
from extender.groups.group import Group, Member, Stage
from extender.groups.near_bound import NearBound
from extender.groups.readings import GroupReadings
from extender.groups.releases import Releases
from extender.groups.waking import ask_for, wake_claimed
from extender.groups.without_gpus import WithoutGpus
from extender.protocol import Reason
from extender.unschedulable import Requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.groups.group import GroupKey
    from extender.groups.planning import OfferedNodes
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.state import LiveCluster
    from topology.annotations import Plan, PlanGroup
    from topology.groups import DomainTree

__all__ = ["Groups"]

MAX_ASKED = 64
"""Members without a claim that are woken in one look, and the rest of their group."""
MAX_PLANNED = 128
"""Members planned in one look, and the rest of their group; the others follow in later looks."""
WAKE_PAUSE_S = 1.0
"""Between two looks at a group of which nothing changed and members may have to be woken."""
LOOK_PAUSE_S = 0.05
"""Between two looks of which the first one reached its bound."""
UNWATCHED_S = 60.0
"""How long a member is kept that filter was called for and that no watch shows: it was deleted
before the call came, or the watch is late."""


class Groups:
    """The groups of one engine. Not thread-safe: called from the event loop only.

    `near_bound` is for members that do not wait. `at_once`: no watch of pending pods runs, and
    nothing can fail between two Bindings (the embedded cluster). Members count as soon as filter is
    called for them, which then plans, and no bind is held.
    """

    def __init__(
        self, cluster: LiveCluster, rater: Rater, *, claim_s: float, at_once: bool = False
    ) -> None:
        self._cluster = cluster
        self._at_once = at_once
        self._is_holder = True
        self._is_listed = at_once
        self._groups: dict[GroupKey, Group] = {}
        self._of_member: dict[str, GroupKey] = {}
        self._bound = BoundMembers()
        self._without_gpus = WithoutGpus()
        self._claims = Claims(cluster, rater, self._bound, claim_s=claim_s)
        self.readings = GroupReadings(self._groups, self._bound, self._without_gpus, self._claims)
        self._releases = Releases(cluster, self._claims, self.readings.journal, at_once)
        self.near_bound = NearBound(self._bound, self._claims.planner)
        self._next_look_s = 0.0
        self._tree: DomainTree | None = None

    # What the watches show.

    def see(self, request: PodRequest, now_s: float) -> None:
        """A pending pod; nothing for one that waits for no other."""
        if request.shape is None:
            self.lose(request.uid)
            if request.group is not None:
                self.see_without_gpus(request.uid, (request.namespace, request.group.name))
            return
        group = self._join(request, now_s)
        if group is not None and not group.members[request.uid].is_watched:
            group.members[request.uid].is_watched = group.is_due = True

    def keep_listed(self, uids: Iterable[str]) -> None:
        """All pending members were seen: who was seen and is not among them is gone.

        Nothing is planned before the first list: a group may have more members than were seen.
        """
        listed = frozenset(uids)
        self._is_listed = True
        self._without_gpus.keep_pending(listed)
        for uid in self._of_member.keys() - listed:
            member = self._member(uid)
            if member is not None and member.is_watched:
                self.lose(uid)
        for uid in listed:
            member = self._member(uid)
            if member is not None and member.offer is None:
                member.is_overdue = True  # filter may have been called for it before

    def lose(self, uid: str) -> None:
        """A pending pod is gone, or has a node."""
        self._without_gpus.not_pending(uid)
        key = self._of_member.pop(uid, None)
        if key is None:
            return
        group = self._groups[key]
        self._claims.give_back(group.members[uid])
        del group.members[uid]
        if group.members:
            self._review(group)
        else:
            del self._groups[key]

    def see_bound(self, uid: str, namespace: str, group: PlanGroup, node: str) -> None:
        """A pod with a node, and the group that its plan names."""
        key = namespace, group.name
        is_new = self._bound.add(uid, key, node)
        self.lose(uid)
        if is_new:
            self._review_key(key)

    def see_without_gpus(self, uid: str, key: GroupKey, *, is_bound: bool = False) -> None:
        """A member without GPUs, of a group whose size counts it."""
        self._without_gpus.see(uid, key, is_bound=is_bound)
        self._review_key(key)

    def end_bound(self, uid: str) -> None:
        """A pod ended, or is gone."""
        self._without_gpus.end(uid)
        key = self._bound.end(uid)
        if key is not None:
            self._review_key(key)

    # Filter.

    def filter(self, request: PodRequest, offer: OfferedNodes, now_s: float) -> Plan | Reason:
        """What is claimed for a member of a group with a size, or why it waits."""
        found = self._filter(request, offer, now_s)
        if self._at_once and isinstance(found, Reason):
            self.expire(now_s)
            self.due(now_s)
            found = self._filter(request, offer, now_s)
        return found

    def _filter(self, request: PodRequest, offer: OfferedNodes, now_s: float) -> Plan | Reason:
        group = self._join(request, now_s)
        if group is None:
            return Reason.GROUP_WAITING
        member = group.members[request.uid]
        member.filtered_s = now_s
        if offer is not member.offer:
            group.is_due = group.is_due or member.plan is None
            member.offer = offer
        if member.plan is None:
            return group.refusal
        if offer.has(member.plan.node) and self._claims.is_intact(member):
            return member.plan
        if member.stage is Stage.CLAIMED and offer.is_sample:
            member.filtered_s = None  # the next sample may have the node
        elif member.stage is Stage.CLAIMED:
            self._claims.plan_anew(group, member, now_s)
        return Reason.GROUP_PLACING

    # Planning.

    def set_holder(self, *, is_holder: bool) -> None:
        """Whether groups are placed here from now on: one of several replicas does it.

        Claims and filter calls before a change are another term's.
        """
        self._is_holder = self.readings.is_holder = is_holder
        for group in self._groups.values():
            self._claims.drop(group)
            group.refusal = Reason.GROUP_WAITING
            for member in group.members.values():
                member.offer, member.is_overdue, member.n_asked = None, True, 0
            group.is_due = True

    def devices_freed(self) -> None:
        """Devices came free somewhere: groups that found no room may have it now."""
        for group in self._groups.values():
            group.is_due = group.is_due or group.refusal is not Reason.GROUP_WAITING

    def due(self, now_s: float) -> tuple[Requeue, ...]:
        """Plan what is due; the members to wake."""
        if not (self._is_holder and self._is_listed and self._groups):
            return ()
        if self._tree is not self._cluster.domains.tree:
            self._tree = self._cluster.domains.tree
            self.devices_freed()  # other domains hold other groups
        groups = [
            group
            for group in self._groups.values()
            if group.look_s <= now_s or (group.is_due and group.next_plan_s <= now_s)
        ]
        groups.sort(key=lambda one: one.order)
        if self._next_look_s <= now_s:
            self._plan(groups, now_s)
        woken: list[Member] = []
        for group in groups:
            woken += wake_claimed(group, now_s)
            is_complete = group.n_watched >= self._n_open(group)
            group.complete_s = (group.complete_s or now_s) if is_complete else None
            if len(woken) < MAX_ASKED and is_complete:
                woken += ask_for(group, now_s)
            is_waking = group.claims_end_s is not None or (is_complete and group.has_untried)
            group.look_s = now_s + WAKE_PAUSE_S if is_waking else math.inf
        requests = (one.request for one in woken)
        return tuple(Requeue(one.namespace, one.name, one.uid, None) for one in requests)

    def _plan(self, groups: Sequence[Group], now_s: float) -> None:
        n_planned = 0
        for group in groups:
            if not group.is_due or group.next_plan_s > now_s:
                continue
            if n_planned >= MAX_PLANNED:
                self._next_look_s = now_s + LOOK_PAUSE_S
                break
            n_claimed = len(group.at(Stage.CLAIMED, Stage.HELD))
            n_planned += self._claims.plan(group, self._n_open(group) - n_claimed, now_s)
            # A claim that was lost may have kept bind calls waiting for one that is not needed.
            self._releases.settle(group, self._n_open(group))

    def expire(self, now_s: float) -> None:
        """Claims end with their time, and plans that no bind has any more.

        Called after the cluster's assumptions have ended.
        """
        self._bound.expire(now_s)
        lost: list[str] = []
        for group in self._groups.values():
            self._claims.expire(group, now_s)
            for uid, member in group.members.items():
                if member.stage is Stage.GOING and self._cluster.pods.get(uid) is None:
                    self._missing_again(group, member)
                elif not member.is_watched and _seen_s(member) + UNWATCHED_S <= now_s:
                    lost.append(uid)
        for uid in lost:
            self.lose(uid)

    # Bind.

    def has_member(self, uid: str) -> bool:
        """Whether a pod is a member that has no node yet."""
        return uid in self._of_member

    def claim(self, uid: str) -> Plan | None:
        """What is claimed for a member; None for every other pod."""
        member = self._member(uid)
        return None if member is None else member.plan

    def arrive(self, uid: str) -> None:
        """The bind call of a member with a claim is there."""
        member = self._member(uid)
        if member is not None:
            group = self._groups[self._of_member[uid]]
            self._releases.arrive(group, member, self._n_open(group))

    def is_released(self, uid: str) -> bool:
        """Whether the member's Binding may be written now."""
        member = self._member(uid)
        return member is not None and member.stage is Stage.GOING

    def is_held(self, uid: str) -> bool:
        """Whether the member's bind call is still to wait (`Releases.is_held`)."""
        member = self._member(uid)
        if member is None:
            return False
        return self._releases.is_held(self._groups[self._of_member[uid]], member)

    def leave(self, uid: str) -> None:
        """The bind call ended before the group was released."""
        member = self._member(uid)
        if member is not None and member.stage is Stage.HELD:
            member.stage = Stage.CLAIMED

    def failed(self, uid: str) -> None:
        """A member's Binding came to nothing for certain: it is missing again."""
        member = self._member(uid)
        if member is not None and member.stage is Stage.GOING:
            self._cluster.pods.forget(uid)
            self._missing_again(self._groups[self._of_member[uid]], member)

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

    def counts(self, key: GroupKey) -> tuple[int, int, int]:
        """How many members wait, how many are bound, and the group's size."""
        group, n_bound = self._groups.get(key), self._bound.count(key)
        return (0, n_bound, 0) if group is None else (group.n_watched, n_bound, self._size(group))

    def refusal(self, key: GroupKey) -> tuple[Reason, str] | None:
        """Why members wait, and the counts of the last plan; None where none does."""
        group = self._groups.get(key)
        return None if group is None else (group.refusal, group.detail)

    # Inside.

    def _join(self, request: PodRequest, now_s: float) -> Group | None:
        """The member's group; None for a pod that waits for no other."""
        wish, uid = request.group, request.uid
        if wish is None or wish.size is None or request.shape is None or not uid:
            self.lose(uid)
            return None
        key = _key(request, wish.name)
        if self._of_member.get(uid, key) != key:
            self.lose(uid)
        group = self._groups.setdefault(key, Group(key))
        member = group.members.get(uid)
        if member is None:
            group.members[uid] = Member(request, now_s, is_watched=self._at_once)
            self._of_member[uid] = key
            self._review(group)
        elif member.request is not request:
            before, member.request = member.request, request
            if (before.shape, before.group) != (request.shape, wish):
                self._claims.give_back(member)
                self._review(group)
        return group

    def _member(self, uid: str) -> Member | None:
        key = self._of_member.get(uid)
        return None if key is None else self._groups[key].members[uid]

    def _size(self, group: Group) -> int:
        """How many members with GPUs there must be at least."""
        return group.size - self._without_gpus.count(group.key)

    def _n_open(self, group: Group) -> int:
        """How many members must still come, or be released."""
        return self._size(group) - self._bound.count(group.key) - len(group.at(Stage.GOING))

    def _review_key(self, key: GroupKey) -> None:
        group = self._groups.get(key)
        if group is not None:
            self._review(group)

    def _review(self, group: Group) -> None:
        """Members, or what they say, have changed."""
        group.is_due = True
        n_here = group.n_watched - len(group.at(Stage.GOING))
        if not group.is_alike:
            self._claims.drop(group)
            group.refusal, group.detail = Reason.GROUP_DIFFERS, ""
        elif n_here < self._n_open(group) or group.refusal is Reason.GROUP_DIFFERS:
            self._claims.drop(group)
            group.refusal, group.detail = Reason.GROUP_WAITING, ""
        else:
            self._releases.settle(group, self._n_open(group))

    def _missing_again(self, group: Group, member: Member) -> None:
        member.stage, member.plan = Stage.WAITING, None
        self._review(group)


def _key(request: PodRequest, name: str) -> GroupKey:
    return request.namespace, name


def _seen_s(member: Member) -> float:
    return member.since_s if member.filtered_s is None else member.filtered_s
