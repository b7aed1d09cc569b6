"""The demo's policies and kube-scheduler's part, without a process."""

from __future__ import annotations

import json
from random import Random

import httpx
import pytest

from benchmarks.demo.extender import HttpExtender
from benchmarks.demo.fleet import lay_out_fleet
from benchmarks.demo.pods import DemoPod, draw_pods
from benchmarks.demo.policies import ExtenderPolicy, MostAllocatedPolicy, Place
from benchmarks.demo.timeline import play
from benchmarks.errors import ServerFailed
from benchmarks.rivals import NVIDIA_BEST_EFFORT, PLAIN_KUBELET, Rival
from topology.model import gpus_of, mask_of

NODES = lay_out_fleet("2x dgx-1-v100, 1x 8x-a6000-bridged, 1x gb200-tray")
TRAY = NODES["gb200-tray-0"]
POD = DemoPod(name="p", uid="u", size=2, affinity="nvlink")


def refuses(*_, **__):
    """A policy that chooses nothing."""


def lowest_ids(free, size, _rng, **_):
    """The first free ids in order."""
    return mask_of(gpus_of(free)[:size]) if size <= free.bit_count() else None


def rival(choose):
    """A rival with that rule on every node."""
    return Rival("a rule", lambda _topology: choose)


class FakeExtender(HttpExtender):
    """Fixed answers by the last part of a path; `requests` keeps what was sent."""

    def __init__(self, **answers):
        self.answers = answers
        self.requests = []
        transport = httpx.MockTransport(self._handle)
        super().__init__(httpx.Client(transport=transport, base_url="http://extender"))

    def _handle(self, request):
        verb = request.url.path.rpartition("/")[2]
        self.requests.append((verb, json.loads(request.content or b"null")))
        return httpx.Response(200, json=self.answers[verb])


def filtered(*names, error=""):
    """A filter answer."""
    return {"Nodes": None, "NodeNames": list(names), "FailedNodes": {}, "Error": error}


def test_prioritize_gets_the_nodes_that_filter_left(rng):
    """The wire's field names, exactly; the highest score wins."""
    scores = [{"Host": "a", "Score": 3}, {"Host": "c", "Score": 9}]
    extender = FakeExtender(filter=filtered("a", "c"), prioritize=scores)
    assert extender.choose_node(POD, ["a", "b", "c"], rng) == "c"
    assert extender.requests == [
        ("filter", {"Pod": POD.as_json(), "Nodes": None, "NodeNames": ["a", "b", "c"]}),
        ("prioritize", {"Pod": POD.as_json(), "Nodes": None, "NodeNames": ["a", "c"]}),
    ]


@pytest.mark.parametrize(
    ("answer", "nodes", "expected"),
    [
        pytest.param(filtered("b"), ["a", "b"], "b", id="one is left: prioritize is not called"),
        pytest.param(filtered(), ["a"], None, id="filter left none"),
        pytest.param(filtered() | {"NodeNames": None}, ["a"], None, id="null rejects every node"),
        pytest.param(None, [], None, id="in-tree filters left none: nothing is called"),
    ],
)
def test_at_most_one_node_is_left(answer, nodes, expected, rng):
    """schedule_one.go returns early."""
    extender = FakeExtender(filter=answer)
    assert extender.choose_node(POD, nodes, rng) == expected
    assert len(extender.requests) == bool(nodes)


def test_equal_scores_are_drawn_by_lot_and_absent_ones_are_zero():
    """The scheduler draws among the best; a node without a score has 0."""
    scores = [{"Host": "a", "Score": 5}, {"Host": "b", "Score": 5}]
    extender = FakeExtender(filter=filtered("a", "b", "c"), prioritize=scores)
    lots = [Random(seed) for seed in range(20)]  # noqa: S311 - a lot, no secret
    assert {extender.choose_node(POD, ["a", "b", "c"], lot) for lot in lots} == {"a", "b"}


def test_answers_that_kube_scheduler_would_not_take(rng, check_message):
    """The demo fails rather than showing figures from a broken wire."""
    with pytest.raises(ServerFailed, match="stale"):
        FakeExtender(filter=filtered(error="stale")).choose_node(POD, ["a", "b"], rng)
    with pytest.raises(ServerFailed, match="names 'z'"):
        FakeExtender(filter=filtered("z")).choose_node(POD, ["a", "b"], rng)
    with pytest.raises(ServerFailed, match="taken"):
        FakeExtender(bind={"Error": "taken"}).bind(POD, "a")
    created = httpx.MockTransport(lambda _: httpx.Response(201))
    client = httpx.Client(transport=created, base_url="http://extender")
    with pytest.raises(ServerFailed) as caught:
        HttpExtender(client).end(POD)
    check_message(caught.value)


