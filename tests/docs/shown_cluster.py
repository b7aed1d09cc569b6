"""The cluster of the pages that show `kubectl coterie`: an API server, and a real extender.

The extender is a process on an embedded cluster, which planned the pods itself. The API server
answers from values, with Coterie installed as a second scheduler, and forwards ports to it.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from benchmarks.demo.process import run_extender
from extender.embedded import lay_out, node_manifest, read_cluster
from tests.integration.kube.forwarding_server import ForwardingServer
from tests.integration.kubectl_coterie.installed_cluster import NODES, PODS, InstalledCluster
from tests.unit.extender.pods import GPU, args, binding, pod
from topology.annotations import DeviceHold, DevicesReport, encode_devices
from topology.cli.program import version
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import httpx

    from extender.embedded.spec import EmbeddedNode

__all__ = ["WAITED_S", "shown_cluster"]

WAITED_S = 12 * 60 + 5
"""How far the command's clock is ahead of the extender's: pods wait for 12 minutes."""
FLEET = """\
groups:
  - {name: v100, machine: dgx-1-v100, count: 2}
  - {name: a6000, machine: 8x-a6000-bridged, count: 1}
  - {name: l4, machine: 8x-l4, count: 1}
  - name: h100
    machine: dgx-h100
    count: 2
    zone: zone-a
    labels: {network.topology.nvidia.com/spine: P1, network.topology.nvidia.com/leaf: S12}
"""
NAMESPACE = "ml"
PLACED: tuple[tuple[str, int, str, dict[str, str]], ...] = (
    ("pre-train", 8, "v100-0", {}),
    ("tune-1", 4, "v100-1", {"affinity": "nvlink"}),
    ("eval-3", 2, "v100-1", {}),
    ("serve-5", 2, "a6000-0", {}),
    ("embed-2", 1, "l4-0", {"affinity": "none"}),
)
GROUP = "llama", ("h100-0", "h100-1")
"""A group, and where its members were placed, each with all GPUs of its node."""
MISSING = "sweep-0", 8, {"group": "sweep", "group_size": "4"}
"""Waits for the other members of its group."""
WAITS = ("train-0", 4, {"affinity": "nvlink", "policy": "required"})
ELSEWHERE = ("notebook", 1, {"affinity": "numa"})
"""Names another scheduler, which a check finds."""


@contextmanager
def shown_cluster(folder: Path) -> Iterator[Path]:
    """Run it; gives a kubeconfig whose context has the namespace `ml`."""
    file = folder / "cluster.yaml"
    file.write_text(FLEET, encoding="utf-8")
    nodes = lay_out(read_cluster(file))
    with run_extender(str(file), port=0, log=folder / "extender.log") as client:
        pods = [*(_place(client, *one) for one in PLACED), *_place_group(client, *GROUP)]
        waits = [_pod(*WAITS), _pod(*MISSING)]
        names_of_all = [node.name for node in nodes]
        for one in waits:
            _create(client, one)
            answer = client.post("/filter", content=args(one, names_of_all)).json()
            assert not answer["NodeNames"]
        installed = _installed(nodes, pods, waits)
        assert client.base_url.port is not None
        with _serving(installed, client.base_url.port, folder) as kubeconfig:
            yield kubeconfig


def _pod(name: str, n_gpus: int, wish: dict[str, str]) -> dict[str, Any]:
    """A pod that names Coterie's scheduler; its uid is its name."""
    made = pod(n_gpus, uid=name, **wish)
    made["metadata"] |= {"name": name, "namespace": NAMESPACE}
    made["spec"]["schedulerName"] = "coterie-scheduler"
    return made


def _place(
    client: httpx.Client, name: str, n_gpus: int, node: str, wish: dict[str, str]
) -> dict[str, Any]:
    """A pod that was bound to a node, where it runs."""
    made = _pod(name, n_gpus, wish)
    _create(client, made)
    assert client.post("/filter", content=args(made, [node])).json()["NodeNames"] == [node]
    return _bind(client, made, node)


def _create(client: httpx.Client, made: dict[str, Any]) -> None:
    """The owner creates the pod."""
    client.post(f"/api/v1/namespaces/{NAMESPACE}/pods", json=made).raise_for_status()


