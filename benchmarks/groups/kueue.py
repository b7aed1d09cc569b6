"""Kueue's topology-aware scheduling, as a rival: its greedy BestFit, leaf preferred.

Re-implements for one pod set what `findTopologyAssignment` decides with the default profile and a
preferred level; no code is copied. It has no gang of its own to admit: a job is placed once all
its pods have room, as Kueue's quota reservation does. It knows no GPUs of a host.

Source: kubernetes-sigs/kueue, pkg/cache/scheduler/tas_flavor_snapshot.go at 00c45514.
- From the preferred level up, the first level of which one domain holds all pods; of these domains
  the one with the least room that is enough. At the top level without one: roomiest first.
- Then down, level by level to hosts: the children of all domains that were taken are ordered by
  room, descending, then by name; each is taken with all its room until one holds the rest, which
  is then the one with the least room that is enough. Pods of different parents are not kept apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.groups.hosts import Hosts, Shares

__all__ = ["Kueue"]


class Kueue:
    """Levels leaf, spine, core; hosts are the lowest level."""

    def place(self, hosts: Hosts, *, n_members: int, n_gpus: int) -> Shares | None:
        """Place all pods, single ones too."""
        room = hosts.free // n_gpus
        if int(room.sum()) < n_members:
            return None
        owners = (hosts.leaf, hosts.spine, hosts.core)
        fitting = (
            i for i, owner in enumerate(owners) if np.bincount(owner, room).max() >= n_members
        )
        at = next(fitting, len(owners) - 1)
        rooms = np.bincount(owners[at], room).astype(np.int64)
        taken = _minimum(rooms, np.arange(len(rooms)), n_members)
        parent = owners[at]
        for owner in (*owners[:at][::-1], np.arange(len(room))):
            inside = np.isin(parent, [domain for domain, _ in taken])
            children = np.unique(owner[inside])
            rooms = np.bincount(owner, room).astype(np.int64)
            taken = _minimum(rooms[children], children, n_members)
            parent = owner
        return sorted(taken)


def _minimum(
    rooms: NDArray[np.int64], names: NDArray[np.int64], n_members: int
) -> list[tuple[int, int]]:
    """Fewest domains by room, the last one the least roomy that holds the rest."""
    order = np.lexsort((names, -rooms))
    taken: list[tuple[int, int]] = []
    left = n_members
    while rooms[order[0]] < left:
        roomiest, order = order[0], order[1:]
        taken.append((int(names[roomiest]), int(rooms[roomiest])))
        left -= int(rooms[roomiest])
    enough = order[rooms[order] >= left]
    best = enough[np.argmin(rooms[enough])]
    return [*taken, (int(names[best]), left)]
