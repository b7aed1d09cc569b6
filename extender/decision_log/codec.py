"""The inputs of a live cluster as JSON, both ways.

What it answers: how each thing that the watches tell, and what a preemption reads, stands in the
decision log. One entry for each method of `extender.decision_log.gateway.LiveDesk` that takes a
value, by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from extender.errors import DecisionLogError
from extender.preemption import NodeReading, NodesRead
from kube.documents import first_fault
from kube.objects import DisruptionBudget, NodeFacts, PodFacts, PodObject

__all__ = ["FEEDS", "Freshness", "input_as_json", "read_input"]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh the watches are."""

    is_synced: bool
    observed_at_s: float | None


def _adapter(value: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type of any kind
    adapter: TypeAdapter[Any] = TypeAdapter(value)
    # What the modules of these values import for type checkers only.
    adapter.rebuild(
        _types_namespace={
            "DisruptionBudget": DisruptionBudget,
            "Mapping": Mapping,
            "NodeReading": NodeReading,
        }
    )
    return adapter


_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {
    what: _adapter(value)
    for what, value in {
        "see_node": NodeFacts,
        "lose_node": str,
        "replace_nodes": tuple[NodeFacts, ...],
        "see_pod": PodFacts,
        "lose_pod": str,
        "replace_pods": tuple[PodFacts, ...],
        "see_foreign": PodObject,
        "see_nominated": PodObject,
        "lose_nominated": str,
        "replace_nominated": tuple[PodObject, ...],
        "set_freshness": Freshness,
        "expire": float,
        "sleep_on": str,
        "nodes_read": NodesRead,
    }.items()
}


FEEDS = frozenset(_ADAPTERS) - {"nodes_read"}
"""The inputs that come unasked and get no answer."""


def input_as_json(what: str, value: object) -> object:
    """An input in JSON's own types."""
    told: object = _ADAPTERS[what].dump_python(value, mode="json")
    return told


def read_input(what: str, content: bytes) -> Any:  # noqa: ANN401 - the argument of method `what`
    """Read an input. Raises `DecisionLogError`."""
    try:
        return _ADAPTERS[what].validate_json(content, strict=True)
    except ValidationError as error:
        msg = f"input of {what}: {first_fault(error, whole='value')}"
        raise DecisionLogError(msg) from error
