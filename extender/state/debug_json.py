"""The live state of a node as JSON, for people: what `/state` shows.

A node's machine type, and of each device which pod has it and how. It never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.state.accounting import AssignmentState

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.snapshot import NodeView
    from extender.state.accounting import Account
    from extender.state.node_record import NodeRecord

__all__ = ["node_json"]

_KEYS = {
    AssignmentState.BOUND: "planned",
    AssignmentState.ASSUMED: "assumed",
    AssignmentState.HELD: "held",
    AssignmentState.CLAIMED: "claimed",
}


def node_json(
    node: NodeRecord,
    view: NodeView,
    account: Account,
    name_of: Callable[[str], str],
) -> dict[str, object]:
    """A node: devices by what may be done with them, and what is wrong.

    `unlocated` pods have as many devices as shown, it is not known which; `contested` are devices
    of a pod's plan that others have; `lost` are devices of pods that the node no longer has.
    """
    reasons = {one.id: one.reason for one in node.report.unhealthy}
    policy, scope = node.report.policy, node.report.scope
    shown: dict[str, object] = {
        "zone": node.zone,
        "machine": view.kind.name,
        "resource": node.resource,
        "topology": None if node.machine is None else node.machine.digest,
        "free": _ids(node, view.free),
    }
    # By their first device, as the devices are listed.
    assigned = sorted(account.assignments.items(), key=lambda pair: pair[1].mask & -pair[1].mask)
    for state, key in _KEYS.items():
        shown[key] = [
            {"pod": name_of(uid), "pod_uid": uid, "ids": _ids(node, one.mask)}
            for uid, one in assigned
            if one.state is state
        ]
    return shown | {
        "unhealthy": {one: why for one, why in reasons.items() if one in node.positions},
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
        "topology_manager": {
            "policy": None if policy is None else policy.value,
            "scope": None if scope is None else scope.value,
        },
        "problems": list(node.problems),
    }


def _ids(node: NodeRecord, mask: int) -> list[str]:
    return [one for i, one in enumerate(node.ids) if mask >> i & 1]
