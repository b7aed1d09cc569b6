"""A real kubelet with containerd, as a node of a test's control plane.

Starts a node that is Ready and whose containers run; kills, restarts and reconfigures its kubelet;
says where its device plugins, PodResources and checkpoint are, and what a container printed.
Everything of it lies in a space of its own (see `node_space`) and ends with it.
"""

from __future__ import annotations

import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from tests.cluster.control.control_plane import MASTERS, CommandFailed
from tests.cluster.control.processes import Program, free_port
from tests.cluster.fleet.nodes import node_path
from tests.cluster.node.node_space import KUBELET, NodeSpace
from tests.cluster.node.numa import SYSFS_NODES, write_numa_nodes
from tests.cluster.programs.containerd import NATIVE, endpoint, import_image, start_containerd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.programs.build import NodePrograms
    from tests.cluster.programs.containerd import PodNetwork

__all__ = ["CNI_CACHE", "KubeletNode", "NodeNetwork", "NodeTools"]

CNI_CACHE = Path("/var/lib/cni")
"""Where containerd notes the networks of pods (containernetworking/cni, libcni/api.go)."""

_LOOPBACK = "127.0.0.1"
_STARTS_WITHIN_S = 120.0
_TIMEOUT_S = 30.0
_PRINTS_WITHIN_S = 60.0
_POLL_S = 0.02
_CDI = Path("/var/run/cdi")
_STATES = {
    "cpuManagerPolicy": "cpu_manager_state",
    "memoryManagerPolicy": "memory_manager_state",
}
"""Files with which the kubelet refuses to start under another policy than wrote them."""


@dataclass(frozen=True, slots=True)
class NodeTools:
    """What a node runs beside its kubelet."""

    programs: NodePrograms
    runc: Path


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """A node at an address of its own, whose pods have a network of their own.

    `CNI_CACHE` must be there; the node has its own in its place.
    """

    address: str
    """One that this machine has."""
    port: int
    """Where the kubelet listens at that address."""
    name_server: str
    """The address of the cluster's DNS."""
    pods: PodNetwork


