"""A port of a pod at an address of this machine, over the WebSocket of the API server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket

import pytest

from kube.client import PortForward, Request, Transport, read_kubeconfig
from kube.errors import KubeError, Unanswered, Unreachable
from tests.integration.kube.forwarding_server import ForwardingServer
from tests.integration.kube.raw_server import HANG, raw_server
from tests.integration.kube.stream_server import stream_server


def upper_case():
    """A server that answers each line in capitals; gives its port."""

    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
            if line == b"leave\n":
                break

    return stream_server(serve)


async def said(port, *lines):
    """What comes back for lines sent to a port, until its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for line in lines:
        writer.write(line)
    await writer.drain()
    found = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    await asyncio.sleep(0)
    return found


def with_forward(folder, check, **forward):
    """Run `check(server, transport, port forward)` with a forwarded port 8890 of pod ns/p."""

    async def run():
        async with upper_case() as target:
            server = ForwardingServer(target)
            async with server.running():
                transport = await Transport.connect(server.kubeconfig(folder))
                try:
                    one = PortForward(transport, namespace="ns", pod="p", port=8890, **forward)
                    await check(server, one)
                finally:
                    await transport.close()

    asyncio.run(run())


def test_what_is_sent_comes_back(tmp_path):
    """Each connection of this machine has one of its own to the pod."""

    async def check(server, forward):
        async with forward:
            long = b"x" * 300_000 + b"\n"
            assert await said(forward.local_port, b"a\n", b"leave\n") == b"A\nLEAVE\n"
            assert await said(forward.local_port, long, b"leave\n") == long.upper() + b"LEAVE\n"
        path = "/api/v1/namespaces/ns/pods/p/portforward?ports=8890"
        assert server.forwarded == [path] * 3
        assert forward.fault is None

    with_forward(tmp_path, check)


def test_the_end_of_the_block_ends_connections(tmp_path, caplog):
    """A command that ends leaves no port open, no connection and no trace on standard error."""

    async def check(server, forward):
        assert server.forwarded == []
        assert forward.local_port == 0
        async with forward:
            port = forward.local_port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"a\n")
            assert await reader.readline() == b"A\n"
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        with pytest.raises(OSError, match=r"[Cc]onnect"):
            await asyncio.open_connection("127.0.0.1", port)

    with_forward(tmp_path, check)
    assert caplog.records == []


@pytest.mark.parametrize("n_turns", [0, 3, 4])
def test_connections_that_have_just_come_are_ended_too(tmp_path, n_turns):
    """In the backlog, accepted, begun: an open socket would be reported when it is collected.

    After two turns of the loop asyncio of Python 3.11 itself loses them (an assertion in
    `Server._attach`).
    """
    opened: list[socket.socket] = []

    async def check(_server, forward):
        async with forward:
            address = "127.0.0.1", forward.local_port
            opened.extend(socket.create_connection(address) for _ in range(20))
            for _ in range(n_turns):
                await asyncio.sleep(0)

    with_forward(tmp_path, check)
    for one in opened:
        one.close()
    gc.collect()


def test_a_local_client_that_leaves_ends_its_connection(tmp_path):
    """A browser closes connections that it no longer needs."""

    async def check(server, forward):
        async with forward:
            _, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            writer.write(b"a\n")
            writer.transport.abort()
            assert await said(forward.local_port, b"leave\n") == b"LEAVE\n"
        assert forward.fault is None
        assert len(server.forwarded) == 3

    with_forward(tmp_path, check)


def test_a_client_that_ends_its_sending_side_still_receives(tmp_path):
    """As `nc -N` and HTTP/1.0 clients do: the request, its end, then the answer."""
    has_ended = asyncio.Event()

    async def late(reader, writer):
        line = await reader.readline()
        await has_ended.wait()
        for _ in range(3):
            writer.write(line.upper())
            await writer.drain()

    async def check(server, forward):
        async with stream_server(late) as server.target, forward:
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            writer.write(b"a\n")
            writer.write_eof()
            for _ in range(100):  # in which the end reaches the forward, by the loopback
                await asyncio.sleep(0)
            has_ended.set()
            assert await asyncio.wait_for(reader.read(), 60) == b"A\n" * 3
            writer.close()
        assert forward.fault is None

    with_forward(tmp_path, check)


def test_a_pod_that_says_nothing_to_an_ended_client_is_left(tmp_path):
    """The client may be gone, and the protocol cannot say so to the pod."""

    async def check(_server, forward):
        async with forward:
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            writer.write(b"a\n")
            assert await reader.readline() == b"A\n"
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert forward.fault is None

    with_forward(tmp_path, check, patience_s=0.01)


