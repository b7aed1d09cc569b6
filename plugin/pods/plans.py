"""What the plans on this node's pods say.

A plan for another node, or text that is no plan, is none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from topology.annotations import decode_plan
from topology.errors import CodecError
from topology.model import names

if TYPE_CHECKING:
    from plugin.pods.node_pods import NodePod
    from topology.annotations import Plan

__all__ = ["plan_problem", "planned_ids", "pod_plan"]


def pod_plan(pod: NodePod, node: str) -> Plan | None:
    """The plan that a pod carries for this node; None where there is none that can be used."""
    found = _read(pod.annotations.get(names.PLAN))
    return None if found is None or isinstance(found, str) or found.node != node else found


def plan_problem(pod: NodePod, node: str) -> str | None:
    """Why a pod's plan cannot be used, for people; None where it can, or there is none."""
    found = _read(pod.annotations.get(names.PLAN))
    if found is None or isinstance(found, str):
        return found
    return None if found.node == node else f"plan is for node {found.node}, expected {node}"


def planned_ids(pod: NodePod, container: str, *, resource: str, node: str) -> tuple[str, ...]:
    """The ids planned for a container, in the plan's order; empty where it has no plan."""
    plan = pod_plan(pod, node)
    for one in () if plan is None else plan.containers:
        if one.name == container and one.resource == resource:
            return one.ids
    return ()


@lru_cache(maxsize=1024)
def _read(text: str | None) -> Plan | str | None:
    """A plan, or why it is none.

    Each text is read once; a node has far fewer pods than 1024 (110 by the kubelet's default).
    """
    if text is None:
        return None
    try:
        return decode_plan(text)
    except CodecError as error:
        return str(error)
