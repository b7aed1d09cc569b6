"""The verbs, bytes in and bytes out, over small embedded clusters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.embedded import lay_out
from extender.engine import NEEDS_NAMES, Engine
from extender.placement import RatingBudget
from extender.protocol import Answer, Outcome, Reason, Verb
from extender.state import DeviceState, machine_types
from tests.unit.extender.engines import (
    RULES,
    SteppedEngine,
    answer_of,
    bind,
    engine,
    names,
    owned,
    spec,
)
from tests.unit.extender.feeds import live, node, topology_text, wide
from tests.unit.extender.pods import GPU, args, binding, container, pod
from topology.annotations import Prefer

L4 = "8x-l4-0"
V100 = ("dgx-1-v100-0", "dgx-1-v100-1")


def test_filter_names_the_nodes_that_fit_and_fails_none():
    """With a feasible node the failed maps stay empty: the scheduler drops the rest silently."""
    answer = answer_of(
        engine(), Verb.FILTER, args(pod(4, affinity="nvlink", policy="required"), [*V100, L4])
    )
    assert answer == {
        "Nodes": None,
        "NodeNames": list(V100),
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_filter_gives_every_node_its_reason_where_none_fits():
    """Unresolvable, since evicting pods would not help; unknown nodes among them."""
    answer = answer_of(
        engine(), Verb.FILTER, args(pod(2, affinity="nvlink", policy="required"), [L4, "ghost"])
    )
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {}
    assert answer["FailedAndUnresolvableNodes"] == {
        L4: Reason.AFFINITY_NEVER.value,
        "ghost": Reason.UNKNOWN_NODE.value,
    }


def test_a_node_that_names_far_more_gpus_than_it_has_is_not_rated_by_them(monkeypatch):
    """Filter took 5 s for the sets of 256 GPUs, and that node had the best score."""
    cluster = live(node("n1"))
    monkeypatch.setattr(machine_types, "build_machine", None)
    text = topology_text("n2", machine=wide(256))
    cluster.update_node(node("n2", topology=text, allocatable={GPU: 8}, capacity={GPU: 8}))
    one = Engine(cluster, RULES)
    anything, strict = pod(4), pod(4, affinity="nvlink", policy="required")
    answer = json.loads(one.answer(Verb.FILTER, args(anything, ["n1", "n2"]), 0.0).body)
    assert set(answer["NodeNames"]) == {"n1", "n2"}, "pods may still go there by count"
    scores = json.loads(one.answer(Verb.PRIORITIZE, args(anything, ["n1", "n2"]), 0.0).body)
    assert max(scores, key=lambda each: each["Score"])["Host"] == "n1"
    answer = json.loads(one.answer(Verb.FILTER, args(strict, ["n2"]), 0.0).body)
    assert answer["FailedAndUnresolvableNodes"] == {"n2": Reason.NO_TOPOLOGY.value}
    view = cluster.snapshot.nodes["n2"]
    assert (view.node_class.machine, len(view.ids)) == (None, 8)


def test_the_own_nominated_node_fails_resolvably():
    """Else the pod preempted again at once while its victims still leave."""
    content = pod(9)
    content["status"]["nominatedNodeName"] = V100[0]
    answer = answer_of(engine(), Verb.FILTER, args(content, list(V100)))
    assert answer["FailedNodes"] == {V100[0]: Reason.TOO_FEW_GPUS.value}
    assert answer["FailedAndUnresolvableNodes"] == {V100[1]: Reason.TOO_FEW_GPUS.value}


def test_unknown_nodes_are_left_out_beside_feasible_ones():
    """A name that is not ours is no error; the others are answered."""
    answer = answer_of(engine(), Verb.FILTER, args(pod(1), ["ghost", L4]))
    assert (answer["NodeNames"], answer["FailedAndUnresolvableNodes"]) == ([L4], {})


def test_a_pod_without_gpus_gets_all_names_back():
    """It should not be here, and must not be harmed."""
    one = engine()
    body = args(pod(), ["ghost", L4])
    assert answer_of(one, Verb.FILTER, body)["NodeNames"] == ["ghost", L4]
    assert answer_of(one, Verb.PRIORITIZE, body) == [
        {"Host": "ghost", "Score": 0},
        {"Host": L4, "Score": 0},
    ]


def test_no_names_requested_no_names_answered():
    """An empty list is legal and is no reason to fail."""
    answer = engine().answer(Verb.FILTER, args(pod(1), []), 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, None)


def test_a_users_mistake_is_a_reason_on_every_node():
    """The pod stays unschedulable until it is edited; an error would be retried for ever."""
    one = engine()
    answer = one.answer(Verb.FILTER, args(pod(2, affinity="nvlnk"), [L4, "ghost"]), 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, Reason.INVALID_REQUEST)
    content = json.loads(answer.body)
    (text,) = set(content["FailedAndUnresolvableNodes"].values())
    assert "coterie.gpu/affinity is 'nvlnk', expected one of: nvlink" in text
    assert set(content["FailedAndUnresolvableNodes"]) == {L4, "ghost"}
    assert content["Error"] == ""
    scored = one.answer(Verb.PRIORITIZE, args(pod(2, affinity="nvlnk"), [L4]), 0.0)
    assert (scored.outcome, scored.reason) == (Outcome.FAILED, Reason.INVALID_REQUEST)


def test_two_gpu_resources_are_a_reason_on_every_node():
    """The API server accepts such a pod, so an error would be retried for ever."""
    content = pod(2)
    content["spec"]["containers"].append(
        {"name": "b", "resources": {"limits": {"amd.com/gpu": "1"}}}
    )
    answer = engine(resources=(GPU, "amd.com/gpu")).answer(Verb.FILTER, args(content, [L4]), 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, Reason.INVALID_REQUEST)
    assert "requests amd.com/gpu and nvidia.com/gpu" in answer.detail


@pytest.mark.parametrize("verb", [Verb.FILTER, Verb.PRIORITIZE])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"{", "request body is", id="broken JSON"),
        pytest.param(args(pod(1), None), NEEDS_NAMES, id="NodeNames null"),
        pytest.param(args(pod(-1), [L4]), "requests -1", id="a negative count"),
        pytest.param(args(pod("1.5"), [L4]), "requests '1.5'", id="a fractional count"),
        pytest.param(b"{" * 1_000_000, "request body is", id="a megabyte of garbage"),
    ],
)
def test_malformed_requests_are_answered_with_what_is_wrong_and_change_nothing(verb, body, message):
    """Filter has an Error field; prioritize says it in its own way."""
    one = engine()
    before = one.cluster.as_json()
    answer = one.answer(verb, body, 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.MALFORMED)
    content = json.loads(answer.body)
    assert message in content["Error" if verb is Verb.FILTER else "error"]
    assert one.cluster.as_json() == before


@pytest.mark.parametrize("verb", [Verb.FILTER, Verb.PRIORITIZE])
@pytest.mark.parametrize(
    "stale",
    [
        pytest.param({"is_synced": False, "observed_at_s": None}, id="never synced"),
        pytest.param({"is_synced": True, "observed_at_s": 39.0}, id="last observed 61 s ago"),
    ],
)
def test_stale_state_answers_an_error_and_never_refuses(verb, stale):
    """A pod refused from stale state can park for five minutes; an error retries in seconds."""
    one = engine()
    body = args(pod(2), [L4])
    one.cluster.set_freshness(**stale)
    answer = one.answer(verb, body, 100.0)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.STALE)
    assert not one.is_ready(100.0)
    one.cluster.set_freshness(is_synced=True, observed_at_s=40.0)
    assert one.answer(verb, body, 100.0).outcome is Outcome.OK


def test_filter_is_free_of_side_effects():
    """The scheduler also filters for pods that it never binds."""
    one = engine()
    before = (one.cluster.snapshot, one.cluster.as_json())
    first = one.answer(Verb.FILTER, args(pod(4), names(one)), 0.0)
    assert one.answer(Verb.FILTER, args(pod(4), names(one)), 9.0).body == first.body
    assert (one.cluster.snapshot, one.cluster.as_json()) == before


def test_filter_names_the_best_of_each_zone_where_there_are_many():
    """The scheduler's own plugins then run on few nodes; no zone is lost."""
    one = engine({"count": 6, "machine": "dgx-1-v100"}, candidate_limit=3)
    answer = one.answer(Verb.FILTER, args(pod(1), names(one)), 0.0)
    nodes = json.loads(answer.body)["NodeNames"]
    assert {one.cluster.snapshot.nodes[name].zone for name in nodes} == {
        "zone-a",
        "zone-b",
        "zone-c",
    }
    assert (answer.n_nodes, answer.n_named) == (6, 3)


