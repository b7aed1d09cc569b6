"""Who places members where: each policy by hand, and what all of them owe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.groups.benchmark import POLICIES
from benchmarks.groups.hosts import Hosts
from benchmarks.groups.kueue import Kueue
from benchmarks.groups.policies import Coterie, Gang, host_costs
from topology.groups import DomainPath, DomainStep


def place(policy, hosts, n_members, n_gpus):
    """Members by host, or None."""
    shares = policy.place(hosts, n_members=n_members, n_gpus=n_gpus)
    return None if shares is None else dict(shares)


def test_a_gang_places_one_after_another_on_the_fullest_host(hosts_of):
    """On what the members before left; of equal hosts any: the seed decides, not the name."""
    assert place(Gang(), hosts_of(0, 2, 0, 8, 0, 7, 0, 6, 0), 3, 2) == {1: 1, 7: 2}
    some = [
        place(Gang(), hosts_of(0, 4, 0, 4, 0, 0, 4, 0, 0, seed=seed), 1, 4) for seed in range(20)
    ]
    assert {host for one in some for host in one or ()} == {1, 3, 6}
    assert place(Gang(), hosts_of(*[0] * 9), 1, 1) is None


def test_coterie_takes_single_pods_where_least_is_left_unusable(hosts_of):
    """A pod of one GPU breaks no pair, where it can."""
    hosts = hosts_of(8, 6, 7, 4, 8, 8, 8, 8, 8)
    assert place(Coterie(), hosts, 1, 1) == {2: 1}
    assert place(Coterie(), hosts_of(*[0] * 9), 1, 1) is None
    costs = host_costs(4)
    assert np.isinf(costs[:4]).all()
    assert costs[8] > costs[4]


def test_coterie_keeps_whole_leaves_from_single_pods(hosts_of):
    """Of hosts that cost the same, those in the leaf with the least room; cost counts first."""
    taken = [place(Coterie(), hosts_of(seed=seed), 1, 8) for seed in range(20)]
    assert {host for one in taken for host in one or ()} == {3, 4}
    dear = hosts_of(8, 8, 8, 8, 8, 4, 8, 8, 8)
    assert place(Coterie(), dear, 1, 4) == {5: 1}


def test_coterie_takes_the_leaf_that_holds_the_group(hosts_of):
    """Half a host in a leaf of its own is no reason to go there."""
    hosts = hosts_of(8, 4, 0, 8, 8, 8, 8, 8, 4)
    assert place(Coterie(), hosts, 2, 8) == {3: 1, 4: 1}
    assert place(Coterie(), hosts, 2, 4) in ({0: 2}, {3: 2}, {4: 2})
    assert place(Coterie(), hosts, 9, 8) is None


@pytest.mark.parametrize(
    ("free", "n_members", "n_gpus", "expected"),
    [
        pytest.param(
            (8, 8, 8, 8, 8, 8, 8, 8, 0), 2, 8, {3: 1, 4: 1}, id="the leaf with the least room"
        ),
        pytest.param(
            (8, 8, 8, 8, 8, 8, 8, 8, 8), 5, 8, {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}, id="then the spine"
        ),
        pytest.param(
            (4, 8, 4, 0, 0, 8, 8, 8, 8),
            3,
            4,
            {1: 2, 0: 1},
            id="in it the roomiest host, then the one with the least room that is enough",
        ),
        pytest.param(
            (8,) * 9,
            8,
            8,
            dict.fromkeys(range(8), 1),
            id="hosts of equal room by name, whatever was counted for their leaf",
        ),
        pytest.param((0,) * 9, 1, 1, None, id="no room"),
    ],
)
def test_kueue(hosts_of, free, n_members, n_gpus, expected):
    """As its BestFit does for one pod set."""
    assert place(Kueue(), hosts_of(*free), n_members, n_gpus) == expected


def test_a_group_may_need_several_cores():
    """Where no switch is above all hosts the roomiest ones are taken together."""
    paths = {
        name: DomainPath(
            tuple(DomainStep(level, "test", name[0]) for level in ("leaf", "spine", "core"))
        )
        for name in ("A1", "B1", "B2", "C1")
    }
    assert place(Kueue(), Hosts(paths, 0), 3, 8) == {0: 1, 1: 1, 2: 1}


PATHS = {
    f"{leaf}-{i}": DomainPath(
        tuple(
            DomainStep(level, "test", value)
            for level, value in (("leaf", leaf), ("spine", leaf[0]), ("core", "D"))
        )
    )
    for leaf in ("A1", "A2", "B1", "B2")
    for i in range(3)
}


@pytest.mark.parametrize("name", POLICIES)
@given(
    free=st.lists(st.integers(0, 8), min_size=12, max_size=12),
    n_members=st.integers(1, 8),
    n_gpus=st.sampled_from([1, 2, 4, 8]),
)
def test_every_policy_places_all_members_or_none(name, free, n_members, n_gpus):
    """On GPUs that are free, and always where they all fit: rivals are not made worse than are."""
    hosts = Hosts(PATHS, 1)
    hosts.take([(i, 8 - n_free) for i, n_free in enumerate(free)], 1)
    before = hosts.free.copy()
    found = place(POLICIES[name], hosts, n_members, n_gpus)
    assert (hosts.free == before).all()
    assert (found is None) == (sum(one // n_gpus for one in free) < n_members)
    if found is not None:
        assert sum(found.values()) == n_members
        assert all(n * n_gpus <= free[host] for host, n in found.items())
