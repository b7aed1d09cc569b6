"""Kubernetes' own groups: what members of one scheduling cycle are answered, and get at bind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.bind import BindCall, WriteBinding
from extender.decision_log.replay import replay as replayed
from extender.engine.events import FreshnessSet, NominationUpdated, PodDeleted, PodUpdated
from extender.protocol import Outcome, Reason, Verb
from tests.unit.extender.engines import RULES, answer_of, engine, owned
from tests.unit.extender.feeds import facts, ids, plan_of, whole
from tests.unit.extender.group_scene import GroupScene
from tests.unit.extender.pods import args, binding, container, pod
from topology.annotations import decode_plan
from topology.model import names as keys

if TYPE_CHECKING:
    from extender.groups import PodGroups

NVLINK = {"affinity": "nvlink", "policy": "required"}


@pytest.fixture
def scene() -> GroupScene:
    """Two leaves of two nodes with four GPUs each."""
    return GroupScene()


def member(uid: str, n_gpus: int = 4, group: str = "train", **more: Any) -> dict[str, Any]:
    """A pod of a PodGroup."""
    made = pod(n_gpus, uid=uid, **more)
    made["spec"]["schedulingGroup"] = {"podGroupName": group}
    return made


def ask(scene: GroupScene, uid: str, *offered: str, n_gpus: int = 4, **more: Any) -> str | None:
    """The node that filter names; None where it refuses."""
    found = json.loads(scene.call(member(uid, n_gpus, **more), *offered).body)
    assert found["Error"] == ""
    assert len(found["NodeNames"]) <= 1
    return found["NodeNames"][0] if found["NodeNames"] else None


def devices(step: Any) -> set[str]:
    """Those of the plan that is written."""
    assert isinstance(step, WriteBinding)
    return set(decode_plan(step.annotations[keys.PLAN]).ids)


def test_each_member_is_answered_another_place_near_the_others(scene):
    """One node alone, or it were not known where kube-scheduler counts it."""
    first = ask(scene, "a")
    second = ask(scene, "b")
    assert {first, second} in ({"n0", "n1"}, {"n2", "n3"})
    assert ask(scene, "c", n_gpus=2) is not None
    assert replayed(scene.lines).difference is None


def test_a_node_is_shared_until_it_is_full(scene):
    """Kubernetes offers it still, where it counts no GPUs."""
    assert ask(scene, "a", n_gpus=2) == ask(scene, "b", n_gpus=2)
    first = ask(scene, "c", n_gpus=2)
    assert first != ask(scene, "d", "n0", "n1", n_gpus=4)


def test_nothing_is_claimed_by_a_cycle(scene):
    """It may be thrown away: every other pod is answered as without it."""
    before = scene.call(pod(4, uid="x")).body
    for uid in "abcd":
        ask(scene, uid)
    assert ask(scene, "e") is None
    assert scene.call(pod(4, uid="x")).body == before
    assert ask(scene, "other", group="eval") is not None


def test_a_member_that_is_called_again_begins_another_run(scene):
    """Each placement of a topology constraint is simulated from the first member on."""
    for rack in (("n0", "n1"), ("n2", "n3"), ("n0", "n1")):
        assert {ask(scene, "a", *rack), ask(scene, "b", *rack)} == set(rack)
        assert ask(scene, "c", *rack) is None
    assert ask(scene, "a", "n0") == "n0"


def test_a_nominated_node_that_is_refused_ends_no_run(scene):
    """Then kube-scheduler calls for the same member with all nodes."""
    assert ask(scene, "a", "n0") == "n0"
    assert ask(scene, "b", "n0") is None
    assert ask(scene, "b", "n0", "n1") == "n1"


def test_the_first_bind_keeps_the_devices_of_all(scene):
    """Binds come in any order, and other pods between them."""
    nodes = {uid: str(ask(scene, uid, n_gpus=2)) for uid in "abc"}
    step = scene.begin("b", nodes["b"])
    other = scene.call(pod(4, uid="x"))
    assert set(json.loads(other.body)["NodeNames"]) == set(scene.names) - set(nodes.values())
    steps = {"b": step} | {uid: scene.begin(uid, nodes[uid]) for uid in "ca"}
    assert len(set.union(*(devices(one) for one in steps.values()))) == 6
    assert all(scene.end(one).outcome is Outcome.OK for one in steps.values())
    assert scene.gateway.engine.pod_groups.n_members == 0
    assert ask(scene, "d", n_gpus=2) in nodes.values()
    assert replayed(scene.lines).difference is None


def test_nothing_is_kept_from_stale_state(scene):
    """The API server is away while the group binds: no devices are kept for its members."""
    nodes = {uid: str(ask(scene, uid)) for uid in "ab"}
    before = scene.gateway.cluster.counts()
    stale = FreshnessSet(is_synced=True, observed_at_s=scene.now_s - RULES.staleness_bound_s - 1)
    scene.gateway.handle(stale)
    refused = scene.begin("a", nodes["a"])
    assert (refused.outcome, refused.reason) == (Outcome.FAILED, Reason.STALE)
    scene.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=scene.now_s))
    assert scene.gateway.cluster.counts() == before
    steps = [scene.begin(uid, nodes[uid]) for uid in "ba"]
    assert len(set.union(*map(devices, steps))) == 8
    assert replayed(scene.lines).difference is None


def test_the_run_that_was_chosen_is_known_by_its_node(scene):
    """Not the last one that was simulated."""
    for rack in (("n0", "n1"), ("n2", "n3")):
        ask(scene, "a", *rack)
        ask(scene, "b", *rack)
    scene.begin("b", "n1")
    assert [scene.free(name) for name in scene.names] == [0, 0, 4, 4]


def test_a_bind_that_no_run_explains_is_that_of_any_pod(scene):
    """As after a restart of the extender."""
    ask(scene, "a", "n0")
    assert scene.end(scene.begin("a", "n3")).outcome is Outcome.OK
    assert [scene.free(name) for name in scene.names] == [4, 4, 4, 0]


def test_members_that_are_being_bound_count_in_the_next_cycle(scene):
    """A group may pass with fewer members than it has; the others are tried at once."""
    two = "n0", "n1"
    assert (ask(scene, "a", *two), ask(scene, "b", *two, n_gpus=5)) == ("n0", None)
    assert ask(scene, "c", *two) == "n1"
    assert ask(scene, "b", *two, n_gpus=2) is None  # and c counts, which was called after it
    scene.pass_s(RULES.assume_s / 2)
    assert ask(scene, "b", *two, n_gpus=2) is None
    scene.pass_s(RULES.assume_s / 2)
    assert ask(scene, "b", *two, n_gpus=2) is not None


def test_a_late_bind_does_not_part_the_cycle_that_is_running(scene):
    """Volumes take long to bind; the group's other members are tried meanwhile."""
    assert ask(scene, "a", "n0") == "n0"
    assert (ask(scene, "b", "n0"), ask(scene, "c", "n0")) == (None, None)
    assert ask(scene, "b", "n0", "n1") == "n1"
    scene.begin("a", "n0")
    assert ask(scene, "c", "n1") is None
    assert replayed(scene.lines).difference is None


