"""Pods without a node: what they requested, which is requeued and when, who is left alone."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from extender.embedded import lay_out
from extender.pending import PendingPods, WaitingPod, requeues
from extender.pending.pending_pods import KEEP_S
from extender.pending.pod_groups import MAX_CANDIDATES
from extender.pending.requeues import MAX_REQUEUES, SPARE_NUMBERS
from extender.pending.waiting_pod import LAST_PAUSE_S
from extender.placement import Rank, Rater, RatingBudget, Refusal
from extender.protocol import PodRequest, Reason, messages, parse_pod
from extender.state import DeviceState
from tests.unit.extender.engines import described, spec
from tests.unit.extender.pods import GPU, pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.snapshot import ClusterSnapshot, NodeView

NODES = [f"dgx-1-v100-{i}" for i in range(40)]
FIRST = NODES[0]
AFTER_S = 0.5


def request(n_gpus: int, uid: str, priority: int = 0, **annotations: str) -> PodRequest:
    """What a pod requests."""
    content = pod(n_gpus, uid=uid, **annotations)
    content["spec"]["priority"] = priority
    return parse_pod(messages.decode(messages.WirePod, json.dumps(content).encode()), (GPU,))


class ClaimedCluster:
    """What is free on its nodes, and claimed there, is set by the test."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.claims: tuple[tuple[str, str, int, int], ...] = ()
        """The node, whose it is, of what priority, and on which devices."""

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:
        """As a live cluster does it."""
        masks = {
            node: self.snapshot.nodes[node].free | mask
            for node, uid, priority, mask in self.claims
            if uid == request.uid or priority < request.priority
        }
        return self.snapshot.with_free(masks, 2) if masks else self.snapshot

    def devices(self, name: str) -> tuple[tuple[str, DeviceState, str | None], ...]:
        """The claimed devices of a node."""
        ids = self.snapshot.nodes[name].ids
        return tuple(
            (one, DeviceState.CLAIMED, uid)
            for node, uid, _, mask in self.claims
            for i, one in enumerate(ids)
            if node == name and mask >> i & 1
        )


class NotingRater(Rater):
    """Notes the nodes that it rates."""

    def __init__(self) -> None:
        super().__init__()
        self.rated: list[str] = []

    def rate(
        self,
        request: PodRequest,
        views: Iterable[NodeView],
        budget: RatingBudget | None = None,
    ) -> list[Rank | Refusal]:
        """Rate and note."""
        views = list(views)
        self.rated += [view.name for view in views]
        return super().rate(request, views, budget)


class Scene:
    """A full cluster, and the pods that do not fit."""

    def __init__(self, *, max_pods: int = 1000) -> None:
        groups: dict[str, Any] = {"count": len(NODES), "machine": "dgx-1-v100"}
        made = described(lay_out(spec(groups)))
        full = made.snapshot.with_free(dict.fromkeys(NODES, 0), 1)
        self.cluster: Any = ClaimedCluster(full)
        self.rater = NotingRater()
        self.pods = PendingPods(self.rater, wake_after_s=AFTER_S, max_pods=max_pods)

    def add(
        self, n_gpus: int, uid: str, now_s: float, requested: Sequence[str] = NODES, **more: Any
    ) -> None:
        """Filter rejected the pod."""
        wish = request(n_gpus, uid, **more)
        rejected = WaitingPod(
            uid=uid,
            namespace="default",
            name=f"pod-{uid}",
            reason=Reason.NOT_ENOUGH_FREE,
            since_s=now_s,
            seen_s=now_s,
            request=wish,
        )
        known = self.cluster.snapshot.positions
        self.pods.reject(rejected, requested=requested, known=known)

    def claim(self, node: str, uid: str, priority: int, mask: int, now_s: float) -> None:
        """Devices come free that a nomination waits for."""
        self.cluster.claims += ((node, uid, priority, mask),)
        self.pods.change([node], self.cluster, now_s)

    def free(self, node: str, mask: int, now_s: float) -> None:
        """Devices of a node come free, or are taken."""
        self.cluster.snapshot = self.cluster.snapshot.with_free({node: mask}, 2)
        self.pods.change([node], self.cluster, now_s)

    def take(self, node: str) -> None:
        """Another pod has the node now; nothing came free by that."""
        self.cluster.snapshot = self.cluster.snapshot.with_free({node: 0}, 3)

    def due(self, now_s: float) -> list[str]:
        """Who is requeued."""
        return [requeue.uid for requeue in self.pods.due(self.cluster, now_s)]


