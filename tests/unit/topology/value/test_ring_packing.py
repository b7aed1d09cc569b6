"""Minimum cuts, closed rings and ring packing against searches that leave nothing out."""

from functools import cache
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.examples import up_to
from tests.strategies import link_counts
from topology.value import gpus_of, mask_index
from topology.value.ring_packing import closed_ring_ends, minimum_cuts, pack_rings

# NVLink counts of the two hybrid cube meshes (`nvidia-smi topo -m` of DGX-1 P100 and V100).
P100_EDGES = "01 02 03 04 12 13 15 23 26 37 45 46 47 56 57 67"
V100_DOUBLE = "03 04 12 15 23 47 56 67"
V100_SINGLE = "01 02 13 26 37 45 46 57"


def mesh(n, *layers):
    """Give a matrix of link counts from layers of edges, each edge two digits apart by blanks."""
    units = [[0] * n for _ in range(n)]
    for count, edges in layers:
        for i, j in (map(int, edge) for edge in edges.split()):
            units[i][j] = units[j][i] = count
    return units


def full_mesh(n, count=1):
    """Give the matrix of `count` links between any two of n GPUs."""
    return [[0 if i == j else count for j in range(n)] for i in range(n)]


V100 = mesh(8, (2, V100_DOUBLE), (1, V100_SINGLE))
P100 = mesh(8, (1, P100_EDGES))
CUBE = mesh(8, (1, "01 13 32 20 45 57 76 64 04 15 26 37"))
PETERSEN = mesh(10, (1, "01 12 23 34 40 05 16 27 38 49 57 79 96 68 85"))
TIGHT = mesh(6, (3, "05"), (2, "01 02 03 04 14 15 23 25 35 45"), (1, "12 13 24 34"))


@cache
def closed_rings(k):
    """List every undirected closed ring through k vertices once, as edges (lower, higher)."""
    rings = []
    for order in permutations(range(1, k)):
        if order[0] < order[-1]:
            stops = (0, *order, 0)
            rings.append([tuple(sorted(hop)) for hop in pairwise(stops)])
    return rings


def exact_packing(units):
    """Count edge-disjoint closed rings by choosing among all rings, in any number each."""
    left = [list(row) for row in units]
    rings = [ring for ring in closed_rings(len(units)) if all(left[i][j] for i, j in ring)]

    def room():
        return min(sum(row) for row in left) // 2

    def most(start, needed):
        """Most rings from `rings[start:]`; may stop once no packing can beat `needed`."""
        best = 0
        for index in range(start, len(rings)):
            if room() <= max(best, needed):
                break
            ring = rings[index]
            if all(left[i][j] for i, j in ring):
                for i, j in ring:
                    left[i][j] -= 1
                    left[j][i] -= 1
                best = max(best, 1 + most(index, max(best, needed) - 1))
                for i, j in ring:
                    left[i][j] += 1
                    left[j][i] += 1
        return best

    return most(0, 0)


def induced(units, mask):
    """Give the matrix of the links inside a mask."""
    members = gpus_of(mask)
    return [[units[i][j] for j in members] for i in members]


def cut_of_parts(units, mask):
    """Try every way to part a mask in two and take the fewest links between the parts."""
    members = gpus_of(mask)
    return min(
        sum(units[i][j] for i in members for j in members if part >> i & 1 > part >> j & 1)
        for part in range(mask)
        if part & ~mask == 0 and part not in {0, mask}
    )


def wide_masks(n):
    """List all masks of two members and more."""
    index = mask_index(n)
    return index.masks[index.size >= 2]


