"""The reflector against what a server may say and fail to say."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from kube.client import JSON, METADATA, METADATA_LIST
from kube.errors import KubeError, Unanswered, Unreachable, Unreadable, refusal
from kube.objects import ObjectKey
from kube.watch import Reflector, Timing
from kube.watch.reflector import Clock, Source
from tests.unit.kube.requesters import ScriptedRequester, ScriptOver, error_line, event, item, page

LOST = Unanswered(0, "ConnectionLost", "")
REFUSED = Unreachable(0, "Unreachable", "")
GONE = refusal(410, "Expired", b"")
BUSY = refusal(429, "TooManyRequests", b"", retry_after_s=2.0)
FORBIDDEN = refusal(403, "Forbidden", b"")


def read(content):
    """The object's name and value; `value: null` cannot be read."""
    if content.get("value", 0) is None:
        msg = "value is None"
        raise Unreadable(msg)
    return content["metadata"]["name"], content.get("value", 0)


SOURCE = Source("things", "/things", read, field_selector="a!=", page_size=2)


class Log:
    """A sink that records what is delivered."""

    def __init__(self):
        self.delivered = []
        self.faults = []

    async def replace(self, objects):
        """Take the whole."""
        self.delivered.append(("replace", *(name for name, _ in objects)))

    def seen(self, one):
        """Take one."""
        self.delivered.append(("seen", one[0]))

    def gone(self, key):
        """Lose one."""
        self.delivered.append(("gone", key.name))

    def unread(self, key, reason):
        """Miss one."""
        self.delivered.append(("unread", key.name, reason))

    def failed(self, fault):
        """Take a failure."""
        self.faults.append(fault)


class World:
    """Time that passes only in waits, and no chance."""

    def __init__(self):
        self.now_s = 100.0
        self.slept = []

    async def sleep(self, seconds):
        """Wait."""
        self.slept.append(seconds)
        self.now_s += seconds

    def passing(self, seconds, step):
        """A step of a script that takes its time."""

        def act(_):
            self.now_s += seconds
            return step

        return act

    @property
    def clock(self):
        """The reflector's."""
        return Clock(monotonic=lambda: self.now_s, sleep=self.sleep, jitter=lambda: 0.5)


class Played:
    """A reflector that has gone through a whole script."""

    def __init__(self, *steps, world=None, source=SOURCE, timing=None):
        self.world = world or World()
        self.log = Log()
        self.requester = ScriptedRequester(*steps)
        self.reflector = Reflector(
            self.requester, source, self.log, timing=timing or Timing(), clock=self.world.clock
        )

    async def _until_empty(self):
        with suppress(ScriptOver):
            await self.reflector.run()

    def play(self):
        """Run until something is requested that the script has no answer to."""
        asyncio.run(self._until_empty())
        return self

    @property
    def requests(self):
        """What each request was: a list with its continue token, or a watch from a version."""
        return [
            ("watch", one.query["resourceVersion"])
            if "watch" in one.query
            else ("check",)
            if one.query["limit"] == "1"
            else ("list", one.query.get("continue", ""))
            for one in self.requester.requests
        ]


def test_pages_become_one_list_and_events_follow():
    """Nothing is delivered before the list is complete; the watch begins where it ended."""
    played = Played(
        page(item("a"), item("b"), version="7", is_last=False),
        page(item("c"), version="7"),
        [event("ADDED", "d", "8"), event("MODIFIED", "a", "9"), event("DELETED", "b", "10")],
    ).play()
    assert played.log.delivered == [
        ("replace", "a", "b", "c"),
        ("seen", "d"),
        ("seen", "a"),
        ("gone", "b"),
    ]
    assert played.requests == [("list", ""), ("list", "next"), ("watch", "7"), ("watch", "10")]
    assert played.reflector.resource_version == "10"
    assert played.reflector.is_synced
    counts = played.reflector.counts
    assert (counts.n_lists, counts.n_events, counts.n_bookmarks) == (1, 3, 0)
    assert (played.reflector.counts.n_lists - 1, counts.n_faults, played.log.faults) == (0, 0, [])


