"""Groups in the read API: who is here and where, what they are worth, and why they wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.protocol import Reason
from extender.read_api.groups.group_json import MAX_MEMBERS
from tests.unit.extender.engines import engine
from tests.unit.extender.group_scene import GroupScene, all_bound, claim_all, leaf
from tests.unit.extender.live_world import node_facts
from tests.unit.extender.pods import args, pod
from tests.unit.extender.read_api.served import ServedReads

SPINE, LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"


class Reads:
    """The read API over a scene; its clock is the scene's."""

    def __init__(self, scene: GroupScene) -> None:
        self.scene = scene
        self.served = ServedReads(scene.gateway.engine)

    def get(self, path: str) -> Any:
        """An answer now."""
        self.served.now_s = self.scene.now_s
        return self.served.get(path)

    def group(self, name: str = "g") -> Any:
        """A group, which is the same in the list."""
        content = self.get(f"groups/default/{name}")
        assert content in self.get("groups")["items"]
        return content


def on_leaves(machine: str = "dgx-h100") -> GroupScene:
    """Two nodes of eight GPUs, each with a leaf of its own, both below one spine."""
    nodes = [node_facts(f"h{i}", machine) for i in range(2)]
    return GroupScene(
        *(
            leaf(
                one.name,
                f"S{i}",
                domains={LEAF: f"S{i}", SPINE: "P"},
                topology=one.topology,
                allocatable=one.allocatable,
                capacity=one.capacity,
            )
            for i, one in enumerate(nodes)
        )
    )


def test_members_that_are_here_and_those_that_are_missing():
    """Why they wait, since when, and for how many more."""
    scene = GroupScene()
    reads = Reads(scene)
    scene.see("b", "a", size=3)
    scene.filter("a", size=3)
    assert reads.group() == {
        "namespace": "default",
        "name": "g",
        "state": "waiting",
        "size": 3,
        "n_here": 2,
        "n_claimed": 0,
        "n_bound": 0,
        "n_missing": 1,
        "reason": Reason.GROUP_WAITING.value,
        "reason_label": "group_waiting",
        "detail": None,
        "first_since_unix_s": 100.0,
        "complete_since_unix_s": None,
        "bound_since_unix_s": None,
        "level": None,
        "domain": None,
        "n_nodes": 0,
        "n_gpus": 8,
        "gbytes_per_s": None,
        "least_gbytes_per_s": None,
        "limited_by": None,
        "members": [waiting("a"), waiting("b")],
        "members_left_out": 0,
    }


def waiting(uid: str, **changes: Any) -> dict[str, Any]:
    """A member without a node."""
    return {
        "name": f"pod-{uid}",
        "uid": uid,
        "rank": None,
        "state": "waiting",
        "node": None,
        "gpus": None,
        "size_gpus": 4,
        "since_unix_s": 100.0,
    } | changes


def test_a_complete_group_without_room_says_what_the_last_plan_found():
    """Beside since when no member is missing."""
    scene = GroupScene()
    scene.see("x", group="other", size=1)
    scene.see("a", "b", "c", "d", "e", size=5)
    for uid in "abcde":
        scene.filter(uid, size=5)
    scene.woken()
    group = Reads(scene).group()
    assert (group["state"], group["n_missing"]) == ("waiting", 0)
    assert group["reason_label"] == "group_never"
    assert group["detail"]
    assert group["complete_since_unix_s"] == 100.0


def test_a_complete_group_that_was_not_planned_yet_is_not_said_to_lack_members():
    """Filter has not said otherwise so far."""
    scene = GroupScene()
    scene.see("a", "b", size=2)
    group = Reads(scene).group()
    assert (group["n_missing"], group["reason_label"]) == (0, "group_placing")


def test_claimed_members_have_a_node_before_they_are_bound():
    """With their GPUs, the domain and what they would be worth; nothing waits."""
    scene = on_leaves()
    nodes = claim_all(scene, "a", "b", n_gpus=8)
    group = Reads(scene).group()
    assert (group["state"], group["n_claimed"], group["n_bound"]) == ("claimed", 2, 0)
    assert (group["reason"], group["level"], group["domain"]) == (None, "spine", "P")
    assert {one["uid"]: one["node"] for one in group["members"]} == nodes
    assert [one["gpus"] for one in group["members"]] == [list(range(8))] * 2
    assert group["gbytes_per_s"] == pytest.approx(469.0, abs=1)


