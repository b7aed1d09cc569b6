"""What one pod passes on its way through the plugin: modules and calls, counted.

Functions that have a name count, a generator or coroutine once however often it goes on;
comprehensions do not, which are calls in some versions of Python only (PEP 709).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plugin
from plugin.allocation import NodeState
from plugin.allocator import AllocatorTools, ResourceAllocator
from plugin.deviceplugin import DeviceList, ListedDevice, Offer
from plugin.deviceplugin.service import DevicePluginService
from plugin.kubelet import KubeletView
from plugin.kubelet.pod_resources import PodDevices
from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.unit.plugin.node_states import prepared, simulated_served, unaligned
from tests.unit.plugin.node_values import GPU, NODE
from tests.virtual_time import run_at_once
from topology.annotations import ContainerPlan, Plan, encode_plan
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MAX_MODULES = 25
MAX_CALLS = 200
"""In both calls together. A third of them read the kubelet's JSON, a fifth the plan in it."""
SERVED = simulated_served()
IDS = tuple(device.id for device in SERVED.inventory.resources[0].devices)
ROOT = Path(plugin.__file__).parents[1]
OURS = tuple(f"{ROOT / name}/" for name in ("plugin", "topology", "kube"))


class CallPath:
    """Calls of our functions, by module."""

    def __init__(self) -> None:
        self.by_module: Counter[str] = Counter()
        self._frames: set[FrameType] = set()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count what runs in this thread."""
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._frames.clear()

    def _see(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(OURS) and not code.co_name.startswith("<")
        if event == "call" and is_ours and frame not in self._frames:
            self._frames.add(frame)
            self.by_module[str(Path(code.co_filename).relative_to(ROOT))] += 1


class Kubelet:
    """Lists one pod, which has a plan and no devices."""

    def __init__(self, planned: tuple[str, ...]) -> None:
        plan = Plan(NODE, (ContainerPlan("main", GPU, planned),), (), 1, 0.0)
        meta = {"uid": "u", "namespace": "default", "name": "p"}
        limits = {GPU: str(len(planned))}
        pod = {
            "metadata": {**meta, "annotations": {names.PLAN: encode_plan(plan)}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": "Pending"},
        }
        self._pods = json.dumps({"kind": "PodList", "items": [pod]}).encode()

    async def pods(self, *, timeout_s: float | None = None) -> bytes:
        """The pod."""
        del timeout_s
        return self._pods

    async def read(self) -> PodDevices:
        """It has nothing."""
        return PodDevices(frozenset({("default", "p")}), ())

    async def read_pod(self, namespace: str, name: str) -> Any:
        """No request."""
        raise AssertionError(namespace, name)

    async def read_allocatable(self) -> Any:
        """No request."""
        raise AssertionError


class Called:
    """A method of the server."""

    invocation_metadata: Any = ()

    def __init__(self, method: str) -> None:
        self.method = f"/v1beta1.DevicePlugin/{method}"


async def admit(planned: tuple[str, ...], path: CallPath) -> list[str]:
    """Both calls for a pod of this plan; what its container sees."""
    kubelet = Kubelet(planned)
    view = KubeletView(kubelet, kubelet, Path("/nonexistent/checkpoint"))
    state = unaligned(prepared(NodeState(NODE, SERVED)))
    state.begin_registration()
    tools = AllocatorTools(state, view, emit=lambda _: None, on_allocated=lambda: None)
    one = Offer(GPU, DeviceList(map(ListedDevice, IDS)), ResourceAllocator(GPU, tools))
    handler = DevicePluginService(one, on_call=lambda _: None).handler()

    async def call(name: str, request: object) -> Any:
        asked: Any = Called(name)
        method: Any = handler.service(asked)
        with path.followed():
            return await method.unary_unary(request, None)

    wanted = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=IDS, allocation_size=len(planned)
    )
    found = await call(
        "GetPreferredAllocation", pb.PreferredAllocationRequest(container_requests=[wanted])
    )
    ids = found.container_responses[0].deviceIDs
    given = pb.ContainerAllocateRequest(devices_ids=ids)
    answer = await call("Allocate", pb.AllocateRequest(container_requests=[given]))
    seen: str = answer.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"]
    return seen.split(",")


def test_a_planned_pod_passes_few_modules_and_calls():
    """Each thing is done once: the view of the node is built once, the devices are chosen once."""
    run_at_once(admit(IDS[:2], CallPath()))  # tables and caches
    path = CallPath()
    assert run_at_once(admit((IDS[0], IDS[3]), path)) == [IDS[0], IDS[3]]
    n_modules, n_calls = len(path.by_module), sum(path.by_module.values())
    print(f"{n_calls} calls in {n_modules} modules: {path.by_module.most_common()}")  # noqa: T201 - the figures, shown by `pytest -s`
    assert n_modules <= MAX_MODULES
    assert n_calls <= MAX_CALLS
