"""Client of a running extender, for the command line: gets the JSON of one page of its read API."""

from __future__ import annotations

import http.client
import json
from typing import Any, cast
from urllib.parse import urlsplit

from extender.errors import CallError

__all__ = ["get_json"]

TIMEOUT_S = 30.0
_SHOWN_BYTES = 1000


def get_json(url: str, path: str) -> dict[str, Any]:
    """Get a page of the extender at `url`. Raises `CallError`."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        msg = f"{url} is not an address, expected http://host:port, the port being read_port"
        raise CallError(msg)
    where = f"{url.rstrip('/')}{path}"
    try:
        status, body = _get(parts.hostname, parts.port or 80, path)
    except (OSError, ValueError, http.client.HTTPException) as error:
        msg = f"{where}: {error}"
        raise CallError(msg) from error
    if status != http.client.OK:
        msg = f"{where}: {status} {_detail(body)}"
        raise CallError(msg)
    try:
        return cast("dict[str, Any]", json.loads(body))
    except ValueError as error:
        msg = f"{where}: {error}"
        raise CallError(msg) from error


def _get(host: str, port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _detail(body: bytes) -> str:
    """What is wrong: the sentence of problem details, else the body as it came."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:_SHOWN_BYTES].decode(errors="replace")
