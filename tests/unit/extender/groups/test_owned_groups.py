"""Groups whose size a Job says: nothing before it was read, and what came of that afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.decision_log.replay import replay
from extender.embedded import make_engine, parse_cluster
from extender.engine import Gateway
from extender.engine.events import (
    BindPodRead,
    NodesListed,
    OwnerRead,
    PendingGone,
    PodFetched,
    PodGone,
    PodSeen,
    PreemptRequested,
    VerbCalled,
)
from extender.groups.members.owner_sizes import AGAIN_S, KEPT_S, OLD_S, RECHECK_S
from extender.protocol import GroupOwner, Outcome, Reason, Verb
from kube.objects import ObjectKey
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import bare, facts, whole
from tests.unit.extender.group_scene import GroupScene, all_bound, as_json
from tests.unit.extender.pods import args, pod

if TYPE_CHECKING:
    from kube.objects import PodObject

OWNER = GroupOwner("indexed-job", "default", "train", "0123456789")
KEY = "default", "indexed-job/train/01234567"


class JobPods(GroupScene):
    """Pods of a Job, without any annotation of Coterie's."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(group_kinds=("indexed-job",), **rules)

    def labels(self, uid: str, job: str = OWNER.name) -> dict[str, str]:
        """As the Job's controller labels them: `w3` has the index 3."""
        prefix = "batch.kubernetes.io/"
        return {
            f"{prefix}job-name": job,
            f"{prefix}controller-uid": OWNER.uid,
            f"{prefix}job-completion-index": uid[1:],
        }

    def manifest(
        self, uid: str, group: str = "", size: int | None = None, n_gpus: int = 4, **more: Any
    ) -> dict[str, Any]:
        """A pod's JSON."""
        del group, size
        labels = self.labels(uid, more.pop("job", OWNER.name))
        made = pod(n_gpus or None, uid=uid, **more)
        made["metadata"]["labels"] |= labels
        return made

    def pending(
        self, uid: str, group: str = "", size: int | None = None, n_gpus: int = 4, **more: Any
    ) -> PodObject:
        """The same as the watch of pending pods shows it."""
        body = self.manifest(uid, group, size, n_gpus, **more)
        return whole(
            uid, None, body=body, phase="Pending", labels=body["metadata"]["labels"], annotations={}
        )

    def read(self, size: int | None, owner: GroupOwner = OWNER) -> None:
        """The Job is read."""
        self.gateway.handle(OwnerRead(owner, size, self.now_s))

    def plan_text(self, uid: str) -> str:
        """The plan of a pod that is bound."""
        bound = self.gateway.cluster.bound(uid)
        assert bound is not None
        return bound.plan_text or ""

    def wanted(self) -> list[GroupOwner]:
        """What is to be read now."""
        return list(self.groups.owned.take_wanted(self.now_s))

    def tried(self, *uids: str) -> list[Reason | None]:
        """What filter answers, once what is due was planned."""
        self.woken()
        return [self.filter(uid).reason for uid in uids]


@pytest.fixture
def scene() -> JobPods:
    """Two pods of a Job that was not read."""
    made = JobPods()
    made.see("w0", "w1")
    for uid in ("w0", "w1"):
        made.filter(uid)
    return made


def test_pods_wait_until_their_job_is_read(scene):
    """Two of four must not start because nothing is known yet; with two of two they do at once."""
    assert scene.tried("w0", "w1") == [Reason.GROUP_WAITING] * 2
    status = scene.groups.readings.status(KEY)
    assert (status.size, status.n_here, status.detail) == (None, 2, "its size is not read yet")
    assert scene.groups.readings.counts(KEY) == (2, 0, 0)
    scene.read(2)
    assert scene.tried("w0", "w1") == [None, None]
    assert scene.groups.readings.counts(KEY) == (2, 0, 2)
    assert replay(scene.lines).difference is None


