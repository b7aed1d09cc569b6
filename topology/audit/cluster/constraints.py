"""Where a pod may run, by the rules of its own spec: node selector, required node affinity, taints.

What it answers: whether these rules allow a pod on a node (the first two are those of
`topology.node_affinity`). It leaves out what needs more than the two objects (other pods, volumes,
CPU and memory) and what is only preferred. It chooses no node.

Rules of taints: k8s.io/api core/v1 types.go, `Toleration`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.node_affinity import KnownLabels, RequiredNodeAffinity

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NodeRules", "Taint", "Toleration", "allows"]


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
class NodeRules(RequiredNodeAffinity):
    """The rules of a pod: those of its node affinity, and the taints that it tolerates."""

    tolerations: tuple[Toleration, ...] = ()


def allows(
    rules: NodeRules, *, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]
) -> bool:
    """Whether a pod's rules allow it on a node with exactly these labels.

    >>> rules = NodeRules(selector=(("zone", "a"),))
    >>> allows(rules, name="n1", labels={"zone": "b"}, taints=())
    False
    """
    return rules.allows(name, KnownLabels(labels, keys=None)) is True and all(
        any(one.tolerates(taint) for one in rules.tolerations) for taint in taints
    )
