"""Which nodes a pod's nodeSelector and required node affinity allow, as far as that is known here.

The one place that holds them against nodes: for explanations, pending pods and what-ifs, which show
nodes that kube-scheduler has not filtered. By the labels that are kept of nodes
(`extender.state.node_labels`); the label of the GPU model follows from the topology where it is not
known, as of an added node. A node of which it is unknown counts as allowed, and the labels that
decide it are named. So it is for an affinity of very many expressions, which is not held. No verb
may use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.snapshot import SHARED
from extender.state import PRODUCT
from topology.node_affinity import ANY_NODE, KnownLabels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from extender.snapshot import NodeClass, NodeView
    from extender.state import NodeRecord
    from topology.node_affinity import RequiredNodeAffinity

__all__ = ["AllowedNodes", "unknown_labels"]

_NO_LABELS = KnownLabels()
MAX_EXPRESSIONS = 32
"""Expressions of an affinity that are held: 130 ms at most for 5,000 nodes, in one turn."""
MAX_VALUES = 512
"""Values of the same; pods that name their nodes one by one have many."""
MAX_NAMED = 8
"""Labels that a sentence names."""


class AllowedNodes:
    """The nodes that one pod's affinity allows; `nodes` are records by name.

    `unknown` are the labels that are not known of some node that counts as allowed.
    """

    def __init__(self, affinity: RequiredNodeAffinity, nodes: Mapping[str, NodeRecord]) -> None:
        self._affinity = affinity
        self._is_held = (
            affinity.n_expressions <= MAX_EXPRESSIONS and affinity.n_values <= MAX_VALUES
        )
        self._nodes = nodes
        self.unknown: set[str] = set()

    def allows(self, view: NodeView) -> bool:
        """Whether the pod may be on a node; where that is not known, too."""
        if self._affinity == ANY_NODE:
            return True
        if not self._is_held:
            self.unknown |= self._affinity.keys
            return True
        node = self._nodes.get(view.name)
        labels = _NO_LABELS if node is None else node.labels
        model = None if labels.knows(PRODUCT) else _model(view.node_class)
        if model is None:
            return self._is_allowed(view.name, labels)
        if self._is_allowed(view.name, labels.plus(PRODUCT, model)):
            return True
        # Whether its GPUs are shared in time is not known.
        if self._is_allowed(view.name, labels.plus(PRODUCT, model + SHARED)):
            self.unknown.add(PRODUCT)
            return True
        return False

    def _is_allowed(self, name: str, labels: KnownLabels) -> bool:
        is_allowed = self._affinity.allows(name, labels)
        if is_allowed is None:
            self.unknown |= {key for key in self._affinity.keys if not labels.knows(key)}
        return is_allowed is not False


def _model(kind: NodeClass) -> str | None:
    """The label's value for a node whose GPUs are all of one known model."""
    (model, *others) = kind.models
    return None if others or not model else model


def unknown_labels(keys: Iterable[str]) -> list[str]:
    """The sentence for labels that are not known, for `not_considered`; none without such."""
    named = sorted(keys)
    if not named:
        return []
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    sentence = (
        "labels of the pod's nodeSelector and node affinity that are not known of some nodes, "
        f"which count as allowed: {', '.join(named[:MAX_NAMED])}{more}"
    )
    return [sentence]
