"""The plan's text: read back exactly, strict about anything that is no plan."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.edited_text import damaged, edited
from tests.examples import up_to
from topology.annotations import ContainerPlan, Plan, PlanGroup, decode_plan, encode_plan
from topology.errors import CodecError

if TYPE_CHECKING:
    from tests.messages import CheckMessage


GPU = "nvidia.com/gpu"
TWO = Plan(
    node="n1",
    containers=(ContainerPlan("init", GPU, ("b",)), ContainerPlan("main", GPU, ("a", "b"))),
    ids=("b", "a"),
    generation=7,
    score_gbytes_per_s=41.125,
    priority=-5,
)
TWO_TEXT = (
    '{"v":1,"node":"n1","containers":[{"name":"init","resource":"nvidia.com/gpu","ids":["b"]},'
    '{"name":"main","resource":"nvidia.com/gpu","ids":["a","b"]}],"generation":7,"score":41.125,'
    '"priority":-5}'
)

_words = st.text(st.characters(codec="utf-8"), max_size=12)
_ids = st.lists(_words, min_size=1, max_size=6, unique=True).map(tuple)
_containers = st.lists(
    st.builds(ContainerPlan, name=_words, resource=_words, ids=_ids),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.name,
)
_groups = st.none() | st.builds(
    PlanGroup,
    name=_words,
    domain=st.lists(_words, max_size=4).map(tuple),
    rank=st.none() | st.integers(0, 2**31),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan that can be read back: its ids in order of appearance, its score to 3 digits."""
    containers = tuple(draw(_containers))
    int64 = st.integers(-(2**63) + 1, 2**63 - 1)
    return Plan(
        node=draw(_words),
        containers=containers,
        ids=tuple(dict.fromkeys(one for container in containers for one in container.ids)),
        generation=draw(int64),
        score_gbytes_per_s=round(draw(st.floats(0, 1e6)), 3),
        priority=draw(int64),
        group=draw(_groups),
    )


@given(plan=plans())
def test_any_plan_reads_back_as_itself(plan: Plan) -> None:
    """A restarted extender and the node's plugin must see what was planned, not one fact less."""
    assert decode_plan(encode_plan(plan)) == plan


def test_plans_that_follow_each_other_have_their_own_texts() -> None:
    """The latest text is remembered, for its own plan alone."""
    other = replace(TWO, generation=8)
    assert [encode_plan(one) for one in (TWO, TWO, other, TWO)] == [
        TWO_TEXT,
        TWO_TEXT,
        TWO_TEXT.replace(":7,", ":8,"),
        TWO_TEXT,
    ]


def test_the_text_is_the_documented_one() -> None:
    """Two programs of different versions read it: a change of form must be seen in review."""
    assert encode_plan(TWO) == TWO_TEXT
    assert decode_plan(TWO_TEXT) == TWO


def test_unknown_fields_are_ignored_and_the_priority_may_be_absent() -> None:
    """Writers of a later release add fields, those of an earlier one knew no priority."""
    body = json.loads(TWO_TEXT) | {"colour": "g1"}
    body["containers"][0]["numa"] = 1
    del body["priority"]
    assert decode_plan(json.dumps(body)).priority == 0


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        pytest.param("v", None, "the text has no v", id="no version"),
        pytest.param("v", 2, "v is 2, expected major version 1", id="next major"),
        pytest.param("v", "1.0", "v is '1.0', expected an integer", id="version is text"),
        pytest.param("node", None, "the text has no node", id="no node"),
        pytest.param("containers", [], "at least one", id="no container"),
        pytest.param("containers.1.name", "init", "different names", id="container twice"),
        pytest.param("containers.0.name", 4, "containers[0].name is 4", id="name type"),
        pytest.param("containers.0.resource", None, "has no resource", id="no resource"),
        pytest.param("containers.0.ids", [], "containers[0].ids is []", id="no ids"),
        pytest.param("containers.1.ids.1", "a", "different device ids", id="id twice"),
        pytest.param("containers.1.ids.0", None, None, id="one id less is another plan"),
        pytest.param("generation", "7", "generation is '7'", id="generation type"),
        pytest.param("score", "fast", "score is 'fast'", id="score type"),
        pytest.param("priority", 1.5, "priority is 1.5", id="priority type"),
    ],
)
def test_a_wrong_member_is_refused_by_name(
    path: str, value: object, message: str | None, check_message: CheckMessage
) -> None:
    """Whoever wrote the annotation must learn which member is wrong and what it should be."""
    if message is None:
        assert decode_plan(edited(TWO_TEXT, path, value)) != TWO
        return
    with pytest.raises(CodecError) as caught:
        decode_plan(edited(TWO_TEXT, path, value))
    assert str(caught.value).startswith("plan text: ")
    check_message(caught.value)


@settings(max_examples=up_to(100))
@given(plan=plans(), data=st.data())
def test_only_codec_errors_come_out_of_damaged_text(plan: Plan, data: st.DataObject) -> None:
    """Whoever may write a pod can put anything there; the extender must stay up."""
    text = damaged(data, encode_plan(plan), '0123456789"{}[],:.-e\ud800')
    try:
        decoded = decode_plan(text)
    except CodecError:
        return
    assert isinstance(decoded, Plan)


@given(text=st.text())
def test_only_codec_errors_come_out_of_any_text(text: str) -> None:
    """Foreign exceptions stop at this door."""
    with pytest.raises(CodecError):
        decode_plan(text)
