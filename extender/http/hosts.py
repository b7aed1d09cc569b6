"""Answers only requests whose Host is one that the read port is meant to have.

Whoever forwards the port has it on their own machine, where any page in their browser can send
requests to it. A page of another site cannot read the answers, unless its name resolves to the
loopback by then (DNS rebinding): such a request has that name as its Host, and is refused. An
address or `localhost` is no name that a site can have. It never looks at what is requested.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import TYPE_CHECKING

from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["HostCheck"]

_STATUS = 421
_LOCAL = "localhost"


class HostCheck:
    """An ASGI application before another; `names` are hosts besides addresses and `localhost`."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset({_LOCAL, *(name.lower() for name in names)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or 421 (RFC 9110, section 15.5.20)."""
        host = _host(scope) if scope["type"] == "http" else _LOCAL
        if host in self._names or _is_address(host):
            await self._app(scope, receive, send)
        else:
            await _refuse(host, send)


def _host(scope: Scope) -> str:
    """The name or address in the Host header, without its port; empty where there is none."""
    text = next((value for key, value in scope["headers"] if key == b"host"), b"").decode("latin-1")
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".").lower()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def _refuse(host: str, send: Send) -> None:
    detail = (
        f"the request is for host {quote(host)}, expected an address, localhost or one of setting "
        "read_hosts; a proxy that keeps its callers' Host needs that name there"
    )
    problem = {
        "type": "about:blank",
        "title": "Misdirected Request",
        "status": _STATUS,
        "detail": detail,
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": _STATUS, "headers": headers})
    await send({"type": "http.response.body", "body": body})
