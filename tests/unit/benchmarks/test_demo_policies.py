"""The demo's policies and kube-scheduler's part, without a process."""

from __future__ import annotations

import json
from random import Random

import httpx
import pytest

from benchmarks.demo.fleet import lay_out_fleet
from benchmarks.demo.kube_scheduler import HttpExtender, choose_node, send_bind
from benchmarks.demo.pods import DemoPod, draw_pods
from benchmarks.demo.policies import ExtenderPolicy, MostAllocatedPolicy, Place, RivalOnCoterieNode
from benchmarks.demo.timeline import play
from benchmarks.errors import ServerFailed
from benchmarks.masks import mask_of, members
from benchmarks.rivals import NVIDIA_BEST_EFFORT, PLAIN_KUBELET, Rival
from extender.config import load_settings
from extender.embedded import make_engine
from extender.protocol import Outcome, Verb


def lowest_ids(free, size, _rng, **_):
    """The first free ids in order."""
    return mask_of(members(free)[:size]) if size <= free.bit_count() else None


LOWEST_IDS = Rival("lowest ids", lambda _topology: lowest_ids)


FLEET = "2x dgx-1-v100, 1x 8x-a6000-bridged, 1x gb200-tray"
NODES = lay_out_fleet(FLEET)
SETTINGS = load_settings({"cluster": FLEET})
POD = DemoPod(name="p", uid="u", size=2, affinity="nvlink")
HUGE = DemoPod(name="q", uid="q", size=9)


class FakeExtender:
    """Fixed answers by verb; `requests` keeps them."""

    def __init__(self, **answers):
        self.answers = answers
        self.requests = []

    def send(self, verb, body):
        self.requests.append((verb, body))
        return json.dumps(self.answers[verb]).encode()


def filtered(*names, error=""):
    """A filter answer."""
    return {"Nodes": None, "NodeNames": list(names), "FailedNodes": {}, "Error": error}


def extender_transport():
    """The extender's engine behind an HTTP transport, as its routes map it."""
    engine = make_engine(SETTINGS.cluster_spec(), SETTINGS.rules)

    def handle(request):
        path = request.url.path.removeprefix("/")
        if request.method == "POST":
            answer = engine.answer(Verb(path), request.content, 0.0)
        elif request.method == "DELETE":
            answer = engine.answer(Verb.END, path.rpartition("/")[2].encode(), 0.0)
        else:
            bound = engine.cluster.bound(path.rpartition("/")[2])
            assert bound is not None
            return httpx.Response(200, json=bound.as_json())
        return httpx.Response(400 if answer.outcome is Outcome.FAILED else 200, content=answer.body)

    return httpx.Client(transport=httpx.MockTransport(handle), base_url="http://extender")


def test_prioritize_gets_the_nodes_that_filter_left(rng):
    """The wire's field names, exactly; the highest score wins."""
    scores = [{"Host": "a", "Score": 3}, {"Host": "c", "Score": 9}]
    extender = FakeExtender(filter=filtered("a", "c"), prioritize=scores)
    assert choose_node(extender, POD, ["a", "b", "c"], rng) == "c"
    assert extender.requests == [
        ("filter", {"Pod": POD.as_json(), "Nodes": None, "NodeNames": ["a", "b", "c"]}),
        ("prioritize", {"Pod": POD.as_json(), "Nodes": None, "NodeNames": ["a", "c"]}),
    ]


def test_with_one_node_left_prioritize_is_not_called(rng):
    """schedule_one.go returns early."""
    extender = FakeExtender(filter=filtered("b"))
    assert choose_node(extender, POD, ["a", "b"], rng) == "b"


@pytest.mark.parametrize(
    ("answer", "nodes"),
    [
        pytest.param(filtered(), ["a"], id="filter left none"),
        pytest.param({"NodeNames": None}, ["a"], id="null rejects every node"),
        pytest.param(None, [], id="in-tree filters left none: the extender is not called"),
    ],
)
def test_no_node(answer, nodes, rng):
    """The pod waits."""
    assert choose_node(FakeExtender(filter=answer), POD, nodes, rng) is None


