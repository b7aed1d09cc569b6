"""The set that a request takes of a part of a large machine: packed, none compared with another.

What it answers: which devices of a domain a request of some size takes on a node of more than 16
devices. The method stands in `topology.select.large`, which decides between domains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.annotations import NicRule
from topology.value import gpus_of, islands_of, mask_of

if TYPE_CHECKING:
    from topology.select.large_machine import LargeMachine
    from topology.select.outcome import SetRequest

__all__ = ["pack_another", "pack_set"]


def pack_set(machine: LargeMachine, domain: int, request: SetRequest) -> int:
    """The set of a domain, which has `size` devices or more. O(n^2)."""
    near = domain & machine.near_rdma if request.policy.nic is not NicRule.UNSET else 0
    held, size = request.must_include, request.size
    if near and not held & near and held.bit_count() < size:
        held |= _pack(machine.levels, near, 1, held)
    packed = held | _pack(machine.levels, domain & ~held, size - held.bit_count(), held)
    if machine.is_even or not _is_joined(machine, domain) or _is_joined(machine, packed):
        return packed
    return _along_links(machine, domain, held or packed & -packed, size)


def pack_another(machine: LargeMachine, domain: int, request: SetRequest) -> int | None:
    """The set without the last device of the first one that may be left out; None: all must be."""
    packed = pack_set(machine, domain, request)
    spare = packed & ~request.must_include
    if not spare or domain.bit_count() <= request.size:
        return None
    return pack_set(machine, domain & ~(1 << spare.bit_length() - 1), request)


def _is_joined(machine: LargeMachine, mask: int) -> bool:
    return len(islands_of(machine.capacities.adjacency, mask)) == 1


def _along_links(machine: LargeMachine, domain: int, mask: int, size: int) -> int:
    """Add the device that links join to the set, the nearest on PCIe, of these the lowest id."""
    adjacency, pcie = machine.capacities.adjacency, machine.topology.pcie
    while mask.bit_count() < size:
        members = gpus_of(mask)
        joined = 0
        for gpu in members:
            joined |= adjacency[gpu]
        outside = gpus_of(joined & domain & ~mask or domain & ~mask)
        mask |= 1 << min(outside, key=lambda gpu: (sum(pcie[gpu][m].rank for m in members), gpu))
    return mask


def _pack(levels: tuple[tuple[int, ...], ...], free: int, wanted: int, taken: int) -> int:
    """`wanted` free devices out of as few groups as can be: the groups of `taken` first."""
    if not wanted:
        return 0
    if not levels:
        return mask_of(gpus_of(free)[:wanted])
    groups = [(group, group & free) for group in levels[0] if group & free]
    known = [part for group, part in groups if group & taken]
    new = [part for group, part in groups if not group & taken]
    for parts in (known, known + new):
        whole = [part for part in parts if part.bit_count() >= wanted]
        if whole:
            tightest = min(whole, key=lambda part: (part.bit_count(), part & -part))
            return _pack(levels[1:], tightest, wanted, taken)
    widest = max(known or new, key=lambda part: (part.bit_count(), -(part & -part)))
    rest = _pack(levels, free & ~widest, wanted - widest.bit_count(), taken)
    return widest | rest
