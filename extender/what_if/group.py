"""Plans the members of a group together on simulated nodes, as filter does.

The planner is the one that places real groups (`extender.groups.planning`): all members get nodes
at once or none does, and members beyond the group's size are placed after the others, near them.
It takes no device; `Simulation` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.groups import difference
from extender.groups.planning import JointPlan, Near, NoPlace, common_domain
from extender.protocol import Reason
from extender.snapshot import taking

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from extender.groups import OfferedNodes
    from extender.groups.planning import JointPlanner
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state import NodeDomains, NodeRecord
    from extender.what_if.request import RequestedPod
    from topology.annotations import Plan
    from topology.groups import GroupValue

__all__ = [
    "GroupPlace",
    "RequestedGroup",
    "SimulatedCluster",
    "gather_groups",
    "plan_group",
    "unready",
]


@dataclass(frozen=True, slots=True)
class RequestedGroup:
    """The members of a group to place, by rank, and those that run already.

    `bound` are the plans of these, `near` where they are and were; None where none has begun. A
    group without a size is none: its members are placed as single pods are.
    """

    name: str
    pods: tuple[RequestedPod, ...]
    near: Near | None = None
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

    @property
    def n_bound(self) -> int:
        """How many members run."""
        return 0 if self.near is None else len(self.near.nodes)

    @property
    def n_needed(self) -> int:
        """How many of the members must get nodes at once.

        No more than there are where some ran already, since the others may have ended, or where the
        size counts pods without GPUs, which those that are missing may be.
        """
        n_needed = self.size - self.n_bound
        has_all = self.near is not None or self.counts_all
        return max(min(n_needed, len(self.pods)) if has_all else n_needed, 1)

    @property
    def n_others(self) -> int:
        """How many of the size are neither here nor bound, where it counts pods without GPUs."""
        return max(self.size - self.n_bound - len(self.pods), 0) if self.counts_all else 0

    @property
    def counts_all(self) -> bool:
        """Whether the size counts members without GPUs, as keys of other projects do."""
        wishes = (one.group for one in self.requests)
        return any(wish is not None and wish.counts_all for wish in wishes)


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedCluster:
    """The simulated nodes, as a plan reads them; they are what all members may have."""

    snapshot: ClusterSnapshot
    domains: NodeDomains
    records: Mapping[str, NodeRecord]

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:  # noqa: ARG002 - made for it
        """The nodes as the members may use them."""
        return self.snapshot

    def without(self, plans: Sequence[Plan]) -> SimulatedCluster:
        """The nodes when the devices of these plans are taken."""
        views: dict[str, NodeView] = {}
        for plan in plans:
            view = views.get(plan.node, self.snapshot.nodes[plan.node])
            views[plan.node] = taking(view, view.mask_of(plan.ids))
        snapshot = self.snapshot.with_views(list(views.values()), self.snapshot.generation)
        return replace(self, snapshot=snapshot)


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where members go: a plan for each of the first ones, as many as are needed or none.

    `level` and `domain` are the nearest that hold all members with a node; empty, or the level any,
    where none is known to. `value` is that of the whole group, None where it is unknown; `reason`
    says why those without a plan have none, and is None where all have one.
    """

    plans: tuple[tuple[PodRequest, Plan], ...] = ()
    level: str = ""
    domain: str = ""
    value: GroupValue | None = None
    reason: Reason | None = None
    detail: str = ""


def gather_groups(pods: Sequence[RequestedPod]) -> list[RequestedPod | RequestedGroup]:
    """The pods in their order; the members of a group, by rank, at the place of the first given."""
    members: dict[str, list[RequestedPod]] = {}
    units: dict[str, RequestedPod | str] = {}
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
        RequestedGroup(one, tuple(sorted(members[one], key=_rank))) if isinstance(one, str) else one
        for one in units.values()
    ]


def _rank(pod: RequestedPod) -> tuple[bool, int]:
    """Members that say no rank come last, in the order given."""
    rank = None if pod.request is None else pod.request.rank
    return rank is None, rank or 0


def unready(group: RequestedGroup) -> GroupPlace | None:
    """Why a group is not planned: members are missing, or differ; None where it is."""
    requests = group.requests
    if len({(one.group, one.resource) for one in requests}) > 1:
        return GroupPlace(reason=Reason.GROUP_DIFFERS, detail=difference(requests))
    if len(requests) < group.n_needed:
        n_here = len(requests) + group.n_bound
        return GroupPlace(
            reason=Reason.GROUP_WAITING, detail=f"{n_here} of {group.size} members are here"
        )
    return None


def plan_group(
    group: RequestedGroup,
    offers: Sequence[OfferedNodes],
    cluster: SimulatedCluster,
    planner: JointPlanner,
) -> Generator[None, None, GroupPlace]:
    """Plan all members, or as many as must start at once, and then the others near them.

    `offers` are the nodes for each request; the planner is that of the cluster. Yields between
    plans.
    """
    members = list(zip(group.requests, offers, strict=True))
    near = Near() if group.near is None else group.near
    n_needed = group.n_needed
    place = GroupPlace()
    while rest := members[len(place.plans) :]:
        found: GroupPlace | None = None
        for n_members in dict.fromkeys((len(rest), n_needed)):
            beside = (*group.bound, *(plan for _, plan in place.plans))
            tried = _tried(place, planner.plan(rest[:n_members], near, beside))
            yield
            if tried.reason is None:
                found = tried
                break
            place = replace(place, reason=tried.reason, detail=tried.detail)
        if found is None:
            break
        new = [plan for _, plan in found.plans[len(place.plans) :]]
        near = replace(near, nodes=(*near.nodes, *(plan.node for plan in new)))
        planner.cluster = cluster = cluster.without(new)
        place, n_needed = found, 1
    n_beside = len(near.nodes) - len(place.plans)
    if not place.plans or (place.level and not n_beside):
        return place
    paths = (cluster.domains.path(node) for node in sorted({*near.nodes}))
    level, *domain = common_domain([path for path in paths if path is not None]) or ("",)
    return replace(place, level=level, domain="/".join(domain))


def _tried(place: GroupPlace, found: JointPlan | NoPlace) -> GroupPlace:
    """What is placed already, with a plan for others; or why it will not do."""
    if isinstance(found, NoPlace):
        return GroupPlace(reason=found.reason, detail=found.detail)
    first = not place.plans
    return GroupPlace(
        (*place.plans, *found.placements),
        found.level if first else "",
        found.domain if first else "",
        found.value,
    )
