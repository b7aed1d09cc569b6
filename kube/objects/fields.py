"""Fields of JSON objects, with their types checked.

Returns the value under a key, or raises `Unreadable` with the key's path, the value there and what
is expected. Absent and null are the same, as they are to the API server. Unknown keys are ignored,
so that later versions of Kubernetes may add fields.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, cast

from kube.errors import Unreadable
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "as_object",
    "choice_at",
    "list_at",
    "needed_at",
    "object_at",
    "objects_at",
    "parse_object",
    "text_at",
    "texts_at",
    "whole_at",
]

E = TypeVar("E", bound=Enum)

_NO_OBJECT: Mapping[str, object] = {}


def parse_object(text: str | bytes) -> Mapping[str, object]:
    """Read a JSON text that is one object. Raises `Unreadable`."""
    try:
        return as_object(json.loads(text), "body")
    except (ValueError, RecursionError) as error:
        msg = f"body is {quote(text[:100])}, expected JSON: {error}"
        raise Unreadable(msg) from error


def as_object(value: object, where: str) -> Mapping[str, object]:
    """Take a JSON value as an object. Raises `Unreadable`."""
    if not isinstance(value, dict):
        msg = f"{where} is {quote(value)}, expected an object"
        raise Unreadable(msg)
    return cast("dict[str, object]", value)


def object_at(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under a key; empty where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    return _NO_OBJECT if value is None else as_object(value, key)


def list_at(parent: Mapping[str, object], key: str) -> Sequence[object]:
    """The list under a key; empty where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        msg = f"{key} is {quote(value)}, expected a list"
        raise Unreadable(msg)
    return cast("list[object]", value)


def objects_at(parent: Mapping[str, object], key: str) -> Iterator[Mapping[str, object]]:
    """Each object of the list under a key. Raises `Unreadable`."""
    for one in list_at(parent, key):
        yield as_object(one, f"{key}[]")


def text_at(parent: Mapping[str, object], key: str) -> str:
    """The string under a key; empty where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        msg = f"{key} is {quote(value)}, expected a string"
        raise Unreadable(msg)
    return value


def needed_at(parent: Mapping[str, object], key: str, *, where: str = "") -> str:
    """The string under a key that must be there; `where` names the parent. Raises `Unreadable`."""
    value = text_at(parent, key)
    if not value:
        msg = f"{where}{key} is absent or empty, expected a string"
        raise Unreadable(msg)
    return value


def choice_at(parent: Mapping[str, object], key: str, members: type[E]) -> E:
    """The member of a closed set under a key that must be there. Raises `Unreadable`."""
    value = text_at(parent, key)
    chosen = next((member for member in members if member.value == value), None)
    if chosen is None:
        expected = ", ".join(str(member.value) for member in members)
        msg = f"{key} is {quote(value)}, expected one of: {expected}"
        raise Unreadable(msg)
    return chosen


def whole_at(parent: Mapping[str, object], key: str) -> int:
    """The whole number under a key; 0 where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{key} is {quote(value)}, expected a whole number"
        raise Unreadable(msg)
    return value


def texts_at(parent: Mapping[str, object], key: str) -> Mapping[str, str]:
    """The object of strings under a key (labels, annotations). Raises `Unreadable`."""
    found = object_at(parent, key)
    for name, value in found.items():
        if not isinstance(value, str):
            msg = f"{key}[{quote(name)}] is {quote(value)}, expected a string"
            raise Unreadable(msg)
    return cast("Mapping[str, str]", found)
