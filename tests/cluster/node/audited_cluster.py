"""A cluster as an audit finds it: kube-scheduler, NVIDIA's device plugin, pods, real kubelets.

A stand-in for NVIDIA's plugin has no GetPreferredAllocation, so kubelets allocate at random. The
reporters come last, to pods that run already, and nothing else of Coterie is there. The API server
records what the reporters write and what the user who audits requests.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.scheduler import plain_config
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.workload import PODS, RESOURCE
from tests.cluster.node.expected_audit import ExpectedNode
from tests.cluster.node.kubelet_node import KubeletNode
from tests.cluster.node.plugin_account import deploy_plugin, plugin_kubeconfig
from tests.cluster.node.plugin_process import start_plugin
from tests.cluster.node.real_pods import RealPods, has_ended, is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import StubPlugin, holders
from tests.cluster.of_install.kubectl_coterie import KubectlCoterie
from tests.cluster.programs.containerd import endpoint
from tests.unit.plugin.machine_values import simulated_machine
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.cluster.node.expected_audit import Holder
    from tests.cluster.node.kubelet_node import NodeTools
    from tests.cluster.node.plugin_process import PluginProcess
    from tests.cluster.programs.build import Binaries

__all__ = [
    "FREE",
    "MACHINES",
    "PLUGIN",
    "READER",
    "SIZES",
    "WITHOUT_STATUS",
    "AuditedCluster",
    "audited_cluster",
]

MACHINES = {"mesh-a": "dgx-1-v100", "mesh-b": "dgx-1-v100", "pairs": "8x-a6000-bridged"}
"""Nodes and what their GPUs are; two of them are of one machine type."""
FREE = {"mesh-a": 3, "pairs": 2}
"""How many GPUs stay free; `mesh-b` has none."""
WITHOUT_STATUS = "pairs"
"""The node whose kubelet names no devices in pod.status, as before Kubernetes 1.36."""
SIZES: Mapping[str, tuple[int, ...]] = {
    "four": (4,),
    "three-a": (3,),
    "three-b": (3,),
    "both": (2, 1),
    "two-a": (2,),
    "two-b": (2,),
    "one-a": (1,),
    "one-b": (1,),
}
"""Pods that run, and the GPUs of each container. In this order they fit wherever each one goes."""
READER = "reader"
"""Who audits: a user who may get and list nodes and pods."""
PLUGIN = "system:serviceaccount:coterie-node:coterie-plugin"
_GROUP = "rbac.authorization.k8s.io"
_RIGHTS = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}
_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
_RECORDED = [
    {"level": "Request", "users": [PLUGIN], "verbs": _WRITES},
    {"level": "Metadata", "users": [READER]},
    {"level": "None"},
]
_N_GPUS = 8
_STUB = "nvidia-gpu.sock"
_SOON_S = 60.0


@dataclass
class AuditedCluster:
    """The cluster; `before` is its state when nothing of Coterie was there yet."""

    plane: ControlPlane
    requests: Path
    ctr: Path
    nodes: Mapping[str, KubeletNode]
    ids: Mapping[str, tuple[str, ...]]
    stubs: Mapping[str, StubPlugin]
    pods: RealPods
    coterie: KubectlCoterie
    plugins: dict[str, PluginProcess] = field(default_factory=dict["str", "PluginProcess"])
    before: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def audit(self) -> dict[str, Any]:
        """The report, as the user who audits gets it."""
        return dict(json.loads(self.coterie("audit", "-o", "json")))

    def expected(self) -> dict[str, ExpectedNode]:
        """What the figures have to be now, by node."""
        return {name: ExpectedNode(MACHINES[name], self.held(name)) for name in MACHINES}

    def held(self, node: str) -> dict[Holder, tuple[int, ...]]:
        """Which container has which GPUs, as the kubelet's PodResources says."""
        place = {uuid: index for index, uuid in enumerate(self.ids[node])}
        found = holders(self.nodes[node])
        return {holder: tuple(sorted(place[one] for one in ids)) for holder, ids in found.items()}

    def start_plugin(self, node: str) -> None:
        """Start the reporter of a node again; returns when it has reported."""
        self.plugins[node].program.start()
        _until(partial(self.is_reported, node))

    def state(self) -> dict[str, dict[str, Any]]:
        """Pods and nodes, without what the kubelet changes all the time."""
        pids = {id_: pid for node in self.nodes.values() for id_, pid in self._pids(node).items()}
        return {
            "pods": {pod["metadata"]["name"]: _pod_state(pod, pids) for pod in self._items(PODS)},
            "nodes": {
                node["metadata"]["name"]: _node_state(node) for node in self._items("/api/v1/nodes")
            },
        }

    def requests_of(self, user: str) -> list[dict[str, Any]]:
        """What the API server has recorded of a user."""
        lines = self.requests.read_text(encoding="utf-8").splitlines()
        return [one for line in lines if (one := json.loads(line))["user"]["username"] == user]

    def _items(self, path: str) -> list[dict[str, Any]]:
        return list(self.plane.client.get(path).json()["items"])

    def is_reported(self, node: str) -> bool:
        """Whether the node's report names just the containers that have GPUs."""
        meta = self.plane.client.get(node_path(node)).json()["metadata"]
        report = json.loads(meta.get("annotations", {}).get(names.DEVICES, "{}"))
        named = {(one["name"], one["container"]) for one in report.get("holds", [])}
        return named == self.held(node).keys()

    def _pids(self, node: KubeletNode) -> dict[str, str]:
        """The processes of a node's containers, by the containers' ids."""
        command = [str(self.ctr), "--address", str(endpoint(node.space)), "--namespace", "k8s.io"]
        done = subprocess.run(
            [*command, "tasks", "list"], check=True, capture_output=True, text=True, timeout=_SOON_S
        )
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        return {row[0]: row[1] for row in rows}


