"""What a plugin is given: doors that outlive it, and when it and its parts act. It does nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from plugin.health import HealthTimes
from plugin.kubelet import PollerTiming
from plugin.publish import AnnotationApi, EventApi, ReportTiming, WriteTiming

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.kubelet import KubeletView, TopologyManagerSource
    from plugin.machine import DeviceAccess, FaultRules, MachineReader, ServedMachine
    from plugin.observe import Telemetry

__all__ = ["OwnNodeApi", "PluginDependencies", "PluginTiming"]


class OwnNodeApi(AnnotationApi, EventApi, Protocol):
    """What is needed of the API server."""


@dataclass(frozen=True, slots=True)
class PluginTiming:
    """When a plugin and its parts act; `health.poll_s` is a setting.

    - `beat_s` 1: between two heartbeats of the event loop.
    - `max_silence_s` 10: a loop without a heartbeat for so long hangs: each call of the kubelet has
      a deadline of 2 s. `clock` is the time for both.
    """

    health: HealthTimes = field(default_factory=HealthTimes)
    report: ReportTiming = field(default_factory=ReportTiming)
    write: WriteTiming = field(default_factory=WriteTiming)
    poller: PollerTiming = field(default_factory=PollerTiming)
    beat_s: float = 1.0
    max_silence_s: float = 10.0
    clock: Callable[[], float] = time.monotonic


_TIMING = PluginTiming()


@dataclass(frozen=True, slots=True)
class PluginDependencies:
    """Dependencies of a plugin, all of which outlive it; the first three are the vendor's.

    `open_access` prepares the node for containers that get devices of a served machine
    (`Vendor.open_access`). `boot_id` is of this boot of the node; None where it is unknown.
    """

    reader: MachineReader
    open_access: Callable[[ServedMachine], DeviceAccess]
    fault_rules: FaultRules
    node_api: OwnNodeApi
    kubelet: KubeletView
    kubelet_settings: TopologyManagerSource
    telemetry: Telemetry
    boot_id: str | None = None
    timing: PluginTiming = _TIMING