SOFT_SPREAD = {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}


@pytest.mark.parametrize(
    ("limit", "more"),
    [
        pytest.param(0, {}, id="no limit set"),
        pytest.param(1, SOFT_SPREAD, id="a pod with soft spread"),
    ],
)
def test_filter_keeps_all_nodes_where_the_scheduler_scores_them(limit, more):
    """A node that it would prefer must not be hidden from it; names come as they were requested."""
    one = engine({"count": 4, "machine": "8x-l4"}, candidate_limit=limit)
    content = pod(1)
    content["spec"] |= more
    requested = sorted(names(one), reverse=True)
    assert answer_of(one, Verb.FILTER, args(content, requested))["NodeNames"] == requested


@pytest.mark.parametrize(
    ("n_untainted", "n_tainted_named"),
    [
        pytest.param(9, 0, id="the others suffice"),
        pytest.param(3, 0, id="they just suffice"),
        pytest.param(2, 1, id="they do not suffice"),
        pytest.param(0, 3, id="there are none"),
    ],
)
def test_soft_tainted_nodes_are_named_where_the_others_do_not_suffice(n_untainted, n_tainted_named):
    """The cluster autoscaler sets such taints as routine; one must not end the thinning for all."""
    tainted = {"count": 4, "machine": "dgx-1-v100", "name": "tainted", "prefer_no_schedule": True}
    untainted = {"count": n_untainted, "machine": "8x-l4"}
    one = engine(tainted, *([untainted] if n_untainted else ()), candidate_limit=3)
    body = args(pod(2, affinity="nvlink"), names(one))
    named = answer_of(one, Verb.FILTER, body)["NodeNames"]
    is_tainted = [name.startswith("tainted") for name in named]
    assert is_tainted == [False] * (3 - n_tainted_named) + [True] * n_tainted_named