def test_all_of_them_are_waited_for(scene):
    """The size that was read holds for pods that come later, whoever shows them first."""
    scene.read(3)
    assert scene.tried("w0", "w1") == [Reason.GROUP_WAITING] * 2
    assert scene.filter("w2").reason is Reason.GROUP_WAITING
    scene.see("w2")
    assert scene.tried("w0", "w1", "w2") == [None] * 3
    nodes = {uid: str(scene.node_of(uid)) for uid in ("w0", "w1", "w2")}
    steps = [scene.begin(uid, on) for uid, on in nodes.items()]
    assert all_bound([scene.end(step) for step in steps])
    group = json.loads(scene.plan_text("w2"))["group"]
    assert (group["name"], group["rank"]) == (KEY[1], 2)
    assert replay(scene.lines).difference is None


def test_pods_that_are_no_group_are_placed_alone_and_woken(scene):
    """kube-scheduler would leave them alone for minutes, but for one that it has not tried yet."""
    scene.see("w2")
    scene.read(None)
    assert sorted(scene.woken()) == ["w0", "w1"]
    assert scene.woken() == []
    assert scene.tried("w0", "w1", "w2") == [None] * 3
    assert scene.groups.readings.counts(KEY) == (0, 0, 0)
    scene.see("w3")
    assert scene.filter("w3").n_named == len(scene.names)
    assert replay(scene.lines).difference is None


def test_the_last_members_that_wait_are_woken_when_they_are_no_group(scene):
    """After a start nothing else may wait: kube-scheduler tried them before, and filter did not."""
    scene.woken()
    scene.relist("w0", "w1")
    scene.woken()
    scene.read(None)
    assert scene.woken() == ["w0", "w1"]
    assert scene.woken() == []
    assert replay(scene.lines).difference is None


def test_pods_whose_siblings_were_placed_alone_never_wait_for_these(scene):
    """The Job may be readable later: two of four would then wait for two that have nodes."""
    scene.read(None)
    scene.read(4)
    assert scene.tried("w0", "w1") == [None, None]


def test_a_size_that_was_read_stays_where_a_later_read_fails(scene):
    """Else half a job would start because the API server was away."""
    scene.read(3)
    scene.read(None)
    assert scene.tried("w0") == [Reason.GROUP_WAITING]
    scene.read(2)
    assert scene.tried("w0", "w1") == [None, None]


def test_a_job_is_read_once_for_all_its_pods(scene):
    """However often they are shown or tried meanwhile."""
    assert scene.wanted() == [OWNER]
    scene.see("w2", "w3")
    scene.filter("w2")
    assert scene.wanted() == []
    scene.read(4)
    scene.pass_s(AGAIN_S)
    scene.filter("w0")
    assert scene.wanted() == []


def test_it_is_read_again_where_its_pods_change(scene):
    """A lower parallelism deletes pods: the others would wait for them for ever."""
    scene.wanted()
    scene.read(4)
    scene.pass_s(AGAIN_S - 1.0)
    scene.gateway.handle(PendingGone("w1"))
    assert scene.wanted() == []
    scene.pass_s(1.0)
    assert scene.wanted() == [OWNER]
    scene.see("w2")
    assert scene.wanted() == []  # it is being read
    scene.read(4)
    scene.pass_s(AGAIN_S)
    assert scene.wanted() == [OWNER]


def test_it_is_read_again_after_a_while_where_pods_still_wait(scene):
    """The size of a PodGroup may change, and no pod with it."""
    scene.wanted()
    scene.read(4)
    scene.pass_s(OLD_S)
    assert scene.wanted() == []
    scene.filter("w0")
    assert scene.wanted() == [OWNER]


def test_it_is_not_read_again_for_pods_that_have_their_nodes(scene):
    """Nothing waits for what it says."""
    scene.wanted()
    scene.read(3)
    scene.pass_s(AGAIN_S)
    for uid in ("w0", "w1"):
        scene.gateway.handle(PendingGone(uid))
    assert scene.wanted() == []


