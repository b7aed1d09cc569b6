"""A small API server in memory, over real HTTP: what the extender needs of one, and no more.

Lists and watches of nodes and pods with the two selectors that the extender uses, metadata alone
where that is requested, bindings with their preconditions, merge patches of annotations, Events,
Jobs and Leases. It is no authority on Kubernetes: tests/cluster holds the same program against the
real one.
"""

from __future__ import annotations

import asyncio
import copy
import json
import socket
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

Json = dict[str, Any]
ASSIGNED = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
PENDING = "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"
OF_SCHEDULER = "spec.schedulerName="
NOMINATED = "spec.nodeName=,status.nominatedNodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def _has_ended(pod: Json) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def _is_assigned(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName")) and not _has_ended(pod)


def _is_nominated(pod: Json) -> bool:
    is_named = not pod["spec"].get("nodeName") and bool(pod["status"].get("nominatedNodeName"))
    return is_named and not _has_ended(pod)


def _is_pending(pod: Json) -> bool:
    return not pod["spec"].get("nodeName") and not _has_ended(pod)


def _selector(text: str) -> Callable[[Json], bool]:
    """The pods of a node, or one of the selectors that are watched."""
    if text.startswith(OF_SCHEDULER):
        name, _, rest = text.removeprefix(OF_SCHEDULER).partition(",")
        return lambda pod: pod["spec"].get("schedulerName") == name and SELECTORS[rest](pod)
    node = text.removeprefix("spec.nodeName=")
    if text in SELECTORS or node == text:
        return SELECTORS[text]
    return lambda pod: bool(pod["spec"].get("nodeName") == node)


SELECTORS: Mapping[str, Callable[[Json], bool]] = {
    "": lambda _: True,
    ASSIGNED: _is_assigned,
    NOMINATED: _is_nominated,
    PENDING: _is_pending,
}


class FakeApi:
    """The objects, their history, and recorded requests. `faults` answer the next of a kind."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, dict[str, Json]] = {
            "nodes": {},
            "pods": {},
            "jobs": {},
        }
        self.events: list[Json] = []
        self.faults: dict[str, list[int]] = defaultdict(list)
        self.n_lists: dict[str, int] = defaultdict(int)
        self._history: list[tuple[int, str, Json | None, Json | None]] = []
        self._turn = asyncio.Event()

    # What a test does.

    def put(self, kind: str, content: Json) -> Json:
        """Create or replace an object."""
        meta = content["metadata"]
        meta.setdefault("uid", f"uid-{meta['name']}")
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        content.setdefault("spec", {})
        content.setdefault("status", {})
        before = self.objects[kind].get(meta["name"])
        self.objects[kind][meta["name"]] = content
        self._note(kind, before, content)
        return content

    def change(self, kind: str, name: str, act: Callable[[Json], object]) -> None:
        """Change an object in place."""
        content = copy.deepcopy(self.objects[kind][name])
        act(content)
        self.put(kind, content)

    def delete(self, kind: str, name: str) -> None:
        """Remove an object."""
        before = self.objects[kind].pop(name)
        self.version += 1
        self._note(kind, before, None)

    def annotations(self, name: str) -> dict[str, str]:
        """A pod's annotations."""
        found: dict[str, str] = self.objects["pods"][name]["metadata"].get("annotations", {})
        return found

    async def until(self, is_so: Callable[[], object], *, within_s: float = 60.0) -> None:
        """Wait until something holds; looked at after every write."""
        async with asyncio.timeout(within_s):
            while True:
                turn = self._turn
                if is_so():
                    return
                await turn.wait()

    def _note(self, kind: str, before: Json | None, after: Json | None) -> None:
        self._history.append((self.version, kind, copy.deepcopy(before), copy.deepcopy(after)))
        self._stir()

    def _stir(self) -> None:
        """Wake all that wait, each on the event that it saw."""
        self._turn.set()
        self._turn = asyncio.Event()

    # What the extender requests.

    async def collection(self, request: web.Request) -> web.StreamResponse:
        """List or watch."""
        kind = request.match_info["kind"]
        selector = _selector(request.query.get("fieldSelector", ""))
        is_metadata = "PartialObjectMetadata" in request.headers["Accept"]
        if "watch" in request.query:
            return await self._watch(request, kind, selector, is_metadata=is_metadata)
        self.n_lists[kind] += 1
        is_pending = request.query.get("fieldSelector", "").startswith(OF_SCHEDULER)
        self._meet("list pending" if is_pending else f"list {kind}")
        items = [
            _shown(one, is_metadata=is_metadata)
            for one in self.objects[kind].values()
            if selector(one)
        ]
        meta = {"resourceVersion": str(self.version)}
        return web.json_response({"metadata": meta, "items": items})

    async def _watch(
        self,
        request: web.Request,
        kind: str,
        selector: Callable[[Json], bool],
        *,
        is_metadata: bool,
    ) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        seen = int(request.query["resourceVersion"])
        while True:
            turn = self._turn
            for version, of, before, after in tuple(self._history):
                if version > seen:
                    seen = version
                    event = _event(of == kind, selector, before, after, version)
                    if event is not None:
                        event["object"] = _shown(event["object"], is_metadata=is_metadata)
                        await response.write(json.dumps(event).encode() + b"\n")
            await turn.wait()

    async def read(self, request: web.Request) -> web.Response:
        """One object by name."""
        self._meet(f"get {request.match_info['kind']}")
        return web.json_response(self._find(request))

    async def budgets(self, _request: web.Request) -> web.Response:
        """No disruption budgets."""
        meta = {"resourceVersion": str(self.version)}
        return web.json_response({"metadata": meta, "items": []})

    async def patch(self, request: web.Request) -> web.Response:
        """Merge annotations; null removes one."""
        kind = request.match_info["kind"]
        self._meet(f"patch {kind}")
        content = await request.json()
        found = copy.deepcopy(self._find(request))
        if content["metadata"].get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            raise _refused(409, "Conflict", "uid mismatch")
        merged = found["metadata"].get("annotations", {}) | content["metadata"]["annotations"]
        found["metadata"]["annotations"] = {
            key: value for key, value in merged.items() if value is not None
        }
        return web.json_response(self.put(kind, found))

    async def bind(self, request: web.Request) -> web.Response:
        """Bind, with the preconditions of the real one."""
        self._meet("bind")
        content = await request.json()
        found = copy.deepcopy(self._find(request, "pods"))
        meta = found["metadata"]
        for key in ("uid", "resourceVersion"):
            if content["metadata"].get(key, meta[key]) != meta[key]:
                raise _refused(409, "Conflict", f"{key} mismatch")
        if found["spec"].get("nodeName"):
            raise _refused(409, "Conflict", "already assigned")
        found["spec"]["nodeName"] = content["target"]["name"]
        meta.setdefault("annotations", {}).update(content["metadata"].get("annotations", {}))
        self.put("pods", found)
        return web.json_response({"status": "Success"}, status=201)

    async def add_event(self, request: web.Request) -> web.Response:
        """Keep an Event."""
        self.events.append(await request.json())
        self._stir()
        return web.json_response(self.events[-1], status=201)

    def _find(self, request: web.Request, kind: str = "") -> Json:
        kind = kind or request.match_info["kind"]
        found = self.objects[kind].get(request.match_info["name"])
        if found is None:
            raise _refused(404, "NotFound", "")
        return found

    def _meet(self, what: str) -> None:
        if self.faults[what]:
            raise _refused(self.faults[what].pop(0), "Fault", what)


