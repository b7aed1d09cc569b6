"""Which network domains a node is in, from its labels.

What it answers: for the labels of one node, its path of domains, nearest first: NVLink domain, the
tiers of the fabric, zone and region. It never compares nodes (`topology.groups.domain_tree` does),
and reads no other node's labels.

Method. Labels come in families, one for each program or cloud that writes them, and each family
belongs to a part of the path. Of the families of one part a node uses the first of which it carries
a key. Level names are common to the families, so that a pod says `leaf` on every cluster.

A missing key is unknown. Below a known level of the same family it ends the path: names of leaves
repeat under different spines (48 names stand for 119 leaves of a recorded Clos network), so a leaf
whose spine is unknown while its core is known could be any of them.

Sources of the keys: topograph (NVIDIA/topograph, its reference of node labels, and its former keys
in its issue 208), GKE's, EKS' and OKE's guides to network topology, Kubernetes' well-known labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topology.annotations import ANY_DOMAIN
from topology.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "DEFAULT_FAMILIES",
    "NVLINK_DOMAIN",
    "DomainPath",
    "DomainStep",
    "FamilyPart",
    "LevelFamily",
    "LevelKeys",
    "domain_path",
    "level_names",
]

NVLINK_DOMAIN = "nvlink-domain"


class FamilyPart(Enum):
    """Parts of a path, nearest first."""

    NVLINK = "nvlink"
    FABRIC = "fabric"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class LevelKeys:
    """One level of a family: its name, and the label keys of which the first present counts."""

    level: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LevelFamily:
    """The labels of one writer, levels nearest first."""

    name: str
    part: FamilyPart
    levels: tuple[LevelKeys, ...]

    @property
    def is_network(self) -> bool:
        """Whether its levels are of NVLink or of the fabric."""
        return self.part is not FamilyPart.SITE


@dataclass(frozen=True, slots=True)
class DomainStep:
    """One level at which a node's domain is known.

    Values of different families never name the same domain.
    """

    level: str
    family: str
    value: str


@dataclass(frozen=True, slots=True)
class DomainPath:
    """A node's known levels, nearest first; a domain is a step and all steps after it."""

    steps: tuple[DomainStep, ...] = ()


_CLIQUE = "clique"
_FABRIC = "fabric.topograph.run/"
_FORMER = "network.topology.nvidia.com/"
_GKE = "cloud.google.com/gce-topology-"
_EKS = "topology.k8s.aws/network-node-layer-"
_OKE = "oci.oraclecloud.com/rdma."
_SITE = "topology.kubernetes.io/"


def _family(name: str, part: FamilyPart, levels: Mapping[str, Sequence[str]]) -> LevelFamily:
    return LevelFamily(
        name, part, tuple(LevelKeys(level, tuple(keys)) for level, keys in levels.items())
    )


DEFAULT_FAMILIES = (
    _family(_CLIQUE, FamilyPart.NVLINK, {NVLINK_DOMAIN: ["nvidia.com/gpu.clique"]}),
    _family(
        "topograph-accelerator",
        FamilyPart.NVLINK,
        {
            NVLINK_DOMAIN: ["accelerator.topograph.run/sub-domain"],
            "nvlink-rack": ["accelerator.topograph.run/domain"],
        },
    ),
    _family(
        "topograph-former-accelerator",
        FamilyPart.NVLINK,
        {NVLINK_DOMAIN: [_FORMER + "accelerator"]},
    ),
    _family(
        "topograph",
        FamilyPart.FABRIC,
        {
            "leaf": [_FABRIC + "tier-0"],
            "spine": [_FABRIC + "tier-1"],
            "core": [_FABRIC + "tier-2"],
            "tier-3": [_FABRIC + "tier-3"],
            "tier-4": [_FABRIC + "tier-4"],
            "tier-5": [_FABRIC + "tier-5"],
        },
    ),
    _family(
        "topograph-former",
        FamilyPart.FABRIC,
        {
            "leaf": [_FORMER + "leaf", _FORMER + "block"],
            "spine": [_FORMER + "spine"],
            "core": [_FORMER + "core", _FORMER + "datacenter"],
        },
    ),
    # Without `-host`, which names the machine: a node of its own.
    _family("gke", FamilyPart.FABRIC, {"leaf": [_GKE + "subblock"], "spine": [_GKE + "block"]}),
    # Layer 1 is the top; only some instance types have a layer 4, below the leaf.
    _family(
        "eks",
        FamilyPart.FABRIC,
        {
            "below-leaf": [_EKS + "4"],
            "leaf": [_EKS + "3"],
            "spine": [_EKS + "2"],
            "core": [_EKS + "1"],
        },
    ),
    _family(
        "oke",
        FamilyPart.FABRIC,
        {
            "leaf": [_OKE + "local_block_id"],
            "spine": [_OKE + "network_block_id"],
            "core": [_OKE + "hpc_island_id"],
        },
    ),
    _family("site", FamilyPart.SITE, {"zone": [_SITE + "zone"], "region": [_SITE + "region"]}),
)
"""Every family that we found described; topograph numbers tiers without a limit, six are read."""


