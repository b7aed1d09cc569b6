"""What the core says of a pod on a node: whether it fits, and which set is its best there.

Says to the checker whether a waiting pod could have been placed, and a test whether a plan is the
core's own best. It takes pods as the checker read them from etcd and nodes as they were laid out,
and calls `topology.select.fit` or, where a kubelet aligns to NUMA nodes,
`topology.topology_manager.admission` directly: nothing of the extender is between.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tests.cluster.fleet.checker import Role
from topology.annotations import parse_policy
from topology.recordings import load_recording
from topology.select import ContainerRequest, ContainerRole, PodFit, build_machine, fit_pod
from topology.topology_manager import Kubelet, fit_admitted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from extender.embedded.spec import EmbeddedNode
    from tests.cluster.fleet.checker import NodeState, PodState
    from topology.annotations import PlacementPolicy
    from topology.select import Machine

__all__ = ["Judge"]

_ROLES = {
    Role.INIT: ContainerRole.INIT,
    Role.SIDECAR: ContainerRole.SIDECAR,
    Role.APP: ContainerRole.APP,
}


class Judge:
    """Knows the nodes of one cluster, which have known topologies."""

    def __init__(self, nodes: Iterable[EmbeddedNode]) -> None:
        self._nodes = {node.name: node for node in nodes}

    def learn(self, nodes: Iterable[EmbeddedNode]) -> None:
        """Know these too."""
        self._nodes |= {node.name: node for node in nodes}

    def fits(self, node: NodeState, free: frozenset[str], pod: PodState) -> bool:
        """Whether the pod has a qualifying set among these devices (`checker.Fits`)."""
        if len(free) < pod.size or not node.allocatable:
            return False
        return isinstance(self._fit(node.name, free, pod), PodFit)

    def best(self, node: str, free: Collection[str], pod: PodState) -> dict[str, list[str]]:
        """The core's own choice: devices of each container, in device order; empty if none."""
        fit = self._fit(node, free, pod)
        if not isinstance(fit, PodFit):
            return {}
        ids = self._nodes[node].ids
        chosen = zip(pod.requests, fit.containers, strict=True)
        return {request.container: [ids[gpu] for gpu in one.gpus] for request, (_, one) in chosen}

    def _fit(self, name: str, free: Collection[str], pod: PodState) -> object:
        node = self._nodes[name]
        available = sum(1 << i for i, one in enumerate(node.ids) if one in free)
        requests = tuple(
            ContainerRequest(str(i), request.size, _ROLES[request.role])
            for i, request in enumerate(pod.requests)
        )
        machine, policy = _machine(node.group), _policy(pod.wishes)
        if node.manager is None:
            return fit_pod(machine, available=available, requests=requests, policy=policy)
        kubelet = Kubelet(node.manager, available)
        return fit_admitted(
            machine, kubelet=kubelet, available=available, requests=requests, policy=policy
        )


@cache
def _machine(recording: str) -> Machine:
    return build_machine(load_recording(recording))


@cache
def _policy(wishes: tuple[tuple[str, str], ...]) -> PlacementPolicy:
    return parse_policy(dict(wishes))
