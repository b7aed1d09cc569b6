"""`POST /api/v1/what-if`: the question, the answer, and that nothing is changed."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.decision_log import DecisionLog
from extender.decision_log.replay import replay
from extender.engine import Gateway, make_engine
from extender.engine.events import VerbCalled
from extender.http.responses import Problem
from extender.protocol import Verb
from extender.read_api.what_if import MAX_WAITING
from tests.unit.extender.engines import RULES, bind, bind_at_once, engine, see_cluster, spec
from tests.unit.extender.pods import args, pod
from tests.unit.extender.read_api.served import ServedReads
from tests.virtual_time import run_at_once
from tests.work import Turns
from topology.recordings import load_recording
from topology.taints import CORDONED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

V100 = "dgx-1-v100"


def ask(served: ServedReads, **question: Any) -> Any:
    """The answer."""
    content = json.dumps(question).encode()
    response = served.call("/api/v1/what-if", method="POST", content=content, app=served.read_app)
    assert response.status_code == 200, response.text
    return response.json()


def refusal(served: ServedReads, content: bytes) -> Problem:
    """What is wrong with a question."""
    response = served.call("/api/v1/what-if", method="POST", content=content)
    problem = Problem.model_validate(response.json())
    assert response.status_code == problem.status
    return problem


def given(body: bytes) -> Callable[[], Awaitable[bytes]]:
    """A body that has arrived."""

    async def read() -> bytes:
        return body

    return read


@pytest.fixture
def served() -> ServedReads:
    """Two V100 machines and one without NVLink; a pod is placed, one waits."""
    served = ServedReads(engine())
    served.place(4, "u1", "dgx-1-v100-0", affinity="nvlink", policy="required")
    served.filter(9, "u3", ["dgx-1-v100-0"])
    return served


def test_pods_are_placed_one_after_another(served):
    """With their sets and what these are worth, and the capacity before and after."""
    manifest = pod(4, uid="x", affinity="nvlink", policy="required")
    answer = ask(served, pods=[{"manifest": manifest, "count": 4}])
    assert [one["pod"] for one in answer["placements"]] == [f"default/pod-x-{i}" for i in range(4)]
    first, second, third, last = answer["placements"]
    assert (first["node"], first["machine"], first["n_fit"]) == ("dgx-1-v100-0", V100, 2)
    (container,) = first["containers"]
    assert (container["name"], container["gpus"]) == ("main", [4, 5, 6, 7])
    assert len(container["ids"]) == 4
    assert (container["limited_by"], container["share"]) == ("ring", 1.0)
    assert first["gbytes_per_s"] == container["gbytes_per_s"] == 99.425
    assert (second["node"], third["node"]) == ("dgx-1-v100-1", "dgx-1-v100-1")
    assert (last["node"], last["machine"], last["containers"]) == (None, None, [])
    assert last["reason"] == "not enough free GPUs"
    assert [(one["reason_label"], one["n_nodes"]) for one in last["reasons"]] == [
        ("not_enough_free", 2),
        ("affinity_never", 1),
    ]
    before, after = ({one["machine"]: one for one in answer[key]} for key in ("before", "after"))
    assert (before[V100]["free"], before[V100]["placeable"]["4"]) == (12, 3)
    assert (after[V100]["free"], after[V100]["placeable"]["4"]) == (0, 0)
    assert before["8x-l4"] == after["8x-l4"]


def test_before_is_the_capacity(served):
    """The same figures as its route."""
    machines = served.get("capacity")["machines"]
    before = ask(served, drain=["8x-l4-0"])["before"]
    assert before == [{key: one[key] for key in before[0]} for one in machines]


def test_after_is_the_capacity_once_it_happened():
    """What the answer says is left, is left when the pods are bound as it says."""
    served = ServedReads(engine())
    pods = [{"manifest": pod(3, uid=f"x{i}")} for i in range(4)]
    answer = ask(served, pods=pods)
    for i, one in enumerate(answer["placements"]):
        served.place(3, f"x{i}", one["node"])
        ids = served.get(f"pods/default/pod-x{i}")["ids"]
        assert ids == one["containers"][0]["ids"]
    machines = served.get("capacity")["machines"]
    assert answer["after"] == [{key: one[key] for key in answer["after"][0]} for one in machines]


def test_pods_of_drained_nodes_are_placed_again(served):
    """As filter saw them, before the pods of the question."""
    answer = ask(served, drain=["dgx-1-v100-0"], pods=[{"manifest": pod(8, uid="x")}])
    evicted, asked = answer["placements"]
    assert (evicted["pod"], evicted["is_evicted"]) == ("default/pod-u1", True)
    assert (evicted["node"], evicted["n_fit"]) == ("dgx-1-v100-1", 1)
    assert (evicted["assumed"], evicted["is_selector_known"]) == (
        "the pod is as filter saw it last",
        True,
    )
    assert evicted["now_gbytes_per_s"] == served.get("pods/default/pod-u1")["gbytes_per_s"]
    assert (asked["is_selector_known"], asked["now_gbytes_per_s"]) == (True, None)
    assert (asked["pod"], asked["is_evicted"], asked["node"]) == (
        "default/pod-x",
        False,
        "8x-l4-0",
    )
    assert answer["drained"] == ["dgx-1-v100-0"]
    after = {one["machine"]: one for one in answer["after"]}
    assert (after[V100]["nodes"], after[V100]["gpus"], after[V100]["free"]) == (1, 8, 4)
    assert any("disruption budgets" in one for one in answer["not_considered"])


def test_added_nodes_take_pods(served):
    """Of a machine type of the cluster, and of a recording, whose tables are kept."""
    for _ in range(2):
        answer = ask(
            served,
            add=[{"machine": "dgx-2"}, {"machine": V100, "count": 2}],
            pods=[{"manifest": pod(16, uid="x")}],
        )
        names = [one["node"] for one in answer["added"]]
        assert names == ["added-dgx-2-0", "added-dgx-1-v100-0", "added-dgx-1-v100-1"]
        (placed,) = answer["placements"]
        assert (placed["node"], placed["machine"], placed["n_fit"]) == (
            "added-dgx-2-0",
            "dgx-2",
            1,
        )
        before, after = (
            {one["machine"]: one for one in answer[key]} for key in ("before", "after")
        )
        assert list(before) == list(after)
        assert (before["dgx-2"]["nodes"], before["dgx-2"]["free"]) == (0, 0)
        assert (after["dgx-2"]["nodes"], after["dgx-2"]["gpus"], after["dgx-2"]["free"]) == (
            1,
            16,
            0,
        )
        assert (after[V100]["nodes"], after[V100]["free"]) == (4, 28)


def test_recordings_are_forgotten_when_there_are_many(served):
    """The tables used longest ago first; the answer is the same."""
    recordings = ("summit", "8x-t4", "8x-rtx4090", "4x-l40s", "gb200-tray", "dgx-1-p100", "8x-b200")
    for name in (*recordings, "8x-mi50-pcie-2nic", "hgx-h200", "summit"):
        (row,) = [
            one for one in ask(served, add=[{"machine": name}])["after"] if one["machine"] == name
        ]
        assert row["free"] == load_recording(name).n_gpus


def test_a_pod_without_figures():
    """One GPU has nothing to reduce; where devices go by count no set is known."""
    served = ServedReads(engine({"count": 1, "devices": 4}, {"count": 1, "machine": "8x-l4"}))
    first = ask(served, pods=[{"manifest": pod(1)}])["placements"][0]
    (container,) = first["containers"]
    assert (container["gbytes_per_s"], container["share"], container["limited_by"]) == (None,) * 3
    assert (first["gbytes_per_s"], first["share"]) == (None, None)
    counted = ask(served, drain=["8x-l4-0"], pods=[{"manifest": pod(3)}])
    (placed,) = counted["placements"]
    assert (placed["node"], placed["containers"]) == ("unknown-0", [])
    assert [(one["machine"], one["free"]) for one in counted["after"]][-1] == ("unknown", 1)


def test_what_is_not_considered_is_said(served):
    """What kube-scheduler decides beside, and of this question what was ignored."""
    manifest = pod(2)
    manifest["spec"]["nodeSelector"] = {"disk": "ssd"}
    sentences = ask(served, pods=[{"manifest": manifest}])["not_considered"]
    assert sentences[0] == "CPU, memory, volumes and other resources than GPUs"
    unknown = (
        "labels of the pod's nodeSelector and node affinity that are not known of some nodes, "
        "which count as allowed: "
    )
    assert sentences[-1] == f"{unknown}disk"
    counted = ServedReads(engine({"count": 1, "devices": 4}))
    manifest["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    sentences = ask(counted, pods=[{"manifest": manifest}])["not_considered"]
    assert sentences[-1] == f"{unknown}nvidia.com/gpu.product"


def test_a_group_with_a_size_is_placed_as_a_whole(served):
    """All members or none: two have room, and four are wanted."""
    manifest = pod(8, group="train", group_size="4")
    answer = ask(served, pods=[{"manifest": manifest, "count": 4}, {"manifest": pod(8)}])
    *members, single = answer["placements"]
    assert [(one["group"], one["node"], one["n_fit"]) for one in members] == [
        ("default/train", None, 2)
    ] * 4
    assert {one["reason"] for one in members} == {answer["groups"][0]["reason"]}
    assert (single["group"], single["node"] is not None) == (None, True)
    assert answer["groups"] == [
        {
            "group": "default/train",
            "size": 4,
            "n_members": 4,
            "n_placed": 0,
            "n_bound": 0,
            "n_without_gpus": 0,
            "level": None,
            "domain": None,
            "gbytes_per_s": None,
            "least_gbytes_per_s": None,
            "limited_by": None,
            "reason": "never: no domain of this cluster holds the group",
            "reason_label": "group_never",
            "reason_short": "never for its group",
            "detail": "never: the cluster has room for 3 of 4 members when empty",
        }
    ]
    assert not any("groups" in one for one in answer["not_considered"])


def test_a_group_that_starts_has_all_its_sets(served):
    """With the capacity that it leaves, and pods after it on what is left."""
    manifest = pod(4, group="train", group_size="3", affinity="nvlink", policy="required")
    answer = ask(served, pods=[{"manifest": manifest, "count": 3}, {"manifest": pod(8)}])
    *members, last = answer["placements"]
    assert [one["node"] for one in members] == ["dgx-1-v100-0", "dgx-1-v100-1", "dgx-1-v100-1"]
    ids = [one["containers"][0]["ids"] for one in members]
    assert len({*ids[1], *ids[2]}) == 8
    assert [one["share"] for one in members] == [1.0] * 3
    (group,) = answer["groups"]
    assert (group["n_placed"], group["reason"], group["level"]) == (3, None, None)
    assert (group["gbytes_per_s"], group["detail"]) == (
        None,
        "the rates of the NICs within PXB of a node's GPUs are unknown",
    )
    assert last["node"] == "8x-l4-0"
    after = {one["machine"]: one["free"] for one in answer["after"]}
    assert after == {V100: 0, "8x-l4": 0}


def test_a_group_counts_the_members_that_run(served):
    """One that joins goes near them, though its size is more than is asked for."""
    fields = {"group": "train", "group_size": "1"}
    served.place(8, "r1", "dgx-1-v100-1", **fields)
    manifest = pod(8, group="train", group_size="2", affinity="none")
    (group,) = ask(served, pods=[{"manifest": manifest}])["groups"]
    assert (group["size"], group["n_bound"], group["n_placed"]) == (2, 1, 1)
    drained = ask(served, drain=["dgx-1-v100-1"], add=[{"machine": V100, "count": 1}])
    (group,) = drained["groups"]
    assert (group["n_members"], group["n_bound"], group["n_placed"]) == (1, 0, 1)
    assert drained["placements"][0]["is_evicted"]
    said = drained["not_considered"][-3:-1]
    assert said[0].startswith("that members of a group that runs, and those beyond its size")
    assert said[1].startswith("where added nodes are in the network")


def test_a_group_is_inferred_as_filter_does():
    """Of the kinds that the setting names; of those whose keys a controller writes it is said."""
    labels = {"kueue.x-k8s.io/pod-group-name": "kg"}
    manifest = pod(8)
    manifest["metadata"]["labels"] |= labels
    manifest["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "3"
    question = [{"manifest": manifest, "count": 3}]
    nodes = {"count": 3, "machine": "dgx-1-v100"}
    inferring = ServedReads(engine(nodes, group_kinds=("kueue", "leaderworkerset")))
    few = ask(inferring, pods=[{"manifest": manifest, "count": 2}])
    assert [few["groups"][0][key] for key in ("n_placed", "n_without_gpus")] == [2, 1]
    assert any(
        one.startswith("how many members of a group have no") for one in few["not_considered"]
    )
    answer = ask(inferring, pods=question)
    assert not any("have no GPUs" in one for one in answer["not_considered"])
    (group,) = answer["groups"]
    assert (group["group"], group["n_placed"]) == ("default/kueue/kg", 3)
    assert group["n_without_gpus"] == 0
    assert answer["not_considered"][-1].startswith("groups that are inferred from what a")
    assert ask(ServedReads(engine()), pods=question)["groups"] == []


def test_a_group_of_very_many_different_members_is_refused(served):
    """What each would take of each node has to be counted."""
    pods = [
        {"manifest": pod(1 + i % 8, uid=f"x{i}", group="g", group_size="17", affinity=wish)}
        for i, wish in enumerate(["nvlink"] * 8 + ["numa"] * 8 + ["none"])
    ]
    problem = refusal(served, json.dumps({"pods": pods}).encode())
    assert problem.detail == (
        "pods has 17 different requests of GPUs by members of groups, expected at most 16"
    )
    assert len(ask(served, pods=pods[:16])["placements"]) == 16


def test_nodes_that_take_no_new_pod_are_left_out(served, monkeypatch):
    """Cordoned ones, and those that are not ready."""
    moment = served.engine.cluster.moment()
    nodes = {
        name: replace(node, kubernetes_taints=(CORDONED,) if name == "dgx-1-v100-1" else ())
        for name, node in moment.nodes.items()
    }
    monkeypatch.setattr(
        type(served.engine.cluster), "moment", lambda _: replace(moment, nodes=nodes)
    )
    (placed,) = ask(served, pods=[{"manifest": pod(8, affinity="nvlink", policy="required")}])[
        "placements"
    ]
    assert placed["node"] is None
    assert {one["reason_label"]: one["n_nodes"] for one in placed["reasons"]} == {
        "not_enough_free": 1,
        "affinity_never": 1,
        "node_unschedulable": 1,
    }
    manifest = pod(8)
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "8x-l4-0"}
    (placed,) = ask(served, pods=[{"manifest": manifest}])["placements"]
    assert {one["reason_label"]: one["n_nodes"] for one in placed["reasons"]} == {
        "node_affinity": 2
    }, "an uncordon would not help"


def test_a_pod_of_another_scheduler_is_warned_of(served):
    """What-if and explain say that nothing heeds its annotations; a live pod is said so, too."""
    served.engine.rules = replace(served.engine.rules, scheduler_names=("gpu",))
    other, ours, unsaid = pod(4), pod(4), pod(4)
    other["spec"]["schedulerName"] = "volcano"
    del unsaid["spec"]["schedulerName"]
    warning = (
        "schedulerName is 'volcano', expected gpu: Coterie does not place this pod, "
        "its annotations have no effect, and a bind of it would be refused"
    )
    for manifest, expected in ((other, [warning]), (ours, []), (unsaid, [])):
        assert ask(served, pods=[{"manifest": manifest}])["warnings"] == expected
        answer = served.engine.answer(Verb.EXPLAIN, json.dumps(manifest).encode(), 0.0)
        assert json.loads(answer.body)["warnings"] == expected


def test_annotations_without_effect_are_told_once(served):
    """As explain tells them: a level that no node is in, and a policy without an affinity."""
    wishes = {"group": "train", "group_size": "4", "group_domain": "rack", "policy": "required"}
    answer = ask(served, pods=[{"manifest": pod(8, **wishes), "count": 4}])
    of_policy, of_level = answer["warnings"]
    assert "coterie.gpu/policy" in of_policy
    assert of_level.startswith(
        "annotation coterie.gpu/group-domain is 'rack', which names no level of this cluster's"
    )
    assert ask(served, pods=[{"manifest": pod(8)}])["warnings"] == []
    many = [
        {"manifest": pod(8, group=f"g{i}", group_size="4", group_domain=f"rack-{i}")}
        for i in range(20)
    ]
    assert ask(served, pods=many)["warnings"][-1] == "and 4 more"


def test_members_of_a_group_without_a_size_are_placed_one_by_one_which_is_said(served):
    """Whoever reads that they find nodes might think that these are near each other."""
    manifest = pod(8, group="train")
    answer = ask(served, pods=[{"manifest": manifest, "count": 4}])
    assert [one["node"] is not None for one in answer["placements"]] == [True, True, False, False]
    assert answer["groups"] == []
    assert answer["not_considered"][-1].startswith("groups without a size, or of evicted pods")
    alone = ask(served, pods=[{"manifest": pod(8)}])
    assert not any("groups" in one for one in alone["not_considered"])


def test_ratings_beyond_the_bound_are_said(served, monkeypatch):
    """The answer is not quietly worse."""
    monkeypatch.setattr("extender.what_if.simulation.MAX_WORK", 0)
    answer = ask(served, pods=[{"manifest": pod(2)}])
    assert "there were too many to rate" in answer["not_considered"][-1]


@pytest.mark.parametrize(
    ("question", "detail"),
    [
        pytest.param("x", "request body is 'x', expected JSON", id="no JSON"),
        pytest.param("[]", "request body is []", id="no object"),
        pytest.param("{}", "request body has no pods, drain or add, expected", id="empty"),
        pytest.param('{"x": 1}', "request x is not a known key", id="unknown field"),
        pytest.param('{"drain": ["n"]}', "drain.0 is 'n', expected the name of a node", id="node"),
        pytest.param(
            '{"add": [{"machine": "dgx-1-v10"}]}',
            "nearest: dgx-1-v100",
            id="unknown machine",
        ),
        pytest.param(
            '{"add": [{"machine": "8x-l4", "count": 65}]}',
            "add has 65 nodes, expected at most 64",
            id="too many new nodes",
        ),
        pytest.param(
            json.dumps({"drain": [f"n{i}" for i in range(65)]}),
            "request drain is ['n0', 'n1'",
            id="too many drained nodes",
        ),
        pytest.param(
            json.dumps({"pods": [{"manifest": pod(1), "count": 300}] * 2}),
            "pods has 600 pods, expected at most 512",
            id="too many pods",
        ),
        pytest.param(
            json.dumps({"pods": [{"manifest": pod(1), "count": 0}]}),
            "request pods.0.count is 0, expected greater than or equal to 1",
            id="no pods",
        ),
        pytest.param(
            json.dumps({"pods": [{"manifest": pod()}]}),
            "pods.0.manifest: pod default/pod-u1 requests no GPU",
            id="no GPU",
        ),
    ],
)
def test_what_is_no_question_is_refused(served, question, detail):
    """In one sentence, with the place and what is expected."""
    problem = refusal(served, question.encode())
    assert problem.status == 400
    assert detail in problem.detail


def test_too_many_evicted_pods_are_refused(served, monkeypatch):
    """Each would be placed again."""
    monkeypatch.setattr("extender.read_api.what_if.runner.MAX_EVICTED", 0)
    problem = refusal(served, b'{"drain": ["dgx-1-v100-0"]}')
    assert problem.detail == (
        "drain has nodes with 1 pods, expected at most 0: drain fewer at a time"
    )


def test_only_some_wait(served):
    """One is answered at a time; the others are refused at once, and may try again."""
    body = json.dumps({"pods": [{"manifest": pod(2)}]}).encode()

    async def go() -> list[Any]:
        answers = (served.api.what_ifs.answer(given(body)) for _ in range(MAX_WAITING + 2))
        return await asyncio.gather(*answers)

    answers = asyncio.run(go())
    assert [one is None for one in answers] == [False] * MAX_WAITING + [True] * 2
    assert len({b"".join(one) for one in answers[:MAX_WAITING]}) == 1


def test_a_refused_one_is_unavailable(served, monkeypatch):
    """503, so that a client tries again."""
    monkeypatch.setattr("extender.read_api.what_if.runner.MAX_WAITING", 0)
    problem = refusal(served, json.dumps({"pods": [{"manifest": pod(2)}]}).encode())
    assert (problem.status, "are under way" in problem.detail) == (503, True)


def test_nothing_is_changed(served):
    """Not the state, nor the pods that wait, nor what the verbs remember, nor the decision log."""
    one, file = served.engine, io.StringIO()

    def fail(error: Exception) -> None:
        raise error

    log = DecisionLog(file, one.rules, fail)
    gateway = Gateway(one, record=log.record)

    def picture() -> tuple[object, ...]:
        return (
            one.cluster.snapshot.generation,
            one.cluster.snapshot,
            json.dumps(one.cluster.as_json()),
            [*one.waiting()],
            one.n_ratings,
            one.n_deferred,
            file.getvalue(),
        )

    before = picture()
    ask(
        served,
        drain=["dgx-1-v100-0"],
        add=[{"machine": "dgx-2"}],
        pods=[{"manifest": pod(2, affinity="numa"), "count": 9}],
    )
    assert picture() == before
    del gateway


def test_a_log_with_what_ifs_between_replays():
    """They leave nothing that an answer depends on."""
    one, file = make_engine(RULES), io.StringIO()
    served = ServedReads(one)

    def fail(error: Exception) -> None:
        raise error

    gateway = Gateway(one, record=DecisionLog(file, one.rules, fail).record)
    see_cluster(gateway, spec())
    nodes = ["8x-l4-0", "dgx-1-v100-0", "dgx-1-v100-1"]
    for i in range(4):
        ask(served, pods=[{"manifest": pod(2, uid="w"), "count": 5}], drain=["8x-l4-0"])
        gateway.handle(VerbCalled(Verb.FILTER, args(pod(2, uid=f"u{i}"), nodes), float(i)))
        bind_at_once(gateway, served.bind_call(f"u{i}", nodes[i % 3])[1], float(i))
    file.seek(0)
    replayed = replay(file)
    assert (replayed.n_calls, replayed.difference) == (3 * 4, None)


def test_a_cluster_is_walked_in_short_turns():
    """Pods on hundreds of nodes: no turn holds the event loop for long."""
    one = engine(
        {"count": 350, "machine": "dgx-h100"}, {"count": 150, "machine": V100}, candidate_limit=20
    )
    for i in range(200):
        name = f"dgx-h100-{i}" if i % 2 else f"{V100}-{i % 150}"
        bind(one, f"u{i}", name, 1 + i % 4)
    served, turns = ServedReads(one), Turns()
    content = {"pods": [{"manifest": pod(4, affinity="nvlink", policy="required"), "count": 64}]}

    async def go() -> Any:
        await served.api.refresh()
        with turns.counting():
            return await served.api.what_ifs.answer(given(json.dumps(content).encode()))

    placements = json.loads(b"".join(run_at_once(go(), at_turn=turns.end)))["placements"]
    assert sum(one["node"] is not None for one in placements) == 64
    assert turns.longest < turns.n / 8
