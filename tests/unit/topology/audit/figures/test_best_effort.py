"""NVIDIA's best-effort policy against the library's own test cases (go-gpuallocator 876e7b76)."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.audit import NvidiaNode, nvidia_pair_scores
from topology.model import gpus_of, mask_of
from topology.recordings import load_recording

DGX1_NV2 = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]
DGX1_NV1 = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]
P100_NV1 = [
    *combinations(range(4), 2),
    *combinations(range(4, 8), 2),
    *((i, i + 4) for i in range(4)),
]
ALL_8 = range(8)


def pair_scores(n, rules):
    """Add up points per pair, as AddLink calls of common_test.go do."""
    scores = [[0] * n for _ in range(n)]
    for pairs, points in rules:
        for i, j in pairs:
            scores[i][j] += points
            scores[j][i] += points
    return scores


def quad_pcie(switch_pairs):
    """PCIe points of a DGX-1: some pairs on one switch, quads on one host bridge."""
    bridges = [
        pair
        for quad in (range(4), range(4, 8))
        for pair in combinations(quad, 2)
        if pair not in switch_pairs
    ]
    crossing = [(i, j) for i in range(4) for j in range(4, 8)]
    return [(switch_pairs, 50), (bridges, 30), (crossing, 10)]


VOLTA = pair_scores(
    8, [(DGX1_NV2, 200), (DGX1_NV1, 100), *quad_pcie([(0, 1), (2, 3), (4, 5), (6, 7)])]
)
PASCAL = pair_scores(8, [(P100_NV1, 100), *quad_pcie([(0, 2), (1, 3), (4, 6), (5, 7)])])
RTX8000 = pair_scores(4, [([(0, 3), (1, 2)], 200), ([(0, 1), (2, 3)], 20), ([(0, 2), (1, 3)], 10)])


def literal_allocate(scores, order, size, required):  # noqa: C901 - one piece, as the original
    """Enumerate every padded partition, as iterateGPUPartitions does; None for an empty list."""
    if not 1 <= size <= len(order) or len(required) > size:
        return None
    line = [*order, *([None] * (-len(order) % size))]
    padding = line.count(None)

    def score(block):
        real = [g for g in block if g is not None]
        return sum(scores[a][b] for a, b in combinations(real, 2))

    def partitions(rest):
        if len(rest) == size:
            yield [tuple(rest)]
            return
        for chosen in combinations(range(1, len(rest)), size - 1):
            block = (rest[0], *(rest[i] for i in chosen))
            if block.count(None) not in {0, padding}:
                continue
            # The original drops every nil at once when a set holds all of them.
            left = [
                g
                for i, g in enumerate(rest)
                if i not in (0, *chosen) and not (g is None and None in block)
            ]
            yield from ([block, *tail] for tail in partitions(left))

    best = None
    for partition in partitions(line):
        fits = any(set(required) <= set(b) and None not in b for b in partition)
        total = sum(map(score, partition))
        if fits and (best is None or total > best[0]):
            best = (total, partition)
    if best is None:
        return None
    candidates = [b for b in best[1] if set(required) <= set(b)]
    chosen = max(candidates, key=score)
    if None in chosen:
        chosen = max((b for b in candidates if None not in b), key=score)
    return mask_of(chosen)


@pytest.mark.parametrize(
    ("available", "required", "size", "expected"),
    [
        pytest.param((0, 2, 4, 5), (), 2, (4, 5), id="single NVLink, prefer same switch"),
        pytest.param((0, 4, 5, 6), (), 2, (5, 6), id="single NVLink, prefer same socket"),
        pytest.param((0, 3, 1), (), 2, (0, 3), id="dual NVLink same socket"),
        pytest.param((0, 1, 4), (), 2, (0, 4), id="dual NVLink cross socket"),
        pytest.param(ALL_8, (4,), 1, (4,), id="required with size 1"),
        pytest.param(ALL_8, (4,), 2, (4, 7), id="required with size 2"),
        pytest.param(ALL_8, (4,), 4, (4, 5, 6, 7), id="required with size 4"),
        pytest.param(range(1, 8), (0, 1, 2, 3), 4, None, id="required is not available"),
        pytest.param(ALL_8, (0, 2, 4, 6), 4, (0, 2, 4, 6), id="the full set is required"),
        pytest.param(ALL_8, range(1, 7), 4, None, id="more required than requested"),
        pytest.param(range(1, 6), range(1, 7), 1, None, id="more required than available"),
        pytest.param(ALL_8, (), 3, (0, 2, 3), id="fresh machine, size 3"),
        pytest.param(ALL_8, (), 5, (0, 1, 2, 3, 4), id="fresh machine, size 5"),
        pytest.param(ALL_8, (), 6, (0, 1, 2, 3, 4, 5), id="fresh machine, size 6"),
        pytest.param(ALL_8, (), 7, (0, 1, 2, 3, 4, 5, 6), id="fresh machine, size 7"),
        pytest.param(ALL_8, (), 0, None, id="size 0"),
        pytest.param((0, 1), (), 3, None, id="more than available"),
    ],
)
def test_dgx1_volta(available, required, size, expected):
    """The library's own cases on the DGX-1 V100 (besteffort_test.go), and fresh ones."""
    chosen = NvidiaNode(VOLTA).allocate(tuple(available), size, mask_of(required))
    assert chosen == (None if expected is None else mask_of(expected))


