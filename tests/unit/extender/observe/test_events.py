"""Which answers and effects have an Event, and which have none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.observe import notes_of_answer, notes_of_effect
from extender.observe.events import EventReason, Note
from extender.protocol import Answer, Outcome, Reason, Verb
from extender.state import Mismatch, Missing, NodeProblem, PlanConflict, Probe
from kube.client.server import MAX_EVENT_MESSAGE
from kube.objects import ObjectKey
from tests.unit.extender.feeds import live, node, topology_text, wide
from tests.unit.extender.pods import GPU
from topology.annotations import ContainerPlan, MissingDevices, Plan, decode_plan, encode_plan

POD = ObjectKey("ns", "p", "u1")
ANSWER = Answer(Verb.FILTER, Outcome.OK, b"", 1, pod="ns/p", pod_uid="u1", node="n1")
BIND = replace(ANSWER, verb=Verb.BIND)
MAIN = ContainerPlan("main", "nvidia.com/gpu", ("GPU-0", "GPU-1"))
BARE = MissingDevices("u1", "ns", "p", "main", "nvidia.com/gpu")
PLAN = encode_plan(Plan("n1", (MAIN,), MAIN.ids, 7, 99.44))
ALONE = encode_plan(Plan("n1", (ContainerPlan("main", "nvidia.com/gpu", ("GPU-0",)),), (), 7, 0.0))


@pytest.mark.parametrize(
    ("answer", "plan", "expected_note"),
    [
        pytest.param(ANSWER, None, None, id="a pod that fits"),
        pytest.param(
            replace(ANSWER, outcome=Outcome.REFUSED, reason=Reason.NOT_ENOUGH_FREE, detail="x"),
            None,
            None,
            id="a refusal, which FailedScheduling reports",
        ),
        pytest.param(
            replace(ANSWER, outcome=Outcome.REFUSED, reason=Reason.INVALID_REQUEST, detail="why"),
            None,
            (EventReason.INVALID_REQUEST, "why"),
            id="a mistake of the user",
        ),
        pytest.param(
            replace(ANSWER, warnings=("group is not supported",)),
            None,
            (EventReason.UNSUPPORTED, "group is not supported"),
            id="a wish that is ignored",
        ),
        pytest.param(
            replace(ANSWER, verb=Verb.PRIORITIZE, warnings=("group is not supported",)),
            None,
            None,
            id="the same wish at the next verb",
        ),
        pytest.param(
            replace(BIND, outcome=Outcome.FAILED, reason=Reason.WRITE_REFUSED, detail="forbidden"),
            None,
            (EventReason.BIND_REFUSED, "forbidden"),
            id="a binding that the API server refuses",
        ),
        pytest.param(
            replace(BIND, outcome=Outcome.FAILED, reason=Reason.POD_GATED, detail="x"),
            None,
            None,
            id="a bind that came too late",
        ),
        pytest.param(
            BIND,
            PLAN,
            (
                EventReason.PLACED,
                "on node n1: GPU-0, GPU-1 for container main, 99.4 GB/s all-reduce predicted",
            ),
            id="a placement",
        ),
        pytest.param(
            BIND,
            ALONE,
            (EventReason.PLACED, "on node n1: GPU-0 for container main"),
            id="a placement of one GPU, which has no bandwidth",
        ),
        pytest.param(BIND, None, None, id="a pod bound by count"),
        pytest.param(
            replace(ANSWER, pod="", pod_uid="", reason=Reason.INVALID_REQUEST, detail="x"),
            None,
            None,
            id="no pod to report on",
        ),
    ],
)
def test_answers_have_events_where_the_scheduler_writes_none(answer, plan, expected_note):
    """One sentence, on the pod."""
    expected = [] if expected_note is None else [Note(POD, *expected_note)]
    answer = replace(answer, plan=None if plan is None else decode_plan(plan))
    assert list(notes_of_answer(answer, of_plans=True)) == expected


def test_placements_have_events_only_where_they_are_wanted():
    """Setting `events`: by default kube-scheduler's own Event is enough."""
    assert not list(notes_of_answer(replace(BIND, plan=decode_plan(PLAN))))


