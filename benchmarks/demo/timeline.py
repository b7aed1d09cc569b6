"""The demo's clock: pods arrive, wait, run and end, the same way for every policy.

Records where each pod ran and from when. It chooses nothing (`benchmarks.demo.policies` do) and
judges nothing.

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
    from collections.abc import Sequence

    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.policies import Place, Policy

__all__ = ["Placed", "Player", "Run", "play"]


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
class Run:
    """What one policy did: pods placed, pods never placed, what ran right after the last arrival.

    `n_waited` pods found no place when they arrived.
    """

    policy: str
    placed: tuple[Placed, ...]
    unplaced: tuple[DemoPod, ...]
    running: tuple[Placed, ...]

    @property
    def n_waited(self) -> int:
        """Pods that found no place when they arrived."""
        return sum(one.waited_minutes > 0 for one in self.placed) + len(self.unplaced)


class Player:
    """One run under way.

    `waiting` in order of arrival, `running` by uid, `placed` all that were.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.placed: list[Placed] = []
        self.waiting: list[DemoPod] = []
        self.running: dict[str, Placed] = {}
        self._ends: list[tuple[int, str]] = []

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
        heapq.heappush(self._ends, (minute + pod.duration_minutes, pod.uid))
        return True

    def end_until(self, minute: int | None) -> None:
        """End pods in order of time and, after each minute with ends, try the waiting ones."""
        while self._ends and (minute is None or self._ends[0][0] <= minute):
            now = self._ends[0][0]
            while self._ends and self._ends[0][0] == now:
                ended = self.running.pop(heapq.heappop(self._ends)[1])
                self.policy.end(ended.pod, ended.place)
            self.waiting = [pod for pod in self.waiting if not self._try_to_place(pod, now)]


def play(policy: Policy, pods: Sequence[DemoPod]) -> Run:
    """Play the whole mix; raises what the policy raises."""
    player = Player(policy)
    for pod in pods:
        player.end_until(pod.arrival_minute)
        player.arrive(pod, pod.arrival_minute)
    running = tuple(player.running.values())
    player.end_until(None)
    for pod in player.waiting:
        policy.end(pod, None)
    return Run(policy.name, tuple(player.placed), tuple(player.waiting), running)
