"""What is written in one turn of the loop leaves together, in order, and nothing stays behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from extender.one_write import JoinedWrites

if TYPE_CHECKING:
    from collections.abc import Callable


class Wire:
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        """Take a piece."""
        self.told.append(data)

    def close(self) -> None:
        """Take the end."""
        self.told.append("close")

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return "close" in self.told

    def get_extra_info(self, name: str) -> str:
        """Something that is only handed on."""
        return f"{name}?"


def told(act: Callable[[JoinedWrites, Wire], None]) -> list[bytes | str]:
    """What a transport was told in one turn of the loop and the next."""

    async def go() -> list[bytes | str]:
        wire = Wire()
        transport = cast("asyncio.Transport", wire)
        act(JoinedWrites(transport, asyncio.get_running_loop()), wire)
        await asyncio.sleep(0)
        return wire.told

    return asyncio.run(go())


def test_a_head_and_a_body_are_one_write():
    """At once: the caller does not wait for the turn to end."""

    def act(joined: JoinedWrites, wire: Wire) -> None:
        joined.write(b"head ")
        assert wire.told == []
        joined.write(b"body")
        assert wire.told == [b"head body"]

    assert told(act) == [b"head body"]


def test_what_nothing_follows_leaves_with_the_turn():
    """An answer without a body, or the last piece of one."""

    def act(joined: JoinedWrites, _wire: Wire) -> None:
        for piece in (b"1", b"2", b"3"):
            joined.write(piece)

    assert told(act) == [b"12", b"3"]


def test_what_is_held_goes_before_the_end():
    """An answer with Connection: close."""

    def act(joined: JoinedWrites, _wire: Wire) -> None:
        joined.write(b"last")
        joined.close()

    assert told(act) == [b"last", "close"]


def test_nothing_is_written_to_a_connection_that_is_lost():
    """The caller hung up between an answer's head and its body."""

    def act(joined: JoinedWrites, wire: Wire) -> None:
        joined.write(b"head")
        wire.close()

    assert told(act) == ["close"]


def test_everything_else_is_the_transports_own():
    """Addresses, TLS, pausing."""

    def act(joined: JoinedWrites, _wire: Wire) -> None:
        assert joined.get_extra_info("peername") == "peername?"

    assert told(act) == []
