"""MAPA's scores and policies against its own definitions, and its simulator's results."""

from __future__ import annotations

import json
from statistics import fmean

import pytest

from benchmarks.measured import topology_from_labels
from benchmarks.quality.queues import QueueOrder, load_queue, simulate
from benchmarks.rivals import MAPA_GREEDY, MAPA_PRESERVE
from benchmarks.rivals.mapa import MapaNode, effective_bandwidth, mapa_weights
from topology.recordings import load_recording

# Two bridged pairs: 0-1 with two links, 2-3 with one.
BRIDGES = [
    ["X", "NV2", "SYS", "SYS"],
    ["NV2", "X", "SYS", "SYS"],
    ["SYS", "SYS", "X", "NV1"],
    ["SYS", "SYS", "NV1", "X"],
]


@pytest.fixture
def topology():
    """Two bridged pairs."""
    return topology_from_labels(BRIDGES, model="Tesla V100-SXM2-32GB", is_switched=False)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        pytest.param((0, 0, 0), 12.335, id="the empty allocation"),
        pytest.param((0, 0, 2), 10.371, id="a PCIe pair scores less than nothing"),
        pytest.param((0, 2, 0), 27.72, id="a pair on one NVLink"),
        pytest.param((2, 0, 0), 58.925, id="a pair on two NVLinks"),
    ],
)
def test_effective_bandwidth(edges, expected):
    """Values that the reference logs name (mapa/reference_summary.md)."""
    assert effective_bandwidth(*edges) == pytest.approx(expected, abs=5e-4)


def test_weights_and_preserved_bandwidth(topology):
    """10, 25 and 50; the preserved bandwidth leaves PCIe out."""
    node = MapaNode(mapa_weights(topology))
    assert mapa_weights(topology)[0] == (0, 50, 10, 10)
    assert mapa_weights(topology)[2] == (10, 10, 0, 25)
    assert node.preserved(0b1111) == 75
    assert node.ring_scores(2)[0b0011].aggregated == 100
    assert node.ring_scores(4)[0b1111].aggregated == 95


def test_one_link_between_p100s_weighs_less():
    """20 where a V100's single link weighs 25, as in MAPA's own DGX-1 files."""
    p100 = mapa_weights(load_recording("dgx-1-p100"))
    v100 = mapa_weights(load_recording("dgx-1-v100"))
    assert {weight for row in p100 for weight in row} == {0, 10, 20}
    assert {weight for row in v100 for weight in row} == {0, 10, 25, 50}


@pytest.mark.parametrize(
    ("rival", "free", "size", "is_sensitive", "expected"),
    [
        pytest.param(MAPA_GREEDY, 0b1111, 2, True, 0b0011, id="greedy takes the double link"),
        pytest.param(MAPA_PRESERVE, 0b1111, 2, True, 0b0011, id="preserve: sensitive does too"),
        pytest.param(MAPA_PRESERVE, 0b1111, 2, False, 0b1100, id="preserve: others leave it"),
        pytest.param(MAPA_PRESERVE, 0b0101, 2, True, None, id="preserve refuses a PCIe pair"),
        pytest.param(MAPA_PRESERVE, 0b0101, 1, True, None, id="preserve refuses the last GPUs"),
        pytest.param(MAPA_PRESERVE, 0b0111, 1, True, 0b0100, id="one GPU spares the pair"),
        pytest.param(MAPA_PRESERVE, 0b0001, 2, False, None, id="too few for preserve"),
        pytest.param(MAPA_GREEDY, 0b1010, 2, True, 0b1010, id="greedy takes a PCIe pair"),
        pytest.param(MAPA_GREEDY, 0b1010, 1, True, 0b0010, id="greedy: the first of one"),
        pytest.param(MAPA_GREEDY, 0b0001, 2, False, None, id="too few for greedy"),
    ],
)
def test_policies(rng, topology, rival, free, size, is_sensitive, expected):
    """Each rule of MapaPolicies.hh once."""
    chosen = rival.prepare(topology)(free, size, rng, is_sensitive=is_sensitive)
    assert chosen == expected


@pytest.mark.shared
@pytest.mark.parametrize(
    ("system", "queue", "policy", "makespan", "ring_sum", "effective"),
    [
        pytest.param("dgx-v", "g2to5-seed0", "greedy", 2324, 148.698, 58.291, id="dgx-v greedy 0"),
        pytest.param("dgx-v", "g2to5-seed0", "preserve", 2327, None, 59.168, id="dgx-v preserve 0"),
        pytest.param("dgx-v", "g2to5-seed1", "greedy", 2236, 152.409, 55.859, id="dgx-v greedy 1"),
        pytest.param("dgx-v", "g2to5-seed1", "preserve", 2257, None, 57.853, id="dgx-v preserve 1"),
        pytest.param("dgx-v", "g1to5-seed0", "greedy", 1864, 140.211, 55.097, id="dgx-v singles"),
        pytest.param("dgx-p", "g2to5-seed0", "greedy", 2324, 67.292, 32.904, id="dgx-p greedy"),
        pytest.param("dgx-p", "g2to5-seed0", "preserve", 2344, None, 37.39, id="dgx-p preserve"),
        pytest.param("summit", "g2to5-seed0", "preserve", 3182, None, 43.853, id="summit preserve"),
    ],
)
def test_reproduces_the_reference(shared, system, queue, policy, makespan, ring_sum, effective):
    """Makespan and mean scores of MAPA's own simulator on the same queue, its skipping included."""
    systems = json.loads((shared / "mapa" / "topologies.json").read_text(encoding="utf-8"))
    weights = systems["systems"][system]["bandwidth_GBps"]
    node = MapaNode(weights)

    def choose(free, size, is_sensitive):
        if policy == "greedy":
            return node.greedy(free, size)
        return node.preserve(free, size, is_sensitive=is_sensitive)

    jobs = load_queue(shared / "mapa" / "jobs" / f"jobs-300-{queue}.txt")
    replayed = simulate(jobs, len(weights), choose, QueueOrder.UPSTREAM)
    scores = [
        node.ring_scores(placed.job.size)[placed.gpus]
        for placed in replayed.placements
        if placed.job.is_sensitive and placed.job.size > 1
    ]
    assert replayed.makespan == makespan
    if ring_sum is not None:
        assert fmean(s.aggregated for s in scores) == pytest.approx(ring_sum, abs=1e-3)
        assert fmean(s.effective_of_aggregated for s in scores) == pytest.approx(
            effective, abs=1e-3
        )
    else:
        assert fmean(s.effective for s in scores) == pytest.approx(effective, abs=1e-3)
