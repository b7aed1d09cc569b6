"""Which devices pods really hold, and how that differs from their plans.

The differences (`mismatches`) are logged, and make the report for the node's annotation
(`device_report`). It never repeats what a plan says: the normal life of a pod changes nothing
there, and costs no write.

A hold is reported where its pod has no plan for the container, where the devices differ, or where
the plan is unknown since the kubelet's pods cannot be read. A plain
init container is the exception: the kubelet serves it from what earlier ones left, in random order
(devicemanager/manager.go, `devicesToAllocate`, 1.36.3), and what it has stays with its pod anyway;
so its hold is as planned as long as it lies within its pod's plan (design of Coterie, section 3).

PodResources lists no plain init containers, and names pods by namespace and name alone: uids come
from the kubelet's pod list, or with the holdings from its checkpoint. A holding of no listed pod is
left out: its pod has just come or gone, and the next read has it.

That a container runs without the devices it requests is in the report too, where the caller says
that it lasts: the node plugin may not write pods, so the extender informs the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from plugin.pods.admission_order import HoldingsByPod
from plugin.pods.node_pods import plan_problem, planned_ids, pod_plan
from topology.annotations import DeviceHold, DevicesReport, MissingDevices, UnhealthyDevice
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from plugin.pods.admission_order import HeldDevices, PodHoldings
    from plugin.pods.node_pods import NodePod
    from topology.annotations import TopologyManagerPolicy, TopologyManagerScope

__all__ = ["MismatchKind", "PlanMismatch", "device_report", "mismatches"]

_RUNNING = "Running"
_MAX_MISSING = 100
"""Containers without devices in a report: some 60 KB of it (names of Kubernetes' full length). A
hold takes a device, so that their number is bounded; that of these is not, and a report that no
annotation can hold would not name unhealthy devices either. Log and metric have all."""
_HAZARD = (
    "it started before the kubelet knew that resource; delete the pod, and its controller makes a "
    "new one"
)


class MismatchKind(Enum):
    """In which way plan and reality differ."""

    OTHER_DEVICES = "other-devices"
    """A container has other devices than planned."""
    NO_PLAN = "no-plan"
    """A container has devices and no plan for them: another scheduler bound its pod."""
    UNKNOWN_PLAN = "unknown-plan"
    """A container has devices, and its pod's plan cannot be read from the kubelet. The report names
    all such containers: the extender knows the plans."""
    BAD_PLAN = "bad-plan"
    """A pod's plan cannot be used."""
    NO_DEVICES = "no-devices"
    """A container runs without the devices it requests: the kubelet drops a resource that is not
    registered, and starts the pod as if it had not requested it."""


@dataclass(frozen=True, slots=True)
class PlanMismatch:
    """One such difference; `container` and `resource` are empty where it concerns a whole pod."""

    kind: MismatchKind
    pod: NodePod
    container: str = ""
    resource: str = ""
    planned: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        """One sentence for people."""
        where = f"pod {self.pod.namespace}/{self.pod.name}"
        if self.container:
            where += f" container {self.container}"
        planned, held = ", ".join(self.planned), ", ".join(self.held)
        what = {
            MismatchKind.OTHER_DEVICES: f"has {held}, planned were {planned}",
            MismatchKind.NO_PLAN: f"has {held} without a plan",
            MismatchKind.UNKNOWN_PLAN: f"has {held}, and its plan cannot be read from the kubelet",
            MismatchKind.BAD_PLAN: f"carries a plan that cannot be used: {self.detail}",
            MismatchKind.NO_DEVICES: f"runs without the {self.resource} it requests: {_HAZARD}",
        }
        return f"{where} {what[self.kind]}"


def device_report(
    found: Iterable[PlanMismatch],
    *,
    lasting: Iterable[PlanMismatch],
    unhealthy: Mapping[str, str],
    policy: TopologyManagerPolicy | None,
    scope: TopologyManagerScope | None,
) -> DevicesReport:
    """What is not in the plans, without a generation. `unhealthy` gives reasons by device id.

    `found` are all `mismatches`; of the lasting ones those of pods without devices are included, up
    to a limit. Equal facts give equal reports, in whatever order they came.
    """
    holds = (
        DeviceHold(
            uid=one.pod.uid,
            namespace=one.pod.namespace,
            name=one.pod.name,
            container=one.container,
            resource=one.resource,
            ids=one.held,
        )
        for one in found
        if one.held
    )
    return DevicesReport(
        unhealthy=tuple(UnhealthyDevice(one, unhealthy[one]) for one in sorted(unhealthy)),
        holds=tuple(holds),
        policy=policy,
        scope=scope,
        missing=_missing(lasting),
    )


def mismatches(
    pods: Iterable[NodePod],
    holdings: Iterable[HeldDevices],
    *,
    resources: Collection[str],
    node: str,
) -> tuple[PlanMismatch, ...]:
    """The differences between plans and holdings of these resources, in a stable order.

    `holdings` were read after `pods`.
    """
    by_pod = HoldingsByPod(holdings)
    living = (pod for pod in pods if not pod.has_ended)
    held = [
        (pod, by_pod.of(pod))
        for pod in sorted(living, key=lambda pod: (pod.namespace, pod.name, pod.uid))
    ]
    problems = ((pod, plan_problem(pod, node)) for pod, _ in held)
    return (
        *(PlanMismatch(MismatchKind.BAD_PLAN, pod, detail=one) for pod, one in problems if one),
        *(one for pod, has in held for one in _unplanned(pod, has, resources, node)),
        *(one for pod, has in held for one in _deviceless(pod, has, resources)),
    )


def _missing(lasting: Iterable[PlanMismatch]) -> tuple[MissingDevices, ...]:
    bare = (one for one in lasting if one.kind is MismatchKind.NO_DEVICES)
    return tuple(
        MissingDevices(
            uid=one.pod.uid,
            namespace=one.pod.namespace,
            name=one.pod.name,
            container=one.container,
            resource=one.resource,
        )
        for one in islice(bare, _MAX_MISSING)
    )


def _unplanned(
    pod: NodePod, held: PodHoldings, resources: Collection[str], node: str
) -> Iterator[PlanMismatch]:
    for (container, resource), ids in sorted(held.items()):
        is_ours = resource in resources and ids
        if is_ours and not _is_as_planned(pod, container, resource=resource, ids=ids, node=node):
            planned = planned_ids(pod, container, resource=resource, node=node)
            if not pod.is_listed:
                kind = MismatchKind.UNKNOWN_PLAN
            else:
                kind = MismatchKind.OTHER_DEVICES if planned else MismatchKind.NO_PLAN
            yield PlanMismatch(kind, pod, container, resource, planned, tuple(sorted(ids)))


def _deviceless(
    pod: NodePod, held: PodHoldings, resources: Collection[str]
) -> Iterator[PlanMismatch]:
    """Containers that run without what they request; init containers are not considered."""
    if pod.phase != _RUNNING or pod.is_deleting:
        return
    for container in pod.containers:
        for resource in sorted(container.devices.keys() & set(resources)):
            is_init = container.role is ContainerRole.INIT
            if not is_init and not held.get((container.name, resource)):
                yield PlanMismatch(MismatchKind.NO_DEVICES, pod, container.name, resource)


def _is_as_planned(
    pod: NodePod, container: str, *, resource: str, ids: frozenset[str], node: str
) -> bool:
    plan = pod_plan(pod, node)
    if plan is None:
        return False
    roles = {one.name: one.role for one in pod.containers}
    if roles.get(container) is ContainerRole.INIT:
        return ids <= set(plan.ids)
    return ids == frozenset(planned_ids(pod, container, resource=resource, node=node))
