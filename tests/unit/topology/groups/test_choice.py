"""Which nodes a group gets: rules on small trees, and brute force over all divisions."""

from __future__ import annotations

from itertools import product

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
    NodeShare,
    NoRoom,
    NoRoomReason,
    build_tree,
    choose_nodes,
    rank_nodes,
)


@pytest.fixture
def choose(tree_of):
    """Choose on a tree of leaves: name of a node is spine, leaf and number; room by name."""

    def run(rooms, n_members, *, n_gpus=1, when_empty=None, **kwargs):
        nodes = {}
        for name in rooms:
            spine, leaf, _ = name.split(".")
            steps = [("leaf", leaf), ("spine", spine)]
            nodes[name] = [step for step in steps if step[1] != "?"]
        tree = tree_of(nodes)
        fits = [rooms[name] for name in tree.node_names]
        empty = None if when_empty is None else [when_empty] * len(fits)
        shape = MemberShape(n_members, n_gpus, fits, empty)
        costs = kwargs.pop("costs", None)
        if costs is not None:
            kwargs["costs"] = [costs.get(name, 0.0) for name in tree.node_names]
        return choose_nodes(tree, GroupDemand((shape,), **kwargs))

    return run


def counts(assigned):
    """Members by node."""
    return {share.node_name: share.n_members for share in assigned.shares}


@pytest.mark.parametrize(
    ("rooms", "n_members", "level", "expected"),
    [
        pytest.param(
            {"P1.S1.a": 4, "P1.S1.b": 2, "P1.S1.c": 3},
            2,
            NODE_LEVEL,
            {"P1.S1.b": 2},
            id="one node where it takes all: the one with the least room",
        ),
        pytest.param(
            {"P1.S1.a": 2, "P1.S2.b": 2, "P1.S1.c": 0, "P1.S2.d": 1},
            2,
            NODE_LEVEL,
            {"P1.S1.a": 2},
            id="of equal nodes the one whose leaf has less room",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.S2.c": 1, "P1.S2.d": 1, "P1.S2.e": 1},
            2,
            "leaf",
            {"P1.S1.a": 1, "P1.S1.b": 1},
            id="the leaf in which least is left",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.S2.c": 1, "P2.S1.d": 1, "P2.S1.e": 1},
            2,
            "leaf",
            {"P2.S1.d": 1, "P2.S1.e": 1},
            id="of equal leaves the one whose spine has less room",
        ),
        pytest.param(
            {"P1.S1.a": 3, "P1.S1.b": 1, "P1.S2.c": 2, "P1.S2.d": 2},
            4,
            "leaf",
            {"P1.S2.c": 2, "P1.S2.d": 2},
            id="the greatest least share: two and two before three and one",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.S1.c": 1, "P1.S1.d": 1, "P1.S2.e": 3, "P1.S2.f": 3},
            4,
            "leaf",
            {"P1.S2.e": 2, "P1.S2.f": 2},
            id="before the least left over",
        ),
        pytest.param(
            {"P1.S1.a": 4, "P1.S1.b": 3, "P1.S1.c": 3, "P1.S1.d": 1},
            6,
            "leaf",
            {"P1.S1.b": 3, "P1.S1.c": 3},
            id="nodes of which least is left over",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.S2.c": 1, "P1.S2.d": 1, "P1.S3.e": 1, "P1.S3.f": 0},
            3,
            "spine",
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.S3.e": 1},
            id="the fewest leaves, the last one the least roomy",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P2.S1.b": 1},
            2,
            "any",
            {"P1.S1.a": 1, "P2.S1.b": 1},
            id="equal names of leaves are different leaves",
        ),
        pytest.param(
            {"P1.?.a": 1, "P1.?.b": 1},
            2,
            "spine",
            {"P1.?.a": 1, "P1.?.b": 1},
            id="nodes without a leaf share none",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.?.c": 1, "P1.?.d": 1},
            3,
            "spine",
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.?.c": 1},
            id="a leaf before nodes without one",
        ),
        pytest.param(
            {"P1.S1.a": 2, "P1.S2.b": 3, "P1.?.c": 3},
            5,
            "spine",
            {"P1.?.c": 3, "P1.S1.a": 2},
            id="a rest that keeps the least share",
        ),
        pytest.param(
            {"P1.S1.a": 3, "P1.?.c": 3},
            4,
            "spine",
            {"P1.S1.a": 2, "P1.?.c": 2},
            id="a rest below the least share is divided over the same sub-domains",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P1.S1.b": 1, "P1.S1.c": 1, "P1.S2.d": 2, "P1.S3.e": 2},
            4,
            "spine",
            {"P1.S2.d": 2, "P1.S3.e": 2},
            id="sub-domains are counted without nodes below the least share",
        ),
    ],
)
def test_rules(choose, rooms, n_members, level, expected):
    """One rule of the order each, on nodes worked out by hand."""
    found = choose(rooms, n_members)
    assert (found.level, counts(found)) == (level, expected)