def test_prioritize_names_every_node_in_integers():
    """Nodes it did not name would lose the scheduler's random tie-break."""
    one = engine()
    bind(one, "u0", V100[0], 4)
    scores = answer_of(one, Verb.PRIORITIZE, args(pod(4, affinity="nvlink"), ["ghost", L4, *V100]))
    by_name = {entry["Host"]: entry["Score"] for entry in scores}
    assert set(by_name) == {"ghost", L4, *V100}
    assert by_name["ghost"] == 0
    assert 0 < by_name[L4] < by_name[V100[1]] <= by_name[V100[0]] == 10
    assert all(type(score) is int for score in by_name.values())


def test_among_equally_close_nodes_the_future_decides():
    """Both offer their own best pair; a switched machine is hurt less, but it is worth more."""
    one = engine({"count": 1, "machine": "dgx-1-v100"}, {"count": 1, "machine": "dgx-h100"})
    nodes = answer_of(one, Verb.EXPLAIN, json.dumps(pod(2)).encode())["nodes"]
    assert [node["containers"][0]["loss"] for node in nodes] == [0.0, 0.0]
    costs = {node["node"]: node["left_behind"]["remainder_cost_gpus"] for node in nodes}
    assert list(costs) == [V100[0], "dgx-h100-0"]
    assert costs == pytest.approx({"dgx-h100-0": 3.2, V100[0]: 3.6}, abs=0.05)
    assert [node["gpu_worth"] for node in nodes] == [1.0, pytest.approx(5.43, abs=0.01)]
    assert [node["score"] for node in nodes] == [10, 9]


