"""The page of the read API: each route with an answer that it really gives."""

from __future__ import annotations

import json
from typing import Any

from tests.docs.markdown import ROOT, section
from tests.unit.extender.engines import engine
from tests.unit.extender.read_api.served import ServedReads

PAGE = ROOT / "docs" / "read-api.md"
PATHS = {
    "/api/v1/nodes/{name}": "/api/v1/nodes/8x-l4-0",
    "/api/v1/pods/{namespace}/{name}": "/api/v1/pods/default/pod-u1",
}
SHOWN = 2


def cut(value: Any) -> Any:
    """Lists of objects and of lists without what comes after two."""
    if isinstance(value, dict):
        return {key: cut(one) for key, one in value.items()}
    if isinstance(value, list):
        is_long = any(isinstance(one, (dict, list)) for one in value)
        return [cut(one) for one in (value[:SHOWN] if is_long else value)]
    return value


def answers() -> str:
    """All routes, described and answered."""
    served = ServedReads(engine())
    served.now_s = 1_764_000_000.0
    served.place(4, "u1", "dgx-1-v100-0")
    served.place(2, "u2", "8x-l4-0")
    served.filter(8, "u3", ["dgx-1-v100-0"], affinity="nvlink", policy="required")
    description: Any = served.call("/openapi.json", app=served.read_app).json()
    parts: list[str] = []
    paths: dict[str, Any] = description["paths"]
    for path, operations in paths.items():
        operation = operations["get"]
        in_query = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
        content = served.call(PATHS.get(path, path)).json()
        if "version" in content:
            content["version"] = "1.2.3"
        query = f"Query: {', '.join(f'`{name}`' for name in in_query)}.\n" if in_query else ""
        body = json.dumps(cut(content), indent=2)
        parts.append(
            f"### `GET {path}`\n\n{operation['description']}\n{query}\n```json\n{body}\n```\n"
        )
    return "\n" + "\n".join(parts) + "\n"


def test_answers_are_generated(check_golden):
    """Whoever writes a client starts from an answer; `make golden` rewrites them."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), "answers")
    check_golden(PAGE, before + answers() + after)
