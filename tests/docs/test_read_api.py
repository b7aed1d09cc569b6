"""The page of the read API: each route with an answer that it really gives."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from extender.state import KEPT_LABELS
from tests.docs.markdown import ROOT, section
from tests.unit.extender.engines import engine
from tests.unit.extender.group_scene import GroupScene, leaf
from tests.unit.extender.live_world import node_facts
from tests.unit.extender.pods import pod
from tests.unit.extender.read_api.served import ServedReads

PAGE = ROOT / "docs" / "read-api.md"
WITHOUT_EXAMPLE = {
    "/api/v1/explain/{namespace}/{name}",
    "/api/v1/groups/{namespace}/{name}",
    "/api/v1/nodes/{name}",
    "/api/v1/pods/{namespace}/{name}",
}
"""The first needs an API server, and answers as the route which takes a manifest; the others answer
one entry of their list."""
MANIFEST = pod(4, uid="u5", affinity="nvlink", policy="required")
POSTED = {
    "/api/v1/explain": MANIFEST,
    "/api/v1/what-if": {
        "pods": [{"manifest": MANIFEST}],
        "drain": ["dgx-1-v100-0"],
        "add": [{"machine": "dgx-h100"}],
    },
}
WIDTH = 120


def cut(value: Any) -> Any:
    """Lists of objects and of lists without what comes after the first."""
    if isinstance(value, dict):
        return {key: cut(one) for key, one in value.items()}
    if isinstance(value, list):
        is_long = any(isinstance(one, (dict, list)) for one in value)
        return [cut(one) for one in (value[:1] if is_long else value)]
    return value


def laid_out(value: Any, indent: str = "") -> str:
    """JSON in few lines: what fits on one is on one, and fields of an object share them."""
    flat = json.dumps(value)
    if len(indent + flat) <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    inner = indent + "  "
    if isinstance(value, list):
        return f"[{', '.join(laid_out(one, indent) for one in value)}]"
    lines = [""]
    for key, one in value.items():
        part = f"{json.dumps(key)}: {laid_out(one, inner)}"
        if lines[-1] and len(inner + lines[-1] + part) < WIDTH and "\n" not in part:
            lines[-1] += f" {part},"
        else:
            lines.append(f"{part},")
    body = "".join(f"\n{inner}{line}" for line in lines if line)
    return f"{{{body.removesuffix(',')}\n{indent}}}"


def json_of(served: ServedReads, path: str) -> str:
    """The JSON of an answer, cut."""
    content = served.call(path).json()
    if "version" in content:
        content["version"] = "1.2.3"
    return laid_out(cut(content))


async def events(served: ServedReads) -> str:
    """The first events of a stream."""
    client = await served.api.changes.open()
    assert client is not None
    stream = served.api.changes.events(client)
    first = await anext(stream)
    served.engine.answer(*served.filter_call(1, "u4", ["8x-l4-0"]), 0.0)
    served.engine.answer(*served.bind_call("u4", "8x-l4-0"), 0.0)
    await served.api.changes.look()
    return (first + await anext(stream)).decode()


def grouped() -> ServedReads:
    """A cluster of its own, with labels of the network: one group is bound, one waits."""
    made = [node_facts(f"h100-{i}", "dgx-h100") for i in range(2)]
    scene = GroupScene(
        *(leaf(one.name, "S12", topology=one.topology, allocatable=one.allocatable) for one in made)
    )
    scene.pass_s(1_764_000_000.0 - scene.now_s)
    scene.place("u6", "u7", group="train", n_gpus=8)
    scene.see("u8", group="waiting", size=2)
    return ServedReads(scene.gateway.engine)


def answers() -> str:
    """All routes, described and answered."""
    served = ServedReads(engine())
    served.now_s = 1_764_000_000.0
    served.place(4, "u1", "dgx-1-v100-0")
    served.place(2, "u2", "8x-l4-0")
    served.filter(8, "u3", ["dgx-1-v100-0"], affinity="nvlink", policy="required")
    asyncio.run(served.api.add_to_history())
    groups = grouped()
    description: Any = served.call("/openapi.json", app=served.read_app).json()
    parts: list[str] = []
    paths: dict[str, Any] = description["paths"]
    for path, operations in paths.items():
        ((method, operation),) = operations.items()
        in_query = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
        query = f"Query: {', '.join(f'`{name}`' for name in in_query)}.\n" if in_query else ""
        title = f"### `{method.upper()} {path}`\n\n{operation['description']}\n{query}"
        if path == "/api/v1/changes":
            language, body = "text", asyncio.run(events(served)).strip()
        elif method == "post":
            posted = json.dumps(POSTED[path]).encode()
            answer = served.call(path, method="POST", content=posted).json()
            language, body = "json", laid_out(cut(answer))
        elif path in WITHOUT_EXAMPLE:
            parts.append(title)
            continue
        else:
            asked = groups if path.startswith("/api/v1/groups") else served
            language, body = "json", json_of(asked, path)
        parts.append(f"{title}\n```{language}\n{body}\n```\n")
    return "\n" + "\n".join(parts) + "\n"


def test_the_labels_that_selectors_are_held_by_are_listed():
    """Those and no others, beside what the list says of domains."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## Node selectors\n")[2]
    listed = re.findall(r"`([\w.-]+/[\w.-]+)`", text.partition("\n## ")[0])
    assert sorted(listed) == sorted(KEPT_LABELS)


def test_answers_are_generated(check_golden):
    """Whoever writes a client starts from an answer; `make golden` rewrites them."""
    before, _, after = section(PAGE.read_text(encoding="utf-8"), "answers")
    check_golden(PAGE, before + answers() + after)
