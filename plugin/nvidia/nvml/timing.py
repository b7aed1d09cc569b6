"""How long calls of NVML may take, and how that is measured: values, so that tests give others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

__all__ = ["NvmlTiming"]


def _has_returned(_key: str, done: threading.Event, left_s: float) -> bool:
    return done.wait(left_s)


@dataclass(frozen=True, slots=True)
class NvmlTiming:
    """All in seconds.

    - `poll_s` 5: the two calls of a poll, opening a handle, or registering a GPU's events. On the
      slowest machine that is known 40 calls took 0.6 s (k8s-device-plugin issue 774).
    - `read_s` 30: reading one GPU, all GPUs at once: that machine needed as long for 56 pairs.
    - `close_s` 5: closing waits for a reading, which takes less than a second where nothing hangs.
    - `slice_s` 1: longest wait inside NVML: the end of the plugin's pod waits no longer.
    - `pause_s` 1, `max_pause_s` 60: the pause after a wait that failed, doubled while it goes on
      failing: each failure makes the caller read everything again. Faults are polled meanwhile.

    `clock` is the time, `has_returned` waits for a call (by key), at most so long; whether it has
    returned.
    """

    poll_s: float = 5.0
    read_s: float = 30.0
    close_s: float = 5.0
    slice_s: float = 1.0
    pause_s: float = 1.0
    max_pause_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    has_returned: Callable[[str, threading.Event, float], bool] = _has_returned

    @property
    def release_s(self) -> float:
        """How long a wait for events that is under way may take: it registers GPUs, and a slice."""
        return self.poll_s + 2 * self.slice_s
