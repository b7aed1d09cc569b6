"""Requests of filter and prioritize: the short way to read them, and the one field by field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.engine.request_reader import RequestReader
from extender.protocol import Verb
from extender.snapshot import RequestedNodes, locate
from extender.snapshot.node_index import make_node_index
from tests.unit.extender.engines import answer_of, bind, engine, names
from tests.unit.extender.pods import GPU, args, pod

if TYPE_CHECKING:
    from extender.snapshot import NodeIndex
    from tests.unit.extender.engines import SteppedEngine

POD = pod(2)


def node_index(*node_names: str) -> NodeIndex:
    """An index of such nodes."""
    return make_node_index(node_names, ["z"] * len(node_names))


def read(body: bytes, *node_names: str) -> list[int] | None:
    """Positions read on the short way; None where it is not taken."""
    request = RequestReader([GPU]).read(body, node_index(*node_names))
    return None if request is None else request.nodes.positions.tolist()


def test_what_go_writes_is_read_on_the_short_way():
    """In the order of the request."""
    assert read(args(POD, ["n2", "n1"]), "n1", "n2", "n3") == [1, 0]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(args(POD, []), id="no names"),
        pytest.param(args(POD, None), id="null"),
        pytest.param(args(POD, ["n1", "ghost"]), id="an unknown node"),
        pytest.param(args(POD, ["n1", 'n"1']), id="an escaped name"),
        pytest.param(args(POD, ["n1"]) + b"\n", id="something behind it"),
        pytest.param(json.dumps({"Pod": POD, "NodeNames": ["n1", "n2"]}).encode(), id="blanks"),
        pytest.param(b'{"NodeNames":["n1"],"Pod":{},"x":["n1"]}', id="names not last"),
        pytest.param(b'{"Pod":{"metadata":{},"spec":{},"NodeNames":["n1"]}', id="not closed"),
        pytest.param(b'{"Pod":{"metadata":{},"spec":7},"NodeNames":["n1"]}', id="not a pod"),
        pytest.param(args(pod(2, affinity="nvlnk"), ["n1"]), id="a user's mistake"),
        pytest.param(args(pod("2m"), ["n1"]), id="a broken count"),
    ],
)
def test_what_is_odd_is_left_to_the_long_way(body):
    """Which says what is wrong, or reads it all the same."""
    assert read(body, "n1", "n2") is None


def test_a_name_that_json_must_escape_is_not_found_by_its_bytes():
    """Such a node cannot be; it would be reported by the slow path."""
    one = node_index('a"b', "n1")
    assert one.locate_json([b'a"b']) is None
    assert one.locate_json([b'a\\"b']) is None
    assert locate(['a"b'], one).positions.tolist() == [0]


def test_names_come_back_in_order():
    """Unknown ones in their places."""
    one = node_index("n1", "n2")
    requested = locate(["x", "n2", "y", "z", "n1"], one)
    assert requested.unknown == [(0, "x"), (2, "y"), (3, "z")]
    assert (len(requested), requested.positions.tolist()) == (5, [1, 0])
    assert requested.names(one) == ["x", "n2", "y", "z", "n1"]


def test_a_pod_is_read_once_for_filter_and_prioritize():
    """The bytes before the names are the same; those of an edited pod are not."""
    reader, nodes = RequestReader([GPU]), node_index("n1", "n2")
    first = reader.read(args(POD, ["n1", "n2"]), nodes)
    second = reader.read(args(POD, ["n2"]), nodes)
    edited = reader.read(args(pod(3), ["n2"]), nodes)
    assert first is not None
    assert second is not None
    assert edited is not None
    assert second.request is first.request
    assert (first.request.size_gpus, edited.request.size_gpus) == (2, 3)


NAMES = names(engine())
REQUESTED = st.lists(st.sampled_from([*NAMES, "ghost", 'q"', "ä", "a\\", ""]), max_size=6)
PODS = st.builds(
    pod,
    st.sampled_from([0, 1, 2, 4, 9, "x", None]),
    affinity=st.sampled_from(["nvlink", "numa", "nvlnk", ""]),
)


@given(PODS, REQUESTED, st.sampled_from([Verb.FILTER, Verb.PRIORITIZE]))
def test_both_ways_answer_the_same(content, requested, verb):
    """Whatever is requested: white space alone decides which way is taken."""
    answers = [
        one.answer(verb, body, 0.0)
        for one, body in (
            (_engine(), args(content, requested)),
            (
                _engine(),
                json.dumps({"Pod": content, "Nodes": None, "NodeNames": requested}).encode(),
            ),
        )
    ]
    assert answers[0] == answers[1]


def _engine() -> SteppedEngine:
    return engine({"count": 2, "machine": "8x-l4"}, {"count": 1, "machine": "dgx-1-v100"})


def test_prioritize_scores_what_filter_named_as_things_are_then():
    """Nothing is kept of filter but how the pod was read."""
    one = engine({"count": 2, "machine": "8x-l4"})
    requested = names(one)
    named = answer_of(one, Verb.FILTER, args(POD, requested))["NodeNames"]
    assert sorted(named) == sorted(requested)
    bind(one, "other", named[0], 7)
    scores = {
        row["Host"]: row["Score"] for row in answer_of(one, Verb.PRIORITIZE, args(POD, named))
    }
    assert scores == {named[0]: 0, named[1]: 10}


def test_the_empty_question_has_no_names():
    """Nothing to insert, nothing to find."""
    one = node_index("n1")
    requested = RequestedNodes(one.locate([]))
    assert (len(requested), requested.names(one)) == (0, [])
