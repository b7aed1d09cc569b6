"""The tests' own way to the API server: asynchronous, raw JSON, nothing of Coterie in it.

One call is one HTTP request; a status of 400 and more is an `ApiError` with what the server said.
`patiently` repeats a call while the server is down or overloaded, which tests bring about on
purpose. It never hides any other answer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
import yaml
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
    )
    from pathlib import Path

__all__ = ["Api", "ApiError", "credentials_of", "open_api", "open_session", "patiently"]

T = TypeVar("T")
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_NO_CLASS_YET = "no PriorityClass with name"


class ApiError(Exception):
    """The API server said no; `status` is 0 where it could not be reached at all."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text

    @property
    def is_transient(self) -> bool:
        """Whether the same call may work a moment later.

        A server that has just started may know no PriorityClass yet: its admission does not wait
        for them (Kubernetes 1.36, plugin/pkg/admission/priority/admission.go).
        """
        if self.status == 403:
            return _NO_CLASS_YET in self.text
        return self.status == 0 or self.status == 429 or self.status >= 500  # noqa: PLR1714 - reads as the three kinds


class Api:
    """A session with one API server. Made by `open_api`."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self.server = server

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        **query: str,
    ) -> Any:
        """One request; the answer's JSON. Raises `ApiError`."""
        try:
            async with self._session.request(
                method,
                self.server + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": content_type},
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, repr(error)) from error
        if answer.status >= 400:
            raise ApiError(answer.status, text[:500])
        return json.loads(text) if text.startswith(("{", "[")) else text

    async def get(self, path: str, **query: str) -> Any:
        """Read one object or one list."""
        return await self.call("GET", path, **query)

    async def create(self, path: str, body: object) -> Any:
        """Create one object in the collection `path`."""
        return await self.call("POST", path, body)

    async def create_all(self, path: str, bodies: Iterable[object]) -> None:
        """Create many objects, as many at a time as there are connections."""
        await asyncio.gather(*(self.create(path, body) for body in bodies))

    async def patch(self, path: str, body: object, *, is_strategic: bool = False) -> Any:
        """Merge-patch one object; strategic: lists such as conditions are merged by their keys."""
        content_type = STRATEGIC_PATCH if is_strategic else MERGE_PATCH
        return await self.call("PATCH", path, body, content_type=content_type)

    async def delete(
        self, path: str, *, grace_s: int | None = None, uid: str | None = None
    ) -> None:
        """Delete one object; it may be gone already. With `uid` only the object of that uid."""
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self.call("DELETE", path, options)
        except ApiError as error:
            if error.status != 404 and not (error.status == 409 and uid is not None):
                raise

    async def end(self, path: str) -> None:
        """Delete a pod as users do, then remove it as kubelets do; it may be gone."""
        await self.delete(path, grace_s=30)
        await self.delete(path, grace_s=0)

    async def watch(self, path: str, **query: str) -> AsyncGenerator[tuple[str, Any], None]:
        """Follow a collection from `resourceVersion`: pairs of type and object, until it ends."""
        query["watch"] = "true"
        try:
            async with self._session.get(
                self.server + path,
                params=query,
                timeout=aiohttp.ClientTimeout(total=None, sock_read=60),
            ) as answer:
                if answer.status >= 400:
                    raise ApiError(answer.status, (await answer.text())[:500])
                async for line in answer.content:
                    event = json.loads(line)
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, repr(error)) from error


@asynccontextmanager
async def open_session(
    *, tls: ssl.SSLContext | bool = True, n_connections: int = 64, **options: Any
) -> AsyncIterator[aiohttp.ClientSession]:
    """A session of which nothing is left when it ends, be its connections encrypted or not."""
    connector = aiohttp.TCPConnector(
        limit=n_connections,
        ssl=tls,
        # Those that were given up in the middle (a watch) else wait for the peer's farewell.
        enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
    )
    session = aiohttp.ClientSession(connector=connector, **options)
    try:
        yield session
    finally:
        await connector.close(abort_ssl=True)
        await session.close()
        await asyncio.sleep(0)  # aborted transports close their sockets in the loop's next turn


@asynccontextmanager
async def open_api(kubeconfig: Path, *, n_connections: int = 64) -> AsyncIterator[Api]:
    """Open a session as the kubeconfig's current user (certificate or token)."""
    server, tls, headers = credentials_of(kubeconfig)
    async with open_session(
        tls=tls,
        n_connections=n_connections,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=60),
        read_bufsize=1 << 22,  # a line of a watch holds a whole Node
    ) as session:
        yield Api(session, server)


async def patiently(call: Callable[[], Awaitable[T]], *, for_s: float = 120) -> T:
    """Repeat a call while the server is down or overloaded; then its last error is raised."""
    loop = asyncio.get_running_loop()
    until, pause_s = loop.time() + for_s, _FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except ApiError as error:
            if not error.is_transient or loop.time() > until:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def credentials_of(kubeconfig: Path) -> tuple[str, ssl.SSLContext, dict[str, str]]:
    """The server, and how to be the kubeconfig's current user."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    return cluster["server"].rstrip("/"), _tls(kubeconfig.parent, cluster, user), headers


def _named(entries: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(one for one in entries if one["name"] == name)


def _tls(folder: Path, cluster: Mapping[str, str], user: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_text(folder, cluster, "certificate-authority"))
    certificate, key = (_text(folder, user, f"client-{part}") for part in ("certificate", "key"))
    if certificate is not None and key is not None:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(certificate + "\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _text(folder: Path, entry: Mapping[str, str], key: str) -> str | None:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"]).decode()
    return (folder / entry[key]).read_text() if key in entry else None
