"""Client of a running extender, for the command line: gets the JSON of one page.

Over TLS it shows the certificate that the settings name, as another replica would, so that no
option is needed inside the extender's own pod.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from extender.errors import PeerError

if TYPE_CHECKING:
    import socket
    import ssl

__all__ = ["get_json"]

TIMEOUT_S = 30.0
_SHOWN_BYTES = 1000


def get_json(
    url: str, path: str, *, tls: ssl.SSLContext | None = None, name: str | None = None
) -> dict[str, Any]:
    """Get a page of the extender at `url`; its certificate is checked for `name` or its host.

    Raises `PeerError`.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = f"{url} is not an address, expected http://host:port or https://host:port"
        raise PeerError(msg)
    if parts.scheme == "https" and tls is None:
        msg = f"{url}: expected settings tls_cert, tls_key, tls_client_ca for https"
        raise PeerError(msg)
    where = f"{url.rstrip('/')}{path}"
    try:
        connection = _Connection(
            parts.hostname,
            parts.port or {"http": 80, "https": 443}[parts.scheme],
            tls=tls if parts.scheme == "https" else None,
            name=name or parts.hostname,
        )
        status, body = connection.get(path)
    except (OSError, ValueError, http.client.HTTPException) as error:
        msg = f"{where}: {error}"
        raise PeerError(msg) from error
    if status != http.client.OK:
        msg = f"{where}: {status} {_detail(body)}"
        raise PeerError(msg)
    try:
        return cast("dict[str, Any]", json.loads(body))
    except ValueError as error:
        msg = f"{where}: {error}"
        raise PeerError(msg) from error


def _detail(body: bytes) -> str:
    """What is wrong: the sentence of problem details, else the body as it came."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:_SHOWN_BYTES].decode(errors="replace")


class _Connection(http.client.HTTPConnection):
    """A connection whose certificate may be checked for another name than the host's."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, name: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self._tls = tls
        self._name = name

    def connect(self) -> None:
        """Connect, over TLS if there is a context."""
        super().connect()
        if self._tls is not None:
            plain = cast("socket.socket", self.sock)
            self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of one page."""
        try:
            self.request("GET", path)
            answer = self.getresponse()
            return answer.status, answer.read()
        finally:
            self.close()
