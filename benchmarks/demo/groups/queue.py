"""kube-scheduler's queue, for pods that may wait for each other.

A pod that gets no node waits, and is tried again whenever a pod was bound or has ended, as the
events of assigned pods make kube-scheduler do. It chooses nothing: the policy does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.policies import Place, Policy

__all__ = ["Queue"]

PAUSE_S = 0.25
MOST_PAUSES = 16
"""Pauses, 4 s in all, after which pods that were tried again have no place. Coterie plans a group
that had no room 0.5 s after the last plan at the earliest, and would then wake its pods; an
embedded cluster has no API server that it could do so by."""


class Queue:
    """Pods under one policy: `placed` in order of their bind by uid, `waiting` in that of arrival.

    `pause` waits for so many seconds; without it pods are tried once when others have ended.
    """

    def __init__(self, policy: Policy, pause: Callable[[float], object] | None = None) -> None:
        self._policy = policy
        self._pause = pause
        self.placed: dict[str, tuple[DemoPod, Place]] = {}
        self.waiting: list[DemoPod] = []

    def arrive(self, pods: Iterable[DemoPod]) -> None:
        """Pods are created, one after the other."""
        for pod in pods:
            if self._try(pod):
                self.retry()
            else:
                self.waiting.append(pod)

    def retry(self) -> bool:
        """Try those that wait until no more of them gets a place; whether one did."""
        n_before = len(self.waiting)
        n_waiting = n_before + 1
        while len(self.waiting) < n_waiting:
            n_waiting = len(self.waiting)
            self.waiting = [pod for pod in self.waiting if not self._try(pod)]
        return len(self.waiting) < n_before

    def end(self, pods: Iterable[DemoPod]) -> None:
        """Pods end; then those that wait are tried again, for as long as it may take."""
        for pod in pods:
            self._policy.end(*self.placed.pop(pod.uid))
        for _ in range(MOST_PAUSES):
            if self.retry() or not self.waiting or self._pause is None:
                return
            self._pause(PAUSE_S)

    def clear(self) -> None:
        """All pods end, and none waits any more."""
        self.waiting = []
        self.end([pod for pod, _ in self.placed.values()])

    def _try(self, pod: DemoPod) -> bool:
        place = self._policy.place(pod)
        if place is not None:
            self.placed[pod.uid] = (pod, place)
        return place is not None
