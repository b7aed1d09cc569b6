"""The contract's names: resource, annotation and label keys, and their versions.

What it answers: what a key is called, once, for every program. It never parses a value
(`topology.annotations.policy` and `topology.model.codec` do).
"""

from __future__ import annotations

__all__ = [
    "AFFINITY",
    "ALLOCATED",
    "DEFAULT_RESOURCE",
    "DEVICES",
    "GROUP",
    "MIN_BANDWIDTH",
    "NIC",
    "PLAN",
    "POLICY",
    "PREFER",
    "PREFIX",
    "RETRY",
    "SCHEMA_MAJOR",
    "SCHEMA_MINOR",
    "TOPOLOGY",
    "USER_KEYS",
]

PREFIX = "coterie.gpu/"

# Written by users, on pods.
AFFINITY = PREFIX + "affinity"
POLICY = PREFIX + "policy"
MIN_BANDWIDTH = PREFIX + "min-bandwidth"
PREFER = PREFIX + "prefer"
NIC = PREFIX + "nic"
GROUP = PREFIX + "group"
USER_KEYS = (AFFINITY, POLICY, MIN_BANDWIDTH, PREFER, NIC, GROUP)

# Written by Coterie, on nodes and pods.
TOPOLOGY = PREFIX + "topology"
DEVICES = PREFIX + "devices"
PLAN = PREFIX + "plan"
ALLOCATED = PREFIX + "allocated"
RETRY = PREFIX + "retry"

SCHEMA_MAJOR = 1
"""Major version of the topology annotation; a reader refuses any other."""
SCHEMA_MINOR = 0
"""Minor version that this program writes; a reader ignores the fields of a later one."""

DEFAULT_RESOURCE = "nvidia.com/gpu"
"""The extended resource that NVIDIA's device plugin registers (k8s-device-plugin, README)."""
