"""A node's accelerators and how they are connected, as checked values, and their texts.

Knows machines; knows no pod and no bandwidth of a set.
"""

from topology.model.codec import (
    decode_gpus,
    decode_topology,
    encode_topology,
    levels_text,
    links_text,
)
from topology.model.digest import topology_digest
from topology.model.fields import (
    Field,
    as_object,
    choice_at,
    list_at,
    needed_at,
    object_at,
    objects_at,
    text_at,
    texts_at,
    whole_at,
)
from topology.model.gpu_models import (
    GA102_GENERATION,
    GPU_MODEL_NAMES,
    GpuModel,
    find_gpu_model,
)
from topology.model.gpu_sets import MAX_TABLE_GPUS, gpus_of, islands_of, mask_of, masks_by
from topology.model.gpu_worth import (
    UNKNOWN_WORTH,
    WORTH_EXPECTED,
    NodeWorth,
    find_gpu_worth,
    node_worth,
    parse_worth,
)
from topology.model.json_text import check_version, parse_object, read_text, write_text
from topology.model.links import (
    DEFAULT_CONSTANTS,
    FITTED_MESSAGE_BYTES,
    REFERENCE_MESSAGE_BYTES,
    ModelConstants,
    link_rate,
    pcie_rate,
    socket_rate,
)
from topology.model.measurement_file import parse_measurement, write_measurement
from topology.model.names import DEFAULT_RESOURCE
from topology.model.node_topology import (
    MAX_GPUS,
    MAX_LINKS,
    MAX_NIC_GBIT_PER_S,
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
    symmetric,
)
from topology.model.pci_bus_id import normalise_pci_bus_id

__all__ = [
    "DEFAULT_CONSTANTS",
    "DEFAULT_RESOURCE",
    "FITTED_MESSAGE_BYTES",
    "GA102_GENERATION",
    "GPU_MODEL_NAMES",
    "MAX_GPUS",
    "MAX_LINKS",
    "MAX_NIC_GBIT_PER_S",
    "MAX_TABLE_GPUS",
    "NO_LINK",
    "REFERENCE_MESSAGE_BYTES",
    "UNKNOWN_LINK",
    "UNKNOWN_WORTH",
    "WORTH_EXPECTED",
    "AcceleratorLink",
    "CpuPlatform",
    "Field",
    "Gpu",
    "GpuModel",
    "LinkKind",
    "ModelConstants",
    "Nic",
    "NodeTopology",
    "NodeWorth",
    "P2pAccess",
    "PcieLevel",
    "SwitchFabric",
    "as_object",
    "check_version",
    "choice_at",
    "decode_gpus",
    "decode_topology",
    "encode_topology",
    "find_gpu_model",
    "find_gpu_worth",
    "gpus_of",
    "islands_of",
    "levels_text",
    "link_rate",
    "links_text",
    "list_at",
    "mask_of",
    "masks_by",
    "needed_at",
    "node_worth",
    "normalise_pci_bus_id",
    "object_at",
    "objects_at",
    "parse_measurement",
    "parse_object",
    "parse_worth",
    "pcie_rate",
    "read_text",
    "socket_rate",
    "symmetric",
    "text_at",
    "texts_at",
    "topology_digest",
    "whole_at",
    "write_measurement",
    "write_text",
]