def _pod_state(pod: Mapping[str, Any], pids: Mapping[str, str]) -> dict[str, Any]:
    """What a policy, an eviction, a restart or another scheduler would change of a pod."""
    meta, statuses = pod["metadata"], pod["status"].get("containerStatuses", [])
    ids = [one["containerID"].removeprefix("containerd://") for one in statuses]
    return {
        "uid": meta["uid"],
        "labels": meta.get("labels", {}),
        "annotations": meta.get("annotations", {}),
        "spec": pod["spec"],
        "restarts": [one["restartCount"] for one in statuses],
        "processes": [(id_, pids.get(id_)) for id_ in ids],
    }


def _node_state(node: Mapping[str, Any]) -> dict[str, Any]:
    """What a plugin, or a device plugin that takes over, would change of a node."""
    meta, status = node["metadata"], node["status"]
    return {
        "labels": meta["labels"],
        "annotations": meta.get("annotations", {}),
        "spec": node["spec"],
        "gpus": [status[key].get(RESOURCE, "0") for key in ("capacity", "allocatable")],
    }


def _until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so of which no event is sent."""
    deadline = time.monotonic() + _SOON_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # PodResources answers ten times a second


@contextmanager
def audited_cluster(binaries: Binaries, tools: NodeTools, folder: Path) -> Iterator[AuditedCluster]:
    """The cluster with its pods; each reporter has reported."""
    requests = folder / "requests.jsonl"
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(_recording_plane(binaries, folder, requests))
        plane.start_scheduler(plain_config())
        nodes: dict[str, KubeletNode] = {}
        for name in MACHINES:
            config = _config(name, binaries.minor)
            node = KubeletNode(plane, name, tools, config=config)
            nodes[name] = stack.enter_context(node)
        ids = {name: _uuids(name, recording) for name, recording in MACHINES.items()}
        stubs = {
            name: stack.enter_context(StubPlugin(node, dict.fromkeys(ids[name]), socket=_STUB))
            for name, node in nodes.items()
        }
        pods, coterie = RealPods(plane), KubectlCoterie(plane, _reader(plane))
        cluster = AuditedCluster(
            plane, requests, tools.programs.ctr, nodes, ids, stubs, pods, coterie
        )
        _run_pods(cluster)
        cluster.before = cluster.state()
        _add_reporters(cluster)
        yield cluster


def _recording_plane(binaries: Binaries, folder: Path, requests: Path) -> ControlPlane:
    policy = folder / "recorded.json"
    recorded = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": _RECORDED,
    }
    policy.write_text(json.dumps(recorded), encoding="utf-8")
    flags = ("--audit-policy-file", str(policy), "--audit-log-path", str(requests))
    return ControlPlane(binaries, folder / "plane", api_server_flags=flags)


def _config(node: str, minor: str) -> dict[str, object]:
    if node != WITHOUT_STATUS or minor == "1.35":  # which has no such gates on
        return {}
    return {"featureGates": {"ResourceHealthStatus": False, "ResourceHealthStatusMessage": False}}


def _uuids(node: str, recording: str) -> tuple[str, ...]:
    """The GPUs as the reporter sees them, which NVIDIA's plugin serves by their uuids."""
    with contextlib.closing(simulated_machine(recording, node_name=node)) as machine:
        return tuple(str(gpu.uuid) for gpu in machine.read().gpus)


def _reader(plane: ControlPlane) -> Path:
    about = {"apiVersion": f"{_GROUP}/v1", "metadata": {"name": READER}}
    role = about | {"kind": "ClusterRole", "rules": [_RIGHTS]}
    binding = about | {
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": READER},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": READER}],
    }
    for one in (role, binding):
        plane.kubectl("create", "-f", "-", stdin=json.dumps(one))
    return plane.kubeconfig(READER)


def _run_pods(cluster: AuditedCluster) -> None:
    """Pods that kube-scheduler places; one that has ended, and one that no node has room for."""
    all_gpus = [str(_N_GPUS)] * 2
    _until(lambda: all(one["gpus"] == all_gpus for one in cluster.state()["nodes"].values()))
    pods = cluster.pods
    pods.create(real_pod("ends", real_container("main", 2, runs_s=0.1)))
    pods.until("ends", has_ended)
    keepers = {f"keeps-{name}": (name, size) for name, size in FREE.items()}
    for keeper, (name, size) in keepers.items():
        pods.create(real_pod(keeper, real_container("main", size), nodeName=name))
        pods.until(keeper, is_running)
    for name, sizes in SIZES.items():
        containers = [real_container(f"c{k}", size) for k, size in enumerate(sizes)]
        pods.create(real_pod(name, *containers))
    for name in SIZES:
        pods.until(name, is_running)
    pods.create(real_pod("waits", real_container("main", _N_GPUS)))
    pods.delete(*keepers)


def _add_reporters(cluster: AuditedCluster) -> None:
    """As the DaemonSet of a reporter would, with its account."""
    deploy_plugin(cluster.plane)
    for name, recording in MACHINES.items():
        user = plugin_kubeconfig(cluster.plane, name)
        node = cluster.nodes[name]
        cluster.plugins[name] = start_plugin(node, user, recording, "--mode=reporter")
    for name in MACHINES:
        _until(partial(cluster.is_reported, name))
