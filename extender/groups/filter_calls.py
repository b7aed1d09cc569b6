"""What a filter call says of a member of a group, and what it is answered.

The nodes that a call names are those that the member may be planned to. kube-scheduler may look at
a sample of the nodes only: that is so where two calls name as many nodes, but others; then those of
all calls count. A node that is left out of a call is no place for the member, but of one that may
be a sample only where the next call leaves it out too, or names the very same nodes. So of one that
names the pod's nominated node alone: kube-scheduler tries that first, and names all in the next
call of the same cycle (1.36, schedule_one.go, evaluateNominatedNode).

kube-scheduler calls for one member after the other. Where pods leave a node it names that node for
the first of them, and a plan is made before it comes to the last: with the nodes of old calls only
the first members could go there, whatever their ranks. So a member is expected to be offered what
others are that were offered the same before it; if it is not, its own call says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups.members.group import Stage
from extender.protocol import Reason

if TYPE_CHECKING:
    from extender.groups.claims import Claims
    from extender.groups.members.group import Group, Member
    from extender.groups.planning import OfferedNodes
    from topology.annotations import Plan

__all__ = ["answer_call"]


def answer_call(
    claims: Claims, group: Group, member: Member, offer: OfferedNodes, now_s: float
) -> Plan | Reason:
    """The member's claim, if the call names its node, or why it waits."""
    member.filtered_s, member.expected = now_s, None
    is_known = member.offer is not None and offer.is_same(member.offer)
    if not is_known:
        _take(claims, group, member, offer)
    plan = member.plan
    if plan is None:
        member.answered, member.n_updates = group.refusal, 0
        return group.refusal
    member.answered = None
    is_offered, is_intact = offer.has(plan.node), claims.is_intact(member)
    if is_offered and is_intact:
        return plan
    if member.stage is Stage.CLAIMED and not member.is_unsure:
        is_part = offer.may_be_sample or offer.is_only(member.request.nominated_node)
        if is_intact and is_part and not is_known:
            member.filtered_s = None  # it is woken for another call, which may name the node
        else:
            claims.replan(group, member, now_s, is_offered=is_offered)
    return Reason.GROUP_PLACING


def _take(claims: Claims, group: Group, member: Member, offer: OfferedNodes) -> None:
    """The call names other nodes than the last one: another plan may be possible."""
    before, member.offer = member.offer, offer
    member.is_sampled = before is not None and offer.is_other_sample(before)
    if before is not None and member.is_sampled:
        group.sampled = offer.joined(before if group.sampled is None else group.sampled)
    if member.plan is None:
        group.is_due = True
        if before is not None and offer.has_more(before):
            claims.try_soon(group)
            if not member.is_sampled:
                _expect(group, before, offer)


def _expect(group: Group, before: OfferedNodes, offer: OfferedNodes) -> None:
    """Members that were offered as little before are expected to be offered as much now."""
    for other in group.members.values():
        is_behind = other.plan is None and other.expected is not offer
        if is_behind and other.offer is not None and other.offer.is_same(before):
            other.expected = offer