@pytest.fixture
def scene() -> Scene:
    """One pod of two GPUs, rejected at 10 s."""
    scene = Scene()
    scene.add(2, "u1", 10.0)
    return scene


def test_a_pod_that_fits_again_and_was_not_tried_is_requeued(scene):
    """The scheduler consumed the event before we saw it, and would leave the pod for minutes."""
    scene.free(FIRST, 0b11, 11.0)
    assert scene.due(11.4) == []
    (requeue,) = scene.pods.due(scene.cluster, 11.5)
    assert (requeue.namespace, requeue.name, requeue.uid) == ("default", "pod-u1", "u1")


def test_a_pod_that_still_does_not_fit_is_left_alone(scene):
    """One device is too few, and waking costs a write."""
    scene.free(FIRST, 0b1, 11.0)
    assert scene.due(60.0) == []


@pytest.mark.parametrize(
    "happen",
    [
        pytest.param(lambda scene: scene.pods.accept(request(2, "u1")), id="accepted"),
        pytest.param(lambda scene: scene.pods.end_wait("u1"), id="bound"),
        pytest.param(lambda scene: scene.pods.forget("u1"), id="gone"),
        pytest.param(lambda scene: scene.add(2, "u1", 11.2), id="tried and rejected again"),
        pytest.param(lambda scene: scene.take(FIRST), id="another pod was faster"),
    ],
)
def test_a_pod_for_which_something_happened_since_is_left_alone(scene, happen):
    """The scheduler came back by itself, as it nearly always does, or there is no room any more."""
    scene.free(FIRST, 0b11, 11.0)
    happen(scene)
    assert scene.due(60.0) == []


def test_a_pod_refused_after_a_requeue_is_requeued_by_the_next_change(scene):
    """The node that fits may be forbidden to it, the next one not."""
    scene.free(FIRST, 0b11, 11.0)
    scene.add(2, "u1", 11.2)
    scene.free(NODES[1], 0b11, 12.0)
    assert scene.due(12.3) == []
    assert scene.due(12.5) == ["u1"]


def test_a_pod_that_goes_on_being_rejected_is_requeued_less_and_less(scene):
    """Another plugin has its own reasons; the pauses double up to five minutes."""
    now_s, requeued = 10.0, []
    for _ in range(4000):
        now_s += 0.5
        scene.free(FIRST, 0b11, now_s)
        if scene.due(now_s + 0.001):
            requeued.append(now_s)
            scene.add(2, "u1", now_s + 0.1)
    pauses = [round(b - a, 1) for a, b in pairwise(requeued)]
    assert pauses[:5] == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0], abs=0.6)
    assert max(pauses) == pytest.approx(LAST_PAUSE_S, abs=0.6)
    assert len(requeued) < 16


def test_a_change_of_more_states_than_can_be_rated_is_looked_at_later(scene, monkeypatch):
    """Thousands of shapes may wait; the node that a pod's selectors exclude stays excluded."""
    monkeypatch.setattr(requeues, "MAX_WORK", 0)
    scene.add(2, "u2", 10.0, requested=NODES[1:])
    scene.free(FIRST, 0b11, 11.0)
    assert scene.rater.n_deferred == 1
    assert scene.due(11.1) == []
    assert scene.due(11.6) == ["u1"]


def test_a_candidate_that_is_not_rated_in_time_is_looked_at_again(scene, monkeypatch):
    """It was rated when it came free, and has changed since."""
    scene.free(FIRST, 0b11, 11.0)
    scene.cluster.snapshot = scene.cluster.snapshot.with_free({FIRST: 0b111}, 3)
    monkeypatch.setattr(requeues, "MAX_WORK", 0)
    assert scene.due(11.6) == []
    scene.rater.rate_deferred(1)
    assert scene.due(11.7) == ["u1"]


def test_the_highest_priority_is_looked_at_first(scene, monkeypatch):
    """There may be no time for all: the others come the next time, and find what is left."""
    scene.add(1, "important", 10.0, priority=7)
    scene.free(FIRST, 0b11, 11.0)
    scene.cluster.snapshot = scene.cluster.snapshot.with_free({FIRST: 0b111}, 3)
    monkeypatch.setattr(requeues, "MAX_WORK", 1)
    assert scene.due(11.6) == ["important"]
    assert scene.due(11.7) == ["u1"]


def test_a_requeue_that_was_lost_is_repeated(scene):
    """The write failed, or the scheduler is down: the pod is named again, after a pause."""
    scene.free(FIRST, 0b11, 11.0)
    assert scene.due(11.5) == ["u1"]
    assert scene.due(12.4) == []
    assert scene.due(12.5) == ["u1"]
    assert scene.due(14.4) == []
    assert scene.due(14.5) == ["u1"]


