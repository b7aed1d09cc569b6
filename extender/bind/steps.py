"""The steps of a bind between which a shell does the I/O, and how a write can end.

Values only: `extender.bind.state_machine` decides which step comes next, and
`extender.execution.bind` executes a step. The tag of a step names it in the decision log. Every
step ends in one of `Binds.read`, `Binds.written`, `Binds.held` or `Binds.abandon`, exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AnyStep",
    "HoldBind",
    "PlannedFrom",
    "ReadPod",
    "Step",
    "WriteBinding",
    "WriteResult",
    "Written",
]


class WriteResult(Enum):
    """How writing a Binding ended, as far as the extender knows.

    ACCEPTED: 201. CONFLICT: 409, for one of many reasons that only the pod shows. GONE: 404,
    no such pod. REJECTED: any other answer after which certainly nothing was written (the other
    4xx, 429 among them). UNSENT: no connection, or no time left to make one. UNKNOWN: a timeout, a
    transport fault or a 5xx; it may have been written.
    """

    ACCEPTED = "accepted"
    CONFLICT = "conflict"
    GONE = "gone"
    REJECTED = "rejected"
    UNSENT = "unsent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Written:
    """The end of a write; `detail` is the API server's message, for people."""

    result: WriteResult
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReadPod:
    """Read the pod by name, from the API server itself (a quorum read, no cache).

    `bind_id` is unique within one run.
    """

    bind_id: int
    namespace: str
    name: str
    uid: str
    node: str
    tag: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class HoldBind:
    """Wait until the bind calls of all members of the pod's group are there, or time is short."""

    bind_id: int
    namespace: str
    name: str
    uid: str
    node: str
    tag: Literal["hold"] = "hold"


@dataclass(frozen=True, slots=True)
class PlannedFrom:
    """What a plan was made from: the node's devices that this pod could have, in device order.

    `generation` is that of the state, as in the plan.
    """

    generation: int
    free: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteBinding:
    """Create the Binding of this pod to this node, with these annotations, in one request.

    `uid` and `resource_version` are its preconditions; an empty `resource_version` is left out.
    `planned_from` is None where no plan was made for this very write: the pod requests no GPU, or
    an earlier plan of this pod is written once more.
    """

    bind_id: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    annotations: Mapping[str, str]
    planned_from: PlannedFrom | None = None
    tag: Literal["write"] = "write"


Step: TypeAlias = ReadPod | WriteBinding
AnyStep: TypeAlias = Step | HoldBind
"""What a bind call may lead to."""
