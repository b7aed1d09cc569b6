"""Faults that a driver reports by number, and what clears each of them.

Which numbers count and what clears them is the vendor's knowledge (`FaultRules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

__all__ = ["FaultCode", "FaultRules", "Remedy"]


@dataclass(frozen=True, slots=True)
class FaultCode:
    """An error number of a driver; `kind` is the vendor's name for such numbers.

    >>> str(FaultCode("RAS", 7))
    'RAS 7'
    """

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


class Remedy(Enum):
    """What clears a fault; later members are graver."""

    NOTHING = "no action"
    RESTART_APP = "a restart of the application"
    RESET_GPU = "a reset of the GPU"
    RESTART_NODE = "a restart of the node"
    UNKNOWN = "an unknown remedy"

    @property
    def rank(self) -> int:
        """0 (NOTHING) .. 4 (UNKNOWN, which is the gravest)."""
        return list(Remedy).index(self)


class FaultRules(Protocol):
    """What the numbers of a vendor's fault codes mean, under the settings."""

    @property
    def is_off(self) -> bool:
        """Whether health is not to be watched at all."""
        ...

    def counts(self, number: int) -> bool:
        """Whether a fault makes its GPU unhealthy."""
        ...

    def remedy_of(self, number: int) -> Remedy:
        """What clears a fault."""
        ...
