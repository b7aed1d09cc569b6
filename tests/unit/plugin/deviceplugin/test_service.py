"""The kubelet's calls over real gRPC: what is answered, with which status, and by when."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import grpc
import grpc.aio
import pytest

from plugin.container import ContainerAccess, DeviceNode, Mount
from plugin.deviceplugin import (
    CallOutcome,
    CallRefused,
    DevicePluginMethod,
    ListedDevice,
)
from plugin.errors import KubeletError
from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.changes import Changes
from tests.unit.plugin.offers import GPU, Obliging, ids, offer, served

ACCESS = ContainerAccess(
    env={"NVIDIA_VISIBLE_DEVICES": "GPU-0", "A": ""},
    mounts=(Mount("/in", "/out", is_read_only=True), Mount("/x", "/y")),
    device_nodes=(DeviceNode("/dev/nvidia0", "/dev/nvidia0", "rwm"),),
    annotations={"cdi.k8s.io/x": "a/b=c"},
    cdi_devices=("nvidia.com/gpu=GPU-0", "nvidia.com/gpu=GPU-1"),
)


def prefer(available, must_include, size):
    """One container's question."""
    return pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
    )


def preferred(*questions):
    """The call with these questions."""
    return (
        DevicePluginMethod.PREFERRED.value,
        pb.PreferredAllocationRequest(container_requests=questions),
        pb.PreferredAllocationResponse,
    )


def allocate(*containers):
    """The call for containers with these ids."""
    requests = [pb.ContainerAllocateRequest(devices_ids=one) for one in containers]
    return (
        DevicePluginMethod.ALLOCATE.value,
        pb.AllocateRequest(container_requests=requests),
        pb.AllocateResponse,
    )


def answer(root, one, call, **more):
    """The answer to one call, or status and details, and what was noted of it."""

    async def go():
        found: Any
        async with served(root, one, **more) as service:
            try:
                found = await service.client.call(*call)
            except grpc.aio.AioRpcError as error:
                found = error.code(), error.details()
            return found, service.calls

    return asyncio.run(go())


def test_the_options_name_the_calls_that_are_served(root):
    """The kubelet makes exactly these; PreStartContainer is none of them."""
    call = ("GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions)
    found, _ = answer(root, offer(), call)
    assert found == pb.DevicePluginOptions(get_preferred_allocation_available=True)
    start = ("PreStartContainer", pb.PreStartContainerRequest(), pb.PreStartContainerResponse)
    (status, _), _ = answer(root, offer(), start)
    assert status is grpc.StatusCode.UNIMPLEMENTED


class Seen(Changes):
    """The lists that a kubelet was sent."""

    def __init__(self):
        super().__init__()
        self.lists: list[pb.ListAndWatchResponse] = []

    def add(self, response):
        """The next one."""
        self.lists.append(response)
        self.note()


def test_the_list_comes_at_once_and_after_each_change(root):
    """Health and NUMA nodes reach the kubelet as they change, and a NUMA node only if it is set."""
    seen = Seen()

    async def go():
        async with served(root, offer(1)) as service:
            watching = asyncio.create_task(service.client.run(seen.add))
            await seen.until(lambda: len(seen.lists) == 1)
            service.offer.device_list.replace(
                [ListedDevice("GPU-0", is_healthy=False, numa_node=0)]
            )
            await seen.until(lambda: len(seen.lists) == 2)
            service.offer.device_list.replace([])
            await seen.until(lambda: len(seen.lists) == 3)
            await service.client.close()
            await watching

    asyncio.run(go())
    first, second, third = (list(response.devices) for response in seen.lists)
    assert first == [pb.Device(ID="GPU-0", health="Healthy")]
    assert not first[0].HasField("topology")
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=0)])
    assert second == [pb.Device(ID="GPU-0", health="Unhealthy", topology=topology)]
    assert third == []


def test_many_changes_end_in_the_newest_list(root):
    """A kubelet that is slower than our changes must not be sent outdated lists for ever."""
    seen = Seen()

    async def go():
        async with served(root, offer(0)) as service:
            watching = asyncio.create_task(service.client.run(seen.add))
            await seen.until(lambda: seen.lists)
            for i in range(500):
                service.offer.device_list.replace([ListedDevice(f"GPU-{i}")])
                if i % 50 == 0:
                    await asyncio.sleep(0)
            await seen.until(lambda: [d.ID for d in seen.lists[-1].devices] == ["GPU-499"])
            await service.client.close()
            await watching

    asyncio.run(go())
    assert len(seen.lists) < 100


