"""What we know of nodes and pods, as values, and how it is read from the API's JSON.

Only the few fields of a Node or Pod that placement needs are read. Readers are lenient to fields
they do not know and strict about those they need: what cannot be read raises `Unreadable`, with the
field named. Texts of annotations stay as they are: their own codecs check them.

`PodFacts` comes from a pod's metadata alone (`PartialObjectMetadata`), `Pod` and its subclasses
from the whole pod. Whether a pod requests GPUs is in its spec, which metadata does not carry; but
`managedFields` name every field that a pod was created with, so that metadata alone shows of most
pods that they were created without a request. What mutating admission added is not in them.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, TypedDict, cast

from kube.objects.containers import devices_at, quantities_at
from topology.model import (
    list_at,
    names,
    needed_at,
    object_at,
    objects_at,
    text_at,
    texts_at,
    whole_at,
)
from topology.taints import CORDONED, KEEPS_OFF, Taint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

__all__ = [
    "ContainerDevices",
    "NodeFacts",
    "ObjectKey",
    "Pod",
    "PodFacts",
    "PodFields",
    "PodObject",
    "pod_facts_reader",
    "pod_fields",
    "read_allocatable",
    "read_key",
    "read_node",
    "read_pod",
]

_ZONE_LABEL = "topology.kubernetes.io/zone"
"""Well-known label (k8s.io/api core/v1 well_known_labels.go, LabelTopologyZone)."""
_CLOSING_TAINTS = frozenset(
    f"node.kubernetes.io/{one}"
    for one in (
        "disk-pressure",
        "memory-pressure",
        "network-unavailable",
        "not-ready",
        "out-of-service",
        "pid-pressure",
        "unreachable",
        "unschedulable",
    )
)
"""What Kubernetes itself sets on nodes (k8s.io/api core/v1 well_known_taints.go)."""
_GROUP_IN_PLAN = '"group"'
"""A member of the text of a plan (`topology.annotations.plan`)."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Which object; `namespace` is empty for those that live in none."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The fields of a node that placement uses.

    `allocatable` and `capacity` hold the extended resources only, in devices; unhealthy devices
    count in `capacity` alone. `topology` and `devices` are the texts of `coterie.gpu/topology` and
    `coterie.gpu/devices`, None where absent. `has_soft_taint`: some taint has the effect
    PreferNoSchedule. `kubernetes_taints` are those by which Kubernetes itself keeps new pods off it
    (cordoned, not ready, under pressure). `worth` is the label `coterie.gpu/worth`, None where
    absent. `domains` are the labels that say where the node is in the network. `labels` are those
    that selectors of pods usually name.
    """

    name: str
    uid: str
    zone: str
    allocatable: Mapping[str, int]
    topology: str | None
    devices: str | None
    has_soft_taint: bool
    capacity: Mapping[str, int] = field(default_factory=dict[str, int])
    worth: str | None = None
    domains: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    kubernetes_taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The metadata of a pod. `plan` and `allocated` are annotation texts, None where absent.

    `may_request` is False only where `managedFields` prove that no container was created with one
    of our resources; admission may have added a request all the same. `deletion_grace_s` is what
    its deletion leaves its containers, in seconds: None where it is not being deleted, 0 where the
    API server removes it without waiting for its kubelet (`kubectl delete --force`). `group_marks`
    are labels and annotations that say its group, of a pod that requests none of our resources, or
    whose plan names no group.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    plan: str | None
    allocated: str | None
    may_request: bool
    deletion_grace_s: int | None = None
    group_marks: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """The device ids that the kubelet says a container has of a resource (Kubernetes 1.36)."""

    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as every reader needs it; what one reader needs more stands in a subclass.

    `phase` is the API's. `is_deleting`: it has a deletionTimestamp. `priority`: spec.priority, 0
    where absent.
    """

    uid: str
    namespace: str
    name: str
    phase: str = ""
    is_deleting: bool = False
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def has_ended(self) -> bool:
        """Whether its containers have stopped for good, so that its devices are free.

        (core/v1 types.go, PodPhase.)
        """
        return self.phase in {"Succeeded", "Failed"}