def _bind(client: httpx.Client, made: dict[str, Any], node: str) -> dict[str, Any]:
    """The pod as it runs."""
    name = made["metadata"]["name"]
    bind = binding(name, node, PodName=name, PodNamespace=NAMESPACE)
    assert client.post("/bind", content=bind).json() == {"Error": ""}
    made["spec"]["nodeName"] = node
    made["status"]["phase"] = "Running"
    path = f"/api/v1/pods/{NAMESPACE}/{name}"
    return made | {"ids": client.get(path).json()["ids"]}


def _place_group(client: httpx.Client, name: str, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Members of eight GPUs, which are planned once all are there and bound together."""
    wish = {"group": name, "group_size": str(len(nodes))}
    members = [_pod(f"{name}-{i}", 8, wish) for i in range(len(nodes))]
    for one in members:
        _create(client, one)
    calls = [args(one, [node]) for one, node in zip(members, nodes, strict=True)]
    named: list[str] = []
    while named != list(nodes):  # planned within half a second of the first calls
        answers = (client.post("/filter", content=call).json() for call in calls)
        named = [name for answer in answers for name in answer["NodeNames"]]
    with ThreadPoolExecutor(len(nodes)) as binds:
        return list(binds.map(partial(_bind, client), members, nodes))


def _installed(
    nodes: Sequence[EmbeddedNode],
    pods: Sequence[dict[str, Any]],
    waits: Sequence[dict[str, Any]],
) -> InstalledCluster:
    """What the API server has: the fleet, its pods and Coterie's own."""
    cluster = InstalledCluster()
    programs = cluster.lists[PODS][:2]
    for program in programs:
        for container in program["spec"]["containers"]:
            if "set-your-registry" in container.get("image", "set-your-registry"):
                container["image"] = f"registry.example/coterie:{version()}"
    elsewhere = _pod(*ELSEWHERE)
    elsewhere["spec"]["schedulerName"] = "default-scheduler"
    cluster.lists[PODS] = [*programs, *pods, *waits, elsewhere]
    found = {node.name: _node(node, pods) for node in nodes}
    cluster.lists[NODES] = list(found.values())
    cluster.objects |= {f"{NODES}/{name}": one for name, one in found.items()}
    now = datetime.now(UTC) + timedelta(seconds=WAITED_S)
    for path, one in cluster.objects.items():
        if "/leases/" in path:
            one["spec"] |= {
                "holderIdentity": programs[0]["metadata"]["name"],
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "leaseDurationSeconds": 600,
            }
    return cluster


def _node(node: EmbeddedNode, pods: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The Node of a machine, with what its node plugin reports."""
    holds = tuple(
        DeviceHold(one["metadata"]["uid"], NAMESPACE, one["metadata"]["name"], "main", GPU, ids)
        for one in pods
        if one["spec"]["nodeName"] == node.name and (ids := tuple(one["ids"]))
    )
    found = node_manifest(node)
    report = DevicesReport(generation=1, holds=holds)
    found["metadata"]["annotations"][names.DEVICES] = encode_devices(report)
    return found


@contextmanager
def _serving(cluster: InstalledCluster, extender_port: int, folder: Path) -> Iterator[Path]:
    """Serve it in a thread; gives a kubeconfig."""
    server = ForwardingServer(extender_port)
    server.answer("GET", "/{path:.*}", lambda request, _: _answer(cluster, request))
    is_up, is_done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with server.running():
            is_up.set()
            await asyncio.to_thread(is_done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert is_up.wait(10)
        yield server.kubeconfig(folder, namespace=NAMESPACE)
    finally:
        is_done.set()
        thread.join()


def _answer(cluster: InstalledCluster, request: web.Request) -> web.StreamResponse:
    """A list, an object or a log."""
    path = request.path
    if path.endswith("/log"):
        return web.Response(text='{"event": "answered"}\n')
    if path in cluster.lists:
        items = [one for one in cluster.lists[path] if _is_selected(one, request)]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
    if path in cluster.objects:
        return web.json_response(cluster.objects[path])
    content = {"kind": "Status", "reason": "NotFound", "code": 404, "message": f"no {path}"}
    return web.json_response(content, status=404)


def _is_selected(one: dict[str, Any], request: web.Request) -> bool:
    """The one field that a command selects by: whether a pod has a node."""
    wants_node = request.query.get("fieldSelector") == "spec.nodeName!="
    return not wants_node or "nodeName" in one["spec"]
