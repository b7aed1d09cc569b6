"""The settings that decisions depend on.

They open the decision log, so that a replay decides under the same ones; everything else that is
configurable changes no answer.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from topology.annotations import Prefer
from topology.errors import InvalidRequest
from topology.groups import DEFAULT_FAMILIES, FamilyPart, LevelFamily, LevelKeys, level_names
from topology.value import Demand  # noqa: TC001 - pydantic reads Rules from the decision log

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Rules", "families_of", "is_pattern"]

_A_TIME = "a finite number above 0"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one run. `wake_after_s`: how long a pod that fits again may be left alone.

    Pods that name one of the `scheduler_names` are bound, with no such names all pods.
    `gpu_worth` are patterns of GPU models and what these are worth (`topology.model`).
    `preempts_for_topology`: evictions may be attempted where only the topology falls short.
    `claim_s`: how long devices are kept for a group whose members come to be bound.
    `group_levels` are names of levels of domains and the labels that name a node's
    domain there, nearest first.
    `group_kinds` are those of whose pods a group is inferred (`extender.protocol`).
    `prefer` is how nodes compare for pods that do not say it.

    Raises `SettingsError` for values that no settings could have had.
    """

    resources: tuple[str, ...]
    candidate_limit: int
    loss_bounds: tuple[float, ...]
    demand: Demand
    staleness_bound_s: float
    assume_s: float
    wake_after_s: float = 0.5
    scheduler_names: tuple[str, ...] = ()
    gpu_worth: tuple[tuple[str, float], ...] = ()
    preempts_for_topology: bool = False
    claim_s: float = 60.0
    group_kinds: tuple[str, ...] = ()
    group_levels: tuple[tuple[str, str], ...] = ()
    prefer: Prefer = Prefer.BALANCED

    def __post_init__(self) -> None:
        bounds = self.loss_bounds
        is_ascending = list(bounds) == sorted(set(bounds)) and all(0 < one < 1 for one in bounds)
        is_named = len(set(self.resources)) == len(self.resources) > 0
        is_worth = all(is_pattern(one) and 0 < worth < math.inf for one, worth in self.gpu_worth)
        for name, is_meant, expected in (
            ("resources", is_named, "different names, at least one"),
            ("candidate_limit", self.candidate_limit >= 0, "0 or more"),
            ("loss_bounds", is_ascending and bounds, "ascending bounds in 0..1, at least one"),
            ("staleness_bound_s", 0 < self.staleness_bound_s < math.inf, _A_TIME),
            ("assume_s", 0 < self.assume_s < math.inf, _A_TIME),
            ("claim_s", 0 < self.claim_s < math.inf, _A_TIME),
            ("gpu_worth", is_worth, "regular expressions, each with a finite number above 0"),
            ("group_levels", self._has_levels, "levels in an order that suits the other labels"),
            ("wake_after_s", 0 < self.wake_after_s < math.inf, _A_TIME),
        ):
            if not is_meant:
                msg = f"rule {name} is {getattr(self, name)}, expected {expected}"
                raise SettingsError(msg)

    def serves(self, scheduler_name: str) -> bool:
        """Whether pods that name this scheduler are bound here."""
        return not self.scheduler_names or scheduler_name in self.scheduler_names

    @property
    def group_families(self) -> tuple[LevelFamily, ...]:
        """The families of labels that say where a node is in the network."""
        return families_of(self.group_levels)

    @property
    def _has_levels(self) -> bool:
        try:
            families_of(self.group_levels)
        except InvalidRequest:
            return False
        return True


def families_of(levels: Sequence[tuple[str, str]]) -> tuple[LevelFamily, ...]:
    """One family of these levels and label keys, nearest first, and then those that are known.

    A node that carries one of its labels uses no other family of its fabric. Raises
    `InvalidRequest` where the levels have no common order with the others.
    """
    keys: dict[str, list[str]] = {}
    for level, key in levels:
        keys.setdefault(level, []).append(key)
    own = tuple(LevelKeys(level, tuple(names)) for level, names in keys.items())
    if not own:
        return DEFAULT_FAMILIES
    families = LevelFamily("setting", FamilyPart.FABRIC, own), *DEFAULT_FAMILIES
    level_names(families)
    return families


def is_pattern(text: str) -> bool:
    """Whether a text is a regular expression, and not empty."""
    try:
        re.compile(text)
    except re.error:
        return False
    return text != ""
