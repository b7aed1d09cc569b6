"""A call of the kubelet is answered in time, however slow the kubelet is to answer ours."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kube.errors import Unreachable
from plugin.allocation import NodeState
from plugin.allocator import AllocatorTools, ResourceAllocator
from plugin.deviceplugin import CallOutcome, DeviceList, ListedDevice, Offer
from plugin.deviceplugin.service import DevicePluginService
from plugin.errors import KubeletError
from plugin.kubelet import KubeletView
from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.unit.plugin.node_states import prepared, simulated_served, snapshot
from tests.unit.plugin.node_values import GPU, NODE, app, holding, node_pod
from tests.virtual_time import run_at_once

SERVED = simulated_served()
IDS = tuple(device.id for device in SERVED.inventory.resources[0].devices)
NEVER_S = 3600.0
HOLDER = node_pod("holder", app("main", 1), phase="Running", is_started=True)


@dataclass
class Call:
    """A method of the server."""

    method: str
    invocation_metadata: Any = ()


class SlowKubelet:
    """Gives no answer about its pods; one about a single pod's devices at once, or none."""

    def __init__(self, *, answers_get: bool = True) -> None:
        self.answers_get = answers_get

    async def pods(self, *, timeout_s: float | None = None) -> bytes:
        """Not within any time."""
        await asyncio.sleep(NEVER_S if timeout_s is None else timeout_s)
        raise Unreachable(0, "Timeout", "no answer")

    async def read(self) -> Any:
        """Not within any time."""
        await asyncio.sleep(NEVER_S)

    async def read_pod(self, namespace: str, name: str) -> tuple[()]:
        """It is gone, or no answer."""
        if not self.answers_get:
            await asyncio.sleep(NEVER_S)
        msg = f"pod {name} in namespace {namespace} not found"
        raise KubeletError(msg)

    async def read_allocatable(self) -> Any:
        """Not within any time."""
        await asyncio.sleep(NEVER_S)


class ListingKubelet(SlowKubelet):
    """Says which pods it has, none, when `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

    async def pods(self, *, timeout_s: float | None = None) -> bytes:
        """The list."""
        del timeout_s
        await self.answer.wait()
        return b'{"apiVersion":"v1","kind":"PodList","items":[]}'


class Node:
    """The calls of a node with this kubelet; `state` knows what a pod had."""

    def __init__(self, kubelet: SlowKubelet) -> None:
        self.state = prepared(NodeState(NODE, SERVED))
        self.state.see(snapshot(HOLDER, recorded=[holding(HOLDER, "main", IDS[0])]))
        self.view = KubeletView(kubelet, kubelet, Path("/nonexistent/checkpoint"))
        self.calls: list[Any] = []
        tools = AllocatorTools(
            self.state, self.view, emit=lambda _: None, on_allocated=lambda: None
        )
        self.service = DevicePluginService(
            Offer(GPU, DeviceList(map(ListedDevice, IDS)), ResourceAllocator(GPU, tools)),
            on_call=self.calls.append,
        )

    async def answer(self, name: str, request: object) -> Any:
        """What the kubelet gets."""
        method: Any = self.service.handler().service(Call(f"/v1beta1.DevicePlugin/{name}"))
        return await method.unary_unary(request, Refusals())


class Refusals:
    """A call that ends without an answer."""

    async def abort(self, *error: object) -> None:
        """The error that the kubelet gets."""
        raise KubeletError(str(error))


PREFERRED = pb.PreferredAllocationRequest(
    container_requests=[
        pb.ContainerPreferredAllocationRequest(available_deviceIDs=IDS[1:], allocation_size=2)
    ]
)
ALLOCATE = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=IDS[:2])])


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        pytest.param("GetPreferredAllocation", PREFERRED, id="a preference"),
        pytest.param("Allocate", ALLOCATE, id="an allocation"),
    ],
)
def test_a_call_ends_within_its_time_though_a_request_of_ours_is_under_way(name, request_):
    """Late would fail the pod for good: what is waited for shares one time."""

    async def go():
        node = Node(SlowKubelet())
        with node.view.gate.request():
            await node.answer(name, request_)
        (call,) = node.calls
        assert call.outcome is CallOutcome.OK
        assert call.duration_s <= 1.5 + 1e-6

    run_at_once(go())


@pytest.mark.parametrize("stalled_s", [0.3, 0.6, 1.2, 30.0])
@pytest.mark.parametrize("from_s", [0.1, 0.7, 1.4])
def test_a_process_that_stands_still_fails_no_pod(from_s, stalled_s):
    """What it was waiting for arrives meanwhile, and its time is over before it can look."""

    async def go():
        kubelet = ListingKubelet()
        node = Node(kubelet)
        loop: Any = asyncio.get_running_loop()

        def stall() -> None:
            loop.now_s += stalled_s
            kubelet.answer.set()

        loop.call_later(from_s, stall)
        await node.answer("GetPreferredAllocation", PREFERRED)
        (call,) = node.calls
        assert call.outcome is CallOutcome.OK
        assert call.duration_s <= max(1.5, from_s + stalled_s) + 1e-6

    run_at_once(go())


def test_a_last_holder_that_cannot_be_read_keeps_its_device():
    """Within the call's time, too."""

    async def go():
        node = Node(SlowKubelet(answers_get=False))
        with pytest.raises(KubeletError, match=f"{IDS[0]} belongs to container main"):
            await node.answer("Allocate", ALLOCATE)
        (call,) = node.calls
        assert call.outcome is CallOutcome.REFUSED
        assert call.duration_s == pytest.approx(1.5)

    run_at_once(go())
