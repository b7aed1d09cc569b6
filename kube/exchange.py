"""The short way of a write to its server.

What it answers: what the server said to one request with a body. aiohttp's session makes every
request ready for whatever may become of it (redirects, cookies, compression, traces, a body that is
a stream and is written by a task of its own); here a request is one piece of bytes. All else stays
aiohttp's: the session's connections with their pool and TLS, the parser, the response with its
timeouts, and thus all errors. With cold caches, as they are beside an API server, a Binding costs
0.27 ms of processor time this way and 0.45 ms through the session (aiohttp 3.14).

What it must never do: send twice. What may be repeated goes the session's way, which does that
where the server has closed a connection in the meantime.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
from aiohttp.helpers import TimeoutHandle
from aiohttp.http import StreamWriter
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.connector import Connection
    from aiohttp.helpers import BaseTimerContext

__all__ = ["CONNECT_S", "Exchange"]

CONNECT_S = 3.0
"""A TCP and TLS handshake inside a data centre takes milliseconds; a lost SYN is sent again after
one second."""
_CONNECTING = aiohttp.ClientTimeout(sock_connect=CONNECT_S)


class Exchange:
    """Sends over the connections of a session to the server at `url`, without a proxy.

    `server_name` is the name in the server's certificate where it is not the url's host.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        connector: aiohttp.BaseConnector,
        url: str,
        *,
        server_name: str | None = None,
    ) -> None:
        self.session = session
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        # The connections to a server are found by what is asked of them; it is always this.
        self._asked = aiohttp.ClientRequest(
            "POST", URL(url), loop=self._loop, session=session, server_hostname=server_name
        )
        self._info = self._asked.request_info
        self._path = urlsplit(url).path
        self._host = f"HTTP/1.1\r\nHost: {self._asked.headers['Host']}"

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_s: float,
    ) -> aiohttp.ClientResponse:
        """Send, return the answer once its head is there. Redirects are not followed.

        `target` follows the server's url; `timeout_s` is for everything until the answer was
        read. Raises what the session would.
        """
        text = self._head(method, target, headers, len(body)) + body
        clock = TimeoutHandle(self._loop, timeout_s)
        alarm = self._loop.call_later(timeout_s, clock)
        timer = clock.timer()
        try:
            with timer:
                response = await self._take_turn(method, text, timer)
        except BaseException:
            alarm.cancel()
            raise
        connection = response.connection
        if connection is None:
            alarm.cancel()
        else:
            connection.add_callback(alarm.cancel)
        return response

    def _head(self, method: str, target: str, headers: Mapping[str, str], n_bytes: int) -> bytes:
        lines = [
            f"{method} {self._path}{target} {self._host}",
            *[f"{name}: {value}" for name, value in headers.items()],
            f"Content-Length: {n_bytes}\r\n\r\n",
        ]
        text = "\r\n".join(lines)
        # Between the lines, after the first of the two that are one here, and at the end.
        n_ends = len(lines) + 2
        if text.count("\n") != n_ends or text.count("\r") != n_ends or "\0" in text:
            msg = "a line end within a header of a request, expected one line"
            raise ValueError(msg)
        return text.encode()

    async def _take_turn(
        self, method: str, text: bytes, timer: BaseTimerContext
    ) -> aiohttp.ClientResponse:
        connection = await self._connect()
        try:
            return await self._ask(connection, method, text, timer)
        except BaseException:
            connection.close()
            raise

    async def _ask(
        self, connection: Connection, method: str, text: bytes, timer: BaseTimerContext
    ) -> aiohttp.ClientResponse:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            msg = "the server closed the connection before the request"
            raise aiohttp.ClientConnectionResetError(msg)
        protocol.set_response_params(timer=timer, read_until_eof=True)
        transport.write(text)
        response = aiohttp.ClientResponse(
            method,
            self._asked.url,
            writer=None,
            continue100=None,
            timer=timer,
            request_info=self._info,
            traces=[],
            loop=self._loop,
            session=self.session,
            stream_writer=StreamWriter(protocol, self._loop),
        )
        try:
            return await response.start(connection)
        except BaseException:
            response.close()
            raise

    async def _connect(self) -> Connection:
        try:
            return await self._connector.connect(self._asked, [], _CONNECTING)
        except TimeoutError as error:
            msg = f"Connection timeout to host {self._asked.url}"
            raise aiohttp.ConnectionTimeoutError(msg) from error