def test_a_server_that_does_not_answer_ends_the_attempt(tmp_path):
    """A load balancer without a server behind it accepts connections, and says nothing."""

    async def run():
        known = ForwardingServer()
        async with raw_server(lambda _: [HANG]) as server:
            known.url = server.url
            transport = await Transport.connect(known.kubeconfig(tmp_path))
            with pytest.raises(Unanswered) as found:
                await transport.open_socket(Request("GET", "/x", 0.2), "p")
            assert found.value.reason == "Timeout"
            await transport.close()

    asyncio.run(run())


def test_credentials_that_ended_are_renewed(tmp_path):
    """As for every other request: a token lasts for an hour, a forwarded port for a day."""

    async def run():
        token = tmp_path / "token"
        second, third = "second", "third"
        token.write_text("first", encoding="utf-8")
        async with upper_case() as target:
            server = ForwardingServer(target)
            async with server.running():
                kubeconfig = server.kubeconfig(tmp_path, token_file=token)
                transport = await Transport.connect(kubeconfig)
                server.token = second
                token.write_text(second, encoding="utf-8")
                async with PortForward(transport, namespace="ns", pod="p", port=1) as forward:
                    assert await said(forward.local_port, b"leave\n") == b"LEAVE\n"
                server.token = third
                with pytest.raises(KubeError) as found:
                    await PortForward(transport, namespace="ns", pod="p", port=1).__aenter__()
                assert found.value.status == 401
                await transport.close()

    asyncio.run(run())


def test_a_refusal_is_an_error_with_its_status(tmp_path):
    """Before anything listens, so that a command can say what is missing."""

    async def check(server, forward):
        server.refuses = 403
        with pytest.raises(KubeError) as found:
            await forward.__aenter__()
        assert (found.value.status, found.value.reason) == (403, "Forbidden")

    with_forward(tmp_path, check)


def test_a_port_where_nothing_listens_is_a_fault(tmp_path):
    """The kubelet says so on the channel of errors; the local connection ends."""

    async def check(server, forward):
        async with forward:
            server.breaks = "connection refused"
            assert await said(forward.local_port, b"a\n") == b""
            # The local connection ends before the one to the pod does.
            while forward.fault is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            assert isinstance(forward.fault, Unanswered)
            assert forward.fault.detail == "connection refused"

    with_forward(tmp_path, check)


def test_a_later_refusal_is_a_fault(tmp_path):
    """A right that is taken away meanwhile."""

    async def check(server, forward):
        async with forward:
            server.refuses = 403
            assert await said(forward.local_port, b"a\n") == b""
            assert forward.fault is not None
            assert forward.fault.status == 403

    with_forward(tmp_path, check)


def test_a_port_in_use_is_an_os_error(tmp_path):
    """The user chose it, and chooses another."""

    async def run():
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        async with taken:
            server = ForwardingServer()
            async with upper_case() as server.target, server.running():
                transport = await Transport.connect(server.kubeconfig(tmp_path))
                one = PortForward(transport, namespace="ns", pod="p", port=8890, local_port=port)
                with pytest.raises(OSError, match="in use"):
                    await one.__aenter__()
                await transport.close()

    asyncio.run(run())


def test_a_server_that_is_not_there_is_unreachable(tmp_path):
    """Nothing was sent."""

    async def run():
        server = ForwardingServer()
        async with server.running():
            kubeconfig = server.kubeconfig(tmp_path)
        transport = await Transport.connect(kubeconfig)
        forward = PortForward(transport, namespace="ns", pod="p", port=8890)
        with pytest.raises(Unreachable):
            await forward.__aenter__()
        await transport.close()

    asyncio.run(run())


def test_the_namespace_of_a_context(tmp_path):
    """As kubectl takes it; empty where the context names none."""
    path = ForwardingServer().kubeconfig(tmp_path, namespace="ml")
    assert read_kubeconfig(path, None).namespace == "ml"
    assert read_kubeconfig(path, "c").namespace == "ml"
    with pytest.raises(Unreachable, match="it has no context 'other'"):
        read_kubeconfig(path, "other")
    assert read_kubeconfig(ForwardingServer().kubeconfig(tmp_path), None).namespace == ""


def test_a_kubeconfig_that_is_none_is_refused(tmp_path):
    """By its name; what it holds is not repeated."""
    path = tmp_path / "kubeconfig"
    path.write_text("token: secret", encoding="utf-8")
    with pytest.raises(Unreachable, match="kubeconfig") as found:
        read_kubeconfig(path, None)
    assert "secret" not in str(found.value)