class TestNominated:
    """A group that evicted pods: kube-scheduler nominates its members and tries these nodes."""

    @staticmethod
    def nominate(scene: GroupScene, uid: str, node: str, n_gpus: int = 2) -> None:
        """The watch shows where a member is nominated."""
        pending = whole(uid, None, body=member(uid, n_gpus), phase="Pending")
        scene.gateway.handle(NominationUpdated(replace(pending, nominated_node=node)))

    def test_nominated_siblings_count_once(self, scene):
        """Else each second member is refused, and in-tree preemption evicts more pods for it."""
        for uid in "ab":
            self.nominate(scene, uid, "n0")
        assert ask(scene, "x", "n0", n_gpus=2, group="eval") is None
        assert [ask(scene, uid, "n0", n_gpus=2) for uid in "ab"] == ["n0", "n0"]
        assert ask(scene, "c", "n0", n_gpus=2) is None
        steps = [scene.begin(uid, "n0") for uid in "ba"]
        assert len(set.union(*(devices(one) for one in steps))) == 4
        assert all(scene.end(one).outcome is Outcome.OK for one in steps)
        assert replayed(scene.lines).difference is None

    def test_a_nomination_of_a_sibling_that_is_yet_to_be_called_for_stands(self, scene):
        """kube-scheduler counts it too."""
        self.nominate(scene, "b", "n0")
        assert ask(scene, "a", "n0") is None
        assert ask(scene, "b", "n1", n_gpus=2) == "n1"
        assert ask(scene, "c", "n0") == "n0"

    def test_devices_are_kept_for_siblings_that_are_nominated_elsewhere(self, scene):
        """Each goes where this cycle has it."""
        for uid, node in (("a", "n0"), ("b", "n1")):
            self.nominate(scene, uid, node, n_gpus=4)
        assert ask(scene, "b", "n0", "n1") == "n1"
        assert ask(scene, "a", "n0") == "n0"
        scene.begin("a", "n0")
        assert [scene.free(name) for name in ("n0", "n1")] == [0, 0]


