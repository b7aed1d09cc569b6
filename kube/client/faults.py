"""What aiohttp raises, as errors of ours: whether a request may have reached the server.

It sends nothing, and shows no exception of aiohttp to a caller but as a cause.
"""

from __future__ import annotations

import aiohttp

from kube.errors import Unanswered, Unreachable, cut

__all__ = ["FAILED", "NOT_CONNECTED", "NOT_TRUSTED", "unanswered", "unreachable"]

NOT_TRUSTED = "NotTrusted"
"""Reason of an `Unreachable` server with which no TLS connection could be established."""
NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""Nothing was sent; to be caught before `FAILED`."""
FAILED = (aiohttp.ClientError, TimeoutError, OSError)


def unreachable(error: Exception) -> Unreachable:
    """The server was not reached: it cannot have acted on anything."""
    reason = NOT_TRUSTED if isinstance(error, aiohttp.ClientSSLError) else "Unreachable"
    return Unreachable(0, reason, _describe(error))


def unanswered(error: BaseException) -> Unanswered:
    """The server may have acted on the request."""
    reason = "Timeout" if isinstance(error, TimeoutError) else "ConnectionLost"
    return Unanswered(0, reason, _describe(error))


def _describe(error: BaseException) -> str:
    return cut(f"{type(error).__name__}: {error}")
