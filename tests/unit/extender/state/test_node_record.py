"""Reading a node: what was read ahead is not read again, and nothing it says raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.state import Kinds, node_record
from extender.state.node_record import BY_COUNT, NodeReader, fingerprint, mask_of
from tests.unit.extender.feeds import bare, ids, node, report, topology_text
from tests.unit.extender.pods import GPU
from topology.value import DEFAULT_DEMAND


@pytest.fixture
def reader():
    """A reader that has met one machine type."""
    reader = NodeReader((GPU,), Kinds(DEFAULT_DEMAND))
    reader.read(node("n0"))
    return reader


def test_what_was_read_ahead_is_not_read_again(reader, monkeypatch):
    """Thousands of nodes are looked at once for their machine type, then shown."""
    assert reader.unbuilt(node("n1")) is None
    monkeypatch.setattr(node_record, "decode_topology", None)
    assert reader.unbuilt(node("n1")) is None
    assert reader.read(node("n1")).ids == ids("n1")


def test_what_was_read_ahead_is_forgotten_where_there_is_too_much(reader, monkeypatch):
    """Nodes that are looked at and never shown must not pile up."""
    monkeypatch.setattr(node_record, "MAX_AHEAD", 1)
    for name in ("n1", "n2"):
        assert reader.unbuilt(node(name)) is None
    assert reader.read(node("n1")).ids == ids("n1")


@pytest.mark.parametrize("text", ["{", '{"v":"2.0"}'], ids=["broken", "newer major"])
def test_a_report_that_cannot_be_read_makes_the_node_count_only(reader, text):
    """Which GPUs are bad is unknown then: a plan might name exactly those."""
    record = reader.read(node("n1", devices=text))
    assert (record.machine, record.label, record.ids) == (None, BY_COUNT, ids("n1"))
    assert len(record.problems) == 1


def test_equal_facts_have_one_fingerprint():
    """Texts are not kept; this is how a heartbeat is told from a change."""
    assert fingerprint(node("n1")) == fingerprint(node("n1"))
    others = (
        node("n1", zone="z2"),
        node("n1", has_soft_taint=True),
        node("n1", allocatable={GPU: 3}),
        node("n1", prefix="x"),
        node("n1", devices=report()),
        bare("n1"),
    )
    assert len({fingerprint(one) for one in (node("n1"), *others)}) == 7


def test_ids_of_other_nodes_have_no_bit():
    """Reports and plans may name what the node does not have."""
    assert mask_of(("c", "x", "a"), {"a": 0, "b": 1, "c": 2}) == 0b101


@given(topology=st.none() | st.text(), devices=st.none() | st.text(), count=st.integers(-5, 600))
def test_no_node_raises(topology, devices, count):
    """Anyone who may write a Node can put anything there."""
    kinds = Kinds(DEFAULT_DEMAND)
    facts = bare("n1", count, devices=devices)
    one = NodeReader((GPU,), kinds).read(facts)
    assert len(one.ids) == max(0, min(count, 512))
    assert bool(one.problems) == (devices is not None and count > 0)
    other = node("n1", topology=topology)
    assert NodeReader((GPU,), kinds).read(other).machine is None


def test_a_topology_of_fewer_devices_than_are_allocatable_names_too_little(reader):
    """The kubelet may give a device that no plan can name."""
    one = reader.read(node("n1", allocatable={GPU: 8}))
    assert (one.machine, len(one.ids)) == (None, 8)
    assert one.problems == (
        "topology: 4 GPUs, but 8 devices are allocatable: expected every device to be named",
    )


def test_a_topology_text_is_kept_by_nobody(reader):
    """Memory: 5,000 nodes with 5 KB of text each would be 25 MB for nothing."""
    one = reader.read(node("n1"))
    assert topology_text("n1") not in [getattr(one, name) for name in type(one).__slots__]
