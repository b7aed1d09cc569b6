"""Placing the pods of one group over several nodes: domains of the network, and which nodes.

Chooses by values: paths of domains and what each node takes; knows no pod, no API server and no
GPU of a node.
"""

from topology.groups.choice import choose_nodes
from topology.groups.choice_outcome import (
    NODE_LEVEL,
    Assigned,
    GroupDemand,
    MemberShape,
    NodeShare,
    NoRoom,
    NoRoomReason,
    rank_nodes,
)
from topology.groups.domain_labels import (
    ANY_DOMAIN,
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

__all__ = [
    "ANY_DOMAIN",
    "DEFAULT_FAMILIES",
    "NODE_LEVEL",
    "NVLINK_DOMAIN",
    "Assigned",
    "Domain",
    "DomainLevel",
    "DomainPath",
    "DomainStep",
    "DomainTree",
    "FamilyPart",
    "GroupDemand",
    "LevelFamily",
    "LevelKeys",
    "MemberShape",
    "NoRoom",
    "NoRoomReason",
    "NodeShare",
    "build_tree",
    "choose_nodes",
    "domain_path",
    "level_names",
    "rank_nodes",
]
