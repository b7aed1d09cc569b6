"""The live state of a node as JSON, for people: what `/state` shows.

A node's machine type, and of each device which pod has it and how. It never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.state.accounting import AssignmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from extender.snapshot import NodeView
    from extender.state.accounting import Account
    from extender.state.node_record import NodeRecord, NodeResource

__all__ = ["node_json"]

_KEYS = {
    AssignmentState.BOUND: "planned",
    AssignmentState.ASSUMED: "assumed",
    AssignmentState.HELD: "held",
    AssignmentState.CLAIMED: "claimed",
}


def node_json(
    node: NodeRecord,
    views: Sequence[NodeView],
    accounts: Sequence[Account],
    name_of: Callable[[str], str],
) -> dict[str, object]:
    """A node: devices by what may be done with them, and what is wrong.

    `views` and `accounts` are those of its resources. The first resource's members are the node's
    own, each further resource has the same ones in `other_resources`.

    `unlocated` pods have as many devices as shown, it is not known which; `contested` are devices
    of a pod's plan that others have; `lost` are devices of pods that the node no longer has.
    """
    reasons = {one.id: one.reason for one in node.report.unhealthy}
    policy, scope = node.report.policy, node.report.scope
    first, *others = (
        _resource_json(served, view, account, reasons, name_of)
        for served, view, account in zip(node.resources, views, accounts, strict=True)
    )
    return {
        "zone": node.zone,
        **first,
        "other_resources": others,
        "topology_manager": {
            "policy": None if policy is None else policy.value,
            "scope": None if scope is None else scope.value,
        },
        "problems": list(node.problems),
    }


def _resource_json(
    served: NodeResource,
    view: NodeView,
    account: Account,
    reasons: Mapping[str, str],
    name_of: Callable[[str], str],
) -> dict[str, object]:
    shown: dict[str, object] = {
        "machine": view.kind.name,
        "resource": served.name,
        "topology": None if served.machine is None else served.machine.digest,
        "free": _ids(served, view.free),
    }
    # By their first device, as the devices are listed.
    assigned = sorted(account.assignments.items(), key=lambda pair: pair[1].mask & -pair[1].mask)
    for state, key in _KEYS.items():
        shown[key] = [
            {"pod": name_of(uid), "pod_uid": uid, "ids": _ids(served, one.mask)}
            for uid, one in assigned
            if one.state is state
        ]
    return shown | {
        "unhealthy": {one: why for one, why in reasons.items() if one in served.positions},
        "unlocated": [
            {"pod": name_of(uid), "pod_uid": uid, "devices": n}
            for uid, n in account.unlocated.items()
        ],
        "contested": [
            {"pod": name_of(uid), "pod_uid": uid, "devices": mask.bit_count()}
            for uid, mask in account.contested.items()
        ],
        "lost": [
            {"pod": name_of(uid), "pod_uid": uid, "ids": list(ids)}
            for uid, ids in account.lost.items()
        ],
    }


def _ids(served: NodeResource, mask: int) -> list[str]:
    return [one for i, one in enumerate(served.ids) if mask >> i & 1]
