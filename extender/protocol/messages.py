"""The `extender/v1` JSON that kube-scheduler sends to an extender: which of its fields are read.

Go's field names exactly (`k8s.io/kube-scheduler/extender/v1/types.go`, Kubernetes 1.36: no json
tags, so UpperCamel on the wire; `Pod` inside is ordinary camelCase API JSON without kind and
apiVersion). Unknown fields are ignored, since every Kubernetes minor adds some; known fields with a
wrong type are refused. A pod is interpreted elsewhere (`extender.protocol.pod_request`), answers
are written by `extender.protocol.responses`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from extender.errors import WireError
from kube.documents import first_fault
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "NO_NAMES",
    "BindingArgs",
    "Container",
    "ExtenderArgs",
    "MetaVictims",
    "ObjectMeta",
    "PodSpec",
    "PreemptionArgs",
    "RawBody",
    "Victims",
    "WirePod",
    "cut_names",
    "decode",
]


class _FirstFault(FailFast):
    """`FailFast` with the hash that a union needs of its parts (pydantic 2.14 has none)."""

    def __hash__(self) -> int:
        return hash(self.fail_fast)


T = TypeVar("T")

_List: TypeAlias = Annotated[list[T], _FirstFault()]
_Dict: TypeAlias = Annotated[dict[str, T], _FirstFault()]
"""Validated up to the first fault: a message names no other, and each costs some microseconds, so
that a body of faults alone would hold the event loop for seconds."""


class _Wire(BaseModel):
    """Strict about types, lenient about fields that we do not read."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


def _check_quantity(value: object, check: ValidatorFunctionWrapHandler) -> str | int | float:
    """One fault for the whole union: the message names none of its members."""
    try:
        quantity: str | int | float = check(value)
    except ValidationError:
        kind, message = "quantity", "Input should be a string or a number"
        raise PydanticCustomError(kind, message) from None
    return quantity


_Quantity: TypeAlias = Annotated[str | int | float, WrapValidator(_check_quantity)]


class ResourceRequirements(_Wire):
    """Quantities as they stand: Kubernetes writes strings, JSON numbers are legal too."""

    limits: _Dict[_Quantity] | None = None
    requests: _Dict[_Quantity] | None = None


class Container(_Wire):
    """A container, init container or sidecar (an init container with restartPolicy Always)."""

    name: str
    restart_policy: str | None = Field(default=None, alias="restartPolicy")
    resources: ResourceRequirements | None = None


