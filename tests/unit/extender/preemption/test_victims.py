"""Who has to leave a node: cases by hand, and every small node against brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.preemption import NodeReading
from extender.preemption.node_pods import PodOnNode
from extender.preemption.victims import MAX_EXACT, Case, Eviction, choose_victims, cost_of
from kube.objects import DisruptionBudget
from kube.objects.policies import Operator, Requirement
from topology.annotations import parse_policy, pod_keys
from topology.recordings import load_recording
from topology.select import ContainerRequest, PodFit, build_machine, fit_pod

NVLINK = parse_policy({pod_keys.AFFINITY: "nvlink", pod_keys.POLICY: "required"})
V100 = build_machine(load_recording("dgx-1-v100"))
WANT = PodOnNode("want", "ns", "want", priority=1000, requests={"pods": 1})
ROOMY = {"cpu": 100_000, "pods": 110}


def connected(size: int) -> Any:
    """How good the best set of this size that NVLink connects is."""
    requests = (ContainerRequest("main", size),)

    def quality(free: int) -> tuple[float] | None:
        fit = fit_pod(V100, available=free, requests=requests, policy=NVLINK)
        return (fit.worst.loss,) if isinstance(fit, PodFit) else None

    return quality


def counted(size: int) -> Any:
    """Any GPUs will do."""
    return lambda free: () if free.bit_count() >= size else None


def pod(uid: str, priority: int = 0, **more: Any) -> PodOnNode:
    """A pod that takes nothing but its place."""
    fields: dict[str, Any] = {"labels": {"app": uid[0]}, "requests": {"pods": 1}} | more
    return PodOnNode(uid, "ns", f"pod-{uid}", priority=priority, **fields)


def budget(app: str, n_allowed: int, *, leaving: tuple[str, ...] = ()) -> DisruptionBudget:
    """A budget over the pods whose uid begins with a letter."""
    covers = (Requirement("app", Operator.IN, frozenset({app})),)
    return DisruptionBudget("ns", app, covers, n_allowed, frozenset(leaving))


def case(*pods: PodOnNode, held: dict[str, int], **more: Any) -> Case:
    """A node with these pods, full but for what `free` says; a connected pair is wanted."""
    fields: dict[str, Any] = {
        "pod": WANT,
        "reading": NodeReading("n1", ROOMY, pods),
        "given": (),
        "free": 0,
        "budgets": (),
        "quality": connected(2),
    }
    return Case(held=held, **fields | more)


FULL = tuple(pod(f"{letter}1") for letter in "abcdefgh")
ONE_EACH = {one.uid: 1 << i for i, one in enumerate(FULL)}
"""Eight pods of one GPU each; on a DGX-1 GPU 0 has no NVLink to 5, 6, 7."""


def with_priorities(*priorities: int) -> tuple[PodOnNode, ...]:
    """The eight pods, the first ones with these priorities, the rest with 500."""
    padded = (*priorities, *[500] * (len(FULL) - len(priorities)))
    return tuple(replace(one, priority=p) for one, p in zip(FULL, padded, strict=True))


CASES = [
    pytest.param(
        case(*with_priorities(0, 500, 500, 500, 500, 1, 2, 500), held=ONE_EACH, given=("a1", "f1")),
        Eviction(("g1", "f1"), 0),
        id="the two cheapest are not connected, the next pair is",
    ),
    pytest.param(
        case(*with_priorities(0, *[1000] * 7), held=ONE_EACH),
        None,
        id="equal priority is never evicted",
    ),
    pytest.param(
        case(*with_priorities(0, *[2000] * 7), held=ONE_EACH),
        None,
        id="higher priority is never evicted",
    ),
    pytest.param(
        case(*(replace(one, started_s=float(i)) for i, one in enumerate(FULL)), held=ONE_EACH),
        Eviction(("g1", "h1"), 0),
        id="the youngest leave, by the older of the two",
    ),
    pytest.param(
        case(*FULL, held=ONE_EACH, budgets=[budget(one, 0) for one in "abcdeg"]),
        Eviction(("f1", "h1"), 0),
        id="no budget is violated where there is another pair",
    ),
    pytest.param(
        case(*with_priorities(7, 7, 8, 8), held=ONE_EACH, budgets=[budget(x, 0) for x in "bdefgh"]),
        Eviction(("c1", "a1"), 0),
        id="budgets count before priorities",
    ),
    pytest.param(
        case(
            *(pod(f"a{i}") for i in range(8)),
            held={f"a{i}": 1 << i for i in range(8)},
            budgets=[budget("a", 1)],
        ),
        Eviction(("a0", "a3"), 1),
        id="a budget lets one go and is violated by the second",
    ),
    pytest.param(
        case(
            *(pod(f"a{i}") for i in range(8)),
            held={f"a{i}": 1 << i for i in range(8)},
            budgets=[budget("a", 0, leaving=("pod-a6", "pod-a7"))],
        ),
        Eviction(("a6", "a7"), 0),
        id="whom the API server evicts already costs no budget",
    ),
    pytest.param(
        case(pod("x1", 1), pod("y1"), pod("y2"), held={"x1": 0b11, "y1": 0b100, "y2": 0b1000}),
        Eviction(("y1", "y2"), 0),
        id="two of lower priority before one of higher",
    ),
    pytest.param(
        case(pod("x1", -9), pod("y1", -9), held={"x1": 0b11, "y1": 0b1100}, free=0b1000),
        Eviction(("x1",), 0),
        id="of negative priorities too, few are better than many",
    ),
    pytest.param(
        case(*FULL, held=ONE_EACH, quality=connected(8)),
        Eviction(tuple(one.uid for one in FULL), 0),
        id="all pods have to go",
    ),
    pytest.param(
        case(*FULL[:-1], held={k: v for k, v in ONE_EACH.items() if k != "h1"}, quality=counted(8)),
        None,
        id="even all pods would not be enough",
    ),
    pytest.param(
        case(pod("x1"), pod("plain", 5), held={"x1": 0b11}, given=("plain", "x1")),
        Eviction(("plain", "x1"), 0),
        id="a given victim without a GPU stays one, in its place",
    ),
    pytest.param(
        case(pod("x1"), pod("plain", 5), held={"x1": 0b11}),
        Eviction(("x1",), 0),
        id="no pod without a GPU is evicted that was not given",
    ),
    pytest.param(
        case(pod("x1"), held={"x1": 0b11}, given=("unseen", "x1")),
        Eviction(("x1", "unseen"), 0),
        id="a given victim that we cannot see stays one, last",
    ),
    pytest.param(
        case(
            pod("x1", ports=frozenset({("TCP", 80)})),
            pod("y1"),
            held={"x1": 0b1, "y1": 0b1100000},
            given=("x1",),
            pod=replace(WANT, ports=frozenset({("TCP", 80)})),
        ),
        Eviction(("x1", "y1"), 0),
        id="a given victim that holds the pod's port stays one",
    ),
    pytest.param(
        case(pod("x1", 1000), pod("y1"), held={"x1": 0b1, "y1": 0b11}, given=("x1",)),
        None,
        id="a given victim of equal priority is a mistake of the caller",
    ),
    pytest.param(
        case(pod("x1"), pod("y1", phase="Succeeded"), held={"x1": 0b11, "y1": 0b1}, given=("y1",)),
        Eviction(("x1",), 0),
        id="a pod that has ended is no victim",
    ),
    pytest.param(
        case(pod("x1", is_deleting=True), pod("y1"), held={"x1": 0b1, "y1": 0b10}, given=("x1",)),
        Eviction(("y1",), 0),
        id="a pod that is leaving counts as gone",
    ),
    pytest.param(
        case(pod("x1", is_deleting=True), pod("y1"), held={"x1": 0b11, "y1": 0b100}),
        Eviction(("x1",), 0, is_in_progress=True),
        id="where those who leave are enough, they are the victims",
    ),
    pytest.param(
        case(pod("x1", 1000, is_deleting=True), pod("y1"), held={"x1": 0b11, "y1": 0b100}),
        Eviction((), 0, is_in_progress=True),
        id="one of equal priority that leaves is not named",
    ),
    pytest.param(
        case(pod("y1"), held={"y1": 0b100}, free=0b11),
        Eviction((), 0),
        id="no pod has to go",
    ),
]


@pytest.mark.parametrize(("node", "expected"), CASES)
def test_the_cheapest_victims_are_chosen(node, expected):
    """Each row is a rule of the module's opening."""
    assert choose_victims(node) == expected


