"""Reads the question of a what-if: the pods, nodes to drain and machines to add, within bounds.

It knows no state but the names that the question refers to, which `Question` leaves to the runner.
It reads in turns (`extender.read_api.pacing`): the body, then one manifest after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.errors import QueryError, WireError
from extender.protocol import decode
from extender.read_api.pacing import paced, pause
from extender.read_api.what_if.bodies import MAX_NODES, MAX_PODS, WhatIfBody
from extender.what_if import name_pods, read_pods

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extender.what_if import RequestedPod

__all__ = ["MAX_EVICTED", "Question", "read_question"]

MAX_SHAPES = 16
"""Different requests by members of groups: each is counted for all states of nodes."""
MAX_EVICTED = 1024
"""Pods of the drained nodes."""


@dataclass(frozen=True, slots=True)
class Question:
    """Pods by name, names of the nodes to drain, and of the machines to add with their count."""

    pods: Sequence[RequestedPod]
    drain: Sequence[str]
    add: Sequence[tuple[str, int]]


async def read_question(
    body: bytes, resources: Sequence[str], group_kinds: Sequence[str] = ()
) -> Question:
    """Read a body, for pods with these resources; groups of these kinds are inferred.

    Raises `QueryError`.
    """
    try:
        asked = decode(WhatIfBody, body)
    except WireError as error:
        raise QueryError(str(error)) from error
    if not (asked.pods or asked.drain or asked.add):
        msg = "request body has no pods, drain or add, expected at least one of them"
        raise QueryError(msg)
    drain = tuple(dict.fromkeys(asked.drain))
    _bound("drain", len(drain), MAX_NODES, "nodes")
    _bound("add", sum(one.count for one in asked.add), MAX_NODES, "nodes")
    pods: list[RequestedPod] = []
    n_pods = 0
    await pause()
    async for i, one in paced(enumerate(asked.pods)):
        pod, count = read_pods(
            one.manifest, one.count, resources, where=f"pods.{i}", group_kinds=group_kinds
        )
        n_pods += count
        _bound("pods", n_pods, MAX_PODS, "pods")
        pods += name_pods(pod, count)
    requests = (one.request for one in pods)
    shapes = {one.shape for one in requests if one is not None and one.group is not None}
    _bound("pods", len(shapes), MAX_SHAPES, "different requests of GPUs by members of groups")
    return Question(pods, drain, [(one.machine, one.count) for one in asked.add])


def _bound(key: str, number: int, at_most: int, what: str) -> None:
    if number > at_most:
        msg = f"{key} has {number} {what}, expected at most {at_most}"
        raise QueryError(msg)
