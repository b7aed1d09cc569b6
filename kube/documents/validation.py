"""Says in one sentence what is wrong with a value that pydantic refused.

The sentence names where the first fault is, the value there, and what is expected, in the words of
JSON and YAML and not of Python classes. It decides nothing and raises nothing.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from topology.errors import MAX_QUOTED, quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pydantic import ValidationError

__all__ = ["first_fault"]

_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "an object",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_type": "a string",
    "too_long": "at most {max_length} of them",
    "too_short": "at least {min_length} of them",
    "tuple_type": "a list",
    "union_tag_invalid": "{expected_tags} for {discriminator}",
    "union_tag_not_found": "a value for {discriminator}",
}
"""Expectation by pydantic's error type, where pydantic's own message names Python types."""
_PREFIX = re.compile(r"^\w+ should (be|have) ")


def first_fault(
    error: ValidationError,
    *,
    whole: str,
    tags: Collection[str] = (),
    kinds: Mapping[str, str] = MappingProxyType({}),
    origins: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Describe the first fault; `whole` is what to call the value itself.

    `tags` are those of a union, with which pydantic's locations begin and which the value's author
    has never seen; `kinds` has what a field of that name holds, for those that are missing;
    `origins` where the value under a top-level key comes from, shown behind the place.
    """
    first = error.errors(include_url=False)[0]
    parts = [str(part)[:MAX_QUOTED] for part in first["loc"]]
    if parts and parts[0] in tags:
        del parts[0]
    where = ".".join(parts) or whole
    if parts and parts[0] in origins:
        where = f"{where} ({origins[parts[0]]})"
    kind, message = first["type"], first["msg"]
    if kind == "missing":
        return f"{where} is missing, expected {kinds.get(parts[-1], 'a value')}"
    if kind == "extra_forbidden":
        return f"{where} is not a known key, its value is {quote(first['input'])}"
    is_none = kind == "too_short" and not first["input"]
    found = f"{where} is {'empty' if is_none else quote(first['input'])}"
    if kind == "value_error":
        # A validator of ours, which names the expectation itself.
        own = message.removeprefix("Value error, ")
        return f"{found}, {own}" if own.startswith("expected") else f"{found}: {own}"
    if kind == "string_type" and isinstance(first["input"], bool | int | float):
        return f'{found}, expected a string, so in quotes: "{json.dumps(first["input"])}"'
    if kind in _EXPECTED:
        return f"{found}, expected {_EXPECTED[kind].format(**first.get('ctx', {}))}"
    return f"{found}, expected {_PREFIX.sub('', message)}"
