"""The names of the events in the plugin's log, so that queries keep working with later versions.

docs/plugin.md lists the fields of each.
"""

from __future__ import annotations

__all__ = [
    "ACCESS_CHECKED",
    "ALLOCATED",
    "CALL_FAILED",
    "CDI_FAILED",
    "DEVICES_CHANGED",
    "EFFECTIVE_SETTINGS",
    "EVENT_FAILED",
    "FATAL",
    "GPUS_WITHOUT_EVENTS",
    "GPU_EVENT",
    "KUBELET_UNREACHABLE",
    "LISTENING",
    "MACHINE_READ",
    "NODE_WRITE_FAILED",
    "NODE_WRITTEN",
    "PLAN_MISMATCH",
    "PREFERRED_ALLOCATION",
    "READER_FAILED",
    "READER_RECOVERED",
    "REFUSED",
    "REGISTRATION",
    "RESTART_NEEDED",
    "STOPPED",
    "TOPOLOGY_MANAGER",
]

EFFECTIVE_SETTINGS = "effective_settings"
LISTENING = "listening"
STOPPED = "stopped"
FATAL = "fatal"
MACHINE_READ = "machine_read"
DEVICES_CHANGED = "devices_changed"
GPU_EVENT = "gpu_event"
GPUS_WITHOUT_EVENTS = "gpus_without_events"
READER_FAILED = "reader_failed"
READER_RECOVERED = "reader_recovered"
RESTART_NEEDED = "restart_needed"
REGISTRATION = "registration"
TOPOLOGY_MANAGER = "topology_manager"
KUBELET_UNREACHABLE = "kubelet_unreachable"
PREFERRED_ALLOCATION = "preferred_allocation"
ALLOCATED = "allocated"
REFUSED = "refused"
CALL_FAILED = "call_failed"
PLAN_MISMATCH = "plan_mismatch"
NODE_WRITTEN = "node_written"
NODE_WRITE_FAILED = "node_write_failed"
CDI_FAILED = "cdi_failed"
ACCESS_CHECKED = "access_checked"
EVENT_FAILED = "event_failed"
