"""The demo's policies: who chooses the node, and who the GPUs on it.

A policy returns, for one pod at one moment, the node and the exact GPUs that the pod gets. Every
policy keeps its own account of what is free, as its pods really took it. The pod's nodeSelector
binds all of them: kube-scheduler leaves other nodes out before a policy chooses.

- Coterie: the extender process over HTTP; it chooses both.
- NVIDIA's best-effort allocation on Coterie's node: the same filter and prioritize code in this
  process, on a cluster of its own; the plan recorded there holds the rival's ids.
- Two that never call the extender: the most-allocated node (kube-scheduler's NodeResourcesFit with
  `MostAllocated`, equal nodes drawn at random) with the ids of a plain kubelet or of NVIDIA's
  best-effort allocation. They do not read annotations; no pod of theirs waits for a better set.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.demo.kube_scheduler import choose_node, send_bind
from benchmarks.errors import ServerFailed
from benchmarks.masks import mask_of, members
from extender.bind import WriteBinding
from extender.embedded import EmbeddedCluster, lay_out
from extender.engine import Engine
from extender.protocol import Verb, WirePod, decode, parse_pod
from topology.annotations import ContainerPlan, Plan, encode_plan
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.kube_scheduler import HttpExtender
    from benchmarks.demo.pods import DemoPod
    from benchmarks.rivals import Rival
    from extender.embedded import ClusterSpec
    from extender.rules import Rules

__all__ = ["ExtenderPolicy", "MostAllocatedPolicy", "Place", "Policy", "RivalOnCoterieNode"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod is: the node and its GPUs as a mask."""

    node: str
    gpus: int


class Policy(Protocol):
    """A policy with its own account of the fleet."""

    name: str
    note: str

    def place(self, pod: DemoPod) -> Place | None:
        """Give the pod a place, None where it has to wait."""
        ...

    def end(self, pod: DemoPod, place: Place) -> None:
        """Take the pod's GPUs back."""
        ...


class _Free:
    """Free GPUs of every node, as masks."""

    def __init__(self, nodes: Mapping[str, DemoNode]) -> None:
        self.masks = {name: (1 << node.n_gpus) - 1 for name, node in nodes.items()}
        self._labels = {name: node.labels for name, node in nodes.items()}

    def fitting(self, pod: DemoPod) -> list[str]:
        """Nodes that the pod's nodeSelector allows with enough GPUs free, in the fleet's order."""
        wanted = pod.selector.items()
        return [
            name
            for name, mask in self.masks.items()
            if mask.bit_count() >= pod.size and wanted <= self._labels[name].items()
        ]

    def take(self, place: Place) -> None:
        if place.gpus & ~self.masks[place.node]:
            taken = members(place.gpus & ~self.masks[place.node])
            msg = f"GPUs {taken} of {place.node} were given to two pods, expected free ones"
            raise ServerFailed(msg)
        self.masks[place.node] &= ~place.gpus

    def give_back(self, place: Place) -> None:
        self.masks[place.node] |= place.gpus


class ExtenderPolicy:
    """The extender process behind HTTP, called as kube-scheduler calls it."""

    name = "Coterie"
    note = "node and GPUs chosen by the extender, over HTTP"

    def __init__(self, nodes: Mapping[str, DemoNode], extender: HttpExtender, *, seed: int) -> None:
        self._extender = extender
        self._free = _Free(nodes)
        self._positions = {
            name: {one: i for i, one in enumerate(node.ids)} for name, node in nodes.items()
        }
        self._rng = Random(f"{seed}/scheduler")

    def place(self, pod: DemoPod) -> Place | None:
        """Run filter, prioritize and bind, then read the plan."""
        node = choose_node(self._extender, pod, self._free.fitting(pod), self._rng)
        if node is None:
            return None
        send_bind(self._extender, pod, node)
        place = Place(node, self._planned(pod, node))
        self._free.take(place)
        return place

    def end(self, pod: DemoPod, place: Place) -> None:
        """End the pod on the embedded cluster."""
        self._extender.end_pod(pod.uid)
        self._free.give_back(place)

    def _planned(self, pod: DemoPod, node: str) -> int:
        bound: dict[str, Any] = json.loads(self._extender.bound_pod(pod.uid))
        plan: dict[str, Any] = json.loads(bound["metadata"]["annotations"][names.PLAN])
        ids: list[str] = plan["containers"][0]["ids"]
        if plan["node"] != node or len(ids) != pod.size:
            msg = f"plan of {pod.name} is {plan}, expected {pod.size} GPUs of {node}"
            raise ServerFailed(msg)
        return mask_of(self._positions[node][one] for one in ids)


