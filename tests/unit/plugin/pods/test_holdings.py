"""Tests of `plugin.pods.holdings`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.pods import (
    HeldDevices,
    HoldingsByPod,
    MismatchKind,
    PlanMismatch,
    device_report,
    mismatches,
)
from tests.unit.plugin.node_values import (
    APP,
    GPU,
    INIT,
    MIG,
    NODE,
    SIDECAR,
    app,
    holding,
    init,
    node_pod,
    sidecar,
)
from topology.annotations import (
    DevicesReport,
    MissingDevices,
    decode_devices,
    encode_devices,
)

PLANNED = node_pod("planned", app("main", 2), plan={"main": "ba"})
FREE = node_pod("free", app("main", 2), app("more", 1))
STAGES = node_pod(
    "stages",
    init("first", 2),
    sidecar("log", 1),
    app("main", 3),
    plan={"first": "ab", "log": "a", "main": "bcd"},
)


def on_node(*pods, holdings=(), resources=(GPU, MIG)) -> tuple[PlanMismatch, ...]:
    """What differs on the node."""
    return mismatches(pods, holdings, resources=resources, node=NODE)


def report(found: tuple[PlanMismatch, ...], **known) -> DevicesReport:
    """The report on it."""
    nothing: dict[str, Any] = {"lasting": (), "unhealthy": {}, "policy": None, "scope": None}
    return device_report(found, **{**nothing, **known})


def describe_requirement(found: tuple[PlanMismatch, ...]) -> list[tuple[str, str, str]]:
    """Pod, container and ids of the holds that are reported."""
    return [(one.name, one.container, "".join(one.ids)) for one in report(found).holds]


@pytest.mark.parametrize(
    ("pods", "holdings", "expected"),
    [
        pytest.param([PLANNED], [], [], id="waits"),
        pytest.param([PLANNED], [holding(PLANNED, "main", "a", "b")], [], id="as planned"),
        pytest.param(
            [PLANNED], [holding(PLANNED, "main", "a", "b", has_uid=False)], [], id="by name"
        ),
        pytest.param(
            [PLANNED],
            [holding(PLANNED, "main", "c", "a")],
            [("planned", "main", "ac")],
            id="other devices",
        ),
        pytest.param(
            [PLANNED], [holding(PLANNED, "main", "a")], [("planned", "main", "a")], id="fewer"
        ),
        pytest.param(
            [FREE],
            [holding(FREE, "more", "c"), holding(FREE, "main", "b", "a")],
            [("free", "main", "ab"), ("free", "more", "c")],
            id="no plan",
        ),
        pytest.param(
            [replace(FREE, uid="z"), PLANNED],
            [holding(PLANNED, "main", "x"), holding(FREE, "main", "y", has_uid=False)],
            [("free", "main", "y"), ("planned", "main", "x")],
            id="sorted by pod",
        ),
        pytest.param(
            [replace(FREE, phase="Succeeded")], [holding(FREE, "main", "a")], [], id="has ended"
        ),
        pytest.param(
            [replace(FREE, is_deleting=True)],
            [holding(FREE, "main", "a")],
            [("free", "main", "a")],
            id="is ending",
        ),
        pytest.param([], [holding(FREE, "main", "a")], [], id="a pod that is not listed"),
        pytest.param(
            [FREE], [holding(FREE, "main", "a", resource="x/nic")], [], id="a foreign resource"
        ),
        pytest.param(
            [STAGES],
            [
                holding(STAGES, "first", "a", "b"),
                holding(STAGES, "log", "a"),
                holding(STAGES, "main", *"bcd"),
            ],
            [],
            id="init containers as planned",
        ),
        pytest.param(
            [STAGES], [holding(STAGES, "first", "c", "d")], [], id="an init container inside"
        ),
        pytest.param(
            [STAGES],
            [holding(STAGES, "first", "a", "x")],
            [("stages", "first", "ax")],
            id="an init container outside",
        ),
        pytest.param(
            [STAGES],
            [holding(STAGES, "log", "b"), holding(STAGES, "main", *"acd")],
            [("stages", "log", "b"), ("stages", "main", "acd")],
            id="what lasts is reported though it lies inside",
        ),
        pytest.param(
            [PLANNED],
            [holding(PLANNED, "main", "m", resource=MIG)],
            [("planned", "main", "m")],
            id="planned of another resource",
        ),
        pytest.param(
            [replace(PLANNED, containers=(app("other", 2),))],
            [holding(PLANNED, "other", "a", "b")],
            [("planned", "other", "ab")],
            id="planned for another container",
        ),
        pytest.param(
            [node_pod("planned", app("main", 2), plan={"main": "ab"}, node="n2")],
            [holding(PLANNED, "main", "a", "b")],
            [("planned", "main", "ab")],
            id="planned for another node",
        ),
    ],
)
def test_only_what_plans_do_not_hold_is_reported(pods, holdings, expected):
    """Every write wakes every node watcher; what the plan says the extender knows."""
    assert describe_requirement(on_node(*pods, holdings=holdings)) == expected


def test_two_sources_of_one_holding_are_one():
    """PodResources and the checkpoint say the same, each in its own way."""
    both = [holding(FREE, "main", "a", "b"), holding(FREE, "main", "b", "a", has_uid=False)]
    assert describe_requirement(on_node(FREE, holdings=both)) == [("free", "main", "ab")]
    assert HoldingsByPod(both).of(FREE) == {("main", GPU): frozenset("ab")}
    assert HoldingsByPod(both).of(PLANNED) == {}


RUNNING: dict[str, Any] = {"phase": "Running", "is_started": True}


def test_what_people_should_hear_of():
    """Each kind of difference, as a sentence that says where, what and what to do."""
    broken = node_pod("broken", app("main", 1), plan={"main": "x"}, node="n2")
    bare = node_pod("bare", init("first", 1), app("main", 2), app("none"), **RUNNING)
    holdings = [
        holding(PLANNED, "main", "c", "a"),
        holding(FREE, "main", "d", "e"),
        holding(FREE, "more", "f"),
    ]
    found = on_node(PLANNED, FREE, broken, bare, holdings=holdings)
    assert [(one.kind, one.pod.name, one.container) for one in found] == [
        (MismatchKind.BAD_PLAN, "broken", ""),
        (MismatchKind.NO_PLAN, "free", "main"),
        (MismatchKind.NO_PLAN, "free", "more"),
        (MismatchKind.OTHER_DEVICES, "planned", "main"),
        (MismatchKind.NO_DEVICES, "bare", "main"),
    ]
    assert [str(one) for one in found[:-1]] == [
        "pod default/broken carries a plan that cannot be used: plan is for node n2, expected n1",
        "pod default/free container main has d, e without a plan",
        "pod default/free container more has f without a plan",
        "pod default/planned container main has a, c, planned were b, a",
    ]
    assert str(found[-1]).startswith(
        "pod default/bare container main runs without the nvidia.com/gpu it requests: it started "
    )


def test_a_pod_that_has_its_plan_is_not_reported():
    """Nor is one that waits."""
    assert on_node(PLANNED, holdings=[holding(PLANNED, "main", "a", "b")]) == ()
    assert on_node(PLANNED, FREE) == ()


@pytest.mark.parametrize(
    ("pod", "is_reported"),
    [
        (node_pod("p", app("main", 1), **RUNNING), True),
        (node_pod("p", sidecar("main", 1), **RUNNING), True),
        (node_pod("p", init("main", 1), **RUNNING), False),
        (node_pod("p", app("main", 1)), False),
        (node_pod("p", app("main", 1), is_started=True), False),
        (node_pod("p", app("main", 1), **RUNNING, is_deleting=True), False),
        (node_pod("p", app("main", 1), phase="Failed", is_started=True), False),
        (node_pod("p", app("main"), **RUNNING), False),
    ],
)
def test_a_pod_that_runs_without_its_devices_is_reported(pod, is_reported):
    """Seen on a real kubelet: bound where no plugin registered the resource, it starts without it.

    Not while it is being admitted, and not of plain init containers, which PodResources leaves out.
    """
    found = on_node(pod)
    assert [one.kind for one in found] == [MismatchKind.NO_DEVICES] * is_reported
    assert on_node(pod, resources=("other/gpu",)) == ()
    assert on_node(pod, holdings=[holding(pod, "main", "a")]) != found or not is_reported


def test_a_report_names_pods_that_run_without_devices():
    """By the names of which the extender makes its Event; other differences are holds."""
    bare = node_pod("bare", app("main", 2), sidecar("log", 1), **RUNNING)
    found = on_node(bare, FREE, holdings=[holding(FREE, "main", "d", "e")])
    made = report(found, lasting=found)
    assert made.missing == (
        MissingDevices("uid-bare", "default", "bare", "main", GPU),
        MissingDevices("uid-bare", "default", "bare", "log", GPU),
    )
    assert [one.name for one in made.holds] == ["free"]
    assert report(found).missing == ()


def test_pods_without_devices_cannot_fill_the_report():
    """They take no device, so their number has no end; a bad GPU must be reported all the same."""
    long = "n" * 253
    pods = [
        node_pod(f"{number:03d}{long}", *(app(f"c{i}", 1) for i in range(20)), **RUNNING)
        for number in range(110)
    ]
    found = on_node(*pods)
    made = report(found, lasting=found, unhealthy={"a": "XID 79"})
    assert len(made.missing) == 100
    assert {one.name[:3] for one in made.missing} == {"000", "001", "002", "003", "004"}
    text = encode_devices(made)
    assert len(text) < 64 * 1024
    assert [one.id for one in decode_devices(text).unhealthy] == ["a"]


@given(chance=st.randoms(use_true_random=False), n_pods=st.integers(0, 6))
def test_plans_and_report_together_give_each_pods_devices(chance, n_pods):
    """What lasts is known to the extender in full, and pods with their plans cost nothing."""
    pods, holdings, truth = [], [], {}
    for number in range(n_pods):
        roles = [chance.choice([INIT, SIDECAR]) for _ in range(chance.randint(0, 2))] + [APP, APP]
        make = {INIT: init, SIDECAR: sidecar, APP: app}
        containers = [make[role](f"c{i}", 2) for i, role in enumerate(roles)]
        plan = {one.name: chance.sample("abcdefgh", 2) for one in containers}
        is_planned = chance.random() < 0.7
        pod = node_pod(f"p{number}", *containers, plan=plan if is_planned else None)
        pods.append(pod)
        for one in containers:
            ids = plan[one.name] if chance.random() < 0.7 else chance.sample("abcdefgh", 2)
            holdings.append(holding(pod, one.name, *ids, has_uid=chance.random() < 0.5))
            if one.role is not INIT:
                truth[pod.uid, one.name] = (set(ids), set(plan[one.name]) if is_planned else None)
    made = report(on_node(*pods, holdings=holdings))
    assert decode_devices(encode_devices(made)) == made
    chance.shuffle(pods)
    chance.shuffle(holdings)
    assert report(on_node(*pods, holdings=holdings)) == made
    reported = {(one.uid, one.container): set(one.ids) for one in made.holds}
    for key, (ids, planned) in truth.items():
        assert reported.get(key, planned) == ids
        assert (key in reported) == (planned != ids)


def test_a_holding_is_a_value():
    """Equal facts are equal, whoever reported them."""
    assert HeldDevices("n", "p", "c", GPU, ("a",)) == HeldDevices("n", "p", "c", GPU, ("a",), None)
