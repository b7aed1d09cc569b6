"""The reflector against a store that changes, forgets, fails and goes back, in any order."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from kube.errors import Unanswered, Unreachable, Unreadable, refusal
from kube.watch import Reflector
from kube.watch.reflector import Clock, Source
from tests.unit.kube.requesters import ScriptOver, Store, error_line, event

BAD = -1
NAMES = st.sampled_from("abcdefg")
CHANGES = st.one_of(
    st.tuples(st.just("change"), NAMES, st.none() | st.integers(0, 99) | st.just(BAD)),
    st.just(("forget",)),
    st.just(("pass_by",)),
    st.just(("restore",)),
)
TROUBLES = st.sampled_from(
    [
        None,
        None,
        None,
        Unreachable(0, "Unreachable", ""),
        Unanswered(0, "ConnectionLost", ""),
        refusal(410, "Expired", b""),
        refusal(429, "TooManyRequests", b"", retry_after_s=1.0),
        refusal(500, "InternalError", b""),
        b'{"type":"ADDED","obj',
        error_line(500, "InternalError"),
        event("ADDED", "old", "3"),
    ]
)


def read(content):
    """The object's name and value."""
    if content["value"] == BAD:
        msg = "value is bad"
        raise Unreadable(msg)
    return content["metadata"]["name"], content["value"]


class Picture:
    """A sink that keeps what is delivered; what cannot be read is kept as such."""

    def __init__(self, store):
        self.store = store
        self.objects: dict[str, int] = {}

    async def replace(self, objects):
        """Every list must be what was there at one version."""
        self.objects = dict(objects)
        assert self.objects in [
            {name: value for name, value in snapshot.items() if value != BAD}
            for snapshot in self.store.snapshots.values()
        ]

    def seen(self, one):
        """Keep."""
        name, value = one
        self.objects[name] = value

    def gone(self, key):
        """Forget."""
        del self.objects[key.name]

    def unread(self, key, _):
        """Keep as unreadable."""
        self.objects[key.name] = BAD

    def failed(self, _):
        """Trouble is what the test is about."""


class Weather:
    """The changes and the troubles of one example, until both are used up."""

    def __init__(self, changes, troubles):
        self.changes = list(changes)
        self.troubles = list(troubles)
        self.store = Store(trouble=self.trouble, tick=self.tick)

    def tick(self):
        """The next change."""
        if self.changes:
            step, *values = self.changes.pop(0)
            getattr(self.store, step)(*values)

    def trouble(self):
        """The next trouble."""
        return self.troubles.pop(0) if self.troubles else None


async def follow(weather, picture, *, n_requests=400):
    """Run a reflector until all is delivered, within a bound that only a loop would meet."""
    left = n_requests

    async def sleep(_):
        nonlocal left
        left -= 1
        assert left > 0, "the reflector does not come to rest"

    class Listener:
        async def request(self, request):
            await sleep(0)
            return await weather.store.request(request)

        async def lines(self, request):
            await sleep(0)
            is_calm = not weather.changes and not weather.troubles
            if is_calm and request.query["resourceVersion"] == str(weather.store.version):
                raise ScriptOver
            async for bundle in weather.store.lines(request):
                yield bundle

    clock = Clock(monotonic=lambda: 0.0, sleep=sleep, jitter=lambda: 0.0)
    reflector = Reflector(
        Listener(), Source("things", "/things", read, page_size=2), picture, clock=clock
    )
    with suppress(ScriptOver):
        await reflector.run()
    return reflector


@given(st.lists(CHANGES, max_size=30), st.lists(TROUBLES, max_size=30))
def test_in_the_end_the_picture_is_the_store(changes, troubles):
    """No change is lost or delivered twice with another result, whatever goes wrong in between.

    Every list that is handed over is also checked to be the store at one moment.
    """
    weather = Weather(changes, troubles)
    picture = Picture(weather.store)
    reflector = asyncio.run(follow(weather, picture))
    assert picture.objects == weather.store.objects
    assert reflector.resource_version == str(weather.store.version)
