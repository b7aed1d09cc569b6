"""Forwards a call to the replica that holds the Lease.

Returns the holder's answer, byte for byte, or raises `PeerError`. Over TLS both sides show
their certificates, as the scheduler and the extender do. A call is never sent twice: the scheduler
retries, and bind is idempotent at the holder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from extender.errors import PeerError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["FORWARDED_FOR", "TIME_LEFT", "Peer"]

FORWARDED_FOR = "Coterie-Forwarded-For"
"""Header with the URL of the forwarding replica; such a call is not forwarded again."""
TIME_LEFT = "Coterie-Time-Left"
"""Header with the seconds left until the caller stops waiting."""
_CONNECT_S = 1.0
"""A replica that does not accept a connection in this time is unavailable."""
_KEEP_ALIVE_S = 60.0
"""Half of what the other side keeps an idle connection (setting keep_alive_s)."""


class Peer:
    """Connections to other replicas. `tls` gives the context to use now, None for plain HTTP."""

    def __init__(
        self, identity: str, *, tls: Callable[[], ssl.SSLContext] | None, name: str | None
    ) -> None:
        self._identity = identity
        self._tls = tls
        self._name = name if tls is not None else None
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, url: str, verb: str, body: bytes, *, timeout_s: float) -> bytes:
        """Post the body to the holder and return the body of its answer.

        Raises `PeerError` unless the answer has status 200.
        """
        headers = {
            "Content-Type": "application/json",
            FORWARDED_FOR: self._identity,
            TIME_LEFT: f"{timeout_s:.3f}",
        }
        try:
            async with self._open().post(
                f"{url}/{verb}",
                data=body,
                headers=headers,
                ssl=True if self._tls is None else self._tls(),
                server_hostname=self._name,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S),
                allow_redirects=False,
            ) as answer:
                content = await answer.read()
                if answer.status == 200:  # noqa: PLR2004 - OK
                    return content
                msg = f"replica {url} answered with status {answer.status}, expected 200"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # The error's own text names objects by memory address, which differs each time.
            msg = f"replica {url} cannot be reached: {type(error).__name__}"
            raise PeerError(msg) from error
        raise PeerError(msg)

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return self._session
