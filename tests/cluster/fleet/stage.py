"""A stage for scenarios: extender and scheduler as deploy/ runs them, and a cluster around them.

Runs Coterie on the real control plane (`Cast`: programs, for as many tests as a module has), and a
cluster of nodes with stand-ins, a checker that follows etcd and a judge (`play`: one test). A play
that ends well has asserted that the checker found no fault, and has cleared its nodes and pods
away, so that the next one starts on an empty cluster.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from extender.embedded import lay_out
from tests.cluster.control.api import open_api, patiently
from tests.cluster.control.manifests import (
    Mode,
    apply_manifest,
    extender_settings,
    scheduler_config,
)
from tests.cluster.control.processes import free_port
from tests.cluster.fleet.checker import Checker, FaultKind, Follower, current_revision
from tests.cluster.fleet.judge import Judge
from tests.cluster.fleet.nodes import create_nodes, node_path
from tests.cluster.fleet.stand_in import StandIn
from tests.cluster.fleet.workload import PODS, pod_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from extender.embedded import ClusterSpec
    from extender.embedded.spec import EmbeddedNode
    from tests.cluster.control.api import Api
    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.control.extender_process import ExtenderProcess
    from tests.cluster.control.scheduler import Scheduler
    from tests.cluster.fleet.checker import PodState

__all__ = ["EXTENDER_USER", "SOON_S", "Cast", "Play", "play", "prepare", "stand_by", "start_cast"]

EXTENDER_USER = "coterie-extender"
"""Who the extender is in a kubeadm control plane (deploy/kubeadm)."""
SOON_S = 60.0
"""Long enough for anything that takes a second or two, on a busy machine.

It holds an error backoff of kube-scheduler (10 s), and is far below the five minutes after which
kube-scheduler tries a parked pod by itself (`podMaxInUnschedulablePodsDuration`).
"""


@dataclass
class Cast:
    """The programs of a scenario; `config` is the scheduler's, to start further ones."""

    control_plane: ControlPlane
    extender: ExtenderProcess
    scheduler: Scheduler
    config: dict[str, Any]
    decision_log: Path | None

    def stop(self) -> None:
        """End both; the control plane goes on."""
        self.scheduler.stop()
        self.extender.stop()

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Meanwhile others play: two schedulers would both take every pod."""
        await asyncio.to_thread(self.stop)
        try:
            yield
        finally:
            await asyncio.to_thread(self.extender.start)
            await asyncio.to_thread(self.scheduler.start)


@dataclass
class Play:
    """One test's cluster."""

    cast: Cast
    api: Api
    checker: Checker
    follower: Follower
    nodes: tuple[EmbeddedNode, ...]
    judge: Judge
    allowed: set[FaultKind] = field(default_factory=set)
    """Promises that this test makes others break."""

    async def create(self, manifest: Mapping[str, Any]) -> str:
        """Create a pod and wait until etcd shows it; its uid."""
        made = (await patiently(lambda: self.api.create(PODS, manifest)))["metadata"]
        await self.until(lambda: made["uid"] in self.checker.created_at_s)
        return str(made["uid"])

    async def add_nodes(self, spec: ClusterSpec) -> None:
        """Create more nodes; the judge knows them before anyone can see them."""
        self.judge.learn(lay_out(spec))
        self.nodes += await create_nodes(self.api, spec)

    def pod(self, name: str) -> PodState:
        """The pod as etcd has it."""
        return self.checker.pods[_key(name)]

    def has(self, name: str) -> bool:
        """Whether etcd has the pod."""
        return _key(name) in self.checker.pods

    async def until(self, is_so: Callable[[], object], *, within_s: float = SOON_S) -> float:
        """Wait until something holds in etcd; how long it took. An error shows the pods."""
        try:
            return await self.follower.until(lambda _: bool(is_so()), within_s=within_s)
        except TimeoutError as error:
            msg = f"not so within {within_s:g} s; pods in etcd:\n{self._described()}"
            raise TimeoutError(msg) from error

    async def bound(self, *names: str, within_s: float = SOON_S) -> list[PodState]:
        """Wait until these pods have a node."""
        await self.until(lambda: all(self._has_node(n) for n in names), within_s=within_s)
        return [self.pod(name) for name in names]

    async def refused(self, name: str, *, within_s: float = SOON_S) -> str:
        """Wait until the scheduler has said that the pod does not fit; what it said."""
        await self.until(
            lambda: self.has(name) and self.pod(name).reason == "Unschedulable", within_s=within_s
        )
        return self.pod(name).message

    async def gone(self, *names: str, within_s: float = SOON_S) -> None:
        """Wait until these pods are no more."""
        await self.until(lambda: not any(self.has(name) for name in names), within_s=within_s)

    async def delete(self, *names: str) -> None:
        """End pods and wait until they are no more."""
        for name in names:
            await self.api.end(pod_path(name))
        await self.gone(*names)

    async def known(self, names: Collection[str]) -> None:
        """Wait until the extender knows these nodes, and no others."""
        async with asyncio.timeout(SOON_S):
            while await asyncio.to_thread(self._known) != set(names):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)

    async def has_free(self, node: str, n_gpus: int) -> None:
        """Wait until the extender has so many free GPUs of a node: its own watch tells it."""
        async with asyncio.timeout(SOON_S):
            while await asyncio.to_thread(self._n_free, node) != n_gpus:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.05)

    def _described(self) -> str:
        """A line for each live or waiting pod."""
        pods = (one for one in self.checker.pods.values() if one.is_live or one.node is None)
        return "\n".join(
            f"{one.name}: {one.phase} on {one.node} {one.reason} {one.message}" for one in pods
        )

    def _known(self) -> set[str]:
        answer = self.cast.extender.get("/state/nodes")
        return set(answer.json()["nodes"])

    def _n_free(self, node: str) -> int:
        answer = self.cast.extender.get("/state/nodes")
        return len(answer.json()["nodes"].get(node, {"free": ()})["free"])

    def _has_node(self, name: str) -> bool:
        return self.has(name) and self.pod(name).node is not None


