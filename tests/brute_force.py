"""The order of sets in its plainest form: every combination, every condition, one sort key.

Written from the contract, not from the code it judges: conditions come from the model's own
matrices (networkx for connectivity), what is left behind from a recursion over disjoint sets. Only
the values and measured sums of sets are taken from the tables, which tests of their own hold equal
to the definition. Slow; up to 10 GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import networkx as nx

from topology.annotations import Affinity, NicRule, PlacementPolicy, Strength
from topology.model import CpuPlatform, P2pAccess, PcieLevel, find_gpu_model
from topology.value import DEFAULT_DEMAND, STATED_ERROR, Limit, mask_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topology.select import MachineTables

__all__ = ["BruteForce", "SetFacts", "is_remainder_first"]

WITHIN_SWITCH = {PcieLevel.PIX, PcieLevel.PXB}
WITHIN_SOCKET = WITHIN_SWITCH | {PcieLevel.PHB, PcieLevel.NODE}
CLASS_GAP = 0.10


@dataclass(frozen=True, slots=True)
class SetFacts:
    """What the order looks at, of one set."""

    gpus: tuple[int, ...]
    value: float
    floor: float
    value_class: int
    sums: tuple[float, float]
    raw: float
    levels: frozenset[Affinity]
    has_nic: bool
    is_uniform: bool
    is_known: bool


def is_remainder_first(policy: PlacementPolicy, size: int) -> bool:
    """`none`, one GPU, and a lower bound without an affinity get what hurts others least."""
    is_bounded = policy.min_bandwidth_gbytes_per_s is not None
    return (
        size == 1
        or policy.affinity is Affinity.NONE
        or (policy.affinity is Affinity.ANY and is_bounded)
    )


class BruteForce:
    """One machine; `tables` lend the values of its sets, and what was measured."""

    def __init__(self, tables: MachineTables) -> None:
        self.topology = topology = tables.topology
        self._tables = tables
        self._links = self._graph(lambda i, j: topology.links[i][j].is_up)
        self._switches = self._parts(lambda i, j: topology.pcie[i][j] in WITHIN_SWITCH)
        self._sockets = self._parts(self._is_one_socket)
        self._facts: dict[int, dict[tuple[int, ...], SetFacts]] = {}
        self.remainder = cache(self._remainder)
        self._disjoint = cache(self._best_disjoint)
        self._value = cache(self._value_of)

    def _graph(self, is_joined: Callable[[int, int], bool]) -> nx.Graph[int]:
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(self.topology.n_gpus))
        pairs = combinations(range(self.topology.n_gpus), 2)
        graph.add_edges_from((i, j) for i, j in pairs if is_joined(i, j))
        return graph

    def _parts(self, is_joined: Callable[[int, int], bool]) -> list[set[int]]:
        return [set(part) for part in nx.connected_components(self._graph(is_joined))]

    def _is_one_socket(self, i: int, j: int) -> bool:
        one, other = self.topology.gpus[i].numa_node, self.topology.gpus[j].numa_node
        return self.topology.pcie[i][j] in WITHIN_SOCKET or (one is not None and one == other)

    def _value_of(self, gpus: tuple[int, ...]) -> tuple[float, Limit]:
        mask = mask_of(gpus)
        return float(self._tables.value[mask]), Limit(int(self._tables.limit[mask]))

    def facts(self, size: int) -> dict[tuple[int, ...], SetFacts]:
        """All sets of a size."""
        if size not in self._facts:
            every = list(combinations(range(self.topology.n_gpus), size))
            values = sorted({self._value(gpus)[0] for gpus in every}, reverse=True)
            classes, current = {}, 0
            for place, value in enumerate(values):
                if place and value < values[place - 1] * (1 - CLASS_GAP):
                    current += 1
                classes[value] = current
            self._facts[size] = {
                gpus: self._describe(gpus, classes[self._value(gpus)[0]]) for gpus in every
            }
        return self._facts[size]

    def _describe(self, gpus: tuple[int, ...], value_class: int) -> SetFacts:
        topology, members = self.topology, set(gpus)
        pairs = list(combinations(gpus, 2))
        value, limit = self._value(gpus)
        levels = {Affinity.ANY, Affinity.NONE}
        if nx.is_connected(self._links.subgraph(gpus)):
            levels.add(Affinity.NVLINK)
        if len(gpus) == 1 or any(members <= part for part in self._switches):
            levels.add(Affinity.PCIE_SWITCH)
        if len(gpus) == 1 or any(members <= part for part in self._sockets):
            levels.add(Affinity.NUMA)
        near = sum(self._closeness(i, j) for i, j in pairs)
        if topology.measurement is None:
            capacities = self._tables.capacities
            density = sum(capacities.units[i][j] for i, j in pairs)
            first, raw = density * capacities.unit_gbytes_per_s / len(gpus), 0.0
        else:
            first, raw = (
                float(sums[mask_of(gpus)])
                for sums in (self._tables.class_sum, self._tables.raw_sum)
            )
        sums = (round(first, 6), round(near / max(len(pairs), 1), 6))
        return SetFacts(
            gpus=gpus,
            value=value,
            floor=value * (1 - STATED_ERROR[limit]),
            value_class=value_class,
            sums=sums,
            raw=raw,
            levels=frozenset(levels),
            has_nic=any(
                nic.is_rdma and nic.levels[gpu] in WITHIN_SWITCH
                for nic in topology.nics
                for gpu in gpus
            ),
            is_uniform=len({topology.gpus[gpu].model for gpu in gpus} - {None}) <= 1,
            is_known=self._is_measured(gpus) or not self._unknowns(gpus, limit),
        )

    def _closeness(self, i: int, j: int) -> int:
        """5 (PIX) .. 1 (SYS); a hidden level is the farthest that the NUMA nodes leave open."""
        level = self.topology.pcie[i][j]
        if level is PcieLevel.UNKNOWN:
            one, other = self.topology.gpus[i].numa_node, self.topology.gpus[j].numa_node
            level = PcieLevel.NODE if one is not None and one == other else PcieLevel.SYS
        return 6 - level.rank

    def _is_measured(self, gpus: tuple[int, ...]) -> bool:
        measurement = self.topology.measurement
        if measurement is None:
            return False
        pairs = {(pair.first, pair.second) for pair in measurement.pairs}
        return gpus in pairs or any(entry.gpus == gpus for entry in measurement.sets)

    def _unknowns(self, gpus: tuple[int, ...], limit: Limit) -> list[str]:
        """The unknown facts on which the value of a set depends."""
        if len(gpus) == 1:
            return []
        topology = self.topology
        unknowns = []
        for i, j in combinations(gpus, 2):
            link = topology.links[i][j]
            if not link.is_known or (link.is_up and link.n_links is None):
                unknowns.append(f"links of {i} and {j}")
            if topology.pcie[i][j] is PcieLevel.UNKNOWN and limit >= Limit.PORT:
                unknowns.append(f"PCIe between {i} and {j}")
        every = [find_gpu_model(gpu.model) for gpu in topology.gpus]
        for i in gpus:
            model, stated = every[i], topology.gpus[i].link_generation
            if limit >= Limit.PORT and model is None:
                unknowns.append(f"PCIe generation of {i}")
            if limit < Limit.PORT and stated is None and not (model and model.link_generation):
                unknowns.append(f"link generation of {i}")
        if limit >= Limit.PORT and topology.p2p is P2pAccess.UNKNOWN and None in every:
            unknowns.append("P2P")
        if limit is Limit.SOCKET and topology.cpu is CpuPlatform.UNKNOWN:
            unknowns.append("CPU")
        return unknowns

    def _best_disjoint(self, free: frozenset[int], d: int) -> float:
        """The best total value of disjoint sets of d GPUs inside `free`."""
        if len(free) < d:
            return 0.0
        low = min(free)
        rest = free - {low}
        best = self._disjoint(rest, d)
        for others in combinations(sorted(rest), d - 1):
            own = self._value((low, *others))[0] if d > 1 else 1.0
            best = max(best, own + self._disjoint(rest.difference(others), d))
        return best

    def _remainder(self, free: frozenset[int]) -> float:
        n = self.topology.n_gpus
        everything = frozenset(range(n))
        fitting = [(d, weight) for d, weight in DEFAULT_DEMAND.sizes if d <= n]
        total = sum(
            weight * self._disjoint(free, d) / self._disjoint(everything, d)
            for d, weight in fitting
        )
        return round(total / sum(weight for _, weight in fitting), 9)

    def qualifies(self, facts: SetFacts, policy: PlacementPolicy) -> bool:
        """Whether a set meets every condition (wishes aside)."""
        size, floor = len(facts.gpus), policy.min_bandwidth_gbytes_per_s
        if policy.affinity is not Affinity.NONE and not facts.is_uniform:
            return False
        if policy.strength is Strength.REQUIRED and policy.affinity not in facts.levels:
            return False
        if policy.nic is NicRule.REQUIRED and not facts.has_nic:
            return False
        return floor is None or size == 1 or (facts.is_known and facts.floor >= floor)

    def ordered(
        self,
        available: Iterable[int],
        must_include: Iterable[int],
        size: int,
        policy: PlacementPolicy,
    ) -> list[SetFacts]:
        """Every set that may be chosen, best first."""
        free, must = frozenset(available), frozenset(must_include)

        def key(facts: SetFacts) -> tuple[object, ...]:
            wishes = (
                policy.affinity not in facts.levels,
                policy.nic is NicRule.PREFERRED and not facts.has_nic,
            )
            worth = (facts.value_class, *(-figure for figure in facts.sums))
            left = (-self.remainder(free.difference(facts.gpus)),)
            first, second = (left, worth) if is_remainder_first(policy, size) else (worth, left)
            return (*wishes, *first, *second, -facts.raw, -facts.value, facts.gpus)

        able = [
            facts
            for gpus, facts in self.facts(size).items()
            if must <= set(gpus) <= free and self.qualifies(facts, policy)
        ]
        return sorted(able, key=key)
