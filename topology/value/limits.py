"""What may limit a set of GPUs, how far off its value may then be, and what start-up costs.

What it answers: the kinds of path that an all-reduce may be limited by, with stated error, start-up
cost and order of ties. It values no set (`topology.value.set_value`, `topology.value.value_table`).

Start-up cost: 1/B(M) = 1/B_inf + a * (16 MiB / M) (`topology.model.links.ModelConstants`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from topology.model import DEFAULT_CONSTANTS, FITTED_MESSAGE_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from topology.model import ModelConstants

__all__ = [
    "BOUND_DECIMALS",
    "STATED_ERROR",
    "TIE_ORDER",
    "Limit",
    "at_message_size",
    "start_up_cost",
    "switch_gain",
]


class Limit(IntEnum):
    """What limits a set: the best path that its members share, best first."""

    NOTHING = 0
    SWITCH = 1
    RING = 2
    RELAY = 3
    PORT = 4
    UPLINK = 5
    SOCKET = 6


STATED_ERROR = {
    Limit.NOTHING: 0.0,
    Limit.SWITCH: 0.12,
    Limit.RING: 0.07,
    Limit.RELAY: 0.21,
    Limit.PORT: 0.13,
    Limit.UPLINK: 0.42,
    Limit.SOCKET: 0.42,
}
"""How far off the value may be, as a share, by what limits the set: the larger 90th percentile of
the relative error over the measured nodes (`benchmarks fidelity`). No measured node is limited by a
switch uplink; it takes the socket's. `min-bandwidth` is compared after subtracting this share."""


TIE_ORDER = (
    Limit.PORT,
    Limit.UPLINK,
    Limit.SOCKET,
    Limit.SWITCH,
    Limit.RING,
    Limit.RELAY,
    Limit.NOTHING,
)
"""Which of two equal bounds is reported: what islands carry inside comes after what joins them."""

BOUND_DECIMALS = 9
"""Cuts are compared in 1e-9 GB/s: the order in which floats are added must not decide."""


def start_up_cost(limit: Limit, constants: ModelConstants = DEFAULT_CONSTANTS) -> float:
    """The `a` of a kind of path, s/GB per 16 MiB."""
    if limit is Limit.SWITCH:
        return constants.switch_a
    return constants.mesh_a if limit in {Limit.RING, Limit.RELAY} else constants.pcie_a


def at_message_size(
    value: NDArray[np.float64], latency: NDArray[np.float64], message_bytes: int
) -> NDArray[np.float64]:
    """B(M) from B_inf, both GB/s, by the start-up cost `latency` (s/GB, per 16 MiB)."""
    scaled = latency * (FITTED_MESSAGE_BYTES / message_bytes)
    return value / (1 + scaled * value)


def switch_gain(constants: ModelConstants, k: int, *, reduces: bool) -> float:
    """What the switch makes of the slowest port at set size k: 1 where it does not reduce."""
    gains = constants.in_switch_gain
    return gains[min(max(k, 2) - 2, len(gains) - 1)] if reduces else 1.0
