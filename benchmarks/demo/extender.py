"""The extender process as kube-scheduler calls it, and its embedded cluster as an API server.

Returns, for a pod and the nodes that have enough GPUs free, the node that kube-scheduler would
choose with this extender. It sends what kube-scheduler sends (`extender/v1`, Go's field names,
`nodeCacheCapable: true`) and refuses answers that it would not accept. It never reads a topology.

Method (kubernetes 1.36, pkg/scheduler/schedule_one.go): in-tree filters leave the nodes with enough
free GPUs; filter; with one node left prioritize is not called; else the highest score wins, equal
ones drawn at random; bind. In-tree scores are taken as equal: the extender's weight outvotes them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.demo.pods import NAMESPACE
from benchmarks.errors import ServerFailed
from topology.errors import quote
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from benchmarks.demo.pods import DemoPod

__all__ = ["HttpExtender"]

_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class HttpExtender:
    """The extender over HTTP; `n_requests` counts what was sent.

    Every method raises `ServerFailed` for an answer that is none.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.n_requests = 0

    def choose_node(self, pod: DemoPod, nodes: Sequence[str], rng: Random) -> str | None:
        """Run filter and prioritize for a pod; None where no node may take it.

        `nodes` have passed the in-tree filters.
        """
        if not nodes:
            return None
        args = {"Pod": pod.as_json(), "Nodes": None, "NodeNames": list(nodes)}
        feasible: list[str] = self._verb("filter", args)["NodeNames"] or []
        foreign = sorted(set(feasible) - set(nodes))
        if foreign:
            msg = f"extender: filter of {pod.name} names {quote(foreign[0])}, expected no other"
            raise ServerFailed(msg)
        if len(feasible) < 2:
            return feasible[0] if feasible else None
        answer = self._send("POST", "/prioritize", {**args, "NodeNames": feasible})
        scores: dict[str, int] = {one["Host"]: one["Score"] for one in answer}
        best = max(scores.get(node, 0) for node in feasible)
        return rng.choice([node for node in feasible if scores.get(node, 0) == best])

    def create(self, pod: DemoPod) -> None:
        """The pod's owner creates it."""
        self._send("POST", _PODS, pod.as_json())

    def bind(self, pod: DemoPod, node: str) -> None:
        """Bind a pod; of a group, beside the binds of its other members, which it waits for."""
        args = {"PodName": pod.name, "PodNamespace": NAMESPACE, "PodUID": pod.uid, "Node": node}
        self._verb("bind", args)

    def planned(self, pod: DemoPod, node: str) -> list[str]:
        """The ids of a bound pod's plan, as its annotation has them."""
        bound = self._send("GET", f"{_PODS}/{pod.name}")
        plan: dict[str, Any] = json.loads(bound["metadata"]["annotations"][names.PLAN])
        ids: list[str] = plan["containers"][0]["ids"]
        if plan["node"] != node or len(ids) != pod.size:
            msg = f"plan of {pod.name} is {plan}, expected {pod.size} GPUs of {node}"
            raise ServerFailed(msg)
        return ids

    def end(self, pod: DemoPod) -> None:
        """The pod ends, or is taken back."""
        self._send("DELETE", f"{_PODS}/{pod.name}")

    def _verb(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._send("POST", f"/{verb}", args)
        if answer["Error"]:
            msg = f"extender: {verb} of a pod: {answer['Error']}"
            raise ServerFailed(msg)
        return answer

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Like kube-scheduler, take nothing but 200 for an answer."""
        self.n_requests += 1
        try:
            response = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            msg = f"extender: {method} {path}: {type(error).__name__}: {error}"
            raise ServerFailed(msg) from error
        if response.status_code != httpx.codes.OK:
            status, said = response.status_code, response.text[:200]
            msg = f"extender: {method} {path}: status {status}, expected 200: {said}"
            raise ServerFailed(msg)
        return response.json() if response.content else None
