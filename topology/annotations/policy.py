"""What a pod's annotations request of its GPU set, as one checked value.

What it answers: which placement a pod wants, from its annotations alone; an unknown key or value is
a `PolicyError`. It never looks at a node. Keys and values: `topology.annotations.pod_keys`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topology.annotations.pod_keys import POD_KEYS, USER_KEYS, Affinity, PlacementPolicy
from topology.errors import PolicyError, nearest, quote
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_POLICY", "is_remainder_first", "parse_policy"]

DEFAULT_POLICY = PlacementPolicy()

_KNOWN_KEYS = frozenset((*USER_KEYS, *names.OWN_KEYS))
_SHORT_KEYS = tuple(key.removeprefix(names.PREFIX) for key in USER_KEYS)


def is_remainder_first(policy: PlacementPolicy, size: int) -> bool:
    """Whether what is left behind counts before the set's own value."""
    if size == 1 or policy.affinity is Affinity.NONE:
        return True
    return policy.affinity is Affinity.ANY and policy.min_bandwidth_gbytes_per_s is not None


def parse_policy(annotations: Mapping[str, str]) -> PlacementPolicy:
    """Read a pod's wishes from its annotations; keys of others are ignored.

    Raises `PolicyError` for a value outside its closed set, or for a key that starts with
    `coterie.gpu/` and is none of the user's keys nor of Coterie's own (a typing error).

    >>> parse_policy({"coterie.gpu/affinity": "nvlink"}).affinity
    <Affinity.NVLINK: 'nvlink'>
    >>> parse_policy({"coterie.gpu/affinity": "nvlnk"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    topology.errors.PolicyError: annotation coterie.gpu/affinity is 'nvlnk', expected one of: ...
    """
    own = sorted(key for key in annotations if key.startswith(names.PREFIX))
    if not own:
        return DEFAULT_POLICY
    for key in own:
        if key not in _KNOWN_KEYS:
            known = ", ".join(USER_KEYS)
            msg = f"annotation {quote(key)} is not a key of Coterie, expected one of: {known}"
            msg += nearest(key.removeprefix(names.PREFIX), _SHORT_KEYS)
            raise PolicyError(msg)
    # Any: the table pairs each field with the values of its type, and a test reads each of them.
    wishes: dict[str, Any] = {
        key.field: key.read(annotations[key.name])
        for key in POD_KEYS
        if key.field is not None and key.name in annotations
    }
    return PlacementPolicy(**wishes)