def test_equal_scores_are_drawn_by_lot_and_absent_ones_are_zero():
    """The scheduler draws among the best; a node without a score has 0."""
    scores = [{"Host": "a", "Score": 5}, {"Host": "b", "Score": 5}]
    extender = FakeExtender(filter=filtered("a", "b", "c"), prioritize=scores)
    drawn = {
        choose_node(extender, POD, ["a", "b", "c"], Random(seed))  # noqa: S311 - a lot, no secret
        for seed in range(20)
    }
    assert drawn == {"a", "b"}


@pytest.mark.parametrize(
    ("extender", "message"),
    [
        pytest.param(
            FakeExtender(filter=filtered(error="stale")), "filter of p: stale", id="error"
        ),
        pytest.param(FakeExtender(filter=filtered("z")), "names 'z'", id="another node"),
        pytest.param(FakeExtender(filter=[]), "filter answered body", id="not an object"),
        pytest.param(
            FakeExtender(filter=filtered("a", "b"), prioritize=[{"Host": "a", "Score": 5.5}]),
            "prioritize answered 0.Score 5.5",
            id="a score that is no whole number",
        ),
    ],
)
def test_answers_that_kube_scheduler_would_not_take(extender, message, rng):
    """The demo fails rather than showing figures from a broken wire."""
    with pytest.raises(ServerFailed, match=message):
        choose_node(extender, POD, ["a", "b"], rng)


def test_bind_names_pod_and_node():
    """ExtenderBindingArgs; an in-band error is an error."""
    extender = FakeExtender(bind={"Error": ""})
    send_bind(extender, POD, "a")
    args = {"PodName": "p", "PodNamespace": "demo", "PodUID": "u", "Node": "a"}
    assert extender.requests == [("bind", args)]
    with pytest.raises(ServerFailed, match="bind of p to a: taken"):
        send_bind(FakeExtender(bind={"Error": "taken"}), POD, "a")


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        pytest.param(
            lambda _: httpx.Response(503, text="stale"), "status 503, expected 200: stale", id="503"
        ),
        pytest.param(lambda _: httpx.Response(201), "status 201", id="201 is no success"),
        pytest.param(lambda _: 1 / 0, "division", id="a transport that fails"),
    ],
)
def test_only_200_is_an_answer(handler, message):
    """As kube-scheduler has it."""

    def handle(request):
        try:
            return handler(request)
        except ZeroDivisionError as error:
            raise httpx.ConnectError(str(error)) from error

    client = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://extender")
    with client, pytest.raises(ServerFailed, match=message):
        HttpExtender(client).send("filter", {})


def test_no_gpu_is_given_twice_and_every_pod_runs():
    """Three policies over a mix, the extender behind its wire; each keeps its own account."""
    pods = [pod for pod in draw_pods(60, seed=5) if pod.size <= 4]
    with extender_transport() as client:
        extender = HttpExtender(client)
        policies = (
            MostAllocatedPolicy("kubelet", "", PLAIN_KUBELET, NODES, seed=1),
            RivalOnCoterieNode(
                NVIDIA_BEST_EFFORT, NODES, SETTINGS.cluster_spec(), SETTINGS.rules, seed=1
            ),
            ExtenderPolicy(NODES, extender, seed=1),
        )
        for policy in policies:
            run = play(policy, pods, NODES)
            assert run.unplaced == ()
            for moment in run.moments:
                taken = [(one.place.node, one.place.gpus) for one in moment.running]
                for name, node in NODES.items():
                    masks = [mask for where, mask in taken if where == name]
                    assert sum(masks) + moment.free[name] == (1 << node.n_gpus) - 1
            assert all(one.place.gpus.bit_count() == one.pod.size for one in run.placed)
        assert extender.n_requests > 3 * len(pods)


