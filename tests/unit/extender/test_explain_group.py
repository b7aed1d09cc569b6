"""What an explanation says of a pod's group."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.engine.events import VerbCalled
from extender.protocol import Reason, Verb
from tests.unit.extender.group_scene import GroupScene, all_bound, leaf
from tests.unit.extender.live_world import node_facts
from tests.unit.extender.pods import pod
from topology.annotations import encode_plan
from topology.model import names


def explained(scene: GroupScene, content: dict[str, Any]) -> Any:
    """The group of a pod in its explanation, which is of the declared type."""
    body = json.dumps(content).encode()
    answer = json.loads(scene.gateway.handle(VerbCalled(Verb.EXPLAIN, body, scene.now_s)).body)
    return answer.get("group")


def placed(scene: GroupScene, uid: str, **fields: Any) -> dict[str, Any]:
    """A bound member's JSON, with its plan."""
    content = scene.manifest(uid, **fields)
    record = scene.gateway.cluster.pods.get(uid)
    assert record is not None
    assert record.node_plan is not None
    content["spec"]["nodeName"] = record.node_plan.node
    content["metadata"]["annotations"][names.PLAN] = encode_plan(record.node_plan)
    return content


@pytest.mark.parametrize(
    ("keys", "effect"),
    [
        pytest.param({"group_domain": "leef"}, "it has no effect", id="preferred"),
        pytest.param(
            {"group_domain": "leef", "group_policy": "required"},
            "no node is in such a domain",
            id="required",
        ),
    ],
)
@pytest.mark.parametrize("size", [pytest.param(2, id="sized"), pytest.param(None, id="no size")])
def test_a_domain_that_no_level_is_called_is_warned_about(keys, effect, size):
    """A typing error would have no effect, or keep the group waiting before it is complete."""
    answer = GroupScene().filter("a", size=size, **keys)
    (warning,) = answer.warnings
    assert warning == (
        "annotation coterie.gpu/group-domain is 'leef', which names no level of this cluster's "
        f"domains, so that {effect}: expected one of leaf, any"
    )


def test_an_explanation_warns_of_such_a_domain_too():
    """A manifest is mostly tried with `explain` first."""
    scene = GroupScene()
    body = json.dumps(scene.manifest("a", group_domain="leef")).encode()
    answer = json.loads(scene.gateway.handle(VerbCalled(Verb.EXPLAIN, body, scene.now_s)).body)
    (warning,) = answer["warnings"]
    assert warning.startswith("annotation coterie.gpu/group-domain is 'leef', which names no level")


def test_of_a_group_of_which_no_member_is_here_all_are_missing():
    """As of a manifest."""
    scene = GroupScene()
    group = explained(scene, scene.manifest("a", size=3))
    assert (group["size"], group["n_here"], group["n_missing"]) == (3, 0, 3)
    assert explained(scene, scene.manifest("a", size=None))["n_missing"] == 0


@pytest.mark.parametrize("domain", ["any", "leaf", "region"])
def test_a_level_of_the_cluster_is_not_warned_about(domain):
    """Whether or not a node has its label."""
    assert GroupScene().filter("a", group_domain=domain).warnings == ()


def test_a_member_that_waits_is_explained_by_its_group():
    """How many of how many are here, who, and since when."""
    scene = GroupScene()
    scene.see("a", "b", size=3)
    scene.filter("a", size=3)
    assert explained(scene, scene.manifest("a", size=3)) == {
        "name": "g",
        "size": 3,
        "n_here": 2,
        "n_bound": 0,
        "n_missing": 1,
        "reason": Reason.GROUP_WAITING.value,
        "detail": "",
        "first_since_s": 100.0,
        "complete_since_s": None,
        "level": None,
        "domain": None,
        "gbytes_per_s": None,
        "least_gbytes_per_s": None,
        "limited_by": None,
        "members": [
            {"name": "pod-a", "node": None, "is_bound": False},
            {"name": "pod-b", "node": None, "is_bound": False},
        ],
    }


def test_at_most_eight_members_are_named():
    """A group may have thousands."""
    scene = GroupScene()
    uids = [f"u{i}" for i in range(12)]
    scene.see(*uids, size=20)
    group = explained(scene, scene.manifest("u0", size=20))
    assert (group["n_here"], len(group["members"])) == (12, 8)


def h100s() -> GroupScene:
    """Two nodes of eight H100 below one leaf switch."""
    nodes = [node_facts(f"h{i}", "dgx-h100") for i in range(2)]
    return GroupScene(
        *(
            leaf(
                one.name,
                "S0",
                topology=one.topology,
                allocatable=one.allocatable,
                capacity=one.capacity,
            )
            for one in nodes
        )
    )


def test_placed_members_show_the_domain_the_others_and_what_the_group_is_worth():
    """Predicted over the nodes of all, less the stated error beside it."""
    scene = h100s()
    assert all_bound(scene.place("a", "b", n_gpus=8))
    group = explained(scene, placed(scene, "a", n_gpus=8))
    assert (group["n_here"], group["n_bound"], group["n_missing"]) == (2, 2, 0)
    assert (group["level"], group["domain"], group["reason"]) == ("leaf", "S0", None)
    assert [(one["name"], one["is_bound"]) for one in group["members"]] == [
        ("pod-a", True),
        ("pod-b", True),
    ]
    assert {one["node"] for one in group["members"]} == {"h0", "h1"}
    assert group["gbytes_per_s"] == pytest.approx(469.0, abs=1)
    assert group["least_gbytes_per_s"] == pytest.approx(0.72 * group["gbytes_per_s"], abs=0.1)
    assert group["limited_by"] in {"node", "nic"}


def test_claimed_nodes_are_shown_before_anything_is_bound():
    """The group waits for nothing any more."""
    scene = h100s()
    fields: dict[str, Any] = {"n_gpus": 8}
    scene.see("a", "b", **fields)
    for uid in ("a", "b"):
        scene.filter(uid, **fields)
    scene.woken()
    group = explained(scene, scene.manifest("a", **fields))
    assert (group["n_bound"], group["reason"], group["domain"]) == (0, None, "S0")
    assert {one["node"] for one in group["members"]} == {"h0", "h1"}
    assert group["gbytes_per_s"] == pytest.approx(469.0, abs=1)


def test_a_group_is_known_by_the_plan_alone():
    """That of a pod whose annotations do not name it, as an inferred one is."""
    scene = GroupScene()
    assert all_bound(scene.place("a", "b"))
    content = placed(scene, "a")
    text = content["metadata"]["annotations"][names.PLAN]
    content["metadata"]["annotations"] = {names.PLAN: text}
    assert explained(scene, content)["name"] == "g"
    content["metadata"]["annotations"] = {names.PLAN: "{"}
    assert explained(scene, content) is None


def test_a_pod_without_a_group_has_none():
    """Its explanation is as it was."""
    assert explained(GroupScene(), pod(2)) is None


def whole(scene: GroupScene, content: dict[str, Any]) -> Any:
    """The whole explanation, which is of the declared type."""
    body = json.dumps(content).encode()
    return json.loads(scene.gateway.handle(VerbCalled(Verb.EXPLAIN, body, scene.now_s)).body)
