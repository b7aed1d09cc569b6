"""The demo's policies: who chooses the node, and who the GPUs on it.

A policy returns, for one pod at one moment, the node and the exact GPUs that the pod gets. Every
policy keeps its own account of what is free, as its pods really took it. The pod's nodeSelector
binds all of them: kube-scheduler leaves other nodes out before a policy chooses.

- Coterie: the extender process, called over HTTP as kube-scheduler calls it
  (`benchmarks.demo.extender`); it chooses both.
- Rivals, which never call it: the most-allocated node (kube-scheduler's NodeResourcesFit with
  `MostAllocated`, equal nodes drawn at random) with the ids of a plain kubelet or of NVIDIA's
  best-effort allocation. They do not read annotations; no pod of theirs waits for a better set.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

from benchmarks.errors import ServerFailed
from topology.model import gpus_of, mask_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.demo.extender import HttpExtender
    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.pods import DemoPod
    from benchmarks.rivals import Rival

__all__ = ["ExtenderPolicy", "MostAllocatedPolicy", "Place", "Policy"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod is: the node and its GPUs as a mask."""

    node: str
    gpus: int


class Policy(Protocol):
    """A policy with its own account of the fleet."""

    name: str

    def place(self, pod: DemoPod) -> Place | None:
        """Give the pod a place, None where it has to wait."""
        ...

    def end(self, pod: DemoPod, place: Place | None) -> None:
        """Take the pod's GPUs back; None for one that got no place, and is wanted no more."""
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
        """Take GPUs; raises `ServerFailed` where one is not free."""
        taken = place.gpus & ~self.masks[place.node]
        if taken:
            msg = f"GPUs {gpus_of(taken)} of {place.node} were given to two pods, expected free"
            raise ServerFailed(msg)
        self.masks[place.node] &= ~place.gpus

    def give_back(self, place: Place) -> None:
        """Give GPUs back."""
        self.masks[place.node] |= place.gpus


class ExtenderPolicy:
    """Coterie: the extender behind HTTP, whose plan says the GPUs."""

    name = "Coterie"

    def __init__(self, nodes: Mapping[str, DemoNode], extender: HttpExtender, *, seed: int) -> None:
        self._extender = extender
        self._nodes = nodes
        self._free = _Free(nodes)
        self._rng = Random(f"{seed}/scheduler")
        self._created: set[str] = set()
        # Of each group, its members for which filter has named a node.
        self._named: dict[str, dict[str, tuple[DemoPod, str]]] = {}
        self._bound: dict[str, Place] = {}

    def place(self, pod: DemoPod) -> Place | None:
        """Run filter, prioritize and bind, then read the plan.

        Members of a group are bound together, by the call for the last of them that filter has
        named a node for; the others' places are there from then on.
        """
        if pod.uid not in self._created:
            self._created.add(pod.uid)
            self._extender.create(pod)
        if pod.uid not in self._bound:
            node = self._extender.choose_node(pod, self._free.fitting(pod), self._rng)
            if node is not None:
                self._bind(pod, node)
        return self._bound.pop(pod.uid, None)

    def end(self, pod: DemoPod, place: Place | None) -> None:
        """Delete the pod."""
        self._created.discard(pod.uid)
        self._bound.pop(pod.uid, None)
        for named in self._named.values():
            named.pop(pod.uid, None)
        self._extender.end(pod)
        if place is not None:
            self._free.give_back(place)

    def _bind(self, pod: DemoPod, node: str) -> None:
        group, size = pod.group or (pod.name, 1)
        named = self._named.setdefault(group, {})
        named[pod.uid] = pod, node
        if len(named) < size:
            return
        del self._named[group]
        with ThreadPoolExecutor(size) as binds:
            list(binds.map(self._extender.bind, *zip(*named.values(), strict=True)))
        for one, on in named.values():
            ids = self._nodes[on].ids
            gpus = mask_of(ids.index(device) for device in self._extender.planned(one, on))
            self._bound[one.uid] = Place(on, gpus)
            self._free.take(self._bound[one.uid])


class MostAllocatedPolicy:
    """The node with the largest share of GPUs taken, a rival's choice of GPUs there."""

    def __init__(
        self, name: str, rival: Rival, nodes: Mapping[str, DemoNode], *, seed: int
    ) -> None:
        self.name = name
        self._rival = rival
        self._nodes = nodes
        self._free = _Free(nodes)
        self._rng = Random(f"{seed}/scheduler")
        self._kubelet = Random(f"{seed}/kubelet")

    def place(self, pod: DemoPod) -> Place | None:
        """Take the fullest node that fits, then what the rival chooses there."""
        shares = {name: self._share_left(name, pod.size) for name in self._free.fitting(pod)}
        if not shares:
            return None
        least = min(shares.values())
        node = self._rng.choice([name for name, share in shares.items() if share == least])
        topology, free = self._nodes[node].topology, self._free.masks[node]
        chosen = self._rival.choose(topology, free, pod.size, self._kubelet)
        if chosen is None:
            return None
        place = Place(node, chosen)
        self._free.take(place)
        return place

    def end(self, pod: DemoPod, place: Place | None) -> None:
        """Give the GPUs back."""
        del pod
        if place is not None:
            self._free.give_back(place)

    def _share_left(self, node: str, size: int) -> float:
        return (self._free.masks[node].bit_count() - size) / self._nodes[node].n_gpus