class PodFields(TypedDict):
    """The arguments of `Pod`."""

    uid: str
    namespace: str
    name: str
    phase: str
    is_deleting: bool
    priority: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodObject(Pod):
    """A pod from the API server. `body` is its JSON as bytes, for the reader of its GPU request.

    `is_gated`: it has scheduling gates. `devices`:
    `status.containerStatuses[].allocatedResourcesStatus` in the status's order; entries of resource
    claims are left out, they name no device plugin's devices.
    """

    resource_version: str
    node_name: str | None
    nominated_node: str | None
    is_gated: bool
    annotations: Mapping[str, str]
    devices: tuple[ContainerDevices, ...]
    body: bytes


def read_key(content: Mapping[str, object]) -> ObjectKey:
    """Read which object this is; never raises, what cannot be read is empty."""
    meta = content.get("metadata")
    fields = cast("dict[str, object]", meta) if isinstance(meta, dict) else {}
    namespace, name, uid = (fields.get(key) for key in ("namespace", "name", "uid"))
    return ObjectKey(
        namespace if isinstance(namespace, str) else "",
        name if isinstance(name, str) else "",
        uid if isinstance(uid, str) else "",
    )


def read_node(
    content: Mapping[str, object],
    label_keys: Sequence[str] = (),
    selector_keys: Sequence[str] = (),
) -> NodeFacts:
    """Read a Node; the keys are those of `NodeFacts.domains` and `labels`. Raises `Unreadable`."""
    meta = object_at(content, "metadata")
    annotations = texts_at(meta, "annotations")
    spec = object_at(content, "spec")
    taints = tuple(objects_at(spec, "taints"))
    status = object_at(content, "status")
    labels = texts_at(meta, "labels")
    return NodeFacts(
        name=needed_at(meta, "name", where="metadata."),
        uid=needed_at(meta, "uid", where="metadata."),
        zone=labels.get(_ZONE_LABEL, ""),
        allocatable=devices_at(status, "allocatable"),
        capacity=devices_at(status, "capacity"),
        topology=annotations.get(names.TOPOLOGY),
        devices=annotations.get(names.DEVICES),
        has_soft_taint=any(text_at(one, "effect") == "PreferNoSchedule" for one in taints),
        worth=labels.get(names.WORTH),
        domains={key: labels[key] for key in label_keys if key in labels},
        labels={key: labels[key] for key in selector_keys if key in labels},
        kubernetes_taints=_kubernetes_taints(taints, is_cordoned=spec.get("unschedulable") is True),
    )


def _kubernetes_taints(
    taints: Iterable[Mapping[str, object]], *, is_cordoned: bool
) -> tuple[Taint, ...]:
    """Those by which Kubernetes itself keeps new pods off; a cordon counts before its taint."""
    read = (
        Taint(*(text_at(one, key) or "" for key in ("key", "value", "effect"))) for one in taints
    )
    found = {one for one in read if one.key in _CLOSING_TAINTS and one.effect in KEEPS_OFF}
    if is_cordoned:
        found.add(CORDONED)
    return tuple(sorted(found, key=astuple))


def read_allocatable(content: Mapping[str, object]) -> Mapping[str, Fraction]:
    """Read what a Node can give to pods, of every resource. Raises `Unreadable`."""
    return quantities_at(object_at(content, "status"), "allocatable")


def pod_facts_reader(
    resources: tuple[str, ...],
    group_marks: tuple[str, ...] = (),
) -> Callable[[Mapping[str, object]], PodFacts]:
    """Make the reader of `PartialObjectMetadata` of pods, for the resources that we place.

    `group_marks` are the keys of `PodFacts.group_marks`.
    """
    wanted = frozenset(f"f:{resource}" for resource in resources)

    def read(content: Mapping[str, object]) -> PodFacts:
        meta = object_at(content, "metadata")
        annotations = texts_at(meta, "annotations")
        may_request = _may_request(meta, wanted)
        texts: Mapping[str, str] = {}
        plan = annotations.get(names.PLAN)
        is_alone = plan is not None and _GROUP_IN_PLAN not in plan
        if group_marks and (not may_request or is_alone):
            texts = {**annotations, **texts_at(meta, "labels")}
        return PodFacts(
            uid=needed_at(meta, "uid", where="metadata."),
            namespace=needed_at(meta, "namespace", where="metadata."),
            name=needed_at(meta, "name", where="metadata."),
            resource_version=needed_at(meta, "resourceVersion", where="metadata."),
            plan=plan,
            allocated=annotations.get(names.ALLOCATED),
            may_request=may_request,
            deletion_grace_s=_deletion_grace_s(meta),
            group_marks={key: texts[key] for key in group_marks if key in texts},
        )

    return read


