"""Nodes for a group whose members are all alike.

What it answers: which nodes get how many members, or None. It knows neither sentences nor pods.

Method. One node that takes all is nearest. Else levels are tried from the nearest up, and the first
one of which a domain has the room is the group's. Of its domains are kept those that allow the
greatest least share (`topology.groups.choice_shares`, exact for all of them), ordered by

    fewest sub-domains, least room left over, least room in the domains around it, position

and tried in that order. Inside a domain the roomiest sub-domains are filled whole until the rest
fits into one, and of those that take the rest the least roomy one gets it, and so on down. Where
that would leave a node with less than the least share, the members are divided once more over the
same sub-domains together, then the next domain is tried, at most `MOST_TRIED`; then the members are
divided over all nodes of the first domain, which always succeeds.

Level, least share and the number of sub-domains by room are exact; sub-domains and nodes are greedy
where room differs. O(levels x (nodes + domains x most members that a node takes)) and, for the
domains tried, O(nodes log nodes).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from topology.groups.choice_shares import level_room, share_evenly
from topology.groups.free_capacity import order_by_free_capacity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.groups.domain_tree import Domain, DomainLevel, DomainTree

__all__ = ["MOST_TRIED", "Shares", "choose_alike"]

MOST_TRIED = 8
"""Domains that are tried before the members are divided over all nodes of the best one. On trees of
5,000 nodes the first one succeeded in every draw; the others are for unequal nodes."""

Shares = list[tuple[int, int]]
"""Pairs of a node's position and its members, by position."""


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """Figures of nodes for one least share: members that fit, and their sum before a position."""

    tree: DomainTree
    fits: NDArray[np.int64]
    costs: NDArray[np.float64]
    least_share: int
    able: NDArray[np.int64]
    before: NDArray[np.int64]

    def of(self, first: int, end: int) -> int:
        """Room of the nodes that can take the least share."""
        return int(self.before[end] - self.before[first])


def choose_alike(
    tree: DomainTree,
    fits: NDArray[np.int64],
    costs: NDArray[np.float64],
    *,
    n_members: int,
    n_levels: int,
) -> tuple[Domain | None, Shares] | None:
    """Choose within the first `n_levels` levels; the domain is None where one node takes all."""
    sums = tree.sums(fits)
    enough = np.flatnonzero(fits >= n_members)
    if enough.size:
        least = enough[fits[enough] == fits[enough].min()]
        free_capacity = order_by_free_capacity(tree, sums, tree.owner[least])
        order = np.lexsort((least, costs[least], *free_capacity))
        return None, [(int(least[order[0]]), n_members)]
    for level in tree.levels[:n_levels]:
        room = level_room(level, fits, n_members)
        greatest = int(room.least_share.max())
        if greatest:
            able = np.where(fits >= greatest, fits, 0)
            before = np.concatenate([[0], able.cumsum()])
            figures = _Room(tree, fits, costs, greatest, able, before)
            candidates = np.flatnonzero(room.least_share == greatest)
            ordered = _ordered(figures, level, candidates, sums, n_members)
            return _tried(figures, [tree.domains[i] for i in ordered], n_members)
    return None


def _ordered(
    figures: _Room,
    level: DomainLevel,
    candidates: NDArray[np.int64],
    sums: NDArray[np.int64],
    n_members: int,
) -> list[int]:
    """The domains to try, best first."""
    tree = figures.tree
    domains = np.array(level.domains)[candidates]
    counts = [_sub_domains(figures, tree.domains[i], n_members) for i in map(int, domains)]
    free_capacity = order_by_free_capacity(tree, sums, domains)
    order = np.lexsort((level.first[candidates], *free_capacity, np.array(counts)))
    return [int(domains[i]) for i in order[:MOST_TRIED]]


def _sub_domains(figures: _Room, domain: Domain, n_members: int) -> int:
    """The fewest sub-domains whose room is enough, 1 where there are none."""
    if not domain.children:
        return 1
    rooms = accumulate(room for room, _, _ in _parts(figures, domain))
    return 1 + sum(1 for room in rooms if room < n_members)


def _parts(figures: _Room, domain: Domain) -> list[tuple[int, int, Domain | None]]:
    """Sub-domains and lone nodes as (room, first position, sub-domain), roomiest first."""
    parts: list[tuple[int, int, Domain | None]] = []
    for child in domain.children:
        each = figures.tree.domains[child]
        parts.append((figures.of(each.first, each.end), each.first, each))
    parts += [(int(figures.able[i]), i, None) for i in domain.lone_nodes]
    return sorted((part for part in parts if part[0]), key=lambda part: (-part[0], part[1]))


def _tried(figures: _Room, domains: list[Domain], n_members: int) -> tuple[Domain, Shares]:
    for domain in domains:
        if shares := _gathered(figures, domain, n_members):
            return domain, shares
    first = domains[0]
    return first, _divided(figures, np.arange(first.first, first.end), n_members) or []


def _divided(figures: _Room, positions: NDArray[np.int64], n_members: int) -> Shares | None:
    return share_evenly(
        positions,
        figures.fits,
        figures.costs,
        n_members=n_members,
        least_share=figures.least_share,
    )


def _gathered(figures: _Room, domain: Domain, n_members: int) -> Shares | None:
    """Members on the fewest sub-domains; None where the least share cannot be kept so."""
    if not domain.children:
        return _divided(figures, np.arange(domain.first, domain.end), n_members)
    parts = _parts(figures, domain)
    rooms = [-room for room, _, _ in parts]
    shares: Shares = []
    left, n_whole = n_members, 0
    while (end := bisect_right(rooms, -left)) <= n_whole:
        shares += _whole(figures, parts[n_whole])
        left += rooms[n_whole]
        n_whole += 1
    # Of the equally roomy ones the first, and none that was taken already.
    last = max(n_whole, bisect_left(rooms, rooms[end - 1]))
    rest = _rest(figures, parts[last], left)
    if rest is not None:
        return sorted(shares + rest)
    used = [*parts[:n_whole], parts[last]]
    return _divided(figures, np.concatenate([_positions(part) for part in used]), n_members)


def _whole(figures: _Room, part: tuple[int, int, Domain | None]) -> Shares:
    return [(int(i), int(figures.able[i])) for i in _positions(part) if figures.able[i]]


def _rest(figures: _Room, part: tuple[int, int, Domain | None], left: int) -> Shares | None:
    _, first, domain = part
    if domain is not None:
        return _gathered(figures, domain, left)
    return [(first, left)] if left >= figures.least_share else None


def _positions(part: tuple[int, int, Domain | None]) -> NDArray[np.int64]:
    _, first, domain = part
    return np.arange(first, first + 1 if domain is None else domain.end)