def on_the_tray(**ids):
    """Coterie, which binds pods of these names to the tray, and its extender."""
    bound = {}
    for name, planned in ids.items():
        plan = json.dumps({"node": TRAY.name, "containers": [{"ids": list(planned)}]})
        bound[name] = {"metadata": {"annotations": {"coterie.gpu/plan": plan}}}
    extender = FakeExtender(pods={}, filter=filtered(TRAY.name), bind={"Error": ""}, **bound)
    return ExtenderPolicy({TRAY.name: TRAY}, extender, seed=0), extender


def test_coterie_takes_the_gpus_of_the_plan(check_message):
    """A pod is created once, and deleted; a plan for another size is no plan for it."""
    policy, extender = on_the_tray(p=TRAY.ids[1:3])
    place = policy.place(POD)
    assert place == Place(TRAY.name, 0b110)
    policy.end(POD, place)
    assert [verb for verb, _ in extender.requests] == ["pods", "filter", "bind", "p", "p"]
    with pytest.raises(ServerFailed) as caught:
        on_the_tray(p=TRAY.ids[:1])[0].place(POD)
    check_message(caught.value)


def test_members_are_bound_together_by_the_call_for_the_last_one():
    """Each bind waits for those of the others; the first member has its place from then on."""
    a, b = (DemoPod(name=name, uid=name, size=1, group=("g", 2)) for name in "ab")
    policy, extender = on_the_tray(a=TRAY.ids[:1], b=TRAY.ids[1:2])
    assert policy.place(a) is None
    assert [verb for verb, _ in extender.requests] == ["pods", "filter"]
    assert policy.place(b) == Place(TRAY.name, 0b10)
    bound = [sent["PodUID"] for verb, sent in extender.requests if verb == "bind"]
    assert sorted(bound) == ["a", "b"]
    n_requests = len(extender.requests)
    assert policy.place(a) == Place(TRAY.name, 0b1)
    assert len(extender.requests) == n_requests


@pytest.mark.parametrize("one", [PLAIN_KUBELET, NVIDIA_BEST_EFFORT], ids=lambda one: one.name)
def test_no_gpu_is_given_twice_and_every_pod_runs(one):
    """Over a mix; the same seed gives the same run."""
    pods = [pod for pod in draw_pods(60, seed=5) if pod.size <= 4]
    run = play(MostAllocatedPolicy("rival", one, NODES, seed=1), pods)
    assert run.unplaced == ()
    assert all(placed.place.gpus.bit_count() == placed.pod.size for placed in run.placed)
    assert run == play(MostAllocatedPolicy("rival", one, NODES, seed=1), pods)


def test_most_allocated_takes_the_node_that_becomes_fullest():
    """NodeResourcesFit counts the pod itself in; a nodeSelector binds a rival too."""
    policy = MostAllocatedPolicy("kubelet", rival(lowest_ids), NODES, seed=0)
    assert policy.place(POD) == Place(TRAY.name, 0b11)
    assert policy.place(POD) == Place(TRAY.name, 0b1100)
    third = policy.place(POD)
    assert third is not None
    assert third.node != TRAY.name
    assert policy.place(DemoPod(name="q", uid="q", size=9)) is None
    assert policy.place(DemoPod(name="r", uid="r", size=1, product=TRAY.product)) is None


def test_a_rival_that_refuses_lets_the_pod_wait():
    """Some rivals choose nothing."""
    assert MostAllocatedPolicy("none", rival(refuses), NODES, seed=0).place(POD) is None


def test_a_rival_that_gives_taken_gpus_is_caught(check_message):
    """The account is checked at every step, so that no figure rests on a double booking."""
    same = rival(lambda *_, **__: 0b11)
    policy = MostAllocatedPolicy("same", same, {TRAY.name: TRAY}, seed=0)
    policy.place(POD)
    with pytest.raises(ServerFailed) as caught:
        policy.place(POD)
    check_message(caught.value)
