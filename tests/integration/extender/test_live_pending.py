"""The watches of pending pods of a live extender: groups alone wait for them."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

from tests.integration.extender.test_live import NODES, SOON_S, run

if TYPE_CHECKING:
    from tests.integration.extender.fake_api import FakeApi
    from tests.integration.extender.test_live import Live


async def until_placed(live: Live, name: str) -> None:
    """Until filter names a node for a member."""
    async with asyncio.timeout(SOON_S):
        while True:
            if (await live.filter(name))["NodeNames"]:
                return


def test_pods_without_a_group_wait_for_no_pending_pods(tmp_path):
    """Where those cannot be listed groups wait, and nothing else does; the log has members only."""

    def prepare(api: FakeApi) -> None:
        api.faults["spec.schedulerName="] = [403] * 10_000

    async def act(live: Live) -> None:
        await live.place("p", 2, NODES[0].name)
        for name in ("a", "b"):
            live.create(name, 2, group="g", group_size="2")
            assert (await live.filter(name))["NodeNames"] == []
        metrics = (await live.client.get("/metrics")).text
        assert 'watch_last_heard_timestamp_seconds{source="pending_pods"} 0.0' in metrics
        live.api.faults.clear()
        await until_placed(live, "a")

    file = io.StringIO()
    run(tmp_path, act, prepare=prepare, file=file)
    seen = [line for line in file.getvalue().splitlines() if "PendingUpdated" in line]
    assert seen
    assert not [line for line in seen if "uid-default-p" in line]


def test_pending_pods_of_several_schedulers_are_watched(tmp_path):
    """A watch for each: their members are placed, and their pods shown."""

    async def act(live: Live) -> None:
        for name in ("a", "b"):
            live.create(name, 2, scheduler="second", group="g", group_size="2")
            await live.filter(name)
        await until_placed(live, "a")
        metrics = (await live.client.get("/metrics")).text
        for name in ("coterie-scheduler", "second"):
            assert f'watch_lists_total{{source="pending_pods/{name}"}} 1.0' in metrics

    run(tmp_path, act, scheduler_names=("coterie-scheduler", "second"))


def test_a_rejected_pod_that_was_deleted_waits_no_longer(tmp_path):
    """Its end is no event of an assigned pod; metrics would show it for a quarter of an hour."""

    async def act(live: Live) -> None:
        live.create("p", 9)
        assert (await live.filter("p"))["NodeNames"] == []
        assert (await live.known(lambda s: s["unschedulable"]))["unschedulable"]
        live.api.delete("pods", "p")
        await live.known(lambda s: not s["unschedulable"])

    run(tmp_path, act)


def test_a_pod_that_was_not_offered_is_shown_until_it_is_gone(tmp_path):
    """kube-scheduler may find no node for it and call no extender."""

    async def act(live: Live) -> None:
        async def shown() -> list[str]:
            pods = (await live.client.get("/api/v1/pending")).json()["items"]
            return [one["reason_label"] for one in pods]

        async def until(expected: list[str]) -> None:
            async with asyncio.timeout(SOON_S):
                while await shown() != expected:
                    await live.known(lambda _: True)

        live.create("p", 2)
        await until(["not_offered"])
        live.api.delete("pods", "p")
        await until([])

    run(tmp_path, act)
