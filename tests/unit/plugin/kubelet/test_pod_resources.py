"""What the kubelet says about who has which device, read over real gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import Any

import grpc
import grpc.aio
import pytest

from plugin.errors import KubeletError
from plugin.kubelet import PodResources
from plugin.kubelet.pod_resources import PodResourcesTiming
from plugin.pb import podresources_v1_pb2 as pb
from plugin.pods import HeldDevices

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def devices(resource, *ids, numa=None):
    """An entry as the kubelet makes it."""
    topology = None if numa is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa)])
    return pb.ContainerDevices(resource_name=resource, device_ids=ids, topology=topology)


def pod(namespace, name, **containers):
    """A pod with its containers' entries."""
    return pb.PodResources(
        namespace=namespace,
        name=name,
        containers=[
            pb.ContainerResources(name=key, devices=found) for key, found in containers.items()
        ],
    )


class Kubelet:
    """Answers with these pods, after refusing `n_refused` times with a status."""

    def __init__(self, path, *pods, n_refused=0, code=grpc.StatusCode.RESOURCE_EXHAUSTED):
        self.path = path
        self.answer = pb.ListPodResourcesResponse(pod_resources=pods)
        self.n_refused = n_refused
        self.code = code
        self.n_requests = 0

    async def _count(self, context):
        self.n_requests += 1
        if self.n_requests <= self.n_refused:
            await context.abort(self.code, "rejected by rate limit")

    async def _list(self, _request, context):
        await self._count(context)
        return self.answer

    async def _get(self, request, context):
        await self._count(context)
        wanted = (request.pod_namespace, request.pod_name)
        for one in self.answer.pod_resources:
            if (one.namespace, one.name) == wanted:
                return pb.GetPodResourcesResponse(pod_resources=one)
        namespace, name = wanted
        return await context.abort(
            grpc.StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found"
        )

    async def _get_allocatable(self, _request, context):
        await self._count(context)
        return pb.AllocatableResourcesResponse(
            devices=[
                one
                for pod in self.answer.pod_resources
                for container in pod.containers
                for one in container.devices
            ]
        )

    @contextlib.asynccontextmanager
    async def serving(self):
        """Serve."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "List": grpc.unary_unary_rpc_method_handler(
                self._list,
                pb.ListPodResourcesRequest.FromString,
                pb.ListPodResourcesResponse.SerializeToString,
            ),
            "Get": grpc.unary_unary_rpc_method_handler(
                self._get,
                pb.GetPodResourcesRequest.FromString,
                pb.GetPodResourcesResponse.SerializeToString,
            ),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
                self._get_allocatable,
                pb.AllocatableResourcesRequest.FromString,
                pb.AllocatableResourcesResponse.SerializeToString,
            ),
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),)
        )
        server.add_insecure_port(f"unix:{self.path}")
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)


def answer_of(kubelet, question, **timing):
    """What a client of this kubelet's gets."""

    async def go():
        async with kubelet.serving():
            client = PodResources(
                kubelet.path, timing=PodResourcesTiming(**timing), jitter=lambda: 0.0
            )
            return await question(client)

    return asyncio.run(go())


def holdings(kubelet, **timing):
    """What is found of all pods."""
    return answer_of(kubelet, lambda client: client.read(), **timing).holdings


@pytest.fixture
def path(root):
    """Where a kubelet would serve."""
    return root / "kubelet.sock"


def test_each_container_and_resource_is_one_holding(path):
    """A device stands once per NUMA node, alone, in random order; containers may have none."""
    kubelet = Kubelet(
        path,
        pod("b", "p", main=[devices(GPU, "GPU-2", numa=1), devices(GPU, "GPU-1")]),
        pod(
            "a",
            "q",
            side=[devices(GPU, "GPU-3", numa=0), devices(GPU, "GPU-3", numa=1)],
            main=[devices(MIG, "MIG-1", "MIG-0"), devices(GPU, "GPU-0")],
            none=[],
        ),
        pod("a", "p", main=[]),
        pod("a", "o", main=[devices(GPU)]),
    )
    assert holdings(kubelet) == (
        HeldDevices("a", "q", "main", GPU, ("GPU-0",)),
        HeldDevices("a", "q", "main", MIG, ("MIG-0", "MIG-1")),
        HeldDevices("a", "q", "side", GPU, ("GPU-3",)),
        HeldDevices("b", "p", "main", GPU, ("GPU-1", "GPU-2")),
    )