def test_prioritize_scores_nodes_that_cannot_take_the_pod_any_more_with_0():
    """They passed the filter a moment ago; another pod was quicker."""
    one = engine()
    bind(one, "u0", V100[0], 8)
    assert answer_of(one, Verb.PRIORITIZE, args(pod(2), list(V100))) == [
        {"Host": V100[0], "Score": 0},
        {"Host": V100[1], "Score": 10},
    ]


ANTI_AFFINITY = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
SPREAD = [{"podAffinityTerm": ANTI_AFFINITY, "weight": 100}]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [10, 9], id="without preferences the used machine is filled first"),
        pytest.param(
            {
                "affinity": {
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": SPREAD}
                }
            },
            [10, 10],
            id="preferred anti-affinity",
        ),
        pytest.param(
            {
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                    }
                ]
            },
            [10, 10],
            id="ScheduleAnyway spreading",
        ),
    ],
)
def test_economy_does_not_outvote_what_the_pod_prefers(spec, expected):
    """Replicas with preferred anti-affinity all came to one of eight empty nodes."""
    one = engine({"count": 2, "machine": "dgx-1-v100"})
    bind(one, "u0", V100[0], 1)
    content = pod(1)
    content["spec"] |= spec
    scored = answer_of(one, Verb.PRIORITIZE, args(content, list(V100)))
    assert [entry["Score"] for entry in scored] == expected
    explained = answer_of(one, Verb.EXPLAIN, json.dumps(content).encode())["nodes"]
    assert [node["score"] for node in sorted(explained, key=lambda node: node["node"])] == expected


def test_economy_does_not_outvote_a_soft_taint():
    """The used machine would be filled first, but its administrator would have it avoided."""
    machines = {"count": 1, "machine": "dgx-1-v100"}
    one = engine(machines | {"name": "tainted", "prefer_no_schedule": True}, machines)
    bind(one, "u0", "tainted-0", 1)
    scored = answer_of(one, Verb.PRIORITIZE, args(pod(1), ["tainted-0", V100[0]]))
    assert [entry["Score"] for entry in scored] == [9, 10]
    explained = answer_of(one, Verb.EXPLAIN, json.dumps(pod(1)).encode())["nodes"]
    assert {node["node"]: node["score"] for node in explained} == {"tainted-0": 9, V100[0]: 10}


def test_a_machine_with_a_dead_link_comes_after_its_equals():
    """A set of 8 was its own machine's best there, so it lost nothing, with a third less GB/s."""
    one = engine(
        {"count": 1, "machine": "dgx-1-v100-dead-link"}, {"count": 1, "machine": "dgx-1-v100"}
    )
    places = ["dgx-1-v100-dead-link-0", V100[0]]
    scored = {e["Host"]: e["Score"] for e in answer_of(one, Verb.PRIORITIZE, args(pod(8), places))}
    assert scored[places[0]] < scored[places[1]]


@pytest.mark.parametrize(("prefer", "first"), [("balanced", V100[0]), ("fastest", "dgx-h100-0")])
def test_the_cluster_says_what_pods_prefer_that_do_not_say_it(prefer, first):
    """By default the H100 stays free; `explain` names what counts."""
    machines = {"count": 1, "machine": "dgx-1-v100"}, {"count": 1, "machine": "dgx-h100"}
    one = engine(*machines, prefer=Prefer(prefer))
    places = [V100[0], "dgx-h100-0"]
    scored = {e["Host"]: e["Score"] for e in answer_of(one, Verb.PRIORITIZE, args(pod(4), places))}
    assert max(scored, key=scored.__getitem__) == first
    explained = answer_of(one, Verb.EXPLAIN, json.dumps(pod(4)).encode())
    assert explained["request"]["prefer"] == prefer
    meant = args(pod(4, prefer="balanced"), places)
    scored = {e["Host"]: e["Score"] for e in answer_of(one, Verb.PRIORITIZE, meant)}
    assert max(scored, key=scored.__getitem__) == V100[0]


