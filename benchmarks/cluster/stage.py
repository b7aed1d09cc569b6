"""Where arms are compared: one API server, its nodes, and a scheduler and an extender for each arm.

Configures an arm's scheduler (the one of deploy/, without the extender or with another one) and
runs its extender. All arms share every setting of the scheduler but the extender;
`clientConnection` is raised for all, since kube-scheduler's own limit of 50 requests a second would
bind without an extender at 50 pods a second. Coterie alone can be run as shipped, with every
setting of scheduler and extender that mode `second-scheduler` has.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks import process_usage
from extender.embedded import parse_cluster
from tests.cluster.control.api import Api, open_api
from tests.cluster.control.manifests import Mode, extender_settings, scheduler_config
from tests.cluster.control.processes import free_port
from tests.cluster.fleet.nodes import create_nodes
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.control.extender_process import ExtenderProcess
    from tests.cluster.control.processes import Program
    from tests.cluster.control.scheduler import Scheduler

__all__ = ["NAMESPACE", "PODS", "Arm", "Running", "Stage", "make_pod"]

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SCHEDULER = "coterie-scheduler"
"""Name of the profile that places GPU pods in mode `second-scheduler`."""
_QPS = 5_000
_DELETION_DEADLINE_S = 120.0


class Arm(Enum):
    """Which extender kube-scheduler calls while it places a pod."""

    NONE = "no extender"
    TRIVIAL = "trivial extender"
    COTERIE = "Coterie"
    ONE_CANDIDATE = "Coterie, candidate_limit 1"


_COTERIE = {Arm.COTERIE: (), Arm.ONE_CANDIDATE: ("--candidate-limit", "1")}
"""The arms whose extender is Coterie's, with the flags in which they differ."""


@dataclass(frozen=True, slots=True)
class Running:
    """An arm at work. `extender` is None where there is none, `url` is where it listens."""

    scheduler: Scheduler | None
    extender: Program | None
    url: str

    def cpu_s(self) -> tuple[float, float]:
        """Processor seconds used so far by the scheduler and by the extender."""
        return _used_s(self.scheduler), _used_s(self.extender)

    @property
    def extender_pid(self) -> int:
        """Process id of the extender, 0 where there is none."""
        return self.extender.pid if self.extender is not None else 0

    async def state(self) -> dict[str, Any]:
        """What the extender's `/state` says."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            state: dict[str, Any] = (await client.get(f"{self.url}/state")).json()
        return state

    async def metrics(self) -> str:
        """What the extender's metrics say."""
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            return (await client.get(f"{self.url}/metrics")).text