@pytest.mark.parametrize(
    ("effect", "note"),
    [
        pytest.param(
            Mismatch("ns", "p", "u1", "n1", (MAIN,), (replace(MAIN, ids=("GPU-2",)),), "{}"),
            Note(
                POD,
                EventReason.ALLOCATED_OTHERWISE,
                "node n1 gave GPU-2 for container main, planned was GPU-0, GPU-1 for container "
                "main",
            ),
            id="other devices than planned",
        ),
        pytest.param(
            Mismatch("ns", "p", "u1", "n1", (MAIN,), (), "{}"),
            Note(
                POD,
                EventReason.ALLOCATED_OTHERWISE,
                "node n1 gave no GPU, planned was GPU-0, GPU-1 for container main",
            ),
            id="no devices",
        ),
        pytest.param(
            PlanConflict("ns", "p", "u1", "n1", ("GPU-0", "GPU-1"), ("u2", "u3")),
            Note(
                POD,
                EventReason.PLAN_CONFLICT,
                "the plan names GPU-0, GPU-1 of node n1, which other pods have (u2, u3)",
            ),
            id="plans that overlap",
        ),
        pytest.param(
            Missing("ns", "p", "u1", "n1", (BARE, replace(BARE, container="log"))),
            Note(
                POD,
                EventReason.MISSING,
                "the pod runs without GPUs that it requests: node n1 started it before its kubelet "
                "knew of them; delete the pod, and its controller makes a new one (nvidia.com/gpu "
                "for container main; nvidia.com/gpu for container log)",
            ),
            id="no devices, which no plan shows",
        ),
        pytest.param(
            NodeProblem("n1", "topology cannot be read"),
            Note(ObjectKey("", "n1", "n1"), EventReason.NODE_PROBLEM, "topology cannot be read"),
            id="a node",
        ),
        pytest.param(Probe("ns", "p", "u1"), None, id="a probe is no news"),
    ],
)
def test_effects_have_events(effect, note):
    """On whom they concern."""
    assert list(notes_of_effect(effect)) == ([] if note is None else [note])


def test_a_topology_beyond_the_capacity_is_told_on_the_node():
    """The whole sentence, what to do included, is read under the longest name of a node."""
    name = "n" * 253
    text = topology_text("n1", machine=wide(256))
    facts = node("n1", topology=text, allocatable={GPU: 7}, capacity={GPU: 8})
    cluster = live(replace(facts, name=name))
    (effect,) = cluster.take_effects()
    (note,) = notes_of_effect(effect)
    assert (note.about, note.reason) == (ObjectKey("", name, name), EventReason.NODE_PROBLEM)
    for part in ("256 devices", f"the capacity of node {name} is 8 of {GPU}", "restart the node"):
        assert part in note.message
    assert len(note.message) <= MAX_EVENT_MESSAGE


def test_what_to_do_is_read_however_many_containers_there_are():
    """The API server takes no more than 1024 characters, and the end is cut."""
    many = tuple(replace(BARE, container=f"{i:063d}") for i in range(100))
    (note,) = notes_of_effect(Missing("ns", "p", "u1", "n" * 253, many))
    assert len(note.message) > MAX_EVENT_MESSAGE
    assert "delete the pod, and its controller makes" in note.message[:MAX_EVENT_MESSAGE]


def test_only_placements_need_nothing():
    """Everything else needs an operator."""
    normal = [EventReason.PLACED, EventReason.GROUP_PLACED]
    assert [one for one in EventReason if not one.is_warning] == normal


def test_only_what_each_pod_has_is_frequent():
    """A group has one Event, however many pods."""
    assert [one for one in EventReason if one.is_frequent] == [EventReason.PLACED]
