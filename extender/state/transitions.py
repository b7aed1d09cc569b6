"""What may happen to one device: the ledger's transition table.

What it answers: the state a device is in after an event, or that the event is illegal there.

The rules, of which the table is the letter:

1. A device has at most one owner, a pod. FREE and UNHEALTHY have none, every other state has one.
2. CLAIM and ASSUME take a free, healthy device; ASSUME also turns the owner's own claim into a
   plan.
3. CONFIRM says that the API server accepted the binding; told twice it changes nothing, and it
   never weakens a hold (the node's report may be quicker than the watch).
4. FORGET undoes what was never accepted (a claim, an assumption). EXPIRE does so by the clock, for
   assumptions alone: a claim ends with the nomination, a bound plan with its pod.
5. RELEASE is the end of the owner, whatever state its device is in.
6. HOLD is the node's report of what *is*. It wins over every plan, also another pod's, and over
   health: the ledger follows what is, never what was meant.
7. SICKEN and RECOVER tell the health and nothing else: a running container keeps its bad GPU, a
   claim on it is dropped, and a free one is offered to nobody until it recovers.

Every (state, event) pair that is not in the table is illegal. RECOVER and SICKEN are never illegal.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

__all__ = ["OWNED", "TRANSITIONS", "DeviceEvent", "DeviceState"]


class DeviceState(Enum):
    """State of one device id. The *_UNHEALTHY states are in use and bad."""

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


class DeviceEvent(Enum):
    """What happens to one device id."""

    __hash__ = object.__hash__

    CLAIM = "claim"
    ASSUME = "assume"
    CONFIRM = "confirm"
    FORGET = "forget"
    EXPIRE = "expire"
    HOLD = "hold"
    RELEASE = "release"
    SICKEN = "sicken"
    RECOVER = "recover"


_S, _E = DeviceState, DeviceEvent

OWNED = frozenset(DeviceState) - {_S.FREE, _S.UNHEALTHY}
"""The states in which a device has an owner."""

TRANSITIONS = MappingProxyType(
    {
        (_S.FREE, _E.CLAIM): _S.CLAIMED,
        (_S.FREE, _E.ASSUME): _S.ASSUMED,
        (_S.FREE, _E.HOLD): _S.HELD,
        (_S.FREE, _E.SICKEN): _S.UNHEALTHY,
        (_S.FREE, _E.RECOVER): _S.FREE,
        (_S.CLAIMED, _E.ASSUME): _S.ASSUMED,
        (_S.CLAIMED, _E.FORGET): _S.FREE,
        (_S.CLAIMED, _E.RELEASE): _S.FREE,
        (_S.CLAIMED, _E.HOLD): _S.HELD,
        (_S.CLAIMED, _E.SICKEN): _S.UNHEALTHY,
        (_S.CLAIMED, _E.RECOVER): _S.CLAIMED,
        (_S.ASSUMED, _E.CONFIRM): _S.BOUND,
        (_S.ASSUMED, _E.FORGET): _S.FREE,
        (_S.ASSUMED, _E.EXPIRE): _S.FREE,
        (_S.ASSUMED, _E.RELEASE): _S.FREE,
        (_S.ASSUMED, _E.HOLD): _S.HELD,
        (_S.ASSUMED, _E.SICKEN): _S.ASSUMED_UNHEALTHY,
        (_S.ASSUMED, _E.RECOVER): _S.ASSUMED,
        (_S.BOUND, _E.CONFIRM): _S.BOUND,
        (_S.BOUND, _E.RELEASE): _S.FREE,
        (_S.BOUND, _E.HOLD): _S.HELD,
        (_S.BOUND, _E.SICKEN): _S.BOUND_UNHEALTHY,
        (_S.BOUND, _E.RECOVER): _S.BOUND,
        (_S.HELD, _E.CONFIRM): _S.HELD,
        (_S.HELD, _E.RELEASE): _S.FREE,
        (_S.HELD, _E.HOLD): _S.HELD,
        (_S.HELD, _E.SICKEN): _S.HELD_UNHEALTHY,
        (_S.HELD, _E.RECOVER): _S.HELD,
        (_S.UNHEALTHY, _E.HOLD): _S.HELD_UNHEALTHY,
        (_S.UNHEALTHY, _E.SICKEN): _S.UNHEALTHY,
        (_S.UNHEALTHY, _E.RECOVER): _S.FREE,
        (_S.ASSUMED_UNHEALTHY, _E.CONFIRM): _S.BOUND_UNHEALTHY,
        (_S.ASSUMED_UNHEALTHY, _E.FORGET): _S.UNHEALTHY,
        (_S.ASSUMED_UNHEALTHY, _E.EXPIRE): _S.UNHEALTHY,
        (_S.ASSUMED_UNHEALTHY, _E.RELEASE): _S.UNHEALTHY,
        (_S.ASSUMED_UNHEALTHY, _E.HOLD): _S.HELD_UNHEALTHY,
        (_S.ASSUMED_UNHEALTHY, _E.SICKEN): _S.ASSUMED_UNHEALTHY,
        (_S.ASSUMED_UNHEALTHY, _E.RECOVER): _S.ASSUMED,
        (_S.BOUND_UNHEALTHY, _E.CONFIRM): _S.BOUND_UNHEALTHY,
        (_S.BOUND_UNHEALTHY, _E.RELEASE): _S.UNHEALTHY,
        (_S.BOUND_UNHEALTHY, _E.HOLD): _S.HELD_UNHEALTHY,
        (_S.BOUND_UNHEALTHY, _E.SICKEN): _S.BOUND_UNHEALTHY,
        (_S.BOUND_UNHEALTHY, _E.RECOVER): _S.BOUND,
        (_S.HELD_UNHEALTHY, _E.CONFIRM): _S.HELD_UNHEALTHY,
        (_S.HELD_UNHEALTHY, _E.RELEASE): _S.UNHEALTHY,
        (_S.HELD_UNHEALTHY, _E.HOLD): _S.HELD_UNHEALTHY,
        (_S.HELD_UNHEALTHY, _E.SICKEN): _S.HELD_UNHEALTHY,
        (_S.HELD_UNHEALTHY, _E.RECOVER): _S.HELD,
    }
)