def test_a_requeue_has_what_the_pod_showed_when_it_was_rejected(scene):
    """So that the one who touches it sees whether another replica has; a repeat cannot."""
    scene.add(2, "u1", 10.5, retry="earlier")
    scene.free(FIRST, 0b11, 11.0)
    retries = []
    for now_s in (11.5, 12.5, 14.5):
        retries += [requeue.retry for requeue in scene.pods.due(scene.cluster, now_s)]
    assert retries == ["earlier", None, None]
    scene.add(2, "u1", 20.0, retry="ours")
    scene.free(FIRST, 0b11, 21.0)
    assert [requeue.retry for requeue in scene.pods.due(scene.cluster, 60.0)] == ["ours"]


def test_changes_that_keep_coming_do_not_put_a_requeue_off(scene):
    """On a busy node something changes all the time."""
    for i in range(6):
        scene.free(FIRST, 0b11, 11.0 + i / 10)
    assert scene.due(11.55) == ["u1"]


def test_as_many_are_requeued_as_there_is_room_for(scene):
    """Where devices for two pods came free, five hundred must not be touched."""
    for i in range(2, 500):
        scene.add(2, f"u{i:03}", 10.0 + i / 1000)
    scene.free(FIRST, 0b1111, 11.0)
    assert scene.due(11.5) == ["u1", "u002"]
    assert scene.due(11.6) == []
    assert scene.due(12.5) == ["u1", "u002"]
    assert scene.due(13.5) == ["u003", "u004"]


def test_no_more_than_a_handful_is_requeued_at_once(scene):
    """A large node came back; the API server has other things to do as well."""
    for i in range(2, 100):
        scene.add(1, f"u{i:03}", 10.0)
    for node in NODES:
        scene.free(node, 0xFF, 11.0)
    assert len(scene.due(11.5)) == MAX_REQUEUES


def test_the_highest_priority_is_requeued_first_then_the_longest_wait(scene):
    """As the scheduler would take them."""
    scene.add(2, "u2", 9.0)
    scene.add(2, "u3", 12.0, priority=7)
    scene.free(FIRST, 0b111111, 13.0)
    assert scene.due(13.5) == ["u3", "u2", "u1"]


def test_pods_of_another_shape_are_judged_by_their_own(scene):
    """Two free GPUs do not help a pod of four."""
    scene.add(4, "u4", 10.0)
    scene.add(2, "u5", 10.0, affinity="nvlink", policy="required")
    scene.free(FIRST, 0b100001, 11.0)  # 0 and 5 have no link
    assert scene.due(11.5) == ["u1"]


def test_a_pod_that_changed_its_request_is_rated_again(scene):
    """It was edited while it waited."""
    scene.add(4, "u1", 11.0)
    scene.free(FIRST, 0b11, 12.0)
    assert scene.due(13.0) == []
    scene.free(FIRST, 0b1111, 14.0)
    assert scene.due(14.5) == ["u1"]


def test_a_pod_that_cannot_be_meant_is_kept_and_never_requeued(scene):
    """Only its owner can help it."""
    bad = WaitingPod("u9", "default", "pod-u9", Reason.INVALID_REQUEST, 10.0, 10.0, None)
    scene.pods.reject(bad)
    scene.pods.forget("u1")
    scene.free(FIRST, 0xFF, 11.0)
    assert scene.due(60.0) == []
    assert scene.pods.counts() == {Reason.INVALID_REQUEST: 1}
    scene.pods.forget("u9")
    assert scene.pods.n_rejected == 0


def test_pods_are_counted_by_reason(scene):
    """What only Coterie rejects is what an autoscaler does not see."""
    scene.add(2, "u2", 11.0)
    assert scene.pods.n_rejected == 2
    assert scene.pods.counts() == {Reason.NOT_ENOUGH_FREE: 2}
    found = scene.pods.rejected("u1")
    assert found is not None
    assert (found.reason, found.since_s) == (Reason.NOT_ENOUGH_FREE, 10.0)


def test_the_first_rejection_is_remembered(scene):
    """Operators read since when a pod is pending."""
    scene.add(2, "u1", 30.0)
    found = scene.pods.rejected("u1")
    assert found is not None
    assert (found.since_s, found.seen_s) == (10.0, 30.0)


def test_pods_that_are_no_longer_filtered_are_dropped(scene):
    """A pending pod's deletion is not watched."""
    scene.add(2, "u2", 100.0)
    scene.due(10.0 + KEEP_S)
    assert scene.pods.rejected("u1") is None
    assert scene.pods.n_rejected == 1
    scene.due(100.0 + KEEP_S)
    assert scene.pods.n_rejected == 0