def test_the_same_seed_gives_the_same_run():
    """Draws come from the seed alone."""
    pods = draw_pods(30, seed=5)

    def places():
        policy = RivalOnCoterieNode(
            NVIDIA_BEST_EFFORT, NODES, SETTINGS.cluster_spec(), SETTINGS.rules, seed=1
        )
        return play(policy, pods, NODES).placed

    assert places() == places()


def test_most_allocated_takes_the_node_that_becomes_fullest():
    """NodeResourcesFit counts the pod itself in."""
    policy = MostAllocatedPolicy("kubelet", "", LOWEST_IDS, NODES, seed=0)
    assert policy.place(POD) == Place("gb200-tray-0", 0b11)
    assert policy.place(POD) == Place("gb200-tray-0", 0b1100)
    third = policy.place(POD)
    assert third is not None
    assert third.node != "gb200-tray-0"
    assert policy.place(HUGE) is None


def test_every_policy_keeps_to_the_pods_gpu_model():
    """A nodeSelector binds rivals and Coterie alike; a model that is full makes the pod wait."""
    on_pairs = DemoPod(name="p", uid="u", size=8, product="NVIDIA-RTX-A6000")
    second = DemoPod(name="q", uid="q", size=2, product="NVIDIA-RTX-A6000")
    with extender_transport() as client:
        policies = (
            MostAllocatedPolicy("kubelet", "", PLAIN_KUBELET, NODES, seed=1),
            RivalOnCoterieNode(
                NVIDIA_BEST_EFFORT, NODES, SETTINGS.cluster_spec(), SETTINGS.rules, seed=1
            ),
            ExtenderPolicy(NODES, HttpExtender(client), seed=1),
        )
        for policy in policies:
            assert policy.place(on_pairs) == Place("8x-a6000-bridged-0", 0xFF)
            assert policy.place(second) is None


def test_a_rival_that_refuses_lets_the_pod_wait():
    """Some rivals choose nothing."""
    refusing = Rival("refusing", lambda _topology: lambda *_, **__: None)
    policy = MostAllocatedPolicy("refusing", "", refusing, NODES, seed=0)
    assert policy.place(POD) is None
    on_ours = RivalOnCoterieNode(refusing, NODES, SETTINGS.cluster_spec(), SETTINGS.rules, seed=1)
    assert on_ours.place(POD) is None
    assert on_ours.place(HUGE) is None


def test_a_rival_that_gives_taken_gpus_is_caught():
    """The account is checked at every step, so that no figure rests on a double booking."""
    same = Rival("same", lambda _topology: lambda *_, **__: 0b11)
    policy = MostAllocatedPolicy("same", "", same, lay_out_fleet("1x gb200-tray"), seed=0)
    policy.place(POD)
    with pytest.raises(ServerFailed, match="given to two pods"):
        policy.place(POD)


def test_a_refused_plan_is_reported():
    """A pod that is bound already cannot be recorded again."""
    policy = RivalOnCoterieNode(LOWEST_IDS, NODES, SETTINGS.cluster_spec(), SETTINGS.rules, seed=1)
    policy.place(POD)
    with pytest.raises(ServerFailed, match="accepted already"):
        policy.place(POD)


def test_a_plan_for_another_size_is_reported():
    """What the bound pod says is checked against the request."""
    ids = NODES["gb200-tray-0"].ids
    plan = {"node": "gb200-tray-0", "containers": [{"ids": list(ids[:1])}]}
    bound = {"metadata": {"annotations": {"coterie.gpu/plan": json.dumps(plan)}}}
    answers = {"/filter": filtered("gb200-tray-0"), "/bind": {"Error": ""}}

    def handle(request):
        return httpx.Response(200, json=answers.get(request.url.path, bound))

    client = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://extender")
    with client, pytest.raises(ServerFailed, match="expected 2 GPUs of gb200-tray-0"):
        ExtenderPolicy(NODES, HttpExtender(client), seed=0).place(POD)
