"""A cluster for people: nodes made from recordings, scheduler and extender, until it is left.

Starts it and says how to use it. It is put together from the same parts as the tests, with the
manifests of the chart and the rights that they give; pods run on stand-ins for kubelets.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster.control.api import open_api
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.manifests import Mode, install, scheduler_config, send_gpu_pods
from tests.cluster.fleet.nodes import create_nodes
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Playground:
    """A cluster that runs."""

    control_plane: ControlPlane
    nodes: tuple[EmbeddedNode, ...]
    extender: ExtenderProcess
    scheduler: Scheduler
    stand_in: Program

    def programs(self) -> tuple[Program, ...]:
        """Every program of it."""
        plane = self.control_plane
        return (plane.etcd, plane.api_server, self.extender, self.scheduler, self.stand_in)

    def instructions(self) -> str:
        """What a person needs to know to use it."""
        plane = self.control_plane
        pod = plane.folder / "pod.json"
        kubectl = plane.binaries.kubectl
        n_gpus = sum(len(node.ids) for node in self.nodes)
        return f"""\
Kubernetes {plane.binaries.version} runs with {len(self.nodes)} nodes, {n_gpus} GPUs; pods run on \
stand-ins.

  export KUBECONFIG={plane.admin}
  alias kubectl={kubectl}
  kubectl create -f {pod}       # 4 GPUs that NVLink connects
  kubectl get pods -o wide
  kubectl get pods -o jsonpath='{{.items[*].metadata.annotations.coterie\\.gpu/plan}}'

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
        stand_in = plane.start_program(
            "stand-in",
            [
                *(sys.executable, "-m", "tests.cluster.fleet.stand_in"),
                *("--kubeconfig", str(plane.admin)),
            ],
        )
        (folder / "pod.json").write_text(json.dumps(_EXAMPLE_POD, indent=2), encoding="utf-8")
        yield Playground(plane, nodes, extender, scheduler, stand_in)


async def _create_nodes(kubeconfig: Path, spec: ClusterSpec) -> tuple[EmbeddedNode, ...]:
    async with open_api(kubeconfig) as api:
        return await create_nodes(api, spec)
