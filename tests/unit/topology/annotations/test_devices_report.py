"""The text of a node's device report: read back exactly, strict about anything else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.edited_text import damaged
from tests.examples import up_to
from topology.annotations import (
    DeviceHold,
    DevicesReport,
    LastingFault,
    MissingDevices,
    TopologyManagerPolicy,
    TopologyManagerScope,
    UnhealthyDevice,
    decode_devices,
    encode_devices,
)
from topology.errors import CodecError, InvalidTopology

if TYPE_CHECKING:
    from tests.messages import CheckMessage


GPU = "nvidia.com/gpu"
HOLD = DeviceHold("u1", "default", "train", "main", GPU, ("GPU-b", "GPU-c"))
REPORT = DevicesReport(
    generation=12,
    unhealthy=(UnhealthyDevice("GPU-a", "XID 79"),),
    holds=(HOLD,),
    policy=TopologyManagerPolicy.SINGLE_NUMA_NODE,
    scope=TopologyManagerScope.POD,
)
REPORT_TEXT = (
    '{"v":"1.0","generation":12,"unhealthy":[{"id":"GPU-a","reason":"XID 79"}],"holds":[{"uid":"u1"'
    ',"namespace":"default","name":"train","container":"main","resource":"nvidia.com/gpu","ids":'
    '["GPU-b","GPU-c"]}],"policy":"single-numa-node","scope":"pod"}'
)

MISSING = MissingDevices("u2", "default", "early", "main", GPU)
MISSING_TEXT = (
    '{"v":"1.0","generation":3,"missing":[{"uid":"u2","namespace":"default","name":"early",'
    '"container":"main","resource":"nvidia.com/gpu"}],"policy":"none"}'
)

LASTING = DevicesReport(
    4,
    faults=(LastingFault("GPU-a", "XID", 79), LastingFault("GPU-b", "XID", 48, (7, 0))),
    boot="9f3c",
    polled_only=("GPU-c",),
)
LASTING_TEXT = (
    '{"v":"1.0","generation":4,"faults":[{"gpu":"GPU-a","kind":"XID","number":79},'
    '{"gpu":"GPU-b","kind":"XID","number":48,"partition":[7,0]}],"boot":"9f3c",'
    '"polled_only":["GPU-c"]}'
)

_words = st.text(st.characters(codec="utf-8"), max_size=12)
_ids = st.lists(_words, min_size=1, max_size=5, unique=True).map(tuple)
reports = st.builds(
    DevicesReport,
    generation=st.integers(0, 2**63 - 1),
    unhealthy=st.lists(
        st.builds(UnhealthyDevice, id=_words, reason=_words), max_size=4, unique_by=lambda x: x.id
    ).map(tuple),
    holds=st.lists(
        st.builds(DeviceHold, _words, _words, _words, _words, _words, _ids),
        max_size=4,
        unique_by=lambda x: (x.uid, x.container, x.resource),
    ).map(tuple),
    policy=st.none() | st.sampled_from(TopologyManagerPolicy),
    scope=st.none() | st.sampled_from(TopologyManagerScope),
    missing=st.lists(
        st.builds(MissingDevices, _words, _words, _words, _words, _words),
        max_size=4,
        unique_by=lambda x: (x.uid, x.container, x.resource),
    ).map(tuple),
    faults=st.lists(
        st.builds(
            LastingFault,
            _words,
            _words,
            st.integers(0, 2**32),
            st.lists(st.integers(0, 2**32), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    boot=st.none() | _words,
    polled_only=st.lists(_words, max_size=3).map(tuple),
)


@given(report=reports)
def test_any_report_reads_back_as_itself(report: DevicesReport) -> None:
    """The plugin writes, the extender reads: not one fact may change on the way."""
    assert decode_devices(encode_devices(report)) == report


def test_the_text_is_the_documented_one() -> None:
    """Other programs read this text: a change of form must be seen in review."""
    assert encode_devices(REPORT) == REPORT_TEXT
    assert decode_devices(REPORT_TEXT) == REPORT


def test_containers_that_run_without_devices_have_a_text_of_their_own() -> None:
    """Of a later minor version, which says so; on any other node the text is what it always was."""
    report = DevicesReport(3, policy=TopologyManagerPolicy.NONE, missing=(MISSING,))
    assert encode_devices(report) == MISSING_TEXT
    assert decode_devices(MISSING_TEXT) == report
    assert encode_devices(replace(report, missing=())) == (
        '{"v":"1.0","generation":3,"policy":"none"}'
    )


def test_faults_that_outlive_the_plugin_have_a_text_of_their_own() -> None:
    """Beside what is bad now."""
    assert encode_devices(LASTING) == LASTING_TEXT
    assert decode_devices(LASTING_TEXT) == LASTING


@given(report=reports)
def test_a_reader_that_does_not_know_them_reads_the_rest(report: DevicesReport) -> None:
    """It ignores the keys, as any that it does not know, and takes any minor version."""
    body = json.loads(encode_devices(report))
    for key in ("missing", "faults", "boot", "polled_only"):
        body.pop(key, None)
    assert decode_devices(json.dumps(body)) == replace(
        report, missing=(), faults=(), boot=None, polled_only=()
    )


def test_later_minor_versions_and_their_new_keys_are_read() -> None:
    """During a rollout old readers meet new writers."""
    body = json.loads(REPORT_TEXT) | {"v": "1.3", "temperature": 40}
    body["unhealthy"][0]["since"] = "2026-01-31"
    body["holds"][0]["numa"] = 1
    assert decode_devices(json.dumps(body)) == REPORT


def test_the_least_text_reports_nothing() -> None:
    """A healthy node whose pods all got what was planned has nothing to say."""
    assert decode_devices('{"v":"1.0","generation":0}') == DevicesReport()


def test_containers_of_one_pod_may_hold_the_same_device() -> None:
    """An init container hands its devices on to the containers after it."""
    init = DeviceHold("u1", "default", "train", "init", GPU, ("GPU-b",))
    assert decode_devices(encode_devices(DevicesReport(1, holds=(init, HOLD)))).holds == (
        init,
        HOLD,
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"v": 1}, id="version is a number"),
        pytest.param({"v": "2.0"}, id="next major"),
        pytest.param({"generation": "1"}, id="generation type"),
        pytest.param({"unhealthy": {}}, id="object"),
        pytest.param({"unhealthy": [{"id": "a"}]}, id="no reason"),
        pytest.param({"unhealthy": [{"id": "a", "reason": ""}] * 2}, id="device twice"),
        pytest.param({"holds": [7]}, id="hold type"),
        pytest.param({"missing": "all"}, id="missing type"),
        pytest.param({"missing": [{}]}, id="missing uid"),
        pytest.param({"faults": [{}]}, id="fault's GPU"),
        pytest.param(
            {"faults": [{"gpu": "a", "kind": "XID", "number": "79"}]}, id="fault's number"
        ),
        pytest.param({"boot": 7}, id="boot"),
        pytest.param({"polled_only": [7]}, id="polled"),
        pytest.param({"policy": "lax"}, id="policy"),
        pytest.param({"scope": 1}, id="scope"),
    ],
)
def test_a_wrong_member_is_refused_by_name(
    change: dict[str, object], check_message: CheckMessage
) -> None:
    """Whoever wrote the annotation must learn which member is wrong and what it should be."""
    with pytest.raises(CodecError) as caught:
        decode_devices(json.dumps(json.loads(REPORT_TEXT) | change))
    assert str(caught.value).startswith("devices text: ")
    check_message(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"ids": []}, id="no ids"),
        pytest.param({"ids": ["a", "a"]}, id="id twice"),
        pytest.param({"ids": [1]}, id="id type"),
        pytest.param({"uid": None}, id="no uid"),
    ],
)
def test_a_wrong_hold_is_refused_by_name(
    change: dict[str, object], check_message: CheckMessage
) -> None:
    """A hold takes devices from plans: none may be half right."""
    body = json.loads(REPORT_TEXT)
    body["holds"][0] |= change
    with pytest.raises(CodecError) as caught:
        decode_devices(json.dumps(body))
    check_message(caught.value)


def test_one_container_holds_one_set_of_a_resource(check_message: CheckMessage) -> None:
    """Two answers to one question are no answer."""
    with pytest.raises(InvalidTopology) as caught:
        DevicesReport(holds=(HOLD, HOLD))
    check_message(caught.value)


@pytest.mark.parametrize("key", ["uid", "namespace", "name", "container", "resource"])
def test_a_container_without_devices_is_named_in_full(key: str) -> None:
    """These words are shown to the user."""
    body = json.loads(MISSING_TEXT)
    body["missing"][0][key] = 7
    with pytest.raises(CodecError, match=rf"missing\[0\]\.{key} is 7, expected a string"):
        decode_devices(json.dumps(body))


def test_a_container_runs_without_a_resource_once(check_message: CheckMessage) -> None:
    """Of two resources it may lack both."""
    other = replace(MISSING, resource="nvidia.com/mig-1g.5gb")
    assert DevicesReport(missing=(MISSING, other)).missing == (MISSING, other)
    with pytest.raises(InvalidTopology) as caught:
        DevicesReport(missing=(MISSING, MISSING))
    check_message(caught.value)


def test_a_report_that_no_annotation_can_hold_is_refused_when_written(
    check_message: CheckMessage,
) -> None:
    """The API server would refuse it later, with a message that names no cause."""
    with pytest.raises(CodecError) as caught:
        encode_devices(DevicesReport(unhealthy=(UnhealthyDevice("a", "x" * 300_000),)))
    check_message(caught.value)


@settings(max_examples=up_to(100))
@given(report=reports, data=st.data())
def test_only_codec_errors_come_out_of_damaged_text(
    report: DevicesReport, data: st.DataObject
) -> None:
    """Whoever may write a node can put anything there; the extender must stay up."""
    text = damaged(data, encode_devices(report), '0123456789"{}[],:.-e')
    try:
        decoded = decode_devices(text)
    except CodecError:
        return
    assert isinstance(decoded, DevicesReport)


@given(text=st.text())
def test_only_codec_errors_come_out_of_any_text(text: str) -> None:
    """Foreign exceptions stop at this door."""
    with pytest.raises(CodecError):
        decode_devices(text)
