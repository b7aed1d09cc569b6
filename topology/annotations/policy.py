"""What a pod asks of its GPU set: the user's annotations as one checked value.

What it answers: which placement a pod wants, from its annotations alone. An unknown value is an
error that the user sees, never a silent default (`PolicyError` names key, value and what was
expected). It never looks at a node.

Meaning of the keys: docs/configuration.md, "Pod annotations".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from topology.errors import PolicyError, quote
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEFAULT_POLICY",
    "Affinity",
    "NicRule",
    "PlacementPolicy",
    "Prefer",
    "Strength",
    "is_remainder_first",
    "parse_policy",
]

_KNOWN_KEYS = frozenset(names.USER_KEYS) | {
    names.TOPOLOGY,
    names.DEVICES,
    names.PLAN,
    names.ALLOCATED,
    names.RETRY,
}
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Affinity(Enum):
    """How close a container's GPUs should be. ANY is the absent annotation."""

    ANY = "any"
    NVLINK = "nvlink"
    SWITCH = "switch"
    NUMA = "numa"
    NONE = "none"


class Strength(Enum):
    """Whether a node without such a set may still take the pod."""

    PREFERRED = "preferred"
    REQUIRED = "required"


class Prefer(Enum):
    """How nodes compare: by closeness to their own machine's best, or by absolute GB/s."""

    BALANCED = "balanced"
    FASTEST = "fastest"


class NicRule(Enum):
    """Whether the set should or must have an RDMA NIC within PXB; UNSET: no annotation."""

    UNSET = "unset"
    PREFERRED = "preferred"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """A pod's wishes. `min_bandwidth_gbytes_per_s` is None where none is set, else above 0."""

    affinity: Affinity = Affinity.ANY
    strength: Strength = Strength.PREFERRED
    min_bandwidth_gbytes_per_s: float | None = None
    prefer: Prefer = Prefer.BALANCED
    nic: NicRule = NicRule.UNSET

    def __post_init__(self) -> None:
        floor = self.min_bandwidth_gbytes_per_s
        if floor is not None and not (0 < floor < math.inf):
            msg = f"min_bandwidth_gbytes_per_s is {floor}, expected a finite number above 0"
            raise PolicyError(msg)


DEFAULT_POLICY = PlacementPolicy()


def is_remainder_first(policy: PlacementPolicy, size: int) -> bool:
    """Whether what is left behind counts before the set's own value."""
    if size == 1 or policy.affinity is Affinity.NONE:
        return True
    return policy.affinity is Affinity.ANY and policy.min_bandwidth_gbytes_per_s is not None


E = TypeVar("E", bound=Enum)


def _choice(annotations: Mapping[str, str], key: str, choices: tuple[E, ...], default: E) -> E:
    value = annotations.get(key)
    if value is None:
        return default
    for choice in choices:
        if value == choice.value:
            return choice
    allowed = ", ".join(str(choice.value) for choice in choices)
    msg = f"annotation {key} is {quote(value)}, expected one of: {allowed}"
    raise PolicyError(msg)


def _bandwidth(annotations: Mapping[str, str]) -> float | None:
    value = annotations.get(names.MIN_BANDWIDTH)
    if value is None:
        return None
    expected = "a decimal number of GB/s above 0, such as 40 or 37.5"
    # float() also takes "nan", "1_0" and surrounding blanks: only plain decimals are meant.
    if not _DECIMAL.fullmatch(value) or not 0 < float(value) < math.inf:
        msg = f"annotation {names.MIN_BANDWIDTH} is {quote(value)}, expected {expected}"
        raise PolicyError(msg)
    return float(value)


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
            known = ", ".join(names.USER_KEYS)
            msg = f"annotation {quote(key)} is not a key of Coterie, expected one of: {known}"
            raise PolicyError(msg)
    return PlacementPolicy(
        affinity=_choice(
            annotations,
            names.AFFINITY,
            (Affinity.NVLINK, Affinity.SWITCH, Affinity.NUMA, Affinity.NONE),
            Affinity.ANY,
        ),
        strength=_choice(annotations, names.POLICY, tuple(Strength), Strength.PREFERRED),
        min_bandwidth_gbytes_per_s=_bandwidth(annotations),
        prefer=_choice(annotations, names.PREFER, tuple(Prefer), Prefer.BALANCED),
        nic=_choice(annotations, names.NIC, (NicRule.PREFERRED, NicRule.REQUIRED), NicRule.UNSET),
    )
