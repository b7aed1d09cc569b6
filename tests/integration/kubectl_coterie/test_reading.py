"""Reads that are refused, absent or broken, and the text of a pod's port."""

from __future__ import annotations

import asyncio
import io

import pytest
from aiohttp import web

from kubectl_coterie.cluster import ClusterOptions, Reading, Session
from kubectl_coterie.errors import CliError
from kubectl_coterie.terminal import Progress
from tests.integration.kube.forwarding_server import ForwardingServer
from tests.integration.kube.stream_server import stream_server

THINGS = "/apis/x/things"


def read(folder, read_it, respond=None, *, target=0):
    """What a read gives, of a server that responds so."""

    async def go():
        server = ForwardingServer(target)
        if respond is not None:
            server.answer("GET", THINGS, respond)
        async with server.running():
            options = ClusterOptions(kubeconfig=str(server.kubeconfig(folder)))
            async with Session(options, Progress(io.StringIO())) as session:
                return await read_it(Reading(session))

    return asyncio.run(go())


def says(content, status=200):
    """Responds with JSON or a text."""

    def respond(_request, _body):
        if isinstance(content, str):
            return web.Response(text=content, status=status)
        return web.json_response(content, status=status)

    return respond


REFUSED = says({"kind": "Status", "code": 403, "message": "things is forbidden"}, 403)
ABSENT = says({"kind": "Status", "code": 404, "message": "no such thing"}, 404)


def get(reading):
    """Read one object."""
    return reading.get(THINGS)


@pytest.mark.parametrize(
    "read_it",
    [get, lambda one: one.list(THINGS), lambda one: one.text(THINGS, {})],
    ids=["get", "list", "text"],
)
@pytest.mark.parametrize(
    ("respond", "missing", "is_absent"),
    [(REFUSED, "things is forbidden", False), (ABSENT, "no such thing", True)],
)
def test_a_refusal_is_a_value(tmp_path, read_it, respond, missing, is_absent):
    """In the API server's words, so that the command goes on."""
    found = read(tmp_path, read_it, respond)
    assert (found.value, found.missing, found.is_absent) == (None, missing, is_absent)


def test_an_answer_that_is_no_json_is_said(tmp_path):
    """As a proxy may give."""
    assert "expected JSON" in read(tmp_path, get, says("<html>")).missing
    found = read(tmp_path, lambda one: one.list(THINGS), says("<html>"))
    assert "expected JSON" in found.missing


def test_a_list_is_read_to_its_end_and_what_is_unwanted_left_out(tmp_path):
    """Page by page."""

    def respond(request, _body):
        is_first = "continue" not in request.query
        meta = {"resourceVersion": "1", "continue": "next" if is_first else ""}
        items = [{"n": 1}, {"n": 2}] if is_first else [{"n": 3}]
        return web.json_response({"metadata": meta, "items": items})

    def keep(one):
        return one if one["n"] != 2 else None

    found = read(tmp_path, lambda one: one.list(THINGS, keep=keep), respond)
    assert found.value == [{"n": 1}, {"n": 3}]


def test_a_port_of_a_pod_is_read_as_text(tmp_path):
    """By a port-forward of its own; what fails is a value."""

    async def serve(_reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nup\n")
        await writer.drain()

    async def go():
        async with stream_server(serve) as target:
            server = ForwardingServer(target)
            async with server.running():
                options = ClusterOptions(kubeconfig=str(server.kubeconfig(tmp_path)))
                async with Session(options, Progress(io.StringIO())) as session:
                    found = await Reading(session).pod_text("ns", "pod", 8889, "metrics")
                    assert found.value == "up\n"
                    assert server.forwarded[-1].endswith("ns/pods/pod/portforward?ports=8889")
                    server.refuses = 500
                    found = await Reading(session).pod_text("ns", "pod", 8889, "metrics")
                    assert found.value is None
                    assert "cannot forward port 8889 of pod ns/pod" in found.missing

    asyncio.run(go())


def test_an_api_server_that_is_away_ends_the_command(tmp_path):
    """There is nothing to go on with."""

    async def go():
        server = ForwardingServer()
        async with server.running():
            kubeconfig = server.kubeconfig(tmp_path)
        options = ClusterOptions(kubeconfig=str(kubeconfig))
        async with Session(options, Progress(io.StringIO())) as session:
            with pytest.raises(CliError, match="cannot be reached"):
                await get(Reading(session))

    asyncio.run(go())
