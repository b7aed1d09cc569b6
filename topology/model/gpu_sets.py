"""Sets of a node's GPUs as bit masks: bit i is GPU i.

What it answers: the members of a mask, the mask of some GPUs, the parts that a graph connects. It
tables nothing (`topology.value.masks`) and knows no bandwidth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

__all__ = ["MAX_TABLE_GPUS", "alike_masks", "gpus_of", "islands_of", "mask_of", "masks_by"]

K = TypeVar("K", bound="Hashable")

MAX_TABLE_GPUS = 16
"""Most GPUs for which every subset is tabled: 65,536 masks; one more GPU doubles time and space."""


def gpus_of(mask: int) -> tuple[int, ...]:
    """Members of a mask, ascending.

    >>> gpus_of(0b1001)
    (0, 3)
    """
    gpus: list[int] = []
    while mask:
        lowest = mask & -mask
        gpus.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(gpus)


def mask_of(gpus: Iterable[int]) -> int:
    """Mask of some GPU indices.

    >>> mask_of((0, 3))
    9
    """
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


def masks_by(keys: Iterable[K]) -> dict[K, int]:
    """Mask of the GPUs of each key, given every GPU's key in order.

    >>> masks_by(("a", "b", "a"))
    {'a': 5, 'b': 2}
    """
    masks: dict[K, int] = {}
    for gpu, key in enumerate(keys):
        masks[key] = masks.get(key, 0) | 1 << gpu
    return masks


def alike_masks(models: Iterable[str | None]) -> tuple[int, ...]:
    """Masks of the GPUs that may be of one model; None is unknown, and in each of them.

    >>> alike_masks(("A100", None, "L4"))
    (3, 6)
    """
    masks = masks_by(models)
    unknown = masks.pop(None, 0)
    return tuple(mask | unknown for mask in masks.values()) or (unknown,)


def islands_of(joined: Sequence[int], mask: int) -> list[int]:
    """The parts of a set that a graph connects inside it, as masks, lowest id first.

    `joined[i]` is the mask of i's neighbours.

    >>> islands_of([0b010, 0b001, 0b000], 0b111)
    [3, 4]
    """
    islands: list[int] = []
    while mask:
        island = frontier = mask & -mask
        while frontier:
            i = (frontier & -frontier).bit_length() - 1
            frontier &= frontier - 1
            reached = joined[i] & mask & ~island
            island |= reached
            frontier |= reached
        islands.append(island)
        mask &= ~island
    return islands
