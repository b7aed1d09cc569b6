"""JSON texts with one fault each, for what must be refused."""

from __future__ import annotations

import json

__all__ = ["edited"]


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
