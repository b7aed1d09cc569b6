"""Which nodes a pod's nodeSelector and its required node affinity allow, by the nodes' labels.

Where labels of a node are not known, an answer that depends on them is unknown. It leaves out what
is only preferred, and chooses no node.

Rules: k8s.io/api core/v1 types.go, `NodeSelectorOperator`, and
component-helpers/scheduling/corev1/nodeaffinity, `RequiredNodeAffinity`: the labels of the selector
and one of the terms; the expressions of a term all hold, and a term without any matches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ANY_NODE", "KnownLabels", "LabelRequirement", "RequiredNodeAffinity"]


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """The labels of a node as far as they are known.

    `keys` are those of which it is known whether the node has them, None for all labels; `values`
    are those that it has.
    """

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: frozenset[str] | None = frozenset()

    def knows(self, key: str) -> bool:
        """Whether it is known what the node has under a key."""
        return self.keys is None or key in self.keys

    def plus(self, key: str, value: str) -> KnownLabels:
        """With the value of one more label."""
        keys = None if self.keys is None else self.keys | {key}
        return KnownLabels({**self.values, key: value}, keys)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """An expression over a label, or over the node's name (`is_field`)."""

    key: str
    operator: str
    values: tuple[str, ...]
    is_field: bool = False

    def holds(self, name: str, labels: KnownLabels) -> bool | None:
        """Whether it holds on a node, None if unknown; an operator that is not known never does."""
        if self.is_field:
            return self._holds_for(name)
        return self._holds_for(labels.values.get(self.key)) if labels.knows(self.key) else None

    def _holds_for(self, found: str | None) -> bool:
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
class RequiredNodeAffinity:
    """A pod's nodeSelector, and the terms of its required node affinity, None where it has none.

    >>> affinity = RequiredNodeAffinity(selector=(("zone", "a"),))
    >>> affinity.allows("n1", KnownLabels({"zone": "b"}, keys=None))
    False
    >>> affinity.allows("n1", KnownLabels())
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[LabelRequirement, ...], ...] | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The labels that it names."""
        named = (one.key for term in self.terms or () for one in term if not one.is_field)
        return frozenset((*(key for key, _ in self.selector), *named))

    @property
    def n_expressions(self) -> int:
        """Labels of the selector, and expressions of all terms."""
        return len(self.selector) + sum(len(term) for term in self.terms or ())

    @property
    def n_values(self) -> int:
        """Values that the expressions name."""
        return sum(len(one.values) for term in self.terms or () for one in term)

    def allows(self, name: str, labels: KnownLabels) -> bool | None:
        """Whether it allows a node; None where that depends on labels that are not known."""
        selected = _all_of(
            labels.values.get(key) == value if labels.knows(key) else None
            for key, value in self.selector
        )
        if selected is False or self.terms is None:
            return selected
        matched = _any_of(
            _all_of(one.holds(name, labels) for one in term) for term in self.terms if term
        )
        return _all_of((selected, matched))


ANY_NODE = RequiredNodeAffinity()
"""That of a pod without a nodeSelector and required node affinity."""


def _all_of(found: Iterable[bool | None]) -> bool | None:
    answers = set(found)
    return False if False in answers else None if None in answers else True


def _any_of(found: Iterable[bool | None]) -> bool | None:
    answers = set(found)
    return True if True in answers else None if None in answers else False
