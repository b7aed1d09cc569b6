"""What the read API's routes respond: the types that are built, encoded and described.

`extender.read_api.encoding` encodes them, and FastAPI describes them. Rates are GB/s (predicted
all-reduce bus bandwidth), shares are 0..1 of the empty machine's best set of that size, times Unix
seconds, GPUs indices in device order. A machine type is named by the digest of its topology; null
where devices are known by count alone. pydantic makes the schema of a type that a route describes
when the description is first asked for (`defer_build`; 0.16 to 0.27 s then, where it was 0.1 to
0.2 s, and 0.1 s less of each start).
"""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import with_config
from typing_extensions import TypedDict  # typing's own lacks what pydantic needs before 3.12

from extender.engine.explanation import BlockedOffer
from extender.state import ManagerBody

__all__ = [
    "AssignedState",
    "CapacityBody",
    "ClusterBody",
    "ContainerBody",
    "Figures",
    "FreeSet",
    "ListPage",
    "MachineBody",
    "MachineCount",
    "MachineLink",
    "MachineParts",
    "MachineScene",
    "NodeBody",
    "NodeGpu",
    "NodeResourceBody",
    "PendingGroup",
    "PendingPod",
    "PendingRequest",
    "PlacedPodBody",
    "PlacedState",
    "SectorKind",
    "SizeKey",
    "WaitingBody",
    "WouldFitBody",
]


T = TypeVar("T")

SizeKey: TypeAlias = Literal["2", "4", "8"]
"""A size of sets (`extender.read_api.figures.SIZES`) as a key of JSON."""


@with_config(defer_build=True)
class ClusterBody(TypedDict):
    """Sums over the cluster; `gpus_stranded` are free and can form no set of four.

    `gpus_unavailable` would be free, but their nodes take no new pod: they are cordoned, not ready,
    unreachable or under pressure.
    """

    generation: int
    is_ready: bool
    version: str
    at_unix_s: float
    n_nodes: int
    gpus: int
    gpus_free: int
    gpus_stranded: int
    gpus_unhealthy: int
    gpus_unavailable: int
    pods_placed: int
    pods_pending: int


_Next = TypedDict("_Next", {"continue": str | None})


@with_config(defer_build=True)
class ListPage(_Next, Generic[T]):
    """A page. `continue` is for the query of the next one, null on the last."""

    generation: int
    items: list[T]
    remaining: int


class MachineGpu(TypedDict):
    """A GPU of a machine type."""

    index: int
    model: str | None
    numa_node: int | None


class MachineNic(TypedDict):
    """A NIC; `pcie` are its levels to the GPUs as `nvidia-smi topo -m` names them.

    `gbit_per_s` is the rate of its link; null where it is unknown or no link is up.
    """

    name: str
    numa_node: int | None
    is_rdma: bool | None
    gbit_per_s: float | None
    pcie: list[str | None]


class MachineLink(TypedDict):
    """A pair: `label` is its accelerator link, else its PCIe level; GB/s those of the pair."""

    a: int
    b: int
    label: str | None
    pcie: str | None
    gbytes_per_s: float | None


class SceneNic(TypedDict):
    """A NIC's place."""

    label: str
    x: float
    y: float
    angle_deg: float


SectorKind: TypeAlias = Literal["pix", "pxb", "host"]


class SceneSector(TypedDict):
    """A ring sector around the GPUs of one PCIe switch, tree of switches or NUMA node."""

    kind: SectorKind
    label: str | None
    inner: float
    outer: float
    start_deg: float
    end_deg: float


class MachineScene(TypedDict):
    """Places in inches from the middle, y up: `gpus` in order, `hubs` are switch fabrics."""

    extent: float
    gpu_radius: float
    gpus: list[tuple[float, float]]
    hubs: list[tuple[float, float]]
    nics: list[SceneNic]
    sectors: list[SceneSector]


class MachineParts(TypedDict):
    """What a machine is made of. Null: NICs that no node reports; links of more than 72 GPUs."""

    gpus: list[MachineGpu]
    nics: list[MachineNic] | None
    links: list[MachineLink] | None
    best_gbytes_per_s: dict[SizeKey, float] | None
    scene: MachineScene | None


class MachineCount(TypedDict):
    """A machine type by its digest and name, and how many nodes have it."""

    topology: str
    machine: str
    nodes: int


class MachineBody(MachineCount, MachineParts):
    """A machine type and how many nodes have it."""


AssignedState: TypeAlias = Literal["planned", "assumed", "held", "claimed"]


