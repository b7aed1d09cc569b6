"""The text of the node annotation `coterie.gpu/devices`: what the plans on pods do not show.

What it answers: how a node's plugin says which devices are bad, which faults outlive it, who holds
devices without a plan or other than planned, who runs without the devices it requests, and what the
kubelet's Topology Manager would allow; and how a reader gets the very same value back. It never
says what a plan says already, so that the normal life of a pod changes nothing here. It must never
guess: text that is no report of major version 1 raises `CodecError`, and nothing else does.

The text is compact JSON. Unknown keys are ignored (a later minor version may add some).

    v            major.minor
    generation   grows with every report of this plugin
    unhealthy    [{id, reason}]; a device that is not here is healthy
    holds        [{uid, namespace, name, container, resource, ids}]
    missing      [{uid, namespace, name, container, resource}] of containers that run without any
    faults       [{gpu, kind, number, partition}] that end with a reset of the GPU (its uuid) or a
                 restart of the node; partition, a list of numbers, only where it is about one
    boot         id of the node's boot in which `faults` happened
    polled_only  [uuid] of GPUs whose driver reports no faults as events
    policy       none, best-effort, restricted or single-numa-node; absent where it is unknown
    scope        container or pod; absent where it is unknown

Policies and scopes bear the kubelet's own names (pkg/kubelet/apis/config/types.go, 1.36).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topology.errors import InvalidTopology, quote
from topology.model import check_version, names, read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from topology.model import Field

__all__ = [
    "DeviceHold",
    "DevicesReport",
    "LastingFault",
    "MissingDevices",
    "TopologyManagerPolicy",
    "TopologyManagerScope",
    "UnhealthyDevice",
    "decode_devices",
    "encode_devices",
]

_TITLE = "devices text"


class TopologyManagerPolicy(Enum):
    """How strictly the kubelet aligns a container's (or pod's) resources to NUMA nodes."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyManagerScope(Enum):
    """What the kubelet aligns together."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class UnhealthyDevice:
    """A device that is not to be given away, and why, for people."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class _ContainerResource:
    """A container of a pod (`uid`, `namespace`, `name`), and a resource that it requests."""

    uid: str
    namespace: str
    name: str
    container: str
    resource: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What is reported once at most."""
        return (self.uid, self.container, self.resource)


@dataclass(frozen=True, slots=True)
class DeviceHold(_ContainerResource):
    """The devices that one container of a pod really has, of one resource."""

    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        where = f"hold of container {quote(self.container)} of pod {quote(self.uid)}"
        if not self.ids:
            msg = f"{where} has no ids, expected at least one"
            raise InvalidTopology(msg)
        _check_once(self.ids, f"{where}: device id")


@dataclass(frozen=True, slots=True)
class MissingDevices(_ContainerResource):
    """One container runs without the devices of a resource that it requests.

    What its pod has of that resource all the same is in the holds of the same report and its plan.
    """


@dataclass(frozen=True, slots=True)
class LastingFault:
    """A fault that a plugin which starts later must know: a reset or a restart of the node ends it.

    `gpu` is a uuid, `kind` and `number` are the driver's code; `partition` is the address of the
    partition that it is about, () where it is about the whole GPU.
    """

    gpu: str
    kind: str
    number: int
    partition: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DevicesReport:
    """What a node's plugin reports; holds of no plan, or of other devices than planned.

    `policy` and `scope` are None where the plugin could not learn them. Containers of one pod may
    hold the same id (an init container hands its own on). `boot` identifies the node's boot in
    which `faults` happened; `polled_only` are uuids of GPUs without health events.
    """

    generation: int = 0
    unhealthy: tuple[UnhealthyDevice, ...] = ()
    holds: tuple[DeviceHold, ...] = ()
    policy: TopologyManagerPolicy | None = None
    scope: TopologyManagerScope | None = None
    missing: tuple[MissingDevices, ...] = ()
    faults: tuple[LastingFault, ...] = ()
    boot: str | None = None
    polled_only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_once((one.id for one in self.unhealthy), "unhealthy device")
        _check_once((one.key for one in self.holds), "hold (uid, container)")
        _check_once((one.key for one in self.missing), "missing (uid, container)")


def _check_once(members: Iterable[Hashable], what: str) -> None:
    for member, count in Counter(members).most_common(1):
        if count > 1:
            msg = f"{what} {quote(member)} is given {count} times, expected once"
            raise InvalidTopology(msg)


def encode_devices(report: DevicesReport) -> str:
    """Write a report as annotation text; equal values give equal text.

    Raises `CodecError` where no annotation could hold the text.

    >>> encode_devices(DevicesReport(3, (UnhealthyDevice("GPU-1", "XID 79"),)))
    '{"v":"1.0","generation":3,"unhealthy":[{"id":"GPU-1","reason":"XID 79"}]}'
    """
    members: dict[str, object] = {
        "unhealthy": [{"id": one.id, "reason": one.reason} for one in report.unhealthy],
        "holds": [_container_body(one) | {"ids": list(one.ids)} for one in report.holds],
        "missing": [_container_body(one) for one in report.missing],
        "policy": None if report.policy is None else report.policy.value,
        "scope": None if report.scope is None else report.scope.value,
        "faults": [_fault_body(one) for one in report.faults],
        "boot": report.boot,
        "polled_only": list(report.polled_only),
    }
    body: dict[str, object] = {
        "v": names.SCHEMA_VERSION,
        "generation": report.generation,
    }
    body |= {key: value for key, value in members.items() if value is not None and value != []}
    return write_text(body, _TITLE)


def decode_devices(text: str) -> DevicesReport:
    """Read annotation text of major version 1 (any minor).

    Raises `CodecError`, and nothing else, for any other text.

    >>> decode_devices('{"v":"2.0"}')
    Traceback (most recent call last):
    topology.errors.CodecError: devices text: v is '2.0', expected major version 1
    """
    return read_text(text, _TITLE, _read_report)


def _container_body(one: _ContainerResource) -> dict[str, object]:
    return {
        "uid": one.uid,
        "namespace": one.namespace,
        "name": one.name,
        "container": one.container,
        "resource": one.resource,
    }


def _fault_body(one: LastingFault) -> dict[str, object]:
    body: dict[str, object] = {"gpu": one.gpu, "kind": one.kind, "number": one.number}
    return body | ({"partition": list(one.partition)} if one.partition else {})


def _read_report(root: Field) -> DevicesReport:
    check_version(root.need("v"))
    policy, scope, boot = root.get("policy"), root.get("scope"), root.get("boot")
    return DevicesReport(
        generation=root.need("generation").integer(),
        unhealthy=tuple(_read_unhealthy(one) for one in root.items_at("unhealthy")),
        holds=tuple(_read_hold(one) for one in root.items_at("holds")),
        policy=None if policy is None else policy.choice(TopologyManagerPolicy),
        scope=None if scope is None else scope.choice(TopologyManagerScope),
        missing=tuple(MissingDevices(*_read_container(one)) for one in root.items_at("missing")),
        faults=tuple(_read_fault(one) for one in root.items_at("faults")),
        boot=None if boot is None else boot.text(),
        polled_only=tuple(one.text() for one in root.items_at("polled_only")),
    )


def _read_unhealthy(field: Field) -> UnhealthyDevice:
    return UnhealthyDevice(field.need("id").text(), field.need("reason").text())


def _read_fault(field: Field) -> LastingFault:
    return LastingFault(
        gpu=field.need("gpu").text(),
        kind=field.need("kind").text(),
        number=field.need("number").integer(),
        partition=tuple(one.integer() for one in field.items_at("partition")),
    )


def _read_hold(field: Field) -> DeviceHold:
    ids = tuple(one.text() for one in field.need("ids").items())
    return DeviceHold(*_read_container(field), ids)


def _read_container(field: Field) -> tuple[str, str, str, str, str]:
    return (
        field.need("uid").text(),
        field.need("namespace").text(),
        field.need("name").text(),
        field.need("container").text(),
        field.need("resource").text(),
    )
