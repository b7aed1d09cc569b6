"""Where the nodes are in the network: their paths of domains, and the tree of all of them.

The tree is made when it is read after a change: groups need it, and where the network is known
single pods do. It is made ahead of them, between calls (`prepare`), since it takes longer than a
plan. It chooses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.groups import DEFAULT_FAMILIES, build_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.groups import DomainPath, DomainTree, LevelFamily

__all__ = ["NodeDomains", "domain_labels"]


def domain_labels(families: Sequence[LevelFamily]) -> tuple[str, ...]:
    """The labels by which nodes are placed in the tree."""
    return tuple(sorted({key for one in families for level in one.levels for key in level.keys}))


class NodeDomains:
    """The paths of the nodes of one cluster.

    `closed` are those that take no new pod. `has_network`: whether a node is in a domain of NVLink
    or of the fabric.
    """

    def __init__(self, families: Sequence[LevelFamily] = DEFAULT_FAMILIES) -> None:
        self._families = families
        self._network = frozenset(one.name for one in families if one.is_network)
        self._in_network: set[str] = set()
        self._paths: dict[str, DomainPath] = {}
        self._tree: DomainTree | None = None
        self.closed: frozenset[str] = frozenset()
        self.has_network = False

    def put(self, node: str, path: DomainPath, *, is_closed: bool = False) -> None:
        """A node is new, or may have other labels; a closed one takes no new pod."""
        if is_closed is not (node in self.closed):
            self.closed ^= {node}
        if self._paths.get(node) != path:
            self._paths[node] = path
            self._tree = None
            self._in_network.discard(node)
            if any(step.family in self._network for step in path.steps):
                self._in_network.add(node)
            self.has_network = bool(self._in_network)

    def lose(self, node: str) -> None:
        """A node is gone."""
        del self._paths[node]
        self._in_network.discard(node)
        self.has_network = bool(self._in_network)
        self.closed -= {node}
        self._tree = None

    @property
    def tree(self) -> DomainTree:
        """The tree over all nodes; made again after a change."""
        if self._tree is None:
            self._tree = build_tree(self._paths, self._families)
        return self._tree

    @property
    def is_prepared(self) -> bool:
        """Whether the tree is made."""
        return self._tree is not None

    def prepare(self) -> None:
        """Make the tree where it is not made; changes no answer."""
        _ = self.tree

    def path(self, node: str) -> DomainPath | None:
        """The path of a node; None where it is not known."""
        return self._paths.get(node)
