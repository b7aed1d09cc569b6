"""The demo's cluster kept live: pods arrive and end for as long as somebody looks at the page.

Fills the embedded cluster with a mix of pods and then goes on with mixes of the next seeds, at a
pace that people can follow, until SIGINT, SIGTERM or the end of its time. It compares nothing.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from benchmarks.demo.kube_scheduler import HttpExtender
from benchmarks.demo.pods import draw_pods
from benchmarks.demo.policies import ExtenderPolicy
from benchmarks.demo.timeline import Player

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import httpx

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.groups.traffic import JobTraffic
    from benchmarks.demo.pods import DemoPod, Product

__all__ = ["Traffic", "come_and_go", "until_signal"]

MINUTE_S = 1.0
"""Seconds that a minute of the demo's clock lasts: about a pod a second comes, and one ends."""
MOST_WAITING = 8
"""Pods that wait at most: with so many a pod that would come stays away, as it would in life."""
N_PODS_OF_MIX = 120


class Traffic:
    """Pods that come and go on the extender's embedded cluster; `minute` is the demo's clock.

    `jobs` are those of several pods, None while there are none.
    """

    def __init__(
        self, client: httpx.Client, nodes: Mapping[str, DemoNode], products: Sequence[Product]
    ) -> None:
        policy = ExtenderPolicy(nodes, HttpExtender(client), seed=0)
        self.player = Player(policy, nodes)
        self.minute = 0
        self.jobs: JobTraffic | None = None
        self._pods = _endless(products)
        self._next = next(self._pods)

    def fill(self, n_pods: int = N_PODS_OF_MIX) -> None:
        """Let so many pods arrive at once, by the clock; pods that end meanwhile end."""
        for _ in range(n_pods):
            self.advance(max(0, self._next.arrival_minute - self.minute))
            self._arrive()

    def advance(self, minutes: int = 1) -> None:
        """Move the clock; what ends and what arrives until then does."""
        self.minute += minutes
        if self.jobs is not None:
            self.jobs.advance(self.minute)
        self.player.end_until(self.minute)
        # What was placed is of no use any more, and this may run for days.
        self.player.placed.clear()
        while self._next.arrival_minute < self.minute:
            self._arrive()

    def _arrive(self) -> None:
        if len(self.player.waiting) < MOST_WAITING:
            self.player.arrive(self._next, self.minute)
        self._next = next(self._pods)


def _endless(products: Sequence[Product]) -> Iterator[DemoPod]:
    """Mix after mix, each a continuation of the one before, with names and uids of their own."""
    begin = 0
    for seed in count():
        mix = draw_pods(N_PODS_OF_MIX, seed=seed, products=products)
        for i, pod in enumerate(mix):
            number = seed * N_PODS_OF_MIX + i
            yield replace(
                pod,
                name=f"pod-{number:05d}",
                uid=f"00000000-0000-4000-8001-{number:012d}",
                arrival_minute=begin + pod.arrival_minute,
            )
        begin += mix[-1].arrival_minute + 1


@contextmanager
def until_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set while the block lasts."""
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def come_and_go(
    traffic: Traffic,
    wait: Callable[[float], bool],
    *,
    for_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Advance the traffic minute by minute until `wait(seconds)` is true, or for so many seconds.

    Raises `ServerFailed` where the extender ends meanwhile.
    """
    end_s = None if for_s is None else clock() + for_s
    while end_s is None or clock() < end_s:
        if wait(MINUTE_S):
            return
        traffic.advance()
