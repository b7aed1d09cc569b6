"""Which nodes filter names to the scheduler."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.placement.candidates import sample_candidates
from extender.snapshot import NodeClass, NodeView, make_snapshot, make_view

KIND = NodeClass(0, "kind", "nvidia.com/gpu", None)
COSTS = {0b1: 0.0, 0b11: 0.0, 0b111: 1.0, 0b1111: 2.0}
"""Remainder cost of each free mask; the first two are equal to the pod."""


def view(name: str, zone: str, free: int) -> NodeView:
    """A node; its state follows from what is free."""
    return make_view(name, zone=zone, node_class=KIND, ids=("a", "b", "c", "d"), free=free)


def drawn(
    views: list[NodeView], *, limit: int, pod: int = 7, soft_tainted: frozenset[str] = frozenset()
) -> list[NodeView]:
    """What is drawn from all of these nodes, in order."""
    costs = sorted(set(COSTS.values()))
    snapshot = make_snapshot(views, soft_tainted=soft_tainted)
    places = np.zeros(len(snapshot.state_numbers), dtype=np.int64)
    for one in views:
        places[snapshot.state_numbers[one.state]] = costs.index(COSTS[one.free])
    positions = np.arange(len(views), dtype=np.int64)
    found = sample_candidates(
        snapshot.node_index, positions, places[snapshot.state_ids], limit=limit, pod_hash=pod
    )
    return [views[i] for i in found.tolist()]


def names(views: list[NodeView], *, limit: int, pod: int = 7) -> list[str]:
    """Names drawn, in order."""
    return [one.name for one in drawn(views, limit=limit, pod=pod)]


def test_the_best_of_every_zone_go_in_turn():
    """A zone with only lesser nodes is represented all the same."""
    views = [view(f"a{i}", "a", 0b1) for i in range(9)] + [view("b0", "b", 0b1111)]
    found = names(views, limit=4)
    assert len(found) == 4
    assert found[1] == "b0"


def test_with_more_zones_than_names_the_best_zones_are_named():
    """The zone with the best node gives first, whatever the zones are called."""
    views = [view("a0", "a", 0b1111), view("b0", "b", 0b111), view("c0", "c", 0b1)]
    assert names(views, limit=1) == ["c0"]
    assert names(views, limit=2) == ["c0", "b0"]


def test_better_nodes_come_before_lesser_ones_of_their_zone():
    """Thinning must not lose the best node."""
    views = [view(f"x{i}", "a", free) for i, free in enumerate((0b1111, 0b111, 0b1, 0b1111))]
    assert names(views, limit=2) == ["x2", "x1"]


def test_equal_pods_do_not_all_see_the_same_nodes():
    """Else two schedulers, or two pods in a row, would race for one hundred of a thousand."""
    views = [view(f"n{i}", "a", 0b1) for i in range(400)]
    found = [set(names(views, limit=20, pod=pod)) for pod in range(40)]
    seen = Counter(name for one in found for name in one)
    assert len(seen) > 300
    assert max(seen.values()) < 12


VIEWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(COSTS))), min_size=1, max_size=60
).map(lambda rows: [view(f"n{i}", zone, free) for i, (zone, free) in enumerate(rows)])


@given(VIEWS, st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_a_draw_is_the_best_of_each_zone(views, limit, pod):
    """However the passes are cut: no better node of a zone is left out for a lesser one."""
    found = drawn(views, limit=limit, pod=pod)
    assert len(found) == len({one.name for one in found}) == min(limit, len(views))
    zones = Counter(one.zone for one in found)
    available = Counter(one.zone for one in views)
    for zone, n_drawn in zones.items():
        costs = sorted(COSTS[one.free] for one in views if one.zone == zone)
        assert sorted(COSTS[one.free] for one in found if one.zone == zone) == costs[:n_drawn]
    for zone, n_available in available.items():
        assert zones[zone] >= min(n_available, limit // len(available))


@given(VIEWS, st.data(), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_soft_tainted_nodes_fill_what_the_others_leave(views, data, limit, pod):
    """Each kind is drawn as if the other kind were not there."""
    tainted = data.draw(st.frozensets(st.sampled_from([one.name for one in views])))
    others = [one for one in views if one.name not in tainted]
    rest = [one for one in views if one.name in tainted]
    first = drawn(others, limit=limit, pod=pod) if others else []
    n_left = limit - len(first)
    then = drawn(rest, limit=n_left, pod=pod) if rest and n_left else []
    assert drawn(views, limit=limit, pod=pod, soft_tainted=tainted) == first + then