def test_a_bound_group_is_valued_by_its_members_plans():
    """One-sided error, nearest domain that holds all, and the size that its pods said."""
    scene = on_leaves()
    reads = Reads(scene)
    reads.get("cluster")
    scene.pass_s(5.0)
    assert all_bound(scene.place("a", "b", n_gpus=8))
    group = reads.group()
    assert (group["state"], group["size"], group["n_bound"]) == ("bound", 2, 2)
    assert (group["n_nodes"], group["n_gpus"], group["n_missing"]) == (2, 16, 0)
    assert (group["level"], group["domain"]) == ("spine", "P")
    assert group["gbytes_per_s"] == pytest.approx(469.0, abs=1)
    assert group["least_gbytes_per_s"] == pytest.approx(0.72 * group["gbytes_per_s"], abs=0.1)
    assert group["limited_by"] in {"node", "nic"}
    assert group["bound_since_unix_s"] == 105.0
    assert [one["since_unix_s"] for one in group["members"]] == [105.0, 105.0]
    scene.pass_s(60.0)
    assert reads.group()["bound_since_unix_s"] == 105.0


def test_members_that_were_bound_before_the_first_look_have_no_time():
    """Unknown is not zero."""
    scene = on_leaves()
    scene.place("a", "b", n_gpus=8)
    group = Reads(scene).group()
    assert group["bound_since_unix_s"] is None
    assert [one["since_unix_s"] for one in group["members"]] == [None, None]


def test_the_domain_is_unknown_where_a_node_has_no_labels():
    """Unknown is not near."""
    scene = GroupScene(leaf("n0", "S0"), leaf("n1", "S0", domains={}))
    scene.place("a", "b")
    group = Reads(scene).group()
    assert (group["n_nodes"], group["level"], group["domain"]) == (2, None, None)


def test_a_label_that_comes_later_changes_the_group():
    """Its members have not changed, their nodes have."""
    scene = GroupScene(leaf("n0", "S0", domains={}), leaf("n1", "S0"))
    reads = Reads(scene)
    scene.place("a", "b")
    assert reads.group()["domain"] is None
    scene.gateway.cluster.update_node(leaf("n0", "S0"))
    assert (reads.group()["level"], reads.group()["domain"]) == ("leaf", "S0")


def test_a_replacement_waits_beside_bound_members():
    """The others keep their nodes; the group is as far as its last member."""
    scene = GroupScene()
    reads = Reads(scene)
    scene.place("a", "b")
    scene.see("c", size=3)
    scene.filter("c", "nowhere", size=3)
    group = reads.group()
    states = {one["uid"]: one["state"] for one in group["members"]}
    assert states == {"a": "bound", "b": "bound", "c": "waiting"}
    assert group["members"][0]["uid"] == "c"
    assert (group["state"], group["n_here"], group["n_bound"]) == ("waiting", 3, 2)
    assert (group["level"], group["domain"]) == ("leaf", "S0")


def test_members_are_in_the_order_of_their_ranks():
    """Pods of an Indexed Job, whatever their names."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 2}))
    for uid, index in (("x", "1"), ("y", "0"), ("z", "2")):
        member = pod(1, uid=uid, group="job", group_size="4")
        member["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = index
        served.call("/filter", method="POST", content=args(member, ["8x-l4-0"]))
    (group,) = served.get("groups")["items"]
    assert [(one["uid"], one["rank"]) for one in group["members"]] == [("y", 0), ("x", 1), ("z", 2)]


def test_a_group_without_a_size_has_members_with_and_without_a_node():
    """They wait for no other: each has its own reason, and the first one's is shown."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 1}))
    served.place(6, "a", "8x-l4-0", group="free")
    served.now_s = 1010.0
    served.filter(4, "b", ["8x-l4-0"], group="free")
    group = served.get("groups/default/free")
    assert (group["size"], group["n_here"], group["n_bound"], group["n_missing"]) == (None, 2, 1, 0)
    assert (group["state"], group["reason_label"]) == ("waiting", "not_enough_free")
    assert group["first_since_unix_s"] == 1010.0
    assert group["members"][0] == waiting("b", since_unix_s=1010.0)
    assert group["members"][1]["node"] == "8x-l4-0"


def test_a_group_ends_with_its_last_member():
    """404 says so."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 1}))
    served.place(2, "a", "8x-l4-0", group="short")
    assert served.get("groups")["items"]
    served.end("a")
    assert served.get("groups")["items"] == []
    gone = served.call("/api/v1/groups/default/short")
    assert gone.status_code == 404
    assert gone.json()["detail"] == "group default/short has no member that is known"


def test_groups_are_listed_by_name_in_pages_and_filtered():
    """By namespace and by state; an unknown state is refused."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 2}))
    for uid, name in (("a", "c"), ("b", "a"), ("c", "b")):
        served.place(1, uid, "8x-l4-0", group=name)
    served.filter(1, "d", ["8x-l4-0"], group="d", group_size="2")
    whole = served.get("groups")["items"]
    assert [one["name"] for one in whole] == ["a", "b", "c", "d"]
    first = served.get("groups?limit=3")
    rest = served.get(f"groups?limit=3&continue={first['continue']}")
    assert first["items"] + rest["items"] == whole
    assert (first["remaining"], rest["remaining"], rest["continue"]) == (1, 0, None)
    assert [one["name"] for one in served.get("groups?state=waiting")["items"]] == ["d"]
    assert served.get("groups?namespace=default")["items"] == whole
    assert served.get("groups?namespace=def")["items"] == []
    assert served.call("/api/v1/groups?state=other").status_code == 400


