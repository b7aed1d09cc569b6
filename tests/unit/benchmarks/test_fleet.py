"""The fleet: where pods go, what is stranded, and traces that come and go."""

from __future__ import annotations

import pytest

from benchmarks.fleet import simulation
from benchmarks.fleet.node_choice import CoterieNodes, FleetPolicy, MachineType, MostAllocated
from benchmarks.fleet.simulation import Traces, fill, peak_demand, play, thin
from benchmarks.fleet.state import Fleet
from benchmarks.fleet.trace import TraceNode, TracePod, TracePods
from benchmarks.rivals import LowestIds
from topology.recordings import load_recording
from topology.select import build_tables


@pytest.fixture(scope="module")
def a6000():
    """Eight A6000 with four bridges."""
    topology = load_recording("8x-a6000-bridged")
    return MachineType("8x-a6000-bridged", topology, build_tables(topology))


def pod(n_gpus, created_s=None, deleted_s=None, cpu_milli=1, memory_mib=1):
    """A pod of some GPUs."""
    return TracePod("pod", cpu_milli, memory_mib, n_gpus, created_s, deleted_s)


def lowest_ids():
    """Most-allocated node, lowest ids."""
    return FleetPolicy("lowest", MostAllocated(), LowestIds())


def coterie():
    """Coterie's node and set."""
    return FleetPolicy("Coterie", CoterieNodes())


def test_most_allocated_fills_a_started_node_first(a6000):
    """The second pod joins the first, whatever its links."""
    state = Fleet([(a6000, 9, 9), (a6000, 9, 9)], lowest_ids(), seed=0)
    first = state.place(pod(3))
    second = state.place(pod(4))
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert sorted(state.free_gpus_of(a6000)) == [1, 8]


def test_a_pair_avoids_the_node_whose_bridges_are_broken(a6000):
    """With one GPU of each bridge free here and all free there, only Coterie goes there."""
    broken, whole = 0b01010101, 0b11111111
    by_count, own = lowest_ids(), coterie()

    def prefers(policy):
        return min((broken, whole), key=lambda free: policy.key(a6000, free, 2))

    assert (prefers(by_count), prefers(own)) == (broken, whole)
    assert own.key(a6000, 0b1, 2) is None
    assert by_count.key(a6000, 0b1, 2) is None


@pytest.mark.parametrize(
    ("cpu_milli", "memory_mib"), [pytest.param(10, 1, id="CPU"), pytest.param(1, 10, id="memory")]
)
def test_cpu_and_memory_are_respected(a6000, cpu_milli, memory_mib):
    """A node with free GPUs but no CPU or memory left takes no pod; nothing fits twice."""
    state = Fleet([(a6000, 15, 15)], lowest_ids(), seed=0)
    assert state.place(pod(1, cpu_milli=cpu_milli, memory_mib=memory_mib)) is not None
    assert state.place(pod(1, cpu_milli=cpu_milli, memory_mib=memory_mib)) is None
    assert state.place(pod(0, cpu_milli=5, memory_mib=5)) == (0, 0)


def test_giving_back_restores_the_state(a6000):
    """GPUs, stranding and free count are as before."""
    state = Fleet([(a6000, 9, 9)], lowest_ids(), seed=0, single=(9, 0))
    before = (dict(state.stranded), state.n_free)
    placed = pod(3)
    found = state.place(placed)
    assert found is not None
    index, gpus = found
    assert gpus == 0b111
    assert state.stranded[2] == 1
    assert state.stranded[1] == 5
    state.remove(placed, index, gpus)
    assert (dict(state.stranded), state.n_free) == before


def test_filling_turns_away_what_does_not_fit(a6000):
    """Lowest ids split a bridge; Coterie packs the single GPUs around the bridges."""
    pods = [pod(1), pod(2), pod(1), pod(2), pod(8)]
    split = fill(Fleet([(a6000, 99, 99)], lowest_ids(), seed=0), pods)
    packed = fill(Fleet([(a6000, 99, 99)], coterie(), seed=0), pods)
    assert (split.unplaced[8], packed.unplaced[8]) == (1, 1)
    assert (split.n_placed, packed.n_placed) == (4, 4)
    assert min(packed.relative) == 1.0
    assert min(split.relative) < 0.6


def test_a_timed_pod_waits_until_another_ends(a6000):
    """The second pod waits for the first; the third would have ended before there is room."""
    pods = [pod(8, 0, 10), pod(8, 1, 30), pod(8, 2, 9), pod(0, 20, 21)]
    outcome = play(Fleet([(a6000, 99, 99)], lowest_ids(), seed=0), pods)
    assert (outcome.n_placed, outcome.n_waited, outcome.unplaced[8]) == (3, 2, 1)
    assert outcome.free_gpus == 0.0
    pods[3] = pod(1, 20, 21)
    outcome = play(Fleet([(a6000, 99, 99)], lowest_ids(), seed=0), pods)
    assert outcome.unplaced[1] == 1


def test_peak_demand_counts_what_overlaps():
    """A pod that ends when another starts does not overlap it."""
    assert peak_demand([pod(4, 0, 10), pod(2, 5, 10), pod(8, 10, 11)]) == 8


def test_thinning_keeps_the_share_of_gpus():
    """Every second node for half the GPUs, another one in the next repeat."""
    nodes = [TraceNode(str(i), 1, 1, 8, "G3") for i in range(20)]
    assert len(thin(nodes, 80, 0)) == 10
    assert thin(nodes, 80, 0)[0].name != thin(nodes, 80, 5)[0].name


def test_run_makes_every_table():
    """Two tables a trace, four policies each."""
    nodes = tuple(TraceNode(f"n{i}", 9000, 9000, 8, "V100M32") for i in range(3))
    pods = (pod(2, 0, 5), pod(1, 1, 5), pod(4, 2, 6), pod(0, 3, 4))
    trace = TracePods(pods, 3)
    calls = []
    tables = simulation.run(
        Traces(nodes, trace, trace), n_repeats=2, advance=lambda: calls.append(1)
    )
    assert [len(table.rows) for table in tables] == [4, 4, 4, 4]
    assert len(calls) == 8
