"""One node of the read API: what it adds to the cluster's sums, and its JSON and its pods'.

An entry belongs to a node as it was last seen and the accounts of its resources, which never
change; when others replace them there is another entry. So its JSON is made at most once, and only
when it is read. It never decides anything.

A pod is *placed* where it has devices of the node, or should have (by its plan, its binding in
flight, or what it requests): a pod that is nominated only is pending.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.read_api.bodies import (
    AssignedState,
    Figures,
    NodeBody,
    NodeGpu,
    NodeResourceBody,
    PlacedPodBody,
    PlacedState,
)
from extender.read_api.encoding import encoder
from extender.read_api.figures import UNKNOWN
from extender.read_api.placed_members import PlacedMember
from extender.read_api.sums import Sums, Tally, TallyKey
from extender.state import BY_COUNT, AssignmentState, mask_of
from topology.value import gpus_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from extender.read_api.figures import SetFigures
    from extender.snapshot import MachineType
    from extender.state import Account, NodeRecord, NodeResource, PodRecord
    from topology.annotations import ContainerPlan

__all__ = ["NodeEntry"]

STATES: dict[AssignmentState, AssignedState] = {
    AssignmentState.BOUND: "planned",
    AssignmentState.ASSUMED: "assumed",
    AssignmentState.HELD: "held",
    AssignmentState.CLAIMED: "claimed",
}
"""As `/state/nodes` names them."""
_encode_node, _encode_pod = encoder(NodeBody), encoder(PlacedPodBody)


class NodeEntry:
    """A node and its accounts, with its sums; its JSON once that was read.

    `n_pods` counts the placed pods, `members` are those of groups.
    """

    __slots__ = (
        "_figures",
        "_node_json",
        "_pods_json",
        "_pods_text",
        "accounts",
        "members",
        "n_pods",
        "node",
        "tallies",
    )

    def __init__(
        self,
        node: NodeRecord,
        accounts: Sequence[Account],
        pods: Sequence[PodRecord],
        figures: SetFigures,
    ) -> None:
        self.node = node
        self.accounts = accounts
        self._figures = figures
        self._node_json: bytes | None = None
        self._pods_json: dict[str, bytes] | None = None
        found = (_find_placed(pod, self._parts()) for pod in pods)
        placed = [pod for pod in found if pod is not None]
        self.n_pods = len({pod.full_name for pod in placed})
        self.members = tuple(one for pod in placed if (one := _member(pod)) is not None)
        self.tallies = tuple(
            _tally(part, [pod for pod in placed if pod.part == part], figures)
            for part in self._parts()
            if part.served.name
        )

    @property
    def is_listed(self) -> bool:
        """Whether lists show the node: it serves a resource, or something is wrong with it."""
        return bool(self.tallies or self.node.problems)

    @property
    def has_unhealthy(self) -> bool:
        """Whether a device is unhealthy."""
        return any(one.sums.n_unhealthy for one in self.tallies)

    def is_of(self, machine: str) -> bool:
        """Whether a resource's machine type has this name, or this digest."""
        return any(machine in {one.key.machine, one.key.topology} for one in self.tallies)

    def node_json(self, name_of: Callable[[str], str]) -> bytes:
        """The node's JSON."""
        if self._node_json is None:
            self._node_json = _encode_node(self._node(name_of))
        return self._node_json

    def pods_json(self, pods: Iterable[PodRecord]) -> Mapping[str, bytes]:
        """The JSON of each placed pod by its full name, in order; `pods` are the node's."""
        if self._pods_json is None:
            parts = self._parts()
            placed = [one for pod in pods if (one := _find_placed(pod, parts)) is not None]
            placed.sort(key=lambda one: one.full_name)
            self._pods_json = {
                one.full_name: _encode_pod(_pod(one, self._figures)) for one in placed
            }
        return self._pods_json

    def rate_of(self, pod: PodRecord) -> float | None:
        """The GB/s of a placed pod, as its JSON has it; None where it has none."""
        placed = _find_placed(pod, self._parts())
        return None if placed is None else placed.worst(self._figures)["gbytes_per_s"]

    def pods_text(self, pods: Iterable[PodRecord]) -> bytes:
        """The same as one text, commas between: most pages have all pods of a node."""
        return b",".join(self.pods_json(pods).values())

    def _parts(self) -> list[_Part]:
        return [
            _Part(self.node, served, account)
            for served, account in zip(self.node.resources, self.accounts, strict=True)
        ]

    def _node(self, name_of: Callable[[str], str]) -> NodeBody:
        node = self.node
        reasons = {one.id: one.reason for one in node.report.unhealthy}
        first, *others = (self._resource(part, reasons, name_of) for part in self._parts())
        policy, scope = node.report.policy, node.report.scope
        return {
            "name": node.name,
            "zone": node.zone,
            "is_unschedulable": node.is_unschedulable,
            "domains": [
                {"level": step.level, "family": step.family, "name": step.value}
                for step in node.path.steps
            ],
            **first,
            "topology_manager": {
                "policy": None if policy is None else policy.value,
                "scope": None if scope is None else scope.value,
            },
            "problems": list(node.problems),
            "other_resources": others,
        }

    def _resource(
        self, part: _Part, reasons: Mapping[str, str], name_of: Callable[[str], str]
    ) -> NodeResourceBody:
        key, account = part.key, part.account
        owners: dict[int, tuple[str, AssignedState]] = {
            gpu: (uid, STATES[one.state])
            for uid, one in account.assignments.items()
            for gpu in gpus_of(one.mask)
        }
        groups = {one.uid: one.key[1] for one in self.members}
        gpus: list[NodeGpu] = []
        for i, one in enumerate(part.served.ids):
            is_bad = bool(account.unhealthy >> i & 1)
            uid, state = owners.get(i, (None, None))
            gpus.append(
                {
                    "index": i,
                    "id": one,
                    "state": state or ("unhealthy" if is_bad else "free"),
                    "pod": None if uid is None else name_of(uid) or None,
                    "pod_uid": uid,
                    "group": None if uid is None else groups.get(uid),
                    "reason": reasons.get(one) if is_bad else None,
                }
            )
        return {
            "machine": key.machine,
            "topology": key.topology,
            "resource": key.resource,
            "gpus": gpus,
            "free": account.free.bit_count(),
            "best": self._figures.best(part.machine, account.free),
        }


