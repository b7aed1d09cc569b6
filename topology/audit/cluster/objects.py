"""The nodes and pods of a cluster, read from the lists that kubectl prints as JSON.

What it answers: the fields of `kubectl get nodes -o json` and `kubectl get pods -A -o json` that an
audit needs, as values. The lists of the API server itself read the same. Unknown keys are fine, and
null is as good as absent; a field that is needed and of another kind is one sentence with the list,
the object and the field (`ImportFormatError`). Texts of annotations stay as they are: an
audit shows which it cannot read. It reads no file.

Devices of a resource count as GPUs where its name behind the domain is `gpu`, or begins with
`gpu.` (NVIDIA's shared GPUs), and the MIG profiles of `nvidia.com/mig-...`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from topology.annotations import POD_KEYS
from topology.audit.cluster.constraints import LabelRequirement, NodeRules, Taint, Toleration
from topology.errors import ImportFormatError, quote
from topology.model import Field, names
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "AuditCluster",
    "AuditContainer",
    "AuditNode",
    "AuditPod",
    "ReportedIds",
    "is_gpu_resource",
    "read_cluster",
]

T = TypeVar("T")

_GPU_RESOURCE = re.compile(r"[^/]+/gpu(?:\.[^/]+)?|nvidia\.com/mig-[^/]+")
_AFFINITY = POD_KEYS[0].name
_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that a cordoned node bears (core/v1 well_known_taints.go)."""
_ENDED = frozenset({"Succeeded", "Failed"})
"""core/v1 types.go, PodPhase."""


@dataclass(frozen=True, slots=True)
class AuditNode:
    """A node. `allocatable` and `capacity` hold GPU resources only, in devices.

    `topology` and `devices` are the texts of the annotations, None where absent.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    capacity: Mapping[str, int]
    topology: str | None
    devices: str | None


@dataclass(frozen=True, slots=True)
class AuditContainer:
    """A container that requests GPUs: how many of which resource."""

    name: str
    role: ContainerRole
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReportedIds:
    """The devices of one resource that the kubelet says a container has (Kubernetes 1.36)."""

    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditPod:
    """A pod that requests GPUs and is bound to a node; `has_ended`: its GPUs are free again.

    `plan`, `allocated` and `affinity` are texts of annotations, None where absent.
    """

    uid: str
    namespace: str
    name: str
    node: str
    has_ended: bool
    containers: tuple[AuditContainer, ...]
    status: tuple[ReportedIds, ...]
    plan: str | None
    allocated: str | None
    affinity: str | None
    rules: NodeRules


@dataclass(frozen=True, slots=True)
class AuditCluster:
    """What is audited: all nodes, and the pods with GPUs that are bound to a node."""

    nodes: tuple[AuditNode, ...]
    pods: tuple[AuditPod, ...]


def is_gpu_resource(resource: str) -> bool:
    """Whether a resource's devices are GPUs, shares or partitions of them.

    >>> [is_gpu_resource(one) for one in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "cpu")]
    [True, True, False]
    """
    return _GPU_RESOURCE.fullmatch(resource) is not None


def read_cluster(
    nodes: object, pods: object, *, nodes_name: str = "nodes", pods_name: str = "pods"
) -> AuditCluster:
    """Read the parsed JSON of the two lists; `nodes_name` and `pods_name` call them in messages.

    Raises `ImportFormatError` where one is no such list, or a field of an object is not as needed.

    >>> read_cluster({"items": []}, {"items": {}})
    Traceback (most recent call last):
    topology.errors.ImportFormatError: pods: items is {}, expected an array
    """
    found = tuple(_items(nodes, nodes_name, "Node", _read_node))
    seen: set[str] = set()
    for node in found:
        if node.name in seen:
            msg = f"{nodes_name}: node {quote(node.name)} is given twice, expected once"
            raise ImportFormatError(msg)
        seen.add(node.name)
    read = _items(pods, pods_name, "Pod", _read_pod)
    return AuditCluster(found, tuple(pod for pod in read if pod is not None))


def _items(value: object, where: str, kind: str, read: Callable[[Field], T]) -> Iterator[T]:
    """Read each object of a list; `where` and the object's name open what is wrong with it."""
    command = "kubectl get nodes" if kind == "Node" else "kubectl get pods -A"
    root = _dict(value)
    if root is None or "items" not in root:
        msg = f"{where} is {quote(value)}, expected the list that `{command} -o json` prints"
        raise ImportFormatError(msg)
    for i, one in enumerate(_array(root["items"], where)):
        try:
            if _dict(one) is None:
                msg = f"it is {quote(one)}, expected an object"
                raise ImportFormatError(msg)  # noqa: TRY301 - named below as all others
            item = Field(one, "", ImportFormatError)
            found = _get(item, "kind")
            if found is not None and found.text() != kind:
                found.fail(f"{kind}, as `{command} -o json` prints")
            yield read(item)
        except ImportFormatError as error:
            msg = f"{where}: items[{i}]{_called(one)}: {error}"
            raise ImportFormatError(msg) from error


