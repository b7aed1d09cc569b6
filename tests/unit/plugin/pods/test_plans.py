"""Tests of `plugin.pods.plans`."""

from __future__ import annotations

from plugin.pods import planned_ids
from plugin.pods.plans import plan_problem, pod_plan
from tests.unit.plugin.node_values import GPU, MIG, NODE, app, node_pod
from topology.model import names

PLANNED = node_pod("p", app("one", 2), app("two", 1), plan={"one": "ba", "two": "c"})


def test_a_plan_names_the_devices_of_each_container():
    """By container and resource, in the plan's own order."""
    assert planned_ids(PLANNED, "one", resource=GPU, node=NODE) == ("b", "a")
    assert planned_ids(PLANNED, "two", resource=GPU, node=NODE) == ("c",)
    assert planned_ids(PLANNED, "two", resource=MIG, node=NODE) == ()
    assert planned_ids(PLANNED, "three", resource=GPU, node=NODE) == ()
    assert plan_problem(PLANNED, NODE) is None


def test_a_plan_for_another_node_is_none():
    """Its devices are not here, whatever they are called."""
    assert pod_plan(PLANNED, "n2") is None
    assert planned_ids(PLANNED, "one", resource=GPU, node="n2") == ()
    assert plan_problem(PLANNED, "n2") == "plan is for node n1, expected n2"


def test_text_that_is_no_plan_is_reported():
    """Nothing is guessed of it, and people learn why it did not count."""
    pod = node_pod("p", app("one", 1), annotations={names.PLAN: "{"})
    assert pod_plan(pod, NODE) is None
    assert planned_ids(pod, "one", resource=GPU, node=NODE) == ()
    assert str(plan_problem(pod, NODE)).startswith("plan text")


def test_a_pod_without_a_plan_has_no_problem():
    """As most pods on a cluster where another scheduler binds."""
    pod = node_pod("p", app("one", 1))
    assert pod_plan(pod, NODE) is None
    assert plan_problem(pod, NODE) is None
