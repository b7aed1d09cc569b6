"""Client of the extender's read API: pages, one answer, and the stream of changes.

It takes answers as JSON values; what a command needs of them it reads itself. Errors of the other
end are problem details (RFC 9457), whose sentence is shown.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import aiohttp

from kube.errors import Unreadable
from kubectl_coterie.errors import CliError
from topology.model import parse_object, text_at
from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

__all__ = ["Change", "Json", "ReadApiClient"]

Json: TypeAlias = "dict[str, Any]"
"""An object of an answer; its fields are in docs/read-api.md."""

CHANGES = "changes"
PAGE_SIZE = 2000
_SHOWN = 200
_OK, _NOT_FOUND = 200, 404
_NO_ROUTE = "Not Found"
"""The detail where the extender serves no such route."""


@dataclass(frozen=True, slots=True)
class Change:
    """An event of the stream: the nodes that changed, and whether pending pods did."""

    generation: int
    nodes: tuple[str, ...]
    is_pending: bool


class ReadApiClient:
    """The read API at `url`. `fault` gives why the way there failed, where that is known.

    `hint` is what to do where nothing answers.
    """

    def __init__(
        self, url: str, *, timeout_s: float, hint: str, fault: Callable[[], object] = lambda: None
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._fault = fault
        self._hint = hint
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        """Make the client's session."""
        self._http = aiohttp.ClientSession(trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._http.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """Get one answer. Raises `CliError`."""
        return await self._send("GET", path, query=query)

    async def find(self, path: str) -> Json | None:
        """Get one answer; None where the object is not there. Raises `CliError`."""
        try:
            return await self._send("GET", path)
        except _Refused as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def post(self, path: str, body: object) -> Json:
        """Post JSON, which changes nothing there either. Raises `CliError`."""
        return await self._send("POST", path, body=json.dumps(body).encode())

    async def items(self, path: str, query: Mapping[str, str] | None = None) -> list[Json]:
        """Get all items of a list, page by page. Raises `CliError`."""
        found: list[Json] = []
        page_query = {"limit": str(PAGE_SIZE), **(query or {})}
        while True:
            page = await self._send("GET", path, query=page_query)
            found += page["items"]
            if not page.get("continue"):
                return found
            page_query["continue"] = page["continue"]

    async def text(self, path: str) -> str:
        """Get a plain text beside the API, such as `metrics`. Raises `CliError`."""
        text = await self._answer("GET", f"{self.url}/{path}", path)
        return text.decode(errors="replace")

    async def changes(self) -> AsyncIterator[Change]:
        """Follow the stream of changes until its end. Raises `CliError`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=60)  # a comment comes every 15 s
        try:
            async with self._http.get(self._at(CHANGES), timeout=timeout) as answer:
                if answer.status != _OK:
                    raise _refused(CHANGES, answer.status, await answer.read())
                async for line in answer.content:
                    key, _, value = line.decode().partition(":")
                    if key == "data":
                        yield _change(json.loads(value, object_hook=_Body))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._lost(CHANGES, error) from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Json:
        text = await self._answer(method, self._at(path), path, query=query, body=body)
        try:
            found: Json = json.loads(text, object_hook=_Body)
        except ValueError as error:
            msg = f"the extender's answer to {path} is not JSON: {error}"
            raise CliError(msg) from error
        return found

    async def _answer(
        self,
        method: str,
        url: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._http.request(
                method,
                url,
                params=dict(query or {}),
                data=body,
                headers=headers,
                timeout=self._timeout,
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._lost(path, error) from error
        if answer.status != _OK:
            raise _refused(path, answer.status, text)
        return text

    def _at(self, path: str) -> str:
        return f"{self.url}/api/v1/{path}"

    def _lost(self, path: str, error: Exception) -> CliError:
        cause = self._fault() or _cause(error)
        return CliError(
            f"the extender did not answer to {path}: {printable(str(cause))}; {self._hint}"
        )


class _Body(dict[str, Any]):
    """An object of an answer; a field that is asked for and is not there ends the command."""

    def __missing__(self, key: str) -> NoReturn:
        msg = f"the extender's answer has no {key}: this extender may be older than the command"
        raise CliError(msg)


def _cause(error: Exception) -> str:
    """What went wrong; of a connection the system's own words, which are those to search for."""
    if isinstance(error, aiohttp.InvalidURL):
        return f"{error} is no URL, expected http://host:port"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"no address is known of {error.host}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host}:{error.port} is not trusted on this machine"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"no TLS at {error.host}:{error.port}: http:// in the place of https://?"
    if isinstance(error, aiohttp.ClientConnectorError) and error.errno is not None:
        return f"{error.host}:{error.port}: {os.strerror(error.errno).lower()}"
    return str(error) or type(error).__name__


class _Refused(CliError):
    """An answer that is no success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def _refused(path: str, status: int, body: bytes) -> _Refused:
    try:
        detail = text_at(parse_object(body), "detail")
    except Unreadable:
        detail = ""
    if detail and (status, detail) != (_NOT_FOUND, _NO_ROUTE):
        return _Refused(printable(detail), status)
    said = printable(detail or body[:_SHOWN].decode(errors="replace"))
    hint = "; this extender may be older than the command" if status == _NOT_FOUND else ""
    return _Refused(f"the extender answered {path} with {status}: {said}{hint}", status)


def _change(content: Json) -> Change:
    return Change(content["generation"], tuple(content["nodes"]), content["pending"])
