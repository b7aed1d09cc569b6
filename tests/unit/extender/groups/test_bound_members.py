"""Bound members are counted, and the nodes of those that ended are remembered for a while."""

from __future__ import annotations

import pytest

from extender.groups.members.bound_members import FORMER_S, MAX_FORMER, BoundMembers

KEY = ("default", "g")


@pytest.fixture
def bound() -> BoundMembers:
    """Two members on two nodes."""
    made = BoundMembers()
    assert made.add("a", KEY, "n1")
    assert made.add("b", KEY, "n2")
    return made


def test_members_are_counted_once(bound):
    """A watch shows a pod again and again."""
    assert not bound.add("a", KEY, "n1")
    assert (bound.count(KEY), bound.nodes(KEY)) == (2, ("n1", "n2"))
    assert bound.by_uid(KEY) == {"a": "n1", "b": "n2"}
    assert bound.end("stranger") is None
    assert bound.count(("other", "g")) == 0
    assert bound.former_nodes(("other", "g")) == ()


def test_the_node_of_an_ended_member_is_remembered_until_it_is_taken(bound):
    """By a replacement."""
    assert bound.end("a") == KEY
    assert bound.former_nodes(KEY) == ("n1",)
    bound.add("a2", KEY, "n1")
    assert bound.former_nodes(KEY) == ()


def test_it_is_forgotten_after_a_while(bound):
    """Time counts from when it is first looked at."""
    bound.expire(0.0)
    bound.end("a")
    bound.expire(10.0)
    bound.expire(9.0 + FORMER_S)
    assert bound.former_nodes(KEY) == ("n1",)
    bound.expire(10.0 + FORMER_S)
    assert bound.former_nodes(KEY) == ()


def test_a_group_without_members_starts_over(bound):
    """No node of it is remembered."""
    bound.end("a")
    bound.end("b")
    assert bound.former_nodes(KEY) == ()
    bound.add("c", KEY, "n3")
    assert bound.former_nodes(KEY) == ()


def test_two_members_of_one_node_leave_one_node(bound):
    """A node is remembered once."""
    bound.add("c", KEY, "n1")
    bound.end("a")
    bound.end("c")
    assert bound.former_nodes(KEY) == ("n1",)


def test_what_is_remembered_is_bounded(bound):
    """The oldest is dropped."""
    bound.end("a")
    for i in range(MAX_FORMER):
        bound.add(f"u{i}", KEY, f"m{i}")
        bound.end(f"u{i}")
    assert len(bound.former_nodes(KEY)) == MAX_FORMER
    assert "n1" not in bound.former_nodes(KEY)


def test_a_replacement_takes_the_place_of_its_rank():
    """Wherever it is: the node of another rank is remembered, and one of two on the same node."""
    bound = BoundMembers()
    for rank, node in enumerate(("n1", "n1", "n2", "n3")):
        bound.add(f"m{rank}", KEY, node, rank)
    for rank in range(3):
        bound.end(f"m{rank}")
    assert bound.former_by_rank(KEY) == {0: "n1", 1: "n1", 2: "n2"}
    bound.add("new0", KEY, "n2", 0)
    assert bound.former_by_rank(KEY) == {1: "n1", 2: "n2"}
    bound.add("new1", KEY, "n1", 1)
    assert bound.former_nodes(KEY) == ("n2",)
    bound.add("new7", KEY, "n2", 7)
    assert bound.former_nodes(KEY) == ("n2",)
    bound.add("new2", KEY, "n1", 2)
    assert bound.former_nodes(KEY) == ()
    assert bound.former_by_rank(("other", "g")) == {}
