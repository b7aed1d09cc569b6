"""The groups that wait: who is there, what is claimed for whom, whose binds may be written.

The rules:

1. A member counts once the watch of pending pods shows it, and can be planned once filter was
   called for it: only then are the nodes known that kube-scheduler's own filters leave.
2. Missing are the group's size less its bound members. A group is planned when no fewer members
   wait: for all of them, else for as many as are missing, those of the lowest ranks.
3. A plan claims devices for all its members or for none, one plan after the other, and ends at
   `claim_s`. Higher priority goes first (the least of the members), then the older group.
4. A member that kube-scheduler does not offer its node is planned anew with all others whose bind
   calls are not there, without that node for `AVOIDED_S`.
5. When the bind calls of all that have a claim are there, the group is released: their Bindings
   are written, and none is planned anew any more. A member whose Binding fails is missing then,
   and is placed near the others.
6. A member that is gone takes its claim with it; a group that is no longer complete loses all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups.group import Group, Member
from extender.groups.joint_plan import JointPlan, plan_jointly
from extender.groups.waking import ask_for, wake_claimed
from extender.groups.without_gpus import WithoutGpus
from extender.protocol import Reason
from extender.unschedulable import Requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.groups.group import GroupKey
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.state import LiveCluster
    from topology.annotations import Plan, PlanGroup

__all__ = ["Groups"]

AVOIDED_S = 60.0
"""How long a node is left out that a member was not offered or could not go to."""
PLAN_PAUSE_S = 0.5
"""Between two plans of a group that found no room."""
MAX_ASKED = 64
"""Members without a claim that are woken in one look, and the rest of their group."""
MAX_PLANS = 4
"""Plans in one look; the others are made in the next one."""


class Groups:
    """The groups of one engine. Not thread-safe: called from the event loop only.

    `counts_unwatched`: members count as soon as filter is called for them, where no watch of
    pending pods runs (the embedded cluster).
    """

    def __init__(
        self, cluster: LiveCluster, rater: Rater, *, claim_s: float, counts_unwatched: bool = False
    ) -> None:
        self._cluster = cluster
        self._rater = rater
        self._claim_s = claim_s
        self._counts_unwatched = counts_unwatched
        self._is_holder = True
        self._groups: dict[GroupKey, Group] = {}
        self._of_member: dict[str, GroupKey] = {}
        self._bound: dict[str, tuple[GroupKey, str]] = {}
        self._n_bound: dict[GroupKey, dict[str, str]] = {}
        self._without_gpus = WithoutGpus()

    # What the watches show.

    def see(self, request: PodRequest, now_s: float) -> None:
        """A pending pod; nothing for one that waits for no other."""
        if request.shape is None:
            self._see_without_gpus(request)
            return
        group = self._join(request, now_s)
        if group is not None:
            member = group.members[request.uid]
            member.is_watched, member.request = True, request

    def replace(self, requests: Iterable[PodRequest], now_s: float) -> None:
        """All pending pods: members that are not among them are gone."""
        listed = {request.uid: request for request in requests}
        known = set(self._of_member)
        self._without_gpus.keep_pending(listed)
        for uid in [uid for uid in self._of_member if uid not in listed]:
            self.lose(uid)
        for request in listed.values():
            self.see(request, now_s)
            member = None if request.uid in known else self._member(request.uid)
            if member is not None:
                member.is_overdue = True  # filter may have been called for it before

    def lose(self, uid: str) -> None:
        """A pending pod is gone, or bound."""
        self._without_gpus.not_pending(uid)
        key = self._of_member.pop(uid, None)
        if key is None:
            return
        group = self._groups[key]
        self._give_back(group, group.members.pop(uid))
        if not group.members:
            del self._groups[key]
        elif not group.is_released and len(group.members) < self._missing(group):
            self._drop_claims(group)
            group.refusal = Reason.GROUP_WAITING
        elif group.is_released and not any(one.plan for one in group.members.values()):
            self._end_release(group)

    def see_bound(self, uid: str, namespace: str, group: PlanGroup, node: str) -> None:
        """A pod with a node, and the group that its plan names."""
        key = namespace, group.name
        self._bound[uid] = key, node
        self._n_bound.setdefault(key, {})[uid] = node
        self.lose(uid)

    def see_without_gpus(self, uid: str, key: GroupKey, *, is_bound: bool = False) -> None:
        """A member without GPUs, of a group whose size counts it."""
        self._without_gpus.see(uid, key, is_bound=is_bound)
        group = self._groups.get(key)
        if group is not None:
            group.is_due = True

    def end_bound(self, uid: str) -> None:
        """A pod ended, or is gone."""
        self._without_gpus.end(uid)
        known = self._bound.pop(uid, None)
        if known is None:
            return
        on_nodes = self._n_bound[known[0]]
        del on_nodes[uid]
        if not on_nodes:
            del self._n_bound[known[0]]

    # Filter.

    def filter(self, request: PodRequest, left_out: frozenset[str], now_s: float) -> Plan | Reason:
        """What is claimed for a member of a group with a size, or why it waits.

        `left_out` are the nodes that kube-scheduler did not offer.
        """
        group = self._join(request, now_s)
        if group is None:
            return Reason.GROUP_WAITING
        member = group.members[request.uid]
        member.request, member.filtered_s = request, now_s
        if left_out != member.left_out:
            member.left_out = left_out
            group.is_due = True
        if member.plan is None:
            group.is_due = group.is_due or group.claims_end_s is None
            return self._refusal(group)
        if member.plan.node not in left_out:
            return member.plan
        self._plan_anew(group, member.plan.node, now_s)
        return Reason.GROUP_PLACING

    def _refusal(self, group: Group) -> Reason:
        if len(group.wishes) > 1:
            return Reason.GROUP_DIFFERS
        if self._n_counted(group) < self._missing(group):
            return Reason.GROUP_WAITING
        return group.refusal

    # Planning.

    def set_holder(self, *, is_holder: bool) -> None:
        """Whether groups are placed here from now on: one of several replicas does it.

        Claims and filter calls before a change are another term's.
        """
        self._is_holder = is_holder
        for group in self._groups.values():
            self._drop_claims(group)
            group.is_released, group.refusal = False, Reason.GROUP_WAITING
            for member in group.members.values():
                member.left_out, member.is_overdue, member.n_asked = None, True, 0

    @property
    def is_due(self) -> bool:
        """Whether some group is to be planned, or a member to be woken."""
        return bool(self._groups)

    def devices_freed(self) -> None:
        """Devices came free somewhere: groups that found no room may have it now."""
        for group in self._groups.values():
            group.is_due = True

    def due(self, now_s: float) -> tuple[Requeue, ...]:
        """Plan what is due; the members to wake."""
        if not self._is_holder:
            return ()
        waiting = [
            group
            for group in self._groups.values()
            if group.is_due and not group.is_released and group.next_plan_s <= now_s
        ]
        for group in sorted(waiting, key=lambda one: one.order)[:MAX_PLANS]:
            self._plan(group, now_s)
        woken: list[Member] = []
        for group in sorted(self._groups.values(), key=lambda one: one.order):
            woken += wake_claimed(group, now_s)
            if len(woken) < MAX_ASKED and self._n_counted(group) >= self._missing(group):
                woken += ask_for(group, now_s)
        return tuple(
            Requeue(one.request.namespace, one.request.name, one.request.uid, None) for one in woken
        )

    def _plan(self, group: Group, now_s: float) -> None:
        group.is_due = False
        asked = group.asked
        fixed = [one.plan for one in asked if one.plan is not None]
        unplanned = [one for one in asked if one.plan is None]
        n_missing = max(self._missing(group) - len(fixed), 0 if fixed else 1)
        if len(group.wishes) != 1 or not unplanned or len(unplanned) < n_missing:
            return
        for node in [node for node, until_s in group.avoided.items() if until_s <= now_s]:
            del group.avoided[node]
        near = (*self.nodes_of(group.key), *(plan.node for plan in fixed))
        found: JointPlan | Reason = Reason.GROUP_NO_ROOM
        for n_members in dict.fromkeys((len(unplanned), n_missing)):
            some = unplanned[:n_members]
            requests = [(one.request, one.left_out or frozenset()) for one in some]
            found = plan_jointly(
                requests,
                self._cluster,
                rater=self._rater,
                near=near,
                avoided=frozenset(group.avoided),
            )
            if isinstance(found, JointPlan):
                break
        if isinstance(found, JointPlan) and self._claim(group, found, now_s):
            group.refusal = Reason.GROUP_PLACING
            return
        if n_missing:
            self._drop_claims(group)
        group.refusal = found if isinstance(found, Reason) else Reason.GROUP_NO_ROOM
        group.next_plan_s = now_s + PLAN_PAUSE_S

    def _claim(self, group: Group, found: JointPlan, now_s: float) -> bool:
        """Claim the devices of all, or of none."""
        ends_s = now_s + self._claim_s
        for plan, request in found.placements:
            member = group.members[request.uid]
            if self._cluster.assume(request, plan, deadline_s=ends_s) is not None:
                self._drop_claims(group)
                return False
            member.plan, member.woken_s, member.filtered_s = plan, None, None
        group.claims_end_s = ends_s
        return True

    def _plan_anew(self, group: Group, node: str, now_s: float) -> None:
        """Members whose bind calls are not there are planned again, without a node."""
        group.avoided[node] = now_s + AVOIDED_S
        group.n_replans += 1
        for member in group.members.values():
            if not member.is_here:
                self._give_back(group, member)
                member.plan = None
        group.is_due, group.next_plan_s = True, now_s

    def expire(self, now_s: float) -> None:
        """Claims end with their time; binds that are held end by themselves."""
        for group in self._groups.values():
            if group.claims_end_s is not None and group.claims_end_s <= now_s:
                self._drop_claims(group)
                group.is_released = False
                group.is_due = True

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
        key = self._of_member[uid]
        group = self._groups[key]
        group.members[uid].is_here = True
        claimed = [one for one in group.members.values() if one.plan is not None]
        if all(one.is_here for one in claimed):
            group.is_released = True

    def is_released(self, uid: str) -> bool:
        """Whether the member's Binding may be written now."""
        key = self._of_member.get(uid)
        return key is not None and self._groups[key].is_released

    def is_held(self, uid: str) -> bool:
        """Whether the member's bind call still waits for the others'."""
        member = self._member(uid)
        return member is not None and member.is_here and not self.is_released(uid)

    def leave(self, uid: str) -> None:
        """The bind call ended before the group was released."""
        member = self._member(uid)
        if member is not None:
            member.is_here = False

    def placed(self, uid: str, namespace: str, plan: Plan) -> None:
        """The API server accepted a member's Binding."""
        if plan.group is not None:
            member = self._member(uid)
            if member is not None:
                member.plan = None  # it is the pod's own now, and no claim to give back
            self.see_bound(uid, namespace, plan.group, plan.node)

    def failed(self, uid: str) -> None:
        """A member's Binding came to nothing: it is missing again."""
        member = self._member(uid)
        if member is None:
            return
        member.plan, member.is_here = None, False
        group = self._groups[self._of_member[uid]]
        if group.is_released and not any(one.plan for one in group.members.values()):
            self._end_release(group)

    # Reading.

    @property
    def n_groups(self) -> int:
        """Number of groups with members that wait."""
        return len(self._groups)

    def counts(self, key: GroupKey) -> tuple[int, int, int]:
        """How many members wait, how many are bound, and the group's size."""
        group = self._groups.get(key)
        n_bound = len(self._n_bound.get(key, {}))
        if group is None:
            return 0, n_bound, 0
        return self._n_counted(group), n_bound, self._size(group)

    def nodes_of(self, key: GroupKey) -> Sequence[str]:
        """The nodes of the bound members."""
        return tuple(self._n_bound.get(key, {}).values())

    # Inside.

    def _join(self, request: PodRequest, now_s: float) -> Group | None:
        wish = request.group
        if wish is None or wish.size is None or request.shape is None or not request.uid:
            self.lose(request.uid)
            return None
        key = request.namespace, wish.name
        if self._of_member.get(request.uid, key) != key:
            self.lose(request.uid)
        group = self._groups.setdefault(key, Group(key))
        if request.uid not in group.members:
            group.members[request.uid] = Member(request, now_s)
            self._of_member[request.uid] = key
            group.is_due = True
        return group

    def _member(self, uid: str) -> Member | None:
        key = self._of_member.get(uid)
        return None if key is None else self._groups[key].members[uid]

    def _n_counted(self, group: Group) -> int:
        if self._counts_unwatched:
            return len(group.members)
        return sum(one.is_watched for one in group.members.values())

    def _missing(self, group: Group) -> int:
        return self._size(group) - len(self._n_bound.get(group.key, {}))

    def _size(self, group: Group) -> int:
        """How many members with GPUs there must be at least."""
        return group.size - self._without_gpus.count(group.key)

    def _see_without_gpus(self, request: PodRequest) -> None:
        self.lose(request.uid)
        if request.group is not None:
            self.see_without_gpus(request.uid, (request.namespace, request.group.name))

    def _drop_claims(self, group: Group) -> None:
        for member in group.members.values():
            self._give_back(group, member)
            member.plan, member.is_here = None, False
        group.claims_end_s = None

    def _give_back(self, group: Group, member: Member) -> None:
        """End a claim; once the group is released the bind has the plan, and ends it itself."""
        if member.plan is not None and not group.is_released:
            self._cluster.pods.forget(member.request.uid)

    def _end_release(self, group: Group) -> None:
        """All Bindings were written or failed: who is left is planned near the others."""
        group.is_released, group.claims_end_s = False, None
        group.refusal, group.is_due = Reason.GROUP_WAITING, True
