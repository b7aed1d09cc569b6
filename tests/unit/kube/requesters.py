"""Stand-ins for the transport: one that says what a test scripted, one that keeps a store."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

from kube.errors import Unanswered, refusal

if TYPE_CHECKING:
    from kube.client import Request


NEXT = "next"


class ScriptOver(Exception):
    """A request that the script has no answer to."""


class ScriptedRequester:
    """Answers each request with the next thing of a script, and keeps the requests.

    A step is bytes (a body), a list of lines and errors (a stream), an error, or a function of the
    request that returns one of these.
    """

    def __init__(self, *steps):
        self.steps = deque(steps)
        self.requests: list[Request] = []

    def _next(self, request):
        self.requests.append(request)
        if not self.steps:
            raise ScriptOver
        step: Any = self.steps.popleft()
        step = step(request) if callable(step) else step
        if isinstance(step, Exception):
            raise step
        return step

    async def request(self, request):
        """Answer with the next body."""
        body = self._next(request)
        assert isinstance(body, bytes)
        return body

    async def lines(self, request):
        """Answer with the next stream."""
        for line in self._next(request):
            if isinstance(line, Exception):
                raise line
            yield [line]


def page(*items, version="7", is_last=True, token=NEXT):
    """The body of a list; `token` continues one that is not the last."""
    meta = {"resourceVersion": version, "continue": "" if is_last else token}
    return json.dumps({"metadata": meta, "items": items}).encode()


def item(name, version="5", **rest):
    """A small object of the API."""
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": version}, **rest}


def event(kind, name="", version="8", **rest):
    """One line of a watch."""
    return json.dumps({"type": kind, "object": item(name, version, **rest)}).encode()


def error_line(code, reason):
    """The line with which the server ends a watch."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": "too old"}
    return json.dumps({"type": "ERROR", "object": status}).encode()


class Store:
    """A small API server in memory: one collection, its history, and what may be forgotten.

    `trouble` says what happens to the next request or stretch of a stream: an error, bytes in place
    of the truth, or None. `tick` lets time pass before each of them. Both raise `ScriptOver` when
    they have nothing more to come and the client waits for events that there are none of.
    """

    def __init__(self, *, trouble, tick):
        self._trouble = trouble
        self._tick = tick
        self._epoch = 0
        self._oldest = self.version = 1_000_000
        self._history: list[tuple[int, str, str, int | None]] = []
        self.snapshots: dict[int, dict[str, int]] = {self.version: {}}

    @property
    def objects(self):
        """What is there now, by name."""
        return self.snapshots[self.version]

    def change(self, name, value):
        """Write an object, or remove it where the value is None."""
        before = self.objects
        if value is None and name not in before:
            return
        self.version += 1
        kind = "DELETED" if value is None else "MODIFIED" if name in before else "ADDED"
        after = {**before, name: value}
        if value is None:
            del after[name]
        self.snapshots[self.version] = after
        self._history.append((self.version, kind, name, value))

    def pass_by(self):
        """Let another collection change: the version moves on, and no event is sent."""
        self.snapshots[self.version + 1] = self.objects
        self.version += 1

    def forget(self):
        """Keep no history from before now."""
        self._oldest = self.version

    def restore(self):
        """Go back to what a backup of long ago holds."""
        self._epoch += 1
        self._oldest = self.version = self.version - 1_000
        self._history = []
        self.snapshots = {self.version: {"restored": 1}}

    async def request(self, request):
        """Answer one page of a list; all pages of a list are of one version."""
        self._tick()
        trouble = self._trouble()
        if isinstance(trouble, Exception):
            raise trouble
        token = request.query.get("continue", f"{self._epoch}/{self.version}/")
        epoch, version, after = token.split("/")
        if int(epoch) != self._epoch or int(version) < self._oldest:
            raise refusal(410, "Expired", b"")
        values = self.snapshots[int(version)]
        rest = sorted(name for name in values if name > after)
        limit = int(request.query["limit"])
        shown = [item(name, version, value=values[name]) for name in rest[:limit]]
        more = f"{epoch}/{version}/{rest[limit - 1]}" if len(rest) > limit else ""
        body = page(*shown, version=version, is_last=not more, token=more)
        return body[: len(body) // 2] if trouble else body

    async def lines(self, request):
        """Send what happened since a version, for a while."""
        since, epoch = int(request.query["resourceVersion"]), self._epoch
        for _ in range(4):
            if since == self.version:
                self._tick()
            trouble = self._trouble()
            if isinstance(trouble, Exception):
                raise trouble
            if self._epoch != epoch:
                raise Unanswered(0, "ConnectionLost", "")
            if trouble:
                yield [trouble]
            if since < self._oldest:
                yield [error_line(410, "Expired")]
            news = [one for one in self._history if one[0] > since]
            yield [event(kind, name, str(at), value=value) for at, kind, name, value in news]
            # A server that is behind what the client knows says nothing until it has caught up.
            if self.version > since:
                since = self.version
                yield [event("BOOKMARK", version=str(since))]
