"""The state of a fleet: nodes with free GPUs, CPU and memory, and what is stranded on them.

Says where a policy puts a pod, and how many free GPUs pods of each size cannot use. Nodes of one
machine type with the same GPUs free are one state, which a policy rates once.

Stranded for size d: as `benchmarks.fleet.stranding` counts it, machine by machine; for size 1, free
GPUs on nodes that lack the CPU or memory of the median one-GPU pod. Pods without GPUs go, alike
under every policy, to the fitting node with the fewest free GPUs.
"""

from __future__ import annotations

import random
from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.fleet.stranding import Stranding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.fleet.node_choice import FleetPolicy, MachineType
    from benchmarks.fleet.trace import TracePod

__all__ = ["SIZES", "Fleet"]

SIZES = (1, 2, 4, 8)


@dataclass(slots=True)
class _Node:
    machine: MachineType
    free: int
    cpu_milli: int
    memory_mib: int


class Fleet:
    """Nodes with free GPUs, CPU and memory, grouped by state; mutable, one per run."""

    def __init__(
        self,
        nodes: Iterable[tuple[MachineType, int, int]],
        policy: FleetPolicy,
        *,
        seed: int,
        single: tuple[int, int] = (0, 0),
    ) -> None:
        self.policy = policy
        self._rng = random.Random(seed)
        self._single = single
        self._stranding = Stranding()
        self.nodes = [
            _Node(machine, (1 << machine.topology.n_gpus) - 1, cpu, memory)
            for machine, cpu, memory in nodes
        ]
        self._groups: dict[tuple[MachineType, int], list[int]] = {}
        for index, node in enumerate(self.nodes):
            self._groups.setdefault((node.machine, node.free), []).append(index)
        self.stranded = dict.fromkeys(SIZES, 0)
        self.n_free = 0
        for node in self.nodes:
            self._count(node, 1)

    def _count(self, node: _Node, sign: int) -> None:
        self.n_free += sign * node.free.bit_count()
        cpu, memory = self._single
        if node.cpu_milli < cpu or node.memory_mib < memory:
            self.stranded[1] += sign * node.free.bit_count()
        for size in SIZES[1:]:
            self.stranded[size] += sign * self._stranding.count(
                node.machine.tables, node.free, size
            )

    def _change(self, index: int, *, take: int, give: int, cpu: int, memory: int) -> None:
        node = self.nodes[index]
        self._count(node, -1)
        old = (node.machine, node.free)
        node.free = node.free & ~take | give
        node.cpu_milli -= cpu
        node.memory_mib -= memory
        if (node.machine, node.free) != old:
            self._groups[old].remove(index)
            if not self._groups[old]:
                del self._groups[old]
            insort(self._groups.setdefault((node.machine, node.free), []), index)
        self._count(node, 1)

    def _fitting(self, state: tuple[MachineType, int], pod: TracePod) -> Iterable[int]:
        return (
            index
            for index in self._groups[state]
            if self.nodes[index].cpu_milli >= pod.cpu_milli
            and self.nodes[index].memory_mib >= pod.memory_mib
        )

    def _choose_node(self, pod: TracePod) -> int | None:
        by_key: dict[object, list[tuple[MachineType, int]]] = {}
        for state in self._groups:
            key = self.policy.key(*state, pod.n_gpus) if pod.n_gpus else (state[1].bit_count(),)
            if key is not None:
                by_key.setdefault(key, []).append(state)
        for _, states in sorted(by_key.items(), key=lambda item: item[0]):  # type: ignore[arg-type,return-value] # keys of one policy compare
            if pod.n_gpus and self.policy.nodes.has_random_ties:
                fitting = [index for state in states for index in self._fitting(state, pod)]
                if fitting:
                    return self._rng.choice(sorted(fitting))
            else:
                firsts = [next(iter(self._fitting(state, pod)), None) for state in states]
                found = [index for index in firsts if index is not None]
                if found:
                    return min(found)
        return None

    def place(self, pod: TracePod) -> tuple[int, int] | None:
        """Place a pod; returns node index and GPU mask, None where it fits nowhere."""
        index = self._choose_node(pod)
        if index is None:
            return None
        node = self.nodes[index]
        taken = 0
        if pod.n_gpus:
            chosen = self.policy.take(node.machine, node.free, pod.n_gpus, self._rng)
            if chosen is None:
                return None
            taken = chosen
        self._change(index, take=taken, give=0, cpu=pod.cpu_milli, memory=pod.memory_mib)
        return index, taken

    def occupy(self, index: int, gpus: int) -> None:
        """Take GPUs of a node (a mask) that no pod of the run holds."""
        self._change(index, take=gpus, give=0, cpu=0, memory=0)

    def remove(self, pod: TracePod, index: int, gpus: int) -> None:
        """Give a pod's GPUs, CPU and memory back."""
        self._change(index, take=0, give=gpus, cpu=-pod.cpu_milli, memory=-pod.memory_mib)

    def relative(self, index: int, gpus: int) -> float:
        """Value of a set relative to the best of its size on its machine."""
        tables = self.nodes[index].machine.tables
        best = tables.best_value[gpus.bit_count()]
        return float(tables.value[gpus]) / best if best else 1.0

    def gbytes_per_s(self, index: int, gpus: int) -> float:
        """Value of a set, GB/s; 0 for one GPU."""
        return float(self.nodes[index].machine.tables.value[gpus])

    def free_gpus_of(self, machine: MachineType) -> list[int]:
        """Number of free GPUs of each node of a type."""
        return [node.free.bit_count() for node in self.nodes if node.machine is machine]