def plan(one, uid: str):
    """The plan in a bound pod's record."""
    record = one.cluster.bound(uid)
    assert record is not None
    return json.loads(record.plan_text)


def test_bind_plans_the_set_that_was_scored():
    """The ids are the node's own, and the pod has them."""
    one = engine()
    answer = bind(one, "u1", V100[0], 4, affinity="nvlink")
    assert (answer.outcome, json.loads(answer.body)) == (Outcome.OK, {"Error": ""})
    found = plan(one, "u1")
    assert (found["v"], found["node"]) == (1, V100[0])
    (only,) = found["containers"]
    assert (only["name"], only["resource"], len(only["ids"])) == ("main", GPU, 4)
    assert list(owned(one.cluster, "u1")) == only["ids"]
    assert set(only["ids"]) <= set(one.cluster.snapshot.nodes[V100[0]].ids)
    assert one.cluster.snapshot.nodes[V100[0]].free.bit_count() == 4
    assert found["score"] == pytest.approx(answer.placed_gbytes_per_s, abs=1e-3)


@pytest.mark.parametrize(
    ("body", "reason", "message"),
    [
        pytest.param(b"[]", Reason.MALFORMED, "request body is", id="no request"),
        pytest.param(
            binding("ghost", L4),
            Reason.UNKNOWN_POD,
            "pod default/pod-ghost (ghost)",
            id="unknown pod",
        ),
        pytest.param(
            binding("u1", L4, PodName="other"),
            Reason.UNKNOWN_POD,
            "pod default/other (u1)",
            id="a known uid under another name",
        ),
        pytest.param(
            binding("u1", "ghost"), Reason.UNKNOWN_NODE, "node 'ghost'", id="unknown node"
        ),
    ],
)
def test_bind_reports_what_it_does_not_know(body, reason, message):
    """In-band, and nothing changes."""
    one = engine()
    one.answer(Verb.FILTER, args(pod(1), [L4]), 0.0)
    before = one.cluster.as_json()
    answer = one.answer(Verb.BIND, body, 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, reason)
    assert message in json.loads(answer.body)["Error"]
    assert one.cluster.as_json() == before


@pytest.mark.parametrize(
    "changed",
    [pytest.param(pod(2, affinity="nvlnk"), id="annotation"), pytest.param(pod(-1), id="count")],
)
def test_a_pod_that_was_spoilt_since_is_not_bound_as_it_was(changed):
    """Filtered well, edited, refused: the older request must not come true."""
    one = engine()
    assert one.answer(Verb.FILTER, args(pod(2), [L4]), 0.0).outcome is Outcome.OK
    assert one.answer(Verb.FILTER, args(changed, [L4]), 0.0).outcome is not Outcome.OK
    assert one.answer(Verb.BIND, binding("u1", L4), 0.0).reason is Reason.UNKNOWN_POD


def test_the_end_of_a_pod_frees_its_devices():
    """A second end is none, and a bind after it finds no pod."""
    one = engine()
    bind(one, "u1", L4, 8)
    assert one.cluster.snapshot.nodes[L4].free.bit_count() == 0
    for _ in range(2):
        one.end("u1")
        assert one.cluster.snapshot.nodes[L4].free.bit_count() == 8
    assert one.answer(Verb.BIND, binding("u1", L4), 0.0).reason is Reason.UNKNOWN_POD


def test_several_containers_are_planned_together():
    """Each under its own name; the init container hands its GPUs on."""
    one = engine()
    content = pod(uid="u1")
    content["spec"] = {
        "containers": [container("a", 2), container("log"), container("b", 2)],
        "initContainers": [container("i", 1)],
    }
    one.answer(Verb.FILTER, args(content, [V100[0]]), 0.0)
    assert one.answer(Verb.BIND, binding("u1", V100[0]), 0.0).outcome is Outcome.OK
    ids = {c["name"]: set(c["ids"]) for c in plan(one, "u1")["containers"]}
    assert {name: len(found) for name, found in ids.items()} == {"i": 1, "a": 2, "b": 2}
    assert ids["i"] <= ids["a"]
    assert not ids["a"] & ids["b"]


