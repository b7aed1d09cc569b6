"""The tree of domains over nodes."""

from __future__ import annotations

import numpy as np
import pytest

from topology.errors import InvalidRequest
from topology.groups import DomainPath, DomainStep, build_tree


def path(**levels):
    """A path from levels, nearest first."""
    return DomainPath(tuple(DomainStep(level, "test", value) for level, value in levels.items()))


NODES = {
    "e": path(),
    "d": path(leaf="S1", spine="P2"),
    "c": path(leaf="S1", spine="P1"),
    "b": path(leaf="S1", spine="P1"),
    "a": path(leaf="S2", spine="P1"),
    "f": path(spine="P1"),
}


def members(tree, name):
    """Nodes of the domain of that name."""
    domain = next(each for each in tree.domains if each.name == name)
    return list(tree.node_names[domain.first : domain.end])


def test_a_domain_is_its_whole_path():
    """The leaf S1 of P1 is not the leaf S1 of P2."""
    tree = build_tree(NODES)
    assert members(tree, "P1/S1") == ["b", "c"]
    assert members(tree, "P2/S1") == ["d"]
    assert members(tree, "P1") == ["f", "b", "c", "a"]
    assert members(tree, "the cluster") == ["e", "f", "b", "c", "a", "d"]


def test_unknown_is_not_near():
    """A node without a leaf is in no leaf, and stands alone inside its spine."""
    tree = build_tree(NODES)
    leaf = tree.levels[0]
    assert [tree.node_names[i] for i in leaf.positions] == ["b", "c", "a", "d"]
    assert [tree.domains[d].name for d in leaf.domains] == ["P1/S1", "P1/S2", "P2/S1"]
    spine = next(each for each in tree.domains if each.name == "P1")
    assert [tree.node_names[i] for i in spine.lone_nodes] == ["f"]
    assert [tree.domains[i].name for i in spine.children] == ["P1/S1", "P1/S2"]


def test_values_of_different_writers_never_meet():
    """Two families may use the same value for different switches."""
    nodes = {
        name: DomainPath((DomainStep("leaf", name, "S1"),)) for name in ("gke", "eks", "topograph")
    }
    assert len(build_tree(nodes).levels[0].domains) == 3


def test_the_order_of_nodes_does_not_matter():
    """The tree follows from names alone."""
    first, second = build_tree(NODES), build_tree(dict(reversed(NODES.items())))
    assert first.node_names == second.node_names
    assert first.domains == second.domains
    assert (first.chains == second.chains).all()


def test_figures_are_summed_over_domains():
    """Over every domain at once, the cluster last."""
    tree = build_tree(NODES)
    figures = np.array([{"a": 1, "b": 2, "c": 4, "d": 8}.get(n, 16) for n in tree.node_names])
    sums = {tree.domains[i].name: int(total) for i, total in enumerate(tree.sums(figures))}
    assert sums == {"P1/S1": 6, "P1/S2": 1, "P1": 23, "P2/S1": 8, "P2": 8, "the cluster": 47}


def test_domains_know_those_around_them():
    """A leaf's chain is leaf, spine, cluster; a node's begins with its nearest domain."""
    tree = build_tree(NODES)
    names = [each.name for each in tree.domains]
    chain = tree.chains[tree.owner[tree.node_names.index("a")]]
    assert [names[i] for i in chain] == ["P1/S2", "P1", "the cluster"]
    chain = tree.chains[tree.owner[tree.node_names.index("e")]]
    assert [names[i] for i in chain] == ["the cluster"] * 3


def test_an_empty_cluster_is_a_tree():
    """The extender may start before its nodes."""
    tree = build_tree({})
    assert [level.name for level in tree.levels] == ["any"]
    assert tree.node_names == ()


def test_levels_that_no_node_has_are_known_by_name(check_message):
    """A pod may name them; they are no typing error."""
    tree = build_tree(NODES)
    assert tree.level_index("spine") == 1
    assert tree.level_index("zone") is None
    with pytest.raises(InvalidRequest) as caught:
        tree.level_index("spin")
    check_message(caught.value)


def test_a_path_of_other_families_is_refused(check_message):
    """Its level would have no place in the order."""
    with pytest.raises(InvalidRequest) as caught:
        build_tree({"x": path(shelf="1")})
    check_message(caught.value)
