"""A pod's nodeSelector and required node affinity, from the wire.

They decide nothing in the verbs: kube-scheduler has held them when it calls an extender. What shows
nodes that it has not filtered needs them (`extender.allowed_nodes`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from topology.node_affinity import ANY_NODE, LabelRequirement, RequiredNodeAffinity

if TYPE_CHECKING:
    from extender.protocol.messages import PodSpec

__all__ = ["read_node_affinity"]


def read_node_affinity(spec: PodSpec) -> RequiredNodeAffinity:
    """What a pod's spec requires of its node's labels and name."""
    node = None if spec.affinity is None else spec.affinity.node
    required = None if node is None else node.required
    if not spec.node_selector and required is None:
        return ANY_NODE
    affinity = RequiredNodeAffinity(
        selector=tuple(sorted((spec.node_selector or {}).items())),
        terms=None
        if required is None
        else tuple(
            tuple(
                LabelRequirement(one.key, one.operator, tuple(one.values or ()), is_field=is_field)
                for members, is_field in ((term.expressions, False), (term.fields, True))
                for one in members or ()
            )
            for term in required.terms or ()
        ),
    )
    return _shared(affinity)


@lru_cache(maxsize=1024)
def _shared(affinity: RequiredNodeAffinity) -> RequiredNodeAffinity:
    """The same object for equal ones: it is kept of thousands of pods."""
    return affinity
