"""How many members each node of one domain gets, where all members are alike.

What it answers: for nodes with room and a number of members, the shares with the greatest least
share, on the fewest nodes. It knows neither levels nor names.

Method. The least share decides what a group's collectives reach (`topology.groups` opens with the
model). Let S(m) be the room of the nodes with room for m members or more. The fewest nodes that
hold N members are the roomiest ones; call their number n. A least share m is possible exactly if
S(m) >= N and n m <= N: with fewer than n nodes the room is too small, and with n of them every node
can get m. So the greatest least share is min(max {m: S(m) >= N}, N // n), for every domain of a
level at once from a histogram of room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.groups.domain_tree import DomainLevel

__all__ = ["LevelRoom", "level_room", "share_evenly"]


@dataclass(frozen=True, slots=True, eq=False)
class LevelRoom:
    """For each domain of a level its room in members, and the greatest least share of N members.

    `least_share` is 0 where the room is less than N.
    """

    room: NDArray[np.int64]
    least_share: NDArray[np.int64]


def level_room(level: DomainLevel, fits: NDArray[np.int64], n_members: int) -> LevelRoom:
    """Room and least share of each domain; O(nodes + domains x most members that a node takes).

    `fits`: members that each node of the tree takes, at most `n_members` are counted on one.
    """
    capped = np.minimum(fits[level.positions], n_members)
    width = int(capped.max(initial=0)) + 1
    n_domains = len(level.domains)
    cells = np.bincount(level.owner * width + capped, minlength=n_domains * width)
    counts = cells.reshape(n_domains, width)
    at_least = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    room_at_least = (counts * np.arange(width))[:, ::-1].cumsum(axis=1)[:, ::-1]
    room = room_at_least[:, 0]
    # The greatest m with S(m) >= N, 0 where even all nodes are too few.
    highest = (room_at_least[:, 1:] >= n_members).sum(axis=1)
    rows = np.arange(n_domains)
    padded = np.zeros((n_domains, 2), dtype=np.int64)
    above = np.minimum(highest + 1, width)
    n_above = np.concatenate([at_least, padded], axis=1)[rows, above]
    room_above = np.concatenate([room_at_least, padded], axis=1)[rows, above]
    rest = n_members - room_above
    n_nodes = n_above - (-rest // np.maximum(highest, 1))
    least = np.where(highest > 0, np.minimum(highest, n_members // np.maximum(n_nodes, 1)), 0)
    return LevelRoom(room, least)


def share_evenly(
    positions: NDArray[np.int64],
    fits: NDArray[np.int64],
    costs: NDArray[np.float64],
    *,
    n_members: int,
    least_share: int,
) -> list[tuple[int, int]] | None:
    """Divide members over some of the nodes, none with fewer than `least_share` of them.

    On the fewest nodes that hold them; of runs of that many nodes, ordered by room, the one with
    the least room that is enough; of equal room those of least cost, then by position. Returns
    (position, members) by position, None where no such division exists. O(n log n).
    """
    able = positions[fits[positions] >= least_share]
    order = np.lexsort((able, costs[able], fits[able].clip(max=n_members)))
    able = able[order]
    room: NDArray[np.int64] = fits[able].clip(max=n_members)
    from_roomiest = room[::-1].cumsum()
    n_nodes = int(np.searchsorted(from_roomiest, n_members)) + 1
    if n_nodes > len(able) or n_nodes * least_share > n_members:
        return None
    total = np.concatenate([[0], room.cumsum()])
    first = int(np.argmax(total[n_nodes:] - total[:-n_nodes] >= n_members))
    # Of the nodes with as little room as the run's first one, those of least cost.
    lowest = room.item(first)
    begin = int(np.searchsorted(room, lowest))
    end = min(int(np.searchsorted(room, lowest, side="right")), first + n_nodes)
    chosen = (*range(begin, begin + end - first), *range(end, first + n_nodes))
    left = n_members - n_nodes * least_share
    shares: list[tuple[int, int]] = []
    for i in chosen:
        extra = min(int(room[i]) - least_share, left)
        left -= extra
        shares.append((int(able[i]), least_share + extra))
    return sorted(shares)
