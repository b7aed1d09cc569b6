"""The settings that decisions depend on.

They open the decision log, so that a replay
decides under the same ones; everything else that is configurable changes no answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kube.errors import SettingsError
from topology.value import Demand  # noqa: TC001 - pydantic reads Rules from the decision log

__all__ = ["Rules"]

_A_TIME = "a finite number above 0"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one run. `wake_after_s`: how long a pod that fits again may be left alone.

    Raises `SettingsError` for values that no settings could have had.
    """

    resources: tuple[str, ...]
    candidate_limit: int
    loss_bounds: tuple[float, ...]
    demand: Demand
    staleness_bound_s: float
    assume_s: float
    wake_after_s: float = 0.5

    def __post_init__(self) -> None:
        bounds = self.loss_bounds
        is_ascending = list(bounds) == sorted(set(bounds)) and all(0 < one < 1 for one in bounds)
        is_named = len(set(self.resources)) == len(self.resources) > 0
        for name, is_meant, expected in (
            ("resources", is_named, "different names, at least one"),
            ("candidate_limit", self.candidate_limit >= 0, "0 or more"),
            ("loss_bounds", is_ascending and bounds, "ascending bounds in 0..1, at least one"),
            ("staleness_bound_s", 0 < self.staleness_bound_s < math.inf, _A_TIME),
            ("assume_s", 0 < self.assume_s < math.inf, _A_TIME),
            ("wake_after_s", 0 < self.wake_after_s < math.inf, _A_TIME),
        ):
            if not is_meant:
                msg = f"rule {name} is {getattr(self, name)}, expected {expected}"
                raise SettingsError(msg)
