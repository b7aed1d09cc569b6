"""Reads that may be refused: each gives what was read, or why not, so that a command can go on.

A user who lacks a right learns which one, in the API server's own words. An API server that cannot
be reached ends the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from kube.client import Page, Request
from kube.errors import KubeError, NotFound, Unreachable, Unreadable
from kubectl_coterie.errors import CliError
from topology.model import parse_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubectl_coterie.cluster.session import Session

__all__ = ["Object", "Read", "Reading"]

T = TypeVar("T")

Object: TypeAlias = "Mapping[str, object]"
"""A Kubernetes object as JSON."""

PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What a read gave; `value` None: it was not read, and `missing` says why.

    `is_absent`: it is not there, rather than refused.
    """

    value: T | None = None
    missing: str = ""
    is_absent: bool = False


class Reading:
    """Reads over the connections of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timeout_s = session.options.request_timeout_s

    async def get(self, path: str) -> Read[Object]:
        """One object. Raises `CliError` where the API server cannot be reached."""
        body = await self._body(path, {})
        if body.value is None:
            return Read(missing=body.missing, is_absent=body.is_absent)
        try:
            return Read(parse_object(body.value))
        except Unreadable as error:
            return Read(missing=str(error))

    async def text(self, path: str, query: Mapping[str, str]) -> Read[str]:
        """A plain text, such as a log. Raises `CliError` as `get`."""
        body = await self._body(path, query)
        if body.value is None:
            return Read(missing=body.missing, is_absent=body.is_absent)
        return Read(body.value.decode(errors="replace"))

    async def list(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        keep: Callable[[Object], Object | None] = lambda one: one,
    ) -> Read[list[Object]]:
        """The objects of a list, each as `keep` gives it; None leaves it out.

        Raises `CliError` as `get`.
        """
        found: list[Object] = []
        page_query = {"limit": str(PAGE_SIZE), **(query or {})}
        async with self._session.progress.step(f"reading {path.rpartition('/')[2]}"):
            while True:
                body = await self._body(path, page_query)
                if body.value is None:
                    return Read(missing=body.missing, is_absent=body.is_absent)
                page = Page(body.value)
                try:
                    found += [kept for one in page if (kept := keep(one)) is not None]
                except KubeError as error:
                    return Read(missing=error.detail)
                if not page.continue_token:
                    return Read(found)
                page_query["continue"] = page.continue_token

    async def pod_text(self, namespace: str, pod: str, port: int, path: str) -> Read[str]:
        """What a pod answers in plain HTTP to a path, by a port-forward."""
        try:
            client = await self._session.pod_port(namespace, pod, port)
            return Read(await client.text(path))
        except CliError as error:
            return Read(missing=str(error))

    async def _body(self, path: str, query: Mapping[str, str]) -> Read[bytes]:
        kube = await self._session.kube()
        try:
            return Read(await kube.request(Request("GET", path, self._timeout_s, query=query)))
        except Unreachable as error:
            msg = f"the API server cannot be reached ({error.reason}): {error.detail}"
            raise CliError(msg) from error
        except KubeError as error:
            is_absent = isinstance(error, NotFound)
            return Read(missing=error.detail or str(error), is_absent=is_absent)
