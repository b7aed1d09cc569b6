"""How devices are shared by time-slicing: which resources have replicas, and under which names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NO_SHARING", "SharedPolicy", "TimeSlicing"]


class SharedPolicy(Enum):
    """Which of several shared devices comes first."""

    DISTRIBUTED = "distributed"
    """The one of which the least is taken, so that containers share as little as can be."""
    PACKED = "packed"
    """The one of which the most is taken, so that others stay whole."""


@dataclass(frozen=True, slots=True)
class TimeSlicing:
    """Resources that are given out several times over.

    `replicas` is the number of replicas of each device, by resource (its name without `suffix`).
    With `is_one_only` a container may request one replica only. `notes` say what was
    ignored.
    """

    replicas: Mapping[str, int]
    suffix: str = ""
    is_one_only: bool = False
    notes: tuple[str, ...] = ()

    def name_of(self, resource: str) -> str:
        """What a resource is called once it is shared."""
        return resource + self.suffix if resource in self.replicas else resource


NO_SHARING = TimeSlicing({})
