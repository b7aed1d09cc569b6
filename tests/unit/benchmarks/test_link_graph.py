"""Which sets of GPUs accelerator links connect, directly or through a fabric."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given

from benchmarks.link_graph import is_link_connected
from tests.strategies import node_topologies
from topology.errors import UnknownDevice
from topology.recordings import load_recording


@pytest.mark.parametrize(
    ("name", "gpus", "connected"),
    [
        pytest.param("dgx-1-v100", [0, 3, 7], True, id="a chain is connected"),
        pytest.param("dgx-1-v100", [0, 5], False, id="no link across the cube's diagonal"),
        pytest.param("dgx-1-v100", [0, 1, 6], False, id="GPUs outside the set do not relay"),
        pytest.param("dgx-1-v100-dead-link", [2, 6], False, id="a dead link joins nothing"),
        pytest.param("hgx-h200", [1, 6], True, id="through the switch"),
        pytest.param(
            "dgx-h100-lost-links", [0, 5], True, id="a fabric with fewer links to one GPU"
        ),
        pytest.param("8x-rtx4090", [3], True, id="one GPU needs no link"),
        pytest.param("8x-rtx4090", [], True, id="nor does none"),
    ],
)
def test_connected_sets(name: str, gpus: list[int], connected: bool) -> None:
    """The affinity `nvlink` is about the graph that the set itself induces."""
    assert is_link_connected(load_recording(name), gpus) is connected


def test_a_gpu_that_is_not_there_is_refused() -> None:
    """An index error from inside networkx would not say which GPU was wrong."""
    with pytest.raises(UnknownDevice, match=r"GPU 4 is not there, expected 0\.\.3"):
        is_link_connected(load_recording("4x-l40s"), [0, 4])


@given(topology=node_topologies(max_gpus=4))
def test_a_pair_is_connected_by_its_own_links(topology):
    """A set of two has no other way."""
    for i, j in combinations(range(topology.n_gpus), 2):
        assert is_link_connected(topology, (i, j)) == topology.links[i][j].is_up
