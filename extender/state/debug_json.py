"""The live state of the nodes as JSON, for people: what `/state/nodes` shows.

A node's machine type, and of each device which pod has it and how. It never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import with_config
from typing_extensions import TypedDict

from extender.state.accounting import AssignmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from extender.snapshot import NodeView
    from extender.state.accounting import Account
    from extender.state.moment import StateMoment
    from extender.state.node_record import NodeRecord, NodeResource

__all__ = ["ManagerBody", "NodesState", "nodes_state"]


class ManagerBody(TypedDict):
    """The kubelet's Topology Manager; null where the node does not report it."""

    policy: str | None
    scope: str | None


class OwnedDevices(TypedDict):
    """Devices of a pod."""

    pod: str
    pod_uid: str
    ids: list[str]


class CountedDevices(TypedDict):
    """A number of devices of a pod."""

    pod: str
    pod_uid: str
    devices: int


class ResourceJson(TypedDict):
    """A resource of a node: its devices by what may be done with them, and what is wrong.

    `topology` is the digest of the machine type. Pods in `devices_unknown` have that many devices,
    and which ones is not known; `contested` counts devices of a pod's plan that others have;
    `removed` are devices of pods that the node no longer has.
    """

    machine: str
    resource: str
    topology: str | None
    free: list[str]
    planned: list[OwnedDevices]
    assumed: list[OwnedDevices]
    held: list[OwnedDevices]
    claimed: list[OwnedDevices]
    unhealthy: dict[str, str]
    devices_unknown: list[CountedDevices]
    contested: list[CountedDevices]
    removed: list[OwnedDevices]


class NodeJson(ResourceJson):
    """A node: its first resource, and the others that it serves beside it."""

    zone: str | None
    other_resources: list[ResourceJson]
    topology_manager: ManagerBody
    problems: list[str]


@with_config(defer_build=True)
class NodesState(TypedDict):
    """Every node by name."""

    generation: int
    is_synced: bool
    nodes: dict[str, NodeJson]


def nodes_state(
    moment: StateMoment, name_of: Callable[[str], str], *, is_synced: bool
) -> NodesState:
    """Every node: devices by what may be done with them, and what is wrong."""
    nodes = {name: _node_json(node, moment, name_of) for name, node in moment.nodes.items()}
    return {"generation": moment.generation, "is_synced": is_synced, "nodes": nodes}


def _node_json(node: NodeRecord, moment: StateMoment, name_of: Callable[[str], str]) -> NodeJson:
    reasons = {one.id: one.reason for one in node.report.unhealthy}
    policy, scope = node.report.policy, node.report.scope
    first, *others = (
        _resource_json(
            served,
            moment.snapshots[moment.key(served.name)].nodes[node.name],
            account,
            reasons,
            name_of,
        )
        for served, account in zip(node.resources, moment.accounts[node.name], strict=True)
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
) -> ResourceJson:
    # By their first device, as the devices are listed.
    assigned = sorted(account.assignments.items(), key=lambda pair: pair[1].mask & -pair[1].mask)

    def owned(state: AssignmentState) -> list[OwnedDevices]:
        return [
            {"pod": name_of(uid), "pod_uid": uid, "ids": _ids(served, one.mask)}
            for uid, one in assigned
            if one.state is state
        ]

    def counted(counts: Iterable[tuple[str, int]]) -> list[CountedDevices]:
        return [{"pod": name_of(uid), "pod_uid": uid, "devices": n} for uid, n in counts]

    return {
        "machine": view.node_class.name,
        "resource": served.name,
        "topology": None if served.machine is None else served.machine.digest,
        "free": _ids(served, view.free),
        "planned": owned(AssignmentState.BOUND),
        "assumed": owned(AssignmentState.ASSUMED),
        "held": owned(AssignmentState.HELD),
        "claimed": owned(AssignmentState.CLAIMED),
        "unhealthy": {one: why for one, why in reasons.items() if one in served.positions},
        "devices_unknown": counted(account.devices_unknown.items()),
        "contested": counted((uid, mask.bit_count()) for uid, mask in account.contested.items()),
        "removed": [
            {"pod": name_of(uid), "pod_uid": uid, "ids": list(ids)}
            for uid, ids in account.removed.items()
        ],
    }


def _ids(served: NodeResource, mask: int) -> list[str]:
    return [one for i, one in enumerate(served.ids) if mask >> i & 1]
