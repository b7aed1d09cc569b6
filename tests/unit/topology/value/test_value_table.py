"""Values of all sets at once against the definition, one set at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import FACTOR, up_to
from tests.machines import direct_mesh, relabelled
from tests.strategies import link_counts, node_topologies
from topology.model import Gpu, ModelConstants
from topology.recordings import load_recording, recording_names
from topology.value import (
    MAX_TABLE_GPUS,
    connected_masks,
    gpus_of,
    islands_of,
    mask_index,
    node_capacities,
    start_up_cost,
)
from topology.value import value_table as module
from topology.value.machine_graph import machine_graph
from topology.value.set_value import set_value
from topology.value.value_table import value_table

V100 = Gpu(model="Tesla V100-SXM2-32GB")
SMALL = [name for name in recording_names() if load_recording(name).n_gpus <= MAX_TABLE_GPUS]


def torus(*, count):
    """Give the link counts of a 4 x 4 torus."""
    units = [[0] * 16 for _ in range(16)]
    for i in range(4):
        for j in range(4):
            for x, y in ((i, (j + 1) % 4), ((i + 1) % 4, j)):
                units[4 * i + j][4 * x + y] = units[4 * x + y][4 * i + j] = count
    return units


def assert_equals_definition(topology, constants=None, *, masks=None):
    """Compare every column of the table with `set_value`, on every mask or on some."""
    constants = constants or ModelConstants()
    graph = machine_graph(topology, constants)
    table = value_table(node_capacities(topology, constants), constants)
    masks = range(1 << topology.n_gpus) if masks is None else masks
    found = [set_value(graph, gpus_of(mask), constants) for mask in masks]
    values = [each.value_gbytes_per_s for each in found]
    np.testing.assert_allclose(table.value[masks], values, rtol=1e-12)
    np.testing.assert_array_equal(table.limit[masks], [each.limit for each in found])
    np.testing.assert_array_equal(table.rings[masks], [each.rings for each in found])
    np.testing.assert_array_equal(table.cut[masks], [each.cut for each in found])
    latency = [start_up_cost(each.limit, constants) for each in found]
    np.testing.assert_array_equal(table.latency[masks], latency)


@pytest.mark.parametrize("name", SMALL)
def test_every_set_of_every_shipped_machine_equals_the_definition(name):
    """The table is what requests read; the definition is what people read.

    Of sixteen GPUs one set in 97; all of them in the thorough run.
    """
    n_sets = 1 << load_recording(name).n_gpus
    step = 97 if n_sets > 1 << 10 and FACTOR < 1 else 1
    assert_equals_definition(load_recording(name), masks=[*range(0, n_sets, step), n_sets - 1])


@settings(max_examples=up_to(60))
@given(node_topologies(max_gpus=6))
def test_every_set_of_any_machine_equals_the_definition(topology):
    """Unknown levels, several fabrics, ports without links, mixed generations, P2P or not."""
    assert_equals_definition(topology)


@settings(max_examples=up_to(8))
@given(link_counts(min_gpus=7, max_gpus=10, counts=[0, 0, 1, 2]))
def test_every_set_of_a_wide_mesh_equals_the_definition(units):
    """Up to ten GPUs no set is too many to search."""
    assert_equals_definition(direct_mesh(V100, units))


def test_a_torus_of_sixteen_equals_the_definition():
    """Sixteen GPUs without a switch: some 400 of the sets, since all would take a minute."""
    masks = [*range(0, 1 << 16, 163), (1 << 16) - 1]
    assert_equals_definition(direct_mesh(V100, torus(count=2)), masks=masks)


def test_other_constants_reach_every_rule():
    """`benchmarks fidelity` fits constants on other machines through the same table."""
    constants = ModelConstants(
        relay_share=0.4, mesh_a=0.01, switch_a=0.02, pcie_a=0.03, staging_share=0.2
    )
    for name in ("dgx-1-v100", "dgx-h100", "8x-rtx4090"):
        assert_equals_definition(load_recording(name), constants)


def assert_numbering_does_not_count(topology, order):
    """Compare the values of a machine and of the same machine renumbered."""
    n = topology.n_gpus
    before = value_table(node_capacities(topology))
    after = value_table(node_capacities(relabelled(topology, order)))
    bits = mask_index(n).masks[:, None] >> np.arange(n) & 1
    old = (bits << np.array(order)).sum(axis=1)  # the old mask of each new mask
    np.testing.assert_allclose(after.value, before.value[old], rtol=1e-12)
    for column in ("limit", "rings", "cut", "latency"):
        np.testing.assert_array_equal(getattr(after, column), getattr(before, column)[old])


@settings(max_examples=up_to(30))
@given(node_topologies(max_gpus=7), st.data())
def test_numbering_never_changes_a_value(topology, data):
    """What a set is worth must not hang on the order the driver lists GPUs in."""
    order = data.draw(st.permutations(range(topology.n_gpus)))
    assert_numbering_does_not_count(topology, order)


@pytest.mark.parametrize("name", ["dgx-2", "dgx-1-v100-dead-link", "dgx-1-v100"])
def test_numbering_never_changes_a_value_of_a_shipped_machine(name):
    """The same for the machines that are symmetric, or nearly so."""
    topology = load_recording(name)
    order = [(5 * i + 3) % topology.n_gpus for i in range(topology.n_gpus)]
    assert_numbering_does_not_count(topology, order)


def test_numbering_never_changes_a_value_of_a_torus():
    """The same for a 16-GPU mesh, where rings are searched."""
    topology = direct_mesh(V100, torus(count=1))
    assert_numbering_does_not_count(topology, [(7 * i + 2) % 16 for i in range(16)])


def test_too_many_sets_to_search_take_the_bound_of_their_cut(monkeypatch):
    """A dense 16-GPU mesh must not keep the table waiting for minutes."""
    capacities = node_capacities(load_recording("dgx-1-v100"))
    exact = value_table(capacities)
    monkeypatch.setattr(module, "MAX_SEARCHED_SETS", 0)
    bound = value_table(capacities)
    np.testing.assert_array_equal(bound.rings, exact.rings)
    units = [[0 if i == j else 1 + (i * j) % 3 for j in range(8)] for i in range(8)]
    dense = direct_mesh(V100, units)
    bound, graph = value_table(node_capacities(dense)), machine_graph(dense)
    for mask in range(1 << 8):
        found = set_value(graph, gpus_of(mask))
        assert found.rings <= bound.rings[mask] <= max(found.cut, found.rings)


@given(link_counts(min_gpus=1, max_gpus=8, counts=[0, 0, 1]))
@settings(max_examples=up_to(30))
def test_connected_masks_are_those_of_one_island(units):
    """The empty mask and single GPUs count as connected."""
    n = len(units)
    joined = [sum(1 << j for j, u in enumerate(row) if u) for row in units]
    capacities = node_capacities(direct_mesh(V100, units))
    expected = [mask for mask in range(1 << n) if len(islands_of(capacities.adjacency, mask)) < 2]
    assert connected_masks(joined, n).tolist() == expected
