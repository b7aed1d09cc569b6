"""The HTTP endpoint of the node plugin: `/metrics`, `/livez` and `/readyz`.

It runs in its own threads, so that it can report an event loop that hangs.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest

from kube.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

__all__ = ["StatusEndpoint", "serving"]

_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_METRICS = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
"""The form that every Prometheus reads (prometheus.io, Exposition formats)."""


@dataclass(frozen=True, slots=True)
class StatusEndpoint:
    """A WSGI application. `live` and `ready` return what is wrong; empty: nothing."""

    live: Callable[[], str]
    ready: Callable[[], str]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            start("200 OK", [_METRICS])
            return [generate_latest(self.registry)]
        check = {"/livez": self.live, "/readyz": self.ready}.get(path)
        if check is None:
            start("404 Not Found", [_TEXT])
            return [b"expected /metrics, /livez or /readyz\n"]
        wrong = check()
        start("503 Service Unavailable" if wrong else "200 OK", [_TEXT])
        return [f"{wrong or 'ok'}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's word
        """Probes come every few seconds: their lines would be the log."""


@contextlib.contextmanager
def serving(endpoint: StatusEndpoint, *, address: str, port: int) -> Generator[int]:
    """Serve; yields the port, which the system chooses for 0.

    Raises `SettingsError` where it cannot listen there.
    """
    try:
        server = make_server(
            address, port, endpoint, _Server6 if ":" in address else _Server, _Handler
        )
    except OSError as error:
        msg = f"cannot listen on {address}:{port}: {error.strerror or error}"
        raise SettingsError(msg) from error
    thread = threading.Thread(target=server.serve_forever, name="endpoint", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
