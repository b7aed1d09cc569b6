"""The group of a pod, as an explanation shows it: who is there, who is missing, what it is worth.

Beside that it warns of a domain that is no level of this cluster's. It reads how the group stands
and what is planned for its members, and decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups import predict, value_json
from topology.annotations import ANY_DOMAIN, Strength, decode_plan, pod_keys
from topology.errors import CodecError, quote

if TYPE_CHECKING:
    from extender.engine.explanation import GroupOfPod, MemberOfGroup
    from extender.groups import GroupReadings, GroupStatus
    from extender.protocol import PodRequest
    from extender.state import LiveCluster
    from topology.annotations import Plan

__all__ = ["explain_group", "warn_of_level"]

MAX_NAMED = 8
"""Members that are named."""


def warn_of_level(request: PodRequest, cluster: LiveCluster) -> tuple[str, ...]:
    """A warning where the domain that a pod's group names is no level of domains; else none."""
    wish = request.group
    if wish is None or wish.domain == ANY_DOMAIN:
        return ()
    tree = cluster.domains.tree
    if wish.domain in tree.level_names:
        return ()
    occurring = tuple(level.name for level in tree.levels)
    known = tree.level_names if occurring == (ANY_DOMAIN,) else occurring
    is_required = wish.strength is Strength.REQUIRED
    effect = "no node is in such a domain" if is_required else "it has no effect"
    text = (
        f"annotation {pod_keys.GROUP_DOMAIN} is {quote(wish.domain)}, which names no level of this "
        f"cluster's domains, so that {effect}: expected one of {', '.join(known)}"
    )
    return (text,)


def explain_group(
    request: PodRequest, groups: GroupReadings, cluster: LiveCluster, plan_text: str | None = None
) -> GroupOfPod | None:
    """The group of a pod, None where it has none; `plan_text` is its plan's."""
    plan = _plan(plan_text)
    name = request.group.name if request.group is not None else None
    if name is None and plan is not None and plan.group is not None:
        name = plan.group.name
    if name is None:
        return None
    size = None if request.group is None else request.group.size
    group = groups.status((request.namespace, name))
    plans = _plans(group, cluster)
    level, domain = group.level, group.domain
    value = group.value
    if plans:
        value = predict(plans, cluster.snapshot_of(request.resource).nodes, cluster.domains)
        level, domain = _domain(plans[0])
    is_waiting = group.reason is not None and not group.n_claimed
    size = size if group.size is None else group.size
    return {
        "name": name,
        "size": size,
        "n_here": group.n_here,
        "n_bound": len(group.bound),
        "n_missing": group.n_missing if group.n_here else size or 0,
        "reason": group.reason.value if is_waiting and group.reason else None,
        "detail": group.detail,
        "first_since_s": min((one.since_s for one in group.members), default=None),
        "complete_since_s": group.complete_s,
        "level": level or None,
        "domain": domain or None,
        **value_json(value),
        "members": _members(group, cluster),
    }


def _members(group: GroupStatus, cluster: LiveCluster) -> list[MemberOfGroup]:
    """The first of the members, those without a node first."""
    shown = [_member(one.name, one.node, is_bound=False) for one in group.members]
    bound = sorted(
        (cluster.pods.name_of(uid).partition("/")[2], node) for uid, node in group.bound.items()
    )
    shown += [_member(name, node, is_bound=True) for name, node in bound]
    return shown[:MAX_NAMED]


def _member(name: str, node: str | None, *, is_bound: bool) -> MemberOfGroup:
    return {"name": name, "node": node, "is_bound": is_bound}


def _plans(group: GroupStatus, cluster: LiveCluster) -> list[Plan]:
    """The plans of the members that have a node."""
    pods = (cluster.pods.get(uid) for uid in group.bound)
    return [pod.node_plan for pod in pods if pod is not None and pod.node_plan is not None]


def _domain(plan: Plan) -> tuple[str, str]:
    """The level and name of the domain that a plan names."""
    if plan.group is None or not plan.group.domain:
        return "", ""
    level, *path = plan.group.domain
    return level, "/".join(path)


def _plan(text: str | None) -> Plan | None:
    if text is None:
        return None
    try:
        return decode_plan(text)
    except CodecError:
        return None
