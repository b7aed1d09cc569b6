"""Groups on the embedded cluster: the last member's filter plans, and no bind is held."""

from __future__ import annotations

import json
from typing import Any

from extender.protocol import Outcome, Reason, Verb
from tests.unit.extender.engines import engine, names
from tests.unit.extender.pods import args, binding, pod
from topology.annotations import decode_plan

FOUR = {"count": 4, "machine": "dgx-1-v100"}


def member(uid: str, size: int | None, n_gpus: int = 8, **more: Any):
    """A pod of a group."""
    sized = {} if size is None else {"group_size": str(size)}
    return pod(n_gpus, uid=uid, group="g", **sized, **more)


def filter_(one, uid: str, size: int | None = 2, now_s: float = 0.0, n_gpus: int = 8):
    """An answer to filter."""
    return one.answer(Verb.FILTER, args(member(uid, size, n_gpus), names(one)), now_s)


def node_of(one, uid: str, size: int | None = 2, now_s: float = 0.0) -> str:
    """The node that filter names."""
    (name,) = json.loads(filter_(one, uid, size, now_s).body)["NodeNames"]
    return str(name)


def plan_of(one, uid: str):
    """A bound pod's plan."""
    return decode_plan(one.cluster.bound(uid).plan_text)


def test_the_last_member_is_placed_at_once_and_the_others_when_they_are_filtered_again():
    """There is no watch: a member is there once filter was called for it."""
    one = engine(FOUR)
    assert filter_(one, "a").reason is Reason.GROUP_WAITING
    last = node_of(one, "b")
    first = node_of(one, "a")
    assert first != last
    for uid, on in (("a", first), ("b", last)):
        assert one.answer(Verb.BIND, binding(uid, on), 0.0).outcome is Outcome.OK
        group = plan_of(one, uid).group
        assert group is not None
        assert group.name == "g"
    assert one.groups.readings.counts(("default", "g")) == (0, 2, 0)
    assert one.groups.n_groups == 0


def test_labels_of_the_description_are_network_domains():
    """The other leaf's nodes come first by name; only this leaf has room for both members."""
    leaf = "network.topology.nvidia.com/leaf"
    one = engine(
        {"machine": "dgx-1-v100", "count": 1, "name": "a", "labels": {leaf: "S1"}},
        {"machine": "dgx-1-v100", "count": 2, "name": "b", "labels": {leaf: "S2"}},
    )
    filter_(one, "x")
    assert {node_of(one, "y"), node_of(one, "x")} == {"b-0", "b-1"}
    one.answer(Verb.BIND, binding("x", node_of(one, "x")), 0.0)
    group = plan_of(one, "x").group
    assert group is not None
    assert group.domain == ("leaf", "S2")


def test_a_member_without_a_claim_is_not_bound():
    """Its group does not start."""
    one = engine(FOUR)
    filter_(one, "a")
    answer = one.answer(Verb.BIND, binding("a", names(one)[0]), 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.GROUP_NOT_PLANNED)


def test_claims_end_with_their_time():
    """Time is that of the calls."""
    one = engine({"count": 2, "machine": "dgx-1-v100"})
    filter_(one, "a")
    node_of(one, "b")
    other = args(pod(8, uid="solo"), names(one))
    assert one.answer(Verb.FILTER, other, 1.0).outcome is Outcome.REFUSED
    filter_(one, "c", size=2, now_s=61.0)
    assert one.answer(Verb.FILTER, other, 61.0).outcome is Outcome.OK  # others may have them
    filter_(one, "b", size=2, now_s=66.0)
    assert one.answer(Verb.FILTER, other, 66.0).outcome is Outcome.REFUSED


def test_a_pod_that_ends_is_no_member_any_more():
    """A replacement takes its place."""
    one = engine(FOUR)
    filter_(one, "a")
    on = node_of(one, "b")
    assert one.answer(Verb.BIND, binding("a", node_of(one, "a")), 0.0).outcome is Outcome.OK
    assert one.answer(Verb.BIND, binding("b", on), 0.0).outcome is Outcome.OK
    assert one.answer(Verb.END, b"b", 0.0).outcome is Outcome.OK
    assert node_of(one, "b2") == on


def test_a_group_without_a_size_goes_near_its_members():
    """On the same node while there is room."""
    one = engine(FOUR)
    (first, *_) = json.loads(filter_(one, "a", None, n_gpus=4).body)["NodeNames"]
    assert one.answer(Verb.BIND, binding("a", first), 0.0).outcome is Outcome.OK
    assert json.loads(filter_(one, "b", None, n_gpus=4).body)["NodeNames"] == [first]


def test_a_member_is_written_with_its_group():
    """So that it can be explained by its name."""
    one = engine(FOUR)
    wishes: dict[str, Any] = {"group_domain": "leaf", "group_policy": "required"}
    body = args(member("a", 2, **wishes), names(one))
    one.answer(Verb.FILTER, body, 0.0)
    written = json.loads(one.read_pod("default", "pod-a") or b"")
    assert written["metadata"]["annotations"] == {
        "coterie.gpu/group": "g",
        "coterie.gpu/group-size": "2",
        "coterie.gpu/group-domain": "leaf",
        "coterie.gpu/group-policy": "required",
    }
