"""The graph of a node, and what is read elsewhere without one: the same groups, islands and NICs.

The table of values has a test of its own (test_value_table.py).
"""

from itertools import chain

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.strategies import node_topologies
from topology.draw.pcie_groups import pcie_groups
from topology.model import PcieLevel
from topology.recordings import load_recording, recording_names
from topology.value import gpus_near_rdma, gpus_of, islands_of, node_capacities, rdma_nics_near
from topology.value.machine_graph import EdgeKind, Vertex, machine_graph

PIX, PXB, NODE = PcieLevel.PIX, PcieLevel.PXB, PcieLevel.NODE


def parts(gpus, edges):
    """Give the GPUs of each connected component of some edges, in order of the first GPU."""
    graph: nx.Graph[Vertex] = nx.Graph()
    graph.add_nodes_from(gpus)
    graph.add_edges_from(edges)
    found = (
        sorted(v for v in part if isinstance(v, int)) for part in nx.connected_components(graph)
    )
    return sorted(tuple(part) for part in found if part)


def within(graph, level):
    """Give the edges of PCIe levels up to one."""
    edges = graph.edges(data="level")
    return [(u, v) for u, v, known in edges if known is not None and known.rank <= level.rank]


def assert_reads_the_same(topology, gpus):
    """Compare what the programs read with the graph's components and neighbours."""
    graph, capacities, every = (
        machine_graph(topology),
        node_capacities(topology),
        range(topology.n_gpus),
    )
    edges = graph.edges(data=True)
    links = [(u, v) for u, v, edge in edges if edge["kind"] is EdgeKind.LINK]
    mask = sum(1 << gpu for gpu in gpus)
    inside = [edge for edge in links if all(v in gpus or isinstance(v, str) for v in edge)]
    assert [gpus_of(part) for part in islands_of(capacities.adjacency, mask)] == parts(gpus, inside)

    for level in (PIX, PXB, PcieLevel.PHB, NODE, PcieLevel.SYS):
        assert list(pcie_groups(topology, level)) == parts(every, within(graph, level))

    def between_gpus(level):
        return [edge for edge in within(graph, level) if not any(isinstance(v, str) for v in edge)]

    shared = dict.fromkeys(chain(*(parts(every, between_gpus(level)) for level in (PIX, PXB))))
    switches = [gpus_of(group) for group, _ in capacities.switch_groups]
    assert switches == [group for group in shared if len(group) > 1]
    numa = [gpu.numa_node for gpu in topology.gpus]
    one_node = [(i, j) for i in every for j in range(i) if numa[i] == numa[j] is not None]
    sockets = [gpus_of(group) for group, _ in capacities.socket_groups]
    assert sockets == parts(every, between_gpus(NODE) + one_node)

    near = {f"nic {nic.name}" for nic in topology.nics if nic.is_rdma}
    joined = [(u, v) for u, v in within(graph, PXB) if near & {u, v}]
    assert gpus_of(gpus_near_rdma(topology)) == tuple(
        sorted({v for edge in joined for v in edge if isinstance(v, int)})
    )
    assert {f"nic {nic.name}" for nic in rdma_nics_near(topology, mask)} == {
        v for edge in joined if set(gpus) & set(edge) for v in edge if isinstance(v, str)
    }


@pytest.mark.parametrize("name", recording_names())
def test_programs_read_what_the_graph_of_a_shipped_machine_says(name):
    """They load no graph library; what they read instead must not differ from it."""
    topology = load_recording(name)
    assert_reads_the_same(topology, range(0, topology.n_gpus, 2))


@settings(max_examples=up_to(60))
@given(node_topologies(max_gpus=7), st.data())
def test_programs_read_what_the_graph_of_any_machine_says(topology, data):
    """Unknown levels, NICs that bound them, several fabrics."""
    assert_reads_the_same(topology, data.draw(st.sets(st.integers(0, topology.n_gpus - 1))))


@settings(max_examples=up_to(40))
@given(node_topologies(max_gpus=7))
def test_the_pcie_tree_is_a_tree_over_all_gpus(topology):
    """Each edge joins the GPUs below it to the rest, and nothing else does."""
    graph = machine_graph(topology)
    edges = [(u, v, edge["below"]) for u, v, edge in graph.edges(data=True) if "below" in edge]
    tree: nx.Graph[Vertex] = nx.Graph([(u, v) for u, v, _ in edges])
    assert nx.is_tree(tree)
    for u, v, below in edges:
        tree.remove_edge(u, v)
        (away,) = (part for part in nx.connected_components(tree) if "root" not in part)
        assert {vertex for vertex in away if isinstance(vertex, int)} == below
        tree.add_edge(u, v)
