"""Calls of a vendor's library as lines of JSON, one object each.

call        the function's name
arguments   in order; absent where the library lacks the function:
            a number, a text or null        as given
            {"handle": n}                   a handle, numbered as the library gave them
            {"size": bytes, ...}            memory, by these fields; zeros at the end left out:
              "before"                      its bytes before the call, in hexadecimal
              "bytes", or "text"            after it; `text` where it is characters
              "handles"                     [offset, n] of the handles in it after the call
code        what the call returned (NVML: nvmlReturn_t), null where it has not returned
us          how long it took, microseconds
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from plugin.machine import HandleArgument, Memory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.machine import Argument, LibraryCall
    from plugin.record.redaction import Redaction

__all__ = ["call_lines"]


def call_lines(calls: Iterable[LibraryCall], redaction: Redaction) -> str:
    """The calls, redacted, each on a line of its own."""
    return "".join(f"{json.dumps(_body(call, redaction))}\n" for call in calls)


def _body(call: LibraryCall, redaction: Redaction) -> dict[str, object]:
    if call.arguments is None:
        return {"call": call.name}
    arguments = [_argument(one, redaction) for one in call.arguments]
    return {"call": call.name, "arguments": arguments, "code": call.code, "us": call.micros}


def _argument(argument: Argument, redaction: Redaction) -> object:
    match argument:
        case HandleArgument():
            return {"handle": argument.number}
        case Memory():
            return _memory(argument, redaction)
        case str():
            return redaction.text(argument)
        case _:
            return argument


def _memory(memory: Memory, redaction: Redaction) -> dict[str, object]:
    body: dict[str, object] = {"size": len(memory.after)}
    before = memory.before.rstrip(b"\0")
    if before:
        body["before"] = redaction.octets(memory.before, memory.uuids).rstrip(b"\0").hex()
    after = redaction.octets(memory.after, memory.uuids).rstrip(b"\0")
    text = _printable(after) if memory.is_text else None
    if text is not None:
        body["text"] = text
    elif after:
        body["bytes"] = after.hex()
    if memory.handles:
        body["handles"] = [list(one) for one in memory.handles]
    return body


def _printable(octets: bytes) -> str | None:
    """Characters of ASCII that JSON and a person can read; None for others."""
    text = octets.decode("ascii", errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else None
