"""Jobs of a live extender: read from the API server, and what follows where that may not be."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

from extender.decision_log.replay import replay
from tests.integration.extender.test_live import SOON_S, run

if TYPE_CHECKING:
    from tests.integration.extender.fake_api import FakeApi
    from tests.integration.extender.test_live import Live

PREFIX = "batch.kubernetes.io/"
SIZE = 2


def put_job(api: FakeApi) -> None:
    """An Indexed Job of two pods."""
    spec = {"completionMode": "Indexed", "completions": SIZE, "parallelism": SIZE}
    api.put("jobs", {"metadata": {"name": "train", "uid": "0123456789"}, "spec": spec})


def forbid(api: FakeApi) -> None:
    """The same, which the extender may not read."""
    put_job(api)
    api.faults["get jobs"] = [403] * 1000


def create(live: Live, *indexes: int) -> None:
    """Create pods of the Job."""
    for index in indexes:
        made = live.create(f"train-{index}", 2)
        made["metadata"]["labels"] = {
            f"{PREFIX}job-name": "train",
            f"{PREFIX}controller-uid": "0123456789",
            f"{PREFIX}job-completion-index": str(index),
        }
        live.api.put("pods", made)


async def named(live: Live, name: str) -> list[Any]:
    """The nodes of a pod, once filter names some."""
    async with asyncio.timeout(SOON_S):
        while True:
            found: list[Any] = (await live.filter(name))["NodeNames"]
            if found:
                return found
            await asyncio.sleep(0.05)


async def counted(live: Live, result: str) -> None:
    """Wait until a Job was read with this result, once."""
    line = f'group_owner_reads_total{{result="{result}"}} 1.0'
    async with asyncio.timeout(SOON_S):
        while True:
            if line in (await live.client.get("/metrics")).text:
                return
            await asyncio.sleep(0.05)


def test_the_pods_of_a_job_wait_for_each_other(tmp_path, monkeypatch):
    """One request tells how many they are; the log shows the rest, and replays."""

    async def act(live: Live) -> None:
        create(live, 0)
        await counted(live, "sized")
        assert (await live.filter("train-0"))["NodeNames"] == []
        create(live, 1)
        await live.filter("train-1")
        for name in ("train-0", "train-1"):
            assert len(await named(live, name)) == 1

    monkeypatch.setattr("extender.groups.members.owner_sizes.AGAIN_S", 1000.0)
    file = io.StringIO()
    run(tmp_path, act, prepare=put_job, file=file, group_kinds=("indexed-job",))
    lines = file.getvalue().splitlines(keepends=True)
    assert sum('"owner_read"' in line for line in lines) == 1
    assert replay(lines).difference is None


def test_without_the_right_they_are_placed_alone_and_an_event_says_so(tmp_path):
    """One Event for the Job; its other pods go where there is room, too."""

    async def act(live: Live) -> None:
        create(live, 0)
        assert len(await named(live, "train-0")) > 1
        create(live, 1)
        assert len(await named(live, "train-1")) > 1
        await counted(live, "forbidden")
        await live.api.until(lambda: live.api.events)
        (event,) = live.api.events
        assert (event["reason"], event["involvedObject"]["name"]) == ("GroupNotInferred", "train-0")
        assert "may not get jobs.batch in namespace default" in event["message"]

    run(tmp_path, act, prepare=forbid, group_kinds=("indexed-job",))
