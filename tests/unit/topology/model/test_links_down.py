"""GPUs with links down, by their equals on the node."""

from dataclasses import replace

import pytest

from tests.machines import NVLINK, machine
from topology.model import (
    NO_LINK,
    AcceleratorLink,
    Gpu,
    LinkKind,
    SwitchFabric,
    links_down,
    with_links_up,
)
from topology.recordings import load_recording, recording_names

DEGRADED = {
    "8x-b200-gpu2-no-nvlink": [(2, 0, 18)],
    "dgx-1-v100-dead-link": [(2, 5, 6), (6, 5, 6)],
    "dgx-h100-lost-links": [(5, 16, 18)],
}
V100 = Gpu(model="Tesla V100-SXM2-32GB")


def found(topology):
    """GPU, links up and links expected."""
    return [(one.gpu, one.n_links, one.n_expected) for one in links_down(topology)]


@pytest.mark.parametrize("name", recording_names())
def test_shipped_machines(name):
    """Machines that are wired with fewer links than their GPUs have are not taken for degraded."""
    assert found(load_recording(name)) == DEGRADED.get(name, [])


def test_a_fabric_that_is_down():
    """None of its members has a link, whatever their ports count."""
    fabric = SwitchFabric(((0, 18), (1, 18)), is_up=False)
    assert found(machine([Gpu(), Gpu()], fabrics=[fabric])) == [(0, 0, 18), (1, 0, 18)]
    unknown = SwitchFabric(((0, 0), (1, 0)), is_up=False)
    assert found(machine([Gpu(), Gpu()], fabrics=[unknown])) == [(0, 0, 0), (1, 0, 0)]


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(machine([V100] * 4, links={(0, 1): NVLINK(6)}), id="half the GPUs or fewer"),
        pytest.param(
            machine([V100] * 3, links={(0, 1): AcceleratorLink(LinkKind.NVLINK, None)}),
            id="links of unknown count",
        ),
        pytest.param(machine([Gpu(model="NVIDIA L4")] * 2), id="a model without links"),
        pytest.param(machine([Gpu(model="some GPU")] * 2), id="a model that is not known"),
        pytest.param(machine([Gpu()] * 2), id="no model"),
    ],
)
def test_what_is_not_known_is_not_degraded(topology):
    """Nothing says that these links should be up."""
    assert found(topology) == []
    assert with_links_up(topology) == ()


def test_a_fabric_with_all_its_links():
    """Each member has as many as the one with the most, also where the fabric is down."""
    fabric = SwitchFabric(((0, 18), (1, 16), (2, 0)), is_up=False)
    (whole,) = with_links_up(machine([Gpu()] * 3, fabrics=[fabric]))
    assert whole == machine([Gpu()] * 3, fabrics=[SwitchFabric(((0, 18), (1, 18), (2, 18)))])


def test_direct_links_are_put_back_where_one_gpu_lacks_them_all():
    """The counts leave one way; which ends belong together is else not known."""
    whole = load_recording("dgx-1-v100")

    def without(*pairs):
        links = dict.fromkeys(pairs, NO_LINK)
        links.update({(j, i): NO_LINK for i, j in pairs})
        rows = [
            [links.get((i, j), whole.links[i][j]) for j in range(whole.n_gpus)]
            for i in range(whole.n_gpus)
        ]
        return replace(whole, links=tuple(map(tuple, rows)))

    assert with_links_up(whole) == ()
    for pairs in (((0, 1), (0, 2)), ((0, 2), (1, 2)), ((0, 1), (0, 2), (0, 3), (0, 4))):
        assert with_links_up(without(*pairs)) == (whole,)


def test_every_way_to_put_links_back_counts():
    """Which ends belong together is else not known, and one of the ways is right."""
    whole = load_recording("dgx-1-v100")
    links = [list(row) for row in whole.links]
    for i, j in ((0, 1), (2, 6)):
        links[i][j] = links[j][i] = NO_LINK
    ways = with_links_up(replace(whole, links=tuple(map(tuple, links))))
    assert len(ways) > 1
    assert whole in ways
    assert not any(map(links_down, ways))


def test_a_bridge_that_is_not_fitted_is_not_down():
    """Pairs are bridged or not, as somebody bought them."""
    links = {pair: NVLINK(4) for pair in ((0, 1), (2, 3), (4, 5))}
    topology = machine([Gpu(model="NVIDIA RTX A6000")] * 8, links=links)
    assert links_down(topology) == ()
    assert with_links_up(topology) == ()


def test_a_machine_of_very_many_gpus_is_read():
    """What a node's annotation may hold: thousands of links to put back would end the reading."""
    links = {(0, 1): NVLINK(6), **{(i, i + 1): NVLINK(1) for i in range(2, 510, 2)}}
    topology = machine([V100] * 512, links=links)
    assert len(links_down(topology)) > 500
    assert [one.links == topology.links for one in with_links_up(topology)] == [True]
