"""The group that a pod belongs to, as its annotations say it.

What it answers: name, size, domain and policy of `coterie.gpu/group` and the keys beside it, and
the same in a plan, by which a restarted extender knows where the members are. It knows no other
member and no node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from topology.annotations.pod_keys import (
    GROUP,
    GROUP_DOMAIN,
    GROUP_POLICY,
    GROUP_SIZE,
    POD_KEYS,
    Strength,
)
from topology.errors import PolicyError, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ANY_DOMAIN", "GroupWish", "PlanGroup", "parse_group"]

ANY_DOMAIN = "any"
_KEYS = {key.name: key for key in POD_KEYS}


@dataclass(frozen=True, slots=True)
class GroupWish:
    """A pod's group. `size` is None where members do not wait; `domain` is a level's name.

    `counts_all`: the size counts members without GPUs too, as another project's keys do.
    """

    name: str
    size: int | None = None
    domain: str = ANY_DOMAIN
    strength: Strength = Strength.PREFERRED
    counts_all: bool = False


@dataclass(frozen=True, slots=True)
class PlanGroup:
    """The group in a plan. `domain` are the names of the domain's path, the widest first."""

    name: str
    domain: tuple[str, ...] = ()
    rank: int | None = None


def parse_group(annotations: Mapping[str, str]) -> GroupWish | None:
    """Read a pod's group; None where it has none.

    Raises `PolicyError` for a value that is none of the key's, and for the other keys without
    `coterie.gpu/group`.

    >>> parse_group({"coterie.gpu/group": "train", "coterie.gpu/group-size": "4"}).size
    4
    """
    name = annotations.get(GROUP)
    others = [one.name for one in POD_KEYS if one.needs == GROUP and one.name in annotations]
    if name is None:
        if others:
            msg = f"annotation {others[0]} is {quote(annotations[others[0]])}, expected {GROUP} too"
            raise PolicyError(msg)
        return None
    _KEYS[GROUP].read(name)
    values = {key: _KEYS[key].read(annotations[key]) for key in others}
    return GroupWish(
        name,
        cast("int | None", values.get(GROUP_SIZE)),
        cast("str", values.get(GROUP_DOMAIN, ANY_DOMAIN)),
        cast("Strength", values.get(GROUP_POLICY, Strength.PREFERRED)),
    )
