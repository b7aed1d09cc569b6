"""The exceptions of kube, and what an API server's refusal means.

The client's own errors and HTTP stay inside `kube`: a refusal is its status, the API's reason and a
detail cut to `MAX_DETAIL` characters. An absent object is a value, not an error, where a reader may
request one that does not exist (`kube.client.server`).

    KubeError                status, reason, detail, retry_after_s, fields
    ├── Unreachable          status 0: nothing was sent (refused, no route, no TLS, no credentials)
    ├── Unanswered           status 0: it was sent, and whether it was done is unknown
    ├── Malformed            status 0: answered, but not with what the API promises
    ├── NotFound             404
    ├── Conflict             409: a precondition failed, or it is there already
    └── Gone                 410: the resourceVersion or continue token is too old

Not errors of the exchange: `Unreadable`, one object lacks what we need of it; `DocumentError`, a
YAML or TOML text cannot be read; `SettingsError`, a program cannot start on its settings.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from topology.errors import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "MAX_DETAIL",
    "Conflict",
    "DocumentError",
    "Gone",
    "KubeError",
    "Malformed",
    "NotFound",
    "SettingsError",
    "Unanswered",
    "Unreachable",
    "Unreadable",
    "cut",
    "error_of",
    "refusal",
]

MAX_DETAIL = 300
"""Longest piece of foreign text in a message, in characters: a sentence of the API server, not a
page of a proxy."""

_TRANSIENT = frozenset({0, 408, 429, 500, 502, 503, 504})
"""Statuses that the same request may not meet again a little later."""


_AWAY = frozenset({"ConnectionLost", "ShortWatch", "Timeout", "Unreachable"})
"""Reasons of errors without a status where the server is away. Others without one are of our own
configuration, or of an answer that is not what the API promises."""


class KubeError(Exception):
    """The API server did not do what was requested; `str()` says so in one line.

    `status` is HTTP's (0 without an answer), `reason` the API's word for it (`Conflict`,
    `AlreadyExists`, ...), `retry_after_s` the delay that the server requested, `fields` those of
    our object that it rejected.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str,
        *,
        retry_after_s: float | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(status, reason, detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.fields = fields

    def __str__(self) -> str:
        where = f"{self.status} {self.reason}" if self.status else self.reason
        return f"{where}: {self.detail}" if self.detail else where

    @property
    def is_transient(self) -> bool:
        """Whether the same request can succeed a little later."""
        return self.status in _TRANSIENT

    @property
    def is_outage(self) -> bool:
        """Whether the server is away or overloaded: no fault of ours, and alike for all clients."""
        return self.is_transient and (self.status != 0 or self.reason in _AWAY)


class Unreachable(KubeError):
    """Nothing was sent, so nothing was done."""


class Unanswered(KubeError):
    """It was sent, and no complete answer came: it may have been done."""


class Malformed(KubeError):
    """An answer that is not what the API promises."""


class NotFound(KubeError):
    """The object is not there."""


class Conflict(KubeError):
    """A precondition failed, or the object is there already."""


class Gone(KubeError):
    """The resourceVersion or the continue token is older than what the server keeps."""


class DocumentError(Exception):
    """A YAML or TOML text that cannot be read; `str()` says where and why."""


class SettingsError(Exception):
    """An unknown or invalid setting; `str()` says which, where it comes from and what is needed."""


_KINDS: Mapping[int, type[KubeError]] = {404: NotFound, 409: Conflict, 410: Gone}


def error_of(content: Mapping[str, object]) -> KubeError:
    """Make the error that a `Status` (meta/v1) describes; what it lacks is empty, or 0.

    >>> str(error_of({"code": 410, "reason": "Expired", "message": "too old"}))
    '410 Expired: too old'
    """
    code = content.get("code")
    status = code if isinstance(code, int) else 0
    return _make(content, status, _text(content, "reason"), _text(content, "message"))


def refusal(
    status: int, reason: str, body: bytes, *, retry_after_s: float | None = None
) -> KubeError:
    """Make the error of an answer whose status is not a success.

    The body is a `Status` (meta/v1) where the API server answers itself; a proxy may send any text.

    >>> str(refusal(409, "", b'{"reason":"AlreadyExists","message":"it is there"}'))
    '409 AlreadyExists: it is there'
    """
    detail = body.decode(errors="replace")
    try:
        found = json.loads(detail)
    except (ValueError, RecursionError):
        found = None
    content = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return _make(
        content,
        status,
        _text(content, "reason") or reason,
        _text(content, "message") or detail,
        retry_after_s,
    )


def cut(text: str) -> str:
    """Keep at most `MAX_DETAIL` characters, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"


def _make(
    content: Mapping[str, object],
    status: int,
    reason: str,
    detail: str,
    retry_after_s: float | None = None,
) -> KubeError:
    kind = _KINDS.get(status, KubeError)
    fields = tuple(dict.fromkeys(_fields(content)))
    return kind(status, cut(reason), cut(detail), retry_after_s=retry_after_s, fields=fields)


def _text(content: Mapping[str, object], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def _fields(content: Mapping[str, object]) -> Iterator[str]:
    """The fields named in `details.causes`; anything of another shape names none."""
    details = content.get("details")
    causes = cast("dict[str, object]", details).get("causes") if isinstance(details, dict) else None
    for cause in cast("list[object]", causes) if isinstance(causes, list) else ():
        if isinstance(cause, dict):
            yield _text(cast("dict[str, object]", cause), "field")
