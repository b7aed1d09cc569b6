"""The answer of a what-if as its body: where each pod goes, and the capacity before and after.

Capacity has the definitions of `/api/v1/capacity`: the sums are the cluster's, corrected by the
nodes that the simulation changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.allowed_nodes import unknown_labels
from extender.groups import value_json
from extender.read_api.figures import UNKNOWN, by_size, set_figures
from extender.read_api.sums import Sums, Tally, TallyKey
from topology.annotations import ANY_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.read_api.bodies import ContainerBody
    from extender.read_api.cluster_table import Cluster
    from extender.read_api.figures import SetFigures
    from extender.read_api.what_if.bodies import CapacityAfter, PlacedGroupBody, PlacementBody
    from extender.snapshot import NodeView
    from extender.what_if import SimulatedGroup, SimulatedPlacement
    from topology.groups import GroupValue
    from topology.select import Selected

__all__ = [
    "capacity",
    "group_body",
    "not_considered",
    "of_groups",
    "placement_body",
    "sums_after",
]

NOT_CONSIDERED: tuple[str, ...] = (
    "CPU, memory, volumes and other resources than GPUs",
    "taints, other than that nodes with PreferNoSchedule come after equal ones without",
    "preferred node affinity, affinity between pods and topology spread constraints",
    "pods that wait already, and evictions for the sake of pods with a higher priority",
)
OF_DRAINS = "disruption budgets, and whether a drain would leave a DaemonSet's pods in place"
OF_LONE_MEMBERS = (
    "groups without a size, or of evicted pods of which it is not known: their members are placed "
    "one by one, each where it fits, near the others or not"
)
OF_CONTROLLERS = (
    "groups that are inferred from what a controller writes on its pods, or from another object "
    "(Job, JobSet, LeaderWorkerSet, PodGroup): their members are placed one by one too"
)
OF_OTHERS = (
    "how many members of a group have no GPUs, where its size counts them: those that are missing "
    "here are taken for such"
)
OF_ARRIVAL = (
    "that members of a group that runs, and those beyond its size, may come one after the other: "
    "here all come together"
)
OF_ADDED = "where added nodes are in the network: no domain has them"
UNRATED = "how good the sets of some nodes are: there were too many to rate"


def placement_body(one: SimulatedPlacement) -> PlacementBody:
    """Where a pod goes."""
    view, fit, request = one.view, one.fit, one.pod.request
    containers: list[ContainerBody] = []
    if view is not None and fit is not None and request is not None:
        by_position = dict(fit.containers)
        chosen = [by_position[str(i)] for i in range(len(request.containers))]
        containers = [
            _container(view, name, selected)
            for name, selected in zip(request.containers, chosen, strict=True)
        ]
    joined = [container for container in containers if container["gbytes_per_s"] is not None]
    worst = min(joined, key=lambda container: container["gbytes_per_s"] or 0.0, default=UNKNOWN)
    return {
        "pod": one.pod.full_name,
        "group": one.group,
        "is_evicted": one.pod.is_evicted,
        "node": None if view is None else view.name,
        "machine": None if view is None else view.node_class.name,
        "containers": containers,
        "gbytes_per_s": worst["gbytes_per_s"],
        "share": worst["share"],
        "n_fit": one.n_fit,
        "reason": one.reason,
        "reasons": [
            {
                "reason": group.reason.value,
                "reason_label": group.reason.label,
                "reason_short": group.reason.short(None if request is None else request.shape),
                "n_nodes": group.n_nodes,
            }
            for group in one.refused
        ],
        "assumed": one.pod.assumed,
        "is_selector_known": one.pod.is_selector_known,
        "now_gbytes_per_s": one.pod.now_gbytes_per_s,
    }


def group_body(one: SimulatedGroup) -> PlacedGroupBody:
    """Where a group goes, or why it does not start."""
    place = one.place
    has_domain = place.level not in {"", ANY_DOMAIN}
    return {
        "group": one.group.name,
        "size": one.group.size,
        "n_members": len(one.members),
        "n_placed": len(place.plans),
        "n_bound": one.group.n_bound,
        "n_without_gpus": one.group.n_others,
        "level": place.level if has_domain else None,
        "domain": place.domain if has_domain else None,
        **value_json(place.value),
        "reason": None if place.reason is None else place.reason.value,
        "reason_label": None if place.reason is None else place.reason.label,
        "reason_short": None if place.reason is None else place.reason.short(),
        "detail": place.detail or _unknown(place.value),
    }


def _unknown(value: GroupValue | None) -> str:
    """Why no bandwidth is predicted; empty where one is, or no node's machine is known."""
    return "" if value is None or value.reason is None else value.reason.value


