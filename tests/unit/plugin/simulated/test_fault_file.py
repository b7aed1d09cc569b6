"""Files of faults: each key is understood, and nothing that is wrong goes unnoticed."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plugin.nvidia import VENDOR
from plugin.simulated.broken_links import LinksDown
from plugin.simulated.fault_file import FaultEntry, FaultPlan, parse_faults
from tests.unit.plugin.machine_values import simulated_machine
from topology.errors import ImportFormatError
from topology.recordings import load_recording

DGX1 = load_recording("dgx-1-v100")
DGX_H100 = load_recording("dgx-h100")
NAMED = simulated_machine("dgx-1-v100", node_name="n").read().topology
UUID = str(NAMED.gpus[6].uuid)


@pytest.mark.parametrize("text", ["", "  \n", "# nothing\n", "null", "{}", "{lost: [], xid: []}"])
def test_an_empty_text_means_that_nothing_is_wrong(text):
    """Whoever empties the file wants everything well again."""
    assert parse_faults(text, DGX1, VENDOR.simulated) == FaultPlan()


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        pytest.param("lost: [3, 0]", FaultPlan(lost=frozenset({0, 3})), id="lost by index"),
        pytest.param(f"lost: [{UUID}]", FaultPlan(lost=frozenset({6})), id="lost by uuid"),
        pytest.param('{"lost": [1]}', FaultPlan(lost=frozenset({1})), id="JSON"),
        pytest.param(
            "xid: [{gpu: 2, code: 79}]", FaultPlan(events=(FaultEntry(2, 79),)), id="an XID"
        ),
        pytest.param(
            "xid: [{code: 48, at: 7}, {code: 48, at: noon}]",
            FaultPlan(events=(FaultEntry(None, 48, "7"), FaultEntry(None, 48, "noon"))),
            id="XIDs of an unknown GPU, distinguished",
        ),
        pytest.param(
            "{xid: [{gpu: 1, code: 48, instance: 1}], mig: {1: [1g.5gb, 1g.5gb]}}",
            FaultPlan(events=(FaultEntry(1, 48, "", 1),), partitions={1: ("1g.5gb", "1g.5gb")}),
            id="an XID of a MIG instance",
        ),
        pytest.param(
            "links_down: [{gpus: [3, 0], n: 1}, {gpus: [1, 2]}]",
            FaultPlan(links_down=(LinksDown((0, 3), 1), LinksDown((1, 2)))),
            id="links of pairs",
        ),
        pytest.param(
            '{"mig": {"0": ["3g.40gb", "1c.3g.40gb"], "5": ["1g.10gb+me.all"]}}',
            FaultPlan(partitions={0: ("3g.40gb", "1c.3g.40gb"), 5: ("1g.10gb+me.all",)}),
            id="MIG in JSON, where keys are texts",
        ),
        pytest.param(
            f"mig: {{{UUID}: []}}", FaultPlan(partitions={6: ()}), id="MIG mode, no instance"
        ),
    ],
)
def test_each_key_is_understood(text, plan):
    """The format is a promise to whoever writes such files."""
    assert parse_faults(text, NAMED, VENDOR.simulated) == plan


def test_switch_ports_are_named_by_one_gpu():
    """Behind switches a link belongs to a GPU, not to a pair."""
    plan = parse_faults("links_down: [{gpu: 5, n: 2}]", DGX_H100, VENDOR.simulated)
    assert plan.links_down == (LinksDown((5,), 2),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[", "line 1, column 2: expected the node content", id="no YAML"),
        pytest.param("a: 2020-99-99", "month must be in", id="no date"),
        pytest.param("[" * 600, "nested too deeply", id="too deep"),
        pytest.param("x" * 70_000, "faults of 70000 characters, expected at most", id="too long"),
        pytest.param("3", "the text is 3, expected an object", id="no object"),
        pytest.param("gone: [1]", "the text has 'gone', expected one of: lost, xid,", id="key"),
        pytest.param("lost: 1", "lost is 1, expected an array", id="one GPU, no list"),
        pytest.param("lost: [8]", "lost[0] is 8, expected a GPU of this machine: 0..7", id="GPU"),
        pytest.param("lost: [-1]", "lost[0] is -1, expected a GPU", id="GPU from the end"),
        pytest.param("lost: [true]", "lost[0] is True, expected a GPU", id="no index"),
        pytest.param("lost: [GPU-x]", "lost[0] is 'GPU-x', expected a GPU", id="unknown uuid"),
        pytest.param("xid: [79]", "xid[0] is 79, expected an object", id="XID alone"),
        pytest.param("xid: [{gpu: 1}]", "xid[0] has no code, expected one", id="no code"),
        pytest.param("xid: [{code: 0}]", "xid[0].code is 0, expected an XID of 1..", id="XID 0"),
        pytest.param("xid: [{code: 4294967296}]", "expected an XID of 1..4294967295", id="64 bit"),
        pytest.param("xid: [{code: x}]", "xid[0].code is 'x', expected an integer", id="text"),
        pytest.param("xid: [{code: 1, gpu: 8}]", "xid[0].gpu is 8, expected a GPU", id="its GPU"),
        pytest.param("xid: [{code: 1, at: [1]}]", "xid[0].at is [1], expected a string", id="at"),
        pytest.param("xid: [{code: 1, to: 1}]", "xid[0] has 'to', expected one of:", id="XID key"),
        pytest.param(
            "xid: [{code: 1, gpu: 1, instance: 0}]",
            "xid[0].instance is 0, expected the index of one of the GPU's 0 MIG instances",
            id="instance of a whole GPU",
        ),
        pytest.param(
            "{xid: [{code: 1, gpu: 1, instance: 1}], mig: {1: [1g.5gb]}}",
            "the GPU's 1 MIG instances",
            id="instance that is not there",
        ),
        pytest.param(
            "{xid: [{code: 1, instance: 0}], mig: {1: [1g.5gb]}}",
            "the GPU's 0 MIG instances",
            id="instance of an unknown GPU",
        ),
        pytest.param("links_down: [{}]", "links_down[0] has no gpu, expected one", id="no pair"),
        pytest.param(
            "links_down: [{gpu: 1, gpus: [1, 2]}]", "expected either gpu or gpus", id="both"
        ),
        pytest.param("links_down: [{gpus: [1]}]", "expected an array of 2", id="half a pair"),
        pytest.param("links_down: [{gpus: [1, 1]}]", "expected two different GPUs", id="itself"),
        pytest.param(
            "links_down: [{gpus: [0, 3], n: 0}]", "n is 0, expected a count of 1..36", id="none"
        ),
        pytest.param("links_down: [{gpus: [0, 3], n: 37}]", "expected a count of 1..36", id="37"),
        pytest.param(
            "links_down: [{gpus: [0, 3], n: 3}]",
            "links_down: 3 links of GPUs 0 and 3, which has 2",
            id="more links than there are",
        ),
        pytest.param("links_down: [{at: 1}]", "links_down[0] has 'at'", id="link key"),
        pytest.param("mig: [1]", "mig is [1], expected an object", id="MIG list"),
        pytest.param("mig: {9: []}", "a key of mig is 9, expected a GPU", id="MIG of no GPU"),
        pytest.param("mig: {GPU-x: []}", "a key of mig is 'GPU-x', expected", id="MIG of no uuid"),
        pytest.param("mig: {1: 2}", "mig.1 is 2, expected an array", id="no profiles"),
        pytest.param("mig: {1: [big]}", "mig.1[0] is 'big', expected a MIG profile", id="profile"),
        pytest.param("mig: {1: [1]}", "mig.1[0] is 1, expected a string", id="profile number"),
        pytest.param(f"mig: {{1: {['1g.5gb'] * 8}}}", "at most 7 for a GPU", id="eight instances"),
        pytest.param(
            '{mig: {1: [1g.5gb], "1": [1g.5gb]}}', "each GPU once", id="a GPU that is split twice"
        ),
    ],
)
def test_what_is_wrong_is_named(text, message):
    """A typing error must not look like a healthy machine."""
    with pytest.raises(ImportFormatError) as caught:
        parse_faults(text, DGX1, VENDOR.simulated)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_profiles_name_holds_its_memory():
    """The mixed strategy and the topology want to know it."""
    profiles = ("1g.10gb", "1c.3g.40gb", "7g.141gb", "1g.5gb+me", "huge")
    made = [VENDOR.simulated.partition(one, "GPU-0", 0, "x") for one in profiles]
    memory = [None if one is None else one.memory_mib for one in made]
    assert memory == [10240, 40960, 144384, 5120, None]


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
keyed = st.dictionaries(
    st.sampled_from(["lost", "xid", "links_down", "mig", "gpu", "gpus", "code", "n"]), values
)


@given(st.one_of(st.text(), values.map(yaml.safe_dump), keyed.map(json.dumps)))
def test_any_other_text_is_refused_in_one_way(text):
    """The plugin goes on whatever is written into the file."""
    try:
        plan = parse_faults(text, DGX1, VENDOR.simulated)
    except ImportFormatError:
        return
    assert isinstance(plan, FaultPlan)
