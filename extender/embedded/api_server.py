"""An API server in memory, behind the door that the live extender has to a real one.

It keeps Nodes and Pods, and answers what Coterie sends: lists, watches, reads, bindings, merge
patches of metadata and Events, and beside these the creation and deletion of pods, which are its
users' (`extender.http` passes them on). Everything else is refused with 404.

As a real one it counts every write by its resourceVersion, ends a watch in order, with a bookmark,
after the time that was asked for, and refuses a binding that is not what its preconditions say.
Unlike a real one it lists in one page, and answers a write once all watches have it, so that what
is decided next knows of it.

It checks no schema, admits everything and knows no users: whoever reaches it may write.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from kube.errors import KubeError, Unreadable, refusal
from topology.model import needed_at, object_at, texts_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from kube.client import Request

__all__ = ["EmbeddedApi"]

Json: TypeAlias = "dict[str, Any]"

N_KEPT = 4096
"""Changes that are kept for watches; one that asks for older ones gets 410, and lists again."""
_PATH = re.compile(
    r"/(?:api|apis/policy)/v1(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<kind>nodes|pods|events|poddisruptionbudgets)(?:/(?P<name>[^/]+)(?P<sub>/binding)?)?"
)
_TERM = re.compile(r"(?P<path>[A-Za-z.]+)(?P<sign>!?=)(?P<value>(?:[^\\,]|\\.)*)(?:,|$)")
"""A term of a field selector; its value may hold escaped characters (apimachinery, fields)."""


class _Change(NamedTuple):
    """A write; None where the object was not there before, or is not any more."""

    version: int
    kind: str
    before: Json | None
    after: Json | None


@dataclass(eq=False)
class _Watch:
    """An open watch, and the version up to which its reader has taken all."""

    seen: int


class EmbeddedApi:
    """The server; a `kube.client.Requester`. One writer at a time, on the event loop."""

    client_certificate = None

    def __init__(self, nodes: Iterable[Json] = ()) -> None:
        self._version = 1
        kinds = "nodes", "pods", "events", "poddisruptionbudgets"
        self._objects: dict[str, dict[str, Json]] = {kind: {} for kind in kinds}
        self._changes: deque[_Change] = deque(maxlen=N_KEPT)
        self._changed = asyncio.Event()
        self._watches: set[_Watch] = set()
        self._taken = asyncio.Event()
        for node in nodes:
            self.put("nodes", node)

    async def close(self) -> None:
        """End nothing: what is here ends with the process."""

    async def request(self, request: Request) -> bytes:
        """Answer a request. Raises `KubeError`, as a transport does."""
        before = self._version
        content = self._answer(request)
        if self._version > before:
            await self._until_taken()
        return json.dumps(content).encode()

    async def lines(self, request: Request) -> AsyncGenerator[list[bytes], None]:
        """Watch a collection until the time that the request asks for has passed."""
        matched = _PATH.fullmatch(request.path)
        if matched is None or matched["name"]:
            raise _refused(HTTPStatus.NOT_FOUND, f"{request.path} cannot be watched")
        select, shown = _selector(request), partial(_shown, is_metadata="Partial" in request.accept)
        watch = _Watch(int(request.query["resourceVersion"]))
        oldest = self._changes[0].version if self._changes else self._version
        if watch.seen < oldest - 1:
            raise _refused(HTTPStatus.GONE, "too old resource version")
        end_s = asyncio.get_running_loop().time() + float(request.query["timeoutSeconds"])
        self._watches.add(watch)
        try:
            while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
                changed = self._changed
                newest_first = takewhile(
                    lambda one: one.version > watch.seen, reversed(self._changes)
                )
                events = [
                    _line(event, shown)
                    for one in reversed(tuple(newest_first))
                    if one.kind == matched["kind"] and (event := _event(one, select)) is not None
                ]
                version = self._version
                if events:
                    yield events
                watch.seen = version
                self._stir_taken()
                if version == self._version:
                    await _wait(changed, left_s)
            bookmark = {"metadata": {"resourceVersion": str(watch.seen)}}
            yield [json.dumps({"type": "BOOKMARK", "object": bookmark}).encode()]
        finally:
            self._watches.discard(watch)
            self._stir_taken()

    async def _until_taken(self) -> None:
        """Wait until every watch that is open has taken all that is written by now."""
        version = self._version
        while any(watch.seen < version for watch in self._watches):
            await self._taken.wait()

    def _stir_taken(self) -> None:
        self._taken.set()
        self._taken = asyncio.Event()

    def _answer(self, request: Request) -> Json:
        path = _PATH.fullmatch(request.path)
        if path is None:
            raise _refused(HTTPStatus.NOT_FOUND, f"{request.path} is not served here")
        kind, namespace, name = path["kind"], path["namespace"], path["name"]
        if name is not None:
            key = f"{namespace}/{name}" if namespace else name
            return self._answer_about(kind, unquote(key), request, is_binding=bool(path["sub"]))
        match request.method, namespace:
            case "GET", _:
                return self._list(kind, unquote(namespace or ""), request)
            case "POST", str():
                return self._create(kind, unquote(namespace), _body(request))
            case _:
                raise _refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} {request.path}")

    def _answer_about(self, kind: str, key: str, request: Request, *, is_binding: bool) -> Json:
        found = self._objects[kind].get(key)
        if found is None:
            raise _refused(HTTPStatus.NOT_FOUND, f'{kind} "{key}" not found')
        match request.method, is_binding:
            case "GET", False:
                return found
            case "POST", True:
                return self._bind(found, _body(request))
            case "PATCH", False:
                return self._patch(kind, found, _body(request))
            case "DELETE", False:
                return self.remove(kind, key)
            case _:
                raise _refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} {request.path}")

    def _list(self, kind: str, namespace: str, request: Request) -> Json:
        is_metadata, select = "Partial" in request.accept, _selector(request)
        return {
            "metadata": {"resourceVersion": str(self._version)},
            "items": [
                _shown(one, is_metadata=is_metadata)
                for one in self._objects[kind].values()
                if namespace in {"", one["metadata"].get("namespace")} and select(one)
            ],
        }

    def _create(self, kind: str, namespace: str, content: Json) -> Json:
        if kind == "events":
            return content  # for people; here nobody lists them
        try:
            pod = _pod(namespace, content)
        except Unreadable as error:
            raise _refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"pod: {error}") from error
        key = f"{namespace}/{pod['metadata']['name']}"
        if key in self._objects[kind]:
            raise _refused(HTTPStatus.CONFLICT, f'{kind} "{key}" already exists')
        return self.put(kind, pod)

    def _bind(self, found: Json, content: Json) -> Json:
        """As pkg/registry/core/pod/storage/storage.go of 1.36 has it (BindingREST)."""
        meta, wanted = found["metadata"], content["metadata"]
        for key in ("uid", "resourceVersion"):
            if wanted.get(key, meta[key]) != meta[key]:
                msg = f"{key} is {meta[key]}, the precondition says {wanted[key]}"
                raise _refused(HTTPStatus.CONFLICT, msg)
        if found["spec"].get("nodeName"):
            msg = f"pod {meta['name']} is already assigned to node {found['spec']['nodeName']}"
            raise _refused(HTTPStatus.CONFLICT, msg)
        bound = deepcopy(found)
        bound["spec"]["nodeName"] = content["target"]["name"]
        _annotate(bound, wanted.get("annotations", {}))
        self.put("pods", bound)
        return {"kind": "Status", "status": "Success"}

    def _patch(self, kind: str, found: Json, content: Json) -> Json:
        wanted = content.get("metadata", {})
        if wanted.get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            raise _refused(HTTPStatus.CONFLICT, "uid mismatch", field="metadata.uid")
        patched = deepcopy(found)
        _annotate(patched, wanted.get("annotations", {}))
        return found if patched == found else self.put(kind, patched)

    @property
    def objects(self) -> Mapping[str, Mapping[str, Json]]:
        """All objects of each kind, by name, or by namespace/name."""
        return self._objects

    def put(self, kind: str, content: Json) -> Json:
        """Create or replace an object, which is the server's from now on."""
        meta = content["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        meta.setdefault("uid", f"uid-{key.replace('/', '-')}")
        content.setdefault("spec", {})
        content.setdefault("status", {})
        before = self._objects[kind].get(key)
        meta["resourceVersion"] = str(self._version + 1)
        self._objects[kind][key] = content
        self._note(kind, before, content)
        return content

    def remove(self, kind: str, key: str) -> Json:
        """Delete an object; returns what it was."""
        found = self._objects[kind].pop(key)
        self._note(kind, found, None)
        return found

    def _note(self, kind: str, before: Json | None, after: Json | None) -> None:
        self._version += 1
        self._changes.append(_Change(self._version, kind, before, after))
        self._changed.set()
        self._changed = asyncio.Event()


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        pass


def _pod(namespace: str, content: Json) -> Json:
    """A pod that is created, with what the server adds. Raises `Unreadable`."""
    meta = dict(object_at(content, "metadata"))
    needed_at(meta, "name", where="metadata.")
    meta |= {key: dict(texts_at(meta, key)) for key in ("labels", "annotations")}
    meta["namespace"] = namespace
    meta["creationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = {key: dict(object_at(content, key)) for key in ("spec", "status")}
    return content | {"metadata": meta} | parts


def _body(request: Request) -> Json:
    """What a request sends, as an object of its own."""
    return deepcopy(dict(request.body or {}))


def _annotate(content: Json, annotations: Mapping[str, str | None]) -> None:
    """Merge annotations (RFC 7386): null removes one."""
    merged = content["metadata"].get("annotations", {}) | annotations
    kept = {key: value for key, value in merged.items() if value is not None}
    content["metadata"]["annotations"] = kept


def _selector(request: Request) -> Callable[[Json], bool]:
    """Whether an object has the fields that the request's selector names."""
    terms = [
        (one["path"].split("."), one["sign"] == "=", re.sub(r"\\(.)", r"\1", one["value"]))
        for one in _TERM.finditer(request.query.get("fieldSelector", ""))
    ]
    return lambda content: all((_at(content, path) == value) is same for path, same, value in terms)


def _at(content: Json, path: Iterable[str]) -> str:
    found: Any = content
    for key in path:
        found = found.get(key) or {}
    return str(found or "")


def _shown(content: Json, *, is_metadata: bool) -> Json:
    return {"metadata": content["metadata"]} if is_metadata else content


def _event(change: _Change, select: Callable[[Json], bool]) -> tuple[str, Json, int] | None:
    """What a watch shows of a change; None for one that is not in its collection."""
    before, after = change.before, change.after
    was = before is not None and select(before)
    if after is not None and select(after):
        return "MODIFIED" if was else "ADDED", after, change.version
    return ("DELETED", before, change.version) if was and before is not None else None


def _line(event: tuple[str, Json, int], shown: Callable[[Json], Json]) -> bytes:
    kind, content, version = event
    object_ = shown(content)
    meta = object_["metadata"] | {"resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": object_ | {"metadata": meta}}).encode()


def _refused(status: HTTPStatus, message: str, *, field: str = "") -> KubeError:
    """The error that a transport makes of a refusal."""
    content: Json = {"reason": status.phrase.replace(" ", ""), "message": message}
    if field:
        content["details"] = {"causes": [{"field": field}]}
    return refusal(status, "", json.dumps(content).encode())
