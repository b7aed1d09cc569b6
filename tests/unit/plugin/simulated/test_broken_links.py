"""Broken links: the topology that is left is a valid one, and only the named links are gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.simulated.broken_links import LinksDown, without_links
from topology.errors import ImportFormatError
from topology.model import NO_LINK
from topology.recordings import load_recording, parse_recording

DGX1 = load_recording("dgx-1-v100")
DGX_H100 = load_recording("dgx-h100")
MI50 = load_recording("8x-mi50-pcie-2nic")


def n_links(topology, a, b):
    """How many links a pair has."""
    assert topology.links[a][b] == topology.links[b][a]
    return topology.links[a][b].n_links


def machine(count, body):
    """A recording of this many GPUs."""
    return parse_recording(f'name="x"\ntitle="x"\nsource=["x"]\ncount={count}\n{body}')


def others(topology, *pairs):
    """All pairs but these."""
    n = range(topology.n_gpus)
    return {(i, j): topology.links[i][j] for i in n for j in n if i < j and (i, j) not in pairs}


def test_nothing_down_changes_nothing():
    """Most machines, most of the time."""
    assert without_links(DGX1, []) is DGX1


@pytest.mark.parametrize(
    ("n", "left"), [pytest.param(1, 1, id="one"), pytest.param(None, 0, id="all of them")]
)
def test_a_pair_loses_its_own_links(n, left):
    """A bridge or a cable between two GPUs."""
    worse = without_links(DGX1, [LinksDown((0, 3), n)])
    assert n_links(DGX1, 0, 3) == 2
    assert n_links(worse, 0, 3) == left
    assert others(worse, (0, 3)) == others(DGX1, (0, 3))


def test_links_go_one_after_the_other(check_message):
    """Two entries about one pair add up."""
    one = LinksDown((0, 3), 1)
    assert without_links(DGX1, [one, one]).links[0][3] == NO_LINK
    with pytest.raises(ImportFormatError) as caught:
        without_links(DGX1, [one, one, one])
    check_message(caught.value)


def test_a_gpu_behind_switches_loses_ports():
    """Each of its pairs then has the lesser count; the others keep theirs."""
    worse = without_links(DGX_H100, [LinksDown((5,), 2)])
    assert [n_links(worse, 5, peer) for peer in range(8) if peer != 5] == [16] * 7
    assert n_links(worse, 0, 1) == 18
    assert dict(worse.fabrics[0].ports) == {gpu: 16 if gpu == 5 else 18 for gpu in range(8)}
    alone = without_links(DGX_H100, [LinksDown((5,))])
    assert all(alone.links[5][peer] == NO_LINK for peer in range(8))
    assert n_links(alone, 0, 1) == 18


def test_a_recorded_loss_comes_out_the_same():
    """The recordings hold a DGX H100 whose GPU 5 lost two links in reality."""
    real = load_recording("dgx-h100-lost-links")
    made = without_links(DGX_H100, [LinksDown((5,), 2)])
    assert (made.links, made.fabrics) == (real.links, real.fabrics)


@pytest.mark.parametrize(
    ("topology", "down"),
    [
        pytest.param(DGX1, LinksDown((0, 3), 3), id="3/2"),
        pytest.param(DGX1, LinksDown((0, 6)), id="no link"),
        pytest.param(DGX1, LinksDown((0,)), id="no switch"),
        pytest.param(DGX_H100, LinksDown((0, 1)), id="pair"),
        pytest.param(DGX_H100, LinksDown((0,), 19), id="19/18"),
        pytest.param(MI50, LinksDown((0, 1)), id="unknown links"),
    ],
)
def test_no_more_is_taken_than_there_is(topology, down, check_message):
    """A fault that cannot be is a typing error."""
    with pytest.raises(ImportFormatError) as caught:
        without_links(topology, [down])
    check_message(caught.value)


def test_links_of_unknown_count_fail_all_or_not_at_all(check_message):
    """rocm-smi shows that there are links, not how many."""
    uncounted = machine(3, '[links]\nkind="xgmi"\ngroups=["0-1-2"]\nrest="none"\n')
    worse = without_links(uncounted, [LinksDown((0, 2))])
    assert worse.links[0][2] == NO_LINK
    assert others(worse, (0, 2)) == others(uncounted, (0, 2))
    with pytest.raises(ImportFormatError) as caught:
        without_links(uncounted, [LinksDown((0, 2), 1)])
    check_message(caught.value)


def test_each_gpu_loses_ports_of_its_own_fabric():
    """Some machines have two NVSwitch planes that do not meet."""
    plane = '[[fabrics]]\nkind="nvlink"\nports=6\ngpus='
    planes = machine(4, f"{plane}[0, 1]\n{plane}[2, 3]\n")
    worse = without_links(planes, [LinksDown((3,), 2)])
    assert [fabric.ports for fabric in worse.fabrics] == [((0, 6), (1, 6)), ((2, 6), (3, 4))]
    assert others(worse, (2, 3)) == others(planes, (2, 3))


def test_a_fabric_that_is_not_up_gives_nothing_before_and_after():
    """Ports are counted even where the fabric manager is not there."""
    down = machine(2, '[[fabrics]]\nkind="nvlink"\nports=6\nup=false\n')
    worse = without_links(down, [LinksDown((1,), 2)])
    assert (worse.links, worse.fabrics[0].ports) == (down.links, ((0, 6), (1, 4)))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 6)), max_size=6))
def test_what_is_left_of_a_fabric_is_valid(losses):
    """The topology checks itself; here it must also say what was meant."""
    counts = dict.fromkeys(range(8), 18)
    down = []
    for gpu, n in losses:
        if counts[gpu] >= n:
            counts[gpu] -= n
            down.append(LinksDown((gpu,), n))
    assert dict(without_links(DGX_H100, down).fabrics[0].ports) == counts
