"""The domains around nodes, from the nearest up."""

from __future__ import annotations

import pytest

from extender.groups.planning import common_domain, inside_level, surroundings
from topology.groups import build_tree, domain_path

PREFIX = "network.topology.nvidia.com/"
LABELS = {
    "a": {"leaf": "S0", "spine": "P0"},
    "b": {"leaf": "S0", "spine": "P0"},
    "c": {"leaf": "S1", "spine": "P0"},
    "d": {"leaf": "S0", "spine": "P1"},
    "e": {},
}
PATHS = {
    name: domain_path({PREFIX + key: value for key, value in labels.items()})
    for name, labels in LABELS.items()
}
TREE = build_tree(PATHS)


def named(inside) -> str:
    """The nodes of a set, as a word."""
    return "".join(sorted(name for name, one in zip(TREE.node_names, inside, strict=True) if one))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param("a", ["a", "ab", "abc", "abcde"], id="node, leaf, spine, all"),
        pytest.param("ac", ["ac", "abc", "abcde"], id="several leaves together"),
        pytest.param("d", ["d", "abcde"], id="a leaf of one node is that node"),
        pytest.param("e", ["e", "abcde"], id="unknown is not near"),
        pytest.param("", ["abcde"], id="no node"),
        pytest.param("x", ["abcde"], id="a node that is gone"),
        pytest.param("abcde", ["abcde"], id="all of them"),
    ],
)
def test_sets_grow_from_the_nodes_up(nodes, expected):
    """Each contains the one before it; the last one is everything."""
    assert [named(one) for one in surroundings(TREE, nodes)] == expected


@pytest.mark.parametrize(
    ("level", "nodes", "expected"),
    [
        pytest.param("leaf", "a", "ab", id="one leaf"),
        pytest.param("leaf", "ad", "abd", id="two leaves of one name are two domains"),
        pytest.param("spine", "c", "abc", id="a spine"),
        pytest.param("leaf", "e", "", id="a node without the level"),
        pytest.param("nvlink-domain", "a", "", id="a level that no node has"),
        pytest.param(None, "a", "", id="no level"),
    ],
)
def test_nodes_in_the_same_domains_of_a_level(level, nodes, expected):
    """Where a group that requires the level must stay."""
    assert named(inside_level(TREE, level, nodes)) == expected


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param("ab", ("leaf", "P0", "S0"), id="a leaf"),
        pytest.param("ac", ("spine", "P0"), id="a spine"),
        pytest.param("ad", (), id="nothing"),
        pytest.param("ae", (), id="a node without labels"),
        pytest.param("", (), id="no node"),
    ],
)
def test_the_domain_that_nodes_share(nodes, expected):
    """Its level, then its path from the top."""
    assert common_domain([PATHS[name] for name in nodes]) == expected