def test_all_nodes_of_a_domain_are_used_where_its_roomiest_leaves_are_uneven(choose):
    """Filling the roomiest leaf leaves one member over, less than the least share."""
    rooms = {"P1.S1.a": 3, "P1.S2.b": 2, "P1.S2.c": 2, "P1.S3.d": 2}
    assert counts(choose(rooms, 5)) == {"P1.S1.a": 3, "P1.S2.b": 2}


def test_another_domain_is_tried_first(choose):
    """One whose leaves can be filled whole, although more room is left over in it."""
    rooms = {"P1.S1.a": 3, "P1.S2.b": 2, "P1.S2.c": 2, "P1.S3.d": 2}
    rooms |= {"P2.S1.e": 3, "P2.S2.f": 2, "P2.S3.g": 3, "P2.S4.h": 3}
    assert counts(choose(rooms, 5)) == {"P2.S1.e": 3, "P2.S2.f": 2}


def test_the_cost_of_what_is_left_decides_between_equal_nodes(choose):
    """After everything that concerns the group itself."""
    rooms = {"P1.S1.a": 1, "P1.S1.b": 1, "P1.S1.c": 1}
    assert list(counts(choose(rooms, 2))) == ["P1.S1.a", "P1.S1.b"]
    assert list(counts(choose(rooms, 2, costs={"P1.S1.a": 1.0}))) == ["P1.S1.b", "P1.S1.c"]
    assert list(counts(choose(rooms, 1, costs={"P1.S1.a": 1.0, "P1.S1.b": 0.5}))) == ["P1.S1.c"]


def test_ranks_follow_the_tree(choose):
    """Consecutive ranks are on one node, then in one leaf, then under one spine."""
    rooms = {"P2.S1.a": 2, "P1.S2.b": 2, "P1.S1.c": 2, "P1.S1.d": 2, "P1.S2.e": 1}
    found = choose(rooms, 9)
    assert (found.level, found.domain) == ("any", "the cluster")
    assert rank_nodes(found, [0] * 9) == (
        "P1.S1.c", "P1.S1.c", "P1.S1.d", "P1.S1.d", "P1.S2.b", "P1.S2.b", "P1.S2.e",
        "P2.S1.a", "P2.S1.a",
    )  # fmt: skip


def test_ranks_of_each_shape_get_the_nodes_of_their_shape(check_message):
    """A leader without an equal may have any rank."""
    assigned = Assigned("leaf", "S", (NodeShare("a", (1, 2)), NodeShare("b", (0, 1))))
    assert rank_nodes(assigned, [1, 1, 0, 1]) == ("a", "a", "a", "b")
    with pytest.raises(InvalidRequest) as caught:
        rank_nodes(assigned, [1, 1, 1, 1])
    check_message(caught.value)


