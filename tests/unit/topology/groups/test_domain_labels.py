"""The path of domains of a node, from its labels."""

from __future__ import annotations

import pytest

from topology.annotations import ANY_DOMAIN
from topology.errors import InvalidRequest
from topology.groups import (
    DEFAULT_FAMILIES,
    FamilyPart,
    LevelFamily,
    LevelKeys,
    domain_path,
    level_names,
)

CLIQUE = "nvidia.com/gpu.clique"
TIER = "fabric.topograph.run/tier-"
FORMER = "network.topology.nvidia.com/"
ACCELERATOR = "accelerator.topograph.run/"
GKE = "cloud.google.com/gce-topology-"
EKS = "topology.k8s.aws/network-node-layer-"
OKE = "oci.oraclecloud.com/rdma."
SITE = "topology.kubernetes.io/"


def family(name, *levels, part=FamilyPart.FABRIC):
    """A family whose keys are its name and level."""
    return LevelFamily(name, part, tuple(LevelKeys(one, (f"{name}/{one}",)) for one in levels))


def values(labels, **kwargs):
    """Levels and values of a path."""
    return [(step.level, step.value) for step in domain_path(labels, **kwargs).steps]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, [], id="no labels, no domain"),
        pytest.param(
            {CLIQUE: "c.1", TIER + "0": "a", TIER + "1": "b", SITE + "zone": "z"},
            [("nvlink-domain", "c.1"), ("leaf", "a"), ("spine", "b"), ("zone", "z")],
            id="clique, fabric and zone are one path",
        ),
        pytest.param(
            {ACCELERATOR + "sub-domain": "s", ACCELERATOR + "domain": "d"},
            [("nvlink-domain", "s"), ("nvlink-rack", "d")],
            id="topograph's accelerator has two levels",
        ),
        pytest.param(
            {CLIQUE: "c.1", ACCELERATOR + "domain": "d"},
            [("nvlink-domain", "c.1")],
            id="the first family of a part counts alone",
        ),
        pytest.param(
            {FORMER + "accelerator": "x", FORMER + "block": "a", FORMER + "datacenter": "c"},
            [("nvlink-domain", "x"), ("core", "c")],
            id="a gap in a family ends its path: the leaf could be under any spine",
        ),
        pytest.param(
            {FORMER + "leaf": "a", FORMER + "block": "b"},
            [("leaf", "a")],
            id="the newer key counts, and a missing top is no gap",
        ),
        pytest.param(
            {TIER + "0": "t", FORMER + "leaf": "f", FORMER + "spine": "g"},
            [("leaf", "t")],
            id="families are not mixed",
        ),
        pytest.param(
            {GKE + "host": "h", GKE + "subblock": "s", GKE + "block": "b"},
            [("leaf", "s"), ("spine", "b")],
            id="GKE: the host is the node",
        ),
        pytest.param(
            {EKS + "3": "c", EKS + "2": "b", EKS + "1": "a"},
            [("leaf", "c"), ("spine", "b"), ("core", "a")],
            id="EKS: layer 1 is the top",
        ),
        pytest.param(
            {EKS + "4": "d", EKS + "3": "c", EKS + "2": "b", EKS + "1": "a"},
            [("below-leaf", "d"), ("leaf", "c"), ("spine", "b"), ("core", "a")],
            id="EKS: some types have a layer 4",
        ),
        pytest.param(
            {OKE + "local_block_id": "l", OKE + "network_block_id": "n"},
            [("leaf", "l"), ("spine", "n")],
            id="OKE",
        ),
        pytest.param(
            {TIER + "0": "", SITE + "region": "r"},
            [("region", "r")],
            id="an empty label is missing",
        ),
    ],
)
def test_the_default_families(labels, expected):
    """Each writer's keys become levels with common names."""
    assert values(labels) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, "own.2", id="the node's own topology knows its clique"),
        pytest.param({CLIQUE: "label.1"}, "label.1", id="the label counts first"),
        pytest.param({ACCELERATOR + "sub-domain": "s"}, "own.2", id="before other writers' labels"),
    ],
)
def test_a_clique_of_the_topology_annotation(labels, expected):
    """GPU Feature Discovery may be absent; the plugin reads the same id from NVML."""
    path = domain_path(labels, clique="own.2")
    assert [(step.level, step.value) for step in path.steps] == [("nvlink-domain", expected)]
    assert path.steps[0].family == "clique"


def test_levels_have_one_order():
    """Every family's own order is kept, so that the nearest level is the same for all nodes."""
    names = level_names()
    assert names[0] == "nvlink-domain"
    assert names[-2:] == ("zone", "region")
    for each in DEFAULT_FAMILIES:
        places = [names.index(level.level) for level in each.levels]
        assert places == sorted(places)
    assert level_names([family("a", "row"), family("b", "rack", "row")]) == ("rack", "row")


@pytest.mark.parametrize(
    "families",
    [
        pytest.param([family("a", "rack", "row"), family("b", "row", "rack")], id="two orders"),
        pytest.param(
            [family("a", "rack"), family("b", "rack", part=FamilyPart.SITE)],
            id="one name in two parts",
        ),
        pytest.param([family("a", ANY_DOMAIN)], id="the top's name"),
    ],
)
def test_families_that_contradict_each_other_are_refused(families, check_message):
    """At start, not when the first group comes."""
    with pytest.raises(InvalidRequest) as caught:
        level_names(families)
    check_message(caught.value)
