"""Wires the extender together from its settings, and serves it.

It creates the objects once, in the order of their dependencies, and closes them in the opposite
order.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from extender import logkeys
from extender.decision_log import DecisionLog
from extender.embedded import EmbeddedApi, lay_out, node_manifest
from extender.engine import Gateway, RatingLimit, make_engine
from extender.http.hosts import HostCheck
from extender.http.routes import create_app, create_health_app, create_read_app
from extender.http.server import Listener, freeze, listen, run_until_signal
from extender.http.tls import Certificates, TlsFiles
from extender.http.verbs import Dependencies
from extender.observe import ExtenderMetrics
from extender.read_api import ReadApi
from extender.runtime import LiveExtender
from kube.client import Transport
from kube.errors import KubeError, SettingsError

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from extender.config import ExtenderSettings
    from extender.engine import Engine
    from extender.engine.events import Event, Output
    from extender.errors import DecisionLogError
    from kube.log import Logger

__all__ = ["Sockets", "open_sockets", "serve"]

USER_AGENT = "coterie-extender"
_WITH_ANSWERS = frozenset({"debug", "info"})
"""Levels at which answers are logged; they are INFO."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """What is listened on; `health` and `read` where their ports are set."""

    verbs: socket.socket
    health: socket.socket | None
    read: socket.socket | None = None

    def close(self) -> None:
        """Close them."""
        for one in (self.verbs, self.health, self.read):
            if one is not None:
                one.close()


def open_sockets(settings: ExtenderSettings) -> Sockets:
    """Listen, so that a wrong address ends the start. Raises `SettingsError`."""
    health = _listen(settings.health_address, settings.health_port, "health")
    read = _listen(settings.read_address, settings.read_port, "read")
    where = "listen_address, listen_port"
    verbs = listen(settings.listen_address, settings.listen_port, setting=where)
    return Sockets(verbs, health, read)


def _listen(address: str, port: int | None, name: str) -> socket.socket | None:
    """Listen on a port of its own, where there is one."""
    if port is None:
        return None
    return listen(address, port, setting=f"{name}_address, {name}_port")


async def serve(
    settings: ExtenderSettings, sockets: Sockets, file: IO[str] | None, log: Logger
) -> None:
    """Serve until SIGTERM. Raises `ExtenderError` for settings that cannot be had."""
    certificates = _certificates(settings)
    embedded = None
    if settings.cluster is not None:
        embedded = EmbeddedApi(map(node_manifest, lay_out(settings.cluster_spec())))
    engine = make_engine(settings.rules)
    limit = RatingLimit(settings.rating_budget_s, time.thread_time)
    gateway = Gateway(engine, record=_recorder(file, engine, log), limit=limit)
    live = LiveExtender(settings, gateway, embedded or await _connect(settings), log=log)
    metrics = ExtenderMetrics(engine)
    metrics.add_source(live.metrics.collect)
    read_api = ReadApi(
        engine,
        clock=live.clock,
        is_ready=lambda: live.is_ready,
    )
    deps = Dependencies(
        gateway=gateway,
        metrics=metrics,
        log=log,
        clock=live.clock,
        timer=time.perf_counter,
        body_limit_bytes=settings.body_limit_bytes,
        is_ready=lambda: live.is_ready,
        is_healthy=lambda: live.is_healthy,
        unready_because=lambda: live.unready_because,
        verbs=live,
        embedded=embedded,
        on_answer=live.on_answer,
        logs_answers=settings.log_level in _WITH_ANSWERS,
        read_api=read_api,
    )
    # Again when the state is complete: until then much of what is allocated lives on.
    freeze()
    _log_listening(sockets, log)
    listeners = _listeners(deps, sockets, certificates, settings.read_hosts)

    def end() -> None:
        live.end_holds()
        read_api.changes.end()

    try:
        await run_until_signal(
            listeners,
            keep_alive_s=settings.keep_alive_s,
            log=log,
            background=lambda: _beside(live.run(), read_api, log),
            on_end=end,
        )
    finally:
        await live.close()


async def _beside(run: Awaitable[None], read_api: ReadApi, log: Logger) -> None:
    """Run what places pods, and beside it what the read API does by itself."""

    def on_fault(error: Exception) -> None:
        log.warning(logkeys.READ_API_FAILED, detail=repr(error))

    reads = asyncio.create_task(read_api.run(on_fault))
    try:
        await run
    finally:
        reads.cancel()


def _listeners(
    deps: Dependencies,
    sockets: Sockets,
    certificates: Certificates | None,
    read_hosts: tuple[str, ...],
) -> list[Listener]:
    listeners = [Listener(create_app(deps), sockets.verbs, certificates)]
    if sockets.health is not None:
        listeners.append(Listener(create_health_app(deps), sockets.health))
    if sockets.read is not None:
        listeners.append(Listener(HostCheck(create_read_app(deps), read_hosts), sockets.read))
    return listeners


async def _connect(settings: ExtenderSettings) -> Transport:
    """Find the API server. Raises `SettingsError` where its address is not configured."""
    if settings.kubeconfig is not None and not settings.kubeconfig.is_file():
        msg = f"setting kubeconfig {settings.kubeconfig}: there is no such file"
        raise SettingsError(msg)
    try:
        return await Transport.connect(settings.kubeconfig, user_agent=USER_AGENT)
    except KubeError as error:
        if settings.kubeconfig is not None:
            msg = f"setting kubeconfig {settings.kubeconfig} cannot be used: {error}"
        else:
            msg = (
                "settings cluster, kubeconfig are missing and this is no pod of a cluster "
                f"({error}), expected an embedded cluster or an API server"
            )
        raise SettingsError(msg) from error


def _certificates(settings: ExtenderSettings) -> Certificates | None:
    """The certificates that the settings name, if any. Raises `SettingsError`."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is None or key is None or client_ca is None:
        return None
    return Certificates(TlsFiles(cert, key, client_ca))


def _recorder(
    file: IO[str] | None, engine: Engine, log: Logger
) -> Callable[[Event, Output], None] | None:
    """What records events, where a decision log is wanted."""
    if file is None:
        return None

    def on_end(error: DecisionLogError) -> None:
        log.warning(logkeys.DECISION_LOG_ENDED, detail=str(error))

    return DecisionLog(file, engine.rules, on_end).record


def _log_listening(sockets: Sockets, log: Logger) -> None:
    address, port = sockets.verbs.getsockname()[:2]
    others = {"health_port": sockets.health, "read_port": sockets.read}
    ports = {name: one.getsockname()[1] for name, one in others.items() if one is not None}
    log.info(logkeys.LISTENING, address=address, port=port, **ports)