def test_an_answer_that_the_client_has_is_not_sent_again():
    """Until a member comes, which changes no generation."""
    scene = GroupScene()
    reads = Reads(scene)
    scene.see("a", size=3)
    for path in ("groups", "groups/default/g"):
        tag = reads.served.call(f"/api/v1/{path}").headers["etag"]
        assert reads.served.call(f"/api/v1/{path}", if_none_match=tag).status_code == 304
        scene.see(path[-1], size=3)
        assert reads.served.call(f"/api/v1/{path}", if_none_match=tag).status_code == 200


def test_a_stream_names_the_groups_that_changed():
    """Those that came, that changed and that went; not the others."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 2}))
    served.place(1, "a", "8x-l4-0", group="stays")
    served.place(1, "b", "8x-l4-0", group="ends")

    async def go() -> bytes:
        client = await served.api.changes.open()
        assert client is not None
        client.take()
        served.end("b")
        served.engine.answer(*served.filter_call(1, "c", ["8x-l4-1"], group="comes"), 0.0)
        served.engine.answer(*served.bind_call("c", "8x-l4-1"), 0.0)
        await served.api.changes.look()
        return client.take()

    assert b'"groups":["default/comes","default/ends"]' in asyncio.run(go())


def test_a_node_names_its_domains_and_each_gpus_group():
    """The nearest domain first; the group is in the pod's namespace."""
    scene = on_leaves()
    scene.place("a", "b", n_gpus=8)
    node = Reads(scene).get("nodes/h0")
    assert node["domains"] == [
        {"level": "leaf", "family": "topograph-former", "name": "S0"},
        {"level": "spine", "family": "topograph-former", "name": "P"},
    ]
    assert {gpu["group"] for gpu in node["gpus"]} == {"g"}


def test_the_members_listed_are_bounded():
    """Those that are left out are counted."""
    scene = GroupScene()
    scene.see(*(f"u{i:04}" for i in range(MAX_MEMBERS + 3)), size=MAX_MEMBERS + 10)
    group = Reads(scene).group()
    assert (len(group["members"]), group["members_left_out"]) == (MAX_MEMBERS, 3)
    assert (group["n_here"], group["n_missing"]) == (MAX_MEMBERS + 3, 7)


def test_the_value_is_unknown_where_the_nics_are():
    """Over two nodes it is the network that decides."""
    scene = on_leaves("8x-l4")
    scene.place("a", "b", n_gpus=8)
    group = Reads(scene).group()
    assert (group["state"], group["n_nodes"]) == ("bound", 2)
    figures = group["gbytes_per_s"], group["least_gbytes_per_s"], group["limited_by"]
    assert figures == (None, None, None)


def test_a_pod_counts_once_while_its_list_is_behind():
    """One that filter rejected and that no watch has shown, and one that is bound meanwhile."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 1}))
    served.filter(4, "a", ["nowhere"], group="g")
    served.place(4, "a", "8x-l4-0", group="g")
    group = served.get("groups/default/g")
    assert (group["n_here"], group["n_bound"]) == (1, 1)


def test_a_size_is_forgotten_with_the_requests_of_its_members():
    """After a restart only plans are known, which have none; nor is a size that counts others."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 1}))
    served.place(4, "a", "8x-l4-0", group="g", group_size="1")
    assert served.get("groups/default/g")["size"] == 1
    served.engine.pending.recall = lambda *_: None  # type: ignore[method-assign]  # 10,000 pods later
    assert served.get("groups/default/g")["size"] == 1
    fresh = ServedReads(served.engine)
    assert fresh.get("groups/default/g")["size"] is None


@pytest.mark.parametrize("slash", ["/", "%2F"])
def test_a_group_may_have_a_slash_in_its_name(slash):
    """Those of a LeaderWorkerSet's replicas and inferred ones; their page blamed the version."""
    served = ServedReads(engine({"machine": "8x-l4", "count": 1}))
    content = pod(4, uid="a", group="g", group_size="1")
    lws = "leaderworkerset.sigs.k8s.io/"
    content["metadata"]["labels"] = {f"{lws}group-key": "0a1b"}
    content["metadata"]["annotations"][f"{lws}size"] = "1"
    served.call("/filter", method="POST", content=args(content, ["8x-l4-0"]))
    assert served.get(f"groups/default/g{slash}0a1b")["n_here"] == 1
