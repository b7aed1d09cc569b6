"""The cluster at one moment, immutable, as every verb reads it.

Knows nodes and machine types; knows no pod that waits and no watch.
"""

from extender.snapshot.cluster_snapshot import (
    SHARED,
    ClusterSnapshot,
    MachineType,
    NodeClass,
    NodeView,
    make_snapshot,
    make_view,
    with_free,
    with_masks,
)
from extender.snapshot.node_index import (
    KeyLayout,
    NodeIndex,
    RequestedNodes,
    highest_bits,
    locate,
)
from extender.snapshot.overlay import Overlay, emptied, freeing, only, taking

__all__ = [
    "SHARED",
    "ClusterSnapshot",
    "KeyLayout",
    "MachineType",
    "NodeClass",
    "NodeIndex",
    "NodeView",
    "Overlay",
    "RequestedNodes",
    "emptied",
    "freeing",
    "highest_bits",
    "locate",
    "make_snapshot",
    "make_view",
    "only",
    "taking",
    "with_free",
    "with_masks",
]
