"""The newest snapshots: one for each resource that a pod may request.

A node that serves several resources has a view for each. The *first* snapshot shows every node by
its first resource. For each resource that is a further one of some node there is another snapshot,
which shows that resource on these nodes and is the first one's otherwise; a pod that requests it is
decided from that. All share the node index and the generation. Where every node serves one
resource, there is the first snapshot alone, and this costs nothing.

It keeps what is published. `NodeViews` makes what is shown of a node: its account as a view, and
what a nominated pod would choose there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.placement import Refusal, plan_bind
from extender.snapshot import make_snapshot, make_view, with_masks
from extender.state.node_labels import PRODUCT
from extender.state.node_record import BY_COUNT, mask_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state.accounting import Account
    from extender.state.machine_types import NodeClasses
    from extender.state.node_record import NodeRecord, NodeResource

__all__ = ["NodeViews", "ResourceSnapshots"]

_FIRST = ""
"""Stands for the first snapshot where a resource is expected; no resource has this name."""


@dataclass(frozen=True, slots=True)
class NodeViews:
    """Makes views of nodes; `old` is what was shown of a node before, None where it is new."""

    classes: NodeClasses
    rater: Rater

    def view(
        self, node: NodeRecord, served: NodeResource, account: Account, old: NodeView | None
    ) -> NodeView:
        """One resource of a node; the same object where nothing differs."""
        label, machine, ids = served.label, served.machine, served.ids
        if account.devices_unknown and machine is not None:
            label, machine = BY_COUNT, None
        product = node.labels.values.get(PRODUCT, "")
        node_class = self.classes.node_class(
            label, served.name, machine, node.manager, served.worth, product, served.n_devices
        )
        free, reserved = account.free, account.claimed
        if (
            old is not None
            and old.node_class is node_class
            and old.ids == ids
            and old.zone == node.zone
        ):
            return with_masks(old, free=free, reserved=reserved)
        return make_view(
            node.name, zone=node.zone, node_class=node_class, ids=ids, free=free, reserved=reserved
        )

    def choose(
        self,
        node: NodeRecord,
        served: NodeResource,
        old: NodeView | None,
        account: Account,
        request: PodRequest,
    ) -> int:
        """The set that a nominated pod would get now, as a mask; 0 for none."""
        view = self.view(node, served, account, old)
        plan = plan_bind(request, view, rater=self.rater, generation=0)
        return 0 if isinstance(plan, Refusal) else mask_of(plan.ids, served.positions)


class ResourceSnapshots:
    """The snapshots of one cluster: `first`, and the `further` ones by resource."""

    def __init__(self) -> None:
        self.first = replace(make_snapshot(()), is_synced=False)
        self.further: dict[str, ClusterSnapshot] = {}

    def set_freshness(self, *, is_synced: bool, observed_at_s: float | None) -> None:
        """Whether all collections are complete, and up to when."""

        def refreshed(one: ClusterSnapshot) -> ClusterSnapshot:
            return replace(one, is_synced=is_synced, observed_at_s=observed_at_s)

        if (self.first.is_synced, self.first.observed_at_s) != (is_synced, observed_at_s):
            self.first = refreshed(self.first)
            self.further = {name: refreshed(one) for name, one in self.further.items()}

    def by_resource(self) -> Mapping[str, ClusterSnapshot]:
        """All snapshots by resource, the first one under the empty name."""
        return {_FIRST: self.first, **self.further}

    def shown(self, node: str, resource: str) -> NodeView | None:
        """The node as it is shown to pods that request a resource; None where it is new."""
        snapshot = self.further.get(resource, self.first)
        position = snapshot.node_index.positions.get(node)
        return None if position is None else snapshot.views[position]

    def all_shown(self, node: NodeRecord) -> Sequence[NodeView]:
        """A node as it is shown for each of its resources."""
        shown = (self.shown(node.name, one.name) for one in node.resources)
        return [view for view in shown if view is not None]

    def changes(self, views: Mapping[str, Sequence[NodeView]]) -> Mapping[str, list[NodeView]]:
        """The views that differ from what is shown, for each snapshot that `publish` makes.

        `views` are all views of each node that is to be looked at; none of the nodes is new.
        """
        positions, shown = self.first.node_index.positions, self.first.views
        first = [
            of_node[0]
            for name, of_node in views.items()
            if not _is_same(of_node[0], shown[positions[name]])
        ]
        changes = {_FIRST: first}
        for resource in (*self.further, *_further_of(views.values())):
            shown = self.further.get(resource, self.first).views
            changes[resource] = [
                view
                for name, of_node in views.items()
                if not _is_same(view := _view(of_node, resource), shown[positions[name]])
            ]
        return changes

    def publish(self, changes: Mapping[str, Sequence[NodeView]], generation: int) -> None:
        """Show what changed; all other nodes are as before."""
        # A snapshot that is new is made from the first one as `changes` compared it.
        for resource, changed in changes.items():
            if resource != _FIRST:
                before = self.further.get(resource, self.first)
                self.further[resource] = before.with_views(changed, generation)
        self.first = self.first.with_views(changes[_FIRST], generation)

    def rebuild(
        self,
        nodes: Mapping[str, NodeRecord],
        views: Mapping[str, Sequence[NodeView]],
        generation: int,
    ) -> None:
        """Show these nodes and no others, those in `views` as they are now."""
        of_nodes = [
            views[name] if name in views else self.all_shown(node) for name, node in nodes.items()
        ]
        made = make_snapshot(
            [of_node[0] for of_node in of_nodes],
            generation=generation,
            soft_tainted={name for name, node in nodes.items() if node.index_key[1]},
        )
        before = self.first
        self.first = replace(made, is_synced=before.is_synced, observed_at_s=before.observed_at_s)
        self.further = {
            resource: self.first.with_views(
                [view for of_node in of_nodes for view in of_node[1:] if _serves(view, resource)],
                generation,
            )
            for resource in _further_of(of_nodes)
        }


def _further_of(of_nodes: Iterable[Sequence[NodeView]]) -> dict[str, None]:
    """The resources that are not the first of some node."""
    several = (of_node for of_node in of_nodes if len(of_node) > 1)
    return {view.node_class.resource: None for of_node in several for view in of_node[1:]}


def _view(of_node: Sequence[NodeView], resource: str) -> NodeView:
    """A node as pods that request a resource see it."""
    return next((view for view in of_node if _serves(view, resource)), of_node[0])


def _serves(view: NodeView, resource: str) -> bool:
    return view.node_class.resource == resource


def _is_same(view: NodeView, old: NodeView) -> bool:
    """Whether nothing of a node changed but its zone or taint."""
    return view.state == old.state and view.ids == old.ids
