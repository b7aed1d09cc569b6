"""Removes from a bundle with hashed names what may hold any name, and says little without it.

Messages of conditions, certificates in the scheduler's configuration, and its plugins' arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["without_free_text"]

REMOVED = "removed"
_FIELDS = frozenset({"caData", "certData", "pluginConfig"})


def without_free_text(value: object) -> object:
    """The JSON value, where such texts are `removed`."""
    if isinstance(value, dict):
        return {
            key: REMOVED
            if key in _FIELDS
            else _conditions(one)
            if key == "conditions"
            else without_free_text(one)
            for key, one in cast("Mapping[str, object]", value).items()
        }
    if isinstance(value, list | tuple):
        return [without_free_text(one) for one in cast("Sequence[object]", value)]
    return value


def _conditions(value: object) -> object:
    if not isinstance(value, list):
        return REMOVED
    found: list[object] = []
    for one in cast("Sequence[object]", value):
        if not isinstance(one, dict):
            found.append(REMOVED)
            continue
        fields = cast("Mapping[str, object]", one)
        found.append({key: REMOVED if key == "message" else text for key, text in fields.items()})
    return found
