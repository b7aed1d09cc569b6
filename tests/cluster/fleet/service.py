"""Coterie behind a Service: replicas with a Lease over mutual TLS, as deploy/service runs them.

The Service is played by a balancer in the test's own event loop. Everything else is real: both
replicas, their certificates, the scheduler that calls them.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from extender.ha.lease_rules import url_of
from tests.cluster.control.manifests import (
    ClientFiles,
    Mode,
    extender_settings,
    install,
    scheduler_config,
)
from tests.cluster.control.processes import free_port
from tests.unit.extender.pki import BOTH_SIDES, authority, issue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.control.credentials import Authority
    from tests.cluster.control.extender_process import ExtenderProcess
    from tests.cluster.control.scheduler import Scheduler

__all__ = ["LEASE_S", "LOOPBACK", "SOON_S", "Balancer", "Replica", "Service"]

LOOPBACK = "127.0.0.1"
LEASE_S = 3
"""Short, so that a replica takes over soon; deploy/ has 15."""
SOON_S = 60.0
_LEASE = "coterie-system/coterie-extender"
_LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/coterie-system/leases/coterie-extender"


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
    """Replicas behind a balancer, a scheduler that calls it, and the files of TLS.

    `config` is the scheduler's, to start further ones.
    """

    plane: ControlPlane
    replicas: list[Replica]
    balancer: Balancer
    scheduler: Scheduler
    config: dict[str, Any]
    authority: Authority
    folder: Path

    @classmethod
    def start(
        cls,
        plane: ControlPlane,
        folder: Path,
        *flags: str,
        n_replicas: int = 2,
        lease_s: int = LEASE_S,
    ) -> Service:
        """Install the manifests and start all; `flags` are further ones of the replicas."""
        kubeconfig = install(plane, Mode.SERVICE)
        by = authority()
        issue(folder, by, hosts=(LOOPBACK,))
        client = issue(folder / "client", by, usages=BOTH_SIDES[1:])
        shipped = extender_settings(Mode.SERVICE)
        own = ("--http-timeout-s", shipped["http_timeout_s"], "--lease-duration-s", str(lease_s))
        flags = (*own, *flags)
        replicas = [_start_replica(plane, kubeconfig, folder, flags) for _ in range(n_replicas)]
        port = free_port()
        text = scheduler_config(
            Mode.SERVICE,
            f"https://{LOOPBACK}:{port}",
            kubeconfig=plane.kubeconfig("system:kube-scheduler"),
            client_files=ClientFiles(client.client_ca, client.cert, client.key),
        )
        config: dict[str, Any] = json.loads(text)
        scheduler = plane.start_scheduler(config, name="scheduler-service")
        balancer = Balancer(port, replicas)
        return cls(plane, replicas, balancer, scheduler, config, by, folder)

    def stop(self) -> None:
        """End scheduler and replicas."""
        self.scheduler.stop()
        for replica in self.replicas:
            replica.process.stop()

    def holder(self) -> Replica | None:
        """Who holds the Lease, as the API server has it."""
        lease = self.plane.client.get(_LEASE_PATH)
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


def _start_replica(
    plane: ControlPlane, kubeconfig: Path, folder: Path, flags: Sequence[str]
) -> Replica:
    """One more, on ports of its own."""
    port, health_port = free_port(), free_port()
    process = plane.start_extender(
        kubeconfig,
        *("--lease", _LEASE, *flags),
        *("--replica-url", f"https://{LOOPBACK}:{port}", "--health-port", str(health_port)),
        *("--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")),
        *("--tls-client-ca", str(folder / "ca.crt")),
        name=f"replica-{port}",
        port=port,
        health_url=f"http://{LOOPBACK}:{health_port}",
    )
    return Replica(process, port)