def domain_path(
    labels: Mapping[str, str],
    families: Sequence[LevelFamily] = DEFAULT_FAMILIES,
    clique: str | None = None,
) -> DomainPath:
    """Return a node's path; O(keys of all families).

    `clique` is the NVLink fabric's clique as the node's own topology has it, in the form of the
    label `nvidia.com/gpu.clique`: it counts where that label is missing. An empty label is missing.

    >>> path = domain_path({"network.topology.nvidia.com/leaf": "S12"}, clique="c1.7")
    >>> [(step.level, step.value) for step in path.steps]
    [('nvlink-domain', 'c1.7'), ('leaf', 'S12')]
    """
    steps: list[DomainStep] = []
    for part in FamilyPart:
        for family in families:
            if family.part is not part:
                continue
            own = clique if family.name == _CLIQUE else None
            if found := _known_steps(family, labels, own):
                steps += found
                break
    return DomainPath(tuple(steps))


def _known_steps(
    family: LevelFamily, labels: Mapping[str, str], own: str | None
) -> list[DomainStep]:
    """The family's steps, nearest first, down to the first level that is missing."""
    steps: list[DomainStep] = []
    for level in reversed(family.levels):
        value = next((labels[key] for key in level.keys if labels.get(key)), own)
        if value:
            steps.append(DomainStep(level.level, family.name, value))
        elif steps:
            break
    return steps[::-1]


def level_names(families: Sequence[LevelFamily] = DEFAULT_FAMILIES) -> tuple[str, ...]:
    """All level names in one order, nearest first, that agrees with every family's own.

    Raises `InvalidRequest` where two families disagree, and where a name is in two parts or is
    that of the level above all.

    >>> level_names()[:6]
    ('nvlink-domain', 'nvlink-rack', 'below-leaf', 'leaf', 'spine', 'core')
    """
    names: list[str] = []
    for part in FamilyPart:
        lists = [[one.level for one in each.levels] for each in families if each.part is part]
        names += _merged(lists)
    repeated = sorted({name for name in names if names.count(name) > 1 or name == ANY_DOMAIN})
    if repeated:
        msg = f"level {repeated[0]!r} is named twice, expected each name in one part of the path"
        raise InvalidRequest(msg)
    return tuple(names)


def _merged(lists: list[list[str]]) -> list[str]:
    """One list that keeps the order of each; the first that may come next comes next."""
    left = [names for names in lists if names]
    merged: list[str] = []
    while left:
        behind = {name for names in left for name in names[1:]}
        head = next((names[0] for names in left if names[0] not in behind), None)
        if head is None:
            found = ", ".join(sorted({names[0] for names in left}))
            msg = f"levels {found} have no common order, expected the same order in every family"
            raise InvalidRequest(msg)
        merged.append(head)
        rests = [names[1:] if names[0] == head else names for names in left]
        left = [names for names in rests if names]
    return merged
