"""What only the shells of the service mode do: replicas over mutual TLS, rotated certificates."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from extender.embedded import parse_cluster
from extender.ha.lease_rules import url_of
from tests.cluster.control.manifests import ClientFiles, Mode, install, scheduler_config
from tests.cluster.control.processes import free_port
from tests.cluster.fleet.stage import Cast, Play, play
from tests.cluster.fleet.workload import Mix, arrivals, make_pod, submit
from tests.unit.extender.pki import BOTH_SIDES, authority, issue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.control.credentials import Authority
    from tests.cluster.control.extender_process import ExtenderProcess
    from tests.cluster.control.scheduler import Scheduler

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

LOOPBACK = "127.0.0.1"
LEASE = "coterie-system/coterie-extender"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/coterie-system/leases/coterie-extender"
LEASE_S = 3
CLUSTER = parse_cluster("4x dgx-h100, 4x dgx-1-v100, 2x 8x-l4")
SOON_S = 30.0


class Balancer:
    """Stands for the Service: a new connection goes to the first replica that takes it."""

    def __init__(self, port: int, replicas: list[Replica]) -> None:
        self._port = port
        self._replicas = replicas
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self.turn = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Pass bytes on until the end."""
        server = await asyncio.start_server(self._pass, LOOPBACK, self._port)
        try:
            yield
        finally:
            server.close()
            for writer in [one for ends in self._open.values() for one in ends]:
                writer.close()
            await asyncio.gather(*self._open)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = [writer]
        try:
            there = await self._connect()
            if there is not None:
                self._open[task].append(there[1])
                await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
        finally:
            for end in self._open.pop(task):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for i in range(len(self._replicas)):
            port = self._replicas[(self.turn + i) % len(self._replicas)].port
            with suppress(OSError):
                return await asyncio.open_connection(LOOPBACK, port)
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass
class Replica:
    """One of the extenders, and where it listens."""

    process: ExtenderProcess
    port: int

    @property
    def url(self) -> str:
        """What its Lease says."""
        return f"https://{LOOPBACK}:{self.port}"

    def count(self, event: str, **fields: object) -> int:
        """How many lines of its log say this."""
        return sum(fields.items() <= line.items() for line in self.process.events(event))

    def may_bind(self) -> bool:
        """Whether it says so itself."""
        return "coterie_extender_may_bind 1.0" in self._metrics()

    def knows(self, n_nodes: int) -> bool:
        """Whether it has so many nodes."""
        return f"coterie_extender_snapshot_nodes {n_nodes}.0" in self._metrics()

    def _metrics(self) -> list[str]:
        try:
            return self.process.get("/metrics").text.splitlines()
        except httpx.TransportError:
            return []


@dataclass
class Service:
    """Two replicas behind a balancer, a scheduler that calls it, and the files of TLS."""

    plane: ControlPlane
    replicas: list[Replica]
    balancer: Balancer
    scheduler: Scheduler
    authority: Authority
    folder: Path

    def holder(self) -> Replica | None:
        """Who holds the Lease, as the API server has it."""
        lease = self.plane.client.get(LEASE_PATH)
        if lease.status_code != 200:
            return None
        url = url_of(lease.json()["spec"].get("holderIdentity") or "")
        return next((one for one in self.replicas if one.url == url), None)

    async def held(self, *, by: Replica | None = None) -> Replica:
        """Wait until a replica, or this one, holds the Lease and may bind."""
        async with asyncio.timeout(SOON_S):
            while True:
                found = await asyncio.to_thread(self.holder)
                is_meant = found is not None and (by is None or found is by)
                if found is not None and is_meant and await asyncio.to_thread(found.may_bind):
                    return found
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def play(self) -> AsyncIterator[Play]:
        """A cluster before the service; both replicas know its nodes."""
        cast = Cast(self.plane, self.replicas[0].process, self.scheduler, {}, None)
        async with self.balancer.serving(), play(cast, CLUSTER, is_known=False) as played:
            for replica in self.replicas:
                async with asyncio.timeout(SOON_S):
                    while not await asyncio.to_thread(replica.knows, len(played.nodes)):  # noqa: ASYNC110 - no event
                        await asyncio.sleep(0.05)
            yield played


