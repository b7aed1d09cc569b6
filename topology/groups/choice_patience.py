"""Which nodes are kept for groups that have waited long.

What it answers: for groups that wait, and the nodes that are kept by now, the nodes that each of
the oldest groups keeps for itself. It never places a group, and has no clock: how long a group has
waited is an argument.

Why. A group starts when all its members fit at once; pods that need less start in between and take
what was becoming free, so that under load large groups wait without end. A kept node takes no pod
of others; the group itself may start anywhere.

Method. Groups that have waited for the patience or longer keep nodes of one domain each, oldest
first, at most `most_kept` groups at a time. They keep nodes that hold the group `ROOM` times once
they are empty: it starts when the first of these that hold it are free, and need not wait for the
pod that runs longest on exactly its own. Two domains come into question, that of the nearest level
that holds as much, and that of the nearest level that holds the group at all, without the nodes
kept by others; of those of one level it is the one where the group would wait least (`_wait`), in
each the nodes that take most members now. The one with the shorter wait is kept, the nearer of
equal ones. Nodes are kept until the group starts or no longer waits, and are not chosen again in
between: a keeper that moved would wait for other pods each time. Where a group finds none, the
others give up what it gets of those that they do not need: as few as hold them, those with most
room, they go on to keep. O(levels x nodes log nodes) for each new keeper.

`ROOM` and `MOST_KEPT` are by simulation (`benchmarks/groups`, members of 8 and of 4 GPUs): what was
tried stands in `docs/adr/0030-patience-reserves-nodes.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topology.groups.choice_outcome import MemberShape
    from topology.groups.domain_tree import DomainTree

__all__ = ["MOST_KEPT", "WaitingGroup", "keep_nodes"]

MOST_KEPT = 3
"""Groups that keep nodes at a time: each keeps GPUs idle, and so delays everything else."""
ROOM = 2
"""How many times its members the nodes of a group hold when empty, where a domain is so large."""
_EQUAL = 1e-9
"""Waits that differ by less are equal: sums of fractions are not exact."""


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """A group of like members that waits, how long, and the level that it requires."""

    name: str
    waited_s: float
    shape: MemberShape
    within: str


def keep_nodes(
    tree: DomainTree,
    waiting: Sequence[WaitingGroup],
    kept: Mapping[str, frozenset[str]],
    *,
    patience_s: float,
    most_kept: int = MOST_KEPT,
) -> dict[str, frozenset[str]]:
    """Return the nodes that each group keeps, by the group's name.

    `waiting` oldest first. `kept`: what the last call returned. A group whose shape has no
    `fits_when_empty` keeps nothing: it could wait for nodes that never hold it.
    """
    by_name = {group.name: group for group in waiting}
    after = {name: nodes for name, nodes in kept.items() if name in by_name}
    for group in waiting:
        if len(after) >= most_kept:
            break
        if group.waited_s < patience_s or group.name in after:
            continue
        nodes = _nodes_for(tree, group, after)
        if not nodes:
            once = {name: _once(tree, by_name[name], after[name]) for name in after}
            nodes = _nodes_for(tree, group, once)
            after = {name: has - nodes for name, has in after.items()}
        if nodes:
            after[group.name] = nodes
    return after


def _nodes_for(
    tree: DomainTree, group: WaitingGroup, kept: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """The nodes that a group begins to keep; none where no domain holds it."""
    index = tree.level_index(group.within)
    if index is None or group.shape.fits_when_empty is None:
        return frozenset()
    taken = {node for nodes in kept.values() for node in nodes}
    is_free = np.array([name not in taken for name in tree.node_names])
    now = np.where(is_free, np.asarray(group.shape.fits, dtype=np.int64), 0)
    empty = np.where(is_free, np.asarray(group.shape.fits_when_empty, dtype=np.int64), 0)
    n_members = group.shape.n_members
    best: list[int] = []
    least = math.inf
    for n_least in (n_members, ROOM * n_members):
        for level in tree.levels[: index + 1]:
            domains = (tree.domains[d] for d in level.domains)
            large = [one for one in domains if empty[one.first : one.end].sum() >= n_least]
            for one in large:
                nodes = _freest(np.arange(one.first, one.end), now, empty, ROOM * n_members)
                n_now = int(now[nodes].sum())
                wait = _wait(n_members - n_now, int(empty[nodes].sum()) - n_now)
                if wait < least - _EQUAL:
                    best, least = nodes, wait
            if large:
                break
    return frozenset(tree.node_names[i] for i in best)


def _wait(n_missing: int, n_busy: int) -> float:
    """The mean time until so many of the busy places are free, in mean times that a pod runs.

    Of places that each come free at a random time, exponential with the same mean: the expected
    value of an order statistic, 1/n + 1/(n-1) + .. with as many terms as places are missing.
    """
    return sum(1.0 / (n_busy - i) for i in range(n_missing))


def _once(tree: DomainTree, group: WaitingGroup, nodes: frozenset[str]) -> frozenset[str]:
    """Of the nodes that a group keeps as few as hold it, those with most room; or all of them."""
    shape = group.shape
    if shape.fits_when_empty is None:
        return nodes
    is_kept = np.array([name in nodes for name in tree.node_names])
    now, empty = (np.asarray(one, dtype=np.int64) for one in (shape.fits, shape.fits_when_empty))
    if empty[is_kept].sum() < shape.n_members:
        return nodes
    found = _freest(np.flatnonzero(is_kept), now, empty, shape.n_members)
    return frozenset(tree.node_names[i] for i in found)


def _freest(
    positions: NDArray[np.intp], now: NDArray[np.int64], empty: NDArray[np.int64], n_members: int
) -> list[int]:
    """Of these nodes those with most room now, as few as hold the members once empty, or all."""
    positions = positions[empty[positions] > 0]
    order = positions[np.lexsort((positions, -empty[positions], -now[positions]))]
    n_nodes = int(np.searchsorted(empty[order].cumsum(), n_members)) + 1
    return [int(i) for i in order[:n_nodes]]