def room(cpu: int) -> Any:
    """A node with some millicores and two of three places taken by what is on it."""
    return {"cpu": cpu, "pods": 110}


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        pytest.param(room(16_000), ("big",), id="both fit: the younger goes"),
        pytest.param(room(12_000), ("old",), id="only the elder gives back enough"),
        pytest.param(room(9_000), ("old", "big"), id="both have to go"),
        pytest.param(room(7_999), None, id="not even both are enough"),
        pytest.param({"cpu": 99_000, "pods": 2}, ("big",), id="one place is enough"),
        pytest.param({"cpu": 99_000, "pods": 0}, None, id="a node without a place"),
        pytest.param({"pods": 110}, None, id="a node without the resource"),
    ],
)
def test_the_pods_other_resources_must_fit_too(allocatable, expected):
    """A set of GPUs without the memory beside it would cost victims for nothing."""
    pods = (
        pod("old", started_s=1.0, requests={"cpu": 6_000, "pods": 1}),
        pod("big", started_s=2.0, requests={"cpu": 3_000, "memory": 5, "pods": 1}),
        pod("gone", phase="Succeeded", requests={"cpu": 90_000, "pods": 1}),
    )
    node = case(
        *pods[: 3 if "cpu" in allocatable else 2],
        held={"old": 0b11, "big": 0b1100},
        pod=replace(WANT, requests={"cpu": 8_000, "memory": 0, "pods": 1}),
        reading=NodeReading("n1", allocatable, pods),
    )
    chosen = choose_victims(node)
    assert (chosen.uids if chosen else None) == expected


