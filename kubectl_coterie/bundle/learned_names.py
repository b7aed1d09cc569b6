"""Finds the names of nodes, pods and namespaces in what was collected.

Lists of the API server do not have objects that are gone, but logs and Events do. So names are
taken from the fields that hold them, in JSON of any shape, and from what Kubernetes' own logs and
errors write as `pod="..."` and `node "..."`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["names_in_log", "names_in_value"]

_PAIR = re.compile(r'\b(pods?|nodes?|namespaces?|nodeName)[= ]\\?"([^"\\]+)\\?"')
"""As in `pod="ml/a"` and `node "gpu-0" not found`, the quotes escaped or not."""
_BY_KEY = {
    "node": "node",
    "node_name": "node",
    "nodeName": "node",
    "nodes": "node",
    "nominatedNodeName": "node",
    "namespace": "namespace",
    "pod": "pod",
    "pods": "pod",
    "namespaces": "namespace",
    "kubernetes.io/hostname": "node",
    "pod_uid": "uid",
    "uid": "uid",
    "reportingInstance": "node",
}
_KINDS = {"Pod": "pod", "Node": "node", "Namespace": "namespace"}


def names_in_value(value: object, kind: str = "") -> Iterator[tuple[str, str]]:
    """Kind and name of each, in a JSON value; `kind` is that of its own objects, if known."""
    if isinstance(value, dict):
        fields = cast("Mapping[str, object]", value)
        yield from _own_name(fields, kind)
        for key, one in fields.items():
            yield from _named_by(key, one)
            yield from names_in_value(one)
    elif isinstance(value, list):
        for one in cast("Sequence[object]", value):
            yield from names_in_value(one, kind)
    elif isinstance(value, str) and value.startswith(("{", "[")):
        yield from _in_text(value, names_in_value)


def names_in_log(text: str) -> Iterator[tuple[str, str]]:
    """The same in a log, whose lines may be JSON."""
    for line in text.splitlines():
        if line.startswith("{"):
            yield from _in_text(line, names_in_value)
        for key, name in _PAIR.findall(line):
            yield from _split(_BY_KEY[key], name)


def _own_name(fields: Mapping[str, object], kind: str) -> Iterator[tuple[str, str]]:
    """The name of an object: of a kind that it says, that is known, or of one with a namespace."""
    name, said = fields.get("name"), fields.get("kind")
    if isinstance(said, str) and said in _KINDS:
        kind = _KINDS[said]
    elif not kind and isinstance(fields.get("namespace"), str):
        kind = "pod"
    if not kind:
        return
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        name = cast("Mapping[str, object]", metadata).get("name", name)
    if isinstance(name, str):
        yield kind, name


def _named_by(key: str, value: object) -> Iterator[tuple[str, str]]:
    kind = _BY_KEY.get(key)
    if kind is None:
        return
    found = cast("Sequence[object]", value) if isinstance(value, list) else (value,)
    for one in found:
        if isinstance(one, str):
            yield from _split(kind, one)


def _split(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """A pod may be written with its namespace."""
    first, slash, rest = name.partition("/")
    if kind == "pod" and slash:
        yield "namespace", first
        yield "pod", rest
    else:
        yield kind, name


def _in_text(
    text: str, names: Callable[[object], Iterator[tuple[str, str]]]
) -> Iterator[tuple[str, str]]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from names(found)
