"""The page's files under `/ui/`, from memory, with headers that confine what a browser may do.

It never reads a path that a client names: the files are those of the package, read once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated

from fastapi import Header
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from fastapi import FastAPI

__all__ = ["add_page"]

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_INDEX = "index.html"
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _PageFile:
    content: bytes
    media_type: str
    tag: str


def add_page(app: FastAPI) -> None:
    """Add the page's routes to an application that answers `HTTPException` with problem details."""

    @app.get("/", include_in_schema=False)
    @app.get("/ui", include_in_schema=False)
    async def to_page() -> RedirectResponse:
        """Where people look first."""
        # Relative, so that it holds behind a proxy that adds a prefix.
        return RedirectResponse("ui/", status_code=307, headers=_HEADERS)

    @app.head("/ui/{path:path}", include_in_schema=False)
    @app.get("/ui/{path:path}", include_in_schema=False)
    async def page_file(
        path: str, if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None
    ) -> Response:
        """A file of the page."""
        found = _page_files().get(path or _INDEX)
        if found is None:
            raise HTTPException(404, "the page has no such file")
        headers = {**_HEADERS, "etag": found.tag}
        if if_none_match == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)


@cache
def _page_files() -> dict[str, _PageFile]:
    """The files by their path below `/ui/`."""
    return {path: _read(entry) for path, entry in _walk(files("extender.page") / "static", "")}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, f"{path}/")
        elif path.rpartition(".")[2] in _MEDIA_TYPES:
            yield path, entry


def _read(entry: Traversable) -> _PageFile:
    content = entry.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return _PageFile(content, _MEDIA_TYPES[entry.name.rpartition(".")[2]], tag)
