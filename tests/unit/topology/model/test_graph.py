"""The networkx view of a node: link components, connected sets, and the closure of PCIe levels."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import node_topologies
from topology.errors import UnknownDevice
from topology.model import NodeTopology, PcieLevel
from topology.model.graph import (
    is_link_connected,
    link_components,
    pcie_bounds,
    pcie_groups,
    to_graph,
)
from topology.recordings import load_recording, parse_recording, recording_names


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
    ("name", "components"),
    [
        pytest.param("dgx-1-p100", (tuple(range(8)),), id="a mesh is one component"),
        pytest.param("dgx-2", (tuple(range(16)),), id="a switch joins all"),
        pytest.param(
            "8x-a6000-bridged", ((0, 1), (2, 3), (4, 5), (6, 7)), id="bridges join pairs only"
        ),
        pytest.param("4x-l40s", ((0,), (1,), (2,), (3,)), id="without links each is alone"),
        pytest.param(
            "8x-b200-gpu2-no-nvlink",
            ((0, 1, 3, 4, 5, 6, 7), (2,)),
            id="a member without up links is not joined",
        ),
    ],
)
def test_link_components(name: str, components: tuple[tuple[int, ...], ...]) -> None:
    """What "nvlink" can ask of a machine follows from its components."""
    assert link_components(load_recording(name)) == components


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


def test_a_fabric_that_is_down_joins_nothing() -> None:
    """Fabric Manager not running: the links are up and of no use."""
    down = parse_recording(
        'name = "x"\ntitle = "x"\nsource = ["x"]\ncount = 2\n'
        '[[fabrics]]\nkind = "nvlink"\nports = 18\nup = false\n'
    )
    assert link_components(down) == ((0,), (1,))


def test_levels_that_nvlink_hides_are_bounded_by_the_others() -> None:
    """Two GPUs within PXB of a third are within PXB of each other, whatever the table prints."""
    bounds = pcie_bounds(load_recording("8x-a6000-bridged"))
    assert bounds[0][1] is PcieLevel.PXB
    assert bounds[0][4] is PcieLevel.SYS
    assert bounds[0][0] is PcieLevel.SELF


def test_nics_bound_levels_too() -> None:
    """On NVSwitch machines only the NICs' rows tell how far two GPUs are apart on PCIe."""
    machine = load_recording("8x-mi50-pcie-2nic")
    assert pcie_groups(machine, PcieLevel.PXB) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert pcie_bounds(machine)[0][4] is PcieLevel.UNKNOWN
    assert pcie_bounds(load_recording("dgx-2"))[4][5] is PcieLevel.SYS


def test_a_group_at_an_unknown_level_is_one_gpu() -> None:
    """Unknown is no distance: nothing is surely within it."""
    assert pcie_groups(load_recording("gb200-tray"), PcieLevel.UNKNOWN) == ((0,), (1,), (2,), (3,))


@pytest.mark.parametrize("name", recording_names())
def test_known_levels_of_shipped_machines_are_their_own_bounds(name: str) -> None:
    """A recording whose levels form no tree would be bounded below its own words."""
    machine = load_recording(name)
    bounds = pcie_bounds(machine)
    for i, row in enumerate(machine.pcie):
        for j, level in enumerate(row):
            assert level in {PcieLevel.UNKNOWN, bounds[i][j]}, (i, j)


@given(topology=node_topologies(max_gpus=7))
def test_bounds_are_an_ultrametric(topology: NodeTopology) -> None:
    """The closure holds for any levels, also for those that no tree could have."""
    bounds = [[level.rank for level in row] for row in pcie_bounds(topology)]
    n = topology.n_gpus
    for i in range(n):
        for j in range(n):
            assert bounds[i][j] == bounds[j][i]
            assert bounds[i][j] <= topology.pcie[i][j].rank
            assert all(bounds[i][j] <= max(bounds[i][k], bounds[k][j]) for k in range(n))


@given(topology=node_topologies(max_gpus=7), data=st.data())
def test_components_and_connected_sets_agree(topology: NodeTopology, data: st.DataObject) -> None:
    """A set is connected only inside one component, and a whole component always is."""
    components = link_components(topology)
    assert sorted(gpu for group in components for gpu in group) == list(range(topology.n_gpus))
    gpus = data.draw(st.sets(st.integers(0, topology.n_gpus - 1), min_size=1))
    if is_link_connected(topology, gpus):
        assert any(gpus <= set(group) for group in components)
    assert all(is_link_connected(topology, group) for group in components)
    for i, j in combinations(range(topology.n_gpus), 2):
        assert is_link_connected(topology, (i, j)) == topology.links[i][j].is_up
