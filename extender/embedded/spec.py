"""The embedded cluster: which machines a cluster in memory is made of.

It turns a file or one line of text ("8x dgx-h100, 4x dgx-1-v100") into a checked description, and
the description into nodes with names, zones and device ids. Deterministic: the same description
makes the same nodes, ids included, in every process.

Nodes are named `<group>-0`, `<group>-1`, ...; zones are assigned round-robin in the order of the
file; device ids are `GPU-` and a name-based UUID (RFC 9562, version 5) of node and position, so two
nodes of one machine type differ in them as real ones do.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from extender.errors import ClusterSpecError
from kube.documents import first_fault, read_toml, read_yaml
from kube.errors import DocumentError
from topology.annotations import DevicesReport, TopologyManagerPolicy, TopologyManagerScope
from topology.errors import TopologyError, file_fault, quote
from topology.model import DEFAULT_RESOURCE
from topology.recordings import load_recording, recording_names
from topology.topology_manager import manager_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from topology.model import NodeTopology
    from topology.topology_manager import TopologyManager

__all__ = [
    "RESOURCE_NAME",
    "ClusterSpec",
    "EmbeddedNode",
    "NodeGroup",
    "lay_out",
    "parse_cluster",
    "read_cluster",
]

MAX_NODES = 20_000
"""Most nodes of an embedded cluster: four times what Kubernetes itself supports (5,000)."""

_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "coterie.gpu")
_GROUP = re.compile(r"([0-9]{1,6})\s*x\s*([a-z0-9][a-z0-9.-]*)")
_LABEL = r"^[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?$"
"""A DNS subdomain, as node names and label values are."""
_LABEL_KEY = (
    r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
)
_LABEL_VALUE = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
"""As the API server takes them, but for empty values (apimachinery, pkg/util/validation)."""
RESOURCE_NAME = (
    r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
)
"""An extended resource: domain/name (apimachinery, pkg/util/validation, IsQualifiedName)."""


class NodeGroup(BaseModel):
    """Some equal nodes. `machine` names a recording; without one the topology is unknown."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    count: Annotated[int, Field(ge=1, le=MAX_NODES)]
    machine: str | None = None
    devices: Annotated[int, Field(ge=1, le=512)] | None = None
    name: Annotated[str, Field(pattern=_LABEL)] | None = None
    resource: Annotated[str, Field(pattern=RESOURCE_NAME)] = DEFAULT_RESOURCE
    zone: Annotated[str, Field(pattern=_LABEL)] | None = None
    unhealthy: list[Annotated[int, Field(ge=0, le=511)]] = []
    prefer_no_schedule: bool = False
    labels: dict[
        Annotated[str, Field(pattern=_LABEL_KEY)], Annotated[str, Field(pattern=_LABEL_VALUE)]
    ] = {}
    topology_manager_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = (
        "none"
    )
    topology_manager_scope: Literal["container", "pod"] = "container"

    @field_validator("machine")
    @classmethod
    def _is_recorded(cls, value: str | None) -> str | None:
        if value is not None and value not in recording_names():
            msg = f"expected one of: {', '.join(recording_names())}"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _has_devices(self) -> NodeGroup:
        if (self.machine is None) == (self.devices is None):
            msg = (
                f"machine is {quote(self.machine)} and devices is {self.devices}, expected one of "
                "them (devices is the GPU count of nodes whose topology is unknown)"
            )
            raise ValueError(msg)
        return self

    @property
    def title(self) -> str:
        """What the group's nodes are named after."""
        return self.name or self.machine or "unknown"


