"""The API server in memory: what it answers, refuses, and shows to watches."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from extender.embedded import EmbeddedApi, lay_out, node_manifest
from extender.embedded.api_server import N_KEPT
from kube.client import JSON, METADATA_LIST, ApiServer, Binding, Page, Request, read_event
from kube.errors import Conflict, Gone, KubeError, NotFound
from kube.objects import ObjectKey, read_node
from tests.unit.extender.engines import spec
from tests.unit.extender.pods import pod
from topology.annotations import decode_devices
from topology.model import decode_topology

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

PODS = "/api/v1/namespaces/default/pods"
POD = ObjectKey("default", "pod-u1", "u1")
ASSIGNED = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def run(act: Callable[[EmbeddedApi], Awaitable[Any]]) -> Any:
    """What comes of an act on a server with one pod of 2 GPUs."""

    async def go() -> Any:
        server = EmbeddedApi()
        await create(server, "u1")
        return await act(server)

    return asyncio.run(go())


async def create(server: EmbeddedApi, uid: str) -> None:
    """A pod's owner creates it."""
    await server.request(Request("POST", PODS, 1.0, body=pod(2, uid=uid)))


def binding(node: str = "n1", version: str = "", uid: str = "u1") -> Binding:
    """A Binding of the pod."""
    return Binding(ObjectKey("default", "pod-u1", uid), version, node, {"a": "plan"})


def watching(
    server: EmbeddedApi, version: str, selector: str = "", *, seconds: str = "30"
) -> AsyncGenerator[list[bytes], None]:
    """A watch of pods."""
    query = {"resourceVersion": version, "timeoutSeconds": seconds, "fieldSelector": selector}
    return server.lines(Request("GET", "/api/v1/pods", 60.0, query=query))


def test_a_node_is_what_plugin_and_kubelet_make_of_it():
    """With the ids of its devices, its zone and labels, and a report where there is one."""
    groups = {"count": 2, "machine": "dgx-1-v100", "unhealthy": [3], "labels": {"l": "v"}}
    kept = ["nvidia.com/gpu.product"]
    one, other = (read_node(node_manifest(node), ["l"], kept) for node in lay_out(spec(groups)))
    assert one.labels == {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}
    assert (one.name, one.zone, one.domains) == ("dgx-1-v100-0", "zone-a", {"l": "v"})
    assert (one.allocatable, one.capacity) == ({"nvidia.com/gpu": 7}, {"nvidia.com/gpu": 8})
    assert one.topology is not None
    assert one.devices is not None
    ids = [gpu.uuid for gpu in decode_topology(one.topology).gpus]
    assert [bad.id for bad in decode_devices(one.devices).unhealthy] == [ids[3]]
    assert one.topology != other.topology


def test_a_pod_is_bound_once_and_as_its_preconditions_say():
    """A refusal is a conflict, as of a real one."""

    async def act(server: EmbeddedApi) -> None:
        api = ApiServer(server)
        for wrong in (binding(version="1"), binding(uid="other")):
            with pytest.raises(Conflict):
                await api.bind(wrong)
        found = await api.get_pod("default", "pod-u1")
        assert found is not None
        await api.bind(binding(version=json.loads(found.body)["metadata"]["resourceVersion"]))
        bound = await api.get_pod("default", "pod-u1")
        assert bound is not None
        assert (bound.node_name, bound.annotations["a"]) == ("n1", "plan")
        with pytest.raises(Conflict, match="already assigned to node n1"):
            await api.bind(binding("n2"))
        assert [one.uid for one in await api.list_pods_on("n1")] == ["u1"]

    run(act)


