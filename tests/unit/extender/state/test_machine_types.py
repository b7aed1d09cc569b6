"""NodeClasses of node: shared wherever nodes are alike, and bounded where they are not."""

from __future__ import annotations

import gc
import inspect
from dataclasses import fields, replace

import pytest

from extender.snapshot import NodeClass
from extender.state import NodeClasses, build_machine_type
from extender.state import machine_types as module
from tests.unit.extender.feeds import live, node
from topology.model.measurement import MeasuredPair, Measurement
from topology.recordings import load_recording
from topology.value import DEFAULT_DEMAND, topology_digest

MACHINE = load_recording("4x-a100-sxm")
DIGEST = topology_digest(MACHINE)


def measured(gbytes_per_s):
    """The machine with one pair measured, in a class that does not depend on the figure."""
    pairs = (MeasuredPair(0, 1, gbytes_per_s), MeasuredPair(2, 3, 90.0))
    return replace(MACHINE, measurement=Measurement(pairs))


def test_a_machine_type_is_built_once():
    """Building may take a second."""
    kinds = NodeClasses(DEFAULT_DEMAND)
    assert not kinds.has(DIGEST)
    built = kinds.machine(DIGEST, MACHINE)
    assert kinds.has(DIGEST)
    assert kinds.machine(DIGEST) is kinds.machine(DIGEST, MACHINE) is built


def test_what_is_offered_is_used_and_the_first_offer_counts():
    """Ratings are kept by machine type; two for one digest would halve their worth."""
    kinds = NodeClasses(DEFAULT_DEMAND)
    first, second = (build_machine_type(MACHINE, DEFAULT_DEMAND) for _ in range(2))
    kinds.offer(first)
    kinds.offer(second)
    assert kinds.machine(DIGEST, MACHINE) is first


def test_a_digest_that_was_never_built_needs_its_topology():
    """There is nothing to build it from."""
    with pytest.raises(KeyError):
        NodeClasses(DEFAULT_DEMAND).machine(DIGEST)


def test_kinds_differ_by_name_resource_machine_worth_label_and_number():
    """Their index is what states and caches are keyed by."""
    kinds = NodeClasses(DEFAULT_DEMAND)
    machine = kinds.machine(DIGEST, MACHINE)
    made = [
        kinds.node_class("a", "r", machine, None, 1.0, "", 8),
        kinds.node_class("a", "r", None, None, 1.0, "", 8),
        kinds.node_class("a", "s", machine, None, 1.0, "", 8),
        kinds.node_class("b", "r", machine, None, 1.0, "", 8),
        kinds.node_class("a", "r", machine, None, 2.0, "", 8),
        kinds.node_class("a", "r", None, None, 1.0, "H100", 8),
        kinds.node_class("a", "r", None, None, 1.0, "H100", 4),
    ]
    assert [one.index for one in made] == list(range(7))
    assert kinds.node_class("a", "r", machine, None, 1.0, "H100", 4) is made[0]


def test_a_kind_is_looked_up_by_every_fact():
    """A type checker then finds the caller who forgets one; its nodes would share wrong ratings."""
    parameters = list(inspect.signature(NodeClasses.node_class).parameters.values())[1:]
    facts = [one.name for one in fields(NodeClass) if one.init]
    assert ["index", *(one.name for one in parameters)] == facts
    assert {one.default for one in parameters} == {inspect.Parameter.empty}


@pytest.mark.parametrize(
    ("name", "bound"), [("MAX_RAW_TYPES", 1), ("MAX_RAW_BYTES", 12 << 4)], ids=["types", "bytes"]
)
def test_raw_figures_have_bounds(monkeypatch, name, bound):
    """A cluster in which every node measured itself must not fill the memory with tie-breaks."""
    monkeypatch.setattr(module, name, bound)
    kinds = NodeClasses(DEFAULT_DEMAND)
    digest = topology_digest(measured(90.0))
    first, second = (kinds.machine(digest, measured(figure)) for figure in (90.0, 90.1))
    assert first is not second
    assert kinds.machine(digest, measured(90.2)) is second
    assert kinds.machine(digest, measured(90.0)) is first


def test_what_no_node_uses_is_dropped(monkeypatch):
    """Nodes come and go for months; each dead link and each measurement makes a type."""
    monkeypatch.setattr(module, "MAX_RAW_BYTES", 2 * (12 << 4))
    kinds = NodeClasses(DEFAULT_DEMAND)
    digest = topology_digest(measured(90.0))
    first, second = (kinds.machine(digest, measured(figure)) for figure in (90.0, 90.1))
    made = [
        kinds.node_class(str(i), "r", one, None, 1.0, "", 8)
        for i, one in enumerate((first, second, None))
    ]
    other = load_recording("dgx-1-v100")
    kinds.machine(topology_digest(other), other)
    kinds.keep([second], made[1:])
    assert (kinds.has(digest), kinds.has(topology_digest(other))) == (True, False)
    assert kinds.machine(digest, measured(90.1)) is second
    assert kinds.machine(digest, measured(90.2)) is not kinds.machine(digest)
    assert kinds.node_class("1", "r", second, None, 1.0, "", 8) is made[1]
    assert kinds.node_class("2", "r", None, None, 1.0, "", 8) is made[2]
    assert kinds.node_class("0", "r", first, None, 1.0, "", 8).index == len(made), (
        "caches still hold the old index"
    )


def test_kinds_of_a_worth_that_has_changed_are_dropped(monkeypatch):
    """The label of a Node may follow a price: every change makes a kind, of a machine in use."""
    monkeypatch.setattr("extender.snapshot.cluster_snapshot.SPARE_STATES", 100)
    cluster = live()
    for worth in range(1, 1000):
        cluster.update_node(node("n1", worth=str(worth)))
        assert cluster.snapshot.nodes["n1"].node_class.index == worth - 1
    # Snapshots refer to the kinds of some 100 states that no node has any more.
    assert sum(isinstance(one, NodeClass) and one.worth > 1 for one in gc.get_objects()) < 500


def test_machine_types_for_nodes_to_come_are_kept_but_not_for_ever(monkeypatch):
    """They are built before their node is shown; a node may never come."""
    monkeypatch.setattr(module, "MAX_OFFERED", 1)
    others = [load_recording(name) for name in ("dgx-1-v100", "4x-a100-sxm")]
    first, second = (build_machine_type(one, DEFAULT_DEMAND) for one in others)
    kinds = NodeClasses(DEFAULT_DEMAND)
    kinds.offer(first)
    kinds.keep([], [])
    assert kinds.has(first.digest)
    kinds.offer(second)
    kinds.keep([], [])
    assert (kinds.has(first.digest), kinds.has(second.digest)) == (False, True)
    kinds.machine(second.digest)
    kinds.keep([], [])
    assert not kinds.has(second.digest)


def test_dropping_is_due_when_most_has_no_node(monkeypatch):
    """So that looking through all nodes costs little for each kind made."""
    monkeypatch.setattr(module, "SPARE", 2)
    kinds = NodeClasses(DEFAULT_DEMAND)
    machine = kinds.machine(DIGEST, MACHINE)
    first = kinds.node_class("a", "r", machine, None, 1.0, "", 8)
    assert not kinds.is_crowded
    second = kinds.node_class("b", "r", machine, None, 1.0, "", 8)
    assert kinds.is_crowded
    kinds.keep([machine], [first, second])
    assert not kinds.is_crowded
