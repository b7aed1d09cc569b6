"""The answers of list and watch, read piece by piece.

Yields the items of a page of a list, one at a time, and reads the event in one line of a watch.
Decoding a page of some hundred Nodes at once takes tens of milliseconds and would block the event
loop for as long (the decoder holds the GIL, so that a thread would not help); here the reader can
yield to the loop after each item.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kube.errors import Malformed, Unreadable, cut, error_of
from topology.model import as_object, object_at, parse_object, text_at

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

__all__ = ["Page", "WatchEvent", "read_event"]

_BLANK = re.compile(r"[ \t\n\r]*")
_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode


class Page:
    """One page of a list.

    Iterate once, to the end; then `resource_version` and `continue_token` (empty on the last page)
    hold what its metadata say, wherever in the text they stand. Raises `Malformed`.

    >>> page = Page(b'{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":2}]}')
    >>> list(page), page.resource_version, page.continue_token
    ([{'a': 1}, {'a': 2}], '7', '')
    """

    def __init__(self, body: bytes) -> None:
        self._text = body.decode(errors="replace")
        self.resource_version = ""
        self.continue_token = ""

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        try:
            yield from self._read()
        except (ValueError, IndexError, RecursionError, Unreadable) as error:
            msg = cut(f"list answer of {len(self._text)} characters, expected JSON: {error}")
            raise Malformed(0, "Malformed", msg) from error
        if not self.resource_version:
            raise Malformed(0, "Malformed", "list answer without metadata.resourceVersion")

    def _read(self) -> Iterator[Mapping[str, object]]:
        at = self._after("{", 0)
        while not self._is_at("}", at):
            key, at = _decode(self._text, self._start(at))
            at = self._after(":", at)
            if key == "items" and self._is_at("[", at):
                at = yield from self._items(self._after("[", at))
            else:
                value, at = _decode(self._text, self._start(at))
                self._keep(key, value)
            if self._is_at(",", at):
                at = self._after(",", at)

    def _items(self, at: int) -> Generator[Mapping[str, object], None, int]:
        while not self._is_at("]", at):
            item, at = _decode(self._text, self._start(at))
            yield as_object(item, "items[]")
            if self._is_at(",", at):
                at = self._after(",", at)
        return self._after("]", at)

    def _keep(self, key: object, value: object) -> None:
        if key == "metadata":
            meta = as_object(value, "metadata")
            self.resource_version = text_at(meta, "resourceVersion")
            self.continue_token = text_at(meta, "continue")

    def _start(self, at: int) -> int:
        return cast("re.Match[str]", _BLANK.match(self._text, at)).end()

    def _is_at(self, mark: str, at: int) -> bool:
        return self._text[self._start(at)] == mark

    def _after(self, mark: str, at: int) -> int:
        start = self._start(at)
        if self._text[start] != mark:
            msg = f"{self._text[start]!r} at {start}, expected {mark!r}"
            raise ValueError(msg)
        return start + 1


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch. `kind` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    content: Mapping[str, object]
    resource_version: str


_KINDS = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


def read_event(line: bytes) -> WatchEvent:
    """Read one line of a watch.

    Raises the error that a line of type ERROR carries, `Malformed` for what is no event.
    """
    try:
        event = parse_object(line)
        kind, content = text_at(event, "type"), object_at(event, "object")
        if kind == "ERROR":
            raise error_of(content)
        version = text_at(object_at(content, "metadata"), "resourceVersion")
    except Unreadable as error:
        raise Malformed(0, "Malformed", cut(f"watch line: {error}")) from error
    if kind not in _KINDS or not version:
        msg = cut(f"watch line of type {kind!r} with resourceVersion {version!r}")
        raise Malformed(0, "Malformed", msg)
    return WatchEvent(kind, content, version)
