"""Commands as users call them, on answers that a test gives, over real HTTP."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kubectl_coterie import command_line
from tests.integration.kubectl_coterie.read_api_server import ReadApiServer
from tests.programs import called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.programs import Done


@contextmanager
def running_beside(server: Any) -> Iterator[Any]:
    """Run a server in a thread of its own: a command has an event loop itself."""
    loop = asyncio.new_event_loop()
    entered = threading.Event()
    end = asyncio.Event()

    async def serve() -> None:
        async with server.running():
            entered.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert entered.wait(60)
        yield server
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


@pytest.fixture
def beside() -> Iterator[Callable[[Any], Any]]:
    """Runs servers until the end of the test."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(running_beside(server))


@pytest.fixture
def serve(monkeypatch, tmp_path, beside):
    """Runs a read API, paths with `__` for slashes; gives what calls commands on it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def go(stream: bytes = b"", **answers: Any) -> Callable[..., Done]:
        server = ReadApiServer(**{key.replace("__", "/"): one for key, one in answers.items()})
        server.stream = stream
        beside(server)

        def call(*words: str, code: int = 0) -> Done:
            url = f"http://127.0.0.1:{server.port}"
            done = called(command_line.main, *words, "--extender-url", url)
            assert done.exit_code == code, done.output
            return done

        call.server = server  # type: ignore[attr-defined]  # what a test looks at
        return call

    return go