def _event(
    is_ours: bool,
    selector: Callable[[Json], bool],
    before: Json | None,
    after: Json | None,
    version: int,
) -> Json | None:
    if not is_ours:
        return None
    was, is_now = (one is not None and selector(one) for one in (before, after))
    if not (was or is_now):
        return None
    kind = "DELETED" if not is_now else "MODIFIED" if was else "ADDED"
    shown = copy.deepcopy(after if is_now else before)
    assert shown is not None
    shown["metadata"]["resourceVersion"] = str(version)
    return {"type": kind, "object": shown}


def _shown(content: Json, *, is_metadata: bool) -> Json:
    return {"metadata": content["metadata"]} if is_metadata else content


def _refused(status: int, reason: str, message: str) -> web.HTTPException:
    body = json.dumps({"kind": "Status", "reason": reason, "message": message})
    kinds: dict[int, type[web.HTTPException]] = {
        403: web.HTTPForbidden,
        404: web.HTTPNotFound,
        409: web.HTTPConflict,
    }
    return kinds.get(status, web.HTTPInternalServerError)(text=body)


@asynccontextmanager
async def fake_api(folder: Path) -> AsyncIterator[tuple[FakeApi, Path]]:
    """Run one; the API and a kubeconfig for it."""
    api = FakeApi()
    app = web.Application()
    named = "/api/v1/namespaces/{namespace}/{kind:pods}/{name}"
    app.add_routes(
        [
            web.get("/api/v1/{kind:nodes|pods}", api.collection),
            web.get("/api/v1/{kind:nodes}/{name}", api.read),
            web.get("/apis/batch/v1/namespaces/{namespace}/{kind:jobs}/{name}", api.read),
            web.get("/apis/policy/v1/poddisruptionbudgets", api.budgets),
            web.get(named, api.read),
            web.patch(named, api.patch),
            web.patch("/api/v1/{kind:nodes}/{name}", api.patch),
            web.post(f"{named}/binding", api.bind),
            web.post("/api/v1/namespaces/{namespace}/events", api.add_event),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [
            {
                "name": "k",
                "cluster": {"server": f"http://127.0.0.1:{listener.getsockname()[1]}"},
            }
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    try:
        yield api, kubeconfig
    finally:
        await runner.cleanup()
