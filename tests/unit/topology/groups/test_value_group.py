"""The value of a set over nodes: what limits it, what is unknown, and what never lowers it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import node_topologies
from topology.errors import InvalidRequest, UnknownDevice
from topology.groups import (
    GROUP_STATED_ERROR,
    GroupLimit,
    GroupShare,
    GroupUnknown,
    group_value,
)
from topology.model import Gpu, LinkKind, Nic, PcieLevel, SwitchFabric
from topology.recordings import load_recording
from topology.select import build_machine
from topology.value import STATED_ERROR, Limit

H100 = load_recording("dgx-h100")
PXB = PcieLevel.PXB
CLIQUE = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"


@cache
def machine_of(topology):
    """Tables are built once for each machine."""
    return build_machine(topology)


def gbytes_per_s(shares):
    """The value of shares of which it is known."""
    found = group_value(shares).gbytes_per_s
    assert found is not None
    return found


def share(gpus, topology=H100, clique=None):
    """A share of the first GPUs, or of those named."""
    named = tuple(range(gpus)) if isinstance(gpus, int) else gpus
    return GroupShare(machine_of(topology), named, clique)


def with_nics(change, topology=H100):
    """The machine with each NIC changed; None leaves one out."""
    changed = map(change, topology.nics)
    return replace(topology, nics=tuple(nic for nic in changed if nic is not None))


def with_rates(rates, topology=H100):
    """The machine with other rates of its NICs, in their order."""
    nics = zip(topology.nics, rates, strict=True)
    return replace(topology, nics=tuple(replace(nic, gbit_per_s=rate) for nic, rate in nics))


def own_nics(n, gbit_per_s):
    """One NIC for each of n GPUs, far from the others."""
    return tuple(
        Nic(
            f"mlx5_{i}",
            tuple(PcieLevel.PIX if j == i else PcieLevel.SYS for j in range(n)),
            is_rdma=True,
            gbit_per_s=gbit_per_s,
        )
        for i in range(n)
    )


MEASURED = [
    ("one GPU on each of two nodes", (1, 1), 47.8, GroupLimit.NIC),
    ("2 (n - 1) / n for two nodes that reduce", (4, 4), 4 * 47.8 * 14 / 8, GroupLimit.NIC),
    ("three nodes: once", (4, 4, 4), 4 * 47.8, GroupLimit.NIC),
    ("the node with the fewest NICs", (8, 8, 2), 2 * 47.8, GroupLimit.NIC),
    ("a node's own set", (8, 8), 469.0, GroupLimit.NODE),
    ("one node is its own value", (8,), 469.0, GroupLimit.NODE),
]


@pytest.mark.parametrize(
    ("sizes", "expected", "limit"), [row[1:] for row in MEASURED], ids=[row[0] for row in MEASURED]
)
def test_h100_sets_have_the_value_of_the_formula(sizes, expected, limit):
    """B = min(own values, NIC share x rate x NICs of the least node x gain)."""
    found = group_value([share(size) for size in sizes])
    assert found.gbytes_per_s == pytest.approx(expected, rel=1e-3)
    assert (found.limited_by, found.reason) == (limit, None)


def test_one_gpu_in_all_has_nothing_to_reduce():
    """As on a node: the value is 0 and nothing limits it."""
    found = group_value([share(1)])
    assert (found.gbytes_per_s, found.least_gbytes_per_s) == (0.0, 0.0)
    assert found.limited_by is GroupLimit.NOTHING


def test_the_least_is_the_value_less_the_stated_error():
    """Over nodes the group's error; on one node that of its own limit."""
    over, alone = [share(4)] * 3, [share(4)]
    assert group_value(over).least_gbytes_per_s == pytest.approx(
        gbytes_per_s(over) * (1 - GROUP_STATED_ERROR)
    )
    assert group_value(alone).least_gbytes_per_s == pytest.approx(
        gbytes_per_s(alone) * (1 - STATED_ERROR[Limit.SWITCH])
    )


def test_the_least_is_no_more_than_that_of_a_node():
    """A set limited by the sockets of one node may be 42 % less than its value there."""
    t4 = replace(load_recording("8x-t4"), nics=own_nics(8, 400))
    far = share((0, 1, 4, 5), t4)
    found = group_value([far, far])
    assert found.limited_by is GroupLimit.NODE
    assert found.least_gbytes_per_s == far.own.least_gbytes_per_s
    assert far.own.least_gbytes_per_s < 0.72 * far.own.gbytes_per_s


def test_the_first_of_equal_shares_is_named():
    """People read which node to change."""
    assert group_value([share(4), share(2), share(2)]).limiting_share == 1
    assert group_value([share(8), share(8)]).limiting_share == 0


