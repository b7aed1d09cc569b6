"""The kubelet's Topology Manager, transcribed line by line, around the device manager's model.

Kubernetes 1.36.3, pkg/kubelet/cm: topologymanager/{policy,policy_*,scope_*,numa_info}.go,
topologymanager/bitmask/bitmask.go, devicemanager/topology_hints.go. Names are Go's, and nothing is
made shorter, so that it can be read beside the source. The CPU and memory managers have no
preference (their policy `none`): a hint {nil, true} each. It shares no code with the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.device_manager import NotAdmitted, answered, by_affinity, devices_to_allocate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

INIT, SIDECAR, APP = "init", "sidecar", "app"


@dataclass
class TopologyHint:
    """NUMANodeAffinity as an integer bit mask, None for nil."""

    affinity: int | None
    preferred: bool


@dataclass(frozen=True)
class Container:
    """A container with its limit of the one resource; 0 for none."""

    name: str
    size: int
    role: str = APP


def iterate_bit_masks(bits: Sequence[int]) -> Iterator[int]:
    """IterateBitMasks of bitmask.go."""

    def iterate(rest: Sequence[int], accum: list[int], size: int) -> Iterator[int]:
        if len(accum) == size:
            yield sum(1 << bit for bit in accum)
            return
        for i in range(len(rest)):
            yield from iterate(rest[i + 1 :], [*accum, rest[i]], size)

    for size in range(1, len(bits) + 1):
        yield from iterate(bits, [], size)


def is_narrower_than(s: int, mask: int) -> bool:
    """IsNarrowerThan of bitmask.go."""
    if s.bit_count() == mask.bit_count():
        return s < mask
    return s.bit_count() < mask.bit_count()


def filter_providers_hints(
    providers_hints: list[dict[str, list[TopologyHint] | None]],
) -> list[list[TopologyHint]]:
    """Its Go name: filterProvidersHints, of policy.go."""
    all_provider_hints: list[list[TopologyHint]] = []
    for hints in providers_hints:
        if len(hints) == 0:
            all_provider_hints.append([TopologyHint(None, preferred=True)])
            continue
        for of_resource in hints.values():
            if of_resource is None:
                all_provider_hints.append([TopologyHint(None, preferred=True)])
                continue
            if len(of_resource) == 0:
                all_provider_hints.append([TopologyHint(None, preferred=False)])
                continue
            all_provider_hints.append(of_resource)
    return all_provider_hints


def merge_permutation(default_affinity: int, permutation: list[TopologyHint]) -> TopologyHint:
    """Its Go name: mergePermutation, of policy.go."""
    preferred = True
    numa_affinities: list[int] = []
    for hint in permutation:
        if hint.affinity is not None:
            numa_affinities.append(hint.affinity)
            if hint.affinity != numa_affinities[0]:
                preferred = False
        if not hint.preferred:
            preferred = False
    merged = default_affinity
    for affinity in numa_affinities:
        merged &= affinity
    return TopologyHint(merged, preferred)


def narrowest_hint(hints: list[TopologyHint]) -> TopologyHint | None:
    """Its Go name: narrowestHint, of policy.go."""
    narrowest: TopologyHint | None = None
    for hint in hints:
        if hint.affinity is None:
            continue
        if narrowest is None:
            narrowest = hint
        if is_narrower_than(hint.affinity, narrowest.affinity or 0):
            narrowest = hint
    return narrowest


def max_of_min_affinity_counts(filtered: list[list[TopologyHint]]) -> int:
    """Its Go name: maxOfMinAffinityCounts, of policy.go."""
    max_of_min_count = 0
    for resource_hints in filtered:
        narrowest = narrowest_hint(resource_hints)
        if narrowest is None or narrowest.affinity is None:
            continue
        max_of_min_count = max(max_of_min_count, narrowest.affinity.bit_count())
    return max_of_min_count


def compare(  # noqa: C901, PLR0911 - the cases stand as in policy.go
    current: TopologyHint | None, candidate: TopologyHint, best_count: int
) -> TopologyHint | None:
    """HintMerger.compare of policy.go, with the default policy options."""
    assert candidate.affinity is not None
    if candidate.affinity.bit_count() == 0:
        return current
    if current is None:
        return candidate
    assert current.affinity is not None
    if not current.preferred and candidate.preferred:
        return candidate
    if current.preferred and not candidate.preferred:
        return current
    if current.preferred and candidate.preferred:
        return compare_numa_affinity_masks(current, candidate)
    count, candidate_count = current.affinity.bit_count(), candidate.affinity.bit_count()
    if count > best_count:  # case 1
        return compare_numa_affinity_masks(current, candidate)
    if count == best_count:  # case 2
        if candidate_count != best_count:
            return current
        return compare_numa_affinity_masks(current, candidate)
    if candidate_count > best_count:  # case 3a
        return current
    if candidate_count == best_count:  # case 3b
        return candidate
    if candidate_count > count:  # case 3ca
        return candidate
    if candidate_count < count:  # case 3cb
        return current
    return compare_numa_affinity_masks(current, candidate)  # case 3cc


def compare_numa_affinity_masks(current: TopologyHint, candidate: TopologyHint) -> TopologyHint:
    """The closure compareNumaAffinityMasks of NewHintMerger, by Narrowest of numa_info.go."""
    assert current.affinity is not None
    assert candidate.affinity is not None
    if candidate.affinity == current.affinity:
        return current
    m1, m2 = current.affinity, candidate.affinity
    best = m1 if is_narrower_than(m1, m2) else m2
    return current if best == current.affinity else candidate


def merge_hints(default_affinity: int, hints: list[list[TopologyHint]]) -> TopologyHint:
    """HintMerger.Merge of policy.go."""
    best_count = max_of_min_affinity_counts(hints)
    best: TopologyHint | None = None

    def iterate(i: int, accum: list[TopologyHint]) -> None:
        nonlocal best
        if i == len(hints):
            best = compare(best, merge_permutation(default_affinity, accum), best_count)
            return
        for hint in hints[i]:
            iterate(i + 1, [*accum, hint])

    iterate(0, [])
    return TopologyHint(default_affinity, preferred=False) if best is None else best


def filter_single_numa_hints(all_hints: list[list[TopologyHint]]) -> list[list[TopologyHint]]:
    """Its Go name: filterSingleNumaHints, of policy_single_numa_node.go."""
    filtered_hints: list[list[TopologyHint]] = []
    for one_resource_hints in all_hints:
        filtered: list[TopologyHint] = []
        for hint in one_resource_hints:
            if hint.affinity is None and hint.preferred:
                filtered.append(hint)
            if hint.affinity is not None and hint.affinity.bit_count() == 1 and hint.preferred:
                filtered.append(hint)
        filtered_hints.append(filtered)
    return filtered_hints


@dataclass
class Kubelet:
    """One kubelet with devices 0..n-1 of one resource.

    `numa[i]`: NUMA node of device i, None for no topology. `numa_nodes`: those of the machine.
    `take` orders what Go takes in the order of a map: the first ones are taken. `given` is what the
    containers admitted so far have.
    """

    policy: str
    scope: str
    numa: Sequence[int | None]
    numa_nodes: Sequence[int]
    healthy: set[int]
    allocated: set[int] = field(default_factory=set)
    take: Callable[[set[int]], list[int]] = sorted
    reuse: set[int] = field(default_factory=set)
    given: dict[str, set[int]] = field(default_factory=dict)
    hint: TopologyHint = field(default_factory=lambda: TopologyHint(None, preferred=True))

    # Scopes and policies of topologymanager.

    def admit(
        self,
        containers: Sequence[Container],
        plugin: Callable[[str, set[int], set[int], int], set[int]],
    ) -> dict[str, set[int]]:
        """Admit of scope_container.go and scope_pod.go; init containers stand first."""
        self.given = {}
        self.reuse = set()
        if self.scope == "pod":
            self.hint = self._calculate_affinity(self._pod_hints(containers))
        for container in containers:
            if self.scope == "container":
                self.hint = self._calculate_affinity(self._container_hints(container))
            if container.size:
                self.given[container.name] = self._allocate(container, plugin)
        return self.given

    def _calculate_affinity(self, hints: dict[str, list[TopologyHint] | None]) -> TopologyHint:
        best, admit = self.merge([hints, {}, {}])
        if not admit:
            msg = "TopologyAffinityError"
            raise NotAdmitted(msg)
        return best

    def merge(
        self, providers_hints: list[dict[str, list[TopologyHint] | None]]
    ) -> tuple[TopologyHint, bool]:
        default = sum(1 << node for node in self.numa_nodes)
        filtered = filter_providers_hints(providers_hints)
        if self.policy == "single-numa-node":
            best = merge_hints(default, filter_single_numa_hints(filtered))
            if best.affinity == default:
                best = TopologyHint(None, best.preferred)
            return best, best.preferred
        best = merge_hints(default, filtered)
        return best, best.preferred or self.policy == "best-effort"

    # Hints of devicemanager.

    def _has_alignment(self) -> bool:
        return any(node is not None for node in self.numa)

    def _container_hints(self, container: Container) -> dict[str, list[TopologyHint] | None]:
        if not container.size:
            return {}
        if not self._has_alignment():
            return {"gpu": None}
        available = self.healthy - self.allocated
        if len(available | self.reuse) < container.size:
            return {"gpu": []}
        return {"gpu": self.generate_hints(available, self.reuse, container.size)}

    def _pod_hints(self, containers: Sequence[Container]) -> dict[str, list[TopologyHint] | None]:
        requested = pod_limits(containers)
        if not requested:
            return {}
        if not self._has_alignment():
            return {"gpu": None}
        available = self.healthy - self.allocated
        if len(available) < requested:
            return {"gpu": []}
        return {"gpu": self.generate_hints(available, set(), requested)}

    def generate_hints(  # noqa: C901 - one function in Go
        self, available: set[int], reusable: set[int], request: int
    ) -> list[TopologyHint]:
        """Its Go name: generateDeviceTopologyHints, of topology_hints.go."""
        numa_nodes = sorted({n for n in self.numa if n is not None} & set(self.numa_nodes))
        if len(numa_nodes) == 0:
            numa_nodes = list(self.numa_nodes)
        min_affinity_size = len(numa_nodes)
        hints: list[TopologyHint] = []
        for mask in iterate_bit_masks(numa_nodes):
            devices_in_mask = sum(1 for node in self.numa if _any_set(mask, node))
            if devices_in_mask >= request and mask.bit_count() < min_affinity_size:
                min_affinity_size = mask.bit_count()
            num_matching, is_apart = 0, False
            for device in reusable:
                if self.numa[device] is None:
                    continue
                if not _any_set(mask, self.numa[device]):
                    is_apart = True
                    break
                num_matching += 1
            if is_apart:
                continue
            num_matching += sum(1 for device in available if _any_set(mask, self.numa[device]))
            if num_matching < request:
                continue
            hints.append(TopologyHint(mask, preferred=False))
        for hint in hints:
            if (hint.affinity or 0).bit_count() == min_affinity_size:
                hint.preferred = True
        return hints

    # Allocation, by the device manager.

    def _allocate(
        self, container: Container, plugin: Callable[[str, set[int], set[int], int], set[int]]
    ) -> set[int]:
        devices = self._devices_to_allocate(container, plugin)
        if container.role == INIT:
            self.reuse = self.reuse | devices
        else:
            self.reuse = self.reuse - devices
        return devices

    def _devices_to_allocate(
        self, container: Container, plugin: Callable[[str, set[int], set[int], int], set[int]]
    ) -> set[int]:
        mask = self.hint.affinity
        nodes = (
            None if mask is None else {one for one in range(mask.bit_length()) if mask >> one & 1}
        )
        numa = {one: () if node is None else (node,) for one, node in enumerate(self.numa)}
        calls = devices_to_allocate(
            "gpu",
            container.size,
            reusable=self.reuse,
            healthy=self.healthy,
            allocated=self.allocated,
            order=self.take,
            filter_by_affinity=lambda available: by_affinity(available, numa, nodes),
        )
        return answered(
            calls,
            lambda call: plugin(container.name, call.available, call.must_include, call.size),
        )


def _any_set(mask: int, node: int | None) -> bool:
    return node is not None and bool(mask >> node & 1)


def pod_limits(containers: Sequence[Container]) -> int:
    """AggregateContainerLimits of component-helpers v0.36.3, resource/helpers.go."""
    limits = sum(one.size for one in containers if one.role == APP)
    restartable, init = 0, 0
    for one in containers:
        if one.role == SIDECAR:
            limits += one.size
            restartable += one.size
            init = max(init, restartable)
        elif one.role == INIT:
            init = max(init, one.size + restartable)
    return max(limits, init)
