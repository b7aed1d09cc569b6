"""Which nodes are near the bound members of a group and have GPUs of their model.

And the group in the plan of one more member.

For groups without a size, whose members do not wait for each other, and for a member that is bound
without a claim. It chooses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from extender.groups.planning import (
    common_domain,
    excludes,
    have_models,
    held_models,
    inside_level,
    is_mixable,
    surroundings,
)
from topology.annotations import ANY_DOMAIN, PlanGroup, Strength

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from extender.groups.members.bound_members import BoundMembers
    from extender.groups.planning import JointPlanner
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot

__all__ = ["NearBound", "Nearby"]


@dataclass(frozen=True, slots=True, eq=False)
class Nearby:
    """Sets of nodes, bool[n] by position in a node index, the nearest first, each in the next one.

    `is_required`: the pod may have no node outside of the last one. `others` are nodes without GPUs
    of the bound members' model, which the pod does not get; None for none.
    """

    sets: tuple[NDArray[np.bool_], ...]
    is_required: bool
    others: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class NearBound:
    """Answers from the bound members and the domains of one cluster."""

    bound: BoundMembers
    planner: JointPlanner

    def nodes(
        self,
        request: PodRequest,
        snapshot: ClusterSnapshot,
        positions: NDArray[np.int64],
        siblings: Sequence[str] = (),
    ) -> Nearby:
        """The nodes near the bound members of a pod's group, and near the nodes of `siblings`.

        `positions` are those of the nodes that kube-scheduler names.
        """
        wish, tree = request.group, self.planner.cluster.domains.tree
        if wish is None:
            return Nearby((), is_required=False)
        bound = (*self._nodes(request, wish.name), *siblings)
        is_required = wish.strength is Strength.REQUIRED and wish.domain != ANY_DOMAIN
        inside = list(surroundings(tree, bound)) if bound else []
        if is_required:
            within = wish.domain if wish.domain in tree.level_names else None
            able = inside_level(tree, within, bound or tree.node_names)
            inside = [*(one & able for one in inside), able]
        node_index = snapshot.node_index
        order = self.planner.order(node_index)
        sets: list[NDArray[np.bool_]] = []
        for one in inside:
            if sets and one.sum() == sets[-1].sum():
                continue
            is_near = np.zeros(len(node_index.names), dtype=np.bool_)
            is_near[order] = one
            sets.append(is_near)
        others = self._others(request, snapshot, positions, bound)
        return Nearby(tuple(sets), is_required, others)

    def other_models(self, request: PodRequest, names: Iterable[str]) -> frozenset[str]:
        """Those of the nodes that kube-scheduler names whose GPUs are of another model."""
        if request.group is None:
            return frozenset()
        snapshot = self.planner.cluster.snapshot_for(request)
        known = [name for name in names if name in snapshot.positions]
        positions = np.array([snapshot.positions[name] for name in known], dtype=np.int64)
        bound = self._nodes(request, request.group.name)
        others = self._others(request, snapshot, positions, bound)
        if others is None:
            return frozenset()
        return frozenset(name for name in known if others[snapshot.positions[name]])

    def _others(
        self,
        request: PodRequest,
        snapshot: ClusterSnapshot,
        positions: NDArray[np.int64],
        nodes: Sequence[str],
    ) -> NDArray[np.bool_] | None:
        """The nodes without GPUs of a model that there are on some nodes, where that counts."""
        held = held_models(snapshot, nodes)
        if not held or is_mixable((request,)):
            return None
        have = have_models(snapshot, held)
        is_named = np.zeros(len(have), dtype=np.bool_)
        is_named[positions] = True
        if excludes(request, is_named, have, snapshot, self.planner.cluster.records):
            return None
        return ~have

    def plan_group(self, request: PodRequest, node: str) -> PlanGroup | None:
        """The group in the plan of a pod on a node; None for a pod without one.

        Its domain is the nearest one that holds the pod and the bound members.
        """
        if request.group is None:
            return None
        nodes = sorted({node, *self._nodes(request, request.group.name)})
        paths = (self.planner.cluster.domains.path(one) for one in nodes)
        domain = common_domain([path for path in paths if path is not None])
        return PlanGroup(request.group.name, domain, request.rank)

    def _nodes(self, request: PodRequest, name: str) -> tuple[str, ...]:
        return tuple(self.bound.nodes((request.namespace, name)))
