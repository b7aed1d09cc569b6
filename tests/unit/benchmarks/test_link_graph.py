"""The networkx view of a node's links: edges, fabrics and connected sets."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given

from benchmarks.link_graph import is_link_connected, to_graph
from tests.strategies import node_topologies
from topology.errors import UnknownDevice
from topology.recordings import load_recording


def test_a_direct_link_is_an_edge_with_its_count() -> None:
    """Drawing and checks read kind and count from the edge."""
    graph = to_graph(load_recording("dgx-1-v100"))
    assert sorted(graph) == list(range(8))
    assert graph.number_of_edges() == 16
    assert graph.edges[0, 3] == {"kind": "nvlink", "n_links": 2}
    assert graph.nodes[4] == {"kind": "gpu", "model": "Tesla V100-SXM2-32GB", "numa_node": 1}


def test_a_fabric_is_a_vertex_and_its_pairs_are_no_edges() -> None:
    """Switched pairs share one port each, so counting them as pairs would multiply the links."""
    graph = to_graph(load_recording("dgx-h100-lost-links"))
    assert graph.nodes["fabric0"] == {"kind": "fabric"}
    assert graph.number_of_edges() == 8
    assert graph.edges[5, "fabric0"]["n_links"] == 16


@pytest.mark.parametrize(
    ("name", "gpus", "connected"),
    [
        pytest.param("dgx-1-v100", [0, 3, 7], True, id="a chain is connected"),
        pytest.param("dgx-1-v100", [0, 5], False, id="no link across the cube's diagonal"),
        pytest.param("dgx-1-v100", [0, 1, 6], False, id="GPUs outside the set do not relay"),
        pytest.param("dgx-1-v100-dead-link", [2, 6], False, id="a dead link joins nothing"),
        pytest.param("hgx-h200", [1, 6], True, id="through the switch"),
        pytest.param("8x-rtx4090", [3], True, id="one GPU needs no link"),
        pytest.param("8x-rtx4090", [], True, id="nor does none"),
    ],
)
def test_connected_sets(name: str, gpus: list[int], connected: bool) -> None:
    """The affinity `nvlink` is about the graph that the set itself induces."""
    assert is_link_connected(load_recording(name), gpus) is connected


def test_a_gpu_that_is_not_there_is_refused() -> None:
    """An index error from inside networkx would tell nobody which GPU was wrong."""
    with pytest.raises(UnknownDevice, match=r"GPU 4 is not there, expected 0\.\.3"):
        is_link_connected(load_recording("4x-l40s"), [0, 4])


@given(topology=node_topologies(max_gpus=7))
def test_a_pair_is_connected_by_its_own_links(topology):
    """A set of two has no other way."""
    for i, j in combinations(range(topology.n_gpus), 2):
        assert is_link_connected(topology, (i, j)) == topology.links[i][j].is_up
