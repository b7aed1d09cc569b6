"""Where a pod may run, by the rules of its own spec: node selector, required node affinity, taints.

What it answers: whether these rules allow a pod on a node. It leaves out what needs more than the
two objects (other pods, volumes, CPU and memory) and what is only preferred. It chooses no node.

Rules: k8s.io/api core/v1 types.go, `NodeSelectorOperator`, `Toleration`, and
component-helpers/scheduling/corev1/nodeaffinity: terms are alternatives, the expressions of one
all hold, and a term without any matches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LabelRequirement", "NodeRules", "Taint", "Toleration", "allows"]


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps pods off: its effect is NoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key with Exists tolerates all, an empty effect all effects."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether it takes the taint."""
        if self.effect not in {"", taint.effect}:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """An expression over a label, or over the node's name (`is_field`)."""

    key: str
    operator: str
    values: tuple[str, ...]
    is_field: bool = False

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether it holds on a node; an operator that is not known never does."""
        found = name if self.is_field else labels.get(self.key)
        if self.operator == "In":
            return found in self.values
        if self.operator == "NotIn":
            return found not in self.values
        if self.operator == "Exists":
            return found is not None
        if self.operator == "DoesNotExist":
            return found is None
        return self._compares(found)

    def _compares(self, found: str | None) -> bool:
        try:
            left, right = int(found or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return {"Gt": left > right, "Lt": left < right}.get(self.operator, False)


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The rules of a pod. `terms` is None where it has no required node affinity."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[LabelRequirement, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


def allows(
    rules: NodeRules, *, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]
) -> bool:
    """Whether a pod's rules allow it on a node.

    >>> rules = NodeRules(selector=(("zone", "a"),))
    >>> allows(rules, name="n1", labels={"zone": "b"}, taints=())
    False
    """
    return (
        all(labels.get(key) == value for key, value in rules.selector)
        and (
            rules.terms is None
            or any(term and all(one.holds(name, labels) for one in term) for term in rules.terms)
        )
        and all(any(one.tolerates(taint) for one in rules.tolerations) for taint in taints)
    )
