"""The demo's clock: pods arrive, wait, run and end, the same way for every policy.

Records where each pod ran and from when, and the state of the fleet after each arrival. It chooses
nothing (`benchmarks.demo.policies` do) and judges nothing.

Method: events in order of time, ends before arrivals. A pod that gets no place waits; whenever pods
ended, the waiting ones are tried again in the order of their arrival, and one that still does not
fit does not block those behind it (kube-scheduler's queue). After the last arrival the fleet
drains, so that every pod that can run has run.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.policies import Place, Policy

__all__ = ["Moment", "Placed", "Player", "Run", "play"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod with its place; `minute` is when it started."""

    pod: DemoPod
    place: Place
    minute: int

    @property
    def waited_minutes(self) -> int:
        """Minutes between arrival and start."""
        return self.minute - self.pod.arrival_minute


@dataclass(frozen=True, slots=True)
class Moment:
    """The fleet right after an arrival: what is free on each node, what runs, how many wait."""

    minute: int
    free: Mapping[str, int]
    running: tuple[Placed, ...]
    n_waiting: int

    @property
    def n_free(self) -> int:
        """Number of free GPUs."""
        return sum(mask.bit_count() for mask in self.free.values())


@dataclass(frozen=True, slots=True)
class Run:
    """What one policy did: pods placed, pods never placed, the fleet after each arrival."""

    policy: str
    note: str
    placed: tuple[Placed, ...]
    unplaced: tuple[DemoPod, ...]
    moments: tuple[Moment, ...]

    @property
    def busiest(self) -> Moment:
        """The moment right after the last arrival."""
        return self.moments[-1]


class Player:
    """One run under way.

    `waiting` in order of arrival, `running` by uid, `placed` all that were, `free` masks by node.
    """

    def __init__(self, policy: Policy, nodes: Mapping[str, DemoNode]) -> None:
        self.policy = policy
        self.placed: list[Placed] = []
        self.waiting: list[DemoPod] = []
        self.running: dict[str, Placed] = {}
        self.ends: list[tuple[int, str]] = []
        self.free = {name: (1 << node.n_gpus) - 1 for name, node in nodes.items()}

    def arrive(self, pod: DemoPod, minute: int) -> None:
        """A pod comes: it is placed, or it waits."""
        if not self._try_to_place(pod, minute):
            self.waiting.append(pod)

    def _try_to_place(self, pod: DemoPod, minute: int) -> bool:
        place = self.policy.place(pod)
        if place is None:
            return False
        placed = Placed(pod, place, minute)
        self.placed.append(placed)
        self.running[pod.uid] = placed
        self.free[place.node] &= ~place.gpus
        heapq.heappush(self.ends, (minute + pod.duration_minutes, pod.uid))
        return True

    def end_until(self, minute: int | None) -> None:
        """End pods in order of time and, after each minute with ends, try the waiting ones."""
        while self.ends and (minute is None or self.ends[0][0] <= minute):
            now = self.ends[0][0]
            while self.ends and self.ends[0][0] == now:
                ended = self.running.pop(heapq.heappop(self.ends)[1])
                self.policy.end(ended.pod, ended.place)
                self.free[ended.place.node] |= ended.place.gpus
            self.waiting = [pod for pod in self.waiting if not self._try_to_place(pod, now)]

    def moment(self, minute: int) -> Moment:
        """The fleet as it is now."""
        return Moment(minute, dict(self.free), tuple(self.running.values()), len(self.waiting))


def play(
    policy: Policy,
    pods: Sequence[DemoPod],
    nodes: Mapping[str, DemoNode],
    *,
    advance: Callable[[], None] = lambda: None,
) -> Run:
    """Play the whole mix; `advance` is called after each arrival.

    Raises what the policy raises.
    """
    player = Player(policy, nodes)
    moments: list[Moment] = []
    for pod in pods:
        player.end_until(pod.arrival_minute)
        player.arrive(pod, pod.arrival_minute)
        moments.append(player.moment(pod.arrival_minute))
        advance()
    player.end_until(None)
    return Run(
        policy.name, policy.note, tuple(player.placed), tuple(player.waiting), tuple(moments)
    )