def test_only_so_many_pods_are_kept():
    """The one rejected longest ago goes first."""
    scene = Scene(max_pods=2)
    for i, uid in enumerate(("u1", "u2", "u1", "u3")):
        scene.add(2, uid, float(i))
    assert scene.pods.rejected("u2") is None
    assert scene.pods.n_rejected == 2


def test_only_so_many_nodes_are_kept_in_question(scene):
    """One that fits is reason enough; a whole cluster that comes up must not slow each call."""
    for node in NODES:
        scene.cluster.snapshot = scene.cluster.snapshot.with_free({node: 0b11}, 2)
    scene.pods.change([*NODES, "ghost"], scene.cluster, 11.0)
    scene.pods.change(NODES[:3], scene.cluster, 11.1)
    scene.rater.rated.clear()
    assert scene.due(11.6) == ["u1"]
    assert scene.rater.rated == [*NODES[3 - MAX_CANDIDATES :], *NODES[:3]]


def test_a_pod_may_have_what_pods_of_lower_priority_claim(scene):
    """Its filter call counts that as free; on the plain snapshot it would wait for minutes."""
    scene.add(2, "u2", 10.0, priority=100)
    scene.add(2, "u3", 10.0, priority=7)
    scene.claim(FIRST, "low", 7, 0b11, 11.0)
    assert scene.due(11.5) == ["u2"]
    assert scene.due(12.5) == ["u2"]


def test_a_pod_may_have_what_it_claims_itself(scene):
    """A preemptor was rejected from a state in which its victims were still there."""
    scene.add(2, "u2", 10.0, priority=100)
    scene.claim(FIRST, "u1", 0, 0b11, 11.0)
    scene.pods.forget("u2")
    assert scene.due(11.5) == ["u1"]
    scene.add(2, "u1", 12.0)
    scene.cluster.claims = ()
    scene.pods.change([FIRST], scene.cluster, 13.0)
    assert scene.due(60.0) == []


def test_what_one_pod_claims_is_not_for_others_of_its_kind(scene):
    """Of two equal pods one is nominated."""
    scene.add(2, "u2", 9.0)
    scene.claim(FIRST, "u1", 0, 0b11, 11.0)
    scene.claim(FIRST, "u1", 0, 0b11, 11.1)
    assert scene.due(11.5) == ["u1"]


def test_a_pod_is_not_requeued_for_nodes_outside_its_filter_call(scene):
    """Its selector leaves them out; requeueing it for them would only lengthen its backoff."""
    scene.add(2, "u1", 10.0, requested=NODES[:2])
    scene.free(NODES[2], 0b11, 11.0)
    assert scene.due(60.0) == []
    scene.free(NODES[1], 0b11, 61.0)
    assert scene.due(61.5) == ["u1"]


def test_pods_filtered_on_other_nodes_do_not_take_each_others_gpus(scene):
    """GPUs of one node pool are no use to pods of the other."""
    scene.add(2, "u1", 10.0, requested=NODES[:2])
    scene.add(2, "u2", 10.1, requested=NODES[2:])
    scene.add(2, "u3", 10.2, requested=NODES[2:])
    scene.add(2, "u4", 10.3)
    scene.free(NODES[0], 0b1111, 11.0)
    scene.free(NODES[2], 0b11, 11.0)
    assert scene.due(11.5) == ["u1", "u2", "u4"]


def test_a_node_that_comes_later_is_considered_for_every_pod(scene):
    """No filter call could name it."""
    known = dict.fromkeys(NODES[1:])
    wish = request(2, "u2")
    late = WaitingPod("u2", "ns", "p", Reason.NOT_ENOUGH_FREE, 10.0, 10.0, wish)
    scene.pods.reject(late, requested=NODES[1:2], known=known)
    scene.pods.forget("u1")
    scene.free(NODES[2], 0b11, 11.0)
    assert scene.due(11.5) == []
    scene.free(FIRST, 0b11, 12.0)
    assert scene.due(12.5) == ["u2"]


def test_intervals_begin_again_with_a_node_for_which_a_pod_was_never_requeued(scene):
    """Useless requeues for one node say nothing of another."""
    for i in range(8):
        now_s = 1000.0 * (i + 1)
        scene.add(2, "u1", now_s)
        scene.free(FIRST, 0b11, now_s + 1)
        assert scene.due(now_s + 1.5) == ["u1"]
        scene.take(FIRST)
    assert scene.pods.rejected("u1").n_requeues == 8
    scene.add(2, "u1", 8002.0)
    scene.free(FIRST, 0b11, 8003.0)
    assert scene.due(8060.0) == []
    scene.take(FIRST)
    scene.free(NODES[1], 0b11, 8061.0)
    assert scene.due(8061.5) == ["u1"]
    assert scene.pods.rejected("u1").n_requeues == 1


