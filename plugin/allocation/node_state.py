"""What the agent knows of its node: devices, pods, who has what, and what it gave itself.

What it answers: the view by which an asker is found (`plugin.allocation.pod_matching`) and the
supply from which is chosen (`plugin.allocation.preferred_allocation`), both made of what was noted
here. It must never ask anybody anything, nor look at a clock: shells note what they learn.

A registration begins a new page: what was given and refused before belongs to a kubelet that has
forgotten it or knows it better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plugin.allocation.pod_matching import AdmissionView, Identified, reserved_for_others
from plugin.allocation.preferred_allocation import Supply
from plugin.machine import NO_SHARING, SharedPolicy
from plugin.nvidia.container.device_nodes import PresentNodes
from plugin.pods import HeldDevices, is_over
from topology.annotations import TopologyManagerPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kube.client import TopologyManagerSettings
    from plugin.allocation.pod_matching import DeviceRequest, Requester
    from plugin.kubelet import KubeletSnapshot
    from plugin.machine import Device, Resource, Stock, TimeSlicing
    from plugin.pods import NodePod

__all__ = ["NodeState", "SharingRules"]

_NOBODY = ("", "")


@dataclass(frozen=True, slots=True)
class SharingRules:
    """How shared devices are given out."""

    slicing: TimeSlicing = NO_SHARING
    policy: SharedPolicy = SharedPolicy.DISTRIBUTED


class NodeState:
    """Used on one event loop. `node` is this node's name."""

    def __init__(self, node: str, stock: Stock, *, sharing: SharingRules | None = None) -> None:
        self.node = node
        self.stock = stock
        self.unhealthy: Mapping[str, str] = {}
        """Why devices are not to be given away: reason by id."""
        self.present = PresentNodes()
        """Which device nodes there are beside the GPUs' own."""
        self.topology_manager: TopologyManagerSettings | None = None
        """How the kubelet aligns; None where nobody knows."""
        self.pods: tuple[NodePod, ...] | None = None
        """As the kubelet listed them last; None until it did."""
        self.holdings: tuple[HeldDevices, ...] = ()
        """As PodResources and the checkpoint told them last, of pods that are there."""
        self.knows_holdings = False
        """Whether the kubelet told who has which devices when it was looked at last."""
        self.kubelet_error = ""
        """Why the last read of the kubelet failed or is incomplete; empty: it was complete."""
        self._n_seen = 0
        self._sharing = sharing or SharingRules()
        self.active: frozenset[tuple[str, str]] | None = None
        """Namespaces and names of the pods that PodResources listed last, if active ones alone."""
        self._settled: frozenset[str] = frozenset()
        self._grants: tuple[HeldDevices, ...] = ()
        self._refused: frozenset[str] = frozenset()
        self._ever_unwell: frozenset[str] = frozenset()
        self._expected: dict[tuple[str, frozenset[str]], Requester] = {}

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices of all resources."""
        return self.stock.devices

    @property
    def tells_numa_nodes(self) -> bool:
        """Whether the kubelet is to know the devices' NUMA nodes: only where it aligns by them."""
        manager = self.topology_manager
        return manager is not None and manager.policy is not TopologyManagerPolicy.NONE

    # --- what shells note ---

    def see_unhealthy(self, unhealthy: Mapping[str, str]) -> None:
        """Take note of which devices are bad now."""
        self.unhealthy = dict(unhealthy)
        self._ever_unwell |= unhealthy.keys()

    @property
    def grants(self) -> tuple[HeldDevices, ...]:
        """What was given since the registration, oldest first, of pods that are there."""
        return self._grants

    def see(
        self, snapshot: KubeletSnapshot, *, since: tuple[HeldDevices, ...] | None = None
    ) -> None:
        """Take note of what the kubelet said.

        `since` are the `grants` of when the look began, if others may have been made meanwhile: the
        look does not know of those, nor perhaps of their pods.
        """
        if snapshot.number < self._n_seen:
            return  # a later one has come first
        self._n_seen = snapshot.number
        self.kubelet_error = snapshot.trouble
        self.pods = snapshot.pods
        self.active = None
        present = {pod.uid for pod in snapshot.pods}
        self._refused &= present
        self.knows_holdings = snapshot.has_holdings
        if not snapshot.has_holdings:
            # What was known of pods that are there still; those that came since are unknown.
            self.holdings = tuple(h for h in self.holdings if h.uid in present)
            return
        self._take_holdings(snapshot)
        held = {one for holding in self.holdings for one in holding.ids}
        before = self._grants if since is None else since
        self._grants = tuple(
            grant
            for grant in self._grants
            if grant not in before
            or (grant.uid in present if grant.uid else not held.issuperset(grant.ids))
        )

    def kubelet_failed(self, error: str) -> None:
        """Record that the kubelet could not be read; what was known stays."""
        self.kubelet_error = error

    def _take_holdings(self, snapshot: KubeletSnapshot) -> None:
        uids = {(pod.namespace, pod.name): pod.uid for pod in snapshot.pods if not is_over(pod)}
        told: list[HeldDevices] = []
        if snapshot.devices is not None:
            ended = {(pod.namespace, pod.name) for pod in snapshot.pods if is_over(pod)}
            if ended.isdisjoint(snapshot.devices.pods):
                self.active = snapshot.devices.pods
            told = [
                replace(one, uid=uids[one.namespace, one.name])
                for one in snapshot.devices.holdings
                if (one.namespace, one.name) in uids
            ]
        self.holdings = tuple(dict.fromkeys((*told, *(snapshot.recorded or ()))))

    def begin_registration(self) -> None:
        """Take note that a kubelet is about to hear of our devices.

        The pods that it has now were there before.
        """
        self._grants = ()
        self._refused = frozenset()
        self._expected.clear()
        self._ever_unwell = frozenset(self.unhealthy)
        self._settled = frozenset(pod.uid for pod in self.pods or ())

    def expect(self, resource: str, ids: Iterable[str], requester: Requester) -> None:
        """Take note of an answer: an Allocate of these ids will be for the same container."""
        self._expected[resource, frozenset(ids)] = requester

    def expected(self, resource: str, ids: Iterable[str]) -> Requester | None:
        """Who asked for these ids last, once; None where nobody did."""
        found = self._expected.get((resource, frozenset(ids)))
        # The kubelet asks and takes, one container after another: all others are stale.
        self._expected = {key: v for key, v in self._expected.items() if key[0] != resource}
        return found

    def gave(self, resource: str, ids: Iterable[str], requester: Requester) -> None:
        """Take note of devices that were given."""
        pod, container = (
            (requester.pod, requester.container.name)
            if isinstance(requester, Identified)
            else (None, "")
        )
        namespace, name = _NOBODY if pod is None else (pod.namespace, pod.name)
        uid = None if pod is None else pod.uid
        grant = HeldDevices(namespace, name, container, resource, tuple(sorted(ids)), uid)
        # What others were given of it before has come back since; one's own is handed on.
        others = (
            one for one in self._grants if one.uid == uid is not None or not {*one.ids} & {*ids}
        )
        self._grants = (*others, grant)

    def refuse(self, requester: Requester) -> None:
        """Take note that a pod got an error, which ends it."""
        if isinstance(requester, Identified):
            self._refused |= {requester.pod.uid}

    # --- what those who decide read ---

    def view(self, *, is_fresh: bool) -> AdmissionView:
        """What is known, for finding out who asks."""
        return AdmissionView(
            node=self.node,
            resources=frozenset(one.name for one in self.stock.inventory.resources),
            pods=self.pods or (),
            is_fresh=is_fresh,
            holdings=self.holdings,
            grants=self._grants,
            refused=self._refused,
            settled=self._settled,
            active=self.active if is_fresh else None,
            decides_alone=self.tells_numa_nodes,
            steady=frozenset(d.id for d in self.devices) - self._ever_unwell,
        )

    def held_by_others(
        self, resource: str, ids: Iterable[str], requester: Requester
    ) -> tuple[HeldDevices, ...]:
        """Which of these devices were some other pod's when it was last heard of.

        That pod may have ended since. What nobody known was given is left out.
        """
        asker = requester.pod.uid if isinstance(requester, Identified) else None
        wanted = set(ids)
        found = (
            replace(one, ids=tuple(id_ for id_ in one.ids if id_ in wanted))
            for one in dict.fromkeys((*self.holdings, *self._grants))
            if one.resource == resource and one.uid not in {None, asker}
        )
        return tuple(one for one in found if one.ids)

    def supply(
        self,
        resource: Resource,
        requester: Requester,
        request: DeviceRequest,
        *,
        is_fresh: bool = False,
    ) -> Supply:
        """What can be given of a resource, to those who may be asking.

        With `is_fresh` the last look was made for this question. Then a device that a living pod
        has is not given once more, though the kubelet lost count of it
        (`plugin.kubelet.admission_gate`).
        """
        asker = requester.pod.uid if isinstance(requester, Identified) else None
        is_sure = is_fresh and self.active is not None
        taken = {one for h in self.holdings if is_sure and h.uid != asker for one in h.ids}
        resources = self.stock.inventory.resources
        is_base = bool(resources) and resource.name == resources[0].name
        given = {one for h in (*self.holdings, *self._grants) for one in h.ids} - request.available
        return Supply(
            resource=resource,
            machine=self.stock.machine if is_base else None,
            unhealthy=frozenset(self.unhealthy) | taken,
            reserved=reserved_for_others(requester, self.view(is_fresh=False)),
            busy_gpus=frozenset(d.gpu_uuid for d in self.devices if d.id in given),
            shared_policy=self._sharing.policy,
            is_one_only=self._sharing.slicing.is_one_only,
        )