def _container(view: NodeView, name: str, selected: Selected) -> ContainerBody:
    return {
        "name": name,
        "gpus": list(selected.gpus),
        "ids": [view.ids[gpu] for gpu in selected.gpus],
        **set_figures(selected),
    }


def sums_after(
    cluster: Cluster,
    *,
    added: Sequence[NodeView],
    drained: Iterable[str],
    taken: Mapping[tuple[str, str], int],
    figures: SetFigures,
) -> Mapping[TallyKey, Sums]:
    """The cluster's sums with nodes added and others drained, and these devices taken."""
    sums = dict(cluster.sums)

    def change(tally: Tally, sign: int) -> None:
        sums[tally.key] = sums.get(tally.key, Sums()).changed(tally.sums, sign)

    gone = frozenset(drained)
    for name in gone:
        for tally in cluster.entries[name].tallies:
            change(tally, -1)
    new = {view.name: view for view in added}
    for name, view in new.items():
        used = taken.get((name, view.node_class.resource), 0)
        change(_new_tally(view, view.free & ~used, figures), 1)
    for (name, resource), used in taken.items():
        if name in new:
            continue
        entry = cluster.entries[name]
        for tally, account in zip(entry.tallies, entry.accounts, strict=False):
            if tally.key.resource == resource:
                change(tally, -1)
                change(tally.with_free(account.free & ~used, figures), 1)
    return sums


def _new_tally(view: NodeView, free: int, figures: SetFigures) -> Tally:
    kind = view.node_class
    digest = None if kind.machine is None else kind.machine.digest
    key = TallyKey(digest, kind.name, kind.resource)
    empty = Tally(key, kind.machine, Sums(n_nodes=1, n_gpus=len(view.ids)))
    return empty.with_free(free, figures)


def capacity(keys: Iterable[TallyKey], sums: Mapping[TallyKey, Sums]) -> list[CapacityAfter]:
    """The sums of these machine types, in their order; zero where there is no node."""
    return [
        {
            "topology": key.topology,
            "machine": key.machine,
            "resource": key.resource,
            "nodes": one.n_nodes,
            "gpus": one.n_gpus,
            "free": one.n_free,
            "placeable": by_size(one.placeable),
            "stranded": one.n_stranded,
        }
        for key in keys
        for one in [sums.get(key, Sums())]
    ]


def of_groups(
    placed: Sequence[SimulatedGroup],
    *,
    has_lone_members: bool,
    has_controllers: bool,
    has_added: bool,
) -> list[str]:
    """What is not considered of groups; `placed` are those that were placed as a whole.

    `has_lone_members`: pods of groups were placed one by one. `has_controllers`: groups are
    inferred from what manifests do not have. `has_added`: nodes were added.
    """
    is_any_late = any(len(one.members) > one.group.n_needed or one.group.near for one in placed)
    said = {
        OF_OTHERS: any(one.group.n_others for one in placed),
        OF_ARRIVAL: is_any_late,
        OF_LONE_MEMBERS: has_lone_members,
        OF_CONTROLLERS: has_controllers,
        OF_ADDED: has_added and bool(placed),
    }
    return [sentence for sentence, is_so in said.items() if is_so]


def not_considered(
    *, groups: Iterable[str], is_drained: bool, unknown: Iterable[str], has_unrated: bool
) -> list[str]:
    """What is considered beside; `groups` is `of_groups`, `unknown` labels of nodes."""
    sentences = [*NOT_CONSIDERED, *groups, *unknown_labels(unknown)]
    if is_drained:
        sentences.append(OF_DRAINS)
    if has_unrated:
        sentences.append(UNRATED)
    return sentences
