"""A group's GPUs are of one model: which one, what lifts the rule, and why a group waits for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import PodDeleted, PodUpdated, PreemptRequested
from extender.groups.planning.gpu_models import MAX_MODELS, nodes_by_model
from extender.protocol import Answer, Outcome, Reason
from extender.what_if import RequestedGroup, SimulatedGroup, Simulation, gather_groups, read_pods
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import MACHINE, bare, facts, ids, plan_of, topology_text
from tests.unit.extender.group_scene import LEAF, GroupScene, all_bound, claim_all, leaf
from tests.unit.extender.pods import GPU
from topology.recordings import load_recording

KEY = ("default", "g")
PRODUCT = "nvidia.com/gpu.product"
V100, H100 = "Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3"
RECORDED = {"v": ("dgx-1-v100", V100), "h": ("dgx-h100", H100)}
EIGHT: dict[str, Any] = {"n_gpus": 8}


def node(name: str, domain: str, **changes: Any) -> Any:
    """A machine of eight GPUs; the first letter of its name says which."""
    recording, product = RECORDED[name[0]]
    fields: dict[str, Any] = {
        "topology": topology_text(name, machine=load_recording(recording)),
        "allocatable": {GPU: 8},
        "capacity": {GPU: 8},
        "labels": {PRODUCT: product},
    }
    return leaf(name, domain, **(fields | changes))


def scene_of(*names: str) -> GroupScene:
    """One V100 and one H100 machine below each leaf, by their numbers."""
    return GroupScene(*(node(name, f"S{name[1:]}") for name in names))


PAIRS = tuple(f"{letter}{i}" for i in range(3) for letter in "vh")


def letters(nodes: dict[str, str]) -> set[str]:
    """The first letters of nodes."""
    return {node[0] for node in nodes.values()}


def occupy(scene: GroupScene, *names: str) -> None:
    """A pod has all GPUs of each node."""
    for name in names:
        plan = plan_of(name, *ids(name, *range(8)))
        scene.gateway.handle(PodUpdated(facts(f"on-{name}", plan)))


def waiting(scene: GroupScene, *uids: str, **fields: Any) -> tuple[Reason | None, str]:
    """Why members that come do not get a place."""
    fields = {"size": len(uids), **EIGHT, **fields}
    scene.see(*uids, **fields)
    for uid in uids:
        scene.filter(uid, **fields)
    assert scene.woken() == []
    return scene.status().reason, scene.status().detail


def selecting(scene: GroupScene, uid: str, *names: str, **selector: str) -> dict[str, Any]:
    """A member with a node selector comes, and is tried on some nodes."""
    made = scene.manifest(uid, size=3, n_gpus=8)
    made["spec"]["nodeSelector"] = {key.replace("_", "-"): one for key, one in selector.items()}
    if "product" in selector:
        made["spec"]["nodeSelector"] = {PRODUCT: selector["product"]}
    seen = scene.pending(uid, size=3, n_gpus=8)
    scene.gateway.handle(scene.seen(seen, body=json.dumps(made).encode()))
    scene.call(made, *names)
    return made


def tried_out(scene: GroupScene, *manifests: dict[str, Any]) -> SimulatedGroup:
    """What a what-if says of the group of these pods."""
    pods = [read_pods(one, 1, (GPU,), where="pods")[0] for one in manifests]
    (group,) = gather_groups(pods)
    assert isinstance(group, RequestedGroup)
    turns = Simulation(scene.gateway.cluster.moment(), RULES).place_group(group)
    while True:
        try:
            next(turns)
        except StopIteration as end:
            placed: SimulatedGroup = end.value
            return placed


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        pytest.param({}, {"v"}, id="as for a pod: what is served as well by cheaper GPUs"),
        pytest.param({"affinity": "nvlink", "policy": "required"}, {"v"}, id="the same, required"),
        pytest.param({"prefer": "fastest"}, {"h"}, id="the fastest GPUs where they are preferred"),
        pytest.param({"min_bandwidth": "120"}, {"h"}, id="V100s are too slow over two nodes"),
    ],
)
def test_a_group_gets_one_model_before_nearness(wishes, expected):
    """Each leaf has room for two members on two models."""
    scene = scene_of(*PAIRS)
    nodes = claim_all(scene, "a", "b", **EIGHT, **wishes)
    assert letters(nodes) == expected
    assert len({*nodes.values()}) == 2
    assert replay(scene.lines).difference is None


def test_a_group_takes_the_model_that_holds_it():
    """Two V100 machines are no place for three members, though they are cheaper."""
    scene = scene_of("v0", "v1", "h0", "h1", "h2")
    assert letters(claim_all(scene, "a", "b", "c", size=3, **EIGHT)) == {"h"}


def test_members_of_several_shapes_get_one_model():
    """The small one would fit beside them on any."""
    scene = scene_of("v0", "h0", "h1", "h2")
    nodes = claim_all(scene, "a", "b", size=3, **EIGHT)
    scene.see("c", size=3, n_gpus=1)
    scene.filter("c", size=3, n_gpus=1)
    scene.woken()
    nodes = {uid: str(scene.groups.claim(uid).node) for uid in "abc"}
    assert letters(nodes) == {"h"}


def test_affinity_none_of_all_members_lifts_the_rule():
    """The nearest nodes do."""
    scene = scene_of(*PAIRS)
    nodes = claim_all(scene, "a", "b", affinity="none", **EIGHT)
    assert letters(nodes) == {"v", "h"}
    assert len({name[1] for name in nodes.values()}) == 1


def test_affinity_none_of_some_members_does_not():
    """The others would run with what they may have beside them."""
    scene = scene_of(*PAIRS)
    for uid, wish in (("a", {"affinity": "none"}), ("b", {})):
        scene.see(uid, **EIGHT, **wish)
        scene.filter(uid, **EIGHT, **wish)
    scene.woken()
    assert len(letters({uid: str(scene.groups.claim(uid).node) for uid in "ab"})) == 1


def test_a_group_that_several_models_together_would_hold_says_so():
    """It waits for one of them, and starts when that has room."""
    scene = scene_of("v0", "v1", "v2", "h0", "h1")
    occupy(scene, "v0")
    reason, detail = waiting(scene, "a", "b", "c")
    assert reason is Reason.GROUP_ONE_MODEL
    assert V100 in detail
    assert H100 in detail
    scene.gateway.handle(PodDeleted("on-v0"))
    scene.pass_s(1.0)
    assert set(scene.woken()) == set("abc")
    assert replay(scene.lines).difference is None


@pytest.mark.parametrize(
    ("nodes", "occupied", "expected"),
    [
        pytest.param(("v0", "v1", "h0"), (), Reason.GROUP_MODEL_NEVER, id="no model ever does"),
        pytest.param(
            ("v0", "v1", "h0"), ("v0",), Reason.GROUP_MODEL_NEVER, id="nor when pods have ended"
        ),
        pytest.param(("v0", "h0"), (), Reason.GROUP_NEVER, id="not even all models together"),
        pytest.param(
            ("v0", "v1", "v2", "h0"),
            ("v0", "h0"),
            Reason.GROUP_NO_ROOM,
            id="models are not what is missing",
        ),
    ],
)
def test_never_is_apart_from_not_now(nodes, occupied, expected):
    """Three members, of eight GPUs each."""
    scene = scene_of(*nodes)
    occupy(scene, *occupied)
    assert waiting(scene, "a", "b", "c")[0] is expected


def test_others_join_the_model_of_members_with_a_node():
    """It was the only one with room; now there is a cheaper one."""
    scene = scene_of("v0", "v1", "h0", "h1", "h2")
    occupy(scene, "v0", "v1")
    assert all_bound(scene.place("a", "b", **EIGHT))
    for uid in ("on-v0", "on-v1"):
        scene.gateway.handle(PodDeleted(uid))
    assert letters(claim_all(scene, "c", **EIGHT)) == {"h"}
    assert waiting(scene, "d", "e", size=2)[0] is Reason.GROUP_ONE_MODEL
    assert "already" in scene.status().detail


@pytest.mark.parametrize(
    "selectors",
    [
        pytest.param(({"product": V100}, {"product": H100}), id="by labels that are known"),
        pytest.param(({"pool": "old"}, {"pool": "new"}), id="by what is not offered"),
    ],
)
def test_members_that_select_different_models_get_them(selectors):
    """A master on another pool than its workers, as its owner says."""
    scene = scene_of("v0", "h0", "h1")
    master, workers = selectors
    selecting(scene, "a", "v0", **master)
    selecting(scene, "b", "h0", "h1", **workers)
    selecting(scene, "c", "h0", "h1", **workers)
    assert set(scene.woken()) == set("abc")
    assert scene.groups.claim("a").node == "v0"
    assert {scene.groups.claim(uid).node for uid in "bc"} == {"h0", "h1"}


def test_selectors_that_leave_one_model_do_not_lift_the_rule():
    """Its nodes are full, and it is no other model that was asked for."""
    scene = scene_of("v0", "h0", "h1", "h2")
    occupy(scene, "h0")
    selecting(scene, "a", "h1", "h2", product=H100)
    scene.see("b", "c", size=3, **EIGHT)
    for uid in "bc":
        scene.filter(uid, "v0", "h1", "h2", size=3, **EIGHT)
    assert scene.woken() == []
    assert scene.status().reason is Reason.GROUP_ONE_MODEL


def test_a_member_whose_selector_excludes_the_model_of_the_others_gets_its_own():
    """Else the group could not replace its master."""
    scene = scene_of("v0", "h0", "h1")
    selecting(scene, "a", "v0", product=V100)
    for uid in "bc":
        selecting(scene, uid, "h0", "h1", product=H100)
    scene.woken()
    nodes = {uid: scene.groups.claim(uid).node for uid in "abc"}
    steps = [scene.begin(uid, on) for uid, on in nodes.items()]
    assert all_bound([scene.end(step) for step in steps])
    scene.gateway.handle(PodDeleted("a"))
    selecting(scene, "a2", "v0", product=V100)
    assert scene.woken() == ["a2"]
    assert scene.groups.claim("a2").node == "v0"


def test_nodes_by_count_are_of_the_model_that_their_label_names():
    """Their devices are known by number; a node without the label is of no model that is known."""
    label = {PRODUCT: f"{V100}-SHARED"}
    scene = GroupScene(
        node("v0", "S0"),
        bare("b0", 8, domains={LEAF: "S0"}, capacity={GPU: 8}),
        bare("b1", 8, domains={LEAF: "S1"}, capacity={GPU: 8}, labels=label),
    )
    assert {*claim_all(scene, "a", "b", **EIGHT).values()} == {"v0", "b1"}


def test_a_bounded_number_of_models_is_tried():
    """Labels may name as many as there are nodes; those on most nodes come first."""
    labels = [f"M{i:02}" for i in range(MAX_MODELS + 10)] + ["M25"]
    nodes = [bare(f"n{i}", 8, labels={PRODUCT: label}) for i, label in enumerate(labels)]
    snapshot = GroupScene(*nodes).gateway.cluster.snapshot
    by_model = nodes_by_model(snapshot)
    assert list(by_model) == ["M25", *labels[: MAX_MODELS - 1]]
    assert [int(has.sum()) for has in by_model.values()] == [2] + [1] * (MAX_MODELS - 1)
    assert next(iter(nodes_by_model(snapshot, {"M24"}))) == "M24"


def test_a_node_with_two_models_gives_a_group_one_of_them():
    """Two free GPUs of each, so that both members would fit there."""
    models = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")
    gpus = tuple(replace(gpu, model=models[i // 2]) for i, gpu in enumerate(MACHINE.gpus))
    mixed = replace(MACHINE, gpus=gpus)
    nodes = [leaf(f"n{i}", "S0", topology=topology_text(f"n{i}", machine=mixed)) for i in range(2)]
    scene = GroupScene(*nodes)
    claim_all(scene, "a", "b", n_gpus=2)
    plans = [scene.groups.claim(uid) for uid in "ab"]
    assert len({plan.node for plan in plans}) == 2
    used = {one.rpartition("-")[2] for plan in plans for one in plan.ids}
    assert used in ({"0", "1"}, {"2", "3"})


def test_members_without_a_size_join_the_model_of_the_first():
    """They do not wait for each other; where it has no room they wait for it."""
    scene = scene_of("v0", "v1", "h0", "h1")
    fields: dict[str, Any] = {"size": None, **EIGHT}
    scene.filter("a", "h0", **fields)
    assert scene.end(scene.begin("a", "h0")).outcome is Outcome.OK
    assert scene.node_of("b", **fields) == "h1"
    occupy(scene, "h1")
    answer = scene.filter("b", **fields)
    assert answer.reason is Reason.GROUP_ONE_MODEL
    refused = json.loads(answer.body)["FailedAndUnresolvableNodes"]
    assert refused["v0"] == Reason.GROUP_ONE_MODEL.value
    assert refused["h1"] == Reason.NOT_ENOUGH_FREE.value
    assert scene.node_of("b", affinity="none", **fields) is not None


def test_no_pod_is_evicted_for_a_member_on_another_model():
    """It would not get the node: kube-scheduler's own victims there are not named."""
    scene = scene_of("v0", "h0", "h1")
    scene.filter("a", "h0", size=None, **EIGHT)
    assert scene.end(scene.begin("a", "h0")).outcome is Outcome.OK
    occupy(scene, "v0", "h1")
    content = scene.manifest("b", size=None, **EIGHT)
    content["spec"]["priority"] = 1000
    given = {name: {"Pods": [{"UID": f"on-{name}"}]} for name in ("v0", "h1")}
    body = {"Pod": content, "NodeNameToVictims": None, "NodeNameToMetaVictims": given}
    asked = PreemptRequested(json.dumps(body).encode(), scene.now_s)
    answer = scene.gateway.handle(asked)
    assert isinstance(answer, Answer)
    assert {*json.loads(answer.body)["NodeNameToMetaVictims"]} == {"h1"}