def test_a_preferred_set_is_the_allocators(root):
    """The three inputs of the kubelet arrive, and the ids go back."""
    allocator = Obliging()
    call = preferred(prefer(ids(4), ["GPU-2"], 3))
    found, calls = answer(root, offer(allocator=allocator), call)
    assert allocator.requests == [(ids(4), ("GPU-2",), 3)]
    assert list(found.container_responses[0].deviceIDs) == ["GPU-2", "GPU-0", "GPU-1"]
    assert [(one.resource, one.verb, one.outcome, one.detail) for one in calls] == [
        (GPU, DevicePluginMethod.PREFERRED, CallOutcome.OK, "")
    ]
    assert calls[0].duration_s > 0


def test_several_containers_in_one_call_are_answered_in_order(root):
    """The API allows it, although today's kubelet sends one at a time."""
    call = preferred(prefer(ids(4), [], 1), prefer(["GPU-3", "GPU-1"], [], 2))
    found, _ = answer(root, offer(), call)
    got = [list(one.deviceIDs) for one in found.container_responses]
    assert got == [["GPU-0"], ["GPU-1", "GPU-3"]]
    found, _ = answer(root, offer(), allocate(["GPU-3"], ["GPU-0", "GPU-1"]))
    assert [one.envs["NVIDIA_VISIBLE_DEVICES"] for one in found.container_responses] == [
        "GPU-3",
        "GPU-0,GPU-1",
    ]
    assert answer(root, offer(), preferred())[0] == pb.PreferredAllocationResponse()
    assert answer(root, offer(), allocate())[0] == pb.AllocateResponse()


