"""A cluster to install Coterie on: pods of the manifests run as pods, and GPUs are simulated.

`InstallStage` is a control plane with accounts, its own kube-scheduler and controllers, kube-proxy
and nodes with kubelets, in a network of its own (`own_network`). Images are those that a release
has, imported into each node:

    with InstallStage(tools, images, folder, nodes=2) as stage:
        stage.apply("second-scheduler")
        stage.rolled_out("daemonset/coterie-plugin", "coterie-node")
        stage.pods.create(gpu_pod("job", 4))
        assert stage.process("job").devices == tuple(stage.plan("job"))

Nothing of it is on the machine afterwards: leaving it raises `SomethingLeft` otherwise.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import httpx

from deploy.manifests import render
from tests.cluster.control.chart import Helm
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.manifests import await_so
from tests.cluster.control.scheduler import plain_config
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.workload import RESOURCE
from tests.cluster.install.own_network import (
    HOST,
    KUBELET_PORT,
    OwnNetwork,
    node_address,
    pod_network,
)
from tests.cluster.install.services import start_kube_proxy, start_name_server
from tests.cluster.install.traces import Traces, cni_cache, network_links
from tests.cluster.node.kubelet_node import KubeletNode, NodeNetwork
from tests.cluster.node.real_pods import RealPods, is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import VARIABLE
from tests.cluster.programs.build import cni_plugins, coredns
from tests.cluster.programs.build import helm as built_helm
from tests.cluster.programs.containerd import ctr, quick_snapshotter
from tests.cluster.programs.debian import find_nft
from tests.cluster.programs.versions import chosen_helm
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.install.images import Images
    from tests.cluster.node.kubelet_node import NodeTools
    from tests.cluster.programs.build import Binaries
    from tests.cluster.programs.debian import Nft

__all__ = [
    "SIMULATED",
    "InstallStage",
    "InstallTools",
    "Process",
    "SomethingLeft",
    "gpu_pod",
    "install_tools",
]

SIMULATED = "coterie.gpu/simulated"
"""Label of nodes on which the plugin simulates GPUs."""
_WITHIN_S = 180


class SomethingLeft(Exception):
    """A stage has ended, and something of it is still on the machine; the message lists it."""


@dataclass(frozen=True, slots=True)
class InstallTools:
    """The programs that a stage runs."""

    binaries: Binaries
    node: NodeTools
    cni: Path
    """The folder of CNI's plugins."""
    coredns: Path
    nft: Nft


@dataclass(frozen=True, slots=True)
class Process:
    """A pod's container as it runs: what a restart, or other devices, would change."""

    container_id: str
    pid: int
    n_restarts: int
    devices: tuple[str, ...]
    """What its program found in its environment, sorted."""


def install_tools(binaries: Binaries, node: NodeTools, say: Callable[[str], None]) -> InstallTools:
    """Find the programs, or build them. Raises `ProgramMissing`, `BuildFailed`."""
    return InstallTools(binaries, node, cni_plugins(say), coredns(say), find_nft(say))


def gpu_pod(name: str, gpus: int, **fields: Any) -> dict[str, Any]:
    """A pod in `default` whose one container, `main`, has so many GPUs until it is stopped.

    It has a network of its own and names no scheduler; `fields` are its spec's.
    """
    pod = real_pod(name, real_container("main", gpus), **fields)
    pod["spec"] |= {"hostNetwork": False} | fields
    return pod