def test_one_behind_another_that_is_left_out_shows_that_the_cycle_passed(scene):
    """What it was answered before is void then."""
    two = "n0", "n1"
    assert ask(scene, "a", *two, n_gpus=5) is None
    assert (ask(scene, "b", *two), ask(scene, "c", *two)) == ("n0", "n1")
    assert ask(scene, "a", *two, n_gpus=5) is None
    assert ask(scene, "c", *two) == "n1"
    assert ask(scene, "d", *two) is None


def test_devices_that_were_kept_are_given_back(scene):
    """By the next filter call for the member, with its end, or with time."""

    def keep() -> None:
        nodes = {uid: str(ask(scene, uid)) for uid in "ab"}
        answer = scene.end(scene.begin("a", nodes["a"]), is_accepted=False)
        assert answer.outcome is Outcome.FAILED

    free = [4, 4, 4, 4]
    for end in (
        lambda: ask(scene, "b"),
        lambda: scene.gateway.handle(PodDeleted("b")),
        lambda: scene.pass_s(RULES.assume_s),
    ):
        keep()
        assert sum(scene.free(name) for name in scene.names) == 12
        end()
        assert [scene.free(name) for name in scene.names] == free


def test_devices_that_others_took_meanwhile_fail_one_member_alone(scene):
    """It is tried again; the others are bound."""
    nodes = {uid: str(ask(scene, uid, "n0", n_gpus=2)) for uid in "ab"}
    scene.gateway.handle(PodUpdated(facts("x", plan_of("n0", *ids("n0")[:2]))))
    assert scene.end(scene.begin("b", nodes["b"])).outcome is Outcome.OK
    failed = scene.begin("a", nodes["a"])
    assert failed.outcome is Outcome.FAILED
    assert ask(scene, "a", "n0", "n1", n_gpus=2) == "n1"


def test_a_pod_that_moves_to_another_group_counts_there_alone(scene):
    """A pod of the same uid cannot, but a body may say anything."""
    assert ask(scene, "a", "n0", group="one") == "n0"
    assert ask(scene, "a", "n0", group="two") == "n0"
    assert ask(scene, "b", "n0", group="one") == "n0"


def test_a_node_that_is_gone_counts_nothing(scene):
    """Nor is anything kept there."""
    nodes = {uid: str(ask(scene, uid)) for uid in "ab"}
    scene.gateway.cluster.delete_node(nodes["a"])
    assert ask(scene, "c") not in {None, *nodes.values()}
    scene.begin("b", nodes["b"])
    assert scene.gateway.cluster.pods.get("a") is None