def test_all_of_an_access_reaches_the_kubelet(root):
    """A field that is lost on the way would be a container without its device."""
    found, _ = answer(root, offer(allocator=Obliging((ACCESS,))), allocate(["GPU-0"]))
    one = found.container_responses[0]
    assert dict(one.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-0", "A": ""}
    assert [(m.container_path, m.host_path, m.read_only) for m in one.mounts] == [
        ("/in", "/out", True),
        ("/x", "/y", False),
    ]
    assert [(d.container_path, d.host_path, d.permissions) for d in one.devices] == [
        ("/dev/nvidia0", "/dev/nvidia0", "rwm")
    ]
    assert dict(one.annotations) == {"cdi.k8s.io/x": "a/b=c"}
    assert [d.name for d in one.cdi_devices] == ["nvidia.com/gpu=GPU-0", "nvidia.com/gpu=GPU-1"]


UNKNOWN = "unknown devices GPU-8, GPU-9, expected some of the 4 listed"


@pytest.mark.parametrize(
    ("call", "detail"),
    [
        pytest.param(allocate(["GPU-9", "GPU-1", "GPU-8"]), UNKNOWN, id="allocate"),
        pytest.param(allocate(["GPU-1"], ["GPU-9", "GPU-8"]), UNKNOWN, id="second container"),
        pytest.param(
            allocate([]), "no devices for a container, expected at least one", id="no device"
        ),
        pytest.param(
            preferred(prefer([*ids(4), "GPU-8", "GPU-9"], ["GPU-9", "GPU-8"], 3)),
            UNKNOWN,
            id="must_include",
        ),
        pytest.param(
            preferred(prefer(["GPU-0"], ["GPU-3", "GPU-2"], 3)),
            "must_include names GPU-2, GPU-3, expected available devices alone",
            id="must_include is not available",
        ),
        pytest.param(
            preferred(prefer(["GPU-0", "GPU-9"], [], 2)),
            "allocation_size is 2, expected 1 (must_include) to 1 (available and listed)",
            id="more than there are",
        ),
        pytest.param(
            preferred(prefer(ids(4), [], 0)),
            "allocation_size is 0, expected 1 (must_include) to 4 (available and listed)",
            id="nothing",
        ),
        pytest.param(
            preferred(prefer(ids(4), ids(3), 2)),
            "allocation_size is 2, expected 3 (must_include) to 4 (available and listed)",
            id="less than must_include",
        ),
        pytest.param(
            preferred(prefer(ids(4), [], -1)),
            "allocation_size is -1, expected 1 (must_include) to 4 (available and listed)",
            id="negative",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(root, call, detail):
    """Object, value and expectation reach the pod's status, where the user reads them."""
    allocator = Obliging()
    found, calls = answer(root, offer(allocator=allocator), call)
    verb = call[0]
    assert found == (grpc.StatusCode.INVALID_ARGUMENT, f"{GPU}: {verb}: {detail}")
    assert [(one.outcome, one.detail) for one in calls] == [
        (CallOutcome.INVALID, f"{verb}: {detail}")
    ]
    assert allocator.requests == []


def test_an_available_device_that_is_gone_is_no_error(root):
    """The kubelet's picture may be older than ours, and an error would fail the pod for good."""
    allocator = Obliging()
    call = preferred(prefer(["GPU-9", *ids(4)], [], 4))
    found, _ = answer(root, offer(allocator=allocator), call)
    assert list(found.container_responses[0].deviceIDs) == list(ids(4))
    assert allocator.requests == [(ids(4), (), 4)]


CALLS = [preferred(prefer(ids(4), [], 1)), allocate(["GPU-0"])]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_a_refusal_and_a_failure_say_why(root, call):
    """Each outcome has its own status, and the pod's status shows the reason."""
    found, calls = answer(root, offer(allocator=Obliging(CallRefused("GPU-0 failed"))), call)
    assert found == (grpc.StatusCode.FAILED_PRECONDITION, f"{GPU}: {call[0]}: GPU-0 failed")
    assert calls[0].outcome is CallOutcome.REFUSED
    broken = offer(allocator=Obliging(KubeletError("/pods: refused")))
    found, calls = answer(root, broken, call)
    assert found == (grpc.StatusCode.INTERNAL, f"{GPU}: {call[0]}: /pods: refused")
    assert calls[0].outcome is CallOutcome.FAILED


async def ask_the_kubelet():
    """Wait for an answer that never comes."""
    await asyncio.Event().wait()


async def resist():
    """Go on when cancelled."""
    try:
        await ask_the_kubelet()
    except asyncio.CancelledError:
        await asyncio.sleep(3600.0)  # until the loop ends


async def fail_late():
    """Fail when cancelled: the failure is not seen."""
    try:
        await ask_the_kubelet()
    except asyncio.CancelledError as error:
        msg = "too late"
        raise KubeletError(msg) from error


@pytest.mark.parametrize("hangs", [ask_the_kubelet, resist, fail_late])
@pytest.mark.parametrize("call", CALLS[:2], ids=lambda call: call[0])
def test_what_hangs_is_named_in_time(root, caplog, call, hangs):
    """The kubelet waits for us without end, and with it every pod of the node."""

    async def go():
        async with served(root, offer(allocator=Obliging(hangs)), deadline_s=0.1) as service:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await service.client.call(*call)
            assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            details = error.value.details() or ""
            assert details.startswith(f"{GPU}: {call[0]}: no answer within 0.1 s, waited in ")
            assert "tests.unit.plugin.offers.Obliging." in details
            assert details.endswith("tests.unit.plugin.deviceplugin.test_service.ask_the_kubelet")
            assert [one.outcome for one in service.calls] == [CallOutcome.LATE]
            # The next call is answered while the first may still be holding on.
            await service.client.call(*call)
        gc.collect()

    asyncio.run(go())
    assert caplog.records == [], "asyncio logs a failure that was not retrieved"


def test_work_ends_when_the_kubelet_hangs_up(root):
    """A kubelet that restarts in the middle of a call must not leave work behind."""
    ended = asyncio.Event()

    async def work():
        try:
            await ask_the_kubelet()
        finally:
            ended.set()

    async def go():
        allocator = Obliging(work)
        async with served(root, offer(allocator=allocator), deadline_s=30.0) as service:
            call = asyncio.create_task(service.client.call(*allocate(["GPU-0"])))
            await allocator.asked.until(lambda: allocator.requests)
            call.cancel()
            await asyncio.wait_for(ended.wait(), 60)
            assert service.calls == []

    asyncio.run(go())


def test_a_long_message_is_cut(root):
    """Events of pods are bounded, and the beginning says what is wrong."""
    found, _ = answer(root, offer(), allocate([f"GPU-{i:036}" for i in range(9, 40)]))
    code, details = found
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(details) < 350
    assert details.startswith(f"{GPU}: Allocate: unknown devices GPU-00000")
