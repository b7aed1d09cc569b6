"""`python -m benchmarks.node`: the node plugin beside a real kubelet.

Builds the control plane and the node's programs when absent, runs a real kubelet with the plugin on
a simulated machine of 16 GPUs. Needs root and mount namespaces.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.errors import MissingData
from benchmarks.node.calls import time_calls
from benchmarks.process_usage import cpu_s, resident_mib
from benchmarks.program import make_parser, run_program
from benchmarks.report import ResultTable
from plugin.deviceplugin import socket_names
from tests.cluster.control.control_plane import MASTERS, ControlPlane
from tests.cluster.node.kubelet_node import KubeletNode, NodeTools
from tests.cluster.node.node_space import SpaceRefused, check_machine
from tests.cluster.node.plugin_process import start_plugin
from tests.cluster.node.real_pods import RealPods, is_running, real_container, real_pod
from tests.cluster.programs.build import binaries, node_programs
from tests.cluster.programs.debian import ProgramMissing, find_runc
from tests.cluster.programs.versions import chosen_minor
from topology.model import DEFAULT_RESOURCE, decode_topology, names

if TYPE_CHECKING:
    from argparse import Namespace

    from tests.cluster.node.plugin_process import PluginProcess

RECORDING = "dgx-2"
N_GPUS = 16
PLUGIN = "coterie-plugin-benchmark"
"""The user whose requests are counted in the API server's audit log."""
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [PLUGIN]}],
}


@dataclass(frozen=True, slots=True)
class Load:
    """How much is measured."""

    n_pods: int
    n_calls: int
    n_restarts: int
    idle_s: float


FULL = Load(50, 400, 5, 120.0)
QUICK = Load(3, 8, 1, 3.0)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Seconds of calls over the plugin's socket."""

    preferred_s: list[float]
    allocate_s: list[float]


@dataclass(frozen=True, slots=True)
class _Idle:
    """What an idle plugin uses: share of a core, requests to the API server, memory."""

    cpu_share: float
    n_requests: int
    memory_mib: tuple[float, float]


def _measure(folder: Path, tools: NodeTools, load: Load) -> tuple[ResultTable, ...]:
    audit, policy = folder / "audit.log", folder / "audit.json"
    policy.write_text(json.dumps(_AUDIT), encoding="utf-8")
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit}"]
    with (
        ControlPlane(binaries(chosen_minor()), folder / "plane", api_server_flags=flags) as plane,
        KubeletNode(plane, "bench", tools, numa_nodes=2) as node,
    ):
        plugin = start_plugin(node, plane.kubeconfig(PLUGIN, MASTERS), RECORDING)
        (pid,) = _processes("plugin", node.name)
        pods = RealPods(plane)
        for number in range(load.n_pods):
            pods.create(real_pod(f"idle-{number}", real_container("main"), nodeName=node.name))
        for number in range(load.n_pods):
            pods.until(f"idle-{number}", is_running)
        (socket,) = node.device_plugins.glob(socket_names(DEFAULT_RESOURCE))
        calls = _Calls(*time_calls(socket, _device_ids(plane, node.name), load.n_calls))
        registered_s = [_restart(node, plugin) for _ in range(load.n_restarts)]
        idle = _watch_idle(pid, audit, load.idle_s)
        pods.clear()
    return _call_table(calls, load), _cost(registered_s, idle, load)


def _watch_idle(pid: int, audit: Path, idle_s: float) -> _Idle:
    time.sleep(5)  # the reads that follow a registration are not idleness
    n_before, before_s = _n_requests(audit), cpu_s(pid)
    time.sleep(idle_s)
    n_idle = _n_requests(audit) - n_before
    return _Idle((cpu_s(pid) - before_s) / idle_s, n_idle, resident_mib(pid))