class _AffinityTerms(_Wire):
    preferred: list[Any] | None = Field(
        default=None, alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _NodeRequirement(_Wire):
    key: str = ""
    operator: str = ""
    values: _List[str] | None = None


class _NodeSelectorTerm(_Wire):
    expressions: _List[_NodeRequirement] | None = Field(default=None, alias="matchExpressions")
    fields: _List[_NodeRequirement] | None = Field(default=None, alias="matchFields")


class _NodeSelector(_Wire):
    terms: _List[_NodeSelectorTerm] | None = Field(default=None, alias="nodeSelectorTerms")


class _NodeAffinity(_AffinityTerms):
    required: _NodeSelector | None = Field(
        default=None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(_Wire):
    node: _NodeAffinity | None = Field(default=None, alias="nodeAffinity")
    pod: _AffinityTerms | None = Field(default=None, alias="podAffinity")
    pod_anti: _AffinityTerms | None = Field(default=None, alias="podAntiAffinity")


class _SpreadConstraint(_Wire):
    when_unsatisfiable: str | None = Field(default=None, alias="whenUnsatisfiable")


class _Toleration(_Wire):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _SchedulingGroup(_Wire):
    pod_group_name: str | None = Field(default=None, alias="podGroupName")


class _OwnerReference(_Wire):
    kind: str = ""


class PodSpec(_Wire):
    """The part of v1.PodSpec that placement reads."""

    node_name: str | None = Field(default=None, alias="nodeName")
    scheduler_name: str | None = Field(default=None, alias="schedulerName")
    priority: int | None = None
    containers: _List[Container] | None = None
    init_containers: _List[Container] | None = Field(default=None, alias="initContainers")
    node_selector: _Dict[str] | None = Field(default=None, alias="nodeSelector")
    affinity: _Affinity | None = None
    topology_spread_constraints: _List[_SpreadConstraint] | None = Field(
        default=None, alias="topologySpreadConstraints"
    )
    tolerations: _List[_Toleration] | None = None
    scheduling_gates: list[Any] | None = Field(default=None, alias="schedulingGates")
    scheduling_group: _SchedulingGroup | None = Field(default=None, alias="schedulingGroup")

    @property
    def has_soft_wishes(self) -> bool:
        """Whether kube-scheduler's own score plugins weigh nodes by preferred terms of this pod."""
        spread = self.topology_spread_constraints or ()
        if any(one.when_unsatisfiable == "ScheduleAnyway" for one in spread):
            return True
        if self.affinity is None:
            return False
        terms = (self.affinity.node, self.affinity.pod, self.affinity.pod_anti)
        return any(term is not None and term.preferred for term in terms)


class ObjectMeta(_Wire):
    """The part of v1.ObjectMeta that placement reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: _Dict[str] | None = None
    labels: _Dict[str] | None = None
    owner_references: _List[_OwnerReference] | None = Field(default=None, alias="ownerReferences")
    resource_version: str | None = Field(default=None, alias="resourceVersion")
    deletion_timestamp: str | None = Field(default=None, alias="deletionTimestamp")


class PodStatus(_Wire):
    """The part of v1.PodStatus that placement reads."""

    nominated_node_name: str | None = Field(default=None, alias="nominatedNodeName")


class WirePod(_Wire):
    """v1.Pod as far as placement reads it.

    Not a `kube.objects.Pod`: each filter and prioritize reads one among thousands of node names, in
    one pass of pydantic that makes no objects of what it skips. Its rules are those of
    `kube.objects`: `init_role`, `parse_whole`.
    """

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus | None = None


class ExtenderArgs(_Wire):
    """Request of filter and prioritize; `node_names` is None without `nodeCacheCapable: true`."""

    pod: WirePod = Field(alias="Pod")
    nodes: Any = Field(default=None, alias="Nodes")
    node_names: _List[str] | None = Field(default=None, alias="NodeNames")


class MetaPod(_Wire):
    """A victim by its uid."""

    uid: str = Field(alias="UID", min_length=1)


class MetaVictims(_Wire):
    """Victims on one node as they are sent with `nodeCacheCapable: true`, most important first."""

    pods: _List[MetaPod] | None = Field(default=None, alias="Pods")
    n_pdb_violations: int = Field(default=0, alias="NumPDBViolations")

    @property
    def uids(self) -> tuple[str, ...]:
        """The victims, in the order given."""
        return tuple(one.uid for one in self.pods or ())


class Victims(_Wire):
    """The same without `nodeCacheCapable`: whole pods."""

    pods: _List[WirePod] | None = Field(default=None, alias="Pods")
    n_pdb_violations: int = Field(default=0, alias="NumPDBViolations")

    @property
    def uids(self) -> tuple[str, ...]:
        """The victims, in the order given."""
        return tuple(one.metadata.uid for one in self.pods or ())


class PreemptionArgs(_Wire):
    """Request of preempt: for each node that evictions would help, whom kube-scheduler would evict.

    Kubernetes sends one of the two maps and null for the other. Up to 1.37 no list of victims is
    empty; from 1.38 one may be (nothing but an extender stands in the pod's way). `pod_content` is
    the pod's JSON, whole: more of it counts here than the other verbs read.
    """

    pod: WirePod = Field(alias="Pod")
    pod_content: dict[str, Any] = Field(alias="Pod", default_factory=dict)
    whole: _Dict[Victims | None] | None = Field(default=None, alias="NodeNameToVictims")
    meta: _Dict[MetaVictims | None] | None = Field(default=None, alias="NodeNameToMetaVictims")

    @property
    def victims(self) -> Mapping[str, MetaVictims | Victims]:
        """The victims by node, whichever way they were sent."""
        sent: Mapping[str, MetaVictims | Victims | None] = self.meta or self.whole or {}
        return {name: one or MetaVictims() for name, one in sent.items()}


class BindingArgs(_Wire):
    """Request of bind."""

    pod_name: str = Field(alias="PodName")
    pod_namespace: str = Field(alias="PodNamespace")
    pod_uid: str = Field(alias="PodUID", min_length=1)
    node: str = Field(alias="Node", min_length=1)


def _to_text(body: bytes) -> str | dict[str, str]:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def _from_text(value: object) -> object:
    match value:
        case str():
            return value.encode()
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case _:
            return value


RawBody = Annotated[bytes, PlainSerializer(_to_text), BeforeValidator(_from_text)]
"""A body as it came; in JSON a text where it is UTF-8, else base64."""

W = TypeVar("W", bound=BaseModel)

_KINDS = {
    field.alias or name: "a string" if field.annotation is str else "an object"
    for model in (Container, WirePod, ExtenderArgs, PreemptionArgs, MetaPod, BindingArgs)
    for name, field in model.model_fields.items()
    if field.is_required()
}
"""What the fields hold that must be there, by their name on the wire."""

_SHOWN_BYTES = 320
"""Enough of a body for what a message repeats of it, whatever the characters."""


NO_NAMES = b'"NodeNames":null}'
"""Makes a whole request of what `cut_names` cut off before the names."""


def cut_names(body: bytes) -> tuple[bytes, list[bytes]] | None:
    """Cut a request of filter or prioritize into what stands before its names, and their JSON.

    For bodies as Go's encoding/json writes them: the names last, without white space, at least one
    of them. None for others. Nothing is checked: the body is what it seems to be if the first part
    with `NO_NAMES` is a request, and each text is the JSON of a known name without its quotes.

    >>> cut_names(b'{"Pod":{},"Nodes":null,"NodeNames":["n1","n2"]}')
    (b'{"Pod":{},"Nodes":null,', [b'n1', b'n2'])
    """
    begin = body.find(_NAMES_BEGIN)
    if begin < 0 or not body.endswith(_NAMES_END):
        return None
    names = body[begin + len(_NAMES_BEGIN) : -len(_NAMES_END)]
    return body[:begin], names.split(b'","')


_NAMES_BEGIN, _NAMES_END = b'"NodeNames":["', b'"]}'


def decode(model: type[W], body: bytes) -> W:
    """Read one request body.

    Raises `WireError`, naming the first field that is wrong, its value and what was expected.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            shown = quote(body[:_SHOWN_BYTES].decode(errors="replace")) if body else "empty"
            why = first["msg"].removeprefix("Invalid JSON: ")
            msg = f"request body is {shown}, expected JSON: {why}"
        else:
            msg = f"request {first_fault(error, whole='body', kinds=_KINDS)}"
        raise WireError(msg) from error
