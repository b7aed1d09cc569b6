"""The newest snapshots: one for each resource that a pod may request.

A node that serves several resources has a view for each. The *first* snapshot shows every node by
its first resource. For each resource that is a further one of some node there is another snapshot,
which shows that resource on these nodes and is the first one's otherwise; a pod that requests it is
decided from that. All share the node index and the generation. Where every node serves one
resource, there is the first snapshot alone, and this costs nothing.

It keeps what is published; `extender.state.cluster_state` decides what a view contains.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.snapshot import make_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state.node_record import NodeRecord

__all__ = ["ResourceSnapshots"]

_FIRST = ""
"""Stands for the first snapshot where a resource is expected; no resource has this name."""


class ResourceSnapshots:
    """The snapshots of one cluster, by resource."""

    def __init__(self) -> None:
        self._first = make_snapshot(())
        self._further: dict[str, ClusterSnapshot] = {}

    @property
    def generation(self) -> int:
        """That of all snapshots."""
        return self._first.generation

    def of(self, resource: str, *, is_synced: bool, observed_at_s: float | None) -> ClusterSnapshot:
        """The snapshot for pods that request a resource; as fresh as said here."""
        snapshot = self._further.get(resource)
        is_first = snapshot is None
        if snapshot is None:
            snapshot = self._first
        if (snapshot.is_synced, snapshot.observed_at_s) != (is_synced, observed_at_s):
            snapshot = replace(snapshot, is_synced=is_synced, observed_at_s=observed_at_s)
            if is_first:
                self._first = snapshot
            else:
                self._further[resource] = snapshot
        return snapshot

    def by_resource(self) -> Mapping[str, ClusterSnapshot]:
        """All snapshots by resource, the first one under the empty name."""
        return {_FIRST: self._first, **self._further}

    def shown(self, node: str, resource: str) -> NodeView | None:
        """The node as it is shown to pods that request a resource; None where it is new."""
        snapshot = self._further.get(resource, self._first)
        position = snapshot.positions.get(node)
        return None if position is None else snapshot.views[position]

    def all_shown(self, node: NodeRecord) -> Sequence[NodeView]:
        """A node as it is shown for each of its resources."""
        shown = (self.shown(node.name, one.name) for one in node.resources)
        return [view for view in shown if view is not None]

    def changes(self, views: Mapping[str, Sequence[NodeView]]) -> Mapping[str, list[NodeView]]:
        """The views that differ from what is shown, for each snapshot that `publish` makes.

        `views` are all views of each node that is to be looked at; none of the nodes is new.
        """
        positions, shown = self._first.positions, self._first.views
        first = [
            of_node[0]
            for name, of_node in views.items()
            if not _is_same(of_node[0], shown[positions[name]])
        ]
        changes = {_FIRST: first}
        for resource in (*self._further, *_further_of(views.values())):
            shown = self._further.get(resource, self._first).views
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
                before = self._further.get(resource, self._first)
                self._further[resource] = before.with_views(changed, generation)
        self._first = self._first.with_views(changes[_FIRST], generation)

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
        self._first = make_snapshot(
            [of_node[0] for of_node in of_nodes],
            generation=generation,
            soft_tainted={name for name, node in nodes.items() if node.index_key[1]},
        )
        self._further = {
            resource: self._first.with_views(
                [view for of_node in of_nodes for view in of_node[1:] if _serves(view, resource)],
                generation,
            )
            for resource in _further_of(of_nodes)
        }


def _further_of(of_nodes: Iterable[Sequence[NodeView]]) -> dict[str, None]:
    """The resources that are not the first of some node."""
    several = (of_node for of_node in of_nodes if len(of_node) > 1)
    return {view.kind.resource: None for of_node in several for view in of_node[1:]}


def _view(of_node: Sequence[NodeView], resource: str) -> NodeView:
    """A node as pods that request a resource see it."""
    return next((view for view in of_node if _serves(view, resource)), of_node[0])


def _serves(view: NodeView, resource: str) -> bool:
    return view.kind.resource == resource


def _is_same(view: NodeView, old: NodeView) -> bool:
    """Whether nothing of a node changed but its zone or taint."""
    return view.state == old.state and view.ids == old.ids
