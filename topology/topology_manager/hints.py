"""To which GPUs the kubelet's Topology Manager confines a container, and what it refuses.

What it answers: for the GPUs of a node, their NUMA nodes and what of them is free, the hint that
the kubelet picks for a number of GPUs, whether its policy admits that, and what it then leaves to
choose. It chooses no GPU (`topology.topology_manager.admission`) and knows of GPUs alone: hints of
the CPU manager, the memory manager or another device plugin may narrow the kubelet's choice
further.

Method, after Kubernetes 1.36.3, pkg/kubelet/cm:

- devicemanager/topology_hints.go `generateDeviceTopologyHints`: every set of NUMA nodes that have
  devices is a hint if what is free on it, with the devices left by earlier init containers, is
  enough, and all of the latter lie on it. A hint is preferred if it has as few NUMA nodes as the
  request needs on the machine with nothing taken, unhealthy devices included.
- topologymanager/policy.go `HintMerger`: with one provider of hints, the preferred ones win, then
  the fewest NUMA nodes, then the lowest mask. Where there is none, the mask of all NUMA nodes
  stands in, not preferred. So the answer is the lowest of the smallest sets that are a hint.
- policy_*.go: best-effort admits all, restricted what is preferred, single-numa-node what is
  preferred and one NUMA node. All three confine.
- devicemanager/manager.go `devicesToAllocate`: devices to reuse come first; then, where more
  devices are free inside the hint than are needed, the plugin is called for those alone; else all
  of them are taken, and the plugin is called for the rest of the machine.

Not modelled: the policy option prefer-closest-numa-nodes, which breaks ties between sets of two or
more NUMA nodes by distance; it is not reported. A machine of one NUMA node under single-numa-node
is confined to that node here, where the kubelet leaves it open: the same but for GPUs whose NUMA
node is unknown, and on the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.value import masks_by

if TYPE_CHECKING:
    from topology.annotations import DevicesReport
    from topology.model import NodeTopology

__all__ = [
    "AllowedSets",
    "Hint",
    "NumaDevices",
    "TopologyManager",
    "allowed_sets",
    "best_hint",
    "is_admitted",
    "manager_of",
    "numa_devices",
]


@dataclass(frozen=True, slots=True)
class TopologyManager:
    """How strictly the kubelet of a node aligns, and what together.

    `manager_of` has none for policy `none`, which aligns nothing.
    """

    policy: TopologyManagerPolicy
    scope: TopologyManagerScope


@dataclass(frozen=True, slots=True)
class NumaDevices:
    """The devices of each NUMA node that has any: (NUMA node, mask), ascending by NUMA node.

    Devices whose NUMA node is unknown are in none; the kubelet gets no topology for them.
    """

    nodes: tuple[tuple[int, int], ...]

    @property
    def devices(self) -> int:
        """The mask of all devices whose NUMA node is known."""
        return sum(mask for _, mask in self.nodes)


@dataclass(frozen=True, slots=True)
class Hint:
    """The kubelet's best hint: NUMA nodes, ascending, and the mask of all devices on them.

    No NUMA nodes where no device says its own: then nothing is confined.
    """

    nodes: tuple[int, ...]
    devices: int
    is_preferred: bool


@dataclass(frozen=True, slots=True)
class AllowedSets:
    """What the kubelet leaves to choose: a set that holds `must` and lies within `allowed`."""

    must: int
    allowed: int

    def holds(self, gpus: int) -> bool:
        """Whether the kubelet would give a container this set if the plugin prefers it."""
        return self.must & ~gpus == 0 and gpus & ~self.allowed == 0


def manager_of(report: DevicesReport) -> TopologyManager | None:
    """The Topology Manager that a node's plugin reports; None for policy `none` or unknown.

    An unknown scope is `container`, as for the kubelet itself (1.36.3,
    pkg/kubelet/apis/config/v1beta1/defaults.go).
    """
    if report.policy is None or report.policy is TopologyManagerPolicy.NONE:
        return None
    return TopologyManager(report.policy, report.scope or TopologyManagerScope.CONTAINER)


def numa_devices(topology: NodeTopology) -> NumaDevices:
    """The devices of a node by NUMA node."""
    masks = masks_by(gpu.numa_node for gpu in topology.gpus)
    return NumaDevices(tuple(sorted((n, mask) for n, mask in masks.items() if n is not None)))


def best_hint(numa: NumaDevices, *, free: int, size: int, reusable: int = 0) -> Hint:
    """The hint that the kubelet picks for `size` devices, at least 1.

    `free` are healthy devices that are not in use, `reusable` those that earlier init containers of
    the pod hand on; disjoint. O(k^2 log k) for k NUMA nodes.

    >>> numa = NumaDevices(((0, 0b0011), (1, 0b1100)))
    >>> best_hint(numa, free=0b1101, size=2)
    Hint(nodes=(1,), devices=12, is_preferred=True)
    """
    if not numa.nodes:
        return Hint((), 0, is_preferred=True)
    # A device to reuse that has no NUMA node narrows nothing, and does not count either.
    reused = [mask for _, mask in numa.nodes if mask & reusable]
    counts = [(mask & free).bit_count() for _, mask in numa.nodes]
    forced = [place for place, (_, mask) in enumerate(numa.nodes) if mask & reusable]
    missing = size - sum((mask & (free | reusable)).bit_count() for mask in reused)
    others = {place: n for place, n in enumerate(counts) if place not in forced}
    more = _fewest(list(others.values()), missing)
    if more is None:
        return _on(numa, range(len(numa.nodes)), is_preferred=False)
    places = sorted([*forced, *_lowest(others, n_places=more, missing=missing)])
    least = _fewest([mask.bit_count() for _, mask in numa.nodes], size)
    return _on(numa, places, is_preferred=len(places) == least)


def _on(numa: NumaDevices, places: range | list[int], *, is_preferred: bool) -> Hint:
    chosen = [numa.nodes[place] for place in places]
    devices = sum(mask for _, mask in chosen)
    return Hint(tuple(node for node, _ in chosen), devices, is_preferred)


def _fewest(counts: list[int], needed: int) -> int | None:
    """How many of these it takes at least to have so many; None where all are too few."""
    taken = 0
    for count in sorted(counts, reverse=True):
        if needed <= 0:
            break
        needed -= count
        taken += 1
    return taken if needed <= 0 else None


def _lowest(counts: dict[int, int], *, n_places: int, missing: int) -> list[int]:
    """Of all choices of so many places that have what is missing, the one that is the lowest mask.

    `n_places` is the least that will do, so each place that is chosen has something. A high place
    is left out wherever the lower ones suffice.
    """
    chosen: list[int] = []
    for place in sorted(counts, reverse=True):
        best = sorted((n for below, n in counts.items() if below < place), reverse=True)
        if sum(best[: n_places - len(chosen)]) < missing:
            chosen.append(place)
            missing -= counts[place]
    return chosen


def is_admitted(policy: TopologyManagerPolicy, hint: Hint) -> bool:
    """Whether the kubelet starts a container, or pod, whose best hint this is."""
    if policy is TopologyManagerPolicy.RESTRICTED:
        return hint.is_preferred
    if policy is TopologyManagerPolicy.SINGLE_NUMA_NODE:
        return hint.is_preferred and len(hint.nodes) <= 1
    return True


def allowed_sets(hint: Hint, *, free: int, size: int, reusable: int = 0) -> AllowedSets:
    """What is left to choose for a container of `size` devices that was admitted with this hint.

    More devices to reuse than it needs: the kubelet itself takes some of them, and which is
    unknown.

    >>> allowed_sets(Hint((0,), 0b0011, True), free=0b1111, size=2)
    AllowedSets(must=3, allowed=3)
    >>> allowed_sets(Hint((0,), 0b0011, True), free=0b1111, size=1)
    AllowedSets(must=0, allowed=3)
    """
    needed = size - reusable.bit_count()
    if needed <= 0:
        return AllowedSets(0, reusable)
    aligned = free & hint.devices
    taken, n_aligned = reusable | aligned, aligned.bit_count()
    if needed < n_aligned:
        return AllowedSets(reusable, taken)
    return AllowedSets(taken, taken if needed == n_aligned else reusable | free)
