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
from topology.groups.choice_patience import MOST_KEPT, WaitingGroup, keep_nodes
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

__all__ = [
    "DEFAULT_FAMILIES",
    "MOST_KEPT",
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
    "LevelFamily",
    "LevelKeys",
    "MemberShape",
    "NoRoom",
    "NoRoomReason",
    "NodeShare",
    "WaitingGroup",
    "build_tree",
    "choose_nodes",
    "domain_path",
    "keep_nodes",
    "level_names",
    "rank_nodes",
]
