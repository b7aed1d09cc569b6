"""The index of a cluster's nodes: what does not change while pods come and go.

It looks a node up by its name and holds each node's part of an answer, made once. Nodes are
numbered 0..n-1, their positions; what the verbs need of all the nodes of a request lies in arrays
by position, so that 5,000 nodes cost a few array operations and not 5,000 turns of a loop.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from extender.protocol import score_head

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "KeyLayout",
    "NodeIndex",
    "RequestedNodes",
    "highest_bits",
    "locate",
    "make_node_index",
    "sort_keys",
]

_KEY_BITS = 63
"""Bits of a sort key, without the sign: from the highest, a node's zone, its place, a hash, and its
position. Places and positions are numbers below that of the nodes; the hash has what is left."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeIndex:
    """All nodes of a cluster. Sequences are by position.

    `positions` by name; `names_json` are the names as JSON strings, `json_positions` is by the same
    without quotes, of names that need no escapes; `score_heads` are the nodes' parts of a
    prioritize answer, `sort_keys` int64[n] those of a draw (`extender.placement.candidates`).
    `n_zones` counts zones. `is_soft_tainted` bool[n]: which nodes carry a PreferNoSchedule taint;
    `has_soft_taints`: some do.
    """

    names: Sequence[str]
    positions: Mapping[str, int]
    names_json: Sequence[str]
    json_positions: Mapping[bytes, int]
    score_heads: Sequence[str]
    sort_keys: NDArray[np.int64]
    n_zones: int
    is_soft_tainted: NDArray[np.bool_]
    has_soft_taints: bool

    def locate(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Positions of nodes by name, -1 for those that are not here."""
        found = map(self.positions.get, names, repeat(-1))
        return np.fromiter(found, dtype=np.int64, count=len(names))

    def locate_json(self, texts: Sequence[bytes]) -> NDArray[np.int64] | None:
        """The same by the JSON of their names; None where one is not here, or written oddly."""
        found = map(self.json_positions.__getitem__, texts)
        try:
            return np.fromiter(found, dtype=np.int64, count=len(texts))
        except KeyError:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class RequestedNodes:
    """The requested nodes: `positions` int64 of those that are known, in order.

    `unknown` are the others: their places among all, ascending, and their names.
    """

    positions: NDArray[np.int64]
    unknown: Sequence[tuple[int, str]] = ()

    def __len__(self) -> int:
        return len(self.positions) + len(self.unknown)

    def names(self, node_index: NodeIndex) -> list[str]:
        """All names, in order; `node_index` is the one that they were looked up in."""
        positions: list[int] = self.positions.tolist()
        names = [node_index.names[i] for i in positions]
        for place, name in self.unknown:
            names.insert(place, name)
        return names


def locate(names: Sequence[str], node_index: NodeIndex) -> RequestedNodes:
    """Look up nodes by name."""
    positions = node_index.locate(names)
    unknown = [(place, names[place]) for place in (positions < 0).nonzero()[0].tolist()]
    return RequestedNodes(positions[positions >= 0], unknown)


def make_node_index(
    names: Sequence[str], zones: Sequence[str], *, soft_tainted: Collection[str] = ()
) -> NodeIndex:
    """Make the index of nodes with different names and a zone each.

    `soft_tainted` are the names of those with a PreferNoSchedule taint.
    """
    numbers = {zone: i for i, zone in enumerate(sorted(set(zones)))}
    names_json = tuple(json.dumps(name) for name in names)
    plain = (
        (position, name)
        for position, (name, text) in enumerate(zip(names, names_json, strict=True))
        if text == f'"{name}"'
    )
    return NodeIndex(
        names=tuple(names),
        positions={name: position for position, name in enumerate(names)},
        names_json=names_json,
        json_positions={name.encode(): position for position, name in plain},
        score_heads=tuple(score_head(name) for name in names),
        sort_keys=sort_keys([numbers[zone] for zone in zones], [_hash(name) for name in names]),
        n_zones=len(numbers),
        is_soft_tainted=np.array([name in soft_tainted for name in names], dtype=np.bool_),
        has_soft_taints=bool(soft_tainted),
    )


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())


def sort_keys(zones: Sequence[int], hashes: Sequence[int]) -> NDArray[np.int64]:
    """Sort keys int64[n] of the nodes, with all in the first place and before any pod.

    `zones` are numbers from 0, `hashes` of 64 bits.
    """
    layout = KeyLayout.of(len(zones), 1 + max(zones, default=0))
    keys = [
        zone << layout.zone_at | highest_bits(one, layout.n_hash_bits) << layout.hash_at | position
        for position, (zone, one) in enumerate(zip(zones, hashes, strict=True))
    ]
    return np.array(keys, dtype=np.int64)


class KeyLayout(NamedTuple):
    """At which bit each part of a sort key starts; the position starts at 0."""

    zone_at: int
    place_at: int
    hash_at: int

    @property
    def n_hash_bits(self) -> int:
        """Bits left for the hash."""
        return self.place_at - self.hash_at

    @staticmethod
    def of(n_nodes: int, n_zones: int) -> KeyLayout:
        """The layout for so many nodes and zones."""
        n_bits = n_nodes.bit_length()
        zone_at = _KEY_BITS - n_zones.bit_length()
        return KeyLayout(zone_at, zone_at - n_bits, n_bits)


def highest_bits(number: int, n_bits: int) -> int:
    """The highest bits of a number of 64."""
    return (number & (1 << 64) - 1) >> 64 - n_bits
