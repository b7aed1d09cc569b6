"""Strict reading of keyed values that come from outside, with their place for messages.

What it answers: is the value at this place of the kind that was expected? Every failure is one
sentence with the place, the value and the expectation. It never knows a format:
`topology.model.codec` (JSON), `topology.recordings` (TOML) and the plugin's YAML files do.

A `Field` refuses null, knows its whole place and raises the caller's own error. The functions read
objects of the Kubernetes API and raise `Unreadable`: there null and absence are the same, unknown
keys are fine, and a list of 5,000 nodes must not make an object for each value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from topology.errors import Unreadable, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "Field",
    "as_object",
    "choice_at",
    "list_at",
    "needed_at",
    "object_at",
    "objects_at",
    "text_at",
    "texts_at",
    "whole_at",
]

E = TypeVar("E", bound=Enum)

MAX_INTEGER = 2**63 - 1
"""Largest integer that a field may hold (int64, as in Go and protobuf readers)."""

_NO_OBJECT: Mapping[str, object] = {}


def _refuse(value: object, where: str, expected: str, error: type[Exception]) -> NoReturn:
    msg = f"{where or 'the text'} is {quote(value)}, expected {expected}"
    raise error(msg)


def as_object(
    value: object, where: str, error: type[Exception] = Unreadable
) -> Mapping[str, object]:
    """Take a value as an object. Raises `error`."""
    if not isinstance(value, dict):
        _refuse(value, where, "an object", error)
    return cast("dict[str, object]", value)


def _as_list(value: object, where: str, error: type[Exception]) -> Sequence[object]:
    if not isinstance(value, list):
        _refuse(value, where, "an array", error)
    return cast("list[object]", value)


def _as_text(value: object, where: str, error: type[Exception]) -> str:
    """A string that UTF-8 can carry (a lone surrogate could not leave the program)."""
    if not isinstance(value, str):
        _refuse(value, where, "a string", error)
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(value, where, "a string without lone surrogates", error)
    return value


def _as_integer(value: object, where: str, error: type[Exception]) -> int:
    """An integer within int64; true and 1.0 are not integers."""
    if type(value) is not int:
        _refuse(value, where, "an integer", error)
    if abs(value) > MAX_INTEGER:
        _refuse(value, where, f"an integer within +-{MAX_INTEGER}", error)
    return value


def _as_choice(value: object, where: str, error: type[Exception], members: type[E]) -> E:
    chosen = next((member for member in members if member.value == value), None)
    if chosen is None:
        expected = "one of: " + ", ".join(str(member.value) for member in members)
        _refuse(value, where, expected, error)
    return chosen


def object_at(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under a key; empty where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    return _NO_OBJECT if value is None else as_object(value, key)


def list_at(parent: Mapping[str, object], key: str) -> Sequence[object]:
    """The array under a key; empty where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    return () if value is None else _as_list(value, key, Unreadable)


def objects_at(parent: Mapping[str, object], key: str) -> Iterator[Mapping[str, object]]:
    """Each object of the array under a key. Raises `Unreadable`."""
    where = f"{key}[]"
    for one in list_at(parent, key):
        if not isinstance(one, dict):
            _refuse(one, where, "an object", Unreadable)
        yield cast("dict[str, object]", one)


