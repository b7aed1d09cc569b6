"""The stream of changes and the history."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from extender.read_api import read_api as read_api_module
from extender.read_api.over_time import changes as changes_module
from extender.read_api.over_time.changes import MAX_CLIENTS
from extender.read_api.over_time.history import MAX_MACHINES, MAX_POINTS
from tests.unit.extender.engines import engine
from tests.unit.extender.read_api.served import ServedReads
from tests.virtual_time import run_at_once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NODES = ["8x-l4-0", "dgx-1-v100-0", "dgx-1-v100-1"]


@pytest.fixture
def served() -> ServedReads:
    """Two V100 machines and one without NVLink."""
    return ServedReads(engine())


def data_of(event: bytes) -> Any:
    """The data of an event."""
    name, number, data, *rest = event.decode().split("\n")
    assert (name, rest) == ("event: change", ["", ""])
    content = json.loads(data.removeprefix("data: "))
    assert number == f"id: {content['generation']}"
    return content


async def next_data(events: AsyncIterator[bytes]) -> Any:
    """The data of the next event."""
    return data_of(await anext(events))


async def opened(served: ServedReads) -> AsyncIterator[bytes]:
    """The events of a new stream."""
    client = await served.api.changes.open()
    assert client is not None
    return served.api.changes.events(client)


def bind(served: ServedReads, n_gpus: int, uid: str, node: str) -> None:
    """A pod is placed, from inside a running loop."""
    served.engine.answer(*served.filter_call(n_gpus, uid, [node]), 0.0)
    served.engine.answer(*served.bind_call(uid, node), 0.0)


def raise_it(error: Exception) -> None:
    """No fault is expected."""
    raise error


def test_a_stream_begins_with_the_generation_and_names_what_changed(served):
    """Two changes between two looks are one event."""

    async def go() -> list[Any]:
        events = await opened(served)
        first = await next_data(events)
        bind(served, 2, "u1", "8x-l4-0")
        bind(served, 2, "u2", "dgx-1-v100-0")
        await served.api.changes.look()
        second = await next_data(events)
        served.engine.answer(*served.filter_call(9, "u3", NODES), 0.0)
        await served.api.changes.look()
        return [first, second, await next_data(events)]

    first, second, third = asyncio.run(go())
    assert (first["nodes"], first["pending"]) == ([], False)
    assert (second["nodes"], second["pending"]) == (["8x-l4-0", "dgx-1-v100-0"], False)
    assert second["generation"] > first["generation"]
    assert (third["nodes"], third["pending"]) == ([], True)


def test_a_slow_client_gets_one_event_for_all(served):
    """Not one for each look: nothing queues up."""

    async def go() -> tuple[Any, bool]:
        events = await opened(served)
        await next_data(events)
        for uid, node in (("u1", "8x-l4-0"), ("u2", "dgx-1-v100-0"), ("u3", "8x-l4-0")):
            bind(served, 1, uid, node)
            await served.api.changes.look()
        event = await next_data(events)
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        is_waiting = not following.done()
        following.cancel()
        return event, is_waiting

    event, is_waiting = asyncio.run(go())
    assert (event["nodes"], is_waiting) == (["8x-l4-0", "dgx-1-v100-0"], True)


def test_a_quiet_stream_sends_comments(served, monkeypatch):
    """So that no proxy takes the connection for idle."""
    monkeypatch.setattr(changes_module, "COMMENT_EVERY_S", 0.01)

    async def go() -> bytes:
        events = await opened(served)
        await next_data(events)
        await served.api.changes.look()
        return await anext(events)

    assert asyncio.run(go()).startswith(b": ")


def test_streams_are_bounded(served):
    """The next one is refused until one is closed."""

    async def go() -> tuple[list[bool], int]:
        streams = [await opened(served) for _ in range(MAX_CLIENTS)]
        for one in streams:
            await anext(one)
        refused = await served.api.changes.open() is None
        await streams[0].aclose()  # type: ignore[attr-defined]
        return [refused, await served.api.changes.open() is None], served.api.changes.n_clients

    assert asyncio.run(go()) == ([True, False], MAX_CLIENTS)


def test_a_refused_stream_is_a_problem(served, monkeypatch):
    """503, not a stream without events."""
    monkeypatch.setattr(changes_module, "MAX_CLIENTS", 0)
    response = served.call("/api/v1/changes")
    assert (response.status_code, "streams of changes" in response.json()["detail"]) == (503, True)


def test_streams_end_with_the_server(served):
    """It waits for its responses."""

    async def go() -> list[bytes]:
        events = await opened(served)
        served.api.changes.end()
        return [one async for one in events]

    assert asyncio.run(go()) == []
    assert served.api.changes.n_clients == 0


def test_changes_are_looked_for_while_there_are_clients(served, monkeypatch):
    """By the API's own task."""
    monkeypatch.setattr(changes_module, "INTERVAL_S", 0.001)

    async def go() -> Any:
        task = asyncio.create_task(served.api.run(raise_it))
        events = await opened(served)
        await next_data(events)
        bind(served, 1, "u1", "8x-l4-0")
        found = await next_data(events)
        task.cancel()
        return found

    assert asyncio.run(go())["nodes"] == ["8x-l4-0"]