def pod_fields(content: Mapping[str, object]) -> PodFields:
    """Read what every reader of a Pod needs. Raises `Unreadable`.

    No resourceVersion: a static pod in the kubelet's list has none until its mirror pod exists.
    """
    meta = object_at(content, "metadata")
    return {
        "uid": needed_at(meta, "uid", where="metadata."),
        "namespace": needed_at(meta, "namespace", where="metadata."),
        "name": needed_at(meta, "name", where="metadata."),
        "phase": text_at(object_at(content, "status"), "phase"),
        "is_deleting": meta.get("deletionTimestamp") is not None,
        "priority": whole_at(object_at(content, "spec"), "priority"),
        "labels": texts_at(meta, "labels"),
    }


def read_pod(content: Mapping[str, object]) -> PodObject:
    """Read a Pod as the API server has it. Raises `Unreadable`."""
    meta, spec, status = (object_at(content, key) for key in ("metadata", "spec", "status"))
    return PodObject(
        **pod_fields(content),
        resource_version=needed_at(meta, "resourceVersion", where="metadata."),
        node_name=text_at(spec, "nodeName") or None,
        nominated_node=text_at(status, "nominatedNodeName") or None,
        is_gated=len(list_at(spec, "schedulingGates")) > 0,
        annotations=texts_at(meta, "annotations"),
        devices=tuple(_devices(status)),
        body=json.dumps(content, separators=(",", ":")).encode(),
    )


def _deletion_grace_s(meta: Mapping[str, object]) -> int | None:
    if meta.get("deletionTimestamp") is None:
        return None
    return whole_at(meta, "deletionGracePeriodSeconds")


def _may_request(meta: Mapping[str, object], wanted: frozenset[str]) -> bool:
    """Whether the spec may name one of our resources, by who set which field.

    Proof that it does not needs an entry that owns the containers: managed fields that were dropped
    on the way, or hold only status, prove nothing.
    """
    owns_containers = False
    for entry in objects_at(meta, "managedFields"):
        spec = object_at(object_at(entry, "fieldsV1"), "f:spec")
        owns_containers = owns_containers or "f:containers" in spec
        if _holds(spec, wanted):
            return True
    return not owns_containers


def _holds(spec: Mapping[str, object], wanted: frozenset[str]) -> bool:
    """Whether one of our resources was set, in a container or for the pod as a whole."""
    owners = [spec]
    for kind in ("f:containers", "f:initContainers"):
        containers = _below(spec, kind)
        owners += (_below(containers, key) for key in containers)
    return any(
        not wanted.isdisjoint(_below(resources, kind))
        for resources in (_below(owner, "f:resources") for owner in owners)
        for kind in ("f:limits", "f:requests")
    )


def _below(fields: Mapping[str, object], key: str) -> Mapping[str, object]:
    below = fields.get(key)
    return cast("dict[str, object]", below) if isinstance(below, dict) else {}


def _devices(status: Mapping[str, object]) -> Iterator[ContainerDevices]:
    """k8s.io/api v0.36.3, core/v1 types.go: ContainerStatus, ResourceStatus, ResourceHealth."""
    for container in objects_at(status, "containerStatuses"):
        name = text_at(container, "name")
        for resource in objects_at(container, "allocatedResourcesStatus"):
            resource_name = text_at(resource, "name")
            if resource_name.startswith("claim:"):
                continue
            ids = tuple(text_at(one, "resourceID") for one in objects_at(resource, "resources"))
            yield ContainerDevices(name, resource_name, ids)
