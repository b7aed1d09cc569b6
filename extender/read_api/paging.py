"""Pages of lists: a part of the items, in order, and where the next part begins.

The next page begins behind the last item by its key, so that items which come and go between two
pages move no other item. A list is bytes of items that are JSON already.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.errors import QueryError
from extender.read_api.bodies import ListPage
from extender.read_api.encoding import encoder, joined, spliced
from extender.read_api.pacing import batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "ItemsPage", "decode_continue", "encode_continue"]

DEFAULT_LIMIT, MAX_LIMIT = 500, 5000
CHUNK_ITEMS = 32
"""Items sent at a time: some 50 KB of nodes, or 150 KB of the pods of as many nodes."""

_encode = encoder(ListPage[None])


@dataclass(frozen=True, slots=True)
class ItemsPage:
    """Items of one generation. `last` is the key of the last one, None where no more follow.

    `n_remaining` counts those that follow.
    """

    generation: int
    items: Sequence[bytes]
    last: str | None = None
    n_remaining: int = 0

    def chunks(self) -> Iterator[bytes]:
        """The page as JSON, in parts."""
        page: ListPage[None] = {
            "generation": self.generation,
            "items": [],
            "continue": None if self.last is None else encode_continue(self.last),
            "remaining": self.n_remaining,
        }
        chunks = map(b",".join, batches(self.items, CHUNK_ITEMS))
        return spliced(_encode(page), "items", joined(chunks))


def encode_continue(key: str) -> str:
    """Write the key of a page's last item as the query's `continue`.

    >>> decode_continue(encode_continue("node-1"))
    'node-1'
    """
    return urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_continue(token: str) -> str:
    """Read it. Raises `QueryError` for what no page gave."""
    try:
        return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    except (Base64Error, ValueError) as error:
        msg = "query parameter continue is no value that a page of this list gave as `continue`"
        raise QueryError(msg) from error
