"""The group of a pod: by Coterie's own keys, else by those of the kinds that may be inferred.

What it answers: group, rank, and warnings. Own keys win. The other kinds are read only where the
setting `group_kinds` names them. They say both name and size on each pod; their size counts pods
without GPUs too (`GroupWish.counts_all`).

A LeaderWorkerSet's replicas have one template, so a name in it would make one group of all: where
the stated size is no more than a replica has pods, each replica is a group of its own.

Members that are created one after the other, each when the one before it runs, would wait for ever:
such a pod's group is never inferred, and own keys with a size make a warning. A group that
Kubernetes itself waits for (`spec.schedulingGroup`) has no size here: kube-scheduler calls filter
in simulations then, and what waits or claims would break them. It is always read, since it is on
a pod only where Kubernetes places it so.

Keys: Kueue@ff69552e79, Koordinator@a7a1b76b, YuniKorn's documentation of gang scheduling,
LeaderWorkerSet@060ab4d. It knows no other pod and no node.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from topology.annotations import ANY_DOMAIN, GroupWish, Strength, parse_group, pod_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from extender.protocol.messages import WirePod

__all__ = [
    "GROUP_KINDS",
    "GROUP_MARKS",
    "PodGroup",
    "has_group",
    "inferred_group",
    "read_group",
]

_MAX_SIZE = 9999
"""As of `coterie.gpu/group-size`."""

_KUEUE_NAME = "kueue.x-k8s.io/pod-group-name"
_KUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"
_KUEUE_ONE_BY_ONE = "kueue.x-k8s.io/pod-group-fast-admission"
_GANG_NAME = "gang.scheduling.koordinator.sh/name"
_GANG_SIZE = "gang.scheduling.koordinator.sh/min-available"
_TASK_GROUP = "yunikorn.apache.org/task-group-name"
_TASK_GROUPS = "yunikorn.apache.org/task-groups"
_APPLICATIONS = "applicationId", "yunikorn.apache.org/app-id"
_LWS_KEY = "leaderworkerset.sigs.k8s.io/group-key"
_LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
_LWS_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_STATEFUL_SET = "StatefulSet"

_POD_GROUP = "podgroup"
_SCHEDULING_GROUP = "schedulingGroup"

_RANKS = (
    ("", "kueue.x-k8s.io/pod-group-pod-index"),
    ("jobset.sigs.k8s.io/job-global-index", "batch.kubernetes.io/job-completion-index"),
    ("", "jobset.sigs.k8s.io/job-global-index"),
    ("", "training.kubeflow.org/replica-index"),
    ("", "leaderworkerset.sigs.k8s.io/worker-index"),
    ("ray.io/worker-group-replica-index", "ray.io/replica-host-index"),
    ("", "apps.kubernetes.io/pod-index"),
)
"""Labels with a pod's place among its like, and that of the like among theirs.

Kueue's pod groups, JobSet and Indexed Job, Kubeflow, LeaderWorkerSet, KubeRay (multi-host), and
StatefulSet, whose label a LeaderWorkerSet's pods have too (k8s.io/api v0.36.3; kueue@ff69552e79;
jobset@08dfbdfd; training-operator v1.9.3; lws@060ab4d; kuberay@feeaf72fa).
"""
_PER_OUTER = 10_000
"""A pod's rank is its index, and so much for each of the outer index: more than a group's size."""
_ROLE = "training.kubeflow.org/replica-type"
_AFTER_MASTER = "worker"
"""A PyTorchJob's workers count from 0 as its master does, which has rank 0 in the job."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """What a pod says of its group. `wish` is None without one, `rank` None without an index."""

    wish: GroupWish | None = None
    rank: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Marks:
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def wish(self, kind: str, name: str | None, size: str | int | None) -> GroupWish | None:
        """A group of one of the kinds; None where name or size say none."""
        text = str(size)
        if not name or not text.isdecimal() or not 1 <= int(text) <= _MAX_SIZE:
            return None
        return GroupWish(f"{kind}/{name}", int(text), counts_all=True)


def _kueue(marks: _Marks) -> GroupWish | None:
    """Plain pods; those that Kueue admits before all are there may come one by one."""
    if _KUEUE_ONE_BY_ONE in marks.annotations:
        return None
    return marks.wish("kueue", marks.labels.get(_KUEUE_NAME), marks.annotations.get(_KUEUE_COUNT))


def _koordinator(marks: _Marks) -> GroupWish | None:
    texts = marks.annotations
    return marks.wish("koordinator", texts.get(_GANG_NAME), texts.get(_GANG_SIZE))


def _yunikorn(marks: _Marks) -> GroupWish | None:
    """A task group of an application; pods without the list of task groups have no size."""
    name = marks.annotations.get(_TASK_GROUP)
    if name is None:
        return None
    sizes = _task_groups(marks.annotations.get(_TASK_GROUPS, ""))
    texts = {**marks.annotations, **marks.labels}
    application = next((texts[key] for key in _APPLICATIONS if key in texts), "")
    full_name = f"{application}/{name}" if application else name
    return marks.wish("yunikorn", full_name, sizes.get(name))


def _task_groups(text: str) -> Mapping[str, int]:
    """The least number of members of each task group; none for what is no such list."""
    try:
        content: object = json.loads(text)
    except ValueError:
        return {}
    found: dict[str, int] = {}
    for one in cast("list[object]", content) if isinstance(content, list) else []:
        if isinstance(one, dict):
            fields = cast("dict[str, object]", one)
            name, size = fields.get("name"), fields.get("minMember")
            if isinstance(name, str) and isinstance(size, int):
                found[name] = size
    return found