def text_at(parent: Mapping[str, object], key: str) -> str:
    """The string under a key; empty where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    if value is None:
        return ""
    # Thousands of these are read of a list: what is plain is not looked at again.
    return value if isinstance(value, str) and value.isascii() else _as_text(value, key, Unreadable)


def needed_at(parent: Mapping[str, object], key: str, *, where: str = "") -> str:
    """The string under a key that must be there; `where` names the parent. Raises `Unreadable`.

    >>> needed_at({"name": "gpu-0"}, "name")
    'gpu-0'
    """
    value = text_at(parent, key)
    if not value:
        msg = f"{where}{key} is absent or empty, expected a string"
        raise Unreadable(msg)
    return value


def choice_at(parent: Mapping[str, object], key: str, members: type[E]) -> E:
    """The member of a closed set under a key that must be there. Raises `Unreadable`."""
    return _as_choice(text_at(parent, key), key, Unreadable, members)


def whole_at(parent: Mapping[str, object], key: str) -> int:
    """The integer under a key; 0 where there is none. Raises `Unreadable`."""
    value = parent.get(key)
    return 0 if value is None else _as_integer(value, key, Unreadable)


def texts_at(parent: Mapping[str, object], key: str) -> Mapping[str, str]:
    """The object of strings under a key (labels, annotations). Raises `Unreadable`."""
    found = object_at(parent, key)
    for name, value in found.items():
        if not isinstance(value, str):
            _refuse(value, f"{key}[{quote(name)}]", "a string", Unreadable)
    return cast("Mapping[str, str]", found)


@dataclass(frozen=True, slots=True)
class Field:
    """One value, the place where it stood, and the error class to raise when it is not as expected.

    >>> from topology.errors import CodecError
    >>> gpu = Field({"numa": "one"}, "gpus[0]", CodecError)
    >>> gpu.integer_or_none("numa")
    Traceback (most recent call last):
    topology.errors.CodecError: gpus[0].numa is 'one', expected an integer
    """

    value: object
    where: str
    error: type[Exception]

    def fail(self, expected: str) -> NoReturn:
        """Raise the caller's error: place, value, expectation."""
        _refuse(self.value, self.where, expected, self.error)

    def text(self) -> str:
        """Return a string that UTF-8 can carry (a lone surrogate could not leave the program)."""
        return _as_text(self.value, self.where, self.error)

    def integer(self) -> int:
        """Return an integer within int64; true and 1.0 are not integers."""
        return _as_integer(self.value, self.where, self.error)

    def number(self) -> float:
        """Return a finite number."""
        value = self.value
        if type(value) is int and abs(value) <= MAX_INTEGER:
            return float(value)
        if type(value) is not float or not math.isfinite(value):
            self.fail("a finite number")
        return value

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            self.fail("true or false")
        return self.value

    def choice(self, members: type[E]) -> E:
        """Return the member of a closed set whose value is written here."""
        return _as_choice(self.value, self.where, self.error, members)

    def items(self) -> tuple[Field, ...]:
        """Return the members of an array, each with its own place."""
        members = _as_list(self.value, self.where, self.error)
        return tuple(
            Field(member, f"{self.where}[{i}]", self.error) for i, member in enumerate(members)
        )

    def tuple_of(self, length: int) -> tuple[Field, ...]:
        """Return the members of an array of exactly this length."""
        members = self.items()
        if len(members) != length:
            self.fail(f"an array of {length}")
        return members

    def keys(self) -> tuple[str, ...]:
        """Return the keys of an object, in the text's order."""
        return tuple(as_object(self.value, self.where, self.error))

    def get(self, key: str) -> Field | None:
        """Return a member of an object, or None where it is absent."""
        members = as_object(self.value, self.where, self.error)
        if key not in members:
            return None
        return Field(members[key], f"{self.where}.{key}" if self.where else key, self.error)

    def items_at(self, key: str) -> tuple[Field, ...]:
        """Return the members of the array under a key; none where it is absent."""
        member = self.get(key)
        return () if member is None else member.items()

    def need(self, key: str) -> Field:
        """Return a member of an object; its absence is an error."""
        member = self.get(key)
        if member is None:
            msg = f"{self.where or 'the text'} has no {key}, expected one"
            raise self.error(msg)
        return member

    def only(self, *keys: str) -> None:
        """Refuse members with other keys."""
        for key in self.keys():
            if key not in keys:
                place = self.where or "the text"
                msg = f"{place} has {quote(key)}, expected one of: {', '.join(keys)}"
                raise self.error(msg)

    def text_or_none(self, key: str) -> str | None:
        """Return a text member, or None where it is absent."""
        member = self.get(key)
        return None if member is None else member.text()

    def integer_or_none(self, key: str) -> int | None:
        """Return an integer member, or None where it is absent."""
        member = self.get(key)
        return None if member is None else member.integer()

    def flag_or_none(self, key: str) -> bool | None:
        """Return a true/false member, or None where it is absent."""
        member = self.get(key)
        return None if member is None else member.flag()
