"""Groups whose members differ in GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import InvalidRequest
from topology.groups import (
    NODE_LEVEL,
    Assigned,
    DomainPath,
    DomainStep,
    GroupDemand,
    MemberShape,
    NoRoom,
    NoRoomReason,
    build_tree,
    choose_nodes,
)


def demand_of(free, shapes, *, gpus=None, **kwargs):
    """A demand on nodes of which any free GPUs do: shapes are (members, GPUs)."""
    return GroupDemand(
        tuple(
            MemberShape(
                n,
                size,
                [one // size for one in free],
                None if gpus is None else [one // size for one in gpus],
            )
            for n, size in shapes
        ),
        free_gpus=free,
        gpus=gpus,
        **kwargs,
    )


LEAVES = {
    "a": [("leaf", "S1")],
    "b": [("leaf", "S1")],
    "c": [("leaf", "S2")],
    "d": [("leaf", "S2")],
    "e": [],
}


@pytest.mark.parametrize(
    ("free", "shapes", "level", "expected"),
    [
        pytest.param(
            [8, 8, 8, 8, 0],
            [(1, 2), (1, 4)],
            NODE_LEVEL,
            {"c": (1, 1)},
            id="one node where it takes all, in the leaf with the least free GPUs",
        ),
        pytest.param(
            [0, 8, 4, 8, 4],
            [(1, 1), (2, 4)],
            "leaf",
            {"a": (1, 1), "b": (0, 1)},
            id="the largest members first, each to the fullest node",
        ),
        pytest.param(
            [0, 6, 6, 8, 8],
            [(2, 4), (2, 2)],
            "leaf",
            {"a": (1, 1), "b": (1, 1)},
            id="the leaf with the least free GPUs",
        ),
        pytest.param(
            [0, 5, 2, 4, 4],
            [(1, 4), (1, 3)],
            "leaf",
            {"c": (1, 0), "d": (0, 1)},
            id="the next leaf where free GPUs are enough and the members do not fit",
        ),
        pytest.param(
            [8, 4, 4, 8, 2],
            [(2, 8), (1, 2)],
            "any",
            {"e": (1, 0), "c": (1, 0), "d": (0, 1)},
            id="a node without a leaf only at the top",
        ),
    ],
)
def test_rules(tree_of, free, shapes, level, expected):
    """Worked out by hand; free GPUs are in the order of the tree: e, a, b, c, d."""
    tree = tree_of(LEAVES)
    found = choose_nodes(tree, demand_of(free, shapes))
    assert isinstance(found, Assigned)
    assert (found.level, {share.node_name: share.counts for share in found.shares}) == (
        level,
        expected,
    )


@pytest.mark.parametrize(
    ("gpus", "reason", "detail"),
    [
        pytest.param(
            None, NoRoomReason.NOT_NOW, "the freest leaf (S2) has room for 2 of 4 members", id="now"
        ),
        pytest.param(
            [8] * 5,
            NoRoomReason.NOT_NOW,
            "the freest leaf (S2) has room for 2 of 4 members",
            id="not now, but when empty",
        ),
        pytest.param(
            [4] * 5,
            NoRoomReason.NEVER,
            "never: the largest leaf (S1) has room for 2 of 4 members when empty",
            id="never",
        ),
    ],
)
def test_refusals(tree_of, gpus, reason, detail):
    """The counts are what first fit decreasing places."""
    tree = tree_of(LEAVES)
    found = choose_nodes(
        tree, demand_of([8, 2, 2, 4, 4], [(3, 4), (1, 3)], gpus=gpus, within="leaf")
    )
    assert isinstance(found, NoRoom)
    assert (found.reason, found.detail) == (reason, detail)


def test_without_all_gpus_nothing_is_said_of_empty_nodes(tree_of):
    """Room of each shape alone does not tell what they need together."""
    shapes = (MemberShape(1, 4, [0], [1]), MemberShape(1, 8, [0], [1]))
    found = choose_nodes(tree_of({"a": []}), GroupDemand(shapes, free_gpus=[0]))
    assert isinstance(found, NoRoom)
    assert found.reason is NoRoomReason.NOT_NOW


def test_free_gpus_must_be_those_of_the_tree(tree_of, check_message):
    """As any other figure."""
    shapes = (MemberShape(1, 4, [1]), MemberShape(1, 8, [1]))
    with pytest.raises(InvalidRequest) as caught:
        choose_nodes(tree_of({"a": []}), GroupDemand(shapes, free_gpus=[8, 8]))
    check_message(caught.value)


def test_a_node_takes_no_more_than_its_links_allow(tree_of):
    """Four GPUs may be free of which two members of two cannot be made."""
    shapes = (MemberShape(2, 2, [1, 1]), MemberShape(1, 1, [4, 4]))
    tree = tree_of({"a": [("leaf", "S")], "b": [("leaf", "S")]})
    found = choose_nodes(tree, GroupDemand(shapes, free_gpus=[4, 4]))
    assert isinstance(found, Assigned)
    assert {share.node_name: share.counts for share in found.shares} == {"a": (1, 1), "b": (1, 0)}


@given(
    st.lists(st.tuples(st.sampled_from("ST?"), st.integers(0, 8)), min_size=1, max_size=8),
    st.lists(st.integers(1, 3), min_size=2, max_size=3),
)
def test_every_member_has_gpus_and_all_are_in_one_domain(nodes, numbers):
    """Whatever is free, nothing is taken twice."""
    steps = {
        f"n{i}": DomainPath(() if leaf == "?" else (DomainStep("leaf", "t", leaf),))
        for i, (leaf, _) in enumerate(nodes)
    }
    tree = build_tree(steps)
    free_of = {f"n{i}": free for i, (_, free) in enumerate(nodes)}
    free = [free_of[name] for name in tree.node_names]
    sizes = (1, 2, 4)[: len(numbers)]
    found = choose_nodes(tree, demand_of(free, list(zip(numbers, sizes, strict=True))))
    if isinstance(found, NoRoom):
        assert found.n_room < sum(numbers)
        return
    assert [
        sum(column) for column in zip(*(s.counts for s in found.shares), strict=True)
    ] == numbers
    for share in found.shares:
        taken = sum(n * size for n, size in zip(share.counts, sizes, strict=True))
        assert taken <= free_of[share.node_name]
    if found.level == "leaf":
        assert len({steps[share.node_name] for share in found.shares}) == 1