UNKNOWN = [
    ("no NIC recorded", lambda _nic: None, GroupUnknown.NO_NICS),
    ("no rate", lambda nic: replace(nic, gbit_per_s=None), GroupUnknown.NO_RATE),
    ("no RDMA", lambda nic: replace(nic, is_rdma=False), GroupUnknown.NO_NEAR_NIC),
    ("RDMA unknown", lambda nic: replace(nic, is_rdma=None), GroupUnknown.NO_NEAR_NIC),
    (
        "levels unknown",
        lambda nic: replace(nic, levels=(PcieLevel.UNKNOWN,) * 8),
        GroupUnknown.NO_NEAR_NIC,
    ),
    (
        "NICs of others only",
        lambda nic: nic if PXB not in nic.levels[:4] else None,
        GroupUnknown.NO_NEAR_NIC,
    ),
]


@pytest.mark.parametrize(
    ("change", "reason"), [row[1:] for row in UNKNOWN], ids=[row[0] for row in UNKNOWN]
)
def test_what_is_unknown_of_one_node_makes_the_value_unknown(change, reason):
    """Never zero, and with the reason and the node."""
    found = group_value([share(4), share(4, with_nics(change))])
    assert (found.gbytes_per_s, found.least_gbytes_per_s, found.limited_by) == (None, None, None)
    assert (found.reason, found.reason_share, found.limiting_share) == (reason, 1, None)


def test_a_nic_without_a_rate_counts_as_none_beside_others():
    """A port that is down carries nothing; the others are what is certain."""
    lame = with_rates([400, 400, None, *[400] * 5])
    found = group_value([share(4), share(4), share(4, lame)])
    assert found.gbytes_per_s == pytest.approx(3 * 47.8)
    assert found.limiting_share == 2


def test_a_value_on_unknown_facts_of_a_node_has_no_least():
    """As for one pod: it may be shown, and satisfies no min-bandwidth."""
    dark = replace(H100, gpus=(Gpu(),) * 8)
    for shares in ([share(4, dark)], [share(4), share(4, dark)]):
        found = group_value(shares)
        assert found.gbytes_per_s is not None
        assert found.least_gbytes_per_s is None
        assert (found.reason, found.reason_share) == (GroupUnknown.NODE_VALUE, len(shares) - 1)
        assert (found.limited_by is None, found.limiting_share) == (False, len(shares) - 1)


def test_mixed_rates_count_at_the_best_common_rate():
    """A slow NIC beside fast ones does not drag all rings down to its rate."""
    mixed = with_rates([25, *[400] * 7])
    found = group_value([share(4, mixed)] * 3)
    assert found.gbytes_per_s == pytest.approx(3 * 47.8)
    even = with_rates([200, 200, *[250] * 6])
    assert group_value([share(4, even)] * 3).gbytes_per_s == pytest.approx(0.956 * 4 * 25)


