"""The contract's names: resource, annotation and label keys, and their versions.

What it answers: what a key is called, once, for every program. It never parses a value
(`topology.annotations` and `topology.model.codec` do).
"""

from __future__ import annotations

__all__ = [
    "ALLOCATED",
    "DEFAULT_RESOURCE",
    "DEVICES",
    "OWN_KEYS",
    "PLAN",
    "PREFIX",
    "RETRY",
    "SCHEMA_MAJOR",
    "SCHEMA_VERSION",
    "TOPOLOGY",
    "WORTH",
]

PREFIX = "coterie.gpu/"

# Written by Coterie, on nodes and pods; what users write is in `topology.annotations.pod_keys`.
TOPOLOGY = PREFIX + "topology"
DEVICES = PREFIX + "devices"
PLAN = PREFIX + "plan"
ALLOCATED = PREFIX + "allocated"
RETRY = PREFIX + "retry"
OWN_KEYS = (TOPOLOGY, DEVICES, PLAN, ALLOCATED, RETRY)

WORTH = PREFIX + "worth"
"""The label by which administrators say what a GPU of a Node is worth."""

SCHEMA_MAJOR = 1
"""Major version of the topology annotation; a reader refuses any other."""
SCHEMA_VERSION = f"{SCHEMA_MAJOR}.0"
"""Version of the texts that are written; a reader ignores the fields of a later minor one."""

DEFAULT_RESOURCE = "nvidia.com/gpu"
"""The extended resource that NVIDIA's device plugin registers (k8s-device-plugin, README)."""
