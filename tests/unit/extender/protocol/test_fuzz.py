"""Any bytes, and any JSON of about the right form: always an answer, and state unharmed."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from extender.protocol import Outcome, Verb
from tests.unit.extender.engines import engine, names
from tests.unit.extender.pods import GPU, args, binding, pod

VERBS = st.sampled_from(list(Verb))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
POD_PATHS = st.sampled_from(
    [
        (),
        ("metadata",),
        ("metadata", "uid"),
        ("metadata", "annotations"),
        ("metadata", "annotations", "coterie.gpu/affinity"),
        ("metadata", "annotations", "coterie.gpu/min-bandwidth"),
        ("spec",),
        ("spec", "containers"),
        ("spec", "initContainers"),
        ("spec", "affinity"),
        ("spec", "topologySpreadConstraints"),
        ("status",),
        ("status", "nominatedNodeName"),
    ]
)
ENGINE = engine()
NODES = names(ENGINE)
BEFORE = ENGINE.cluster.as_json()


def replaced(content, path, value):
    """A copy of JSON with one place replaced."""
    if not path:
        return value
    head, *rest = path
    return content | {head: replaced(content.get(head, {}), rest, value)}


def check(verb: Verb, body: bytes) -> None:
    """There is an answer, it is JSON, and nothing but a good bind changed anything."""
    answer = ENGINE.answer(verb, body, 0.0)
    json.loads(answer.body)
    assert answer.outcome in Outcome
    assert ENGINE.cluster.as_json() == BEFORE


@given(VERBS, st.binary(max_size=200))
def test_any_bytes(verb, body):
    """Broken JSON, broken text."""
    check(verb, body)


@given(VERBS, JSON)
def test_any_json(verb, content):
    """Right syntax, wrong types."""
    check(verb, json.dumps(content).encode())


@given(st.sampled_from([Verb.FILTER, Verb.PRIORITIZE, Verb.EXPLAIN]), POD_PATHS, JSON)
def test_a_pod_with_one_place_replaced(verb, path, value):
    """Almost right, which is where a fault hides."""
    check(verb, args(replaced(pod(4, affinity="nvlink"), path, value), NODES))


@given(st.sampled_from([Verb.FILTER, Verb.PRIORITIZE]), JSON | st.text("0123456789.-+eEmkKMGi"))
def test_any_quantity(verb, quantity):
    """Counts come from people."""
    content = pod()
    content["spec"]["containers"][0]["resources"] = {"limits": {GPU: quantity}}
    check(verb, args(content, NODES))


@given(st.text(max_size=5), st.text(max_size=5))
def test_any_binding_of_a_pod_that_was_never_filtered(uid, node):
    """Bind trusts no caller."""
    check(Verb.BIND, binding(f"never-{uid}", node))
