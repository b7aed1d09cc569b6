"""The live state of a node as JSON, for people.

What it answers: what `/state` shows of a node: its machine type, and of each device who has it and
how, by the words of the ledger's states. It never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.state.transitions import DeviceState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from extender.snapshot import NodeView
    from extender.state.accounting import Account
    from extender.state.node_record import NodeRecord

__all__ = ["node_json"]

_TENURES = {
    DeviceState.CLAIMED: "claimed",
    DeviceState.ASSUMED: "assumed",
    DeviceState.ASSUMED_UNHEALTHY: "assumed",
    DeviceState.BOUND: "planned",
    DeviceState.BOUND_UNHEALTHY: "planned",
    DeviceState.HELD: "held",
    DeviceState.HELD_UNHEALTHY: "held",
}


def node_json(
    node: NodeRecord,
    view: NodeView,
    note: Account | None,
    states: Iterable[tuple[str, DeviceState, str | None]],
    name_of: Callable[[str], str],
) -> dict[str, object]:
    """A node: devices by what may be done with them, and what is wrong.

    `unlocated` pods have as many devices as said, nobody knows which; `contested` are devices of a
    pod's plan that others have.
    """
    owned: dict[str, dict[str, list[str]]] = {
        tenure: {} for tenure in ("planned", "assumed", "held", "claimed")
    }
    for one, state, owner in states:
        if owner is not None:
            owned[_TENURES[state]].setdefault(owner, []).append(one)
    reasons = {one.id: one.reason for one in node.report.unhealthy}
    policy, scope = node.report.policy, node.report.scope
    shown: dict[str, object] = {
        "zone": node.zone,
        "machine": view.kind.name,
        "resource": node.resource,
        "topology": None if node.machine is None else node.machine.digest,
        "free": [one for i, one in enumerate(node.ids) if view.free >> i & 1],
    }
    for tenure, pods in owned.items():
        shown[tenure] = [
            {"pod": name_of(uid), "pod_uid": uid, "ids": ids} for uid, ids in pods.items()
        ]
    unlocated = {} if note is None else note.unlocated
    contested = {} if note is None else note.contested
    return shown | {
        "unhealthy": {one: why for one, why in reasons.items() if one in node.positions},
        "unlocated": [
            {"pod": name_of(uid), "pod_uid": uid, "devices": n} for uid, n in unlocated.items()
        ],
        "contested": [
            {"pod": name_of(uid), "pod_uid": uid, "devices": mask.bit_count()}
            for uid, mask in contested.items()
        ],
        "topology_manager": {
            "policy": None if policy is None else policy.value,
            "scope": None if scope is None else scope.value,
        },
        "problems": list(node.problems),
    }