def _key(name: str) -> str:
    return f"/registry/pods/default/{name}"


def prepare(control_plane: ControlPlane) -> None:
    """Apply what mode `kubeadm` adds to the API server: RBAC and admission policies."""
    apply_manifest(control_plane, Mode.KUBEADM.value, "plugin.enabled=false")


def start_cast(
    control_plane: ControlPlane,
    *flags: str,
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] | None = None,
    decision_log: Path | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
    scheduler_flags: Sequence[str] = (),
) -> Cast:
    """Start extender and scheduler with the rights and the configuration of deploy/kubeadm.

    `flags`, `kubeconfig` and `environment` are the extender's; `change` edits the scheduler's
    configuration, which `scheduler_flags` add to.
    """
    prepare(control_plane)
    port = free_port()
    shipped = extender_settings(Mode.KUBEADM)
    own = ("--scheduler-names", shipped["scheduler_names"])
    flags = (*own, "--http-timeout-s", shipped["http_timeout_s"], *flags)
    if decision_log is not None:
        flags = (*flags, "--decision-log", str(decision_log))
    extender = control_plane.start_extender(
        kubeconfig or control_plane.kubeconfig(EXTENDER_USER),
        *flags,
        name=f"extender-{port}",
        port=port,
        environment=environment,
    )
    config: dict[str, Any] = json.loads(
        scheduler_config(
            Mode.KUBEADM, extender.url, kubeconfig=control_plane.kubeconfig("system:kube-scheduler")
        )
    )
    if change is not None:
        change(config)
    scheduler = control_plane.start_scheduler(
        config, name=f"scheduler-{port}", flags=scheduler_flags
    )
    return Cast(control_plane, extender, scheduler, config, decision_log)


@asynccontextmanager
async def stand_by(cast: Cast, *flags: str, **options: Any) -> AsyncIterator[Cast]:
    """Another cast in the place of one that rests; arguments as for `start_cast`."""
    async with cast.resting():
        other = await asyncio.to_thread(start_cast, cast.control_plane, *flags, **options)
        try:
            yield other
        finally:
            await asyncio.to_thread(other.stop)


@asynccontextmanager
async def play(
    cast: Cast, spec: ClusterSpec, *, is_known: bool = True, has_stand_in: bool = True
) -> AsyncIterator[Play]:
    """Set up nodes and those who watch them; afterwards assert that no promise was broken."""
    judge = Judge(lay_out(spec))
    checker = Checker(fits=judge.fits)
    etcd_url = cast.control_plane.etcd_url
    async with open_api(cast.control_plane.admin) as api:
        await _clear(api)
        begin = await current_revision(etcd_url) + 1
        async with Follower(etcd_url, checker, from_revision=begin) as follower:
            nodes = await create_nodes(api, spec)
            played = Play(cast, api, checker, follower, nodes, judge)
            await follower.catch_up()
            if is_known:
                await played.known([node.name for node in nodes])
            async with StandIn(api) if has_stand_in else nullcontext():
                yield played
            await follower.catch_up()
            broken = [fault for fault in checker.faults if fault.kind not in played.allowed]
            assert broken == []
        await _clear(api)


async def _clear(api: Api) -> None:
    """Remove all pods and nodes, be they of this play or of one that failed.

    Not by force: the devices of pods that were removed so are held for a while, and the next play
    has nodes of the same names.
    """
    pods = [pod["metadata"] for pod in (await api.get("/api/v1/pods"))["items"]]
    paths = [f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}" for pod in pods]
    await asyncio.gather(*(api.end(path) for path in paths))
    nodes = [node["metadata"]["name"] for node in (await api.get("/api/v1/nodes"))["items"]]
    await asyncio.gather(*(api.delete(node_path(name)) for name in nodes))
