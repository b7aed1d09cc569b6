"""Placing the pods of one group over several nodes: domains, which nodes, what it is worth.

Chooses nodes by values: paths of domains and what each node takes. What the chosen GPUs of several
nodes are worth together stands beside it. Knows no pod and no API server.
"""

from topology.groups.choice import choose_nodes
from topology.groups.choice_outcome import (
    NODE_LEVEL,
    Assigned,
    Counts,
    GroupDemand,
    MemberShape,
    NodeShare,
    NoRoom,
    NoRoomReason,
    rank_nodes,
)
from topology.groups.domain_labels import (
    DEFAULT_FAMILIES,
    NVLINK_DOMAIN,
    DomainPath,
    DomainStep,
    FamilyPart,
    LevelFamily,
    LevelKeys,
    domain_path,
    level_names,
)
from topology.groups.domain_tree import Domain, DomainLevel, DomainTree, build_tree
from topology.groups.free_capacity import places_by_free_capacity
from topology.groups.rails import choose_on_rails, gpu_rails, rails_of
from topology.groups.value_group import (
    GROUP_STATED_ERROR,
    NIC_SHARE,
    GroupLimit,
    GroupUnknown,
    GroupValue,
    group_value,
)
from topology.groups.value_share import GroupShare, OwnValue

__all__ = [
    "DEFAULT_FAMILIES",
    "GROUP_STATED_ERROR",
    "NIC_SHARE",
    "NODE_LEVEL",
    "NVLINK_DOMAIN",
    "Assigned",
    "Counts",
    "Domain",
    "DomainLevel",
    "DomainPath",
    "DomainStep",
    "DomainTree",
    "FamilyPart",
    "GroupDemand",
    "GroupLimit",
    "GroupShare",
    "GroupUnknown",
    "GroupValue",
    "LevelFamily",
    "LevelKeys",
    "MemberShape",
    "NoRoom",
    "NoRoomReason",
    "NodeShare",
    "OwnValue",
    "build_tree",
    "choose_nodes",
    "choose_on_rails",
    "domain_path",
    "gpu_rails",
    "group_value",
    "level_names",
    "places_by_free_capacity",
    "rails_of",
    "rank_nodes",
]
