"""Pod disruption budgets, as preemption counts them.

Tells which pods a budget covers, and how many of them may be evicted. The rules are
kube-scheduler's (1.36, plugins/defaultpreemption/default_preemption.go
`filterPodsWithPDBViolation`): a budget without a selector, or with an empty one, covers no pod, and
pods whose eviction is under way already do not count. It evicts no pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topology.model import (
    choice_at,
    list_at,
    object_at,
    objects_at,
    text_at,
    texts_at,
    whole_at,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DisruptionBudget", "Operator", "Requirement", "read_budget"]


class Operator(Enum):
    """How a label is compared (k8s.io/apimachinery v0.36.3, meta/v1 LabelSelectorOperator)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet it; an absent label is not in any set."""
        match self.operator:
            case Operator.IN:
                return self.key in labels and labels[self.key] in self.values
            case Operator.NOT_IN:
                return self.key not in labels or labels[self.key] not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A budget. `n_allowed`: status.disruptionsAllowed; `leaving`: status.disruptedPods' names."""

    namespace: str
    name: str
    requirements: tuple[Requirement, ...]
    n_allowed: int
    leaving: frozenset[str]

    def covers(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Whether evicting this pod would use the budget up by one."""
        return (
            namespace == self.namespace
            and len(labels) > 0
            and len(self.requirements) > 0
            and name not in self.leaving
            and all(one.is_met(labels) for one in self.requirements)
        )


def read_budget(content: Mapping[str, object]) -> DisruptionBudget:
    """Read a PodDisruptionBudget (policy/v1). Raises `Unreadable`."""
    meta, status = object_at(content, "metadata"), object_at(content, "status")
    selector = object_at(object_at(content, "spec"), "selector")
    equal = tuple(
        Requirement(key, Operator.IN, frozenset({value}))
        for key, value in texts_at(selector, "matchLabels").items()
    )
    return DisruptionBudget(
        namespace=text_at(meta, "namespace"),
        name=text_at(meta, "name"),
        requirements=(
            *equal,
            *(_requirement(one) for one in objects_at(selector, "matchExpressions")),
        ),
        n_allowed=whole_at(status, "disruptionsAllowed"),
        leaving=frozenset(object_at(status, "disruptedPods")),
    )


def _requirement(content: Mapping[str, object]) -> Requirement:
    values = frozenset(str(value) for value in list_at(content, "values"))
    return Requirement(text_at(content, "key"), choice_at(content, "operator", Operator), values)
