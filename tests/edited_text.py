"""Texts with one fault each, for what must be refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

__all__ = ["damaged", "edited"]


def edited(text: str, path: str, value: object) -> str:
    """Return the text with one member replaced; the path is `a.0.b`, value None removes it."""
    body = json.loads(text)
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place = body
    for step in parents:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(body)


def damaged(data: DataObject, text: str, alphabet: str) -> str:
    """A text of which up to eight characters are replaced by up to eight others."""
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 8)))
    return text[:start] + data.draw(st.text(alphabet=alphabet, max_size=8)) + text[stop:]