@pytest.fixture(scope="module")
def service(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The service mode of deploy/, with a Lease of three seconds."""
    kubeconfig = install(control_plane, Mode.SERVICE)
    folder = tmp_path_factory.mktemp("tls")
    by = authority()
    issue(folder, by, hosts=(LOOPBACK,))
    client = issue(folder / "client", by, usages=BOTH_SIDES[1:])
    replicas = [start_replica(control_plane, kubeconfig, folder) for _ in range(2)]
    port = free_port()
    config = scheduler_config(
        Mode.SERVICE,
        f"https://{LOOPBACK}:{port}",
        kubeconfig=control_plane.kubeconfig("system:kube-scheduler"),
        client_files=ClientFiles(client.client_ca, client.cert, client.key),
    )
    scheduler = control_plane.start_scheduler(config, name="scheduler-service")
    yield Service(control_plane, replicas, Balancer(port, replicas), scheduler, by, folder)
    scheduler.stop()
    for replica in replicas:
        replica.process.stop()


def start_replica(plane: ControlPlane, kubeconfig: Path, folder: Path) -> Replica:
    """One more, on ports of its own."""
    port, health_port = free_port(), free_port()
    process = plane.start_extender(
        kubeconfig,
        *("--lease", LEASE, "--lease-duration-s", str(LEASE_S)),
        *("--replica-url", f"https://{LOOPBACK}:{port}", "--health-port", str(health_port)),
        *("--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")),
        *("--tls-client-ca", str(folder / "ca.crt")),
        name=f"replica-{port}",
        port=port,
        health_url=f"http://{LOOPBACK}:{health_port}",
    )
    return Replica(process, port)


def gpu_pod(name: str, gpus: int, **fields: Any) -> dict[str, Any]:
    """A pod for the scheduler of that mode."""
    manifest = make_pod(name, gpus, **fields)
    manifest["spec"]["schedulerName"] = "coterie-scheduler"
    return manifest


def test_a_follower_hands_binds_to_the_holder(service):
    """The scheduler is led to whichever replica; the holder alone gives GPUs away."""

    async def main() -> None:
        holder = await service.held()
        follower = next(one for one in service.replicas if one is not holder)
        service.balancer.turn = service.replicas.index(follower)
        detail = f"forwarded to {holder.url}"
        n_handed_on = follower.count("answered", verb="bind", outcome="forwarded", detail=detail)
        n_bound = holder.count("answered", verb="bind", outcome="ok")
        n_calls = holder.count("answered", verb="filter")
        async with service.play() as played:
            pods = [f"p{i}" for i in range(8)]
            for pod in pods:
                await played.create(gpu_pod(pod, 4))
            await played.bound(*pods)
        assert follower.count("answered", verb="filter", outcome="ok") >= len(pods)
        handed_on = follower.count("answered", verb="bind", outcome="forwarded", detail=detail)
        assert handed_on == n_handed_on + len(pods)
        assert holder.count("answered", verb="bind", outcome="ok") == n_bound + len(pods)
        assert holder.count("answered", verb="filter") == n_calls

    asyncio.run(main())


def member(group: str, number: int, size: int) -> dict[str, Any]:
    """A pod of a group that takes a node."""
    wishes = {"coterie.gpu/group": group, "coterie.gpu/group-size": str(size)}
    return gpu_pod(f"{group}-{number}", 8, annotations=wishes)


def test_groups_are_placed_by_the_holder_and_by_the_next_one(service):
    """Calls come to a follower; members that wait when the holder dies are woken by its heir."""

    async def main() -> None:
        holder = await service.held()
        follower = next(one for one in service.replicas if one is not holder)
        service.balancer.turn = service.replicas.index(follower)
        detail = f"forwarded to {holder.url}"
        async with service.play() as played:
            for number in range(2):
                await played.create(member("a", number, 2))
            await played.bound("a-0", "a-1")
            assert follower.count("answered", verb="filter", outcome="forwarded", detail=detail) > 1
            assert follower.count("answered", verb="filter", outcome="ok", pod="default/a-0") == 0
            await played.create(member("b", 0, 2))
            assert "waits for its group" in await played.refused("b-0")
            await asyncio.to_thread(holder.process.kill)
            await service.held(by=follower)
            await played.create(member("b", 1, 2))
            await played.bound("b-0", "b-1")
            await asyncio.to_thread(holder.process.start)

    asyncio.run(main())


def test_a_fail_over_loses_nothing_and_gives_nothing_twice(service):
    """Holders are killed, and ended in order, while pods come and go; the checker reads etcd."""

    async def main() -> None:
        stream = arrivals(Mix(n_pods=200, pods_per_s=10, mean_run_s=4, seed=3))
        for arrival in stream:
            arrival.manifest["spec"]["schedulerName"] = "coterie-scheduler"
        async with service.play() as played:
            await asyncio.gather(
                submit(played.api, stream),
                disturb(service),
                played.until(lambda: played.checker.n_bound == len(stream), within_s=180),
            )

    asyncio.run(main())


async def disturb(service: Service) -> None:
    """Take the holder away again and again; each time another takes over within its term."""
    loop = asyncio.get_running_loop()
    for act in ("kill", "stop", "kill", "pause"):
        holder = await service.held()
        await asyncio.to_thread(getattr(holder.process, act))
        since_s = loop.time()
        other = next(one for one in service.replicas if one is not holder)
        service.balancer.turn = service.replicas.index(other)
        await service.held(by=other)
        taken_s = loop.time() - since_s
        assert taken_s < (1.5 if act == "stop" else 2 * LEASE_S), (act, taken_s)
        if act == "pause":
            holder.process.resume()
        else:
            await asyncio.to_thread(holder.process.start)
        assert await asyncio.to_thread(service.holder) is other


def test_certificates_are_rotated_while_pods_are_placed(service):
    """The scheduler's connections live on, and new ones meet the new certificate."""

    async def main() -> None:
        holder = await service.held()
        service.balancer.turn = service.replicas.index(holder)
        async with service.play() as played:
            await played.create(gpu_pod("before", 2))
            await played.bound("before")
            old = await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, holder.port))
            issue(service.folder, service.authority, hosts=(LOOPBACK,))
            async with asyncio.timeout(SOON_S):
                while not holder.count("certificates_changed"):  # noqa: ASYNC110 - a log, no event
                    await asyncio.sleep(0.1)
            new = await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, holder.port))
            assert new != old
            await played.create(gpu_pod("after", 2))
            await played.bound("after")

    asyncio.run(main())