def _dict(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _array(members: object, where: str) -> list[object]:
    if members is None:  # an empty list of a Go program
        return []
    if not isinstance(members, list):
        msg = f"{where}: items is {quote(members)}, expected an array"
        raise ImportFormatError(msg)
    return cast("list[object]", members)


def _called(one: object) -> str:
    meta = _dict((_dict(one) or {}).get("metadata")) or {}
    known = [meta[key] for key in ("namespace", "name") if isinstance(meta.get(key), str)]
    return f" ({'/'.join(map(str, known))})" if known else ""


def _get(parent: Field, key: str) -> Field | None:
    """A member, None where it is absent or null."""
    member = parent.get(key)
    return None if member is None or member.value is None else member


def _object(parent: Field, *keys: str) -> Field:
    """The object under some keys, an empty one where there is none."""
    for key in keys:
        parent = _get(parent, key) or Field({}, f"{parent.where}.{key}", parent.error)
    return parent


def _members(parent: Field, key: str) -> tuple[Field, ...]:
    member = _get(parent, key)
    return () if member is None else member.items()


def _text(parent: Field, key: str) -> str:
    member = _get(parent, key)
    return "" if member is None else member.text()


def _texts(parent: Field, key: str) -> tuple[str, ...]:
    return tuple(one.text() for one in _members(parent, key))


def _strings(parent: Field, key: str) -> dict[str, str]:
    """The strings under a key by their names, as labels are."""
    member = _object(parent, key)
    return {sys.intern(name): member.need(name).text() for name in member.keys()}  # noqa: SIM118 - a Field


def _counts(parent: Field, key: str) -> dict[str, int]:
    """The GPUs under a key, by resource."""
    member = _object(parent, key)
    return {
        sys.intern(name): _count(member.need(name))
        for name in member.keys()  # noqa: SIM118 - a Field
        if is_gpu_resource(name)
    }


def _count(field: Field) -> int:
    value = field.value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:  # noqa: PLR2004 - digits of 2^31
        return int(value)
    if type(value) is int and 0 <= value < 1_000_000_000:  # noqa: PLR2004 - as above
        return value
    return field.fail("a whole number of devices")


# --- Nodes ---------------------------------------------------------------------------------------


def _read_node(item: Field) -> AuditNode:
    meta, spec, status = (_object(item, key) for key in ("metadata", "spec", "status"))
    annotations = _object(meta, "annotations")
    taints = [
        Taint(_text(one, "key"), _text(one, "value"), _text(one, "effect"))
        for one in _members(spec, "taints")
    ]
    cordoned = _get(spec, "unschedulable")
    if cordoned is not None and cordoned.flag():
        taints.append(_UNSCHEDULABLE)
    return AuditNode(
        name=sys.intern(meta.need("name").text()),
        labels=_strings(meta, "labels"),
        taints=tuple(one for one in taints if one.effect in _KEEPS_OFF),
        allocatable=_counts(status, "allocatable"),
        capacity=_counts(status, "capacity"),
        topology=_text(annotations, names.TOPOLOGY) or None,
        devices=_text(annotations, names.DEVICES) or None,
    )


# --- Pods ----------------------------------------------------------------------------------------


def _read_pod(item: Field) -> AuditPod | None:
    """Read a pod; None where it requests no GPU or is on no node."""
    meta, spec, status = (_object(item, key) for key in ("metadata", "spec", "status"))
    name, node = meta.need("name").text(), _text(spec, "nodeName")
    containers = tuple(one for one in _containers(spec) if one.requests)
    if not containers or not node:
        return None
    annotations = _object(meta, "annotations")
    return AuditPod(
        uid=meta.need("uid").text(),
        namespace=sys.intern(_text(meta, "namespace") or "default"),
        name=name,
        node=sys.intern(node),
        has_ended=_text(status, "phase") in _ENDED,
        containers=containers,
        status=tuple(_reported_ids(status)),
        plan=_text(annotations, names.PLAN) or None,
        allocated=_text(annotations, names.ALLOCATED) or None,
        affinity=_text(annotations, _AFFINITY) or None,
        rules=_read_rules(spec),
    )


def _containers(spec: Field) -> Iterator[AuditContainer]:
    for one in _members(spec, "initContainers"):
        is_sidecar = _text(one, "restartPolicy") == "Always"
        yield _container(one, ContainerRole.SIDECAR if is_sidecar else ContainerRole.INIT)
    for one in _members(spec, "containers"):
        yield _container(one, ContainerRole.APP)


def _container(one: Field, role: ContainerRole) -> AuditContainer:
    resources = _object(one, "resources")
    requests = _counts(resources, "limits") | _counts(resources, "requests")
    wanted = {resource: count for resource, count in requests.items() if count}
    return AuditContainer(sys.intern(one.need("name").text()), role, wanted)


def _reported_ids(status: Field) -> Iterator[ReportedIds]:
    """k8s.io/api v0.36.3, core/v1 types.go: ContainerStatus, ResourceStatus, ResourceHealth."""
    for container in _members(status, "containerStatuses"):
        for resource in _members(container, "allocatedResourcesStatus"):
            name = _text(resource, "name")
            if is_gpu_resource(name):
                ids = tuple(_text(one, "resourceID") for one in _members(resource, "resources"))
                yield ReportedIds(_text(container, "name"), name, ids)


def _read_rules(spec: Field) -> NodeRules:
    affinity = _object(spec, "affinity", "nodeAffinity")
    required = _get(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    return NodeRules(
        selector=tuple(sorted(_strings(spec, "nodeSelector").items())),
        terms=None
        if required is None
        else tuple(_read_term(term) for term in _members(required, "nodeSelectorTerms")),
        tolerations=tuple(
            Toleration(*(_text(one, key) for key in ("key", "operator", "value", "effect")))
            for one in _members(spec, "tolerations")
        ),
    )


def _read_term(term: Field) -> tuple[LabelRequirement, ...]:
    return tuple(
        LabelRequirement(
            _text(one, "key"), _text(one, "operator"), _texts(one, "values"), is_field=is_field
        )
        for key, is_field in (("matchExpressions", False), ("matchFields", True))
        for one in _members(term, key)
    )
