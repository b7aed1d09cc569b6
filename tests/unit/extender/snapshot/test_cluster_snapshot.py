"""The cluster at one moment: immutable, shared, numbered."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.snapshot import NodeClass, make_snapshot, make_view, with_masks
from extender.snapshot import cluster_snapshot as snapshot_module
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.topology_manager import TopologyManager

KINDS = [NodeClass(i, f"kind-{i}", "nvidia.com/gpu", None) for i in range(2)]

MANAGER = TopologyManager(TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.POD)


def snapshot(n_nodes: int = 3):
    """Nodes of two kinds with eight devices each, all free."""
    ids = tuple("abcdefgh")
    return make_snapshot(
        [
            make_view(f"n{i}", zone=f"z{i % 2}", node_class=KINDS[i % 2], ids=ids, free=0xFF)
            for i in range(n_nodes)
        ]
    )


def test_a_change_leaves_the_old_snapshot_as_it_was():
    """A verb answers from one moment, whatever is bound meanwhile."""
    before = snapshot()
    after = before.with_free({"n1": 0b11}, 7)
    assert (before.nodes["n1"].free, after.nodes["n1"].free) == (0xFF, 0b11)
    assert (before.generation, after.generation) == (0, 7)
    assert after.nodes["n0"] is before.nodes["n0"]
    assert after.positions is before.positions
    assert before.state_ids.tolist() == [0, 1, 0]


def test_a_generation_alone_shares_everything_else():
    """A binding that is confirmed changes no node."""
    before = snapshot()
    after = before.with_views([], 7)
    assert (before.generation, after.generation) == (0, 7)
    assert after.views is before.views
    assert after.state_ids is before.state_ids


@pytest.mark.parametrize(
    ("manager", "masks", "is_same"),
    [
        pytest.param(None, (0xFF, 0), True, id="nothing differs"),
        pytest.param(None, (0xFE, 0), False, id="other devices are free"),
        pytest.param(None, (0xFF, 1), True, id="reserved devices do not matter"),
        pytest.param(MANAGER, (0xFF, 1), False, id="other devices are reserved"),
    ],
)
def test_a_view_with_other_masks_is_the_view_made_of_them(manager, masks, is_same):
    """What a node keeps is taken over, and nothing is made where nothing differs."""
    kind = NodeClass(3, "kind", "nvidia.com/gpu", None, manager)
    free, reserved = masks
    make = partial(make_view, 'odd "name"', zone="z", node_class=kind, ids=tuple("abcdefgh"))
    view = make(free=0xFF)
    other = with_masks(view, free=free, reserved=reserved)
    assert (other is view) is is_same
    assert asdict(other) == asdict(make(free=free, reserved=reserved))


def test_nodes_are_a_mapping_in_order():
    """By name, as the rest of the program looks them up."""
    nodes = snapshot().nodes
    assert list(nodes) == ["n0", "n1", "n2"]
    assert (len(nodes), "n1" in nodes, "n9" in nodes) == (3, True, False)


@pytest.mark.parametrize("spare", [0, 1000], ids=["numbers are reused", "numbers grow"])
@given(changes=st.lists(st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.integers(0, 255))))
def test_numbers_are_equal_exactly_for_equal_states(spare, changes):
    """However many states came and went: the verbs rate each number once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_module, "SPARE_STATES", spare)
        one = snapshot()
        for name, free in changes:
            one = one.with_free({name: free}, one.generation + 1)
    states = [view.state for view in one.views]
    ids = one.state_ids.tolist()
    for a in range(3):
        for b in range(3):
            assert (states[a] == states[b]) == (ids[a] == ids[b])
    assert np.all(one.state_ids < len(one.state_numbers))
    assert [one.state_numbers[state] for state in states] == ids


def test_states_of_any_number_of_kinds_differ():
    """Indices are never handed out again, and a cluster may see many kinds over the years."""
    late = NodeClass(65_536, "late", "nvidia.com/gpu", None)
    ids = ("a", "b")
    views = [
        make_view("n", zone="z", node_class=kind, ids=ids, free=free)
        for kind in (KINDS[0], late)
        for free in range(4)
    ]
    assert len({view.state for view in views}) == len(views)


@pytest.mark.parametrize(
    ("is_synced", "observed_at_s", "is_fresh"),
    [
        pytest.param(True, None, True, id="a feed that cannot lag"),
        pytest.param(True, 40.0, True, id="observed just within the bound"),
        pytest.param(True, 39.9, False, id="observed too long ago"),
        pytest.param(False, None, False, id="not synced"),
    ],
)
def test_freshness(is_synced, observed_at_s, is_fresh):
    """A refusal may only be based on fresh state."""
    one = replace(snapshot(), is_synced=is_synced, observed_at_s=observed_at_s)
    assert one.is_fresh(100.0, 60.0) is is_fresh
