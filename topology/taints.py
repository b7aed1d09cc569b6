"""Taints of nodes and the tolerations of pods.

Rules: k8s.io/api core/v1 toleration.go, `ToleratesTaint`, and k8s.io/component-helpers
scheduling/corev1/helpers.go: kube-scheduler offers a node where each of its taints is tolerated.

>>> tolerates_all((Toleration("node.kubernetes.io/unschedulable", "Exists", "", ""),), (CORDONED,))
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CORDONED", "KEEPS_OFF", "Taint", "Toleration", "tolerates_all"]

KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep new pods off."""
_EQUAL = frozenset({"", "Equal"})


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps pods off: its effect is one of `KEEPS_OFF`."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key with Exists tolerates all, an empty effect all effects.

    Lt and Gt, alpha and off by default in 1.36, tolerate nothing.
    """

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
        is_equal = self.operator in _EQUAL and self.value == taint.value
        return self.key == taint.key and (self.operator == "Exists" or is_equal)


CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that a cordoned node bears (core/v1 well_known_taints.go)."""


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether a pod with these tolerations may be on a node with these taints."""
    given = tuple(tolerations)
    return all(any(one.tolerates(taint) for one in given) for taint in taints)
