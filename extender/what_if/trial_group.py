"""Plans the members of a group together on nodes that are tried out, as filter does.

The planner is the one that places real groups (`extender.groups.planning`): all members get nodes
at once or none does, and members beyond the group's size may be left out. It takes no device;
`Trial` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.groups import falls_short, predict
from extender.groups.planning import JointPlan, JointPlanner, Near
from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extender.groups import OfferedNodes
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot
    from extender.state import NodeDomains
    from extender.what_if.asked import TrialPod
    from topology.annotations import Plan
    from topology.groups import GroupValue

__all__ = ["GroupPlace", "TrialCluster", "TrialGroup", "gather_groups", "plan_group", "unready"]


@dataclass(frozen=True, slots=True)
class TrialGroup:
    """The members of a group to place, by rank, and the plans of those that run already.

    A group without a size is none: its members are placed as single pods are.
    """

    name: str
    pods: tuple[TrialPod, ...]
    bound: tuple[Plan, ...] = ()

    @property
    def requests(self) -> tuple[PodRequest, ...]:
        """What the members request."""
        return tuple(one.request for one in self.pods if one.request is not None)

    @property
    def size(self) -> int:
        """How many members there must be at least."""
        wishes = (one.group for one in self.requests)
        return max(wish.size or 0 for wish in wishes if wish is not None)


@dataclass(frozen=True, slots=True, eq=False)
class TrialCluster:
    """The nodes that are tried out, as a plan reads them; they are what all members may have."""

    snapshot: ClusterSnapshot
    domains: NodeDomains

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:  # noqa: ARG002 - made for it
        """The nodes as the members may use them."""
        return self.snapshot


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where members go: a plan for each of the first ones, as many as are needed or none.

    `value` is that of the whole group, None where it is unknown; `reason` says why those without a
    plan have none, and is None where all have one.
    """

    plans: tuple[tuple[PodRequest, Plan], ...] = ()
    level: str = ""
    domain: str = ""
    value: GroupValue | None = None
    reason: Reason | None = None
    detail: str = ""


def gather_groups(pods: Sequence[TrialPod]) -> list[TrialPod | TrialGroup]:
    """The pods in their order; the members of a group, by rank, at the place of the first given."""
    members: dict[str, list[TrialPod]] = {}
    units: dict[str, TrialPod | str] = {}
    for i, pod in enumerate(pods):
        request = pod.request
        wish = None if request is None else request.group
        if request is None or wish is None or wish.size is None:
            units[str(i)] = pod
            continue
        name = f"{request.namespace}/{wish.name}"
        members.setdefault(name, []).append(pod)
        units[name] = name
    return [
        TrialGroup(one, tuple(sorted(members[one], key=_rank))) if isinstance(one, str) else one
        for one in units.values()
    ]


def _rank(pod: TrialPod) -> tuple[bool, int]:
    """Members that say no rank come last, in the order given."""
    rank = None if pod.request is None else pod.request.rank
    return rank is None, rank or 0


def unready(group: TrialGroup) -> GroupPlace | None:
    """Why a group is not planned: members are missing, or differ; None where it is."""
    requests = group.requests
    if len({(one.group, one.resource) for one in requests}) > 1:
        return GroupPlace(reason=Reason.GROUP_DIFFERS)
    n_here = len(requests) + len(group.bound)
    if n_here < group.size:
        return GroupPlace(
            reason=Reason.GROUP_WAITING, detail=f"{n_here} of {group.size} members are here"
        )
    return None


def plan_group(
    group: TrialGroup, offers: Sequence[OfferedNodes], cluster: TrialCluster, rater: Rater
) -> GroupPlace:
    """Plan all members, else as many as are needed; `offers` are the nodes for each request."""
    members = list(zip(group.requests, offers, strict=True))
    near = Near([one.node for one in group.bound])
    planner = JointPlanner(cluster, rater)
    refused = GroupPlace(reason=Reason.GROUP_NO_ROOM)
    for n_members in dict.fromkeys((len(members), max(group.size - len(group.bound), 1))):
        found = planner.plan(members[:n_members], near)
        if not isinstance(found, JointPlan):
            refused = GroupPlace(reason=found.reason, detail=found.detail)
            continue
        plans = [*group.bound, *(plan for _, plan in found.placements)]
        value = predict(plans, cluster.snapshot.nodes, cluster.domains)
        too_slow = falls_short(value, (request for request, _ in found.placements))
        if too_slow:
            refused = GroupPlace(reason=Reason.GROUP_TOO_SLOW, detail=too_slow)
            continue
        is_all = n_members == len(members)
        return GroupPlace(
            found.placements,
            found.level,
            found.domain,
            value,
            None if is_all else refused.reason,
            "" if is_all else refused.detail,
        )
    return refused
