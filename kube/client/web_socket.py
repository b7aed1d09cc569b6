"""A WebSocket (RFC 6455) to the API server: messages of bytes, both ways.

It opens a connection once and within a time limit; credentials and their renewal are the caller's
(`kube.client.transport`). It interprets no message. The client library's `WsApiClient` (37.0.2) has
no time limit and leaves out the kubeconfig's `tls-server-name` and `proxy-url`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

from kube.client.faults import FAILED, NOT_CONNECTED, unanswered, unreachable
from kube.errors import refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

__all__ = ["Handshake", "Socket", "open_socket"]

_CLOSE = aiohttp.ClientWSTimeout(ws_close=1.0)  # pyright: ignore[reportCallIssue] - attrs
"""How long a socket waits for the other end to agree to its end."""
_PHRASES = {one.value: one.phrase for one in HTTPStatus}


class Socket:
    """An open WebSocket; its owner closes it."""

    def __init__(
        self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self._session = session
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """Send a message. Raises `Unanswered` where the connection is gone."""
        try:
            await self._socket.send_bytes(message)
        except (aiohttp.ClientError, OSError) as error:
            raise unanswered(error) from error

    async def messages(self) -> AsyncGenerator[bytes]:
        """The messages as they come, until the other end closes. Raises `Unanswered`."""
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.ERROR:
                raise unanswered(message.data) from message.data
            data = message.data
            yield data if isinstance(data, bytes) else str(data).encode()

    async def close(self) -> None:
        """Close the connection."""
        await self._socket.close()
        await self._session.close()


@dataclass(frozen=True, slots=True)
class Handshake:
    """How a WebSocket is opened that speaks `protocol`; `timeout_s` bounds all of it.

    `client` is the client library's, with its TLS and proxy.
    """

    url: str
    headers: Mapping[str, str]
    protocol: str
    timeout_s: float
    client: Any


async def open_socket(handshake: Handshake) -> Socket:
    """Open a WebSocket.

    Raises `KubeError`; the refusal of a WebSocket has no body, so no detail.
    """
    rest = handshake.client.rest_client
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=rest.ssl_context), trust_env=False
    )
    try:
        return Socket(session, await _connect(session, handshake))
    except BaseException:
        await session.close()
        raise


async def _connect(
    session: aiohttp.ClientSession, handshake: Handshake
) -> aiohttp.ClientWebSocketResponse:
    rest = handshake.client.rest_client
    try:
        async with asyncio.timeout(handshake.timeout_s):
            return await session.ws_connect(
                handshake.url,
                protocols=(handshake.protocol,),
                headers=handshake.headers,
                proxy=rest.proxy,
                proxy_headers=rest.proxy_headers,
                server_hostname=handshake.client.configuration.tls_server_name,
                timeout=_CLOSE,
                max_msg_size=0,
            )
    except aiohttp.WSServerHandshakeError as error:
        raise refusal(error.status, _PHRASES.get(error.status, ""), b"") from error
    except NOT_CONNECTED as error:
        raise unreachable(error) from error
    except FAILED as error:
        raise unanswered(error) from error