class InstallStage:
    """One cluster. A context manager; enter and leave it in the same thread.

    Nodes are called `node-0` and so on, at most four, and have the label for simulated GPUs;
    `name_server` is whether the names of Services resolve.
    """

    def __init__(
        self,
        tools: InstallTools,
        images: Images,
        folder: Path,
        *,
        nodes: int = 1,
        name_server: bool = False,
    ) -> None:
        self.images = images
        self.folder = folder
        self.nodes: dict[str, KubeletNode] = {}
        self.control_plane: ControlPlane
        self._tools = tools
        self._n_nodes = nodes
        self._has_names = name_server
        self._stack = contextlib.ExitStack()
        self.network = OwnNetwork()
        self.traces: Traces
        """Where it is to be seen on the machine."""

    def __enter__(self) -> Self:
        """Start; returns when all nodes are Ready and Services work."""
        links = network_links()
        try:
            with self.timed("stage"):
                self._start()
        except BaseException:
            self._stack.close()
            raise
        spaces = [node.space for node in self.nodes.values()]
        folders = (path for space in spaces for path in (space.folder, *space.groups))
        self.traces = Traces(self.network.inode, tuple(folders), links)
        return self

    def __exit__(self, *_: object) -> None:
        """End everything. Raises `SomethingLeft`."""
        self._stack.close()
        if left := self.traces.left():
            raise SomethingLeft("\n".join(left))

    @property
    def pods(self) -> RealPods:
        """The pods of namespace `default`."""
        return RealPods(self.control_plane)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Print how long something took; pytest shows it with `-s`, and where a test fails."""
        began = time.monotonic()
        yield
        print(f"{what}: {time.monotonic() - began:.1f} s")  # noqa: T201 - a figure for people

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as admin; its output. Raises `CommandFailed`."""
        return self.control_plane.kubectl(*arguments, stdin=stdin)

    def helm(self, *arguments: str) -> str:
        """Run the chosen Helm as admin; its output. Raises `HelmFailed`."""
        program = built_helm(chosen_helm())
        return Helm(program, self.folder, self.control_plane.admin).run(*arguments)

    def get(self, path: str) -> dict[str, Any]:
        """An object, or a list, of the API server; raises `httpx.HTTPStatusError`."""
        answer = self.control_plane.client.get(path)
        answer.raise_for_status()
        return dict(answer.json())

    def image_values(self) -> dict[str, str]:
        """The chart's values by which it takes the stage's images."""
        registry, _, rest = self.images.extender.partition("/")
        scheduler = self.images.kube_scheduler
        return {
            "image.registry": registry,
            "image.tag": rest.rpartition(":")[2],
            "scheduler.image.registry": scheduler.partition("/")[0],
            "scheduler.image.tag": scheduler.rpartition(":")[2],
        }

    def manifest(self, name: str, **values: str) -> str:
        """The manifest of a way with the stage's images, and GPUs simulated where it is labelled.

        `values` are further ones of the chart, with `__` in the place of dots.
        """
        simulated = {"plugin.profile": "simulated", "plugin.mode": "device-plugin"}
        given = {path.replace("__", "."): value for path, value in values.items()}
        arguments = [
            word
            for path, value in (self.image_values() | simulated | given).items()
            for word in (("--set-string" if path.endswith("tag") else "--set"), f"{path}={value}")
        ]
        version = self._tools.binaries.version
        return render(built_helm(chosen_helm()), name, *arguments, kubernetes=version)

    def apply(self, name: str, **values: str) -> None:
        """Apply such a manifest by kubectl."""
        self.kubectl("apply", "-f", "-", stdin=self.manifest(name, **values))

    def tag_images(self, tag: str) -> None:
        """Give Coterie's images this tag, too, on all nodes: the next version of an upgrade."""
        for image in (self.images.extender, self.images.plugin):
            other = f"{image.partition(':')[0]}:{tag}"
            for node in self.nodes.values():
                self._ctr(node, "images", "tag", image, other)

    def rolled_out(self, workload: str, namespace: str, *, within_s: int = _WITHIN_S) -> None:
        """Wait until a Deployment or DaemonSet has its pods Ready. Raises `CommandFailed`."""
        command = ("rollout", "status", workload, "-n", namespace, f"--timeout={within_s}s")
        self.kubectl(*command)

    def plan(self, pod: str) -> list[str]:
        """The devices that the plan of a pod in `default` names, sorted."""
        plan = json.loads(self.pods.get(pod)["metadata"]["annotations"][names.PLAN])
        return sorted(device for one in plan["containers"] for device in one["ids"])

    def container_environment(self, pod: str, container: str = "main") -> dict[str, str]:
        """The variables about GPUs that the program in a container of a pod in `default` found."""
        found = self.pods.get(pod)
        node = self.nodes[found["spec"]["nodeName"]]
        return dict(node.given(found, container)["environment"])

    def start(self, name: str, gpus: int) -> Process:
        """Run a pod with so many GPUs in `default`; its container, once it runs."""
        self.pods.create(gpu_pod(name, gpus, schedulerName="coterie-scheduler"))
        return self.process(name)

    def process(self, pod: str) -> Process:
        """The container `main` of a pod in `default`, once it runs."""
        found = self.pods.until(pod, is_running)
        (status,) = found["status"]["containerStatuses"]
        container_id = status["containerID"].removeprefix("containerd://")
        rows = self._ctr(self.nodes[found["spec"]["nodeName"]], "tasks", "list").splitlines()
        (pid,) = [row.split()[1] for row in rows if row.split()[0] == container_id]
        devices = self.container_environment(pod)[VARIABLE].split(",")
        return Process(container_id, int(pid), status["restartCount"], tuple(sorted(devices)))

    def gpus(self, node: str) -> tuple[int, int]:
        """How many GPUs the Node has, and how many of them can be allocated."""
        status = self.get(node_path(node))["status"]
        return tuple(int(status[one].get(RESOURCE, 0)) for one in ("capacity", "allocatable"))  # type: ignore[return-value]  # two of them

    def _ctr(self, node: KubeletNode, *arguments: str) -> str:
        return ctr(node.space, self._tools.node.programs, *arguments)

    def _start(self) -> None:
        enter, tools = self._stack.enter_context, self._tools
        enter(cni_cache())
        enter(self.network)
        self.folder.mkdir(exist_ok=True)
        plane = enter(ControlPlane(tools.binaries, self.folder / "control-plane", pod_address=HOST))
        self.control_plane = plane
        plane.start_controller_manager()
        plane.start_scheduler(plain_config())
        snapshotter = quick_snapshotter(self.folder)
        pods = pod_network(self.folder / "pod-addresses", tools.cni)
        for number in range(self._n_nodes):
            network = NodeNetwork(node_address(number), KUBELET_PORT, HOST, pods)
            name = f"node-{number}"
            node = KubeletNode(plane, name, tools.node, network=network, snapshotter=snapshotter)
            self.nodes[name] = enter(node)
            plane.kubectl("label", "node", name, f"{SIMULATED}=true")
        start_kube_proxy(plane, "node-0", tools.nft)
        if self._has_names:
            start_name_server(plane, tools.coredns)
        for node in self.nodes.values():
            for archive in self.images.archives:
                node.import_image(archive)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        await_so(partial(_is_there, plane, account), "account of namespace default")


def _is_there(plane: ControlPlane, path: str) -> bool:
    return plane.client.get(path).status_code == httpx.codes.OK
