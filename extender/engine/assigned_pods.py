"""What an assigned pod shows of its group: that a member has a node, which, or that it is leaving.

By its plan, and where that names no group, by the keys from which one is inferred; without a plan
by what it requests, once it was read in full. It counts no member and keeps no pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.protocol import inferred_group
from topology.annotations import PlanGroup, decode_plan
from topology.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Collection

    from extender.groups import Groups
    from extender.protocol import PodRequest
    from kube.objects import PodFacts

__all__ = ["show_assigned", "show_by_count"]

_GROUP_IN_PLAN = '"group"'


def show_assigned(pod: PodFacts, groups: Groups, group_kinds: Collection[str]) -> None:
    """A watch shows a pod with a node."""
    if pod.deletion_grace_s is not None:
        # What is created now does not join those that are being deleted.
        groups.depart(pod.uid)
        groups.assigned.end(pod.uid)
    elif pod.plan is None or _GROUP_IN_PLAN not in pod.plan:
        groups.depart(pod.uid)
        _show_unplanned(pod, groups, group_kinds)
    else:
        _show_planned(pod, pod.plan, groups)


def show_by_count(request: PodRequest, node: str, groups: Groups) -> None:
    """A pod with a node and without a plan, read in full: one whose devices are only counted."""
    wish = request.group
    if wish is not None:
        group = PlanGroup(wish.name, rank=request.rank)
        groups.assigned.see_by_count(request.uid, request.namespace, group, node)


def _show_planned(pod: PodFacts, text: str, groups: Groups) -> None:
    try:
        plan = decode_plan(text)
    except CodecError:
        return
    if plan.group is not None:
        groups.assigned.see(pod.uid, pod.namespace, plan.group, plan.node)


def _show_unplanned(pod: PodFacts, groups: Groups, group_kinds: Collection[str]) -> None:
    """A member without GPUs counts in the size of a group that is inferred.

    So does one that was placed as a pod without a group.
    """
    marks = pod.group_marks
    wish = inferred_group(marks, marks, group_kinds) if marks else None
    if wish is not None and (wish.counts_all or pod.plan is not None):
        key = pod.namespace, wish.name
        groups.assigned.see_without_gpus(pod.uid, key, is_bound=True)