class ClusterSpec(BaseModel):
    """The whole cluster."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    groups: Annotated[list[NodeGroup], Field(min_length=1)]
    zones: Annotated[list[Annotated[str, Field(pattern=_LABEL)]], Field(min_length=1)] = [
        "zone-a",
        "zone-b",
        "zone-c",
    ]

    @model_validator(mode="after")
    def _is_distinct(self) -> ClusterSpec:
        titles = [group.title for group in self.groups]
        for title in titles:
            if titles.count(title) > 1:
                msg = f"group {quote(title)} is given twice, expected different names"
                raise ValueError(msg)
        n_nodes = sum(group.count for group in self.groups)
        if n_nodes > MAX_NODES:
            msg = f"cluster has {n_nodes} nodes, expected at most {MAX_NODES}"
            raise ValueError(msg)
        return self


@dataclass(frozen=True, slots=True)
class EmbeddedNode:
    """One node as it is at the start. `unhealthy` are device ids."""

    name: str
    zone: str
    group: str
    resource: str
    topology: NodeTopology | None
    ids: tuple[str, ...]
    unhealthy: tuple[str, ...]
    prefer_no_schedule: bool
    manager: TopologyManager | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def parse_cluster(text: str) -> ClusterSpec:
    """Read one line of machines and counts.

    Raises `ClusterSpecError`.

    >>> [group.count for group in parse_cluster("8x dgx-h100, 4x dgx-1-v100").groups]
    [8, 4]
    """
    groups: list[dict[str, object]] = []
    for part in text.split(","):
        match = _GROUP.fullmatch(part.strip())
        if match is None:
            expected = "<count>x <machine>, such as 8x dgx-h100"
            msg = f"cluster part {quote(part.strip())}: expected {expected}"
            raise ClusterSpecError(msg)
        groups.append({"count": int(match[1]), "machine": match[2]})
    return _check({"groups": groups}, "cluster")


def read_cluster(path: Path) -> ClusterSpec:
    """Read a cluster file: TOML where its name ends in .toml, else YAML.

    Raises `ClusterSpecError`.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = read_toml(text) if path.suffix == ".toml" else read_yaml(text)
    except (OSError, ValueError, DocumentError) as error:
        msg = f"cluster file {path} cannot be read: {file_fault(error)}"
        raise ClusterSpecError(msg) from error
    return _check(content, f"cluster file {path}")


def lay_out(spec: ClusterSpec) -> tuple[EmbeddedNode, ...]:
    """Make the nodes, in the order of the description.

    Raises `ClusterSpecError` where a group names a GPU that its machine does not have.
    """
    nodes: list[EmbeddedNode] = []
    for group in spec.groups:
        topology = _load(group)
        n_devices = group.devices if topology is None else topology.n_gpus
        for position in range(group.count):
            name = f"{group.title}-{position}"
            ids = tuple(_device_id(name, i) for i in range(n_devices or 0))
            beyond = [i for i in group.unhealthy if i >= len(ids)]
            if beyond:
                msg = f"group {group.title}: unhealthy GPU {beyond[0]}, expected 0..{len(ids) - 1}"
                raise ClusterSpecError(msg)
            nodes.append(
                EmbeddedNode(
                    name=name,
                    zone=group.zone or spec.zones[len(nodes) % len(spec.zones)],
                    group=group.title,
                    resource=group.resource,
                    topology=topology,
                    ids=ids,
                    unhealthy=tuple(ids[i] for i in group.unhealthy),
                    prefer_no_schedule=group.prefer_no_schedule,
                    manager=_manager(group),
                    labels=group.labels,
                )
            )
    return tuple(nodes)


def _check(content: object, what: str) -> ClusterSpec:
    try:
        return ClusterSpec.model_validate(content)
    except ValidationError as error:
        msg = f"{what}: {first_fault(error, whole='content')}"
        raise ClusterSpecError(msg) from error


def _manager(group: NodeGroup) -> TopologyManager | None:
    return manager_of(
        DevicesReport(
            policy=TopologyManagerPolicy(group.topology_manager_policy),
            scope=TopologyManagerScope(group.topology_manager_scope),
        )
    )


def _load(group: NodeGroup) -> NodeTopology | None:
    if group.machine is None:
        return None
    try:
        return load_recording(group.machine)
    except TopologyError as error:
        msg = f"group {group.title}: machine {group.machine} cannot be loaded: {error}"
        raise ClusterSpecError(msg) from error


def _device_id(node: str, position: int) -> str:
    return f"GPU-{uuid.uuid5(_UUID_NAMESPACE, f'{node}/{position}')}"
