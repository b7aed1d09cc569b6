"""Replicas agree who binds: never two at a time, whatever fails, and soon one again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.ha import Election, Replicas, ReplicaTools, identity_of
from extender.ha.lease_loop import ROUND_SHARE
from kube.errors import Conflict, Unanswered
from tests.unit.extender.shells import DOWN, FakeTime, Log, run_until, until

if TYPE_CHECKING:
    from kube.objects import Lease

DURATION_S = 15
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOST = Unanswered(0, "Timeout", "no answer")
URLS = ("http://a", "http://b", "http://c")


class Server:
    """The API server's one Lease. `fault` meets the next request; a lost answer was acted on."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.n_writes = 0
        self.fault: Exception | None = None
        self.is_next_read_stale = False

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        assert (namespace, name) == ("ns", "lease")
        self._meet()
        is_stale, self.is_next_read_stale = self.is_next_read_stale, False
        return None if is_stale else self.lease

    async def create_lease(self, lease: Lease) -> Lease:
        if self.lease is not None:
            raise Conflict(409, "AlreadyExists", "")
        return self._write(lease)

    async def update_lease(self, lease: Lease) -> Lease:
        if self.lease is None or self.lease.resource_version != lease.resource_version:
            raise Conflict(409, "Conflict", "")
        return self._write(lease)

    def _write(self, lease: Lease) -> Lease:
        if self.fault is DOWN:
            self._meet()
        self.n_writes += 1
        self.lease = replace(lease, resource_version=str(self.n_writes))
        self._meet()
        return self.lease

    def _meet(self) -> None:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault


class Replica(Replicas):
    """A replica whose rounds are begun by `look`, or pass with the fake time under `run`."""

    def __init__(self, election: Election, tools: ReplicaTools) -> None:
        super().__init__(election, replace(tools, sleep=self.pause), duration_s=DURATION_S)
        self.sleep = tools.sleep
        self.running: asyncio.Task[None] | None = None
        self.n_looks = 0
        self.may_look = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        """Between two rounds."""
        if self.running is None:
            await self.sleep(seconds)
            return
        self.n_looks += 1
        await self.may_look.wait()
        self.may_look.clear()

    async def look(self) -> None:
        """Run one round to its end."""
        n_before = self.n_looks
        if self.running is None:
            self.running = asyncio.create_task(self.run())
        else:
            self.may_look.set()
        running = self.running
        await until(lambda: self.n_looks > n_before or running.done())
        assert not running.done()


@dataclass
class Stage:
    """Replicas before one server, in one time. `caught_up` lets new holders begin."""

    server: Server = field(default_factory=Server)
    time: FakeTime = field(default_factory=FakeTime)
    log: Log = field(default_factory=Log)
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)
    catch_up_fault: Exception | None = None
    n_catch_ups: int = 0
    holds: list[tuple[str, bool]] = field(default_factory=list)

    def replica(self, url: str, *, offset_s: float = 0.0) -> Replica:
        """One more; its clock shows another time."""
        election = Election("ns", "lease", identity=url, duration_s=DURATION_S)
        tools = ReplicaTools(
            api=self.server,
            catch_up=self._catch_up,
            timer=lambda: self.time() + offset_s,
            wall=lambda: NOON + timedelta(seconds=self.time() + 7 * offset_s),
            draw=lambda: 0.5,
            log=self.log,
            sleep=self.time.sleep,
            on_holder=lambda is_holder: self.holds.append((url, is_holder)),
        )
        return Replica(election, tools)

    async def _catch_up(self) -> None:
        self.n_catch_ups += 1
        await self.caught_up.wait()
        if self.catch_up_fault is not None:
            raise self.catch_up_fault


def stage() -> Stage:
    """One on which new holders may begin at once."""
    made = Stage()
    made.caught_up.set()
    return made


async def look(replica: Replica) -> None:
    """One look at the Lease, and what follows from it at once."""
    await replica.look()
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_first_takes_it_and_the_second_follows():
    """And each knows which replica to call."""

    async def go() -> None:
        await look(a)
        await look(b)
        assert (a.may_bind, b.may_bind) == (True, False)
        assert (a.other_holder, b.other_holder) == (None, URLS[0])
        assert a.left_s == a.bind_left_s == DURATION_S
        assert b.bind_left_s == 0.0
        assert (a.identity, a.n_taken, b.n_taken) == (URLS[0], 1, 0)

    on = stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())
    assert on.log.lines == [{"event": "lease_acquired", "holder": URLS[0]}]


def test_a_new_holder_begins_when_it_has_seen_all_that_was_written():
    """Else it would give away what the old one gave away a moment ago."""

    async def go() -> None:
        await look(a)
        await look(a)
        assert not a.may_bind
        on.caught_up.set()
        await look(a)
        assert a.may_bind

    on = Stage()
    a = on.replica(URLS[0])
    asyncio.run(go())
    assert on.n_catch_ups == 1


