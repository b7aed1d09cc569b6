"""A cluster for people: nodes made from recordings, scheduler and extender, until it is left.

Starts it, says how to use it, and starts the extender again where it ends, as a kubelet would. It
is put together from the same parts as the tests, with the manifests of the chart and the rights
that they give; Deployments and Jobs get their pods from the real controller manager, and pods run
on stand-ins for kubelets. Kinds of other projects are accepted, by definitions without a schema,
and no controller makes their pods.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.control.api import open_api
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.manifests import Mode, install, scheduler_config, send_gpu_pods
from tests.cluster.fleet.nodes import create_nodes
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from extender.embedded import ClusterSpec
    from extender.embedded.spec import EmbeddedNode
    from tests.cluster.control.extender_process import ExtenderProcess
    from tests.cluster.control.processes import Program
    from tests.cluster.control.scheduler import Scheduler
    from tests.cluster.programs.build import Binaries

__all__ = ["Playground", "play"]

_EXAMPLE_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "train-", "annotations": {"coterie.gpu/affinity": "nvlink"}},
    "spec": {
        "containers": [
            {"name": "main", "image": "train", "resources": {"limits": {DEFAULT_RESOURCE: "4"}}}
        ]
    },
}

_KINDS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("kubeflow.org", "v1", "PyTorchJob"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("ray.io", "v1", "RayCluster"),
)
"""Kinds of docs/examples that Kubernetes does not have."""
_RESTART_S = 10.0
"""A kubelet's first back-off (pkg/kubelet/kubelet.go, `backOffPeriod`)."""


@dataclass(slots=True)
class Playground:
    """A cluster that runs."""

    control_plane: ControlPlane
    nodes: tuple[EmbeddedNode, ...]
    extender: ExtenderProcess
    controllers: Program
    scheduler: Scheduler
    stand_in: Program
    _extender_ended_s: float | None = field(default=None, init=False)

    def programs(self) -> tuple[Program, ...]:
        """Every program of it but the extender."""
        plane = self.control_plane
        return (plane.etcd, plane.api_server, self.controllers, self.scheduler, self.stand_in)

    def tend_extender(self, say: Callable[[str], None]) -> None:
        """Start the extender again, some seconds after it has ended; raises `ProgramFailed`."""
        now_s = time.monotonic()
        if self.extender.is_running:
            return
        if self._extender_ended_s is None:
            self._extender_ended_s = now_s
            say(f"the extender has ended: GPU pods wait; it comes back in {_RESTART_S:g} s")
        elif now_s - self._extender_ended_s >= _RESTART_S:
            self._extender_ended_s = None
            self.extender.start()
            say(f"the extender is back, as process {self.extender.pid}")

    def instructions(self) -> str:
        """What a person needs to know to use it."""
        plane = self.control_plane
        pod = plane.folder / "pod.json"
        programs = f"{plane.binaries.kubectl.parent}:{Path(sys.executable).parent}"
        others = ", ".join(kind for _, _, kind in _KINDS)
        n_gpus = sum(len(node.ids) for node in self.nodes)
        return f"""\
Kubernetes {plane.binaries.version} runs with {len(self.nodes)} nodes, {n_gpus} GPUs; pods run on \
stand-ins.

  export KUBECONFIG={plane.admin}
  export COTERIE_EXTENDER_URL={self.extender.url}   # for kubectl coterie
  export PATH={programs}:$PATH
  kubectl create -f {pod}       # 4 GPUs that NVLink connects
  kubectl apply -f docs/examples       # {others}: no controller here
  kubectl get pods -o wide
  kubectl coterie pods                 # their GPUs; explain, what-if, ui and others as well
  kill {self.extender.pid}             # what users see without the extender; it comes back

  page       {self.extender.url}/ui/
  extender   {self.extender.url}  (/state, /metrics, /readyz)
  logs       {plane.folder}

ctrl-C ends all of it."""


@contextmanager
def play(
    binaries: Binaries, spec: ClusterSpec, folder: Path, say: Callable[[str], None]
) -> Iterator[Playground]:
    """Run a cluster of those nodes while the block lasts."""
    say(f"starting Kubernetes {binaries.version} in {folder}")
    with ControlPlane(binaries, folder) as plane:
        extender_user = install(plane, Mode.KUBEADM)
        send_gpu_pods(plane)
        nodes = asyncio.run(_create_nodes(plane.admin, spec))
        say(f"{len(nodes)} nodes are there; starting the extender and the scheduler")
        extender = plane.start_extender(extender_user)
        config = scheduler_config(
            Mode.KUBEADM, extender.url, kubeconfig=plane.kubeconfig("system:kube-scheduler")
        )
        scheduler = plane.start_scheduler(config)
        controllers = plane.start_controller_manager()
        kinds = {"apiVersion": "v1", "kind": "List", "items": [_definition(*k) for k in _KINDS]}
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(kinds))
        stand_in = plane.start_program(
            "stand-in",
            [
                *(sys.executable, "-m", "tests.cluster.fleet.stand_in"),
                *("--kubeconfig", str(plane.admin)),
            ],
        )
        (folder / "pod.json").write_text(json.dumps(_EXAMPLE_POD, indent=2), encoding="utf-8")
        yield Playground(plane, nodes, extender, controllers, scheduler, stand_in)


def _definition(group: str, version: str, kind: str) -> dict[str, object]:
    """A kind that takes any content."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def _create_nodes(kubeconfig: Path, spec: ClusterSpec) -> tuple[EmbeddedNode, ...]:
    async with open_api(kubeconfig) as api:
        return await create_nodes(api, spec)