def test_the_server_is_requests_for_what_the_source_says():
    """Consistent lists in pages, watches with bookmarks and an end, the selector in both."""
    played = Played(page()).play()
    assert played.reflector.name == "things"
    first, watch = played.requester.requests[:2]
    assert first.query == {"fieldSelector": "a!=", "limit": "2"}
    assert watch.query == {
        "fieldSelector": "a!=",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "30",
        "resourceVersion": "7",
    }
    assert (first.accept, watch.accept, watch.timeout_s) == (JSON, JSON, 38.0)
    source = Source("metadata", "/things", read, is_metadata=True)
    played = Played(page(), source=source).play()
    first, watch = played.requester.requests[:2]
    assert (first.query, first.accept) == ({"limit": "500"}, METADATA_LIST)
    assert watch.accept == METADATA


@pytest.mark.parametrize(
    ("steps", "requests", "reason"),
    [
        pytest.param([REFUSED, page()], [("list", ""), ("list", "")], "Unreachable", id="refused"),
        pytest.param(
            [page(is_last=False), GONE, page()],
            [("list", ""), ("list", "next"), ("list", "")],
            "Expired",
            id="the continue token is too old: from the first page again",
        ),
        pytest.param(
            [page(item("x"), is_last=False), b'{"items":[', page()],
            [("list", ""), ("list", "next"), ("list", "")],
            "Malformed",
            id="a page that was cut",
        ),
        pytest.param(
            [FORBIDDEN, page()], [("list", ""), ("list", "")], "Forbidden", id="not allowed yet"
        ),
    ],
)
def test_a_list_that_fails_is_retried(steps, requests, reason):
    """What its first pages brought is dropped: it belongs to another version."""
    played = Played(*steps).play()
    assert played.requests == [*requests, ("watch", "7")]
    assert played.log.delivered == [("replace",)]
    assert [fault.error.reason for fault in played.log.faults] == [reason]
    assert played.log.faults[0].will_list


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        pytest.param([refusal(403, "", b"")], 403, id="a list refused"),
        pytest.param([refusal(403, "", b""), page()], None, id="then listed"),
        pytest.param([page(), refusal(500, "", b"")], 500, id="a watch refused"),
        pytest.param(
            [page(), refusal(500, "", b""), page(), [event("ADDED", "d", "8")]],
            None,
            id="then an event",
        ),
    ],
)
def test_the_last_failure_is_kept_until_the_next_event(steps, status):
    """The reason why no event arrives is the server's own message."""
    fault = Played(*steps).play().reflector.fault
    assert (None if fault is None else fault.status) == status


def test_nothing_is_synced_before_the_list_is_complete():
    """A part of the cluster looks like the cluster."""
    played = Played(page(is_last=False), LOST, REFUSED).play()
    assert not played.reflector.is_synced
    assert played.reflector.observed_at_s is None
    assert (played.log.delivered, played.reflector.resource_version) == ([], "")


def test_a_watch_that_ends_goes_on_from_its_last_version():
    """Events, bookmarks and ends in order; no list, no delay."""
    world = World()
    played = Played(
        page(version="7"),
        world.passing(30, [event("ADDED", "a", "8"), event("BOOKMARK", version="12")]),
        world.passing(30, [event("BOOKMARK", version="15")]),
        world.passing(30, []),
        world=world,
    ).play()
    assert played.requests[1:] == [
        ("watch", "7"),
        ("watch", "12"),
        ("watch", "15"),
        ("watch", "15"),
    ]
    assert played.reflector.counts.n_bookmarks == 2
    assert (played.log.delivered, world.slept) == ([("replace",), ("seen", "a")], [])