def test_a_replica_learns_when_it_may_bind_and_when_another_may():
    """What it claims for groups is its own as long, and not before it has caught up."""

    async def go() -> None:
        await look(a)
        assert on.holds == []
        on.caught_up.set()
        await look(a)
        await look(a)
        assert on.holds == [(URLS[0], True)]
        await look(b)
        await a.release()
        await look(b)
        await look(a)
        assert on.holds == [(URLS[0], True), (URLS[0], False), (URLS[1], True)]

    on = Stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())


def test_a_catching_up_that_fails_ends_the_replica():
    """Else it would renew the Lease for ever, and no replica would bind."""
    on = stage()
    on.catch_up_fault = RuntimeError("a fault of ours")
    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(on.replica(URLS[0]).run())
    assert raised.value.exceptions == (on.catch_up_fault,)


def test_a_holder_that_cannot_renew_stops_before_another_may_take_it():
    """By its own clock: no message reports it."""

    async def go() -> None:
        await look(a)
        await look(b)
        on.time.now_s += 9.9
        on.server.fault = DOWN
        await look(a)
        assert a.may_bind
        on.time.now_s += 0.1
        assert not a.may_bind
        assert a.left_s == 5.0
        await look(b)
        assert not b.may_bind
        on.time.now_s += 5.0
        await look(b)
        assert b.may_bind
        await look(a)
        assert a.other_holder == URLS[1]

    on = stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())
    assert on.log.events == ["lease_acquired", "lease_error", "lease_acquired", "lease_lost"]
    assert a.n_faults == 1


def test_a_holder_that_was_away_and_still_holds_it_goes_on():
    """It was not written meanwhile, so no other replica bound a pod."""

    async def go() -> None:
        await look(a)
        on.time.now_s += 100.0
        assert not a.may_bind
        await look(a)
        assert a.may_bind

    on = stage()
    a = on.replica(URLS[0])
    asyncio.run(go())
    assert on.n_catch_ups == 1


def test_a_holder_that_missed_a_whole_term_of_another_catches_up():
    """It was cut off from the API server while the other took the Lease, bound, and gave it up."""

    async def go() -> None:
        await look(a)
        await look(b)
        for _ in range(8):
            on.time.now_s += 2.0
            on.server.fault = DOWN
            await look(a)
            await look(b)
        assert b.may_bind
        await b.release()
        on.caught_up.clear()
        await look(a)
        assert not a.may_bind
        on.caught_up.set()
        await look(a)
        assert a.may_bind

    on = stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())
    assert on.n_catch_ups == 3


def test_a_process_started_again_waits_for_the_term_of_its_predecessor():
    """A last bind of that one may still be under way."""

    async def go() -> None:
        await look(before)
        await look(after)
        assert (after.may_bind, after.other_holder, after.identity) == (False, URLS[0], URLS[0])
        on.time.now_s += DURATION_S
        await look(after)
        assert after.may_bind

    on = stage()
    before = on.replica(identity_of(URLS[0], "1"))
    after = on.replica(identity_of(URLS[0], "2"))
    asyncio.run(go())


def test_a_renewal_whose_answer_was_lost_is_found_by_reading():
    """The version that was read is not the Lease's any more."""

    async def go() -> None:
        await look(a)
        on.server.fault = LOST
        await look(a)
        on.time.now_s += 9.0
        await look(a)
        assert a.left_s == DURATION_S

    on = stage()
    a = on.replica(URLS[0])
    asyncio.run(go())


def test_two_who_meet_the_same_free_lease_share_it_in_order():
    """The second write fails, and the loser knows at once which replica to call."""

    async def go() -> None:
        await look(a)
        on.server.is_next_read_stale = True
        await look(b)
        assert (b.may_bind, b.other_holder) == (False, URLS[0])

    on = stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())
    assert "lease_error" not in on.log.events


def test_a_holder_that_loses_it_while_it_catches_up_never_begins():
    """The catching up belonged to a term that is over."""

    async def go() -> None:
        await look(a)
        on.time.now_s += 20.0
        await look(b)
        on.time.now_s += 15.0
        await look(b)
        await look(a)
        on.caught_up.set()
        await look(a)
        assert (a.may_bind, b.may_bind) == (False, True)

    on = Stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())


def test_a_released_lease_is_taken_at_once():
    """A rolling update costs no wait."""

    async def go() -> None:
        await look(a)
        await look(b)
        await a.release()
        assert not a.may_bind
        await look(b)
        assert b.may_bind
        await a.release()
        assert on.server.lease is not None
        assert on.server.lease.holder == URLS[1]

    on = stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())


def test_a_release_that_fails_is_reported():
    """The others wait for the end of the Lease then."""

    async def go() -> None:
        await look(a)
        on.server.fault = DOWN
        await a.release()

    on = stage()
    a = on.replica(URLS[0])
    asyncio.run(go())
    assert on.log.events[-1] == "lease_error"


