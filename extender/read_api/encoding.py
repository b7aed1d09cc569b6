"""JSON from the types of bodies: whole values, and values of which a part is encoded already.

Entries of nodes, pods and groups are encoded once and kept, so that a list is put together from
their bytes in turns (`extender.read_api.pacing`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["encoder", "joined", "merged", "spliced"]

T = TypeVar("T")


def encoder(body: type[T]) -> Callable[[T], bytes]:
    """What encodes values of a type as JSON, in ASCII.

    Twice as fast as `json.dumps`: 34 against 61 microseconds to make and encode a node of 8 GPUs.
    """
    adapter = TypeAdapter(body)
    adapter.rebuild()  # bodies that routes describe put it off
    return partial(adapter.dump_json, ensure_ascii=True)


def merged(first: bytes, second: bytes) -> bytes:
    """One object with the fields of two, neither of them empty.

    >>> merged(b'{"a":1}', b'{"b":2}')
    b'{"a":1,"b":2}'
    """
    return b"%s,%s" % (first[:-1], second[1:])


def joined(items: Iterable[bytes]) -> Iterator[bytes]:
    """Items, each but the first after a comma."""
    for i, item in enumerate(items):
        yield b"," + item if i else item


def spliced(body: bytes, key: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """An object whose list `key` is empty, in parts, with these chunks as the list's content.

    >>> b"".join(spliced(b'{"n":2,"items":[],"next":null}', "items", [b"{}", b",{}"]))
    b'{"n":2,"items":[{},{}],"next":null}'
    """
    # No string of JSON has this text, since its quotes are escaped there.
    head, tail = body.split(b'"%s":[]' % key.encode())
    yield b'%s"%s":[' % (head, key.encode())
    yield from chunks
    yield b"]" + tail
