"""What the routes for people and tools respond, as types of the API description.

Bodies that come from the state are JSON values already: these types describe them (a test holds
each to its type), so that a large body is not built a second time on the event loop. So do those of
an explanation (`extender.http.explain_responses`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Body", "ManagerJson", "NodesState", "Problem", "State"]


class Body(BaseModel):
    """A JSON object with these fields and no other."""

    model_config = ConfigDict(extra="forbid")


class Problem(Body):
    """An error (RFC 9457, problem details); `detail` says what is wrong."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str


class State(Body):
    """Generation, readiness and counts; `devices` by state, `unschedulable` pods by reason."""

    generation: int
    is_ready: bool
    n_nodes: int
    n_pods: int
    devices: dict[str, int]
    unschedulable: dict[str, int]


class OwnedDevices(Body):
    """Devices of a pod."""

    pod: str
    pod_uid: str
    ids: list[str]


class CountedDevices(Body):
    """A number of devices of a pod."""

    pod: str
    pod_uid: str
    devices: int


class ManagerJson(Body):
    """The kubelet's policy and scope; null where the node reports none."""

    policy: str | None
    scope: str | None


class ResourceJson(Body):
    """A resource of a node: its devices by what may be done with them, and what is wrong.

    `topology` is the digest of the machine type. Pods in `unlocated` have that many devices, and
    which ones is not known; `contested` counts devices of a pod's plan that others have;
    `lost` are devices of pods that the node no longer has.
    """

    machine: str
    resource: str
    topology: str | None
    free: list[str]
    planned: list[OwnedDevices]
    assumed: list[OwnedDevices]
    held: list[OwnedDevices]
    claimed: list[OwnedDevices]
    unhealthy: dict[str, str]
    unlocated: list[CountedDevices]
    contested: list[CountedDevices]
    lost: list[OwnedDevices]


class NodeJson(ResourceJson):
    """A node: its first resource, and the others that it serves beside it."""

    zone: str | None
    other_resources: list[ResourceJson]
    topology_manager: ManagerJson
    problems: list[str]


class NodesState(Body):
    """Every node by name."""

    generation: int
    is_synced: bool
    nodes: dict[str, NodeJson]