def test_a_what_if_places_a_group_on_one_model():
    """With the reason of a real one where no model holds it."""
    scene = scene_of(*PAIRS)
    for size, expected in ((3, None), (4, Reason.GROUP_MODEL_NEVER)):
        manifests = [scene.manifest(f"m{i}", size=size, n_gpus=8) for i in range(size)]
        placed = tried_out(scene, *manifests)
        assert placed.place.reason is expected
        nodes = {one.view.name[0] for one in placed.members if one.view is not None}
        assert nodes == (set() if expected else {"v"})


def test_a_pod_group_is_answered_one_model():
    """The first member cannot know that its model is too small for all; the next run does."""
    scene = scene_of("v0", "h0", "h1")

    def ask(uid: str) -> str | None:
        made = scene.manifest(uid, n_gpus=8)
        del made["metadata"]["annotations"]
        made["spec"]["schedulingGroup"] = {"podGroupName": "train"}
        names = json.loads(scene.call(made).body)["NodeNames"]
        return names[0] if names else None

    assert (ask("a"), ask("b")) == ("v0", None)
    assert {ask("a"), ask("b")} == {"h0", "h1"}
    assert ask("c") is None
    assert (ask("a"), ask("b")) == ("v0", None)
    assert replay(scene.lines).difference is None
