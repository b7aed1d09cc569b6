"""Which members of a group are woken, so that kube-scheduler calls filter for them again.

A member with a claim is woken once, and again where filter is not called for it. A member of a
complete group for which filter was never called here is woken too: after a start and after a
fail-over kube-scheduler has tried it long ago, and may not come back for minutes. Where
that does not help, the group waits for room. So is a member that was answered that others are
missing, where there is no place for the group now: its status would say the former for minutes. On
a full cluster that does not help either, since filter is not called for it. It plans nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from extender.groups.members.group import NO_PLACE
from extender.protocol import Reason

if TYPE_CHECKING:
    from extender.groups.members.group import Group, Member

__all__ = [
    "FEW_ASKED",
    "MAX_ASKED",
    "ask_for",
    "next_wake_s",
    "note_untried",
    "wake_claimed",
    "wake_outdated",
]

MAX_ASKED = 64
"""Members without a claim that are woken at once, and the rest of their group."""
FEW_ASKED = 4
"""How often a member is woken where filter is not called for any pod, in some 75 s: beside a
kube-scheduler that does not lead it would go on for as long as the member waits for room."""
WAKE_AGAIN_S = 5.0
"""After which a member with a claim is woken once more if filter was not called for it."""
ASK_AFTER_S = 5.0
"""How long kube-scheduler has to try a new member by itself: it did so within 1.5 s for 64."""
UPDATE_AFTER_S = 15.0
"""After a member's last call, or wake, that it is woken for the group's other reason:
kube-scheduler mostly calls by itself."""
UPDATES_SOON = 3
"""Wakes for the other reason at that interval; each further one comes after twice the time."""
MOST_UPDATE_DOUBLINGS = 4
"""Up to 16 x `UPDATE_AFTER_S`, four minutes: for pods that kube-scheduler never tries."""
MOST_DOUBLINGS = 6
"""Up to 64 x `ASK_AFTER_S`, kube-scheduler's own five minutes: for pods that it never tries."""


def wake_claimed(group: Group, now_s: float) -> list[Member]:
    """The members with a claim for which filter was not called since."""
    woken: list[Member] = []
    for member in group.members.values():
        if member.plan is None or member.filtered_s is not None:
            continue
        if member.woken_s is None or member.woken_s + WAKE_AGAIN_S <= now_s:
            member.woken_s = now_s
            woken.append(member)
    return woken


def ask_for(group: Group, now_s: float) -> list[Member]:
    """The members of a complete group for which filter was never called, at growing intervals."""
    woken: list[Member] = []
    for member in group.members.values():
        if member.offer is not None or member.plan is not None:
            continue
        if _asked_at_s(member) <= now_s:
            member.woken_s, member.n_asked = now_s, member.n_asked + 1
            woken.append(member)
    return woken


def wake_outdated(group: Group, now_s: float) -> list[Member]:
    """The members without a claim that were answered that others are missing, and none is."""
    woken: list[Member] = []
    for member in group.members.values():
        if _updated_at_s(group, member) <= now_s:
            member.woken_s, member.n_updates = now_s, member.n_updates + 1
            woken.append(member)
    return woken


def note_untried(group: Group, now_s: float) -> None:
    """Say why a complete group is not planned: kube-scheduler has no node for some members.

    On a full cluster its own count of GPUs leaves none, and filter is never called for them.
    """
    since_s = group.complete_s
    if since_s is None or group.refusal is not Reason.GROUP_WAITING:
        return
    n_untried = sum(one.offer is None for one in group.counted)
    if n_untried and since_s + ASK_AFTER_S <= now_s:
        detail = f"kube-scheduler offers no node for {n_untried} of {len(group.counted)} members"
        group.refuse(Reason.GROUP_NO_ROOM, detail)


def next_wake_s(group: Group, *, is_complete: bool) -> float:
    """When a member is to be woken next, if nothing happens before; infinite for never."""
    next_s = math.inf
    for member in group.members.values():
        if member.plan is not None:
            if member.filtered_s is None:
                woken_s = -math.inf if member.woken_s is None else member.woken_s
                next_s = min(next_s, woken_s + WAKE_AGAIN_S)
        elif member.offer is None and is_complete:
            next_s = min(next_s, _asked_at_s(member))
        else:
            next_s = min(next_s, _updated_at_s(group, member))
    return next_s


def _updated_at_s(group: Group, member: Member) -> float:
    is_answered = member.plan is None and member.offer is not None
    is_outdated = member.answered is Reason.GROUP_WAITING and group.refusal in NO_PLACE
    if not (is_answered and is_outdated):
        return math.inf
    times_s = (one for one in (member.filtered_s, member.woken_s) if one is not None)
    doublings = min(max(member.n_updates + 1 - UPDATES_SOON, 0), MOST_UPDATE_DOUBLINGS)
    return max(times_s, default=-math.inf) + UPDATE_AFTER_S * float(2**doublings)


def _asked_at_s(member: Member) -> float:
    if member.is_overdue and not member.n_asked:
        return -math.inf
    since_s = member.since_s if member.woken_s is None else member.woken_s
    doublings = min(member.n_asked, MOST_DOUBLINGS)
    return since_s + ASK_AFTER_S * float(2**doublings)