UNKNOWN = {"count": 1, "devices": 4, "name": "blind"}


def test_a_node_without_topology_serves_by_count_and_last():
    """Feasible for pods that do not insist, lowest score, bound without a plan."""
    one = engine(UNKNOWN, {"count": 1, "machine": "8x-l4"})
    assert answer_of(one, Verb.PRIORITIZE, args(pod(2, affinity="nvlink"), names(one))) == [
        {"Host": "blind-0", "Score": 0},
        {"Host": L4, "Score": 2},
    ]
    bound = bind(one, "u1", "blind-0", 3)
    assert (bound.outcome, bound.plan) == (Outcome.OK, None)  # so that no Event says what is placed
    record = one.cluster.bound("u1")
    assert record is not None
    assert record.plan_text is None
    assert one.cluster.snapshot.nodes["blind-0"].free.bit_count() == 1
    refused = answer_of(one, Verb.FILTER, args(pod(2), ["blind-0"]))
    assert refused["FailedAndUnresolvableNodes"] == {"blind-0": Reason.NOT_ENOUGH_FREE.value}


def test_a_node_without_topology_is_refused_to_pods_that_require_one():
    """Unknown never satisfies."""
    answer = answer_of(
        engine(UNKNOWN), Verb.FILTER, args(pod(1, affinity="numa", policy="required"), ["blind-0"])
    )
    assert answer["FailedAndUnresolvableNodes"] == {"blind-0": Reason.NO_TOPOLOGY.value}


def test_a_full_node_that_could_never_serve_is_no_reason_to_wait():
    """Its reason is what no wait changes; of a pod that it could serve, that it is full."""
    one = engine({"count": 1, "machine": "8x-l4"})
    bind(one, "u1", L4, 8)
    wanted = pod(2, uid="u2", affinity="nvlink", policy="required")
    refused = answer_of(one, Verb.FILTER, args(wanted, [L4]))
    assert refused["FailedAndUnresolvableNodes"] == {L4: Reason.AFFINITY_NEVER.value}
    refused = answer_of(one, Verb.FILTER, args(pod(2, uid="u2"), [L4]))
    assert refused["FailedAndUnresolvableNodes"] == {L4: Reason.NOT_ENOUGH_FREE.value}


def test_containers_that_never_fit_together_are_no_reason_to_evict():
    """Whether they do takes a search, which a full node is not worth: it is full."""
    one = engine({"count": 1, "machine": "dgx-1-v100"}, preempts_for_topology=True)
    (node,) = names(one)
    bind(one, "u1", node, 8)
    wanted = pod(uid="u2", affinity="numa", policy="required")
    wanted["spec"] = {"containers": [container("a", 3), container("b", 3), container("c", 2)]}
    refused = answer_of(one, Verb.FILTER, args(wanted, [node]))
    assert refused["FailedNodes"] == {}
    assert refused["FailedAndUnresolvableNodes"] == {node: Reason.NOT_ENOUGH_FREE.value}


def test_the_main_reason_is_one_that_may_pass():
    """A pod that waits for one of few machines waits, however many could never take it."""
    one = engine({"count": 3, "machine": "8x-l4"}, {"count": 1, "machine": "dgx-1-v100"})
    *_, node = names(one)
    bind(one, "u1", node, 8)
    wanted = pod(4, uid="u2", affinity="nvlink", policy="required")
    answer = one.answer(Verb.FILTER, args(wanted, names(one)), 0.0)
    assert answer.reason is Reason.NOT_ENOUGH_FREE