def add_points(served: ServedReads, *times_s: float) -> None:
    """Points at these times."""
    for at_s in times_s:
        served.now_s = at_s
        asyncio.run(served.api.add_to_history())


def test_history_has_a_point_of_each_machine_type(served):
    """What was free, stranded and placeable, and how good the sets in use were."""
    add_points(served, 1060.0)
    served.place(4, "u1", "dgx-1-v100-0")
    add_points(served, 1120.0)
    content = served.get("history")
    assert (content["began_unix_s"], content["interval_s"], content["lost_at_restart"]) == (
        1000.0,
        60,
        True,
    )
    by_name = {one["machine"]: one["points"] for one in content["machines"]}
    assert by_name["8x-l4"] == [[1060, 8, 0, 4, 2, 1, None], [1120, 8, 0, 4, 2, 1, None]]
    assert by_name["dgx-1-v100"] == [[1060, 16, 0, 8, 4, 2, None], [1120, 12, 0, 6, 3, 1, 1.0]]
    (l4, _) = served.get("history?since_unix_s=1061")["machines"]
    assert l4["points"] == [[1120, 8, 0, 4, 2, 1, None]]


def test_machine_types_of_one_topology_have_points_of_their_own():
    """As capacity lists them: one is full while the other is free."""
    pools = ({"count": n, "machine": "dgx-h100", "name": name} for name, n in (("a", 1), ("b", 2)))
    served = ServedReads(engine(*pools))
    served.place(8, "u1", "b-0")
    add_points(served, 1060.0)
    free = {one["machine"]: one["points"][0][1] for one in served.get("history")["machines"]}
    assert free == {"a": 8, "b": 8}
    keys = [
        [(one["machine"], one["topology"], one["resource"]) for one in served.get(path)["machines"]]
        for path in ("history", "capacity")
    ]
    assert keys[0] == keys[1]
    assert len({topology for _, topology, _ in keys[0]}) == 1


def test_history_is_bounded(served):
    """The oldest point goes; a machine type without any goes too."""
    week_s = MAX_POINTS * 60.0
    add_points(served, 1000.0, 2000.0, 1000.0 + week_s)
    points = [[p[0] for p in one["points"]] for one in served.get("history")["machines"]]
    assert points == [[1000, 2000, 1000 + week_s]] * 2
    add_points(served, 1001.0 + week_s)
    points = [[p[0] for p in one["points"]] for one in served.get("history")["machines"]]
    assert points == [[2000, 1000 + week_s, 1001 + week_s]] * 2
    assert MAX_MACHINES * MAX_POINTS * 7 * 8 < 40e6


def test_an_unchanged_history_is_not_sent_again(served):
    """A client that draws it each second gets a point a minute."""
    add_points(served, 1060.0)
    tag = served.call("/api/v1/history").headers["etag"]
    assert served.call("/api/v1/history", if_none_match=tag).status_code == 304
    add_points(served, 1120.0)
    assert served.call("/api/v1/history", if_none_match=tag).status_code == 200


def test_history_begins_when_the_state_is_complete(served, monkeypatch):
    """What is not known yet is not free."""
    looked = asyncio.Event()
    refresh = served.api.add_to_history

    async def add() -> None:
        await refresh()
        looked.set()

    monkeypatch.setattr(served.api, "add_to_history", add)
    served.engine.cluster.set_freshness(is_synced=False, observed_at_s=None)

    async def go() -> tuple[int, int]:
        task = asyncio.create_task(served.api.run(raise_it))
        await asyncio.sleep(10 * read_api_module.NOT_READY_S)
        before = int(served.api.history.revision)
        served.engine.cluster.set_freshness(is_synced=True, observed_at_s=None)
        await looked.wait()
        task.cancel()
        return before, int(served.api.history.revision)

    assert run_at_once(go()) == (0, 1)


def test_a_fault_is_reported_and_the_tasks_begin_again(served, monkeypatch):
    """It must not end the extender, which places pods."""
    monkeypatch.setattr(read_api_module, "AGAIN_S", 0.0)
    found: list[str] = []
    is_added = asyncio.Event()
    look = served.api.add_to_history

    async def fail_once() -> None:
        if not found:
            msg = "broken"
            raise RuntimeError(msg)
        await look()
        is_added.set()

    monkeypatch.setattr(served.api, "add_to_history", fail_once)

    async def go() -> None:
        task = asyncio.create_task(served.api.run(lambda error: found.append(repr(error))))
        await is_added.wait()
        task.cancel()

    asyncio.run(go())
    assert len(found) == 1
    assert "broken" in found[0]
