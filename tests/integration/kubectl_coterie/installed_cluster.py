"""An API server with Coterie installed as a second scheduler, and its extender by port-forward.

Everything is answered from values, in a thread of its own; a test changes them before it starts.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from kubectl_coterie.command_line import main
from tests.integration.kube.forwarding_server import ForwardingServer
from tests.integration.kube.stream_server import stream_server
from tests.unit.kubectl_coterie.workloads import daemon_set, scheduler_pod
from topology.annotations import DevicesReport, encode_devices
from topology.model import encode_topology, names
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "ADMISSION",
    "DAEMON_SETS",
    "EVENTS",
    "NODE",
    "NODES",
    "PODS",
    "SYSTEM",
    "InstalledCluster",
    "run",
]

NODE = "gpu-07"
UUIDS = tuple(f"GPU-6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e0{i}" for i in range(8))
ADMISSION = "/apis/admissionregistration.k8s.io"
SYSTEM = "/api/v1/namespaces/coterie-system"
PODS, NODES, EVENTS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/events"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
LOG = '{"event": "answered", "pod": "ml/gone-1", "node": "gpu-99"}\nbound pod="ml/train-0"\n'


def run(*arguments: str) -> int:
    """Run the program; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    assert isinstance(code, int)
    return code


class InstalledCluster:
    """Answers by path: `lists` of the API server, its `objects` and texts, and the extender's.

    `forbidden` are words of paths that are refused; `on_request` is called for each request.
    """

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {
            PODS: [_scheduler_pod(), _plugin_pod(), _user_pod()],
            f"{SYSTEM}/pods": [_scheduler_pod()],
            "/api/v1/namespaces/kube-system/pods": [],
            NODES: [_node()],
            DAEMON_SETS: [daemon_set() | {"status": {"desiredNumberScheduled": 1}}],
            EVENTS: [_event()],
            f"{ADMISSION}/v1/validatingadmissionpolicies": _policies(),
            f"{ADMISSION}/v1/validatingadmissionpolicybindings": _policies(),
            f"{ADMISSION}/v1/mutatingadmissionpolicies": [],
        }
        self.objects: dict[str, Any] = {
            "/version": {"gitVersion": "v1.36.3"},
            f"{NODES}/{NODE}": _node(),
            f"{SYSTEM}/configmaps/coterie-scheduler-config": {"data": _config()},
            "/apis/coordination.k8s.io/v1/namespaces/coterie-system/leases/coterie-scheduler": {
                "metadata": {"name": "coterie-scheduler", "namespace": "coterie-system"},
                "spec": {"holderIdentity": "x", "renewTime": "2020-01-01T00:00:00Z"},
            },
        }
        self.extender: dict[str, Any] = {
            "/metrics": "coterie_extender_up 1.0\n",
            "/state": '{"generation": 7}',
            "/api/v1/cluster": _sums(),
            "/api/v1/capacity": {"machines": []},
            "/api/v1/history": {"machines": []},
            f"/api/v1/nodes/{NODE}": _entry(),
            "/api/v1/machines": {"items": []},
            "/api/v1/nodes": {"items": [_entry()]},
            "/api/v1/pods": {"items": []},
            "/api/v1/pending": {"items": []},
            "/api/v1/groups": {"items": []},
        }
        self.forbidden: tuple[str, ...] = ()
        self.requests: list[str] = []
        self.extender_url = ""
        self.on_request: Callable[[], object] = lambda: None

    @contextmanager
    def running(self, folder: Path) -> Iterator[tuple[str, ...]]:
        """Serve it; gives the flags by which it is reached."""
        is_up, is_done = threading.Event(), threading.Event()
        server = ForwardingServer()
        server.answer("GET", "/{path:.*}", self._answer)
        server.answer("POST", "/{path:.*}", self._answer)

        async def serve() -> None:
            async with stream_server(self._extender) as server.target, server.running():
                self.extender_url = f"http://127.0.0.1:{server.target}"
                is_up.set()
                await asyncio.to_thread(is_done.wait)

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            assert is_up.wait(10)
            yield ("--kubeconfig", str(server.kubeconfig(folder)))
        finally:
            is_done.set()
            thread.join()

    def _answer(self, request: web.Request, _body: bytes) -> web.StreamResponse:
        path = request.path
        self.on_request()
        self.requests.append(f"{path}?{request.query_string}")
        if any(word in path for word in self.forbidden):
            resource = path.rpartition("/")[2]
            detail = f'{resource} is forbidden: User "jane" cannot get resource "{resource}"'
            content = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": detail}
            return web.json_response(content, status=403)
        if path.endswith("/log"):
            return web.Response(text=LOG)
        if path in self.lists:
            items = self.lists[path]
            if (path == EVENTS and "plugin" in request.query_string) or (
                "component%3Dkube-scheduler" in request.query_string
            ):
                items = []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        if path in self.objects:
            return web.json_response(self.objects[path])
        content = {"kind": "Status", "reason": "NotFound", "code": 404, "message": f"no {path}"}
        return web.json_response(content, status=404)

    async def _extender(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on each connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:  # the first connection of a forward carries nothing
            return
        path = head.split()[1].partition("?")[0]
        found = self.extender.get(path)
        body = found if isinstance(found, str) else json.dumps(found or {"detail": f"no {path}"})
        status = "404 Not Found" if found is None else "200 OK"
        content = body.encode()
        lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        writer.write(lines.encode() + content)
        await writer.drain()


def _sums() -> dict[str, Any]:
    sums = {"n_nodes": 1, "gpus": 8, "pods_placed": 1, "pods_pending": 0}
    return {"version": "1.2.3", "is_ready": True, **sums}


def _program_pod(name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A pod of Coterie's, which runs."""
    statuses = [{"name": one["name"], "ready": True} for one in spec["containers"]]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "coterie"},
        },
        "spec": spec | {"nodeName": NODE},
        "status": {"phase": "Running", "containerStatuses": statuses},
    }