def test_the_better_set_is_taken_among_equal_victims():
    """Between pods that cost the same, the pod may as well get the faster GPUs."""
    chosen = choose_victims(case(*FULL, held=ONE_EACH, free=0b1))
    assert chosen == Eviction(("d1",), 0)


def test_above_the_bound_no_pod_is_evicted_without_need():
    """Sixteen pods have 65,536 sets of victims; kube-scheduler's own way is taken there."""
    pods = [pod(f"p{i:02}", priority=i % 3, started_s=float(i)) for i in range(16)]
    held = {one.uid: 1 << i for i, one in enumerate(pods)}
    want = 0b1011_0000_0000_0001
    node = case(*pods, held=held, quality=lambda free: () if free & want == want else None)
    assert len(pods) > MAX_EXACT
    chosen = choose_victims(node)
    assert chosen is not None
    assert sorted(chosen.uids) == ["p00", "p12", "p13", "p15"]
    unsatisfied = replace(node, quality=lambda free: () if free >> 16 else None)
    assert choose_victims(unsatisfied) is None


def test_above_the_bound_budgets_are_spared_first():
    """Pods whose budget would be violated are considered before more important ones."""
    pods = [pod(f"{'a' if i < 3 else 'b'}{i:02}", priority=0 if i < 3 else 9) for i in range(12)]
    held = {one.uid: 1 << i for i, one in enumerate(pods)}
    node = case(*pods, held=held, quality=counted(2), budgets=[budget("a", 0)])
    chosen = choose_victims(node)
    assert chosen is not None
    assert chosen.n_violations == 0
    assert all(uid.startswith("b") for uid in chosen.uids)


# Brute force, written from kube-scheduler's own functions and not from ours.


def plain_cost(victims: list[PodOnNode], budgets: list[DisruptionBudget]) -> tuple[float, ...]:
    """`pickOneNodeForPreemption` as a tuple; `victims` by descending importance."""
    left = {one.name: one.n_allowed for one in budgets}
    n_violating = 0
    for victim in victims:
        hit = [b.name for b in budgets if b.name == victim.labels["app"]]
        for name in hit:
            left[name] -= 1
        n_violating += any(left[name] < 0 for name in hit)
    if not victims:
        return (0, -math.inf, 0, 0, 0)
    first = victims[0].priority
    starts = [math.inf if v.started_s is None else v.started_s for v in victims]
    oldest = min(s for v, s in zip(victims, starts, strict=True) if v.priority == first)
    return (n_violating, first, sum(v.priority + 2**31 for v in victims), len(victims), -oldest)