def test_nodes_that_come_and_go_do_not_fill_the_memory(scene):
    """Names of nodes that are gone are given up; until it is filtered again, a pod may use any."""
    scene.add(2, "u1", 10.0, requested=NODES[:1])
    scene.add(2, "u2", 10.1, requested=NODES[1:2])
    scene.free(FIRST, 0b1, 10.5)
    wish = request(2, "u3")
    for i in range(3):
        gone = [f"gone-{i}-{j}" for j in range(SPARE_NUMBERS)]
        pod = WaitingPod("u3", "ns", "p", Reason.NOT_ENOUGH_FREE, 10.0, 10.0, wish)
        scene.pods.reject(pod, requested=(), known=gone)
    scene.free(NODES[2], 0b1111, 11.0)
    assert scene.due(11.5) == ["u1", "u3"]


def test_many_pods_filtered_on_the_same_nodes_share_what_is_kept(scene):
    """Twenty thousand pods and five thousand nodes."""
    for i in range(100):
        scene.add(2, f"v{i}", 10.0, requested=NODES[:20])
    scene.free(FIRST, 0b11, 11.0)
    scene.rater.rated.clear()
    scene.due(11.5)
    assert scene.rater.rated == [FIRST] * 2


def test_five_hundred_pods_of_few_shapes_cost_one_rating_for_each_shape():
    """Each batch of watch events looks for due pods, and there are many a second."""
    scene = Scene()
    for i in range(500):
        scene.add((2, 4, 8)[i % 3], f"u{i}", 10.0, priority=i % 5, requested=NODES[: 20 + i % 10])
    scene.rater.rated.clear()
    scene.free(FIRST, 0b1, 12.0)
    scene.due(12.5)
    assert len(scene.rater.rated) == 3


def test_only_so_many_accepted_pods_are_remembered():
    """Pods that are filtered and never bound must not fill the memory."""
    pods = PendingPods(Rater(), wake_after_s=AFTER_S, max_accepted=2)
    wishes = {uid: request(1, uid) for uid in ("u1", "u2", "u3")}
    for uid in ("u1", "u2", "u1", "u3"):
        pods.accept(wishes[uid])
    pods.accept(request(1, ""))
    found = [pods.recall(uid, wish.full_name) for uid, wish in wishes.items()]
    assert found == [wishes["u1"], None, wishes["u3"]]


def test_the_end_of_a_wait_drops_no_accepted_pod():
    """Ten thousand pods may end at once, and binds are in flight meanwhile."""
    pods = PendingPods(Rater(), wake_after_s=AFTER_S, max_accepted=2)
    wishes = {uid: request(1, uid) for uid in ("u1", "u2", "u3", "u4")}
    for uid in ("u1", "u2"):
        pods.reject(WaitingPod(uid, "default", uid, Reason.NOT_ENOUGH_FREE, 0.0, 0.0, wishes[uid]))
    pods.accept(wishes["u3"])
    for uid in ("u1", "u2"):
        pods.end_wait(uid)
    pods.accept(wishes["u4"])
    found = [uid for uid, one in wishes.items() if pods.recall(uid, one.full_name)]
    assert found == ["u3", "u4"]


def test_a_pod_is_rejected_or_accepted():
    """One that is rejected after it was accepted takes no accepted pod's place."""
    pods = PendingPods(Rater(), wake_after_s=AFTER_S, max_pods=1)
    wish = request(1, "u1")
    pods.accept(wish)
    for uid in ("u1", "u2"):
        pods.reject(
            WaitingPod(uid, "default", uid, Reason.NOT_ENOUGH_FREE, 0.0, 0.0, request(1, uid))
        )
    assert pods.rejected("u1") is None  # the second is one too many
    assert pods.recall("u1", wish.full_name) is None


def test_a_pod_is_recalled_by_its_uid_and_name(scene):
    """A uid alone may be another pod's, by fault or on purpose. A rejected one is, too."""
    wish = request(2, "u1")
    assert scene.pods.recall("u1", "default/other") is None
    assert scene.pods.recall("u1", wish.full_name) == wish
    scene.pods.end_wait("u1")
    assert scene.pods.n_rejected == 0
    assert scene.pods.recall("u1", wish.full_name) == wish
    scene.pods.forget("u1")
    assert scene.pods.recall("u1", wish.full_name) is None
