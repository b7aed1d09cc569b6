"""The names in the plugin's log: events and keys, once.

What it answers: how an event and its fields are called, so that a query written against one version
of the log still works with the next.
"""

from __future__ import annotations

__all__ = [
    "ALLOCATED",
    "ANSWERED",
    "CALL_FAILED",
    "CDI_FAILED",
    "CONTAINER",
    "COUNTS",
    "DELAY_S",
    "DETAIL",
    "DEVICES_CHANGED",
    "DIFFERENCE",
    "EFFECTIVE_SETTINGS",
    "GENERATION",
    "GPU_EVENT",
    "IDS",
    "KEYS",
    "KIND",
    "KUBELET_UNREAD",
    "LISTENING",
    "MACHINE_READ",
    "MILLISECONDS",
    "NODE_NOT_WRITTEN",
    "NODE_WRITTEN",
    "NOTES",
    "N_AVAILABLE",
    "N_DEVICES",
    "PHASE",
    "POD",
    "PODS",
    "POD_UID",
    "POLICY",
    "READER_FAILED",
    "READER_WORKS",
    "REASON",
    "REFUSED",
    "RESOURCE",
    "SCOPE",
    "SIZE",
    "STANDING",
    "STOPPED",
    "TOPOLOGY_MANAGER",
    "TROUBLE",
    "UNHEALTHY",
    "UUID",
    "VERB",
    "WHAT",
    "WHY",
    "XID",
]

# Events.
EFFECTIVE_SETTINGS = "effective_settings"
LISTENING = "listening"
STOPPED = "stopped"
MACHINE_READ = "machine_read"
DEVICES_CHANGED = "devices_changed"
GPU_EVENT = "gpu_event"
READER_FAILED = "reader_failed"
READER_WORKS = "reader_works"
STANDING = "standing"
TOPOLOGY_MANAGER = "topology_manager"
KUBELET_UNREAD = "kubelet_unread"
ANSWERED = "answered"
ALLOCATED = "allocated"
REFUSED = "refused"
CALL_FAILED = "call_failed"
DIFFERENCE = "difference"
NODE_WRITTEN = "node_written"
NODE_NOT_WRITTEN = "node_not_written"
CDI_FAILED = "cdi_failed"

# Fields.
CONTAINER = "container"
COUNTS = "counts"
DELAY_S = "delay_s"
DETAIL = "detail"
GENERATION = "generation"
IDS = "ids"
KEYS = "keys"
KIND = "kind"
MILLISECONDS = "ms"
NOTES = "notes"
N_AVAILABLE = "n_available"
N_DEVICES = "n_devices"
PHASE = "phase"
POD = "pod"
PODS = "pods"
POD_UID = "pod_uid"
POLICY = "policy"
REASON = "reason"
RESOURCE = "resource"
SCOPE = "scope"
SIZE = "size"
TROUBLE = "trouble"
UNHEALTHY = "unhealthy"
UUID = "uuid"
VERB = "verb"
WHAT = "what"
WHY = "why"
XID = "xid"