class _EngineExtender:
    """The extender's verbs without HTTP and without a process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def send(self, verb: str, body: dict[str, Any]) -> bytes:
        return self._engine.answer(Verb(verb), json.dumps(body).encode(), 0.0).body


class RivalOnCoterieNode:
    """Coterie's choice of node, a rival's choice of GPUs there."""

    def __init__(
        self,
        rival: Rival,
        nodes: Mapping[str, DemoNode],
        spec: ClusterSpec,
        rules: Rules,
        *,
        seed: int,
    ) -> None:
        self.name = f"{rival.name} on Coterie's node"
        self.note = "node chosen by Coterie's filter and prioritize, GPUs by NVIDIA's rules"
        self._rival = rival
        self._nodes = nodes
        self._free = _Free(nodes)
        self._cluster = EmbeddedCluster(lay_out(spec), demand=rules.demand)
        self._extender = _EngineExtender(Engine(self._cluster, rules))
        self._resources = rules.resources
        self._rng = Random(f"{seed}/scheduler")
        self._kubelet = Random(f"{seed}/kubelet")

    def place(self, pod: DemoPod) -> Place | None:
        """Request the node, let the rival choose GPUs there, record its choice."""
        node = choose_node(self._extender, pod, self._free.fitting(pod), self._rng)
        if node is None:
            return None
        topology, free = self._nodes[node].topology, self._free.masks[node]
        chosen = self._rival.choose(topology, free, pod.size, self._kubelet)
        if chosen is None:
            return None
        place = Place(node, chosen)
        self._record(pod, place)
        self._free.take(place)
        return place

    def end(self, pod: DemoPod, place: Place) -> None:
        """End the pod on the cluster in this process."""
        self._cluster.end(pod.uid)
        self._free.give_back(place)

    def _record(self, pod: DemoPod, place: Place) -> None:
        request = parse_pod(decode(WirePod, json.dumps(pod.as_json()).encode()), self._resources)
        ids = tuple(self._nodes[place.node].ids[gpu] for gpu in members(place.gpus))
        containers = (ContainerPlan("main", names.DEFAULT_RESOURCE, ids),)
        plan = Plan(place.node, containers, ids, 0, 0.0)
        refused = self._cluster.assume(request, plan, deadline_s=0.0)
        if refused is not None:
            msg = f"state of the cluster in this process: {refused}"
            raise ServerFailed(msg)
        self._cluster.write_binding(
            WriteBinding(
                bind_id=0,
                namespace=request.namespace,
                name=request.name,
                uid=request.uid,
                resource_version="",
                node=place.node,
                annotations={names.PLAN: encode_plan(plan)},
            )
        )


class MostAllocatedPolicy:
    """The node with the largest share of GPUs taken, a rival's choice of GPUs there."""

    def __init__(
        self, name: str, note: str, rival: Rival, nodes: Mapping[str, DemoNode], *, seed: int
    ) -> None:
        self.name = name
        self.note = note
        self._rival = rival
        self._nodes = nodes
        self._free = _Free(nodes)
        self._rng = Random(f"{seed}/scheduler")
        self._kubelet = Random(f"{seed}/kubelet")

    def place(self, pod: DemoPod) -> Place | None:
        """Take the fullest node that fits, then what the rival chooses there."""
        fitting = self._free.fitting(pod)
        if not fitting:
            return None
        shares = {name: self._share_left(name, pod.size) for name in fitting}
        least = min(shares.values())
        node = self._rng.choice([name for name in fitting if shares[name] == least])
        topology, free = self._nodes[node].topology, self._free.masks[node]
        chosen = self._rival.choose(topology, free, pod.size, self._kubelet)
        if chosen is None:
            return None
        place = Place(node, chosen)
        self._free.take(place)
        return place

    def end(self, pod: DemoPod, place: Place) -> None:
        """Give the GPUs back."""
        del pod
        self._free.give_back(place)

    def _share_left(self, node: str, size: int) -> float:
        return (self._free.masks[node].bit_count() - size) / self._nodes[node].n_gpus
