"""Which nodes groups that waited long keep for themselves."""

from __future__ import annotations

import pytest

from topology.annotations import ANY_DOMAIN
from topology.groups import MOST_KEPT, MemberShape, WaitingGroup, keep_nodes

PATIENCE_S = 60.0
NODES = {name: [("leaf", name[0]), ("spine", "P")] for name in ("S1", "S2", "T1", "T2", "T3")}
"""Two leaves in the order of the tree: S1, S2 and T1, T2, T3."""


def group(name, n_members, fits, *, waited_s=100.0, empty=(1, 1, 1, 1, 1), within=ANY_DOMAIN):
    """A group that waits; `fits` in the order of the tree."""
    return WaitingGroup(name, waited_s, MemberShape(n_members, 8, fits, empty), within)


@pytest.fixture
def keep(tree_of):
    """Keep nodes on those five, from nothing or from what was kept."""
    tree = tree_of(NODES)

    def run(*waiting, kept=None, **kwargs):
        kept = {name: frozenset(nodes) for name, nodes in (kept or {}).items()}
        found = keep_nodes(tree, waiting, kept, patience_s=PATIENCE_S, **kwargs)
        return {name: sorted(nodes) for name, nodes in found.items()}

    return run


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param([group("a", 2, (0,) * 5, waited_s=59)], {}, id="not before the patience"),
        pytest.param(
            [group("a", 2, (0, 0, 0, 1, 0))],
            {"a": ["S1", "S2", "T1", "T2"]},
            id="the spine, which holds it twice, and of it the nodes where most members fit now",
        ),
        pytest.param(
            [group("a", 1, (0, 0, 0, 1, 0))],
            {"a": ["T1", "T2"]},
            id="the leaf where most members fit now, and of it as few nodes as hold it twice",
        ),
        pytest.param(
            [group("a", 1, (0,) * 5, empty=(2, 0, 1, 1, 1))],
            {"a": ["S1"]},
            id="one node that holds it twice",
        ),
        pytest.param(
            [group("a", 3, (0, 0, 1, 1, 0))],
            {"a": ["T1", "T2", "T3"]},
            id="a leaf that holds it once and is nearly free: elsewhere it would wait longer",
        ),
        pytest.param(
            [group("a", 3, (1, 1, 0, 0, 0), within="leaf")],
            {"a": ["T1", "T2", "T3"]},
            id="the leaf that holds it once, where it must be in one",
        ),
        pytest.param(
            [group("a", 4, (0, 0, 1, 1, 1))],
            {"a": ["S1", "S2", "T1", "T2", "T3"]},
            id="all of the spine where nothing holds it twice",
        ),
        pytest.param([group("a", 6, (0,) * 5)], {}, id="nothing where nothing ever holds it"),
        pytest.param(
            [group("a", 2, (0,) * 5, empty=None)], {}, id="nothing where that is not known"
        ),
        pytest.param(
            [group("a", 4, (0, 0, 1, 1, 1), within="leaf")],
            {},
            id="nothing above the required level",
        ),
        pytest.param([group("a", 2, (0,) * 5, within="zone")], {}, id="nor at an unknown one"),
        pytest.param(
            [group("a", 1, (0, 0, 1, 1, 0), empty=(1, 1, 0, 2, 1))],
            {"a": ["T2"]},
            id="a node that is free now, but none that never takes a member",
        ),
    ],
)
def test_what_is_kept(keep, waiting, expected):
    """One domain of the nearest level that can hold the group."""
    assert keep(*waiting) == expected


def test_groups_keep_different_nodes_oldest_first(keep):
    """Two that kept the same nodes would wait for each other."""
    first, second = (group(name, 1, (0,) * 5) for name in "ab")
    assert keep(first, second) == {"a": ["S1", "S2"], "b": ["T1", "T2"]}
    assert keep(second, first) == {"b": ["S1", "S2"], "a": ["T1", "T2"]}


def test_a_group_that_finds_none_gets_what_others_keep_beyond_their_need(keep):
    """One group of two keeps four of five nodes, of which one has come free for it."""
    kept = {"a": ["S1", "S2", "T1", "T2"]}
    first, second = group("a", 2, (0, 0, 0, 1, 0)), group("b", 2, (0,) * 5)
    assert keep(first, second, kept=kept) == {"a": ["S1", "S2", "T2"], "b": ["T1", "T3"]}
    third = group("c", 4, (0, 0, 1, 1, 0))
    assert keep(first, third, kept=kept) == kept


def test_who_keeps_other_nodes_than_those_gives_up_nothing(keep):
    """A group that may have one node alone gets it from the group that does not need it."""
    first, second = (group(name, 1, (0,) * 5) for name in "ab")
    kept = {"a": ["S1", "S2"], "b": ["T1", "T2"]}
    third = group("c", 1, (0,) * 5, empty=(0, 0, 0, 1, 0))
    assert keep(first, second, third, kept=kept) == {"a": ["S1", "S2"], "b": ["T1"], "c": ["T2"]}


def test_nodes_that_no_longer_hold_their_group_are_left_to_it(keep):
    """One has left the tree: the group is to be given others, and is no source for anyone."""
    kept = {"a": ["S1", "gone"], "b": ["also gone"]}
    first, second, third = group("a", 2, (0,) * 5), group("b", 1, (0,) * 5), group("c", 5, (0,) * 5)
    assert keep(first, second, third, kept=kept) == kept
    unknown = group("a", 1, (0,) * 5, empty=None)
    assert keep(unknown, third, kept={"a": ["S1", "S2"]}) == {"a": ["S1", "S2"]}


def test_what_is_kept_stays_until_the_group_no_longer_waits(keep):
    """Even where another leaf has become freer; a keeper that moved would wait for other pods."""
    kept = {"a": ["S1", "S2"]}
    assert keep(group("a", 2, (0, 0, 1, 1, 1)), kept=kept) == kept
    assert keep(kept=kept) == {}


def test_only_some_groups_keep_nodes_at_a_time(keep):
    """What is kept is idle until its group starts."""
    waiting = [group(str(i), 1, (0,) * 5) for i in range(5)]
    assert list(keep(*waiting)) == [str(i) for i in range(MOST_KEPT)]
    assert list(keep(*waiting, most_kept=2)) == ["0", "1"]
