"""Where a pod may run, by the rules of its own spec: node selector, required node affinity, taints.

What it answers: whether these rules allow a pod on a node (those of `topology.node_affinity` and
`topology.taints`). It leaves out what needs more than the two objects (other pods, volumes,
CPU and memory) and what is only preferred. It chooses no node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.node_affinity import KnownLabels, RequiredNodeAffinity
from topology.taints import tolerates_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.taints import Taint, Toleration

__all__ = ["NodeRules", "allows"]


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
    is_allowed = rules.allows(name, KnownLabels(labels, keys=None)) is True
    return is_allowed and tolerates_all(rules.tolerations, taints)
