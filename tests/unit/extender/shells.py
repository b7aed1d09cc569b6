"""Time, log and pods for the tests of what surrounds the engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kube.errors import KubeError, Unreachable
from kube.objects import read_pod
from kube.watch import Backoff
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.objects import PodObject

DOWN = Unreachable(0, "Unreachable", "connection refused")
FORBIDDEN = KubeError(403, "Forbidden", "not allowed")
BUSY = KubeError(429, "TooManyRequests", "later", retry_after_s=1.0)


class FakeTime:
    """Seconds that pass only when a task sleeps."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s
        self.slept: list[float] = []

    def __call__(self) -> float:
        """The time now."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once, and others run."""
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


class Log:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **fields: object) -> None:
        """Take a line."""
        self.lines.append({"event": event, **fields})

    debug = warning = info

    @property
    def events(self) -> list[str]:
        """The names of the events, in order."""
        return [line["event"] for line in self.lines]


def backoff() -> Backoff:
    """Delays of 0.05 s, 0.1 s, ..., 0.5 s: nothing is drawn."""
    return Backoff(first_s=0.1, cap_s=1.0, jitter=lambda: 0.0)


def pod_object(
    uid: str = "u1", node: str = "", *, is_deleting: bool = False, **annotations: str
) -> PodObject:
    """A pod as the API server has it; annotations by their short names."""
    meta: dict[str, Any] = {"uid": uid, "namespace": "ns", "name": "p", "resourceVersion": "7"}
    meta["annotations"] = {names.PREFIX + key: value for key, value in annotations.items()}
    if is_deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return read_pod({"metadata": meta, "spec": {"nodeName": node}, "status": {}})


async def until(is_so: Callable[[], object], *, n_turns: int = 10_000) -> None:
    """Let the loop turn until something holds; no time passes but what is slept."""
    for _ in range(n_turns):
        if is_so():
            return
        await asyncio.sleep(0)
    msg = "it never came to hold"
    raise AssertionError(msg)


async def run_until(running: Any, is_so: Callable[[], object]) -> None:
    """Run something that never ends, until something holds; what it raises is raised."""
    task = asyncio.ensure_future(running)
    try:
        await until(lambda: task.done() or is_so())
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