def test_one_pod_is_read_alone(path):
    """This call changes nothing in the kubelet, so that it may be made at any time."""
    kubelet = Kubelet(
        path,
        pod("a", "p", main=[devices(GPU, "GPU-1", "GPU-0")]),
        pod("b", "p", main=[devices(GPU, "GPU-2")]),
        n_refused=1,
    )
    found = answer_of(kubelet, lambda client: client.read_pod("a", "p"))
    assert found == (HeldDevices("a", "p", "main", GPU, ("GPU-0", "GPU-1")),)


def test_devices_that_can_be_allocated_are_listed_by_resource(path):
    """Each once, though it stands once per NUMA node; of a kubelet without any, none."""
    main = [devices(GPU, "GPU-1", numa=0), devices(GPU, "GPU-1", numa=1), devices(MIG, "MIG-0")]
    kubelet = Kubelet(path, pod("a", "p", main=main, side=[devices(GPU, "GPU-2")]))
    found = answer_of(kubelet, lambda client: client.read_allocatable())
    assert found == {GPU: {"GPU-1", "GPU-2"}, MIG: {"MIG-0"}}
    assert answer_of(Kubelet(path), lambda client: client.read_allocatable()) == {}


def test_a_pod_that_is_not_there_is_an_error(path):
    """Older kubelets say so of every pod, in other words and with the same status."""
    with pytest.raises(KubeletError, match="UNKNOWN: pod p in namespace a not found"):
        answer_of(Kubelet(path), lambda client: client.read_pod("a", "p"))


def test_a_node_without_pods_has_no_holdings(path):
    """An empty answer is an answer."""
    assert holdings(Kubelet(path)) == ()


@pytest.mark.parametrize("n_refused", [1, 3])
def test_rate_limited_requests_are_retried(path, n_refused):
    """The kubelet's limit is shared by all its clients, and over within milliseconds."""
    kubelet = Kubelet(path, pod("a", "p", main=[devices(GPU, "GPU-0")]), n_refused=n_refused)
    assert len(holdings(kubelet)) == 1
    assert kubelet.n_requests == n_refused + 1


def test_refusals_without_end_are_an_error_in_time(path):
    """Another client may use up the limit for good."""
    kubelet = Kubelet(path, n_refused=10**9)
    with pytest.raises(KubeletError) as error:
        holdings(kubelet, deadline_s=0.5)
    # The last request may be cut short by the deadline before it is refused.
    assert re.fullmatch(
        f"PodResources at {path}: "
        "(RESOURCE_EXHAUSTED: rejected by rate limit|DEADLINE_EXCEEDED: .*), "
        "expected the pods' devices within 0.5 s",
        str(error.value),
    )
    assert 3 <= kubelet.n_requests <= 30


def test_another_refusal_is_an_error_at_once(path):
    """What a second try does not mend is not tried twice."""
    kubelet = Kubelet(path, n_refused=10**9, code=grpc.StatusCode.UNIMPLEMENTED)
    with pytest.raises(KubeletError, match=re.escape("UNIMPLEMENTED: rejected by rate limit")):
        holdings(kubelet)
    assert kubelet.n_requests == 1


def test_a_kubelet_that_is_not_there_is_an_error_and_later_no_longer(path):
    """Nothing of the failure is kept: the next question finds the kubelet that has come back."""

    async def go():
        client = PodResources(path)
        for _ in range(3):
            with pytest.raises(KubeletError, match=re.escape(f"PodResources at {path}: UNAVAIL")):
                await client.read()
        for _ in range(2):
            async with Kubelet(path, pod("a", "p", main=[devices(GPU, "GPU-0")])).serving():
                found = await client.read()
                assert found.holdings == (HeldDevices("a", "p", "main", GPU, ("GPU-0",)),)
            with pytest.raises(KubeletError):
                await client.read()

    asyncio.run(go())


def test_a_kubelet_that_hangs_is_an_error_in_time(path):
    """The caller may be in the kubelet's own loop."""

    async def go():
        clock = asyncio.get_running_loop().time
        client = PodResources(path, timing=PodResourcesTiming(deadline_s=0.2))
        began_s = clock()
        with pytest.raises(KubeletError, match="DEADLINE_EXCEEDED"):
            await client.read()
        assert clock() - began_s < 10.0

    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        asyncio.run(go())


def test_many_at_once_are_answered(path):
    """Several readers of the same socket do not disturb each other."""
    kubelet = Kubelet(path, pod("a", "p", main=[devices(GPU, "GPU-0")]))

    async def go():
        async with kubelet.serving():
            client = PodResources(path)
            return await asyncio.gather(*(client.read() for _ in range(10)))

    found = [one.holdings for one in asyncio.run(go())]
    assert found == [(HeldDevices("a", "p", "main", GPU, ("GPU-0",)),)] * 10