class Stage:
    """One control plane for all arms. Pods are made while no scheduler runs."""

    def __init__(self, plane: ControlPlane, api: Api) -> None:
        self.plane = plane
        self.api = api
        self._n_started = 0

    @staticmethod
    @asynccontextmanager
    async def on(plane: ControlPlane) -> AsyncIterator[Stage]:
        """A stage on a control plane that runs."""
        async with open_api(plane.admin) as api:
            yield Stage(plane, api)

    @asynccontextmanager
    async def play(
        self,
        arm: Arm,
        *,
        percentage: int | None,
        backoff_s: int | None = None,
        has_scheduler: bool = True,
    ) -> AsyncIterator[Running]:
        """Run an arm's extender and scheduler while the block lasts.

        `percentage` is `percentageOfNodesToScore` of the GPU profile, None for the default;
        `backoff_s` is `podMaxBackoffSeconds`, None for what deploy/ says.
        """
        self._n_started += 1
        port = free_port()
        extender = await asyncio.to_thread(self._start_extender, arm, port)
        scheduler: Scheduler | None = None
        try:
            url = f"http://127.0.0.1:{port}"
            if has_scheduler:
                config = self._config(arm, url, percentage, backoff_s)
                name = f"scheduler-{self._n_started}"
                scheduler = await asyncio.to_thread(self.plane.start_scheduler, config, name=name)
            yield Running(scheduler, extender, url)
        finally:
            for program in (scheduler, extender):
                if program is not None:
                    await asyncio.to_thread(program.stop)

    @asynccontextmanager
    async def play_as_shipped(self) -> AsyncIterator[Scheduler]:
        """Run Coterie with every setting of mode `second-scheduler` while the block lasts."""
        start = self.plane.start_scheduler
        extender = await asyncio.to_thread(self._start_shipped)
        try:
            config = _shipped_config(self.plane, extender.url)
            scheduler = await asyncio.to_thread(start, config, name="scheduler-as-shipped")
            try:
                yield scheduler
            finally:
                await asyncio.to_thread(scheduler.stop)
        finally:
            await asyncio.to_thread(extender.stop)

    async def clear(self) -> None:
        """Delete all pods of the namespace and wait until they are gone."""
        await self.api.call(
            "DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        )
        async with asyncio.timeout(_DELETION_DEADLINE_S):
            while (await self.api.get(PODS, limit="1"))["items"]:  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.1)

    async def replace_nodes(self, cluster: str) -> None:
        """Delete all pods and nodes, and make the nodes of a description."""
        await self.clear()
        options = {"kind": "DeleteOptions", "apiVersion": "v1"}
        await self.api.call("DELETE", "/api/v1/nodes", options)
        await create_nodes(self.api, parse_cluster(cluster))

    async def create(self, pods: Sequence[dict[str, Any]]) -> None:
        """Create pods."""
        await self.api.create_all(PODS, pods)

    def _start_extender(self, arm: Arm, port: int) -> Program | None:
        name = f"extender-{self._n_started}"
        if arm is Arm.NONE:
            return None
        if arm in _COTERIE:
            flags = ("--log-level", "warning", *_COTERIE[arm])
            return self.plane.start_extender(self.plane.admin, *flags, name=name, port=port)
        command = [sys.executable, "-m", "benchmarks.trivial_extender", str(port)]
        return self.plane.start_program(name, command, f"http://127.0.0.1:{port}/readyz")

    def _start_shipped(self) -> ExtenderProcess:
        """All on one port, whatever the manifest says of ports."""
        shipped = extender_settings(Mode.SECOND_SCHEDULER)
        for own in ("listen_address", "listen_port", "health_port", "read_port"):
            del shipped[own]
        environment = {f"COTERIE_EXTENDER_{name.upper()}": one for name, one in shipped.items()}
        return self.plane.start_extender(
            self.plane.admin, name="extender-as-shipped", environment=environment
        )

    def _config(
        self, arm: Arm, url: str, percentage: int | None, backoff_s: int | None
    ) -> dict[str, Any]:
        config = _shipped_config(self.plane, url)
        config["clientConnection"] |= {"qps": _QPS, "burst": _QPS}
        profile = config["profiles"][0]
        del profile["percentageOfNodesToScore"]
        if percentage is not None:
            profile["percentageOfNodesToScore"] = percentage
        if backoff_s is not None:
            config["podMaxBackoffSeconds"] = backoff_s
        if arm is Arm.NONE:
            del config["extenders"]
        if arm is Arm.TRIVIAL:
            for verb in ("bindVerb", "preemptVerb"):
                del config["extenders"][0][verb]
        return config


def make_pod(name: str, size: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod of one container with `size` GPUs (0: none) for the profile under test."""
    limits = {DEFAULT_RESOURCE: str(size)} if size else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "train",
                    "resources": {"requests": {"cpu": "100m"}, "limits": limits},
                }
            ],
        },
    }


def _shipped_config(plane: ControlPlane, url: str) -> dict[str, Any]:
    text = scheduler_config(Mode.SECOND_SCHEDULER, url, kubeconfig=Path(plane.admin))
    config: dict[str, Any] = json.loads(text)
    return config


def _used_s(program: Program | None) -> float:
    return 0.0 if program is None else process_usage.cpu_s(program.pid)