def _leader_worker_set(marks: _Marks) -> GroupWish | None:
    """One group of leader and workers; with an exclusive topology the leader comes first alone."""
    if _LWS_EXCLUSIVE in marks.annotations:
        return None
    key, size = marks.labels.get(_LWS_KEY), marks.annotations.get(_LWS_SIZE)
    return marks.wish("leaderworkerset", key, size)


_READERS: Mapping[str, Callable[[_Marks], GroupWish | None]] = {
    "kueue": _kueue,
    "koordinator": _koordinator,
    "yunikorn": _yunikorn,
    "leaderworkerset": _leader_worker_set,
}
GROUP_KINDS = tuple(_READERS)
"""Kinds whose pods say name and size of their group."""
GROUP_MARKS: Mapping[str, tuple[str, ...]] = {
    "kueue": (_KUEUE_NAME, _KUEUE_COUNT, _KUEUE_ONE_BY_ONE),
    "koordinator": (_GANG_NAME, _GANG_SIZE),
    "yunikorn": (_TASK_GROUP, _TASK_GROUPS, *_APPLICATIONS),
    "leaderworkerset": (_LWS_KEY, _LWS_SIZE, _LWS_EXCLUSIVE),
}
"""Labels and annotations by which the group of a kind is inferred, the one that names it first."""


def inferred_group(
    labels: Mapping[str, str], annotations: Mapping[str, str], kinds: Collection[str]
) -> GroupWish | None:
    """The group of the first of the `kinds` that the pod is marked for; None: of none."""
    marks = _Marks(labels, annotations)
    wishes = (_READERS[kind](marks) for kind in kinds)
    return next((wish for wish in wishes if wish is not None), None)


def has_group(
    labels: Mapping[str, str], annotations: Mapping[str, str], kinds: Collection[str]
) -> bool:
    """Whether a pod may be a member of a group: quickly, before it is read.

    >>> has_group({}, {"coterie.gpu/group": "train"}, ())
    True
    """
    keys = (pod_keys.GROUP, *(GROUP_MARKS[kind][0] for kind in kinds))
    return any(key in annotations or key in labels for key in keys)


def read_group(pod: WirePod, kinds: Collection[str]) -> PodGroup:
    """Read the group of a pod with GPUs. Raises `PolicyError` for own keys that are wrong."""
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    wish = parse_group(annotations)
    is_own = wish is not None
    if wish is None:
        wish = inferred_group(labels, annotations, kinds)
    elif _is_of_replica(wish, _leader_worker_set(_Marks(labels, annotations))):
        # The template of a LeaderWorkerSet has one name for all its replicas.
        wish = replace(wish, name=f"{wish.name}/{labels[_LWS_KEY]}")
    kubernetes = pod.spec.scheduling_group
    if wish is not None and kubernetes is not None:
        wish = replace(wish, size=None)
    elif kubernetes is not None and kubernetes.pod_group_name:
        wish = GroupWish(f"{_POD_GROUP}/{kubernetes.pod_group_name}")
    waits = wish is not None and wish.size is not None
    warnings = _warnings(pod) if is_own and waits else ()
    return PodGroup(wish, _rank(labels), _without_effect(wish) + warnings)


def _is_of_replica(wish: GroupWish, replica: GroupWish | None) -> bool:
    """Whether a group has no more members than the replica that the pod is of."""
    if replica is None or replica.size is None or wish.size is None:
        return False
    return wish.size <= replica.size


def _rank(labels: Mapping[str, str]) -> int | None:
    for outer, inner in _RANKS:
        text = labels.get(inner, "")
        if text.isdecimal():
            above = labels.get(outer, "")
            index = int(text) + (labels.get(_ROLE) == _AFTER_MASTER)
            return index + (_PER_OUTER * int(above) if above.isdecimal() else 0)
    return None


def _without_effect(wish: GroupWish | None) -> tuple[str, ...]:
    """A warning of a policy that holds for no domain."""
    if wish is None or wish.strength is not Strength.REQUIRED or wish.domain != ANY_DOMAIN:
        return ()
    text = (
        f"annotation {pod_keys.GROUP_POLICY} is 'required' without a level of domains, so it has "
        f"no effect: expected {pod_keys.GROUP_DOMAIN} beside it, such as leaf"
    )
    return (text,)


def _warnings(pod: WirePod) -> tuple[str, ...]:
    """What a pod shows of a controller that creates its pods one after the other."""
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    size = f"annotation {pod_keys.GROUP_SIZE} is '{annotations[pod_keys.GROUP_SIZE]}'"
    if _LWS_EXCLUSIVE in annotations:
        why = (
            f"a LeaderWorkerSet with {_LWS_EXCLUSIVE} creates its workers when their leader has a "
            f"node: expected {pod_keys.GROUP_DOMAIN} instead of it, or no size"
        )
        return (f"{size}, but the group is never complete: {why}",)
    owners = {one.kind for one in pod.metadata.owner_references or ()}
    if _STATEFUL_SET in owners and _LWS_KEY not in labels:
        why = (
            "a StatefulSet creates a pod when the one before it is ready: expected "
            "podManagementPolicy Parallel, or no size"
        )
        return (f"{size}, but the group is never complete: {why}",)
    return ()
