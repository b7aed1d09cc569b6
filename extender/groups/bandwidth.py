"""What a group's GPUs are worth together: NCCL all-reduce bus bandwidth over its nodes.

It puts the plans of members beside the machine types of their nodes, and the value, which is
`topology.groups.group_value`, beside what the members require, and as JSON values. It chooses
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from topology.groups import NVLINK_DOMAIN, GroupShare, group_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from extender.protocol import PodRequest
    from extender.snapshot import NodeView
    from extender.state import NodeDomains
    from topology.annotations import Plan
    from topology.groups import GroupValue

__all__ = ["GroupFigures", "falls_short", "predict", "value_json"]


def predict(
    plans: Iterable[Plan], views: Mapping[str, NodeView], domains: NodeDomains
) -> GroupValue | None:
    """Value the GPUs of these plans; None where a node's topology is unknown, or without a plan."""
    gpus: dict[str, set[str]] = {}
    for plan in plans:
        gpus.setdefault(plan.node, set()).update(plan.ids)
    shares: list[GroupShare] = []
    for node, ids in sorted(gpus.items()):
        view = views.get(node)
        if view is None or view.node_class.machine is None or not ids <= set(view.ids):
            return None
        chosen = tuple(i for i, one in enumerate(view.ids) if one in ids)
        shares.append(GroupShare(view.node_class.machine.selector, chosen, _clique(node, domains)))
    return group_value(shares) if shares else None


def falls_short(value: GroupValue | None, requests: Iterable[PodRequest]) -> str:
    """Why a group has less than the `coterie.gpu/min-bandwidth` of a member; empty: it has not.

    The value less its stated error is compared, and one that is unknown has less.
    """
    floors = (one.group_floor_gbytes_per_s for one in requests)
    floor = max((one for one in floors if one is not None), default=None)
    if floor is None:
        return ""
    if value is None or value.least_gbytes_per_s is None:
        why = "a node's topology is unknown"
        if value is not None and value.reason is not None:
            why = value.reason.value
        return f"at least {floor:g} GB/s are required, and {why}"
    if value.least_gbytes_per_s >= floor:
        return ""
    return (
        f"the best place that was found has {value.least_gbytes_per_s:.1f} GB/s after the stated "
        f"error, at least {floor:g} are required"
    )


class GroupFigures(TypedDict):
    """What a group is worth over its nodes, as `value_json` gives it."""

    gbytes_per_s: float | None
    least_gbytes_per_s: float | None
    limited_by: str | None


def value_json(value: GroupValue | None) -> GroupFigures:
    """The value as an explanation and the read API show it; None where it is unknown."""
    if value is None:
        return {"gbytes_per_s": None, "least_gbytes_per_s": None, "limited_by": None}
    return {
        "gbytes_per_s": _rounded(value.gbytes_per_s),
        "least_gbytes_per_s": _rounded(value.least_gbytes_per_s),
        "limited_by": None if value.limited_by is None else value.limited_by.value,
    }


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 3)


def _clique(node: str, domains: NodeDomains) -> str | None:
    """The NVLink domain that the node is in, where it is known."""
    path = domains.path(node)
    steps = () if path is None else path.steps
    return next((step.value for step in steps if step.level == NVLINK_DOMAIN), None)
