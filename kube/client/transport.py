"""Bytes to and from the API server, or a kubelet.

Sends one request and returns the server's response, or the lines of a stream that does not end. It
uses the official client (`kubernetes.aio`) for kubeconfig with its exec plugins, in-cluster tokens
that are re-read, authentication headers and TLS. The types and errors of the client and of aiohttp
do not leave this module and those it is made of. It retries in one case only: after 401 the
credentials are reloaded and the request is sent again, since the server did not act on the first.

It never interprets a body, and never repeats a credential in an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from multidict import CIMultiDict

from kube.client.configuration import Endpoint, load_configuration, redirect
from kube.client.faults import FAILED, NOT_CONNECTED, unanswered, unreachable
from kube.client.lines import LineSplitter
from kube.client.web_socket import Handshake, open_socket
from kube.errors import KubeError, Unreachable, cut, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from kube.client.web_socket import Socket

__all__ = [
    "JSON",
    "MERGE_PATCH",
    "METADATA",
    "METADATA_LIST",
    "Request",
    "Requester",
    "Transport",
]

JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""(apiserver v0.36.3, pkg/endpoints/handlers/response.go.)"""
MERGE_PATCH = "application/merge-patch+json"

_CONNECT_S = 3.0
"""A TCP and TLS handshake inside a data centre takes milliseconds; a lost SYN is sent again after
one second."""
RENEW_EVERY_S = 5.0
"""Shortest time between reloads of refused credentials: an exec plugin is a process."""
_MAX_REFUSAL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` is quoted already; `body` is sent as JSON.

    `timeout_s` bounds everything: connecting, sending, and the answer's last byte. For a stream it
    bounds the silence between two pieces.
    """

    method: str
    path: str
    timeout_s: float
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, object] | None = None
    accept: str = JSON
    content_type: str = JSON


class Requester(Protocol):
    """What the reflector and the API server's methods need of a transport."""

    async def request(self, request: Request) -> bytes:
        """Send, return the answer's body. Raises `KubeError`."""
        ...

    def lines(self, request: Request) -> AsyncGenerator[list[bytes], None]:
        """Open a stream, return its lines in bundles as they arrive. Raises `KubeError`."""
        ...


class Transport:
    """Connections to one server. Made by `connect`, ended by `close`."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Configuration]],
        configuration: Configuration,
        *,
        user_agent: str,
        url: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._load = load
        self._url = url
        self._headers = (("User-Agent", user_agent), *headers)
        self._client = self._open(configuration)
        self._retired: list[Any] = []
        self._streams: dict[aiohttp.ClientResponse, object] = {}
        self._renewing = asyncio.Lock()
        self._renewed_at_s = -RENEW_EVERY_S

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None,
        *,
        context: str | None = None,
        user_agent: str = "coterie",
        endpoint: Endpoint | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Transport:
        """Load the configuration of a kubeconfig file, or of the pod we run in if None.

        With an `endpoint` the credentials are sent there instead of to the API server. `headers`
        go with every request. Nothing is sent yet. Raises `Unreachable` for a configuration that
        cannot be used.
        """

        async def load() -> Configuration:
            configuration = await load_configuration(kubeconfig, context)
            if endpoint is not None:
                redirect(configuration, endpoint)
            return configuration

        # Not in the configuration: with each token the client's own hook sets the address there to
        # the API server's.
        url = None if endpoint is None else endpoint.url
        return cls(load, await load(), user_agent=user_agent, url=url, headers=headers)

    @property
    def client_certificate(self) -> Path | None:
        """The file with the certificate that is shown to the server; None: there is none."""
        name: str | None = self._client.configuration.cert_file
        return Path(name) if name else None

    async def close(self) -> None:
        """End all connections; open streams end with an error."""
        for client in (*self._retired, self._client):
            await self._end(client)
        self._retired.clear()
        # Connections that were aborted are closed by the loop's next turn.
        await asyncio.sleep(0)

    async def request(self, request: Request) -> bytes:
        """Send, return the answer's body.

        Raises `KubeError`; `Unanswered` where the request may have been acted on.
        """
        limits = aiohttp.ClientTimeout(
            total=request.timeout_s, sock_connect=min(request.timeout_s, _CONNECT_S)
        )
        _, response = await self._send(request, limits)
        try:
            return await response.read()
        except FAILED as error:
            raise unanswered(error) from error

    async def lines(self, request: Request) -> AsyncGenerator[list[bytes], None]:
        """Open a stream, yield its lines in bundles as they arrive, end when the server ends it.

        Nothing received for `timeout_s` is an error: the other end may be gone without closing the
        connection. Close the generator (`contextlib.aclosing`) to leave early. Raises `KubeError`.
        """
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_S, sock_read=request.timeout_s
        )
        client, response = await self._send(request, limits)
        self._streams[response] = client
        splitter = LineSplitter()
        try:
            async for chunk in response.content.iter_any():
                lines = splitter.feed(chunk)
                if lines:
                    yield lines
        except FAILED as error:
            raise unanswered(error) from error
        finally:
            del self._streams[response]
            _abort(response)
        rest = splitter.rest()
        if rest:
            yield [rest]

    async def open_socket(self, request: Request, protocol: str) -> Socket:
        """Open a WebSocket that speaks `protocol`, within the request's `timeout_s`.

        Its owner closes it. Raises `KubeError`.
        """
        client = self._client
        try:
            return await self._shake_hands(client, request, protocol)
        except KubeError as error:
            if error.status != HTTPStatus.UNAUTHORIZED or not await self._renew(client):
                raise
        return await self._shake_hands(self._client, request, protocol)

    async def _shake_hands(
        self,
        client: Any,  # noqa: ANN401 - the client is untyped
        request: Request,
        protocol: str,
    ) -> Socket:
        url, headers = self._address(client, request), await self._authorized(client, request)
        return await open_socket(Handshake(url, headers, protocol, request.timeout_s, client))

    async def _send(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> tuple[object, aiohttp.ClientResponse]:
        """Send, return the client and a successful response whose body is not read yet."""
        client = self._client
        response = await self._try(client, request, limits)
        if response.status == HTTPStatus.UNAUTHORIZED and await self._renew(client):
            response.close()
            client = self._client
            response = await self._try(client, request, limits)
        if response.ok:
            return client, response
        async with response:
            raise await _refusal(response)

    async def _try(
        self,
        client: Any,  # noqa: ANN401 - the client is untyped
        request: Request,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = await self._authorized(client, request)
        headers.update(
            {
                "Accept": request.accept,
                "Content-Type": request.content_type,
                # Inflating a page of a list keeps the loop for longer than reading it does, and
                # costs the API server more than its bytes cost the network
                # (docs/adr/0007-watches.md).
                "Accept-Encoding": "identity",
            }
        )
        try:
            answer = await client.rest_client.request(
                request.method,
                self._address(client, request),
                headers=headers,
                body=request.body,
                _request_timeout=limits,
            )
        except NOT_CONNECTED as error:
            raise unreachable(error) from error
        except FAILED as error:
            raise unanswered(error) from error
        return cast("aiohttp.ClientResponse", answer.response)

    async def _authorized(self, client: Any, request: Request) -> CIMultiDict[str]:  # noqa: ANN401 - the client is untyped
        """The headers that go with every request, and the credentials."""
        headers = CIMultiDict(self._headers)
        try:
            await client.update_params_for_auth(
                headers, [], ["BearerToken"], request.path, request.method, None
            )
        except (config.ConfigException, OSError) as error:
            raise Unreachable(0, "NoCredentials", cut(str(error))) from error
        return headers

    def _address(self, client: Any, request: Request) -> str:  # noqa: ANN401 - the client is untyped
        url = f"{self._url or client.configuration.host}{request.path}"
        return f"{url}?{urlencode(request.query, quote_via=quote)}" if request.query else url

    async def _renew(self, refused: object) -> bool:
        """Reload the credentials, once for all requests refused with the same; False: too soon.

        Requests and streams of the old client run to their end; it is closed at the next renewal.
        """
        async with self._renewing:
            if self._client is not refused:
                return True
            if time.monotonic() - self._renewed_at_s < RENEW_EVERY_S:
                return False
            self._renewed_at_s = time.monotonic()
            fresh = self._open(await self._load())
            for client in self._retired:
                await self._end(client)
            self._retired = [self._client]
            self._client = fresh
            return True

    async def _end(self, client: Any) -> None:  # noqa: ANN401 - the client is untyped
        """Close a client; its open streams end with an error.

        aiohttp alone would leave their readers waiting for ever (`ResponseHandler.close`, 3.13).
        """
        for response, owner in self._streams.items():
            if owner is client:
                response.content.set_exception(aiohttp.ClientConnectionError("closed"))
        await client.close()

    def _open(self, configuration: Configuration) -> Any:  # noqa: ANN401 - the client is untyped
        try:
            return ApiClient(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            msg = cut(f"certificates of {self._url or configuration.host}: {error}")
            raise Unreachable(0, "BadConfiguration", msg) from error


def _abort(response: aiohttp.ClientResponse) -> None:
    """End a stream's connection without reading the rest of the stream.

    Closing alone would first wait for the other end to agree (TLS), which may be gone.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def _refusal(response: aiohttp.ClientResponse) -> KubeError:
    body = b""
    # What arrived before the connection broke is reported all the same.
    with contextlib.suppress(*FAILED):
        async for piece in response.content.iter_any():
            body += piece
            if len(body) >= _MAX_REFUSAL_BYTES:
                break
    after = response.headers.get("Retry-After", "")
    return refusal(
        response.status,
        response.reason or "",
        body,
        retry_after_s=float(after) if after.isdecimal() else None,
    )
