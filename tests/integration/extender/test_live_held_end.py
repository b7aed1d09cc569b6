"""The end of a live extender that holds binds of a group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

from tests.integration.extender.test_live import SOON_S, run
from tests.integration.extender.test_live_pending import until_placed

if TYPE_CHECKING:
    from tests.integration.extender.test_live import Live

GRACE_S = 330
"""What the servers wait for requests at the end: a test that waits for it hangs."""
HTTP_TIMEOUT_S = 600.0
"""Binds are held for 0.6 of it: longer than the servers wait."""


async def until_held(live: Live) -> None:
    """Until a bind call waits for others."""
    async with asyncio.timeout(SOON_S):
        while True:
            if "coterie_extender_held_binds 1.0" in (await live.client.get("/metrics")).text:
                return


def test_a_bind_that_is_held_does_not_delay_the_end(tmp_path, monkeypatch):
    """Until it ends the next process does not begin; the scheduler tries the pod again."""
    monkeypatch.setattr("extender.http.server.GRACE_S", GRACE_S)
    answers: list[Any] = []
    binds: list[asyncio.Task[None]] = []

    async def bind(url: httpx.URL, body: dict[str, str]) -> None:
        async with httpx.AsyncClient(
            base_url=url, trust_env=False, timeout=HTTP_TIMEOUT_S
        ) as client:
            answers.append((await client.post("/bind", json=body)).json())

    async def act(live: Live) -> None:
        for name in ("a", "b"):
            live.create(name, 2, group="g", group_size="2")
            await live.filter(name)
        await until_placed(live, "a")
        (node,) = (await live.filter("a"))["NodeNames"]
        uid = live.api.objects["pods"]["a"]["metadata"]["uid"]
        body = {"PodNamespace": "default", "PodName": "a", "PodUID": uid, "Node": node}
        binds.append(asyncio.create_task(bind(live.client.base_url, body)))
        await until_held(live)

    times: dict[str, Any] = {"claim_s": 2 * HTTP_TIMEOUT_S, "assume_s": 3 * HTTP_TIMEOUT_S}
    times["http_timeout_s"] = HTTP_TIMEOUT_S
    run(tmp_path, act, **times)
    assert "did not come in time" in answers[0]["Error"]
    assert all(one.done() for one in binds)