def test_freshness_is_that_of_the_last_word():
    """A list is as old as its first request, whatever time its pages take."""
    world = World()
    steps = [
        world.passing(4, page(is_last=False)),
        world.passing(4, page()),
        world.passing(20, [event("BOOKMARK", version="12")]),
        world.passing(31, []),
    ]
    times = []
    for n in range(2, 5):
        world.now_s = 100.0
        played = Played(*steps[:n], world=world).play()
        times.append(played.reflector.observed_at_s)
    assert times == [100.0, 128.0, 159.0]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        pytest.param([GONE], "Expired", id="HTTP 410"),
        pytest.param([[error_line(410, "Expired")]], "Expired", id="410 in the stream"),
        pytest.param([[b'{"type":']], "Malformed", id="a line that is no JSON"),
        pytest.param([[event("RENAMED")]], "Malformed", id="an event of no known kind"),
        pytest.param([[event("ADDED", "x", "3")]], "WentBack", id="a version that goes back"),
        pytest.param(
            [[event("BOOKMARK", version="3")]], "WentBack", id="a bookmark that goes back"
        ),
    ],
)
def test_what_breaks_the_order_leads_to_a_list(ending, reason):
    """Whatever was missed is in the list; the first one comes at once for 410 alone."""
    played = Played(page(version="7"), *ending, page(item("z"), version="9")).play()
    assert played.requests == [("list", ""), ("watch", "7"), ("list", ""), ("watch", "9")]
    assert played.log.delivered[-1] == ("replace", "z")
    fault = played.log.faults[0]
    assert (fault.source, fault.error.reason, fault.will_list) == ("things", reason, True)
    assert fault.delay_s == pytest.approx(0.0 if reason == "Expired" else 0.075)
    assert played.reflector.counts.n_lists - 1 == 1


def test_events_before_a_bad_line_count():
    """They were whole, and the list that follows may come late."""
    played = Played(page(version="7"), [event("ADDED", "a", "8"), b"{"]).play()
    assert played.log.delivered == [("replace",), ("seen", "a")]
    assert played.reflector.resource_version == "8"


def test_a_lower_version_after_a_restart_leads_to_a_list():
    """A store restored from a backup would keep a watch silent until it has caught up."""
    played = Played(page(version="70"), LOST, page(version="9"), page(item("old"), version="9"))
    assert played.play().requests == [
        ("list", ""),
        ("watch", "70"),
        ("check",),
        ("list", ""),
        ("watch", "9"),
    ]
    assert [fault.error.reason for fault in played.log.faults] == ["ConnectionLost", "WentBack"]
    assert played.log.delivered == [("replace",), ("replace", "old")]


def test_a_lost_connection_goes_on_from_the_last_version():
    """Half-open, cut in the middle, refused: the version is good, and a list would be waste."""
    played = Played(
        page(version="7"),
        [event("ADDED", "a", "8"), LOST],
        REFUSED,
        REFUSED,
        REFUSED,
        page(version="9"),
        [event("ADDED", "b", "9")],
    ).play()
    assert played.requests == [
        ("list", ""),
        ("watch", "7"),
        *[("check",)] * 4,
        ("watch", "8"),
        ("watch", "9"),
    ]
    assert played.log.delivered == [("replace",), ("seen", "a"), ("seen", "b")]
    assert [fault.will_list for fault in played.log.faults] == [False] * 4


def test_delays_grow_to_the_cap_and_are_reset_when_something_was_received():
    """A server that is back is found within the cap."""
    played = Played(
        *[REFUSED] * 8, page(), [event("BOOKMARK"), LOST], page(version="8"), [LOST]
    ).play()
    assert played.world.slept == pytest.approx(
        [0.075, 0.15, 0.3, 0.6, 1.2, 2.4, 3.75, 3.75, 0.075, 0.15]
    )


def test_a_list_that_succeeds_is_not_yet_success():
    """Lists are the costly part: where each watch fails at once, they must become rare."""
    played = Played(*[page(), GONE] * 6).play()
    assert played.world.slept == pytest.approx([0.0, 0.15, 0.3, 0.6, 1.2, 2.4])


def test_a_watch_that_lasted_makes_up_for_failures_before():
    """After a quiet quarter of a minute the next failure is the first one."""
    world = World()
    played = Played(
        *[REFUSED] * 4, page(), world.passing(20, [LOST]), page(), [LOST], world=world
    ).play()
    assert world.slept == pytest.approx([0.075, 0.15, 0.3, 0.6, 0.075, 0.15])
    assert not played.log.faults[-1].will_list


def test_the_server_says_when_to_come_back():
    """Taken at its word, within reason, and not doubled."""
    patient = refusal(503, "", b"", retry_after_s=3600.0)
    played = Played(BUSY, BUSY, BUSY, patient, page()).play()
    assert played.world.slept == pytest.approx([2.5, 2.5, 2.5, 75.0])


