"""Derives each device's state and owner from the nodes' accounts.

Derived, never kept: it follows from the account (`extender.state.accounting`) and the health that
the node reports. It changes nothing.

It also counts the changes from one account of a node to the next, of which the generation of the
state is the sum. Plans, answers and decision logs name a generation, so the rule must stay:

- one for each pod that has something else than before, or in another way, and had something:
  what it had is released first; only an assumption that becomes a binding is kept
- one for each pod that is given something (two where its binding was accepted before the
  assumption was read), and one for each assumption that becomes a binding
- one where devices become unhealthy, and one where they recover; a device that a pod is given
  counts as recovered before and as having become unhealthy after
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from extender.state.accounting import AssignmentState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.state.accounting import Account, Assignment

__all__ = ["DeviceRow", "DeviceState", "count_changes", "count_states", "device_rows"]


class DeviceState(Enum):
    """State of one device id. FREE and UNHEALTHY have no owner; *_UNHEALTHY are in use and bad."""

    # Enum's own hashes the member's name, by a call in Python: each look-up in a table makes two.
    __hash__ = object.__hash__

    FREE = "free"
    CLAIMED = "claimed"
    ASSUMED = "assumed"
    BOUND = "bound"
    HELD = "held"
    UNHEALTHY = "unhealthy"
    ASSUMED_UNHEALTHY = "assumed_unhealthy"
    BOUND_UNHEALTHY = "bound_unhealthy"
    HELD_UNHEALTHY = "held_unhealthy"


DeviceRow: TypeAlias = "tuple[str, DeviceState, str | None]"
"""Device id, its state, and its owner's uid, if it has one."""

_HEALTHY = {
    AssignmentState.CLAIMED: DeviceState.CLAIMED,
    AssignmentState.ASSUMED: DeviceState.ASSUMED,
    AssignmentState.BOUND: DeviceState.BOUND,
    AssignmentState.HELD: DeviceState.HELD,
}
_UNHEALTHY = {
    # Nothing unhealthy is ever claimed.
    AssignmentState.ASSUMED: DeviceState.ASSUMED_UNHEALTHY,
    AssignmentState.BOUND: DeviceState.BOUND_UNHEALTHY,
    AssignmentState.HELD: DeviceState.HELD_UNHEALTHY,
}


def device_rows(ids: Sequence[str], account: Account) -> tuple[DeviceRow, ...]:
    """The devices of a node, in device order."""
    states: list[tuple[DeviceState, str | None]] = [
        (DeviceState.UNHEALTHY if account.unhealthy >> i & 1 else DeviceState.FREE, None)
        for i in range(len(ids))
    ]
    for owner, one in account.assignments.items():
        for i in range(len(ids)):
            if one.mask >> i & 1:
                names = _UNHEALTHY if account.unhealthy >> i & 1 else _HEALTHY
                states[i] = names[one.state], owner
    return tuple((id_, *state) for id_, state in zip(ids, states, strict=True))


def count_states(accounts: Iterable[Account]) -> Mapping[DeviceState, int]:
    """Number of devices in each state. O(pods)."""
    counts = dict.fromkeys(DeviceState, 0)
    for account in accounts:
        unhealthy = account.unhealthy
        for one in account.assignments.values():
            if bad := one.mask & unhealthy:
                counts[_UNHEALTHY[one.state]] += bad.bit_count()
                unhealthy &= ~bad
            counts[_HEALTHY[one.state]] += (one.mask & ~bad).bit_count()
        counts[DeviceState.UNHEALTHY] += unhealthy.bit_count()
        counts[DeviceState.FREE] += account.free.bit_count()
    return counts


def count_changes(before: Account, after: Account) -> int:
    """By how much the generation grows when one account of a node replaces another."""
    n_changes = 0
    given = 0
    for uid, one in after.assignments.items():
        old = before.assignments.get(uid)
        if old is not None and old.mask == one.mask and old.state is one.state:
            continue
        given |= one.mask
        is_bound = one.state is AssignmentState.BOUND
        if old is not None and is_bound and _is_confirmed(old, one):
            n_changes += 1
        else:
            n_changes += 1 + is_bound + (old is not None)
    n_changes += len(before.assignments.keys() - after.assignments.keys())
    recovered = before.unhealthy & (given | ~after.unhealthy)
    failed = after.unhealthy & (recovered | ~before.unhealthy)
    return n_changes + (recovered != 0) + (failed != 0)


def _is_confirmed(old: Assignment, new: Assignment) -> bool:
    """Whether all that happened is that the binding was accepted."""
    return old.state is AssignmentState.ASSUMED and old.mask == new.mask