@pytest.mark.parametrize(
    ("units", "rings"),
    [
        pytest.param(V100, 3, id="DGX-1 V100: three closed rings of eight"),
        pytest.param(P100, 2, id="DGX-1 P100: two closed rings of eight"),
        pytest.param(induced(V100, 0b1111), 2, id="V100 quad: two closed rings"),
        pytest.param(CUBE, 1, id="plain cube: one ring and a matching left"),
        pytest.param(PETERSEN, 0, id="Petersen graph: three-regular without a closed ring"),
        pytest.param(full_mesh(3), 1, id="triangle"),
        pytest.param(full_mesh(7), 3, id="K7 falls apart into three rings"),
        pytest.param(full_mesh(16), 7, id="K16 holds seven rings and a matching"),
        pytest.param(full_mesh(8, 36), 126, id="36 links everywhere: 126 rings, no deep recursion"),
        pytest.param(mesh(4, (36, "01 12 23")), 0, id="a wide chain has no ring"),
        pytest.param(TIGHT, 4, id="the widest link is the one that no ring may take"),
    ],
)
def test_known_packings_are_found(units, rings):
    """Show on meshes with a known answer that the packing is neither short nor too long."""
    degree = min(sum(row) for row in units)
    assert pack_rings(units, degree // 2) == rings


@pytest.mark.parametrize("units", [V100, P100], ids=["V100", "P100"])
def test_packing_is_exact_on_every_set_of_the_cube_meshes(units):
    """Compare with the packing that tries all closed rings, on every set a DGX-1 can hand out."""
    for mask in wide_masks(8).tolist():
        inside = induced(units, mask)
        if len(inside) > 2:
            assert pack_rings(inside, min(map(sum, inside)) // 2) == exact_packing(inside)


@settings(max_examples=up_to(60))
@given(link_counts(min_gpus=3, max_gpus=7, counts=[0, 1, 1, 2]))
def test_packing_is_exact_on_random_multigraphs(units):
    """Compare with the packing that tries all closed rings, where links were put by chance."""
    assert pack_rings(units, min(map(sum, units)) // 2) == exact_packing(units)


@settings(max_examples=up_to(25))
@given(link_counts(min_gpus=5, max_gpus=6, counts=[1, 1, 2]))
def test_packing_is_exact_on_dense_multigraphs(units):
    """Dense meshes leave the search the most wrong turns."""
    cut = int(minimum_cuts(np.array(units), np.array([(1 << len(units)) - 1]))[0])
    assert pack_rings(units, cut // 2) == exact_packing(units)


def test_packing_keeps_known_values_and_the_request():
    """Hold the result between `at_least` and `at_most`, whatever the search finds."""
    assert pack_rings(V100, 1) == 1
    assert pack_rings(V100, 3, at_least=3) == 3
    assert pack_rings(PETERSEN, 1, at_least=0) == 0


def test_packing_out_of_steps_keeps_the_rings_it_held():
    """End in bounded time with a lower bound that is a real packing."""
    assert pack_rings(full_mesh(16), 7, max_steps=100) == 3


@settings(max_examples=up_to(60))
@given(link_counts(min_gpus=2, max_gpus=7, counts=[0, 0, 1, 2, 36]))
def test_cut_of_every_set_equals_every_way_to_part_it(units):
    """Compare with all bipartitions of all sets, connected or not."""
    masks = wide_masks(len(units))
    cuts = minimum_cuts(np.array(units), masks)
    assert cuts.tolist() == [cut_of_parts(units, mask) for mask in masks.tolist()]


def test_widest_cut_fits_the_tables():
    """Sixteen GPUs at the most units per pair stay inside the sixteen-bit arithmetic."""
    units = np.array(full_mesh(16, 120))
    assert minimum_cuts(units, np.array([(1 << 16) - 1])).tolist() == [15 * 120]


def test_no_masks_have_no_cuts():
    """An empty question gets an empty answer."""
    assert minimum_cuts(np.array(V100), np.array([], dtype=np.int64)).tolist() == []


@settings(max_examples=up_to(60))
@given(link_counts(min_gpus=1, max_gpus=6, counts=[0, 1]))
def test_closed_rings_are_found_where_some_order_closes(units):
    """Compare with all orders of every set; single GPUs have none, two joined GPUs one."""
    n = len(units)
    adjacency = [sum(1 << j for j, u in enumerate(row) if u) for row in units]
    closes = closed_ring_ends(adjacency, n)
    for mask in range(1 << n):
        members = gpus_of(mask)
        expected = len(members) > 1 and any(
            all(units[i][j] for i, j in zip(order, order[1:] + order[:1], strict=True))
            for order in permutations(members)
        )
        assert closes[mask] == expected, members


def test_closed_rings_of_sixteen():
    """A ring of 16 closes as a whole and nowhere else; one dead link opens it."""
    adjacency = [1 << (i + 1) % 16 | 1 << (i - 1) % 16 for i in range(16)]
    closes = closed_ring_ends(adjacency, 16)
    pairs = [1 << i | 1 << (i + 1) % 16 for i in range(16)]
    assert set(np.flatnonzero(closes).tolist()) == {*pairs, (1 << 16) - 1}
    adjacency[0] &= ~2
    adjacency[1] &= ~1
    assert not closed_ring_ends(adjacency, 16)[(1 << 16) - 1]