def test_what_was_read_is_kept_while_pods_wait_or_come(scene):
    """And forgotten afterwards: a Job that is created again has another uid."""
    scene.wanted()
    scene.read(3)
    scene.pass_s(2 * KEPT_S)
    assert scene.groups.readings.counts(KEY) == (2, 0, 3)
    for uid in ("w0", "w1"):
        scene.gateway.handle(PendingGone(uid))
    scene.pass_s(KEPT_S)
    scene.see("w4")
    assert scene.wanted() == [OWNER]


def test_a_reading_of_a_forgotten_job_changes_nothing(scene):
    """It may come late, or never have been wanted."""
    scene.read(2, replace(OWNER, name="other"))
    assert scene.tried("w0") == [Reason.GROUP_WAITING]
    assert scene.groups.owned.first_member(replace(OWNER, name="other")) is None


def test_jobs_without_waiting_pods_are_kept_up_to_a_number(monkeypatch):
    """A cluster may have had millions."""
    monkeypatch.setattr("extender.groups.members.owner_sizes.MAX_KEPT", 100)
    scene = JobPods()
    for i in range(102):
        uid = f"w{i}"
        request = scene.pending(uid, job=f"j{i}")
        scene.gateway.handle(scene.seen(request))
        scene.gateway.handle(PendingGone(uid))
    scene.pass_s(0.0)
    assert len(scene.wanted()) == 100