def test_nodes_of_another_resource_are_refused():
    """A pod that requests one vendor's GPUs must not land on the other's."""
    one = engine(
        {"count": 1, "machine": "8x-mi300x", "resource": "amd.com/gpu"},
        resources=(GPU, "amd.com/gpu"),
    )
    answer = answer_of(one, Verb.FILTER, args(pod(1), ["8x-mi300x-0"]))
    assert answer["FailedAndUnresolvableNodes"] == {"8x-mi300x-0": Reason.OTHER_RESOURCE.value}


def test_unhealthy_devices_are_never_planned():
    """They count as taken."""
    one = engine({"count": 1, "machine": "8x-l4", "unhealthy": [0, 5]})
    assert bind(one, "u1", L4, 6).outcome is Outcome.OK
    assert one.cluster.snapshot.nodes[L4].free == 0
    bad = [id_ for id_, state, _ in one.cluster.devices(L4) if state is DeviceState.UNHEALTHY]
    ids = lay_out(spec({"count": 1, "machine": "8x-l4"}))[0].ids
    assert bad == [ids[0], ids[5]]


def test_a_pod_without_a_uid_is_answered_but_not_remembered():
    """Bind could not name it."""
    one = engine()
    answer = one.answer(Verb.FILTER, args(pod(1, uid=""), [L4]), 0.0)
    assert answer.outcome is Outcome.OK


def test_warnings_travel_with_the_answer():
    """The shell logs them; the scheduler has no field for them."""
    one = engine()
    (warning,) = one.answer(Verb.FILTER, args(pod(1, policy="required"), [L4]), 0.0).warnings
    assert "coterie.gpu/policy" in warning


@pytest.mark.parametrize(
    ("machine", "n_busy", "n_gpus", "shared"),
    [
        pytest.param("dgx-1-v100", 1, 2, [], id="NVLink does not use the uplink"),
        pytest.param(
            "8x-a6000-bridged",
            1,
            5,
            [{"switch_gpus": [0, 1, 2, 3], "busy_gpus": [0]}],
            id="across switches",
        ),
        pytest.param("8x-a6000-bridged", 2, 4, [], id="inside a switch the uplink is idle"),
    ],
)
def test_explain_names_uplinks_shared_with_neighbours(machine, n_busy, n_gpus, shared):
    """The value assumes idle neighbours; where they are not, explain shows it."""
    one = engine({"count": 1, "machine": machine})
    bind(one, "u0", f"{machine}-0", n_busy)
    explained = answer_of(one, Verb.EXPLAIN, json.dumps(pod(n_gpus)).encode())
    assert explained["nodes"][0]["containers"][0]["shared_uplinks"] == shared


def test_explain_lists_every_node_in_order():
    """The best set, its GB/s, what is left behind, or why not."""
    one = engine({"count": 2, "machine": "dgx-1-v100"}, {"count": 1, "machine": "8x-l4"}, UNKNOWN)
    bind(one, "u0", V100[0], 6)
    explained = answer_of(one, Verb.EXPLAIN, json.dumps(pod(4, affinity="nvlink")).encode())
    assert [(node["node"], node["fits"]) for node in explained["nodes"]] == [
        (V100[1], True),
        (L4, True),
        ("blind-0", True),
        (V100[0], False),
    ]
    best, lesser, blind, refused = explained["nodes"]
    assert (best["place"], best["score"], best["free_gpus"]) == (1, 10, 8)
    (only,) = best["containers"]
    assert (only["name"], only["loss"], only["satisfies_affinity"]) == ("main", 0.0, True)
    assert only["gbytes_per_s"] > lesser["containers"][0]["gbytes_per_s"] > 0
    assert only["ids"] == [one.cluster.snapshot.nodes[V100[1]].ids[i] for i in only["gpus"]]
    assert best["left_behind"]["free_gpus"] == 4
    assert set(best["left_behind"]["best_gbytes_per_s"]) == {"2", "4"}
    assert lesser["containers"][0]["satisfies_affinity"] is False
    assert (blind["containers"], blind["left_behind"], blind["score"]) == (None, None, 0)
    assert (refused["reason_label"], refused["free_gpus"]) == ("not_enough_free", 2)
    assert explained["request"]["affinity"] == "nvlink"