def _call_table(calls: _Calls, load: Load) -> ResultTable:
    preferred, allocate = _quantiles(calls.preferred_s), _quantiles(calls.allocate_s)
    return ResultTable(
        "Calls of the kubelet's",
        ("call", "n", "p50 ms", "p99 ms", "max ms", "goal p99 ms"),
        (
            ("GetPreferredAllocation, with a request to the kubelet", *preferred, 30.0),
            ("Allocate after it", *allocate, 10.0),
        ),
        (
            f"{N_GPUS} GPUs ({RECORDING}), {load.n_pods} running pods on the node",
            "made over the plugin's socket, one after another",
        ),
        digits=2,
    )


def _cost(registered_s: list[float], idle: _Idle, load: Load) -> ResultTable:
    now_mb, highest_mb = (mib * 2**20 / 1e6 for mib in idle.memory_mib)
    return ResultTable(
        "Cost",
        ("what", "value", "goal"),
        (
            ("registered after the kubelet's socket appears, worst s", max(registered_s), 1.0),
            ("resident memory, MB", now_mb, 100.0),
            ("most resident memory, MB", highest_mb, 100.0),
            ("idle CPU, % of a core", 100 * idle.cpu_share, 0.5),
            ("requests to the API server an hour, idle", 3600 * idle.n_requests / load.idle_s, 0.0),
        ),
        (
            f"{load.n_restarts} restarts of the kubelet",
            f"idle for {load.idle_s:g} s with {load.n_pods} pods on the node",
            "requests from the API server's audit log",
        ),
        digits=2,
    )


def _quantiles(seconds: list[float]) -> tuple[int, float, float, float]:
    ordered = 1000 * np.sort(np.asarray(seconds))
    p50, p99 = (float(np.quantile(ordered, share)) for share in (0.5, 0.99))
    return len(seconds), p50, p99, float(ordered[-1])


def _device_ids(plane: ControlPlane, node: str) -> list[str]:
    annotations = plane.client.get(f"/api/v1/nodes/{node}").json()["metadata"]["annotations"]
    return [str(gpu.uuid) for gpu in decode_topology(annotations[names.TOPOLOGY]).gpus]


def _restart(node: KubeletNode, plugin: PluginProcess) -> float:
    """Seconds from the new socket's birth until the plugin reports that it is registered."""
    n_before = _n_registered(plugin)
    node.restart_kubelet()
    deadline_s = time.monotonic() + 30
    while _n_registered(plugin) == n_before:
        if time.monotonic() > deadline_s:
            msg = "the plugin did not register again within 30 s"
            raise TimeoutError(msg)
        time.sleep(0.05)
    stamp = _registered(plugin)[-1]["timestamp"]
    registered_s = datetime.fromisoformat(str(stamp)).timestamp()
    return registered_s - node.kubelet_socket.stat().st_ctime


def _registered(plugin: PluginProcess) -> list[dict[str, object]]:
    return [one for one in plugin.events("registration") if one["phase"] == "registered"]


def _n_registered(plugin: PluginProcess) -> int:
    return len(_registered(plugin))


def _n_requests(audit: Path) -> int:
    return len(audit.read_text(encoding="utf-8").splitlines()) if audit.exists() else 0


def _processes(module: str, node: str) -> list[int]:
    """Pids of `python -m <module> run` for a node, as this machine counts them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended meanwhile
            wanted = [b"-m", module.encode(), b"run"]
            if words[1:4] == wanted and node.encode() in words:
                found.append(int(entry.name))
    return found


def _run(options: Namespace) -> tuple[ResultTable, ...]:
    try:
        check_machine()
        tools = NodeTools(node_programs(), find_runc(print))
    except (SpaceRefused, ProgramMissing) as error:
        raise MissingData(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        return _measure(Path(folder), tools, QUICK if options.quick else FULL)


def main() -> int:
    """Measure the node plugin, print the tables and keep them; returns the exit code."""
    parser = make_parser("benchmarks.node", ["node"], "Measure the plugin beside a kubelet.")
    return run_program(parser, {"node": _run}, facts={"Kubernetes": chosen_minor()})


if __name__ == "__main__":
    sys.exit(main())
