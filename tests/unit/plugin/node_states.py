"""What an agent knows of its node, written down in a line."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from plugin.allocation import Identified, NodeState, SharingRules
from plugin.kubelet import KubeletSnapshot
from plugin.kubelet.pod_resources import PodDevices
from plugin.machine import Stock, StockRules, take_stock
from plugin.machine.inventory import Inventory
from plugin.simulated.reader import SimulatedMachine
from tests.unit.plugin.access_machines import machine
from tests.unit.plugin.node_values import NODE, gpus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.machine import Resource
    from plugin.pods import HeldDevices, NodePod

__all__ = ["requester", "simulated_stock", "snapshot", "state"]


def state(*resources: Resource, sharing: SharingRules | None = None) -> NodeState:
    """Books of four GPUs that nobody can rate, unless the test says otherwise."""
    served = resources or (gpus("GPU-0", "GPU-1", "GPU-2", "GPU-3"),)
    return NodeState(NODE, Stock(machine(), Inventory(served, None), None), sharing=sharing)


@functools.cache
def simulated_stock(recording: str = "dgx-1-v100") -> Stock:
    """The stock of a recorded machine."""
    with contextlib.closing(SimulatedMachine(recording, node_name=NODE)) as simulated:
        return take_stock(simulated.read(), StockRules())


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
