"""Chooses the victims on one node so that a pod can have a set of GPUs there.

They are the cheapest pods of lower priority whose GPUs, with those that are free anyway,
hold a set that satisfies the pod, while its other resources fit too; or that none would do. It
never names a pod of equal or higher priority, and reads nothing.

Choice. In play are the pods of lower priority that hold GPUs. Pods that kube-scheduler would evict
as well stay victims if they hold none (the pod may need their port or their memory), or if they are
entangled with the pod by more than resources (`extender.preemption.node_pods.is_entangled`); so
what its own filters found to hold with its own victims holds with ours. Pods under deletion count
as gone. Among the sets of victims that will do, the least is taken as kube-scheduler compares nodes
(1.36, framework/preemption/preemption.go `pickOneNodeForPreemption`): fewest budgets violated,
lowest priority of the most important victim, least sum of priorities, fewest victims, latest start
of the most important ones; then the better GPU set, then the uids. No pod is evicted that could be
spared: every victim makes the sum larger.

Exact for up to `MAX_EXACT` pods in play, by trying their 2^n sets in that order. Above, pods are
spared one by one as kube-scheduler does it (default_preemption.go `SelectVictimsOnNode`): those
whose budget would be violated first, then the most important first; O(n) fits, and still no pod is
evicted that could be spared alone.

Not seen here: cpu and memory of pods that are nominated to the node or being bound. Where they make
the difference, kube-scheduler finds out when the victims have left, and preempts again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from extender.preemption.node_pods import NodeReading, PodOnNode, is_entangled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kube.objects import DisruptionBudget

__all__ = ["MAX_EXACT", "PRIORITY_SHIFT", "Case", "Cost", "Eviction", "choose_victims", "cost_of"]

MAX_EXACT = 10
"""Pods in play up to which every set of victims is tried: 1,024 sets, 1 to 3 ms (measured)."""

PRIORITY_SHIFT = 2**31
"""Makes every priority >= 0, so that fewer victims of a negative priority are better
(`minSumPrioritiesScoreFunc`)."""

Cost: TypeAlias = tuple[int, int, int, int, float]
"""Violated budgets, highest priority, sum of shifted priorities, victims, minus earliest start
of the most important victims; less is better."""


@dataclass(frozen=True, slots=True)
class Case:
    """One node, and the pod that wants to have room there.

    `free`: mask of the devices that the pod may have already. `held`: masks of the devices that
    each pod with GPUs would free, by uid; 0 for one that has bad ones only. `given`: the victims of
    kube-scheduler, any of which may be gone meanwhile. `quality` returns how good the best set in a
    mask is (less is better), or None where no set in it satisfies the pod.
    """

    pod: PodOnNode
    reading: NodeReading
    given: tuple[str, ...]
    free: int
    held: Mapping[str, int]
    budgets: Sequence[DisruptionBudget]
    quality: Callable[[int], tuple[object, ...] | None]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Whom to evict, the most important first, and how many budgets that violates.

    `is_in_progress`: all victims are terminating already; the uids are theirs, as far as they
    are of lower priority. No uids and not in progress: no eviction is needed.
    """

    uids: tuple[str, ...]
    n_violations: int
    is_in_progress: bool = False


def choose_victims(case: Case) -> Eviction | None:
    """Choose the victims on one node; None where no eviction would do, or is allowed."""
    node = _Node(case)
    if node.has_important_given:
        return None
    if node.is_enough(()):
        return _name(node, ())
    choose = _least if len(node.in_play) <= MAX_EXACT else _spared
    chosen = choose(node)
    return None if chosen is None else _name(node, chosen)


def cost_of(victims: Sequence[PodOnNode], budgets: Sequence[DisruptionBudget]) -> Cost:
    """What evicting these pods costs, as kube-scheduler compares nodes.

    >>> cost_of([PodOnNode("u1", "ns", "a", priority=5, started_s=7.0)], [])
    (0, 5, 2147483653, 1, -7.0)
    """
    cost = _NO_VICTIMS
    for victim in victims:
        cost = _with(cost, victim)
    return _violating_as_well(cost, victims, budgets)


_NO_VICTIMS: Cost = (0, -PRIORITY_SHIFT, 0, 0, -math.inf)


def _with(cost: Cost, victim: PodOnNode) -> Cost:
    """The cost with one victim more, without budgets."""
    n_violations, highest, total, n, minus_start = cost
    if victim.priority > highest:
        highest, minus_start = victim.priority, -_start(victim)
    elif victim.priority == highest:
        minus_start = max(minus_start, -_start(victim))
    return n_violations, highest, total + victim.priority + PRIORITY_SHIFT, n + 1, minus_start


def _violating_as_well(
    cost: Cost, victims: Iterable[PodOnNode], budgets: Sequence[DisruptionBudget]
) -> Cost:
    """The cost with the budgets that these victims violate."""
    if not budgets:
        return cost
    return (len(_violating(sorted(victims, key=_importance), budgets)), *cost[1:])


