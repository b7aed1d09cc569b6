"""kube-scheduler's part: which requests a pod's scheduling cycle sends, and what follows from them.

Returns, for a pod and the nodes that have enough GPUs free, the node that kube-scheduler would
choose with this extender. It sends what kube-scheduler sends (`extender/v1`, Go's field names,
`nodeCacheCapable: true`) and is as strict about the answers: a node outside the request is an
error, a score is a whole number. It never reads a topology.

Method (kubernetes 1.36, pkg/scheduler/schedule_one.go): in-tree filters leave the nodes with enough
free GPUs; filter; with one node left prioritize is not called; else the highest score wins, equal
ones drawn at random; bind. In-tree scores are taken as equal: the extender's weight outvotes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from benchmarks.demo.pods import NAMESPACE
from benchmarks.errors import ServerFailed
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from benchmarks.demo.pods import DemoPod

__all__ = ["Extender", "HttpExtender", "choose_node", "send_bind"]

HTTP_TIMEOUT_S = 5.0
"""kube-scheduler's default httpTimeout."""


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class _FilterResult(_Answer):
    node_names: list[str] | None = Field(alias="NodeNames")
    error: str = Field(default="", alias="Error")


class _HostPriority(_Answer):
    host: str = Field(alias="Host")
    score: int = Field(alias="Score")


class _BindingResult(_Answer):
    error: str = Field(default="", alias="Error")


_PRIORITIES = TypeAdapter(list[_HostPriority])
_Decoded = TypeVar("_Decoded")


class Extender(Protocol):
    """Where a verb's request goes: bytes of JSON in, bytes of JSON out."""

    def send(self, verb: str, body: dict[str, Any]) -> bytes:
        """Send one request; raises `ServerFailed` where no answer comes."""
        ...


class HttpExtender:
    """The extender over HTTP, one keep-alive connection; `n_requests` counts what was sent."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.n_requests = 0

    def send(self, verb: str, body: dict[str, Any]) -> bytes:
        """POST to `/<verb>`; like kube-scheduler, take nothing but 200 for an answer."""
        return self._send("POST", f"/{verb}", body)

    def bound_pod(self, uid: str) -> bytes:
        """The pod as the embedded API server shows it, its plan among the annotations."""
        return self._send("GET", f"/embedded/pods/{uid}", None)

    def end_pod(self, uid: str) -> None:
        """The pod ends."""
        self._send("DELETE", f"/embedded/pods/{uid}", None)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        self.n_requests += 1
        try:
            response = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            msg = f"extender: {method} {path}: {type(error).__name__}: {error}"
            raise ServerFailed(msg) from error
        if response.status_code != httpx.codes.OK:
            status = response.status_code
            msg = f"extender: {method} {path}: status {status}, expected 200: {response.text[:200]}"
            raise ServerFailed(msg)
        return response.content


def choose_node(extender: Extender, pod: DemoPod, nodes: Sequence[str], rng: Random) -> str | None:
    """Run filter and prioritize for a pod; None where no node may take it.

    `nodes` have passed the in-tree filters. Raises `ServerFailed` for an answer that kube-scheduler
    would not accept.
    """
    if not nodes:
        return None
    feasible = _filter(extender, pod, nodes)
    if len(feasible) < 2:
        return feasible[0] if feasible else None
    answer = extender.send(
        "prioritize", {"Pod": pod.as_json(), "Nodes": None, "NodeNames": feasible}
    )
    priorities = _decode(_PRIORITIES, answer, "prioritize")
    scores = {one.host: one.score for one in priorities}
    best = max(scores.get(node, 0) for node in feasible)
    return rng.choice([node for node in feasible if scores.get(node, 0) == best])


def send_bind(extender: Extender, pod: DemoPod, node: str) -> None:
    """Bind a pod; raises `ServerFailed` where the extender refuses."""
    args = {"PodName": pod.name, "PodNamespace": NAMESPACE, "PodUID": pod.uid, "Node": node}
    result = _decode(TypeAdapter(_BindingResult), extender.send("bind", args), "bind")
    if result.error:
        msg = f"extender: bind of {pod.name} to {node}: {result.error}"
        raise ServerFailed(msg)


def _filter(extender: Extender, pod: DemoPod, nodes: Sequence[str]) -> list[str]:
    args = {"Pod": pod.as_json(), "Nodes": None, "NodeNames": list(nodes)}
    result = _decode(TypeAdapter(_FilterResult), extender.send("filter", args), "filter")
    if result.error:
        msg = f"extender: filter of {pod.name}: {result.error}"
        raise ServerFailed(msg)
    feasible = result.node_names or []
    foreign = sorted(set(feasible) - set(nodes))
    if foreign:
        msg = f"extender: filter of {pod.name} names {quote(foreign[0])}, expected no other node"
        raise ServerFailed(msg)
    return feasible


def _decode(adapter: TypeAdapter[_Decoded], body: bytes, verb: str) -> _Decoded:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        msg = f"extender: {verb} answered {where} {quote(first['input'])}: {first['msg']}"
        raise ServerFailed(msg) from error
