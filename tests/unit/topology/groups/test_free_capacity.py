"""Which domains are filled first."""

from __future__ import annotations

import numpy as np
import pytest

from topology.groups import places_by_free_capacity

SPINES = {"A": ("a1", "a2"), "B": ("b1", "b2")}


@pytest.fixture
def tree(tree_of):
    """Two leaves under each of two spines, two nodes each; one node is in the spine A alone."""
    nodes = {
        f"{leaf}-{i}": (("leaf", leaf), ("spine", spine))
        for spine, leaves in SPINES.items()
        for leaf in leaves
        for i in range(2)
    }
    return tree_of(nodes | {"lone": (("spine", "A"),)})


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        pytest.param({"b2": 1}, ["b2"], id="the leaf with the least room"),
        pytest.param({"a1": 0, "b1": 0, "b2": 3}, ["b1"], id="of equal ones the fuller spine's"),
        pytest.param({}, ["b1", "b2"], id="two that are equal all around"),
    ],
)
def test_the_first_domain(tree, room, expected):
    """Its nodes have place 0; every node has 4 where nothing is said."""
    figures = [room.get(name.partition("-")[0], 4) for name in tree.node_names]
    places = places_by_free_capacity(tree, np.array(figures))
    first = {
        name for name, place in zip(tree.node_names, places.tolist(), strict=True) if not place
    }
    assert first == {f"{leaf}-{i}" for leaf in expected for i in range(2)}


def test_a_node_without_the_nearest_level_stands_in_the_next(tree):
    """Its spine's room is more than that of any leaf there."""
    places = places_by_free_capacity(tree, np.full(len(tree.node_names), 4))
    by_name = dict(zip(tree.node_names, places.tolist(), strict=True))
    assert by_name == {
        "b1-0": 0, "b1-1": 0, "b2-0": 0, "b2-1": 0,
        "a1-0": 1, "a1-1": 1, "a2-0": 1, "a2-1": 1,
        "lone": 3,
    }  # fmt: skip


def test_zones_do_not_count(tree_of):
    """They are no network: a pod alone gains nothing from others of its zone."""
    steps = {"a-0": "a", "b-0": "b", "b-1": "b"}
    tree = tree_of({name: (("zone", zone),) for name, zone in steps.items()})
    assert not tree.is_network.any()
    assert places_by_free_capacity(tree, np.full(3, 4)).tolist() == [0, 0, 0]


def test_a_cluster_without_nodes(tree_of):
    """There is no place to give."""
    assert places_by_free_capacity(tree_of({}), np.zeros(0, dtype=np.int64)).tolist() == []