def test_gpus_that_share_nics_count_them_once():
    """2 x 8 A100 with 4 HDR NICs: the NICs decide, not the GPUs, and their switches do not add."""
    nics = [
        Nic(
            f"mlx5_{i}",
            tuple(PcieLevel.PXB if j // 2 == i else PcieLevel.SYS for j in range(8)),
            is_rdma=True,
            gbit_per_s=200,
        )
        for i in range(4)
    ]
    a100 = replace(load_recording("dgx-a100"), nics=tuple(nics))
    found = group_value([share(8, a100)] * 2)
    assert found.gbytes_per_s == pytest.approx(95.6)


def test_one_gpu_gets_no_more_from_two_nics_than_its_own_port():
    """8 B200 with two 400 Gbit/s NICs for each pair of GPUs: one GPU passes 48 GB/s."""
    b200 = with_rates([400] * 8, load_recording("8x-b200"))
    found = group_value([share((0,), b200)] * 3)
    assert (found.gbytes_per_s, found.limited_by) == (48.0, GroupLimit.PORT)
    assert group_value([share((0, 1), b200)] * 3).limited_by is GroupLimit.NIC


TRAY = load_recording("gb200-tray")


def test_one_clique_is_one_switch():
    """8 GB200 over two trays measure 811 GB/s; NICs play no part, and are not even on record."""
    trays = [share(4, TRAY, CLIQUE)] * 2
    found = group_value(trays)
    assert gbytes_per_s(trays) == pytest.approx(811, rel=0.12)
    assert found.least_gbytes_per_s == pytest.approx(gbytes_per_s(trays) * 0.72)
    assert (found.limited_by, found.limiting_share) == (GroupLimit.FABRIC, None)
    assert (found.reason, found.reason_share) == (None, None)


NO_CLIQUE = [
    ("two cliques", [share(4, TRAY, CLIQUE), share(4, TRAY, "other.1")]),
    ("a node without", [share(4, TRAY, CLIQUE), share(4, TRAY)]),
    (
        "GPUs of unknown model",
        [share(4, replace(TRAY, gpus=(Gpu(),) * 4), CLIQUE), share(4, TRAY, CLIQUE)],
    ),
    (
        "a GPU outside of the fabric",
        [share(4, replace(TRAY, fabrics=(), links=TRAY.links), CLIQUE), share(4, TRAY, CLIQUE)],
    ),
]


@pytest.mark.parametrize("shares", [row[1] for row in NO_CLIQUE], ids=[row[0] for row in NO_CLIQUE])
def test_what_is_not_one_clique_goes_over_nics(shares):
    """Whose rates this recording does not have."""
    assert group_value(shares).reason is GroupUnknown.NO_NICS


def test_a_known_generation_stands_in_for_a_model():
    """The driver tells the generation of links also of a GPU that no table has."""
    gpus = tuple(replace(gpu, model="NVIDIA GB999", link_generation=5) for gpu in TRAY.gpus)
    found = group_value([share(4, replace(TRAY, gpus=gpus), CLIQUE)] * 2)
    assert found.limited_by is GroupLimit.FABRIC


def test_nodes_that_do_not_reduce_are_not_doubled():
    """One node without in-switch reduction takes the gain from both."""
    down = SwitchFabric(ports=tuple((i, 18) for i in range(8)), kind=LinkKind.METAXLINK)
    rows = tuple(
        tuple(replace(link, kind=LinkKind.METAXLINK) if link.is_up else link for link in row)
        for row in H100.links
    )
    other = replace(H100, fabrics=(down,), links=rows)
    assert group_value([share(2), share(2, other)]).gbytes_per_s == pytest.approx(2 * 47.8)


def test_a_machine_of_more_than_sixteen_gpus_has_shares_too():
    """Its own value is searched, not looked up in a table."""
    n = 18
    link = H100.links[0][1]
    none, own, sys = H100.links[0][0], PcieLevel.SELF, PcieLevel.SYS
    large = replace(
        H100,
        gpus=(H100.gpus[0],) * n,
        links=tuple(tuple(none if i == j else link for j in range(n)) for i in range(n)),
        pcie=tuple(tuple(own if i == j else sys for j in range(n)) for i in range(n)),
        fabrics=(SwitchFabric(ports=tuple((i, 18) for i in range(n))),),
        nics=own_nics(n, 400),
    )
    found = group_value([share(4, large)] * 3)
    assert found.gbytes_per_s == pytest.approx(4 * 47.8)
    assert group_value([share(18, large)]).limited_by is GroupLimit.NODE


WRONG = [
    ("no GPU", (), InvalidRequest, "at least one GPU"),
    ("not ascending", (1, 0), InvalidRequest, "ascending"),
    ("one twice", (1, 1), InvalidRequest, "each once"),
    ("one that is not there", (7, 8), UnknownDevice, "GPU 8 is not there, expected 0..7"),
    ("a negative one", (-1, 2), UnknownDevice, "GPU -1 is not there"),
]


@pytest.mark.parametrize(
    ("gpus", "error", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_share_has_gpus_of_its_node(gpus, error, message):
    """The message names what is wrong."""
    with pytest.raises(error, match=message):
        share(gpus)


def test_a_group_has_a_share(check_message):
    """No share at all is a mistake of the caller's."""
    with pytest.raises(InvalidRequest) as caught:
        group_value([])
    check_message(caught.value)


# --- Properties ----------------------------------------------------------------------------------

SETS = st.lists(
    st.sets(st.integers(0, 7), min_size=1).map(lambda gpus: tuple(sorted(gpus))),
    min_size=2,
    max_size=5,
)


@given(sets=SETS, data=st.data())
def test_the_order_of_nodes_does_not_change_the_value(sets, data):
    """Ranks decide neighbours, not what is worth what."""
    shares = [share(gpus) for gpus in sets]
    found = group_value(shares)
    other = group_value(data.draw(st.permutations(shares)))
    assert other.gbytes_per_s == found.gbytes_per_s
    assert other.least_gbytes_per_s == found.least_gbytes_per_s


@given(sets=SETS)
def test_a_further_node_never_adds_above_two(sets):
    """Each node can only be the least; at two the gain of the tree goes."""
    shares = [share(gpus) for gpus in sets]
    assert gbytes_per_s([*shares, share(4)]) <= gbytes_per_s(shares)


@given(topology=node_topologies(max_gpus=6), data=st.data())
def test_any_machine_has_a_value_or_a_reason(topology, data):
    """None and a reason go together, the least is never above the value, nothing is negative."""
    n = topology.n_gpus
    gpus = tuple(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    clique = data.draw(st.sampled_from([None, CLIQUE]))
    found = group_value([share(gpus, topology, clique)] * data.draw(st.integers(1, 3)))
    assert (found.least_gbytes_per_s is None) == (found.reason is not None)
    assert (found.gbytes_per_s is None) == (found.limited_by is None)
    if found.least_gbytes_per_s is not None:
        assert found.gbytes_per_s is not None
        assert 0 <= found.least_gbytes_per_s <= found.gbytes_per_s
