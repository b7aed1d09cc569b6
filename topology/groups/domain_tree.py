"""The tree of network domains over the nodes of a cluster.

What it answers: which nodes are in which domain of which level, and what a figure of every node
sums up to in each domain. It never reads labels (`topology.groups.domain_labels` does), and chooses
nothing.

Method. A domain is its whole path, so equal names under different parents are different domains.
Nodes are put in the order of their paths from the top: the nodes of a domain are then neighbours,
and a domain is a range of positions. A node that lacks a level stands beside the domains of that
level, by itself: unknown is not near.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import ANY_DOMAIN
from topology.errors import InvalidRequest, quote
from topology.groups.domain_labels import DEFAULT_FAMILIES, level_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topology.groups.domain_labels import DomainPath, DomainStep, LevelFamily

__all__ = ["Domain", "DomainLevel", "DomainTree", "build_tree"]


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes at positions `first` to `end`, without `end`.

    `name`: the names of the domains around it and its own, the widest first, joined by `/`.
    `children`: the domains directly below, as indices into `DomainTree.domains`. `lone_nodes`:
    positions of nodes that are in none of them.
    """

    level: str
    name: str
    first: int
    end: int
    children: tuple[int, ...]
    lone_nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DomainLevel:
    """The domains of one level that nodes have, by position of their first node.

    `domains` are indices into `DomainTree.domains`; `first` and `end` their ranges; `positions`
    the nodes that know the level, and `owner` the place of each one's domain in `domains`.
    """

    name: str
    domains: tuple[int, ...]
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    positions: NDArray[np.int64]
    owner: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DomainTree:
    """Nodes in the order of the tree, and the levels that occur, nearest first.

    The last level is `any`: one domain with all nodes, the last of `domains`. `level_names` has
    every level that may be named, whether or not a node has it. `chains[d]` are the domains around
    domain d, itself first, one for each level; `owner` the nearest domain of each node; `ranges`
    the first positions of all domains, and their ends. `is_network`, bool: whether a domain is one
    of NVLink or of the fabric, and no zone.
    """

    node_names: tuple[str, ...]
    domains: tuple[Domain, ...]
    levels: tuple[DomainLevel, ...]
    level_names: tuple[str, ...]
    chains: NDArray[np.int64]
    owner: NDArray[np.int64]
    ranges: NDArray[np.int64]
    is_network: NDArray[np.bool_]

    def level_index(self, name: str) -> int | None:
        """Place of a level in `levels`, None where no node has it.

        Raises `InvalidRequest` for a name that is no level.
        """
        if name not in self.level_names:
            known = ", ".join(self.level_names)
            msg = f"level {quote(name)} of network domains is not known, expected one of: {known}"
            raise InvalidRequest(msg)
        found = (i for i, level in enumerate(self.levels) if level.name == name)
        return next(found, None)

    def sums(self, figures: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum a figure of every node over each domain, in the order of `domains`; O(nodes)."""
        total = np.zeros(len(figures) + 1, dtype=np.int64)
        figures.cumsum(out=total[1:])
        first, end = self.ranges
        sums: NDArray[np.int64] = total[end] - total[first]
        return sums


def build_tree(
    paths: Mapping[str, DomainPath], families: Sequence[LevelFamily] = DEFAULT_FAMILIES
) -> DomainTree:
    """Build the tree from each node's path; O(n log n) of nodes times levels.

    The same paths give the same tree, in whatever order they come. Raises `InvalidRequest` where
    a path has a level that `families` lack.
    """
    names = (*level_names(families), ANY_DOMAIN)
    ranks = {name: rank for rank, name in enumerate(names)}
    for node, path in paths.items():
        for step in path.steps:
            if step.level not in ranks:
                msg = f"node {node} has the level {quote(step.level)}, expected one of: {names}"
                raise InvalidRequest(msg)
    steps = {node: path.steps[::-1] for node, path in paths.items()}
    order = sorted(
        paths,
        key=lambda node: ([(-ranks[s.level], s.family, s.value) for s in steps[node]], node),
    )
    domains: list[Domain] = []
    _grow(domains, [steps[node] for node in order], depth=0, first=0, end=len(order))
    levels = _levels(domains, names)
    chains = _chains(domains, len(levels))
    owner = np.zeros(len(order), dtype=np.int64)
    for i, domain in enumerate(domains):
        owner[list(domain.lone_nodes)] = i
    ranges = np.array([[each.first for each in domains], [each.end for each in domains]])
    network = {one.level for each in families if each.is_network for one in each.levels}
    is_network = np.array([each.level in network for each in domains], dtype=np.bool_)
    return DomainTree(
        tuple(order), tuple(domains), levels, names, chains, owner, ranges, is_network
    )


def _chains(domains: list[Domain], n_levels: int) -> NDArray[np.int64]:
    """Each domain and those around it, nearest first; the last repeats."""
    parents = [len(domains) - 1] * len(domains)
    for i, domain in enumerate(domains):
        for child in domain.children:
            parents[child] = i
    chains = np.empty((len(domains), n_levels), dtype=np.int64)
    chains[:, 0] = np.arange(len(domains))
    above = np.array(parents)
    for column in range(1, n_levels):
        chains[:, column] = above[chains[:, column - 1]]
    return chains


def _grow(
    domains: list[Domain], paths: list[tuple[DomainStep, ...]], *, depth: int, first: int, end: int
) -> int:
    """Append the domain of a range and all below it, children first; returns its index."""
    children: list[int] = []
    lone_nodes: list[int] = []
    at = first
    while at < end:
        if len(paths[at]) == depth:
            lone_nodes.append(at)
            at += 1
            continue
        stop = at + 1
        while stop < end and len(paths[stop]) > depth and paths[stop][depth] == paths[at][depth]:
            stop += 1
        children.append(_grow(domains, paths, depth=depth + 1, first=at, end=stop))
        at = stop
    above = paths[first][:depth] if depth else ()
    level = above[-1].level if above else ANY_DOMAIN
    name = "/".join(step.value for step in above) or "the cluster"
    domains.append(Domain(level, name, first, end, tuple(children), tuple(lone_nodes)))
    return len(domains) - 1


def _levels(domains: list[Domain], names: Sequence[str]) -> tuple[DomainLevel, ...]:
    levels: list[DomainLevel] = []
    for name in names:
        own = [(each.first, i) for i, each in enumerate(domains) if each.level == name]
        if not own:
            continue
        indices = tuple(i for _, i in sorted(own))
        first = np.array([domains[i].first for i in indices], dtype=np.int64)
        end = np.array([domains[i].end for i in indices], dtype=np.int64)
        sizes = end - first
        owner = np.repeat(np.arange(len(indices)), sizes)
        positions = np.concatenate([np.arange(domains[i].first, domains[i].end) for i in indices])
        levels.append(DomainLevel(name, indices, first, end, positions, owner))
    return tuple(levels)