def test_pods_of_two_jobs_of_one_name_are_two_groups(scene):
    """One is being deleted while the other is created."""
    other = scene.manifest("w0")
    other["metadata"]["uid"] = "x0"
    other["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "fedcba98"
    assert scene.call(other).reason is Reason.GROUP_WAITING
    scene.read(2)
    assert scene.call(other).reason is Reason.GROUP_WAITING
    assert scene.tried("w0", "w1") == [None, None]


def test_members_that_were_placed_without_the_group_are_not_missing(scene):
    """Before the setting named the kind, or while the right was missing."""
    marks = scene.labels("w2")
    plan = alone_on(scene.names[3])
    scene.gateway.handle(PodSeen(replace(facts("w2"), plan=plan, group_marks=marks)))
    scene.gateway.handle(PodSeen(facts("w3", may_request=False, group_marks=marks)))
    scene.read(4)
    assert scene.tried("w0", "w1") == [Reason.GROUP_WAITING] * 2
    scene.read(3)
    assert scene.tried("w0", "w1") == [None, None]


def test_a_job_is_read_again_where_such_a_member_ends(scene):
    """It may have ended well, so that the Job creates no other."""
    plan, marks = alone_on(scene.names[3]), scene.labels("w2")
    scene.gateway.handle(PodSeen(replace(facts("w2"), plan=plan, group_marks=marks)))
    scene.wanted()
    scene.read(4)
    scene.pass_s(AGAIN_S)
    assert scene.wanted() == []
    scene.gateway.handle(PodGone("w2"))
    scene.gateway.handle(PodGone("other"))
    assert scene.wanted() == [OWNER]
    scene.read(2)
    assert scene.tried("w0", "w1") == [None, None]


def alone_on(node: str) -> str:
    """The plan of a pod of the Job that was placed without a group."""
    scene = JobPods()
    scene.see("w2")
    scene.read(None)
    scene.filter("w2", node)
    assert all_bound([scene.end(scene.begin("w2", node))])
    return scene.plan_text("w2")


def test_no_pod_is_evicted_for_a_group_whose_size_is_not_known(scene):
    """It may be one of many; one that is none preempts as every pod."""
    body = as_json({"Pod": scene.manifest("w0"), "NodeNameToMetaVictims": {"n0": {"Pods": []}}})
    answer = scene.gateway.handle(PreemptRequested(body, scene.now_s))
    assert answer.reason is Reason.GROUP_UNDECIDED
    scene.read(None)
    after = scene.gateway.handle(PreemptRequested(body, scene.now_s))
    assert getattr(after, "reason", None) is not Reason.GROUP_UNDECIDED


def test_a_bind_that_reads_the_pod_knows_whether_it_has_a_group():
    """Filter was called on another replica, or before a restart."""
    scene = JobPods()
    scene.see("w0")
    scene.read(None)
    step = scene.begin("w0", scene.names[0])
    step = scene.gateway.handle(BindPodRead(step, as_json(scene.manifest("w0")), scene.now_s))
    assert scene.end(step).outcome is Outcome.OK
    assert "group" not in json.loads(scene.plan_text("w0"))


def test_an_explanation_says_what_is_known(scene):
    """It reads, and asks for nothing to be read."""

    def explained(uid: str) -> Any:
        body = as_json(scene.manifest(uid))
        return json.loads(scene.gateway.handle(VerbCalled(Verb.EXPLAIN, body, scene.now_s)).body)

    assert explained("w0")["group"]["size"] is None
    assert explained("w0")["group"]["detail"] == "its size is not read yet"
    scene.read(3)
    assert explained("w0")["group"]["size"] == 3


def test_the_first_member_is_the_one_that_is_written_about(scene):
    """While it is not known what its group is."""
    assert scene.groups.owned.first_member(OWNER) == ObjectKey("default", "pod-w0", "w0")
    scene.read(3)
    assert scene.groups.owned.first_member(OWNER) is None


def test_without_a_reader_such_pods_have_no_group():
    """An embedded cluster has no Jobs."""
    rules = replace(RULES, group_kinds=("indexed-job",))
    gateway = Gateway(make_engine(parse_cluster("1x dgx-h100"), rules))
    (name,) = gateway.cluster.snapshot.nodes
    body = args(JobPods().manifest("w0"), [name])
    assert gateway.handle(VerbCalled(Verb.FILTER, body, 0.0)).outcome is Outcome.OK
    assert gateway.engine.groups.owned.take_wanted(0.0) == []


PODS = GroupOwner("coscheduling", "default", "train")
MARKS = {"scheduling.x-k8s.io/pod-group": PODS.name}


class PodGroupPods(JobPods):
    """Pods of a PodGroup, whose uid they do not say."""

    def __init__(self) -> None:
        GroupScene.__init__(self, group_kinds=("coscheduling",))

    def labels(self, uid: str, job: str = PODS.name) -> dict[str, str]:
        """As their owner wrote them."""
        del uid, job
        return dict(MARKS)

    def read(self, size: int | None, owner: GroupOwner = PODS) -> None:
        """The PodGroup is read."""
        super().read(size, owner)


@pytest.fixture
def pod_group() -> PodGroupPods:
    """One pod of a PodGroup that is being read."""
    made = PodGroupPods()
    made.see("w0")
    made.filter("w0")
    assert made.wanted() == [PODS]
    return made


def test_a_pod_group_that_is_created_again_is_read_again(pod_group):
    """The old one had no group; its pods do not say that it is another one."""
    pod_group.read(None)
    pod_group.gateway.handle(PendingGone("w0"))
    pod_group.pass_s(RECHECK_S - 1.0)
    pod_group.see("w1")
    assert pod_group.wanted() == []
    pod_group.pass_s(1.0)
    pod_group.filter("w1")
    assert pod_group.wanted() == [PODS]
    pod_group.read(2)
    assert pod_group.tried("w1") == [Reason.GROUP_WAITING]
    pod_group.see("w1", "w2")
    pod_group.filter("w2")
    assert pod_group.tried("w1", "w2") == [None, None]
    assert replay(pod_group.lines).difference is None


def test_while_one_that_was_placed_alone_runs_the_others_have_no_group(pod_group):
    """Others that were placed alone have ended, and do not come again."""
    pod_group.read(None)
    pod_group.gateway.handle(PendingGone("w0"))
    for number in range(4):
        plan = alone_on(pod_group.names[number])
        seen = replace(facts(f"w{number}"), plan=plan, group_marks=MARKS)
        pod_group.gateway.handle(PodSeen(seen))
    for uid in ("w1", "w2", "w3"):
        pod_group.gateway.handle(PodGone(uid))
    pod_group.pass_s(RECHECK_S)
    pod_group.see("w4")
    assert pod_group.wanted() == [PODS]
    pod_group.read(4)
    assert pod_group.tried("w4") == [None]
    pod_group.gateway.handle(PodGone("w0"))
    pod_group.pass_s(RECHECK_S)
    pod_group.see("w5")
    assert pod_group.wanted() == [PODS]
    pod_group.read(4)
    assert pod_group.tried("w5") == [Reason.GROUP_WAITING]


def test_what_was_placed_alone_by_count_does_not_begin_the_group():
    """After a restart: it counts in the size already, and the others wait for each other."""
    scene = PodGroupPods()
    scene.gateway.handle(NodesListed(tuple(bare(name) for name in scene.names)))
    scene.gateway.handle(PodSeen(replace(facts("w0"), group_marks=MARKS)))
    body = scene.manifest("w0")
    labels = body["metadata"]["labels"]
    scene.gateway.handle(PodFetched(whole("w0", scene.names[0], body=body, labels=labels)))
    scene.see("w1")
    scene.read(4)
    scene.filter("w1")
    assert scene.tried("w1") == [Reason.GROUP_WAITING]
    assert scene.groups.readings.counts((PODS.namespace, PODS.group_name)) == (1, 0, 3)


def test_the_size_of_a_pod_group_that_is_gone_is_not_that_of_the_next(pod_group):
    """Two of four would start with the size that the old one had."""
    pod_group.read(2)
    pod_group.gateway.handle(PendingGone("w0"))
    pod_group.pass_s(RECHECK_S)
    pod_group.see("w1", "w2")
    assert pod_group.wanted() == [PODS]
    assert pod_group.tried("w1", "w2") == [Reason.GROUP_WAITING] * 2
    pod_group.read(4)
    assert pod_group.tried("w1", "w2") == [Reason.GROUP_WAITING] * 2


def test_the_size_stays_while_a_member_runs(pod_group):
    """A replacement would lose its group where the read that it waits for fails."""
    pod_group.see("w1")
    pod_group.filter("w1")
    pod_group.read(2)
    pod_group.woken()
    steps = {uid: pod_group.begin(uid, str(pod_group.node_of(uid))) for uid in ("w0", "w1")}
    assert all_bound([pod_group.end(step) for step in steps.values()])
    pod_group.pass_s(OLD_S - 1.0)
    pod_group.gateway.handle(PodGone("w1"))
    pod_group.see("w2")
    pod_group.wanted()
    pod_group.read(None)
    assert pod_group.groups.readings.counts((PODS.namespace, PODS.group_name)) == (1, 1, 2)


def test_a_pod_group_whose_members_wait_keeps_its_size(pod_group):
    """However rarely kube-scheduler tries them."""
    pod_group.read(2)
    pod_group.pass_s(OLD_S - 1.0)
    pod_group.filter("w0")
    assert pod_group.wanted() == []
    assert pod_group.groups.readings.counts((PODS.namespace, PODS.group_name)) == (1, 0, 2)


def test_a_member_on_a_node_of_which_devices_are_counted_counts_once():
    """It has no plan, as members without GPUs, which the size of such a group counts too."""
    scene = PodGroupPods()
    scene.gateway.handle(NodesListed(tuple(bare(name) for name in scene.names)))
    scene.see("w0", "w1", "w2")
    scene.read(3)
    for uid in ("w0", "w1", "w2"):
        scene.filter(uid)
    scene.woken()
    steps = [scene.begin(uid, str(scene.node_of(uid))) for uid in ("w0", "w1", "w2")]
    assert all_bound([scene.end(step) for step in steps])
    for uid in ("w0", "w1", "w2"):
        scene.gateway.handle(PodSeen(replace(facts(uid), group_marks=MARKS)))
    scene.gateway.handle(PodGone("w0"))
    scene.see("w3")
    assert scene.groups.readings.counts((PODS.namespace, PODS.group_name)) == (1, 2, 3)
    assert replay(scene.lines).difference is None