def test_explain_takes_a_pod_alone_or_in_the_schedulers_request():
    """Both are at hand: a manifest, or a line of the decision log."""
    one = engine()
    alone = one.answer(Verb.EXPLAIN, json.dumps(pod(2)).encode(), 0.0)
    assert one.answer(Verb.EXPLAIN, args(pod(2), None), 0.0).body == alone.body
    assert answer_of(one, Verb.EXPLAIN, json.dumps(pod()).encode())["nodes"] == []


def test_explain_reports_what_is_wrong_with_the_pod():
    """The message is about the pod that was sent."""
    one = engine()
    assert "request metadata" in answer_of(one, Verb.EXPLAIN, b'{"spec":{}}')["error"]
    answer = one.answer(Verb.EXPLAIN, json.dumps(pod(2, affinity="nvlnk")).encode(), 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.INVALID_REQUEST)
    assert "'nvlnk'" in json.loads(answer.body)["error"]
    answer = one.answer(Verb.EXPLAIN, json.dumps(pod(-1)).encode(), 0.0)
    assert answer.reason is Reason.MALFORMED


def test_a_shape_is_rated_once_for_each_state_of_a_node():
    """However often it is requested."""
    one = engine(UNKNOWN)
    for n_gpus in (1, 2, 1):
        one.answer(Verb.FILTER, args(pod(n_gpus), names(one)), 0.0)
    assert one.n_ratings == 2


def call(
    one: SteppedEngine, verb: Verb, content: dict[str, Any], n_rated: int, *requested: str
) -> Answer:
    """A call that has time for so many ratings."""
    body = args(content, list(requested or names(one)))
    return one.answer(verb, body, 0.0, RatingBudget.of_states(n_rated))


def test_nodes_that_there_is_no_time_to_rate_are_ranked_by_count():
    """A node's annotation or a pod's shape may not stall the scheduler for seconds."""
    one = engine(candidate_limit=2)
    answer = call(one, Verb.FILTER, pod(4, affinity="nvlink"), 1)
    named = json.loads(answer.body)["NodeNames"]
    assert (answer.outcome, answer.n_deferred, len(named)) == (Outcome.OK, 1, 2)
    scored = call(one, Verb.PRIORITIZE, pod(4, affinity="nvlink"), 0, *V100, L4)
    assert (scored.outcome, scored.n_deferred) == (Outcome.OK, 1)
    assert {entry["Host"]: entry["Score"] for entry in json.loads(scored.body)}[L4] == 0
    one.rate_deferred(9)
    assert one.n_deferred == 0
    scored = call(one, Verb.PRIORITIZE, pod(4, affinity="nvlink"), 0, *V100, L4)
    assert scored.n_deferred == 0
    by_name = {entry["Host"]: entry["Score"] for entry in json.loads(scored.body)}
    assert by_name == {V100[0]: 10, V100[1]: 10, L4: 2}


def test_a_pod_is_not_refused_by_what_was_not_rated():
    """A refusal would park it for minutes; an error brings it back in seconds."""
    one = engine()
    wanted = pod(4, affinity="nvlink", policy="required")
    answer = call(one, Verb.FILTER, wanted, 0)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.NOT_RATED)
    assert (answer.n_deferred, answer.pod_uid) == (2, "u1")
    assert json.loads(answer.body)["Error"].startswith(Reason.NOT_RATED.value)
    assert one.pending.n_rejected == 0
    one.rate_deferred(2)
    assert json.loads(call(one, Verb.FILTER, wanted, 0).body)["NodeNames"] == list(V100)


def test_explain_saves_calls_no_time():
    """It is in no decision log: a replay would rate other states within the same count."""
    one = engine()
    answer_of(one, Verb.EXPLAIN, json.dumps(pod(4)).encode())
    assert call(one, Verb.FILTER, pod(4), 0).n_deferred == 2
