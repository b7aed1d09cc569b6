"""The nodes and pods of a cluster, read from the lists that kubectl prints as JSON.

What it answers: the fields of `kubectl get nodes -o json` and `kubectl get pods -A -o json` that an
audit needs, as values. The lists of the API server itself read the same. Unknown keys are fine, and
null is as good as absent; a field that is needed and of another kind is one sentence with the list,
the object and the field (`ImportFormatError`). Texts of annotations stay as they are: an
audit shows which it cannot read. It reads no file.

A number of devices of a node that cannot be read is no such error: the node has the sentence
(`unreadable`), and all others are audited.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from topology.audit.cluster.counts import is_gpu_resource, read_count
from topology.errors import ImportFormatError, quote
from topology.model import Field, names
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "AuditClaimant",
    "AuditCluster",
    "AuditContainer",
    "AuditNode",
    "AuditPod",
    "ReportedIds",
    "read_cluster",
]

T = TypeVar("T")

_ENDED = frozenset({"Succeeded", "Failed"})
"""core/v1 types.go, PodPhase."""


@dataclass(frozen=True, slots=True)
class AuditNode:
    """A node. `allocatable` and `capacity` hold GPU resources only, in devices.

    `topology` and `devices` are the texts of the annotations, None where absent; `unreadable` has
    by resource what is wrong with its numbers. New pods go to none that is cordoned or not ready.
    """

    name: str
    allocatable: Mapping[str, int]
    capacity: Mapping[str, int]
    topology: str | None
    devices: str | None
    unreadable: Mapping[str, str]
    is_cordoned: bool
    is_ready: bool

    @property
    def takes_pods(self) -> bool:
        """Whether new pods may be placed there."""
        return self.is_ready and not self.is_cordoned


@dataclass(frozen=True, slots=True)
class AuditContainer:
    """A container that requests GPUs: how many of which resource."""

    name: str
    role: ContainerRole
    requests: Mapping[str, int]

    def n_gpus(self, resource: str) -> int:
        """What it requests of its node's resource, else the most of any other."""
        return self.requests.get(resource) or max(self.requests.values())


@dataclass(frozen=True, slots=True)
class ReportedIds:
    """The devices of one resource that the kubelet says a container has (Kubernetes 1.36)."""

    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditPod:
    """A pod that requests GPUs and is bound to a node; `has_ended`: its GPUs are free again.

    `plan` and `allocated` are texts of annotations, None where absent.
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


@dataclass(frozen=True, slots=True)
class AuditClaimant:
    """A pod on a node with resource claims (DRA), which may be for GPUs."""

    namespace: str
    name: str
    node: str


@dataclass(frozen=True, slots=True)
class AuditCluster:
    """What is audited: all nodes, and the pods with GPUs that are bound to a node.

    `claiming` are the pods, with such GPUs or without, that have claims and have not ended.
    """

    nodes: tuple[AuditNode, ...]
    pods: tuple[AuditPod, ...]
    claiming: tuple[AuditClaimant, ...] = ()


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
    read = tuple(_items(pods, pods_name, "Pod", _read_pod))
    return AuditCluster(
        found,
        tuple(pod for pod, _ in read if pod is not None),
        tuple(claiming for _, claiming in read if claiming is not None),
    )


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


def _counts(parent: Field, key: str) -> dict[str, int]:
    """The GPUs under a key, by resource."""
    member = _object(parent, key)
    return {
        sys.intern(name): read_count(member.need(name))
        for name in member.keys()  # noqa: SIM118 - a Field
        if is_gpu_resource(name)
    }


# --- Nodes ---------------------------------------------------------------------------------------


def _read_node(item: Field) -> AuditNode:
    meta, spec, status = (_object(item, key) for key in ("metadata", "spec", "status"))
    annotations = _object(meta, "annotations")
    cordoned = _get(spec, "unschedulable")
    unreadable: dict[str, str] = {}
    return AuditNode(
        name=sys.intern(meta.need("name").text()),
        allocatable=_readable_counts(status, "allocatable", unreadable),
        capacity=_readable_counts(status, "capacity", unreadable),
        topology=_text(annotations, names.TOPOLOGY) or None,
        devices=_text(annotations, names.DEVICES) or None,
        unreadable=unreadable,
        is_cordoned=cordoned is not None and cordoned.flag(),
        is_ready=not any(
            _text(one, "type") == "Ready" and _text(one, "status") != "True"
            for one in _members(status, "conditions")
        ),
    )


def _readable_counts(parent: Field, key: str, unreadable: dict[str, str]) -> dict[str, int]:
    """The GPUs under a key, by resource; `unreadable` gets what is wrong with the others."""
    member = _object(parent, key)
    found: dict[str, int] = {}
    for name in filter(is_gpu_resource, member.keys()):
        try:
            found[sys.intern(name)] = read_count(member.need(name))
        except ImportFormatError as error:
            unreadable.setdefault(name, str(error))
    return found


# --- Pods ----------------------------------------------------------------------------------------


def _read_pod(item: Field) -> tuple[AuditPod | None, AuditClaimant | None]:
    """Read a pod: None where it requests no GPU or is on no node, and whether it has claims."""
    meta, spec, status = (_object(item, key) for key in ("metadata", "spec", "status"))
    name, node = meta.need("name").text(), _text(spec, "nodeName")
    namespace = sys.intern(_text(meta, "namespace") or "default")
    has_ended = _text(status, "phase") in _ENDED
    has_claims = bool(node and not has_ended and _members(spec, "resourceClaims"))
    claiming = AuditClaimant(namespace, name, node) if has_claims else None
    containers = tuple(one for one in _containers(spec) if one.requests)
    if not containers or not node:
        return None, claiming
    annotations = _object(meta, "annotations")
    pod = AuditPod(
        uid=meta.need("uid").text(),
        namespace=namespace,
        name=name,
        node=sys.intern(node),
        has_ended=has_ended,
        containers=containers,
        status=tuple(_reported_ids(status)),
        plan=_text(annotations, names.PLAN) or None,
        allocated=_text(annotations, names.ALLOCATED) or None,
    )
    return pod, claiming


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
