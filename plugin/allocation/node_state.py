"""What the plugin knows of its node: devices, pods, holdings, and its own grants.

A registration resets grants and refusals: what was granted and refused before belongs to a kubelet
that has forgotten it or knows it better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plugin.allocation.pod_matching import (
    AdmissionView,
    Identified,
    candidates_of,
    reserved_for_others,
)
from plugin.allocation.preferred_allocation import Supply
from plugin.container import NoAccess
from plugin.machine import SharedPolicy
from plugin.pods import HeldDevices, unlisted_pod
from topology.annotations import TopologyManagerPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plugin.allocation.pod_matching import DeviceRequest, Requester
    from plugin.allocation.preferred_allocation import Allocation
    from plugin.container import ContainerAccess
    from plugin.kubelet import KubeletSnapshot
    from plugin.machine import Device, ServedMachine
    from plugin.pods import NodePod
    from topology.topology_manager import TopologyManager

__all__ = ["ExpectedAllocate", "NodeState"]


@dataclass(frozen=True, slots=True)
class ExpectedAllocate:
    """An answer to GetPreferredAllocation that Allocate repeats.

    `allocation` is None where devices or machine have changed since: it has to be chosen again.
    """

    requester: Requester
    allocation: Allocation | None


def _not_prepared(devices: Sequence[Device]) -> NoAccess:
    ids = ", ".join(device.id for device in devices)
    return NoAccess(f"the node is not prepared yet for containers with {ids}")


class NodeState:
    """Used on one event loop. `node` is this node's name; the others are as in `Supply`."""

    def __init__(
        self,
        node: str,
        served: ServedMachine,
        *,
        shared_policy: SharedPolicy = SharedPolicy.DISTRIBUTED,
        is_one_only: bool = False,
    ) -> None:
        self.node = node
        self.serve(served)
        self.unhealthy: Mapping[str, str] = {}
        """Why devices must not be allocated: reason by id."""
        self.grant: Callable[[Sequence[Device]], ContainerAccess | NoAccess] = _not_prepared
        """What one container gets with these devices."""
        self.topology_manager: TopologyManager | None = None
        """The settings of the kubelet's Topology Manager; None where unknown."""
        self.pods: tuple[NodePod, ...] | None = None
        """The kubelet's last list; None until there is one. Where it cannot be read any more, those
        of it that are still there, and others that hold devices."""
        self.is_blind = True
        """Whether the last read of the kubelet brought no pod list."""
        self.holdings: tuple[HeldDevices, ...] = ()
        """The last from PodResources and the checkpoint, of pods that are there."""
        self.knows_holdings = False
        """Whether the last read of the kubelet included holdings."""
        self.kubelet_error = ""
        """Why the last read of the kubelet failed or is incomplete; empty: it was complete."""
        self._n_seen = 0
        self._shared_policy = shared_policy
        self._is_one_only = is_one_only
        self.active: frozenset[tuple[str, str]] | None = None
        """Namespaces and names in the last PodResources list, where it has active pods only."""
        self._preexisting: frozenset[str] = frozenset()
        self.grants: tuple[HeldDevices, ...] = ()
        """Granted since the registration, oldest first, to pods that are there."""
        self._refused: frozenset[str] = frozenset()
        self._ever_unhealthy: frozenset[str] = frozenset()
        self._expected: dict[
            tuple[str, frozenset[str]], tuple[Requester, Allocation, ServedMachine]
        ] = {}

    @property
    def lists_numa_nodes(self) -> bool:
        """Whether devices are listed with their NUMA node: where the kubelet aligns by it, or may.

        With policy `none` it does not look at them (devicemanager/manager.go, `filterByAffinity`),
        and it is certain that it takes no device without a request.
        """
        manager = self.topology_manager
        return manager is None or manager.policy is not TopologyManagerPolicy.NONE

    # --- what the shells record ---

    def serve(self, served: ServedMachine) -> None:
        """Record the machine that is served from now on."""
        self.served = served
        self.resources = {one.name: one for one in served.inventory.resources}
        """By name, the base resource first."""
        self.devices = served.devices
        """Those of all resources."""

    def set_unhealthy(self, unhealthy: Mapping[str, str]) -> None:
        """Record which devices are unhealthy now."""
        self.unhealthy = dict(unhealthy)
        self._ever_unhealthy |= unhealthy.keys()

    def see(
        self, snapshot: KubeletSnapshot, *, since: tuple[HeldDevices, ...] | None = None
    ) -> None:
        """Record a read of the kubelet.

        `since` are the `grants` of when the read began, where others may have been made meanwhile:
        the snapshot does not contain those, nor perhaps their pods.
        """
        if snapshot.number < self._n_seen:
            return  # a later one was recorded first
        self._n_seen = snapshot.number
        self.kubelet_error = snapshot.error
        self.active = None
        self.is_blind = snapshot.pods is None
        self.knows_holdings = snapshot.has_holdings
        before = self.grants if since is None else since
        if snapshot.pods is None:
            self._see_unlisted(snapshot, before)
        else:
            self._see_pods(snapshot, snapshot.pods, before)

    def _see_pods(
        self,
        snapshot: KubeletSnapshot,
        pods: tuple[NodePod, ...],
        before: tuple[HeldDevices, ...],
    ) -> None:
        self.pods = pods
        present = {pod.uid for pod in pods}
        self._refused &= present
        if not self.knows_holdings:
            # Keep what was known of pods that are still there.
            self.holdings = tuple(h for h in self.holdings if h.uid in present)
            return
        self._take_holdings(snapshot, pods)
        held = {one for holding in self.holdings for one in holding.ids}
        self.grants = tuple(
            grant
            for grant in self.grants
            if grant not in before
            or (grant.uid in present if grant.uid else not held.issuperset(grant.ids))
        )

    def _see_unlisted(self, snapshot: KubeletSnapshot, before: tuple[HeldDevices, ...]) -> None:
        """Record who holds what, where the pod list could not be read; what is not known stays."""
        if snapshot.recorded is None or snapshot.devices is None:
            return
        self.holdings = snapshot.recorded
        known = {pod.uid for pod in self.pods or ()}
        new = {
            one.uid: unlisted_pod(one.uid, one.namespace, one.name)
            for one in self.holdings
            if one.uid is not None and one.uid not in known
        }
        # A pod that has another one's name is there in its place.
        there = snapshot.devices.pods - {(pod.namespace, pod.name) for pod in new.values()}
        still = (pod for pod in self.pods or () if (pod.namespace, pod.name) in there)
        self.pods = (*still, *new.values())
        held = {one for holding in self.holdings for one in holding.ids}
        self.grants = tuple(
            grant for grant in self.grants if grant not in before or not held.issuperset(grant.ids)
        )

    def _take_holdings(self, snapshot: KubeletSnapshot, pods: tuple[NodePod, ...]) -> None:
        uids = {(pod.namespace, pod.name): pod.uid for pod in pods if not pod.has_ended}
        reported: list[HeldDevices] = []
        if snapshot.devices is not None:
            ended = {(pod.namespace, pod.name) for pod in pods if pod.has_ended}
            if ended.isdisjoint(snapshot.devices.pods):
                self.active = snapshot.devices.pods
            reported = [
                replace(one, uid=uids[one.namespace, one.name])
                for one in snapshot.devices.holdings
                if (one.namespace, one.name) in uids
            ]
        self.holdings = tuple(dict.fromkeys((*reported, *(snapshot.recorded or ()))))

    def begin_registration(self) -> None:
        """Reset grants and refusals: a kubelet is about to learn of the devices.

        The pods that it has now were there before.
        """
        self.grants = ()
        self._refused = frozenset()
        self._expected.clear()
        self._ever_unhealthy = frozenset(self.unhealthy)
        self._preexisting = frozenset(pod.uid for pod in self.pods or ())

    def expect_allocate(self, resource: str, found: Allocation, requester: Requester) -> None:
        """Record an answer: an Allocate of these ids will be for the same container."""
        self._expected[resource, frozenset(found.ids)] = (requester, found, self.served)

    def expected(self, resource: str, ids: Iterable[str]) -> ExpectedAllocate | None:
        """The answer that was last given with these ids, once; None where there is none."""
        found = self._expected.get((resource, frozenset(ids)))
        # The kubelet serves one container after another: all other answers are stale.
        self._expected = {key: v for key, v in self._expected.items() if key[0] != resource}
        if found is None:
            return None
        requester, allocation, served = found
        is_valid = served is self.served and self.unhealthy.keys().isdisjoint(allocation.ids)
        return ExpectedAllocate(requester, allocation if is_valid else None)

    def record_grant(self, resource: str, ids: Iterable[str], requester: Requester) -> None:
        """Record devices that were granted."""
        namespace = name = container = ""
        uid = None
        if isinstance(requester, Identified):
            pod, container = requester.pod, requester.container.name
            namespace, name, uid = pod.namespace, pod.name, pod.uid
        grant = HeldDevices(namespace, name, container, resource, tuple(sorted(ids)), uid)
        # Earlier grants of these ids to others have been freed since; the pod's own are reused.
        others = (
            one for one in self.grants if one.uid == uid is not None or not {*one.ids} & {*ids}
        )
        self.grants = (*others, grant)

    def record_refusal(self, requester: Requester) -> None:
        """Record that a pod got an error, which ends it."""
        if isinstance(requester, Identified):
            self._refused |= {requester.pod.uid}

    # --- what decisions read ---

    def view(self, *, is_fresh: bool) -> AdmissionView:
        """The view that finds a requester."""
        return AdmissionView(
            node=self.node,
            resources=self.resources.keys(),
            pods=self.pods or (),
            is_fresh=is_fresh,
            holdings=self.holdings,
            grants=self.grants,
            refused=self._refused,
            preexisting=self._preexisting,
            active=self.active if is_fresh else None,
            kubelet_decides=self.lists_numa_nodes,
            always_healthy=frozenset(d.id for d in self.devices) - self._ever_unhealthy,
        )

    def held_by_others(
        self, resource: str, ids: Iterable[str], requester: Requester
    ) -> tuple[HeldDevices, ...]:
        """Which of these devices another pod held when that was last known.

        That pod may have ended since. Grants to unknown requesters are left out.
        """
        own = requester.pod.uid if isinstance(requester, Identified) else None
        wanted = set(ids)
        found = (
            replace(one, ids=tuple(id_ for id_ in one.ids if id_ in wanted))
            for one in dict.fromkeys((*self.holdings, *self.grants))
            if one.resource == resource and one.uid not in {None, own}
        )
        return tuple(one for one in found if one.ids)

    def supply(self, request: DeviceRequest, requester: Requester, view: AdmissionView) -> Supply:
        """What can be allocated to a requester, by the view in which it was looked for.

        Held is what the kubelet does not offer though it is healthy. Where active pods are known, a
        device that one of them holds is held too where the kubelet offers it, having lost count of
        it (`plugin.kubelet.admission_gate`).
        """
        own = {one.pod.uid for one in candidates_of(requester)}
        is_sure = view.active is not None
        lost = {one for h in view.holdings if is_sure and h.uid not in own for one in h.ids}
        given = {one for h in (*view.holdings, *view.grants) for one in h.ids} - request.available
        in_use = lost | given
        resource = self.resources[request.resource]
        known = {device.id for device in resource.devices}
        held = known - request.available - self.unhealthy.keys() | known & in_use
        is_base = resource is self.served.inventory.resources[0]
        return Supply(
            resource=resource,
            machine=self.served.machine if is_base else None,
            unhealthy=frozenset(self.unhealthy),
            held=frozenset(held),
            reserved=reserved_for_others(requester, view),
            busy_gpus=frozenset(d.gpu.uuid for d in self.devices if d.id in in_use),
            shared_policy=self._shared_policy,
            is_one_only=self._is_one_only,
        )
