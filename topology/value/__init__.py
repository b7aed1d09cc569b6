"""What a set of GPUs is worth in GB/s, and what taking it leaves behind.

Values sets; knows no request and chooses nothing.
"""

from topology.model import (
    MAX_TABLE_GPUS,
    alike_masks,
    gpus_of,
    islands_of,
    mask_of,
    masks_by,
    topology_digest,
)
from topology.value.capacity import Capacities, FabricPorts, node_capacities
from topology.value.known_sets import has_dark_links, is_known_set, known_table
from topology.value.limits import (
    STATED_ERROR,
    Limit,
    at_message_size,
    start_up_cost,
    switch_gain,
)
from topology.value.masks import mask_index, pair_sums
from topology.value.measured import apply_measurement, raw_sums
from topology.value.nics import (
    gpus_maybe_near_rdma,
    gpus_near_rdma,
    rdma_nics_near,
)
from topology.value.remainder import DEFAULT_DEMAND, Demand, remainder_table
from topology.value.value_table import connected_masks

__all__ = [
    "DEFAULT_DEMAND",
    "MAX_TABLE_GPUS",
    "STATED_ERROR",
    "Capacities",
    "Demand",
    "FabricPorts",
    "Limit",
    "alike_masks",
    "apply_measurement",
    "at_message_size",
    "connected_masks",
    "gpus_maybe_near_rdma",
    "gpus_near_rdma",
    "gpus_of",
    "has_dark_links",
    "is_known_set",
    "islands_of",
    "known_table",
    "mask_index",
    "mask_of",
    "masks_by",
    "node_capacities",
    "pair_sums",
    "raw_sums",
    "rdma_nics_near",
    "remainder_table",
    "start_up_cost",
    "switch_gain",
    "topology_digest",
]