@dataclass(frozen=True, slots=True)
class _Part:
    """A resource of a node and its account."""

    node: NodeRecord
    served: NodeResource
    account: Account

    @property
    def machine(self) -> MachineType | None:
        """The machine type; None where devices are known by count alone."""
        return None if self.account.devices_unknown else self.served.machine

    @property
    def key(self) -> TallyKey:
        is_counted = self.machine is None
        machine = BY_COUNT if is_counted and self.served.machine is not None else self.served.label
        digest = None if self.machine is None else self.machine.digest
        return TallyKey(digest, machine, self.served.name)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A placed pod: its devices of a resource as a mask, 0 where it is not known which.

    `containers` are those with devices, as far as these are known.
    """

    pod: PodRecord
    part: _Part
    state: PlacedState
    mask: int
    containers: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def full_name(self) -> str:
        return f"{self.pod.namespace}/{self.pod.name}"

    def worths(self, figures: SetFigures) -> list[tuple[str, int, Figures]]:
        """Of each container its name, its devices as a mask, and what they are worth."""
        positions = self.part.served.positions
        masks = [(name, mask_of(ids, positions)) for name, ids in self.containers]
        return [(name, mask, figures.worth(self.part.machine, mask)) for name, mask in masks]

    def worst(self, figures: SetFigures) -> Figures:
        """What its slowest container has; unknown where nothing is known, as of single GPUs."""
        known = (one for _, _, one in self.worths(figures) if one["gbytes_per_s"] is not None)
        return min(known, key=lambda one: one["gbytes_per_s"] or 0.0, default=UNKNOWN)


def _find_placed(pod: PodRecord, parts: Sequence[_Part]) -> _Placed | None:
    for part in parts:
        account, uid = part.account, pod.uid
        assigned = account.assignments.get(uid)
        if assigned is not None and assigned.state is AssignmentState.CLAIMED:
            continue
        if uid in account.devices_unknown:
            return _Placed(pod, part, "devices_unknown", 0, ())
        if assigned is not None:
            containers = _containers(pod, part)
            return _Placed(pod, part, STATES[assigned.state], assigned.mask, containers)
        if uid in account.contested or uid in account.removed:
            return _Placed(pod, part, STATES[AssignmentState.BOUND], 0, ())
    return None


def _member(placed: _Placed) -> PlacedMember | None:
    """The pod as a member of the group that its plan names."""
    pod, plan = placed.pod, placed.pod.node_plan
    if plan is None or plan.group is None:
        return None
    return PlacedMember(
        key=(pod.namespace, plan.group.name),
        uid=pod.uid,
        name=pod.name,
        rank=plan.group.rank,
        node=placed.part.node.name,
        gpus=tuple(gpus_of(placed.mask)) if placed.mask else None,
        is_bound=placed.state != STATES[AssignmentState.ASSUMED],
        plan=plan,
        path=placed.part.node.path,
        machine=placed.part.served.machine,
    )


def _containers(pod: PodRecord, part: _Part) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What it was given, else what was planned, else what the node or its status names."""
    plan = pod.node_plan
    known: Iterable[ContainerPlan] = part.account.given.get(pod.uid, ())
    if not known and plan is not None:
        known = plan.containers
    if known:
        return tuple((one.name, one.ids) for one in known)
    holds = [one for one in part.node.report.holds if one.uid == pod.uid]
    devices = () if pod.body is None else pod.body.devices
    found: dict[str, tuple[str, ...]] = {}
    for one in holds or devices:
        if not part.served.positions.keys().isdisjoint(one.ids):
            found[one.container] = found.get(one.container, ()) + one.ids
    return tuple(found.items())


