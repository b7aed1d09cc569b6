"""Reading a node: what was read ahead is not read again, and nothing it says raises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.state import NodeClasses, node_reader
from extender.state.node_reader import NodeReader
from extender.state.node_record import BY_COUNT, fingerprint, mask_of
from tests.unit.extender.feeds import MACHINE, MIG, bare, ids, node, report, topology_text, wide
from tests.unit.extender.pods import GPU
from topology.model import find_gpu_worth
from topology.value import DEFAULT_DEMAND


@pytest.fixture
def reader():
    """A reader that has met one machine type."""
    reader = NodeReader((GPU,), NodeClasses(DEFAULT_DEMAND))
    reader.read(node("n0"))
    return reader


def test_what_was_read_ahead_is_not_read_again(reader, monkeypatch):
    """Thousands of nodes are looked at once for their machine type, then shown."""
    assert reader.unbuilt(node("n1")) is None
    monkeypatch.setattr(node_reader, "decode_topology", None)
    assert reader.unbuilt(node("n1")) is None
    assert reader.read(node("n1")).resources[0].ids == ids("n1")


def test_what_was_read_ahead_is_forgotten_where_there_is_too_much(reader, monkeypatch):
    """Nodes that are looked at and never shown must not pile up."""
    monkeypatch.setattr(node_reader, "MAX_AHEAD", 1)
    for name in ("n1", "n2"):
        assert reader.unbuilt(node(name)) is None
    assert reader.read(node("n1")).resources[0].ids == ids("n1")


@pytest.mark.parametrize("text", ["{", '{"v":"2.0"}'], ids=["broken", "newer major"])
def test_a_report_that_cannot_be_read_makes_the_node_count_only(reader, text):
    """Which GPUs are bad is unknown then: a plan might name exactly those."""
    record = reader.read(node("n1", devices=text))
    (one,) = record.resources
    assert (one.machine, one.label, one.ids) == (None, BY_COUNT, ids("n1"))
    assert len(record.problems) == 1


def test_equal_facts_have_one_fingerprint():
    """Texts are not kept; this is how a heartbeat is distinguished from a change."""
    assert fingerprint(node("n1")) == fingerprint(node("n1"))
    others = (
        node("n1", zone="z2"),
        node("n1", has_soft_taint=True),
        node("n1", allocatable={GPU: 3}),
        node("n1", capacity={GPU: 3}),
        node("n1", prefix="x"),
        node("n1", devices=report()),
        node("n1", worth="2"),
        bare("n1"),
    )
    assert len({fingerprint(one) for one in (node("n1"), *others)}) == 9


def test_ids_of_other_nodes_have_no_bit():
    """Reports and plans may name what the node does not have."""
    assert mask_of(("c", "x", "a"), {"a": 0, "b": 1, "c": 2}) == 0b101


@given(topology=st.none() | st.text(), devices=st.none() | st.text(), count=st.integers(-5, 600))
def test_no_node_raises(topology, devices, count):
    """Anyone who may write a Node can put anything there."""
    kinds = NodeClasses(DEFAULT_DEMAND)
    facts = bare("n1", count, devices=devices)
    one = NodeReader((GPU,), kinds).read(facts)
    assert len(one.resources[0].ids) == max(0, min(count, 512))
    assert bool(one.problems) == (devices is not None and count > 0)
    other = node("n1", topology=topology)
    assert NodeReader((GPU,), kinds).read(other).resources[0].machine is None


def test_a_topology_of_fewer_devices_than_are_allocatable_names_too_little(reader):
    """The kubelet may give a device that no plan can name."""
    record = reader.read(node("n1", allocatable={GPU: 8}))
    (one,) = record.resources
    assert (one.machine, len(one.ids)) == (None, 8)
    assert record.problems == (
        "topology: 4 GPUs, but 8 devices are allocatable: expected every device to be named",
    )


def of(machine, allocatable, capacity, resource=GPU):
    """A node of a machine that says how many devices it has and gives away."""
    return node(
        "n1",
        topology=topology_text("n1", machine=machine),
        allocatable={resource: allocatable},
        capacity={resource: capacity},
    )


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(of(wide(8), 8, 8), id="all are served"),
        pytest.param(of(wide(8), 1, 8), id="unhealthy devices stay in the capacity"),
        pytest.param(of(wide(8), 6, 6), id="two GPUs fell off"),
        pytest.param(of(wide(8), 6, 0), id="a status without capacity says what is allocatable"),
        pytest.param(of(wide(8, per_gpu=4), 8, 8), id="MIG instances"),
        pytest.param(of(wide(56, per_gpu=7), 42, 42), id="two GPUs fell off with all instances"),
        pytest.param(of(wide(8), 8, 8, MIG), id="a resource of another name"),
    ],
)
def test_a_topology_of_a_capacity_like_the_nodes_is_used(facts):
    """Devices that are unhealthy, or fell off the bus, must not cost a node its plans."""
    one = NodeReader((GPU, MIG), NodeClasses(DEFAULT_DEMAND)).read(facts)
    assert one.resources[0].machine is not None
    assert one.problems == ()


@pytest.mark.parametrize(
    ("facts", "n_named", "capacity", "most"),
    [
        pytest.param(of(wide(256), 8, 8), 256, 8, 10, id="another machine's"),
        pytest.param(of(wide(8), 5, 5), 8, 5, 7, id="three GPUs fell off"),
        pytest.param(of(wide(8), 5, 0), 8, 5, 7, id="no capacity is known"),
        pytest.param(of(wide(56, per_gpu=7), 8, 8), 56, 8, 22, id="instances, of whole GPUs"),
        pytest.param(of(wide(40, per_gpu=40), 8, 8), 40, 8, 24, id="all on one GPU"),
    ],
)
def test_a_topology_far_beyond_the_capacity_is_not_used(facts, n_named, capacity, most):
    """It names what the kubelet cannot give; the node serves by count and says what to do."""
    reader = NodeReader((GPU,), NodeClasses(DEFAULT_DEMAND))
    assert reader.unbuilt(facts) is None, "no tables are built for it"
    n_devices = facts.allocatable[GPU]
    for _ in range(2):
        record = reader.read(facts)
        (one,) = record.resources
        assert (one.machine, one.label, len(one.ids)) == (None, BY_COUNT, n_devices)
        (problem,) = record.problems
        assert problem == (
            f"topology: {n_named} devices are named, but the capacity of node n1 is {capacity} of "
            f"nvidia.com/gpu, expected at most {most} names (of 2 GPUs more, which may have fallen "
            "off): restart the node plugin there, which reads the machine again; where another "
            "program wrote the annotation coterie.gpu/topology, correct or remove it"
        )


def test_a_node_that_serves_nothing_yet_has_nothing_built_and_no_problem(reader):
    """A kubelet that restarts has a capacity of 0 until the plugin has registered again."""
    starting, serving = of(wide(8), 0, 0), of(wide(8), 8, 8)
    assert (reader.unbuilt(starting), reader.read(starting).problems) == (None, ())
    topology = reader.unbuilt(serving)
    assert topology is not None
    assert topology.n_gpus == 8
    assert reader.read(serving).resources[0].machine is not None


def test_a_capacity_that_falls_after_the_topology_was_read_ahead_counts(reader):
    """Nodes are looked at for their machine type before they are shown."""
    assert reader.unbuilt(of(wide(8), 8, 8)) is not None
    assert reader.unbuilt(of(wide(8), 3, 3)) is None
    assert reader.read(of(wide(8), 3, 3)).resources[0].machine is None


def test_the_pairs_of_what_is_not_used_are_not_read(reader, monkeypatch):
    """A quarter of a million of 512 GPUs take most of a second, in which filter waits."""
    liar = of(wide(256), 8, 8)
    monkeypatch.setattr(node_reader, "decode_topology", None)
    assert reader.unbuilt(liar) is None
    assert reader.read(liar).resources[0].machine is None


def test_a_topology_text_is_not_kept(reader):
    """Memory: 5,000 nodes with 5 KB of text each would be 25 MB for nothing."""
    one = reader.read(node("n1"))
    assert topology_text("n1") not in [getattr(one, name) for name in type(one).__slots__]


A100 = find_gpu_worth("NVIDIA A100-SXM4-40GB")
COLOSSUS = replace(MACHINE, gpus=tuple(replace(gpu, model="Colossus") for gpu in MACHINE.gpus))


@pytest.mark.parametrize(
    ("facts", "settings", "worth"),
    [
        pytest.param(node("n1"), (), A100, id="by model"),
        pytest.param(node("n1"), (("a100", 7.0),), 7.0, id="by setting"),
        pytest.param(node("n1", worth="2.5"), (("a100", 7.0),), 2.5, id="by label first"),
        pytest.param(of(wide(8, per_gpu=4), 8, 8), (("a100", 7.0),), 1.75, id="partitions"),
        pytest.param(bare("n1"), (), 1.0, id="by count"),
    ],
)
def test_a_node_is_worth_what_label_setting_or_model_say(facts, settings, worth):
    """In this order; a partition is worth its share."""
    record = NodeReader((GPU,), NodeClasses(DEFAULT_DEMAND), settings).read(facts)
    assert (record.resources[0].worth, record.problems) == (worth, ())


def test_a_label_is_that_of_a_gpu_where_gpus_are_partitioned():
    """As in the table and in the setting."""
    facts = replace(of(wide(8, per_gpu=4), 8, 8), worth="8")
    assert NodeReader((GPU,), NodeClasses(DEFAULT_DEMAND)).read(facts).resources[0].worth == 2.0


def test_a_label_that_is_no_worth_is_reported_and_left_out(reader):
    """By label, value and expectation."""
    record = reader.read(node("n1", worth="much"))
    assert record.resources[0].worth == A100
    (problem,) = record.problems
    assert problem.startswith("label coterie.gpu/worth is 'much', expected a decimal number above")
    assert record.resources[0].machine is not None


def colossus(name: str, **more: str):
    """A node of GPUs of an unknown model."""
    return node(name, topology=topology_text(name, machine=COLOSSUS), **more)


def test_an_unknown_model_is_reported_for_one_of_its_nodes(reader):
    """A cluster has hundreds of a kind; each Event is a write."""
    first = reader.read(colossus("n1"))
    assert first.resources[0].worth == 1.0
    (problem,) = first.problems
    assert problem.startswith("GPU model 'Colossus' has no known worth and counts as 1")
    assert reader.read(colossus("n2")).problems == ()
    assert reader.read(colossus("n1", zone="z2")).problems == (problem,)
    assert reader.read(colossus("n1", worth="3")).problems == ()


def test_unknown_models_are_not_remembered_without_bound(reader, monkeypatch):
    """A plugin may name another model each time."""
    monkeypatch.setattr(node_reader, "MAX_UNKNOWN_MODELS", 0)
    assert [len(reader.read(colossus(name)).problems) for name in ("n1", "n2")] == [1, 1]


MIXED = (GPU, MIG, "nvidia.com/mig-3g.40gb")


@pytest.mark.parametrize(
    ("allocatable", "capacity", "served"),
    [
        pytest.param({GPU: 4, MIG: 7}, {GPU: 4, MIG: 7}, {GPU: True, MIG: False}, id="both"),
        pytest.param(
            {MIG: 7}, {MIG: 7}, {MIG: True}, id="the first that the node has is described"
        ),
        pytest.param({GPU: 0, MIG: 4}, {GPU: 4, MIG: 4}, {MIG: False}, id="all GPUs are unhealthy"),
        pytest.param({GPU: 4}, {GPU: 4, MIG: 7}, {GPU: True}, id="all partitions are unhealthy"),
        pytest.param({}, {GPU: 4, MIG: 7}, {"": False}, id="nothing"),
        pytest.param(
            {"nvidia.com/mig-3g.40gb": 2, MIG: 1, "rdma/hca": 8},
            {GPU: 4, "nvidia.com/mig-3g.40gb": 2, MIG: 1, "rdma/hca": 8},
            {MIG: False, "nvidia.com/mig-3g.40gb": False},
            id="two profiles, in the order of the configuration",
        ),
    ],
)
def test_a_node_serves_each_resource_that_it_has(allocatable, capacity, served):
    """By name the one that its topology describes, by count the others."""
    machine = wide(8) if served == {MIG: True} else None
    text = {} if machine is None else {"topology": topology_text("n1", machine=machine)}
    facts = node("n1", allocatable=allocatable, capacity=capacity, **text)
    record = NodeReader(MIXED, NodeClasses(DEFAULT_DEMAND)).read(facts)
    assert {one.name: one.machine is not None for one in record.resources} == served
    assert [one.name for one in record.resources] == list(served)
    assert record.problems == ()
    for one in record.resources:
        assert one.machine is not None or len(one.ids) == allocatable.get(one.name, 0)


def test_an_unreadable_report_concerns_the_named_devices_alone():
    """Which of them are bad is unknown; of the others the kubelet counts the healthy ones."""
    facts = node("n1", allocatable={GPU: 4, MIG: 2}, devices="{")
    named, counted = NodeReader((GPU, MIG), NodeClasses(DEFAULT_DEMAND)).read(facts).resources
    assert (named.machine, named.label, named.ids) == (None, BY_COUNT, ids("n1"))
    assert (counted.machine, len(counted.ids)) == (None, 2)


@pytest.mark.parametrize(("allocatable", "capacity", "expected"), [(7, 8, 8), (8, 0, 8), (4, 4, 4)])
def test_a_node_by_count_has_as_many_devices_as_its_capacity(
    reader, allocatable, capacity, expected
):
    """More than those is never there; an unhealthy one may come back."""
    facts = node("n1", allocatable={GPU: allocatable}, capacity={GPU: capacity}, topology=None)
    (served,) = reader.read(facts).resources
    assert (len(served.ids), served.n_devices) == (allocatable, expected)
