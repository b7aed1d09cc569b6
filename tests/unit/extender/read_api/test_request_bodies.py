"""Bodies of the read API's POST routes: no client holds the event loop, or what-if's places."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from extender.http.responses import Problem
from extender.read_api.routes import MAX_BODY_BYTES, MAX_VALUES
from extender.read_api.what_if import MAX_WAITING
from tests.unit.extender.engines import engine
from tests.unit.extender.pods import pod
from tests.unit.extender.read_api.served import ServedReads
from tests.virtual_time import run_at_once
from tests.work import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WHAT_IF, EXPLAIN = "/api/v1/what-if", "/api/v1/explain"
LONGEST_TURN = 20 * MAX_VALUES
"""In calls, that is so many for each value of a body; each takes some 0.1 µs."""


@pytest.fixture
def served() -> ServedReads:
    """A small cluster: the bodies are what takes time."""
    return ServedReads(engine())


def filled(text: str, item: str, most: int = MAX_VALUES - 50) -> bytes:
    """A body with as many items as go in, between those of `text` at `@`; `#` is their number."""
    room = MAX_BODY_BYTES - len(text)
    n_values = item.count(",") + item.count("{") + item.count("[") + 1
    size = len(item.replace("#", "00000")) + 1
    n_items = min(most // n_values, room // size)
    items = (item.replace("#", f"{i:05}") for i in range(n_items))
    return text.replace("@", ",".join(items)).encode()


def manifest(inner: str) -> str:
    """A pod whose containers, or what else of its spec, are `inner`."""
    return f'{{"metadata":{{"name":"a"}},"spec":{{{inner}}}}}'


HOSTILE = {
    "empty pods": ('{"pods":[@]}', "{}"),
    "numbers for pods": ('{"pods":[@]}', "1"),
    "numbers for nodes": ('{"drain":[@]}', "1"),
    "empty machines": ('{"add":[@]}', "{}"),
    "unknown fields": ("{@}", '"#":1'),
    "unknown fields of a pod": ('{"pods":[{@}]}', '"#":1'),
    "empty manifests": ('{"pods":[@]}', '{"manifest":{}}'),
    "manifests": (
        '{"pods":[@]}',
        json.dumps({"manifest": pod(2, uid="#")}, separators=(",", ":")),
    ),
}
PODS = {
    "empty containers": (manifest('"containers":[@]'), "{}"),
    "numbers for containers": (manifest('"containers":[@]'), "1"),
    "containers": (manifest('"containers":[@]'), '{"name":"#"}'),
    "containers with GPUs": (
        manifest('"containers":[@]'),
        '{"name":"#","resources":{"limits":{"nvidia.com/gpu":1}}}',
    ),
    "quantities": (
        manifest('"containers":[{"name":"a","resources":{"limits":{@}}}]'),
        '"#":1',
    ),
    "lists for quantities": (
        manifest('"containers":[{"name":"a","resources":{"limits":{@}}}]'),
        '"#":[]',
    ),
    "numbers for constraints": (manifest('"topologySpreadConstraints":[@]'), "1"),
    "numbers for annotations": ('{"metadata":{"annotations":{@}},"spec":{}}', '"#":1'),
    "numbers for owners": ('{"metadata":{"ownerReferences":[@]},"spec":{}}', "1"),
    "empty lists": ('{"metadata":{},"x":[@]}', "[]"),
    "long numbers": ('{"metadata":{},"x":[@]}', "9" * 4000),
}


def longest_turn(served: ServedReads, path: str, body: bytes) -> tuple[int, int]:
    """The calls of the longest turn of the event loop while a body is answered, and the status."""

    async def go() -> int:
        transport = httpx.ASGITransport(app=served.read_app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            await client.post(path, content=b"{}")  # imports, and the state's first walk
            with turns.counting():
                return (await client.post(path, content=body)).status_code

    turns = Turns()
    status = run_at_once(go(), at_turn=turns.end)
    return turns.longest, status


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_question_holds_the_event_loop_for_some_milliseconds(served, case):
    """Filter and bind wait for it: the route is open to whoever reaches the port."""
    longest, status = longest_turn(served, WHAT_IF, filled(*HOSTILE[case]))
    assert status in {200, 400}
    assert longest < LONGEST_TURN


@pytest.mark.parametrize("case", PODS)
def test_a_hostile_manifest_holds_the_event_loop_for_some_milliseconds(served, case):
    """Of a what-if, and of a pod to explain."""
    body = filled(*PODS[case])
    longest, status = longest_turn(served, EXPLAIN, body)
    assert status in {200, 400}
    assert longest < LONGEST_TURN
    question = b'{"pods":[{"manifest":%b}]}' % body
    longest, status = longest_turn(served, WHAT_IF, question)
    assert status in {200, 400, 413}
    assert longest < LONGEST_TURN


def refusal(served: ServedReads, path: str, content: bytes) -> Problem:
    """What is wrong with a body."""
    response = served.call(path, method="POST", content=content, app=served.read_app)
    problem = Problem.model_validate(response.json())
    assert response.status_code == problem.status
    return problem


@pytest.mark.parametrize("path", [WHAT_IF, EXPLAIN])
def test_a_body_without_end_is_not_read_to_its_end(served, path):
    """Nor is it decoded; the verbs' own limit is for thousands of node names."""
    problem = refusal(served, path, b" " * (MAX_BODY_BYTES + 1))
    assert (problem.status, problem.detail) == (413, f"body is over {MAX_BODY_BYTES} bytes")


@pytest.mark.parametrize("path", [WHAT_IF, EXPLAIN])
def test_a_body_of_short_values_is_not_decoded(served, path):
    """It is small, and takes as long as a large one."""
    problem = refusal(served, path, b"[" + b"{}," * MAX_VALUES + b"{}]")
    assert problem.status == 413
    assert problem.detail == "body has over 10000 values, expected fewer or shorter manifests"


def test_a_what_if_has_a_place_before_its_body_is_read(served):
    """Bodies of those that are refused take no memory; one that does not arrive gives its up."""
    content = json.dumps({"pods": [{"manifest": pod(2)}]}).encode()
    begun: list[None] = []

    async def slow(all_begun: asyncio.Event) -> AsyncIterator[bytes]:
        begun.append(None)
        if len(begun) == MAX_WAITING:
            all_begun.set()
        yield content[:10]
        await asyncio.Event().wait()

    async def go() -> list[Any]:
        transport = httpx.ASGITransport(app=served.read_app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            full = asyncio.Event()
            waiting = [
                asyncio.create_task(client.post(WHAT_IF, content=slow(full)))
                for _ in range(MAX_WAITING)
            ]
            await full.wait()
            refused = await client.post(WHAT_IF, content=slow(full))
            late = await asyncio.gather(*waiting)
            return [refused, *late, await client.post(WHAT_IF, content=content)]

    refused, *late, last = run_at_once(go())
    assert (refused.status_code, len(begun)) == (503, MAX_WAITING)
    assert {one.status_code for one in late} == {408}
    assert late[0].json()["detail"].startswith("body did not arrive in")
    assert last.status_code == 200
