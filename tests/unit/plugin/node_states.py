"""What a plugin knows of its node, written down in a line."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from plugin.allocation import Identified, NodeState
from plugin.kubelet import KubeletSnapshot
from plugin.kubelet.pod_resources import PodDevices
from plugin.machine import ServedMachine, ServingRules, serve_machine
from plugin.machine.inventory import Inventory
from plugin.nvidia.container.allocate_response import AccessRules, grant
from plugin.nvidia.container.device_nodes import PresentNodes
from tests.unit.plugin.access_machines import machine
from tests.unit.plugin.machine_values import simulated_machine
from tests.unit.plugin.node_values import NODE, gpus
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.topology_manager import TopologyManager

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.machine import Resource
    from plugin.pods import HeldDevices, NodePod

__all__ = ["prepared", "requester", "simulated_served", "snapshot", "state", "unaligned"]


def state(*resources: Resource) -> NodeState:
    """A node of four GPUs without a topology, unless the test says otherwise."""
    served = resources or (gpus("GPU-0", "GPU-1", "GPU-2", "GPU-3"),)
    whole = ServedMachine(machine(), Inventory(served, None), None)
    return unaligned(prepared(NodeState(NODE, whole)))


def prepared(known: NodeState) -> NodeState:
    """A node whose containers are given their devices by NVIDIA's variable."""
    known.grant = functools.partial(grant, present=PresentNodes(), rules=AccessRules())
    return known


def unaligned(known: NodeState) -> NodeState:
    """A node whose kubelet aligns nothing to NUMA nodes."""
    known.topology_manager = TopologyManager(
        TopologyManagerPolicy.NONE, TopologyManagerScope.CONTAINER
    )
    return known


@functools.cache
def simulated_served(recording: str = "dgx-1-v100") -> ServedMachine:
    """A recorded machine as it is served."""
    with contextlib.closing(simulated_machine(recording, node_name=NODE)) as simulated:
        return serve_machine(simulated.read(), ServingRules())


def requester(pod: NodePod, container: str = "main") -> Identified:
    """This container of a pod."""
    (one,) = [one for one in pod.containers if one.name == container]
    return Identified(pod, one, ())


def snapshot(
    *pods: NodePod,
    listed: Iterable[NodePod] | None = None,
    holdings: Iterable[HeldDevices] = (),
    recorded: Iterable[HeldDevices] = (),
    number: int = 0,
) -> KubeletSnapshot:
    """A look; PodResources lists all pods unless the test says otherwise."""
    named = pods if listed is None else listed
    devices = PodDevices(frozenset((p.namespace, p.name) for p in named), tuple(holdings))
    return KubeletSnapshot(pods, devices, tuple(recorded), number=number)
