"""Which nodes are kept for groups that have waited long.

What it answers: for groups that wait, and the nodes that are kept by now, the nodes that each of
the oldest groups keeps for itself. It never places a group, and has no clock: how long a group has
waited is an argument.

Why. A group starts when all its members fit at once; pods that need less start in between and take
what was becoming free, so that under load large groups wait without end. A kept node takes no pod
of others; the group itself may start anywhere.

Method. Groups that have waited for the patience or longer keep nodes of one domain each, oldest
first, at most `most_kept` groups at a time. They keep `ROOM` times the nodes that hold the group
once they are empty: it starts when the first of these are free, and need not wait for the pod that
runs longest on exactly its own. So of the domains of the nearest level that hold as much, or else
of those that hold the group at all, without the nodes kept by others, it is the one where most
members fit now; inside it the nodes that take most members now. Nodes are kept until the group
starts or no longer waits, and are not chosen again in between: a keeper that moved would wait for
other pods each time. O(levels x nodes log nodes) for each new keeper.

`ROOM` and `MOST_KEPT` are by simulation (`benchmarks/groups`, 10 seeds, members of 8 and of 4
GPUs): with once the nodes and four groups at a time groups wait 85 and 69 h at the 95th
percentile, with these 69 and 62 h, and single pods 69 and 26 h, with these 72 and 26 h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topology.groups.choice_outcome import MemberShape
    from topology.groups.domain_tree import Domain, DomainTree

__all__ = ["MOST_KEPT", "WaitingGroup", "keep_nodes"]

MOST_KEPT = 3
"""Groups that keep nodes at a time: each keeps GPUs idle, and so delays everything else."""
ROOM = 2
"""How many times its members the nodes of a group hold when empty, where a domain is so large."""


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
    names = {group.name for group in waiting}
    after = {name: nodes for name, nodes in kept.items() if name in names}
    for group in waiting:
        if len(after) >= most_kept:
            break
        if group.waited_s < patience_s or group.name in after:
            continue
        taken = frozenset(node for nodes in after.values() for node in nodes)
        if nodes := _nodes_for(tree, group, taken):
            after[group.name] = nodes
    return after


def _nodes_for(tree: DomainTree, group: WaitingGroup, taken: frozenset[str]) -> frozenset[str]:
    """The nodes that a group begins to keep; none where no domain holds it."""
    index = tree.level_index(group.within)
    if index is None or group.shape.fits_when_empty is None:
        return frozenset()
    is_free = np.array([name not in taken for name in tree.node_names])
    now = np.where(is_free, np.asarray(group.shape.fits, dtype=np.int64), 0)
    empty = np.where(is_free, np.asarray(group.shape.fits_when_empty, dtype=np.int64), 0)
    n_members = group.shape.n_members
    for n_least in (ROOM * n_members, n_members):
        for level in tree.levels[: index + 1]:
            domains = (tree.domains[d] for d in level.domains)
            large = [one for one in domains if empty[one.first : one.end].sum() >= n_least]
            if large:
                kept = (_freest(one, now, empty, ROOM * n_members) for one in large)
                best = max(kept, key=lambda nodes: int(now[nodes].sum()))
                return frozenset(tree.node_names[i] for i in best)
    return frozenset()


def _freest(
    domain: Domain, now: NDArray[np.int64], empty: NDArray[np.int64], n_members: int
) -> list[int]:
    """The nodes of a domain with most room now, as few as hold the members once empty, or all."""
    positions = np.arange(domain.first, domain.end)
    positions = positions[empty[positions] > 0]
    order = positions[np.lexsort((positions, -empty[positions], -now[positions]))]
    n_nodes = int(np.searchsorted(empty[order].cumsum(), n_members)) + 1
    return [int(i) for i in order[:n_nodes]]