@pytest.mark.parametrize(
    ("rooms", "n_members", "within", "when_empty", "reason", "detail"),
    [
        pytest.param(
            {"P1.S1.a": 2, "P1.S1.b": 3, "P1.S2.c": 4},
            8,
            "leaf",
            4,
            NoRoomReason.NOT_NOW,
            "the freest leaf (P1/S1) has room for 5 of 8 members",
            id="a leaf will do once it is empty",
        ),
        pytest.param(
            {"P1.S1.a": 0, "P1.S1.b": 3, "P1.S2.c": 1},
            8,
            "leaf",
            2,
            NoRoomReason.NEVER,
            "never: the largest leaf (P1/S1) has room for 4 of 8 members when empty",
            id="no leaf is large enough",
        ),
        pytest.param(
            {"P1.S1.a": 1, "P1.S2.b": 2},
            4,
            "any",
            None,
            NoRoomReason.NOT_NOW,
            "the cluster has room for 3 of 4 members",
            id="nothing is said of empty nodes where nothing is known of them",
        ),
        pytest.param(
            {"P1.S1.a": 1},
            4,
            "any",
            1,
            NoRoomReason.NEVER,
            "never: the cluster has room for 1 of 4 members when empty",
            id="larger than the cluster",
        ),
        pytest.param(
            {"P1.S1.a": 4},
            4,
            "zone",
            4,
            NoRoomReason.UNKNOWN,
            "no node has a label of the level zone",
            id="a level that no node has",
        ),
        pytest.param(
            {"P1.?.a": 4, "P1.S1.b": 1},
            4,
            "leaf",
            None,
            NoRoomReason.NOT_NOW,
            "the freest leaf (P1/S1) has room for 1 of 4 members",
            id="a node without a leaf never satisfies it, not even alone",
        ),
        pytest.param(
            {}, 1, "any", None, NoRoomReason.NOT_NOW, "the cluster has room for 0 of 1 members",
            id="no nodes",
        ),
    ],
)  # fmt: skip
def test_refusals(choose, rooms, n_members, within, when_empty, reason, detail):
    """A reason from a closed set, and counts for people."""
    found = choose(rooms, n_members, within=within, when_empty=when_empty)
    assert isinstance(found, NoRoom)
    assert (found.reason, found.detail) == (reason, detail)
    assert found.n_members == n_members


def test_a_required_level_confines_the_group(choose):
    """The cluster has room; the leaf that holds it is chosen although it is not the emptiest."""
    rooms = {"P1.S1.a": 1, "P1.S1.b": 1, "P2.S1.c": 1}
    assert choose(rooms, 3, within="spine").reason is NoRoomReason.NOT_NOW
    found = choose(rooms, 2, within="spine")
    assert (found.level, found.domain) == ("leaf", "P1/S1")
    assert choose(rooms, 1).domain == "P2.S1.c"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: GroupDemand(()), id="no members"),
        pytest.param(lambda: GroupDemand((MemberShape(0, 1, [1]),)), id="none of one"),
        pytest.param(
            lambda: GroupDemand((MemberShape(1, 1, [1]), MemberShape(1, 2, [1]))),
            id="unlike members need free GPUs",
        ),
    ],
)
def test_demands_that_make_no_sense_are_refused(make, check_message):
    """Before anything is chosen."""
    with pytest.raises(InvalidRequest) as caught:
        make()
    check_message(caught.value)


def test_figures_must_be_those_of_the_tree(tree_of, check_message):
    """A figure too few would shift all others to wrong nodes."""
    tree = tree_of({"a": [], "b": []})
    with pytest.raises(InvalidRequest) as caught:
        choose_nodes(tree, GroupDemand((MemberShape(1, 1, [1]),)))
    check_message(caught.value)


@st.composite
def small_cases(draw):
    """A tree of up to seven nodes with some levels unknown, room of 0 to 3, and members."""
    n_nodes = draw(st.integers(1, 7))
    nodes = {}
    for i in range(n_nodes):
        steps = []
        if draw(st.integers(0, 4)):
            steps = [DomainStep("spine", "t", draw(st.sampled_from("PQ")))]
            if draw(st.integers(0, 4)):
                steps.insert(0, DomainStep("leaf", "t", draw(st.sampled_from("ST"))))
        nodes[f"n{i}"] = DomainPath(tuple(steps))
    fits = draw(st.lists(st.integers(0, 3), min_size=n_nodes, max_size=n_nodes))
    return build_tree(nodes), fits, draw(st.integers(1, 8))