@pytest.mark.parametrize("is_read_before_it", [False, True])
def test_a_renewal_that_is_cut_off_does_not_keep_the_lease(monkeypatch, is_read_before_it):
    """The program ends in the middle of it: it was written, or is written while we read."""

    async def go() -> None:
        await look(a)
        is_sent = asyncio.Event()
        update = on.server.update_lease

        async def unanswered(lease: Lease) -> Any:
            is_sent.set()
            await update(lease)
            await asyncio.Event().wait()

        async def read(namespace: str, name: str) -> Lease | None:
            found = await get(namespace, name)
            if found is not None and is_read_before_it and on.server.n_writes == 2:
                await update(found)
            return found

        get = on.server.get_lease
        monkeypatch.setattr(on.server, "update_lease", unanswered)
        a.may_look.set()
        await is_sent.wait()
        assert a.running is not None
        a.running.cancel()
        await asyncio.gather(a.running, return_exceptions=True)
        monkeypatch.setattr(on.server, "update_lease", update)
        monkeypatch.setattr(on.server, "get_lease", read)
        await a.release()
        assert on.server.lease is not None
        assert on.server.lease.holder == ""
        await look(b)
        assert b.may_bind

    on = stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())
    assert "lease_error" not in on.log.events


def test_waiting_ends_when_a_replica_may_bind():
    """Or after the time there is."""

    async def go() -> None:
        assert not await a.settled(within_s=0.001)
        waiting = asyncio.create_task(a.settled(within_s=20))
        await asyncio.sleep(0)
        await look(a)
        assert await waiting
        assert await b.settled(within_s=0.001) is False
        await look(b)
        assert await b.settled(within_s=0.001)

    on = stage()
    a, b = on.replica(URLS[0]), on.replica(URLS[1])
    asyncio.run(go())


def test_it_looks_often_enough_while_it_runs():
    """Several looks fit into the time in which a holder may begin."""

    async def go() -> None:
        await run_until(a.run(), lambda: on.server.n_writes >= 3)

    on = stage()
    a = on.replica(URLS[0])
    asyncio.run(go())
    assert on.time.slept[:2] == [ROUND_SHARE * DURATION_S] * 2


def test_a_server_that_hangs_does_not_hang_the_replica(monkeypatch):
    """It must notice that its term ends."""

    async def hang(_namespace: str, _name: str) -> Any:
        await asyncio.Event().wait()

    async def go() -> None:
        monkeypatch.setattr("extender.ha.lease_loop.ANSWER_SHARE", 0.0)
        monkeypatch.setattr(on.server, "get_lease", hang)
        await look(a)

    on = stage()
    a = on.replica(URLS[0])
    asyncio.run(go())
    assert on.log.lines == [{"event": "lease_error", "detail": "no answer in time"}]


ROUNDING_S = 1e-6
"""Sums of seconds in another order differ in the last digit."""
WAITS_S = (0.1, 2.0, 5.0, 9.9, 10.1, 14.9, 15.1)
"""Around the times at which something ends."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.integers(0, 2), st.just(None)),
        st.tuples(st.just("look"), st.integers(0, 2), st.sampled_from([DOWN, LOST])),
        st.tuples(st.just("wait"), st.sampled_from(WAITS_S), st.none()),
        st.tuples(st.just("release"), st.integers(0, 2), st.none()),
    ),
    min_size=10,
    max_size=60,
)


@given(STEPS)
def test_never_two_may_bind(steps):
    """In any order of looks, faults, lost answers, waits and releases, with clocks that differ.

    Nor may one begin while a bind of another, however long it was allowed, can be under way.
    """

    async def go() -> None:
        replicas = [on.replica(url, offset_s=1000.0 * i) for i, url in enumerate(URLS)]
        busy_until_s = [0.0] * len(URLS)
        for what, value, fault in steps:
            if what == "wait":
                on.time.now_s += value
            elif what == "release":
                # The program finishes its binds before it gives the Lease up.
                busy_until_s[value] = 0.0
                await replicas[value].release()
            else:
                on.server.fault = fault
                await look(replicas[value])
                on.server.fault = None
            able = [i for i, replica in enumerate(replicas) if replica.may_bind]
            assert len(able) <= 1
            for i in able:
                others = [end_s for j, end_s in enumerate(busy_until_s) if j != i]
                assert max(others) <= on.time() + ROUNDING_S
                busy_until_s[i] = on.time() + replicas[i].left_s

    on = stage()
    asyncio.run(go())


@pytest.mark.parametrize("n_replicas", [1, 2, 3])
def test_soon_a_replica_may_bind_again(n_replicas):
    """After the holder is gone for good, within its term and a look."""

    async def go() -> None:
        replicas = [on.replica(url) for url in URLS[:n_replicas]]
        await look(replicas[0])
        others = replicas[1:] or [on.replica("http://new")]
        since_s = on.time()
        while not any(one.may_bind for one in others):
            for one in others:
                await look(one)
            on.time.now_s += ROUND_SHARE * DURATION_S
        assert on.time() - since_s <= DURATION_S + 2 * ROUND_SHARE * DURATION_S

    on = stage()
    asyncio.run(go())