class _Node:
    """The node's pods by their part in the choice."""

    def __init__(self, case: Case) -> None:
        pods = {one.uid: one for one in case.reading.pods if not one.has_ended}
        live = [one for one in pods.values() if not one.is_deleting]
        self._case = case
        self.leaving = [one for one in pods.values() if one.is_deleting]
        given = [one for one in live if one.uid in case.given]
        self.has_important_given = any(not self._is_below(one) for one in given)
        self.kept = [
            one for one in given if one.uid not in case.held or is_entangled(case.pod, one)
        ]
        self.in_play = [
            one
            for one in sorted(live, key=_importance)
            if one.uid in case.held and self._is_below(one) and one not in self.kept
        ]
        self.gone_before = tuple(
            uid for uid in case.given if uid not in {one.uid for one in case.reading.pods}
        )
        self.budgets = [
            budget
            for budget in case.budgets
            if any(
                budget.covers(one.namespace, one.name, one.labels)
                for one in (*self.kept, *self.in_play)
            )
        ]
        staying = [one for one in live if one not in self.kept]
        self._room = {
            resource: case.reading.room.get(resource, 0)
            - sum(one.requests.get(resource, 0) for one in staying)
            - amount
            for resource, amount in case.pod.requests.items()
            if amount > 0
        }
        self._free = case.free
        for one in (*self.leaving, *self.kept):
            self._free |= case.held.get(one.uid, 0)

    def _is_below(self, one: PodOnNode) -> bool:
        return one.priority < self._case.pod.priority

    @property
    def leaving_below(self) -> list[PodOnNode]:
        """Pods of lower priority that are under deletion."""
        return [one for one in self.leaving if self._is_below(one)]

    def has_room(self, victims: Iterable[PodOnNode]) -> bool:
        """Whether everything but GPU sets fits once these are gone too."""
        gone = tuple(victims)
        return all(
            room + sum(one.requests.get(resource, 0) for one in gone) >= 0
            for resource, room in self._room.items()
        )

    def quality(self, victims: Iterable[PodOnNode]) -> tuple[object, ...] | None:
        """How good the pod's set is once these are gone too."""
        mask = self._free
        for one in victims:
            mask |= self._case.held[one.uid]
        return self._case.quality(mask)

    def is_enough(self, victims: Sequence[PodOnNode]) -> bool:
        """Whether the pod can have its place once these are gone too."""
        return self.has_room(victims) and self.quality(victims) is not None


def _least(node: _Node) -> tuple[PodOnNode, ...] | None:
    """The cheapest set of victims, by trying them all in the order of their cost."""
    costed: list[tuple[Cost, tuple[PodOnNode, ...]]] = [(cost_of(node.kept, ()), ())]
    for one in node.in_play:
        costed += [(_with(cost, one), (*some, one)) for cost, some in costed]
    if node.budgets:
        costed = [
            (_violating_as_well(cost, (*node.kept, *some), node.budgets), some)
            for cost, some in costed
        ]
    for _, equal in groupby(sorted(costed, key=_cost), key=_cost):
        found = [
            (quality, sorted(one.uid for one in some), some)
            for _, some in equal
            if node.has_room(some) and (quality := node.quality(some)) is not None
        ]
        if found:
            return min(found, key=lambda one: one[:2])[2]
    return None


def _cost(costed: tuple[Cost, tuple[PodOnNode, ...]]) -> Cost:
    return costed[0]


def _spared(node: _Node) -> tuple[PodOnNode, ...] | None:
    """A set of victims of which none can be spared alone; the important are tried first."""
    victims = list(node.in_play)
    if not node.is_enough(victims):
        return None
    everyone = sorted((*node.kept, *victims), key=_importance)
    violating = {one.uid for one in _violating(everyone, node.budgets)}
    for one in sorted(node.in_play, key=lambda pod: pod.uid not in violating):
        others = [victim for victim in victims if victim is not one]
        if node.is_enough(others):
            victims = others
    return tuple(victims)


def _violating(
    ordered: Iterable[PodOnNode], budgets: Sequence[DisruptionBudget]
) -> list[PodOnNode]:
    """The pods that find a budget used up, evicted in this order (`filterPodsWithPDBViolation`)."""
    left = [budget.n_allowed for budget in budgets]
    found: list[PodOnNode] = []
    for pod in ordered:
        is_violating = False
        for i, budget in enumerate(budgets):
            if budget.covers(pod.namespace, pod.name, pod.labels):
                left[i] -= 1
                is_violating |= left[i] < 0
        if is_violating:
            found.append(pod)
    return found


def _name(node: _Node, chosen: tuple[PodOnNode, ...]) -> Eviction:
    """The answer; pods that we cannot see any more come last, their importance is not known."""
    victims = sorted((*node.kept, *chosen), key=_importance)
    if victims or not node.leaving:
        uids = (*(one.uid for one in victims), *node.gone_before)
        return Eviction(uids, len(_violating(victims, node.budgets)))
    uids = (*(one.uid for one in sorted(node.leaving_below, key=_importance)), *node.gone_before)
    return Eviction(uids, 0, is_in_progress=True)


def _importance(pod: PodOnNode) -> tuple[int, float, str]:
    """The most important first (`MoreImportantPod`): priority, then age."""
    return (-pod.priority, _start(pod), pod.uid)


def _start(pod: PodOnNode) -> float:
    """A pod that the kubelet has not seen is the youngest (`GetPodStartTime`)."""
    return math.inf if pod.started_s is None else pod.started_s