def _scheduler_pod() -> dict[str, Any]:
    return _program_pod("coterie-second-scheduler-1", "coterie-system", scheduler_pod())


def _plugin_pod() -> dict[str, Any]:
    spec = daemon_set()["spec"]["template"]["spec"]
    return _program_pod("coterie-plugin-1", "coterie-node", spec)


def _user_pod() -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": "2"}}
    env = [{"name": "TOKEN", "value": "hunter2"}]
    container = {"name": "main", "command": ["hunter2"], "env": env, "resources": resources}
    return {
        "metadata": {
            "name": "train-0",
            "namespace": "ml",
            "annotations": {"coterie.gpu/affinity": "nvlink"},
        },
        "spec": {"schedulerName": "coterie-scheduler", "containers": [container]},
        "status": {"phase": "Running"},
    }


def _node() -> dict[str, Any]:
    topology = load_recording("dgx-1-v100")
    gpus = zip(topology.gpus, UUIDS, strict=True)
    topology = replace(topology, gpus=tuple(replace(gpu, uuid=uuid) for gpu, uuid in gpus))
    counts = {"nvidia.com/gpu": "8"}
    annotations = {
        names.TOPOLOGY: encode_topology(topology),
        names.DEVICES: encode_devices(DevicesReport(generation=1)),
    }
    return {
        "metadata": {"name": NODE, "annotations": annotations},
        "status": {"allocatable": counts, "capacity": counts},
    }


def _entry() -> dict[str, Any]:
    """The read API's entry of the node: two GPUs of a pod, the others free."""
    gpus = [
        {
            "index": i,
            "id": uuid,
            "state": "held" if i in {0, 1} else "free",
            "pod": "ml/train-0" if i in {0, 1} else None,
            "reason": None,
        }
        for i, uuid in enumerate(UUIDS)
    ]
    return {"name": NODE, "gpus": gpus}


def _event() -> dict[str, Any]:
    return {
        "metadata": {"name": "gone-2.17a", "namespace": "ml"},
        "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "gone-2"},
        "reason": "GpusPlaced",
        "message": f"on node {NODE}: {UUIDS[0]}",
        "reportingComponent": "coterie-extender",
    }


def _policies() -> list[dict[str, Any]]:
    parts = ("user-keys", "own-keys", "extender-rights", "node-keys", "agent-rights")
    return [
        {
            "metadata": {"name": f"coterie-{part}"},
            "spec": {"policyName": f"coterie-{part}", "validationActions": ["Deny"]},
        }
        for part in parts
    ]


def _config() -> dict[str, str]:
    """kube-scheduler's, with the extender in its own pod."""
    extender = {
        "urlPrefix": "http://127.0.0.1:8888",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 150,
        "httpTimeout": "30s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}],
    }
    profile = {"schedulerName": "coterie-scheduler", "percentageOfNodesToScore": 100}
    lease = {"resourceNamespace": "coterie-system", "resourceName": "coterie-scheduler"}
    config = {
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": lease,
        "profiles": [profile],
        "extenders": [extender],
    }
    return {"scheduler-config.yaml": json.dumps(config)}