def divisions(fits, n_members, domain):
    """Every division of the members over the nodes of a domain."""
    rooms = [range(fits[i] + 1) for i in range(domain.first, domain.end)]
    return [shares for shares in product(*rooms) if sum(shares) == n_members]


@given(small_cases(), st.sampled_from(["leaf", "spine", "any"]))
def test_level_and_least_share_are_those_of_brute_force(case, within):
    """No nearer level holds the group, and no division of that level has a greater least share."""
    tree, fits, n_members = case
    found = choose_nodes(tree, GroupDemand((MemberShape(n_members, 1, fits),), within=within))
    index = tree.level_index(within)
    levels = tree.levels[: 0 if index is None else index + 1]
    known = {i for level in levels for i in level.positions.tolist()}
    best = {}
    if any(fits[i] >= n_members for i in known):
        best = {NODE_LEVEL: n_members}  # nearer than any level, also where the node is in none
        levels = ()
    for level in levels:
        able = [
            shares for d in level.domains for shares in divisions(fits, n_members, tree.domains[d])
        ]
        if able:
            best = {level.name: max(min(x for x in shares if x) for shares in able)}
            break
    if not best:
        assert isinstance(found, NoRoom)
        return
    assert isinstance(found, Assigned)
    shares = [share.n_members for share in found.shares]
    assert sum(shares) == n_members
    room = dict(zip(tree.node_names, fits, strict=True))
    assert all(share.n_members <= room[share.node_name] for share in found.shares)
    assert {found.level: min(shares)} == best
    if found.level == NODE_LEVEL:
        return
    domain = next(each for each in tree.domains if each.name == found.domain)
    inside = tree.node_names[domain.first : domain.end]
    assert all(share.node_name in inside for share in found.shares)


@given(small_cases())
def test_equal_nodes_are_taken_from_the_fewest_sub_domains(case):
    """Where each node takes one member or none the number of sub-domains is the least possible."""
    tree, fits, n_members = case
    fits = [min(one, 1) for one in fits]
    found = choose_nodes(tree, GroupDemand((MemberShape(n_members, 1, fits),)))
    if isinstance(found, NoRoom) or found.level == NODE_LEVEL:
        return
    level = tree.levels[tree.level_index(found.level)]

    def n_parts(domain, positions):
        parts = [range(tree.domains[c].first, tree.domains[c].end) for c in domain.children]
        lone = sum(1 for i in positions if i in domain.lone_nodes)
        return lone + sum(1 for part in parts if any(i in part for i in positions))

    least = min(
        n_parts(tree.domains[d], [tree.domains[d].first + i for i, x in enumerate(shares) if x])
        for d in level.domains
        for shares in divisions(fits, n_members, tree.domains[d])
    )
    domain = next(each for each in tree.domains if each.name == found.domain)
    positions = [tree.node_names.index(share.node_name) for share in found.shares]
    assert n_parts(domain, positions) == least


@given(small_cases(), st.randoms(use_true_random=False))
def test_the_same_nodes_in_another_order_give_the_same_answer(case, order):
    """The choice follows from names and figures, never from the order of arrival."""
    tree, fits, n_members = case
    room = dict(zip(tree.node_names, fits, strict=True))
    steps = {}
    for i, name in enumerate(tree.node_names):
        chain = dict.fromkeys(int(d) for d in tree.chains[tree.owner[i]])
        levels = [tree.domains[d] for d in chain if tree.domains[d].level != "any"]
        steps[name] = DomainPath(
            tuple(DomainStep(d.level, "t", d.name.rsplit("/", 1)[-1]) for d in levels)
        )
    names = list(steps)
    order.shuffle(names)
    other = build_tree({name: steps[name] for name in names})
    demand = GroupDemand((MemberShape(n_members, 1, [room[n] for n in other.node_names]),))
    same = GroupDemand((MemberShape(n_members, 1, fits),))
    assert choose_nodes(other, demand) == choose_nodes(tree, same)