def important_first(one: PodOnNode) -> tuple[float, ...]:
    """`MoreImportantPod`."""
    return (-one.priority, math.inf if one.started_s is None else one.started_s)


@st.composite
def nodes(draw: st.DrawFn) -> Case:
    """A DGX-1 with pods of any sizes and priorities, some budgets, little room for cpu."""
    gpus = draw(st.permutations(range(8)))
    pods: list[PodOnNode] = []
    held: dict[str, int] = {}
    free = 0
    while gpus:
        size = draw(st.integers(1, min(4, len(gpus))))
        mask = sum(1 << gpu for gpu in gpus[:size])
        gpus = gpus[size:]
        if draw(st.integers(0, 5)) == 0:
            free |= mask
            continue
        uid = f"{draw(st.sampled_from('abc'))}{len(pods)}"
        held[uid] = mask
        pods.append(
            pod(
                uid,
                priority=draw(st.sampled_from([-1, 0, 0, 0, 5, 1000, 2000])),
                started_s=draw(st.one_of(st.none(), st.integers(0, 3).map(float))),
                is_deleting=draw(st.integers(0, 9)) == 0,
                requests={"cpu": draw(st.integers(0, 4)), "pods": 1},
            )
        )
    below = [one.uid for one in pods if one.priority < WANT.priority]
    return case(
        *pods,
        held=held,
        free=free,
        given=tuple(draw(st.lists(st.sampled_from(below), unique=True))) if below else (),
        budgets=[
            budget(app, draw(st.integers(0, 2))) for app in draw(st.sets(st.sampled_from("ab")))
        ],
        quality=connected(draw(st.integers(1, 5))),
        pod=replace(WANT, requests={"cpu": draw(st.integers(0, 6)), "pods": 1}),
        reading=NodeReading("n1", {"cpu": draw(st.integers(4, 16)), "pods": 110}, tuple(pods)),
    )


@given(nodes())
@example(case(*FULL, held=ONE_EACH))
def test_the_victims_are_the_least_of_all_that_would_do(node):
    """Exact: no other set of victims is cheaper in kube-scheduler's own order."""
    pods = node.reading.pods
    in_play = [one for one in pods if one.priority < node.pod.priority and not one.is_deleting]
    best: tuple[float, ...] | None = None
    for n in range(len(in_play) + 1):
        for some in combinations(sorted(in_play, key=important_first), n):
            gone = [*some, *(one for one in pods if one.is_deleting)]
            mask = node.free | sum(node.held[one.uid] for one in gone)
            used = sum(one.requests.get("cpu", 0) for one in pods if one not in gone)
            need = node.pod.requests.get("cpu", 0)
            fits = need == 0 or used + need <= node.reading.room["cpu"]
            if fits and node.quality(mask) is not None:
                cost = plain_cost(list(some), list(node.budgets))
                best = cost if best is None else min(best, cost)
    chosen = choose_victims(node)
    if best is None:
        assert chosen is None
        return
    assert chosen is not None
    by_uid = {one.uid: one for one in pods}
    victims = [] if chosen.is_in_progress else [by_uid[uid] for uid in chosen.uids]
    assert victims == sorted(victims, key=important_first)
    assert plain_cost(victims, list(node.budgets)) == best
    assert chosen.n_violations == best[0]
    assert all(by_uid[uid].priority < node.pod.priority for uid in chosen.uids)


@given(nodes())
def test_a_cost_is_kube_schedulers(node):
    """The two spellings of the order agree on any victims, in any order."""
    pods = list(node.reading.pods)
    if pods:
        expected = plain_cost(sorted(pods, key=important_first), list(node.budgets))
        assert cost_of(pods, node.budgets) == expected