@pytest.mark.parametrize("refused", [FORBIDDEN, refusal(500, "", b""), refusal(400, "", b"")])
def test_a_watch_that_is_refused_again_and_again_leads_to_a_list(refused):
    """Whatever the server has against the version, a list gives another."""
    steps = [page(version="7"), refused, page(version="7"), refused, page(version="7"), refused]
    played = Played(*steps, page(version="9")).play()
    assert played.requests[-2:] == [("list", ""), ("watch", "9")]
    assert [fault.will_list for fault in played.log.faults] == [False, False, True]


def test_an_error_in_the_stream_goes_on_from_the_last_version():
    """The server's own trouble is no reason to read the whole cluster again."""
    played = Played(
        page(version="7"),
        [event("ADDED", "a", "8"), error_line(500, "InternalError")],
        page(version="9"),
    ).play()
    assert played.requests[2:] == [("check",), ("watch", "8")]


def test_a_watch_that_ends_at_once_is_a_failure():
    """Else a server that hangs up would get a request a thousand times a second."""
    world = World()
    played = Played(page(), [], page(), [], world=world).play()
    assert [fault.error.reason for fault in played.log.faults] == ["ShortWatch", "ShortWatch"]
    assert world.slept == pytest.approx([0.075, 0.15])


def test_an_object_that_cannot_be_read_is_delivered_and_skipped():
    """One bad object must not hide the others, in a list and in a watch."""
    played = Played(
        page(item("a", value=None), item("b")),
        [event("MODIFIED", "b", "8", value=None), event("ADDED", "c", "9")],
    ).play()
    assert played.log.delivered == [
        ("replace", "b"),
        ("unread", "a", "value is None"),
        ("unread", "b", "value is None"),
        ("seen", "c"),
    ]
    assert (played.reflector.counts.n_unread, played.log.faults) == (2, [])


def test_an_object_that_cannot_be_read_can_still_go():
    """A key is all that is needed to forget."""
    played = Played(page(), [event("DELETED", "a", "8", value=None)]).play()
    assert played.log.delivered == [("replace",), ("gone", "a")]


def test_the_loop_is_let_go_while_a_page_is_read():
    """The verbs answer from the same loop."""
    world = World()
    n_turns = 0

    async def others():
        nonlocal n_turns
        while True:
            n_turns += 1
            await asyncio.sleep(0)

    def slow(content):
        world.now_s += 0.001
        return read(content)

    async def run():
        source = Source("things", "/things", slow)
        requester = ScriptedRequester(page(*(item(str(i)) for i in range(40))))
        reflector = Reflector(requester, source, Log(), clock=world.clock)
        other = asyncio.create_task(others())
        with suppress(ScriptOver):
            await reflector.run()
        other.cancel()

    asyncio.run(run())
    assert n_turns >= 10


class Silent(ScriptedRequester):
    """A requester whose watches send nothing until they are closed."""

    def __init__(self, *steps):
        super().__init__(*steps)
        self.is_open = asyncio.Event()

    async def lines(self, request):
        """Stay open."""
        self.requests.append(request)
        self.is_open.set()
        await asyncio.get_running_loop().create_future()
        yield []


def test_what_the_sink_raises_ends_the_run():
    """A fault of ours must be seen, not tried again for ever."""

    class Broken(Log):
        def seen(self, one):
            raise ZeroDivisionError(one)

    async def run():
        requester = ScriptedRequester(page(), [event("ADDED", "a")])
        await Reflector(requester, SOURCE, Broken(), clock=World().clock).run()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())


def test_being_cancelled_ends_the_watch():
    """Nothing may hold a connection after the end."""

    async def run():
        requester = Silent(page())
        reflector = Reflector(requester, SOURCE, Log())
        running = asyncio.create_task(reflector.run())
        await requester.is_open.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_keys_are_those_of_the_objects():
    """A pod is forgotten by its uid: another may have its name by then."""
    keys = []

    class Keys(Log):
        def gone(self, key):
            keys.append(key)

    async def run():
        requester = ScriptedRequester(page(), [event("DELETED", "a", "8")])
        with suppress(ScriptOver):
            await Reflector(requester, SOURCE, Keys(), clock=World().clock).run()

    asyncio.run(run())
    assert keys == [ObjectKey("", "a", "u-a")]
    assert isinstance(LOST, KubeError)
