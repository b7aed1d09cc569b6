"""The domains around some nodes, from the nearest up: where those belong that join a group.

It answers with sets of nodes, in the order of a tree of domains. It knows no device and no pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topology.groups import DomainPath, DomainTree

__all__ = ["common_domain", "inside_level", "surroundings"]


def surroundings(tree: DomainTree, nodes: Sequence[str]) -> Iterator[NDArray[np.bool_]]:
    """Bool[n] by position in the tree: the nodes themselves, then all in the domains around them.

    Each set contains the one before it; the last has every node. None but that where no such node
    is in the tree. O(nodes of the tree x levels).
    """
    at = _positions(tree, nodes)
    n_nodes = len(tree.node_names)
    n_before = 0
    if at.size:
        inside = np.zeros(n_nodes, dtype=np.bool_)
        inside[at] = True
        yield inside
        n_before = len(np.unique(at))
        for domains in tree.chains[tree.owner[at]].T:
            inside = _inside(tree, domains)
            n_inside = int(inside.sum())
            if n_before < n_inside < n_nodes:
                yield inside
                n_before = n_inside
    if n_before < n_nodes:
        yield np.ones(n_nodes, dtype=np.bool_)


def inside_level(tree: DomainTree, level: str | None, nodes: Sequence[str]) -> NDArray[np.bool_]:
    """Bool[n] by position in the tree: the nodes in the same domains of a level as some nodes.

    None of them for None, which no level has for a name.
    """
    inside = np.zeros(len(tree.node_names), dtype=np.bool_)
    index = None if level is None else tree.level_index(level)
    if index is not None:
        known = tree.levels[index]
        owner = np.full(len(inside), -1, dtype=np.int64)
        owner[known.positions] = known.owner
        owners = np.unique(owner[_positions(tree, nodes)])
        inside = np.isin(owner, owners[owners >= 0])
    return inside


def common_domain(paths: Sequence[DomainPath]) -> tuple[str, ...]:
    """The nearest domain that all these paths share: its level, then its path from the top.

    Empty where they share none.
    """
    whole = [path.steps[::-1] for path in paths]
    n_shared = 0
    while (
        all(len(steps) > n_shared for steps in whole)
        and len({steps[: n_shared + 1] for steps in whole}) == 1
    ):
        n_shared += 1
    if not n_shared:
        return ()
    shared = whole[0][:n_shared]
    return shared[-1].level, *(step.value for step in shared)


def _positions(tree: DomainTree, nodes: Sequence[str]) -> NDArray[np.int64]:
    wanted = set(nodes)
    found = [i for i, name in enumerate(tree.node_names) if name in wanted] if wanted else []
    return np.array(found, dtype=np.int64)


def _inside(tree: DomainTree, domains: NDArray[np.int64]) -> NDArray[np.bool_]:
    inside = np.zeros(len(tree.node_names), dtype=np.bool_)
    found: list[int] = np.unique(domains).tolist()
    for i in found:
        domain = tree.domains[i]
        inside[domain.first : domain.end] = True
    return inside
