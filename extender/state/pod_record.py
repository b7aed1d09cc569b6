"""What is known of one pod: how sure its binding is, its plan, and what a reading in full showed.

It gives the node that a pod is on and which devices it should have or has, as far as the API server
knows. A record is written by `extender.state.pods` and `effect_rules` and read by
`extender.state.accounting`. It never knows what other pods have.

Tens of thousands of records live at a time, so texts are interned and a plan's ids are the node's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from extender.errors import MalformedPod, WireError
from extender.protocol import messages, parse_pod, read_node_affinity
from topology.annotations import ContainerPlan, Plan, decode_plan
from topology.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kube.objects import ContainerDevices, PodObject
    from topology.annotations import MissingDevices
    from topology.node_affinity import RequiredNodeAffinity

__all__ = [
    "BoundPod",
    "PodBody",
    "PodRecord",
    "PodStage",
    "kept_plan",
    "read_body",
    "read_plan",
]


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that has a node; `plan_text` is its plan annotation, if it has one."""

    uid: str
    namespace: str
    name: str
    node: str
    plan_text: str | None


class PodStage(Enum):
    """How sure the pod's binding is.

    ASSUMED: in flight, or its outcome is unknown. ACCEPTED: the API server accepted it, no watch
    has shown it yet. SEEN: a watch has. REMOVED: the API server removed the pod without waiting for
    its kubelet, which may not have stopped its containers yet.
    """

    ASSUMED = "assumed"
    ACCEPTED = "accepted"
    SEEN = "seen"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class PodBody:
    """What a reading in full showed: the pod's node, and how many devices it requests.

    `devices` are those that its status names (Kubernetes 1.36, some seconds after the containers
    started). `is_request_unknown`: its spec could not be read, so that it is not known what it has.
    `node_affinity` is what it requires of its node's labels, None where that is not known.
    """

    node: str
    sizes: tuple[tuple[str, int], ...]
    devices: tuple[ContainerDevices, ...] = ()
    is_request_unknown: bool = False
    node_affinity: RequiredNodeAffinity | None = None

    def size(self, resource: str) -> int:
        """How many devices of a resource it requests."""
        return dict(self.sizes).get(resource, 0)


class PodRecord:
    """One pod. `number` grows with every pod met: the order in which they came.

    `is_unconfirmed`: its body is where a binding by count would put it, not confirmed yet.
    `is_doubted`: its binding was accepted, but no watch has shown it in time. `plan_hash` is that
    of the plan's text as a watch showed it, or else as the binding writes it. `deadline_s` is there
    until a watch has shown the pod, and again once it is removed. `deletion_grace_s` is that of its
    deletion as first seen, None before. `has_unknown_devices`: its devices are not known by name,
    or the node no longer has some. `was_probed`: a reading in full was requested since they were
    last known. `node_affinity` is None where it is not known, since neither a reading in full nor a
    binding here showed it. `reported` is the hash of the last `coterie.gpu/allocated` text,
    `contested` the ids of the last conflict, `missing` what it ran without: none of these is
    reported twice.
    """

    __slots__ = (
        "body",
        "contested",
        "deadline_s",
        "deletion_grace_s",
        "has_unknown_devices",
        "is_doubted",
        "is_unconfirmed",
        "missing",
        "name",
        "namespace",
        "node_affinity",
        "number",
        "plan",
        "plan_hash",
        "reported",
        "stage",
        "uid",
        "was_probed",
    )

    def __init__(self, uid: str, namespace: str, name: str, number: int) -> None:
        self.uid = uid
        self.namespace = sys.intern(namespace)
        self.name = name
        self.number = number
        self.stage = PodStage.SEEN
        self.plan: Plan | None = None
        self.plan_hash: int | None = None
        self.body: PodBody | None = None
        self.node_affinity: RequiredNodeAffinity | None = None
        self.deadline_s: float | None = None
        self.deletion_grace_s: int | None = None
        self.is_unconfirmed = False
        self.is_doubted = False
        self.has_unknown_devices = False
        self.was_probed = False
        self.reported: int | None = None
        self.contested: tuple[str, ...] = ()
        self.missing: tuple[MissingDevices, ...] = ()

    @property
    def node(self) -> str | None:
        """The node that the pod is on: its spec's, else its plan's; None if unknown."""
        if self.body is not None:
            return self.body.node
        return None if self.plan is None else self.plan.node

    @property
    def node_plan(self) -> Plan | None:
        """The plan, if it is one for the node that the pod is on."""
        plan = self.plan
        if plan is None or self.body is None or plan.node == self.body.node:
            return plan
        return None


def read_plan(text: str | None) -> Plan | None:
    """Read a plan for keeping; None where there is none that can be read."""
    if text is None:
        return None
    try:
        plan = decode_plan(text)
    except CodecError:
        return None
    return kept_plan(plan)


def kept_plan(plan: Plan) -> Plan:
    """The same plan, sharing its texts with other plans."""
    intern = sys.intern
    containers = tuple(
        ContainerPlan(intern(one.name), intern(one.resource), tuple(map(intern, one.ids)))
        for one in plan.containers
    )
    ids = containers[0].ids if len(containers) == 1 else tuple(map(intern, plan.ids))
    return Plan(
        intern(plan.node),
        containers,
        ids,
        plan.generation,
        plan.score_gbytes_per_s,
        plan.priority,
        plan.group,
    )


def read_body(pod: PodObject, node: str, resources: Sequence[str]) -> PodBody:
    """Read what an assigned pod requests and has; never raises.

    Its annotations do not matter here, right or wrong: it has its devices.
    """
    try:
        whole = messages.decode(messages.WirePod, pod.body)
        bare = whole.model_copy(
            update={"metadata": whole.metadata.model_copy(update={"annotations": None})}
        )
        sizes = ((one, parse_pod(bare, (one,)).size_gpus) for one in resources)
        requested = tuple((resource, size) for resource, size in sizes if size)
    except (MalformedPod, WireError):
        return PodBody(sys.intern(node), (), pod.devices, is_request_unknown=True)
    affinity = read_node_affinity(whole.spec)
    return PodBody(sys.intern(node), requested, pod.devices, node_affinity=affinity)