@pytest.mark.parametrize(
    ("scores", "size", "expected"),
    [
        pytest.param(RTX8000, 1, [(0,), (1,), (2,), (3,)], id="4x RTX 8000, size 1"),
        pytest.param(RTX8000, 2, [(0, 3), (1, 2)], id="4x RTX 8000, size 2"),
        pytest.param(RTX8000, 4, [(0, 1, 2, 3)], id="4x RTX 8000, size 4"),
        pytest.param(PASCAL, 1, [(i,) for i in ALL_8], id="DGX-1 P100, size 1"),
        pytest.param(PASCAL, 2, [(0, 2), (1, 3), (4, 6), (5, 7)], id="DGX-1 P100, size 2"),
        pytest.param(PASCAL, 4, [(0, 1, 2, 3), (4, 5, 6, 7)], id="DGX-1 P100, size 4"),
        pytest.param(PASCAL, 8, [tuple(ALL_8)], id="DGX-1 P100, size 8"),
        pytest.param(VOLTA, 1, [(i,) for i in ALL_8], id="DGX-1 V100, size 1"),
        pytest.param(VOLTA, 2, [(0, 3), (1, 2), (4, 7), (5, 6)], id="DGX-1 V100, size 2"),
        pytest.param(VOLTA, 4, [(0, 1, 2, 3), (4, 5, 6, 7)], id="DGX-1 V100, size 4"),
        pytest.param(VOLTA, 8, [tuple(ALL_8)], id="DGX-1 V100, size 8"),
    ],
)
def test_fills_a_node_in_the_librarys_order(scores, size, expected):
    """Successive allocations until nothing is left give the library's own sequence."""
    node = NvidiaNode(scores)
    free = (1 << len(scores)) - 1
    for gpus in expected:
        chosen = node.allocate(gpus_of(free), size)
        assert chosen == mask_of(gpus)
        free &= ~mask_of(gpus)
    assert node.allocate(gpus_of(free), 1) is None


def test_partitions_of_four_by_three_hold_one_padded_set():
    """{0,1,2,3} by 3: one full set and one padded one, never two padded ones."""
    partition = NvidiaNode(VOLTA).best_partition((0, 1, 2, 3), 3, 0)
    assert partition is not None
    assert sorted(block.bit_count() for block in partition) == [1, 3]


def test_padded_win_is_left_out_and_counted():
    """Five free GPUs, one bridged pair: the original returns [0, 1, nil] for size 3."""
    scores = pair_scores(
        5, [([(0, 1)], 1220), (combinations(range(2, 5), 2), 20), ([(0, 2), (1, 2)], 10)]
    )
    node = NvidiaNode(scores)
    assert node.allocate(range(5), 3) == mask_of((2, 3, 4))
    assert (node.n_padded_wins, node.n_choices) == (1, 1)


@given(data=st.data())
def test_equals_literal_enumeration(data):
    """The table and walk give what enumerating every partition gives, ties included."""
    n = data.draw(st.integers(1, 7), label="n")
    points = st.sampled_from((0, 10, 20, 50, 110, 220))
    scores = [[0] * n for _ in range(n)]
    for i, j in combinations(range(n), 2):
        scores[i][j] = scores[j][i] = data.draw(points)
    order = data.draw(st.permutations(range(n)))
    size = data.draw(st.integers(1, n), label="size")
    required = data.draw(st.sets(st.sampled_from(range(n)), max_size=3)) if size > 1 else set()
    expected = literal_allocate(scores, order, size, required)
    assert NvidiaNode(scores).allocate(order, size, mask_of(required)) == expected


def test_sixteen_gpus_by_three_ends_soon():
    """Size 3 of 16 GPUs, 20 s in the original, gives the best set of the best partition."""
    pairs = [(i, i + 1) for i in range(0, 16, 2)]
    node = NvidiaNode(pair_scores(16, [(pairs, 200)]))
    chosen = node.allocate(range(16), 3)
    assert chosen is not None
    assert node.set_score(chosen) == 200


def test_scores_do_not_see_a_switch():
    """NV# of a fabric counts 0, a direct NV# 100 a link; PCIe levels count for both."""
    bridged = nvidia_pair_scores(load_recording("8x-a6000-bridged"))
    switched = nvidia_pair_scores(load_recording("dgx-h100"))
    assert (bridged[0][1], bridged[0][2]) == (400, 40)
    assert max(map(max, switched)) < 100