def test_groups_are_forgotten_with_time_and_in_number(scene):
    """Whoever asks, memory is bounded."""
    pod_groups: PodGroups = scene.gateway.engine.pod_groups
    for number in range(300):
        ask(scene, f"u{number}", "n0", group=f"g{number}")
    assert pod_groups.n_members == 256
    scene.pass_s(RULES.assume_s)
    assert pod_groups.n_members == 0


def test_pods_that_are_replaced_while_they_wait_are_forgotten(scene):
    """No watch shows these, and a group that does not fit is tried for days."""
    pod_groups: PodGroups = scene.gateway.engine.pod_groups
    for number in range(20):
        ask(scene, "stays")
        ask(scene, f"u{number}", n_gpus=5)
        scene.pass_s(RULES.assume_s / 2)
    assert pod_groups.n_members <= 3
    assert replayed(scene.lines).difference is None


class TestJointSets:
    """Sets on one V100 machine, where GPUs 1 and 2 have the faster of the links of four."""

    @staticmethod
    def machine(*unhealthy: int) -> Any:
        """One machine."""
        group = {"count": 1, "machine": "dgx-1-v100", "unhealthy": list(unhealthy)}
        return engine(group)

    @staticmethod
    def named(one: Any, content: dict[str, Any]) -> list[str]:
        """The nodes that filter names."""
        body = args(content, list(one.cluster.snapshot.nodes))
        return list(answer_of(one, Verb.FILTER, body)["NodeNames"])

    @pytest.mark.parametrize("prefer", [{}, {"prefer": "balanced"}, {"prefer": "fastest"}])
    def test_two_that_fit_only_jointly_are_answered_and_bound(self, prefer):
        """The first one alone would take the pair in the middle, whatever nodes one prefers."""
        one = self.machine(3, 4, 6, 7)
        (node,) = self.named(one, member("a", 2, **NVLINK))
        assert self.named(one, member("b", 2, **NVLINK, **prefer)) == [node]
        for uid in "ba":
            assert one.answer(Verb.BIND, binding(uid, node), 0.0).outcome is Outcome.OK
        assert set(owned(one.cluster, "a")) & set(owned(one.cluster, "b")) == set()

    def test_two_that_do_not_fit_are_not_both_answered(self):
        """By count both would."""
        one = self.machine(3, 4, 5, 6)
        assert self.named(one, member("a", 2, **NVLINK))
        refused = one.answer(
            Verb.FILTER, args(member("b", 2, **NVLINK), list(one.cluster.snapshot.nodes)), 0.0
        )
        assert refused.reason is Reason.AFFINITY_TAKEN

    def test_members_that_wish_different_things_are_placed_in_turn(self):
        """The last one first where the order of the cycle does not do."""
        one = self.machine(3, 4, 6, 7)
        assert self.named(one, member("a", 2))
        assert self.named(one, member("b", 2, **NVLINK))

    def test_members_with_init_containers_are_placed_in_turn(self):
        """They hand their GPUs on, which the containers of one pod would do among all."""
        one = self.machine(3, 4, 6, 7)
        contents = [member(uid, 2, **NVLINK) for uid in "ab"]
        for content in contents:
            content["spec"]["initContainers"] = [container("warm", 1)]
        assert self.named(one, contents[0])
        assert not self.named(one, contents[1])

    def test_without_topology_gpus_are_counted(self):
        """The kubelet chooses there."""
        one = engine({"count": 1, "devices": 4})
        nodes = [self.named(one, member(uid, 2)) for uid in "abc"]
        assert nodes[0] == nodes[1] != []
        assert nodes[2] == []
        for uid in "ab":
            call = BindCall.decode(binding(uid, nodes[0][0]))
            assert one.answer(Verb.BIND, call.body, 0.0).outcome is Outcome.OK