def test_annotations_are_merged_and_removed():
    """Of the very pod that is meant."""

    async def act(server: EmbeddedApi) -> None:
        api = ApiServer(server)
        await api.annotate_pod("default", "pod-u1", "u1", {"x": "1", "y": "2"})
        await api.annotate_pod("default", "pod-u1", "u1", {"x": None})
        found = await api.get_pod("default", "pod-u1")
        assert found is not None
        assert "x" not in found.annotations
        assert found.annotations["y"] == "2"
        again = await api.annotate_pod("default", "pod-u1", "u1", {"y": "2"})
        assert again == found.resource_version
        with pytest.raises(NotFound):
            await api.annotate_pod("default", "pod-u1", "other", {"x": "1"})
        assert await api.list_pdbs() == ()

    run(act)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", PODS, {}, 422),
        ("POST", PODS, pod(2, uid="u1"), 409),
        ("GET", f"{PODS}/ghost", None, 404),
        ("DELETE", f"{PODS}/ghost", None, 404),
        ("POST", f"{PODS}/pod-u1", {}, 405),
        ("DELETE", PODS, None, 405),
        ("POST", PODS, {"metadata": {"name": "x"}, "spec": "x"}, 422),
        ("POST", PODS, {"metadata": {"name": "x", "annotations": []}}, 422),
        ("GET", "/api/v1/namespaces/default/secrets/s", None, 404),
    ],
)
def test_what_is_not_served_is_refused(method, path, body, status):
    """In a sentence."""

    async def act(server: EmbeddedApi) -> None:
        with pytest.raises(KubeError) as caught:
            await server.request(Request(method, path, 1.0, body=body))
        assert caught.value.status == status
        assert caught.value.detail

    run(act)


def test_a_list_is_of_what_is_selected_and_metadata_alone_where_that_is_requested():
    """As the watches begin."""

    async def act(server: EmbeddedApi) -> None:
        async def names(selector: str, accept: str = JSON) -> list[Any]:
            query = {"fieldSelector": selector}
            request = Request("GET", "/api/v1/pods", 1.0, query=query, accept=accept)
            return list(Page(await server.request(request)))

        await create(server, "u2")
        await ApiServer(server).bind(binding())
        (assigned,) = await names(ASSIGNED, METADATA_LIST)
        assert assigned["metadata"]["uid"] == "u1"
        assert "spec" not in assigned
        assert len(await names("spec.nodeName=")) == 1
        assert len(await names(r"spec.schedulerName=a\,b")) == 0
        other = await server.request(Request("GET", PODS.replace("default", "other"), 1.0))
        assert list(Page(other)) == []

    run(act)


def test_a_watch_shows_what_enters_changes_and_leaves_its_selection():
    """In the order of the writes, and each write is answered once the watch has it."""

    async def act(server: EmbeddedApi) -> list[str]:
        seen: list[str] = []

        async def read() -> None:
            async with aclosing(watching(server, "2", ASSIGNED)) as stream:
                async for lines in stream:
                    seen.extend(read_event(line).kind for line in lines)

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        api = ApiServer(server)
        for step in (
            api.bind(binding()),
            api.annotate_pod("default", "pod-u1", "u1", {"x": "1"}),
            server.request(Request("DELETE", f"{PODS}/pod-u1", 1.0)),
            create(server, "u2"),
        ):
            n_before = len(seen)
            await step
            seen.append(f"+{len(seen) - n_before}")
        reader.cancel()
        return seen

    assert run(act) == ["ADDED", "+1", "MODIFIED", "+1", "DELETED", "+1", "+0"]


def test_a_watch_ends_in_order_with_a_bookmark():
    """So that the next one goes on from there."""

    async def act(server: EmbeddedApi) -> list[tuple[str, str]]:
        events = [
            read_event(line)
            async for lines in watching(server, "1", seconds="0.01")
            for line in lines
        ]
        return [(one.kind, one.resource_version) for one in events]

    assert run(act) == [("ADDED", "2"), ("BOOKMARK", "2")]


def test_a_watch_from_too_long_ago_lists_again():
    """Changes are kept for a while."""

    async def act(server: EmbeddedApi) -> None:
        for i in range(N_KEPT):
            await ApiServer(server).annotate_pod("default", "pod-u1", "u1", {"x": f"{i}"})
        with pytest.raises(Gone):
            await anext(watching(server, "1"))

    run(act)