class KubeletNode:
    """One node. A context manager; `start` and `stop` do the same.

    `numa_nodes` other than 0 is how many the kubelet shall see. `config` are fields of its
    KubeletConfiguration beyond those that make it run at all. Without `network` it listens on
    loopback, and its pods use the machine's network. `snapshotter` is containerd's.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str,
        tools: NodeTools,
        *,
        numa_nodes: int = 0,
        config: Mapping[str, object] | None = None,
        network: NodeNetwork | None = None,
        snapshotter: str = NATIVE,
    ) -> None:
        self.name = name
        self._plane = control_plane
        self._tools = tools
        self._network = network
        self._snapshotter = snapshotter
        self.address = network.address if network else _LOOPBACK
        self.port = network.port if network else free_port()
        self.url = f"https://{self.address}:{self.port}"
        self.folder = control_plane.folder / f"{name}-{self.port}"
        """Logs and settings; they stay."""
        self.folder.mkdir()
        binds: dict[str, Path] = {}
        if numa_nodes:
            numa = self.folder / "numa"
            write_numa_nodes(numa, numa_nodes)
            binds[str(SYSFS_NODES)] = numa
        if network:
            binds[str(CNI_CACHE)] = self.folder / "cni-cache"
            binds[str(CNI_CACHE)].mkdir()
        self.space = NodeSpace(name, self.folder / "init.log", binds=binds)
        self._config = self._base_config() | dict(config or {})
        self._client = self._admin_client()
        self.containerd: Program
        self.kubelet: Program

    def __enter__(self) -> Self:
        """Start; what had been started ends where the rest does not come up."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start containerd and the kubelet; returns when the node is Ready."""
        self.space.start()
        tools = self._tools
        self.containerd = start_containerd(
            self.space,
            tools.programs,
            tools.runc,
            self.folder / "containerd.log",
            self._network.pods if self._network else None,
            self._snapshotter,
        )
        self._write_config()
        self.kubelet = self.space.program(
            "kubelet",
            self._kubelet_command(),
            self.folder / "kubelet.log",
            is_ready=self._is_ready,
        )
        self.kubelet.start_within_s = _STARTS_WITHIN_S
        self.kubelet.start()

    def stop(self) -> None:
        """End everything of it; the Node object stays, as when a machine loses power."""
        try:
            self.space.stop()
        finally:
            self._client.close()

    def start_kubelet(self, **changes: object) -> None:
        """Start it again after it was killed, with changed settings; returns when it is Ready.

        The node counts as gone meanwhile, as a controller would say after a while.
        """
        gone = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
        self._patch_status({"conditions": gone})
        for setting, state in _STATES.items():
            if setting in changes:
                (self.space.kubelet / state).unlink(missing_ok=True)
        self._config |= changes
        self._write_config()
        self.kubelet.start()

    def restart_kubelet(self, **changes: object) -> None:
        """SIGKILL, then `start_kubelet`."""
        self.kubelet.kill()
        self.start_kubelet(**changes)

    def import_image(self, archive: Path) -> None:
        """Have the image of an OCI archive, under the name that it has there."""
        import_image(self.space, self._tools.programs, archive, self._snapshotter)

    def start_program(
        self,
        name: str,
        command: Sequence[str],
        *,
        is_ready: Callable[[], bool] = lambda: True,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a program on this node, a device plugin for one; it ends with the node at last."""
        log = self.folder / f"{name}.log"
        program = self.space.program(name, command, log, is_ready=is_ready, environment=environment)
        program.start()
        return program

    @property
    def device_plugins(self) -> Path:
        """The folder of device plugins' sockets, as seen from outside; so are all paths here."""
        return self.space.kubelet / "device-plugins"

    @property
    def kubelet_socket(self) -> Path:
        """Where device plugins register."""
        return self.device_plugins / "kubelet.sock"

    @property
    def checkpoint(self) -> Path:
        """What the kubelet remembers of devices."""
        return self.device_plugins / "kubelet_internal_checkpoint"

    @property
    def pod_resources_socket(self) -> Path:
        """Where the kubelet reports who has which device."""
        return self.space.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def cdi(self) -> Path:
        """The folder of CDI specifications; it is there once one was written."""
        seen = _CDI.resolve()  # /var/run is a link, which would lead out of the node
        return Path(f"/proc/{self.containerd.pid}/root") / seen.relative_to("/")

    @property
    def reports_devices(self) -> bool:
        """Whether pod.status names devices: ResourceHealthStatus is on from 1.36."""
        return self._plane.binaries.minor != "1.35"

    @property
    def knows_plugins_by_socket(self) -> bool:
        """Whether a device plugin that ends leaves others of its resource registered: from 1.37."""
        return self._plane.binaries.minor not in {"1.35", "1.36"}

    def get(self, path: str, *, token: str | None = None) -> httpx.Response:
        """Ask the kubelet itself, as one who may do everything, or who has that token; "" is none.

        The kubelet reviews a token at the API server once in a while only.
        """
        if token is None:
            return self._client.get(path)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(verify=self._trusted(), timeout=_TIMEOUT_S, trust_env=False) as client:
            return client.get(self.url + path, headers=headers)

    def output(self, pod: Mapping[str, Any], container: str) -> list[str]:
        """The lines that a container printed, all its runs; the pod as the API server has it."""
        # Each line is `TIME STREAM P|F TEXT` (CRI's logging format).
        return [
            line.split(" ", 3)[3]
            for log in self._logs(pod, container)
            for line in log.read_text(encoding="utf-8").splitlines()
        ]

    def has_log(self, pod: Mapping[str, Any], container: str) -> bool:
        """Whether there is a log of the container: from its start until the kubelet removes it."""
        return any(self._logs(pod, container))

    def given(self, pod: Mapping[str, Any], container: str) -> dict[str, Any]:
        """What the container's program found that it was given, when it started last.

        It may run a moment before it prints: a log sends no event, so this polls.
        """
        deadline = time.monotonic() + _PRINTS_WITHIN_S
        while not (lines := self.output(pod, container)):
            if time.monotonic() > deadline:
                name = pod["metadata"]["name"]
                msg = f"{container} of {name} printed nothing in {_PRINTS_WITHIN_S} s"
                raise TimeoutError(msg)
            time.sleep(_POLL_S)
        return dict(json.loads(lines[-1]))

    def _logs(self, pod: Mapping[str, Any], container: str) -> list[Path]:
        meta = pod["metadata"]
        owner = f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        return sorted((self._pod_logs / owner / container).glob("*.log"))

    @property
    def _pod_logs(self) -> Path:
        return self.space.folder / "pod-logs"

    def _kubelet_command(self) -> list[str]:
        user = self._plane.kubeconfig(f"system:node:{self.name}", "system:nodes")
        return [
            *(str(self._plane.binaries.kubelet), "--config", str(self.folder / "kubelet.json")),
            *("--kubeconfig", str(user), "--hostname-override", self.name),
            *("--root-dir", str(KUBELET), "--v", "2"),
            *(("--node-ip", self.address) if self._network else ()),
        ]

    def _base_config(self) -> dict[str, Any]:
        """Settings for any machine: old or new control groups, swap, few rights, no network."""
        authority = self.folder / "ca.crt"
        authority.write_bytes(self._plane.authority.certificate)
        pair = self._plane.authority.server(self.name, self.address).write(self.folder, "server")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": self.port,
            "clusterDNS": [self._network.name_server] if self._network else [],
            "clusterDomain": "cluster.local",
            "healthzPort": 0,
            "tlsCertFile": str(pair.certificate),
            "tlsPrivateKeyFile": str(pair.key),
            # As kubeadm configures it: callers are authenticated and authorized by the API server.
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{endpoint(self.space)}",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            # A disk that is nearly full is none of the tests' business.
            "evictionHard": {"memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "podLogsDir": str(self._pod_logs),
            "volumePluginDir": str(self.space.folder / "volume-plugins"),
            "nodeStatusUpdateFrequency": "1s",
        }

    def _write_config(self) -> None:
        text = json.dumps(self._config, indent=2)
        (self.folder / "kubelet.json").write_text(text, encoding="utf-8")

    def _trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.folder / "ca.crt")

    def _admin_client(self) -> httpx.Client:
        context = self._trusted()
        admin = self._plane.authority.client("admin", [MASTERS]).write(self.folder, "admin")
        context.load_cert_chain(admin.certificate, admin.key)
        return httpx.Client(base_url=self.url, verify=context, timeout=_TIMEOUT_S, trust_env=False)

    def _is_ready(self) -> bool:
        try:
            node = self._plane.client.get(node_path(self.name))
            if node.is_error or self.get("/healthz").is_error:
                return False
        except httpx.HTTPError:
            return False
        conditions = node.json()["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _patch_status(self, status: Mapping[str, object]) -> None:
        answer = self._plane.client.patch(
            node_path(self.name) + "/status",
            content=json.dumps({"status": status}),
            headers={"Content-Type": "application/strategic-merge-patch+json"},
        )
        if answer.is_error:
            msg = f"node {self.name}: {answer.status_code}: {answer.text[:500]}"
            raise CommandFailed(msg)
