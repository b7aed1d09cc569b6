"""Strict reading of keyed values that come from outside, with their place for messages.

What it answers: is the value at this place of the kind that was expected? Every failure is one
sentence with the place, the value and the expectation, raised as the caller's own error class. It
never knows a format: `topology.model.codec` (JSON), `topology.recordings` (TOML) and the plugin's
YAML files do. JSON of the API server is read by `kube.objects.fields`: there null and absence are
the same, unknown keys are fine, and a list of 5,000 nodes must not make an object for each value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeVar, cast

from topology.errors import quote

__all__ = ["Field"]

E = TypeVar("E", bound=Enum)

MAX_INTEGER = 2**63 - 1
"""Largest integer that a field may hold (int64, as in Go and protobuf readers)."""


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
        msg = f"{self.where or 'the text'} is {quote(self.value)}, expected {expected}"
        raise self.error(msg)

    def text(self) -> str:
        """Return a string that UTF-8 can carry (a lone surrogate could not leave the program)."""
        if not isinstance(self.value, str):
            self.fail("a string")
        try:
            self.value.encode()
        except UnicodeEncodeError:
            self.fail("a string without lone surrogates")
        return self.value

    def integer(self) -> int:
        """Return an integer within int64; true and 1.0 are not integers."""
        if type(self.value) is not int:
            self.fail("an integer")
        if abs(self.value) > MAX_INTEGER:
            self.fail(f"an integer within +-{MAX_INTEGER}")
        return self.value

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
        chosen = next((member for member in members if member.value == self.value), None)
        if chosen is None:
            self.fail("one of: " + ", ".join(str(member.value) for member in members))
        return chosen

    def items(self) -> tuple[Field, ...]:
        """Return the members of an array, each with its own place."""
        value = self.value
        if not isinstance(value, list):
            self.fail("an array")
        members = cast("list[object]", value)
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
        return tuple(self._object())

    def get(self, key: str) -> Field | None:
        """Return a member of an object, or None where it is absent."""
        members = self._object()
        if key not in members:
            return None
        return Field(members[key], f"{self.where}.{key}" if self.where else key, self.error)

    def _object(self) -> dict[str, object]:
        value = self.value
        if not isinstance(value, dict):
            self.fail("an object")
        return cast("dict[str, object]", value)

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
