"""What is chosen from, and how a choice of nodes for a group ends.

What it answers: what `topology.groups.choice` takes and returns. It decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from topology.annotations import ANY_DOMAIN
from topology.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "NODE_LEVEL",
    "Assigned",
    "Counts",
    "GroupDemand",
    "MemberShape",
    "NoRoom",
    "NoRoomReason",
    "NodeShare",
    "rank_nodes",
]

Counts: TypeAlias = "Sequence[int] | NDArray[np.int64]"
"""One count of each node, in the order of `DomainTree.node_names`."""

NODE_LEVEL = "node"
"""The level of an assignment to one node, which is nearer than every domain."""


@dataclass(frozen=True, slots=True)
class MemberShape:
    """Members that are alike: how many, of how many GPUs each, and where they fit.

    `fits[i]`: how many of them alone the i-th node of the tree takes now; `fits_when_empty` the
    same with every GPU free, None where that is not known.
    """

    n_members: int
    n_gpus: int
    fits: Counts
    fits_when_empty: Counts | None = None


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """What a group requests. Figures of nodes are in the order of `DomainTree.node_names`.

    `free_gpus`: free GPUs of each node, needed where shapes differ, and `gpus` all GPUs, for what
    would fit when empty. `costs`: what the rest of a node loses if it is taken, any unit, none is
    none. `within`: the level of which one domain must hold the group (`group-policy: required`).
    """

    shapes: tuple[MemberShape, ...]
    free_gpus: Counts | None = None
    gpus: Counts | None = None
    costs: Sequence[float] | NDArray[np.float64] | None = None
    within: str = ANY_DOMAIN

    def __post_init__(self) -> None:
        if not self.shapes or any(shape.n_members < 1 for shape in self.shapes):
            counts = [shape.n_members for shape in self.shapes]
            msg = f"members of the group's shapes are {counts}, expected 1 or more of each"
            raise InvalidRequest(msg)
        if len(self.shapes) > 1 and self.free_gpus is None:
            msg = f"the group has {len(self.shapes)} shapes of members, expected free_gpus of nodes"
            raise InvalidRequest(msg)

    @property
    def n_members(self) -> int:
        """Members of all shapes."""
        return sum(shape.n_members for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class NodeShare:
    """How many members of each shape one node gets, in the order of the demand's shapes."""

    node_name: str
    counts: tuple[int, ...]

    @property
    def n_members(self) -> int:
        """Members of all shapes."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The nodes of a group, in the order of ranks.

    `level`: the level of the domain that holds all, `NODE_LEVEL` for one node, `any` for none;
    `domain`: its name, or the node's. Shares follow the tree: those of one leaf are neighbours, and
    so are the leaves of one spine.
    """

    level: str
    domain: str
    shares: tuple[NodeShare, ...]


class NoRoomReason(Enum):
    """Why no domain holds a group; constant sentences."""

    NEVER = "never: no domain of this cluster holds the group"
    NOT_NOW = "no domain has room for all members"
    UNKNOWN = "never: no node has a label of the required level"


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Why a group has no nodes, with the domain of the level that holds most of it.

    Where the reason is `NEVER`, `n_room` counts members that fit when everything is free.
    """

    reason: NoRoomReason
    level: str
    domain: str
    n_room: int
    n_members: int

    @property
    def detail(self) -> str:
        """The counts as a sentence, for Events and explanations."""
        if self.reason is NoRoomReason.UNKNOWN:
            return f"no node has a label of the level {self.level}"
        members = f"room for {self.n_room} of {self.n_members} members"
        if self.level == ANY_DOMAIN:
            has = f"the cluster has {members}"
        elif self.reason is NoRoomReason.NEVER:
            has = f"the largest {self.level} ({self.domain}) has {members}"
        else:
            has = f"the freest {self.level} ({self.domain}) has {members}"
        return f"never: {has} when empty" if self.reason is NoRoomReason.NEVER else has


def rank_nodes(assigned: Assigned, shapes_of_ranks: Sequence[int]) -> tuple[str, ...]:
    """Return the node of each rank, given the place of each rank's shape in the demand.

    Ranks of one shape fill the nodes in the order of the shares. Raises `InvalidRequest` where the
    ranks are not the members that were assigned.

    >>> shares = (NodeShare("a", (2,)), NodeShare("b", (1,)))
    >>> rank_nodes(Assigned("leaf", "S1", shares), [0, 0, 0])
    ('a', 'a', 'b')
    """
    n_shapes = len(assigned.shares[0].counts)
    queues = [
        [share.node_name for share in assigned.shares for _ in range(share.counts[shape])]
        for shape in range(n_shapes)
    ]
    wanted = [sum(1 for shape in shapes_of_ranks if shape == i) for i in range(n_shapes)]
    if wanted != [len(queue) for queue in queues]:
        msg = f"ranks of the shapes are {wanted}, expected {[len(queue) for queue in queues]}"
        raise InvalidRequest(msg)
    nodes = [iter(queue) for queue in queues]
    return tuple(next(nodes[shape]) for shape in shapes_of_ranks)