class NodeGpu(TypedDict):
    """A device; `reason` is why it is unhealthy, also while a pod has it.

    `group` is the name of its pod's group, which is in the pod's namespace.
    """

    index: int
    id: str
    state: Literal["free", "unhealthy"] | AssignedState
    pod: str | None
    pod_uid: str | None
    group: str | None
    reason: str | None


class FreeSet(TypedDict):
    """The best free set of a size."""

    gpus: list[int]
    gbytes_per_s: float
    share: float


class NodeResourceBody(TypedDict):
    """A resource of a node. `best` is null where sets have no table (over 16 unequal GPUs)."""

    machine: str
    topology: str | None
    resource: str
    gpus: list[NodeGpu]
    free: int
    best: dict[SizeKey, FreeSet] | None


class NodeDomain(TypedDict):
    """A network domain; `family` are the labels that say it: other families' are never the same."""

    level: str
    family: str
    name: str


@with_config(defer_build=True)
class NodeBody(NodeResourceBody):
    """A node by its first resource, and the others that it serves.

    `is_unschedulable`: it takes no new pod (cordoned, not ready, unreachable, under pressure).
    `domains` are those that it is known to be in, the nearest first: a domain is its name and all
    names after it.
    """

    name: str
    zone: str
    is_unschedulable: bool
    domains: list[NodeDomain]
    topology_manager: ManagerBody
    problems: list[str]
    other_resources: list[NodeResourceBody]


class Figures(TypedDict):
    """What a set is worth; null for one GPU and where it is unknown."""

    gbytes_per_s: float | None
    share: float | None
    limited_by: str | None


class SetBody(Figures):
    """GPUs and what they are worth together."""

    gpus: list[int]
    ids: list[str]


class ContainerBody(SetBody):
    """The GPUs of a container."""

    name: str


PlacedState: TypeAlias = AssignedState | Literal["devices_unknown"]


@with_config(defer_build=True)
class PlacedPodBody(SetBody):
    """A placed pod; its figures are those of its slowest container.

    `group` is the name of its group, null where its plan names none. `as_planned` is null where
    nothing was planned or it is not known what the pod has (`devices_unknown`).
    """

    namespace: str
    name: str
    uid: str
    node: str
    machine: str
    topology: str | None
    resource: str
    group: str | None
    state: PlacedState
    containers: list[ContainerBody]
    as_planned: bool | None
    planned_ids: list[str]


class PendingContainerBody(TypedDict):
    """GPUs that a container requests."""

    name: str
    size: int


class PendingGroup(TypedDict):
    """The group of a pod: how many members there must be, null where they do not wait for others.

    `n_here` are those that exist, and `n_bound` those of them that have a node.
    """

    name: str
    size: int | None
    n_here: int
    n_bound: int


class PendingRequest(TypedDict):
    """What a pending pod requests; null where its request is invalid."""

    resource: str | None
    size_gpus: int | None
    containers: list[PendingContainerBody]
    affinity: str | None
    policy: str | None
    min_bandwidth_gbytes_per_s: float | None


class WaitingBody(PendingRequest):
    """A pod that filter rejected.

    Also one that kube-scheduler offers no node for (`reason_label` is `not_offered`), with the
    scheduler's message in `reason`; `last_filtered_unix_s` is null then.
    """

    namespace: str
    name: str
    uid: str
    group: PendingGroup | None
    reason: str
    reason_label: str
    reason_short: str
    since_unix_s: float
    last_filtered_unix_s: float | None


class WouldFitBody(TypedDict):
    """Whose end would make room.

    `would_fit` is null where some node fits now, so that the pod waits for its next try or for
    something else, where no three pods of a node suffice, and beyond 8 shapes of pods of a page.
    """

    would_fit: BlockedOffer | None


class PendingPod(WaitingBody, WouldFitBody):
    """A pod that waits, why, and whose end would make room for it."""


class MachineCapacity(TypedDict):
    """What is free of a machine type. Sets within 10 % of the machine's best count as placeable.

    `unavailable` GPUs would be free, but their nodes take no new pod.
    `stranded` GPUs are free on nodes where no set of four is placeable (of two, where they have
    fewer than four GPUs). `efficiency` is the mean share of pods of two or more GPUs, by GPU.
    """

    topology: str | None
    machine: str
    resource: str
    nodes: int
    gpus: int
    free: int
    unhealthy: int
    unavailable: int
    placeable: dict[SizeKey, int]
    stranded: int
    stranded_since_unix_s: float | None
    efficiency: float | None


@with_config(defer_build=True)
class CapacityBody(TypedDict):
    """Capacity by machine type."""

    generation: int
    machines: list[MachineCapacity]