def _tally(part: _Part, placed: Iterable[_Placed], figures: SetFigures) -> Tally:
    account, is_closed = part.account, part.node.is_unschedulable
    shares_gpus, valued_gpus = 0.0, 0
    for pod in placed:
        for _, mask, worth in pod.worths(figures):
            if worth["share"] is not None:
                shares_gpus += worth["share"] * mask.bit_count()
                valued_gpus += mask.bit_count()
    sums = Sums(
        n_nodes=1,
        n_gpus=len(part.served.ids),
        n_unhealthy=account.unhealthy.bit_count(),
        n_unavailable=account.free.bit_count() if is_closed else 0,
        shares_gpus=shares_gpus,
        valued_gpus=valued_gpus,
    )
    return Tally(part.key, part.machine, sums).with_free(0 if is_closed else account.free, figures)


def _pod(placed: _Placed, figures: SetFigures) -> PlacedPodBody:
    pod, part = placed.pod, placed.part
    key, ids = part.key, part.served.ids
    gpus = gpus_of(placed.mask)
    own_ids = [ids[i] for i in gpus]
    plan = pod.node_plan
    planned_ids = [] if plan is None else list(plan.ids)
    is_known = placed.state != "devices_unknown"
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "node": part.node.name,
        "machine": key.machine,
        "topology": key.topology,
        "resource": key.resource,
        "group": None if plan is None or plan.group is None else plan.group.name,
        "state": placed.state,
        "gpus": list(gpus),
        "ids": own_ids,
        **placed.worst(figures),
        "containers": [
            {
                "name": name,
                "gpus": list(gpus_of(mask)),
                "ids": [ids[i] for i in gpus_of(mask)],
                **worth,
            }
            for name, mask, worth in placed.worths(figures)
        ],
        "as_planned": set(planned_ids) == set(own_ids) if planned_ids and is_known else None,
        "planned_ids": planned_ids,
    }
