"""What `/explain` responds: the types that are built, encoded and described."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from extender.groups import GroupFigures
from extender.state import ManagerBody

__all__ = [
    "BlockedOffer",
    "BoundState",
    "ChangeOffer",
    "ContainerSet",
    "Explanation",
    "GroupOfPod",
    "LeftBehind",
    "MemberOfGroup",
    "NodeOffer",
    "NodeRefusal",
    "OfferFigures",
    "RatedNode",
    "ReasonGroup",
    "RequestSummary",
    "SecondNode",
    "SecondSet",
    "SetOffer",
    "SetRefusal",
    "SharedUplink",
    "Summary",
    "UnschedulableState",
]


class ContainerSize(TypedDict):
    """GPUs that a container requests."""

    name: str
    size: int
    role: str


class RequestSummary(TypedDict):
    """What the pod requests, and its annotations as they are understood."""

    resource: str
    size_gpus: int
    containers: list[ContainerSize]
    affinity: str
    policy: str
    min_bandwidth_gbytes_per_s: float | None
    prefer: str
    nic: str


class SharedUplink(TypedDict):
    """A PCIe switch whose uplink the set shares with GPUs in use."""

    switch_gpus: list[int]
    busy_gpus: list[int]


class ContainerSet(TypedDict):
    """A container's GPU set and its predicted all-reduce bus bandwidth."""

    name: str
    gpus: list[int]
    ids: list[str]
    gbytes_per_s: float
    loss: float
    satisfies_affinity: bool
    limited_by: str
    shared_uplinks: list[SharedUplink]


class LeftBehind(TypedDict):
    """What the node could still offer afterwards; best bandwidth by size."""

    free_gpus: int
    remainder_cost_gpus: float
    best_gbytes_per_s: dict[str, float]


class SetOffer(TypedDict):
    """The sets that a node offers; null where devices go by count."""

    fits: Literal[True]
    containers: list[ContainerSet] | None


class SetRefusal(TypedDict):
    """Why a node offers no set."""

    fits: Literal[False]
    reason: str
    reason_label: str
    reason_short: str
    detail: str


class RatedNode(TypedDict):
    """A node; without `topology_manager` its kubelet confines no pod."""

    node: str
    zone: str | None
    machine: str
    free_gpus: int
    gpu_worth: float
    topology_manager: NotRequired[ManagerBody]


class NodeOffer(RatedNode, SetOffer):
    """An offer, its place among all nodes, and its score."""

    place: int
    score: int
    left_behind: LeftBehind | None


class NodeRefusal(RatedNode, SetRefusal):
    """A node that cannot take the pod."""


class OfferFigures(TypedDict):
    """A set: GB/s and share 0..1 of the machine's best, of the slowest container.

    Null: `gpus` where devices go by count, figures where no container has two GPUs.
    """

    gpus: list[int] | None
    gbytes_per_s: float | None
    share: float | None


class SummaryOffer(OfferFigures):
    """A set on a node."""

    node: str


class BlockedOffer(SummaryOffer):
    """What the pod would get once these pods (`namespace/name`) have ended."""

    when_ended: list[str]
    gpus_freed: int


class ReasonGroup(TypedDict):
    """The nodes that do not fit for one reason; `nearest` is null where no three pods suffice.

    `reason_short` is for tables. `lacks` is what machines lack on which the pod never fits.
    """

    reason: str
    reason_label: str
    reason_short: str
    lacks: str | None
    sentence: str
    n: int
    nearest: BlockedOffer | None


class ChangeOffer(SummaryOffer):
    """What the pod would get now with this change of its annotations."""

    change: str


class SecondNode(SummaryOffer):
    """The node that comes second, its sets, and why it does; sets are null where devices count."""

    containers: list[ContainerSet] | None
    why: str


class SecondSet(TypedDict):
    """The best set of a node's free GPUs other than the chosen one, and why it is not that one.

    `is_better` where it would be chosen now, and the pod has another. `decided_by` is the key of
    the order as in `coterie-topology best`. Figures are null for one GPU.
    """

    node: str
    container: str
    gpus: list[int]
    ids: list[str]
    gbytes_per_s: float | None
    share: float | None
    limited_by: str
    is_better: bool
    decided_by: str
    why: str


_Try = TypedDict("_Try", {"try": ChangeOffer | None})


class Summary(_Try):
    """What an explanation comes down to; `try` only where no node fits.

    `runner_up_set` is of the node that comes first. It is null where the pod's GPUs are in several
    containers, where the kubelet confines sets, and where no other set was compared.
    """

    n_nodes: int
    n_fit: int
    groups: list[ReasonGroup]
    runner_up: SecondNode | None
    runner_up_set: SecondSet | None


class UnschedulableState(TypedDict):
    """Why and since when filter has rejected the pod; times are the engine's, in seconds.

    `n_requeues` begins again at 1 when the pod is requeued for a node for which it was not before.
    """

    reason: str
    reason_label: str
    since_s: float
    last_filtered_s: float
    n_requeues: int


class DeviceOfPod(TypedDict):
    """A device that the pod has."""

    id: str
    state: str


class BoundState(TypedDict):
    """A bound pod: its plan, its devices, and what its node would offer it now.

    `runner_up_set` is null as in `Summary`, and where a device of the pod is unhealthy.
    """

    node: str
    machine: str | None
    plan: str | None
    devices: list[DeviceOfPod]
    has_what_was_planned: bool | None
    containers: list[ContainerSet] | None
    could_have: SetOffer | SetRefusal | None
    runner_up_set: SecondSet | None


class MemberOfGroup(TypedDict):
    """A member; `node` is the one that it is on or that is claimed for it."""

    name: str
    node: str | None
    is_bound: bool


class GroupOfPod(GroupFigures):
    """The pod's group: how many members there are, why they wait, and what its GPUs are worth.

    `size` is null where no member waits for others. `reason` is why its members have no node, with
    the counts in `detail`; null where they have one, or devices are claimed for them. Times are the
    engine's, in seconds: since when the first member without a node is there, and since when none
    is missing. `level` and `domain` are those of the nodes of all members. Figures are all-reduce
    bus bandwidth in GB/s over the nodes that members are on, or that are claimed; `least` is less
    the stated error, which `coterie.gpu/min-bandwidth` is compared with; null where unknown.
    `members` are the first 8, those without a node first.
    """

    name: str
    size: int | None
    n_here: int
    n_bound: int
    n_missing: int
    reason: str | None
    detail: str
    first_since_s: float | None
    complete_since_s: float | None
    level: str | None
    domain: str | None
    members: list[MemberOfGroup]


@with_config(defer_build=True)
class Explanation(TypedDict):
    """Every node in the order of preference; for a bound pod `bound` instead of `nodes`.

    `not_considered` are sentences about what the pod requires of nodes and is not known of some
    that count as allowed; absent where there is none.
    """

    pod: str
    uid: str
    generation: int
    warnings: list[str]
    request: RequestSummary | None
    unschedulable: NotRequired[UnschedulableState]
    summary: NotRequired[Summary]
    nodes: NotRequired[list[NodeOffer | NodeRefusal]]
    not_considered: NotRequired[list[str]]
    bound: NotRequired[BoundState]
    group: NotRequired[GroupOfPod]
