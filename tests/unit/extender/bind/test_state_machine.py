"""Bind step by step: what is read, what is written, what is answered, and what the state keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.bind import BindCall, ReadPod, WriteBinding, WriteResult, Written
from extender.embedded import lay_out
from extender.engine import Engine, Gateway
from extender.engine.events import BindingWritten, BindRequested
from extender.protocol import Answer, Outcome, Reason, Verb
from tests.unit.extender.api_server import FakeApiServer
from tests.unit.extender.engines import RULES, described, owned, report_devices, spec
from tests.unit.extender.pods import args, binding
from topology.annotations import decode_plan
from topology.model import names

NODE, OTHER, BLIND = "dgx-1-v100-0", "dgx-1-v100-1", "blind-0"
GROUPS = (
    {"count": 2, "machine": "dgx-1-v100"},
    {"count": 1, "devices": 4, "name": "blind"},
)
UNKNOWN = Written(WriteResult.UNKNOWN, "timeout")


class Scene:
    """An engine that is not its own API server, and the pods of one that it does not see."""

    def __init__(self, *scheduler_names: str) -> None:
        nodes = lay_out(spec(*GROUPS))
        self.node = next(node for node in nodes if node.name == NODE)
        self.cluster = described(nodes)
        self.engine = Engine(self.cluster, replace(RULES, scheduler_names=scheduler_names))
        self.server = FakeApiServer()

    def filter(self, uid: str = "u1", node: str = NODE) -> None:
        """The pod's filter call, as the API server has the pod now."""
        (pod,) = (one for one in self.server.pods.values() if one.uid == uid)
        body = args(json.loads(pod.as_json()), [node])
        assert self.engine.answer(Verb.FILTER, body, 0.0).outcome is Outcome.OK

    def begin(self, uid: str = "u1", node: str = NODE, now_s: float = 0.0, **more: str) -> Any:
        """A bind call."""
        return self.engine.binds.begin(BindCall.decode(binding(uid, node, **more)), now_s)

    def do(self, step: ReadPod | WriteBinding, now_s: float = 0.0) -> Any:
        """Take one step, as the API server has it."""
        if isinstance(step, ReadPod):
            return self.engine.binds.read(step, self.server.read(step), now_s)
        return self.engine.binds.written(step, self.server.write(step))

    def lose(self, step: WriteBinding, *, is_done: bool) -> Any:
        """Write the Binding, or not, and get no answer."""
        if is_done:
            assert self.server.write(step).result is WriteResult.ACCEPTED
        return self.engine.binds.written(step, UNKNOWN)

    def finish(self, step: Any) -> Answer:
        """Take all steps."""
        while not isinstance(step, Answer):
            step = self.do(step)
        return step

    def bind(self, uid: str = "u1", node: str = NODE) -> Answer:
        """A bind call to its end."""
        return self.finish(self.begin(uid, node))

    def ids(self, uid: str = "u1") -> set[str]:
        """The devices of the pod."""
        return set(owned(self.cluster, uid))

    def is_assumed(self, uid: str = "u1") -> bool:
        """Whether the pod has devices for a bind in flight."""
        states = set(owned(self.cluster, uid).values())
        return bool(states) and states <= {"assumed", "assumed_unhealthy"}


@pytest.fixture
def scene() -> Scene:
    """One pod of two GPUs, filtered."""
    scene = Scene()
    scene.server.create()
    scene.filter()
    return scene


def planned(step: WriteBinding) -> set[str]:
    """The ids of a plan to be written."""
    return set(decode_plan(step.annotations[names.PLAN]).ids)


def test_a_seen_pod_is_planned_assumed_and_written_at_once(scene):
    """With the version of its filter call and its uid as preconditions, and the plan beside."""
    step = scene.begin()
    assert isinstance(step, WriteBinding)
    assert (step.namespace, step.name, step.uid) == ("default", "pod-u1", "u1")
    assert (step.resource_version, step.node) == ("17", NODE)
    assert list(step.annotations) == [names.PLAN]
    assert scene.ids() == planned(step)
    assert scene.is_assumed()


def test_an_accepted_binding_is_success(scene):
    """The pod keeps what was written, and the answer says what was placed where."""
    step = scene.begin()
    answer = scene.do(step)
    assert (answer.outcome, answer.body) == (Outcome.OK, b'{"Error":""}')
    assert (answer.pod, answer.pod_uid, answer.node) == ("default/pod-u1", "u1", NODE)
    assert (answer.machine, answer.size_gpus, answer.n_replans) == ("dgx-1-v100", 2, 0)
    assert answer.placed_gbytes_per_s > 0
    assert not scene.is_assumed()
    assert scene.ids() == planned(step)


def test_a_plan_says_what_it_was_made_from(scene):
    """The devices that were free and the generation that the plan names: it can be checked."""
    step = scene.begin()
    view = scene.cluster.snapshot.nodes[NODE]
    assert step.planned_from is not None
    assert step.planned_from.free == view.ids
    plan = decode_plan(step.annotations[names.PLAN])
    assert plan.generation == step.planned_from.generation


def test_a_pod_that_was_never_filtered_is_read(scene):
    """After a restart, or where another replica answered filter."""
    scene.server.create(4, uid="u2")
    step = scene.begin("u2")
    assert isinstance(step, ReadPod)
    assert (step.namespace, step.name, step.uid) == ("default", "pod-u2", "u2")
    step = scene.do(step)
    assert isinstance(step, WriteBinding)
    assert len(planned(step)) == 4
    assert scene.do(step).outcome is Outcome.OK


def test_a_pod_that_names_our_resource_and_requests_none_of_it_is_bound_without_a_plan(scene):
    """As charts write it; also to an unknown node, and whatever the state of the watches."""
    scene.server.create(0, uid="u2")
    step = scene.do(scene.begin("u2", "cpu-node"))
    assert isinstance(step, WriteBinding)
    assert (step.annotations, step.planned_from) == ({}, None)
    answer = scene.do(step)
    assert (answer.outcome, answer.placed_gbytes_per_s) == (Outcome.OK, None)
    assert scene.cluster.n_owners == 0


@pytest.mark.parametrize("is_filtered", [False, True], ids=["read", "filtered"])
def test_a_pod_that_names_no_resource_of_ours_is_not_bound(scene, is_filtered):
    """kube-scheduler never calls for one; any other client could bind any pod anywhere."""
    scene.server.create(None, uid="u2")
    if is_filtered:
        scene.filter("u2")
    answer = scene.bind("u2")
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.NO_RESOURCE)
    assert "pod default/pod-u2 (u2)" in json.loads(answer.body)["Error"]
    assert scene.server.pods["default/pod-u2"].node is None


@pytest.mark.parametrize("is_filtered", [False, True], ids=["read", "filtered"])
@pytest.mark.parametrize("n_gpus", [0, 2])
def test_a_pod_of_another_scheduler_is_not_bound(is_filtered, n_gpus):
    """Its own scheduler may be placing it elsewhere now, by rules that we do not know."""
    scene = Scene("ours", "too")
    scene.server.create(n_gpus)
    if is_filtered:
        scene.filter()
    answer = scene.bind()
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.OTHER_SCHEDULER)
    assert "schedulerName is 'gpu', expected one of: ours, too" in json.loads(answer.body)["Error"]
    assert scene.server.pods["default/pod-u1"].node is None
    assert scene.cluster.n_owners == 0


def test_a_pod_of_our_scheduler_is_bound():
    """One of those that the rules name."""
    scene = Scene("ours", "gpu")
    scene.server.create(2)
    assert scene.bind().outcome is Outcome.OK


def test_a_node_without_topology_is_bound_by_count(scene):
    """The kubelet chooses there: no plan, but the count is kept."""
    scene.server.create(3, uid="u2")
    step = scene.do(scene.begin("u2", BLIND))
    assert isinstance(step, WriteBinding)
    assert step.annotations == {}
    assert len(scene.ids("u2")) == 3
    assert scene.do(step).outcome is Outcome.OK
    assert scene.cluster.snapshot.nodes[BLIND].free.bit_count() == 1


@pytest.mark.parametrize(
    ("n_gpus", "node", "reason"),
    [
        pytest.param(2, "ghost", Reason.UNKNOWN_NODE, id="node gone"),
        pytest.param(9, NODE, Reason.TOO_FEW_GPUS, id="no such set"),
    ],
)
def test_what_cannot_be_planned_is_an_error(scene, n_gpus, node, reason):
    """In-band, nothing written, nothing assumed."""
    scene.server.create(n_gpus, uid="u2")
    answer = scene.do(scene.begin("u2", node))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, reason)
    assert reason.value in json.loads(answer.body)["Error"]
    assert scene.cluster.n_owners == 0


def test_a_plan_that_the_state_refuses_is_an_error(scene, monkeypatch):
    """It never happens while one process feeds it; if it does, the pod must not be bound."""
    monkeypatch.setattr(scene.cluster, "assume", lambda *_, **__: "it is held")
    answer = scene.begin()
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.DEVICES_UNAVAILABLE)
    assert scene.cluster.bound("u1") is None


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (WriteResult.GONE, Reason.POD_GONE),
        (WriteResult.REJECTED, Reason.WRITE_REFUSED),
        (WriteResult.UNSENT, Reason.WRITE_UNSENT),
    ],
)
def test_a_write_that_certainly_failed_is_forgotten(scene, result, reason):
    """The devices are free at once; the API server's words are passed on."""
    answer = scene.engine.binds.written(scene.begin(), Written(result, "says who"))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, reason)
    assert "says who" in json.loads(answer.body)["Error"]
    assert scene.cluster.n_owners == 0
    kept = scene.engine.pending.recall("u1", "default/pod-u1")
    assert (kept is None) is (reason is Reason.POD_GONE)


def gone(scene: Scene) -> None:
    """The pod is deleted."""
    scene.server.pods.clear()


def recreated(scene: Scene) -> None:
    """Another pod has its name."""
    gone(scene)
    scene.server.create(uid="u9", name="pod-u1")


def deleted(scene: Scene) -> None:
    """The pod is on its way out."""
    scene.server.pods["default/pod-u1"].is_deleting = True


def gated(scene: Scene) -> None:
    """The pod has gates."""
    scene.server.pods["default/pod-u1"].is_gated = True


def bound_elsewhere(scene: Scene) -> None:
    """Another scheduler was quicker."""
    scene.server.pods["default/pod-u1"].node = OTHER


ENDS = [
    (gone, Reason.POD_GONE),
    (recreated, Reason.POD_RECREATED),
    (deleted, Reason.POD_DELETED),
    (gated, Reason.POD_GATED),
    (bound_elsewhere, Reason.BOUND_ELSEWHERE),
]


@pytest.mark.parametrize(("happen", "reason"), ENDS)
def test_a_conflict_is_explained_by_the_pod(scene, happen, reason):
    """A 409 says only that it was not written; the plan is forgotten in each of these cases."""
    step = scene.begin()
    happen(scene)
    step = scene.engine.binds.written(step, Written(WriteResult.CONFLICT))
    assert isinstance(step, ReadPod)
    answer = scene.do(step)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, reason)
    assert scene.cluster.n_owners == 0


@pytest.mark.parametrize(("happen", "reason"), ENDS)
def test_a_write_of_unknown_end_is_settled_by_the_pod(scene, happen, reason):
    """Where the pod shows that it can never come true, the plan is forgotten."""
    step = scene.lose(scene.begin(), is_done=False)
    happen(scene)
    answer = scene.do(step)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, reason)
    assert scene.cluster.n_owners == 0


def test_a_pod_that_is_bound_already_by_this_plan_is_success(scene):
    """Our own write came true and its answer was lost, or was sent twice below us."""
    step = scene.begin()
    assert scene.server.write(step).result is WriteResult.ACCEPTED
    answer = scene.finish(scene.do(step))
    assert (answer.outcome, answer.size_gpus) == (Outcome.OK, 2)
    assert scene.ids() == planned(step)
    assert not scene.is_assumed()


def test_a_pod_that_another_client_bound_here_is_success_with_its_plan(scene):
    """It is bound where it was to be bound; the state follows what is, not what was meant."""
    scene.server.create(2, uid="other")
    theirs = scene.do(scene.begin("other"))
    text = theirs.annotations
    scene.engine.binds.written(theirs, Written(WriteResult.REJECTED))
    step = scene.begin()
    pod = scene.server.pods["default/pod-u1"]
    ids = scene.cluster.snapshot.nodes[NODE].ids
    plan = json.loads(text[names.PLAN])
    plan["containers"][0]["ids"] = list(ids[-2:])
    pod.node, pod.plan = NODE, {names.PLAN: json.dumps(plan)}
    answer = scene.finish(scene.do(step))
    assert (answer.outcome, answer.detail) == (Outcome.OK, "again")
    assert answer.placed_gbytes_per_s is None
    assert scene.ids() == set(ids[-2:])


def test_a_pod_bound_here_without_a_plan_has_nothing_to_take_over(scene):
    """The watch will show what it holds."""
    step = scene.begin()
    scene.server.pods["default/pod-u1"].node = NODE
    answer = scene.finish(scene.do(step))
    assert answer.outcome is Outcome.OK
    assert scene.cluster.n_owners == 0


def test_a_pod_that_merely_changed_is_written_again(scene):
    """The same plan with the new version: a controller labelled the pod between filter and bind."""
    first = scene.begin()
    scene.server.pods["default/pod-u1"].version = 18
    second = scene.do(scene.do(first))
    assert isinstance(second, WriteBinding)
    assert (second.resource_version, second.planned_from) == ("18", None)
    assert second.annotations == first.annotations
    answer = scene.do(second)
    assert (answer.outcome, answer.n_replans) == (Outcome.OK, 0)


def test_a_pod_that_changes_for_ever_is_left_to_the_next_call(scene):
    """Two writes a call; kube-scheduler comes back with the pod as it is by then."""
    step = scene.begin()
    for version in (18, 19):
        scene.server.pods["default/pod-u1"].version = version
        step = scene.do(scene.do(step))
    assert (step.outcome, step.reason) == (Outcome.FAILED, Reason.POD_CHANGED)
    assert scene.cluster.n_owners == 0


def test_a_pod_that_changed_its_request_is_planned_again(scene):
    """Annotations may change until the pod is bound."""
    step = scene.begin()
    pod = scene.server.create(2, affinity="none")
    pod.version = 18
    step = scene.do(scene.do(step))
    assert isinstance(step, WriteBinding)
    assert step.planned_from is not None
    answer = scene.do(step)
    assert (answer.outcome, answer.n_replans) == (Outcome.OK, 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param({"affinity": "nvlnk"}, Reason.INVALID_REQUEST, id="a user's mistake"),
        pytest.param({"n_gpus": -1}, Reason.MALFORMED, id="a count that cannot be"),
    ],
)
def test_a_pod_that_was_spoilt_since_is_not_bound(scene, content, reason):
    """The plan of its earlier request must not be written any more."""
    step = scene.begin()
    scene.server.create(**content).version = 18
    answer = scene.finish(scene.do(step))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, reason)
    assert scene.cluster.n_owners == 0


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param("unhealthy", id="became unhealthy"),
        pytest.param("held", id="was taken"),
    ],
)
def test_a_plan_that_was_lost_meanwhile_is_made_again(scene, lose):
    """The set was good when the call came; between two writes it is not any more."""
    first = scene.begin()
    report_devices(scene.cluster, scene.node, **{lose: sorted(planned(first))[:1]})
    scene.server.pods["default/pod-u1"].version = 18
    second = scene.do(scene.do(first))
    assert isinstance(second, WriteBinding)
    assert planned(second) != planned(first)
    answer = scene.do(second)
    assert (answer.outcome, answer.n_replans) == (Outcome.OK, 1)
    assert scene.ids() == planned(second)


def test_no_set_left_after_a_conflict_is_an_error(scene):
    """The pod goes back to the queue; it holds nothing."""
    step = scene.begin()
    report_devices(scene.cluster, scene.node, held=scene.node.ids)
    scene.server.pods["default/pod-u1"].version = 18
    answer = scene.finish(scene.do(step))
    assert (answer.reason, answer.n_replans) == (Reason.NOT_ENOUGH_FREE, 1)


def test_an_unheard_write_that_came_true_is_success(scene):
    """The API server accepted; that its answer was lost has no effect."""
    step = scene.begin()
    answer = scene.do(scene.lose(step, is_done=True))
    assert answer.outcome is Outcome.OK
    assert scene.ids() == planned(step)
    assert not scene.is_assumed()


def test_an_unheard_write_that_may_come_true_stays_assumed(scene):
    """The request may still be on its way; the caller gets an error and the devices stay kept."""
    step = scene.begin()
    answer = scene.do(scene.lose(step, is_done=False))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.OUTCOME_UNKNOWN)
    assert scene.ids() == planned(step)
    assert len(scene.engine.binds.unsettled) == 1


def test_an_unheard_write_of_an_older_version_cannot_come_true(scene):
    """Its precondition fails for good: nothing needs to be kept."""
    step = scene.lose(scene.begin(), is_done=False)
    scene.server.pods["default/pod-u1"].version = 18
    answer = scene.do(step)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.OUTCOME_UNKNOWN)
    assert scene.cluster.n_owners == 0
    assert len(scene.engine.binds.unsettled) == 0


def unsettled(scene: Scene) -> WriteBinding:
    """Leave a write of unknown end behind; gives it."""
    step = scene.begin()
    assert isinstance(step, WriteBinding)
    scene.do(scene.lose(step, is_done=False))
    return step


def test_the_next_call_writes_the_same_plan_again(scene):
    """Whichever of the two writes comes true, the devices are those that are kept."""
    first = unsettled(scene)
    second = scene.do(scene.begin())
    assert (second.resource_version, second.annotations) == ("17", first.annotations)
    assert second.planned_from is None
    assert scene.do(second).outcome is Outcome.OK
    assert len(scene.engine.binds.unsettled) == 0


@pytest.mark.parametrize("result", [WriteResult.REJECTED, WriteResult.UNSENT])
def test_a_refused_repeat_says_nothing_of_the_first_write(scene, result):
    """Its preconditions still hold: were its devices free, another pod would get them too."""
    first = unsettled(scene)
    answer = scene.engine.binds.written(scene.do(scene.begin()), Written(result, "too busy"))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.OUTCOME_UNKNOWN)
    assert "too busy" in answer.detail
    assert scene.ids() == planned(first)
    assert scene.is_assumed()
    scene.server.write(first)
    assert scene.bind().outcome is Outcome.OK
    assert scene.ids() == planned(first)
    assert len(scene.engine.binds.unsettled) == 0


def test_refused_repeats_keep_a_plan_no_longer_than_the_first_write_lasts(scene):
    """Else a scheduler that calls again and again would keep its devices for as long as it does."""
    unsettled(scene)
    reasons = []
    for now_s in (0.5, 1.0):
        step = scene.do(scene.begin(now_s=now_s * RULES.assume_s), now_s * RULES.assume_s)
        answer = scene.engine.binds.written(step, Written(WriteResult.REJECTED, "forbidden"))
        reasons.append(answer.reason)
    assert reasons == [Reason.OUTCOME_UNKNOWN, Reason.WRITE_REFUSED]
    assert (scene.cluster.n_owners, len(scene.engine.binds.unsettled)) == (0, 0)


def test_a_repeat_of_a_newer_version_is_certain_again(scene):
    """The first write's precondition fails for good once the pod has changed."""
    unsettled(scene)
    repeat = scene.do(scene.begin())
    scene.server.pods["default/pod-u1"].version = 18
    again = scene.do(scene.do(repeat))
    assert (again.resource_version, again.planned_from) == ("18", None)
    answer = scene.engine.binds.written(again, Written(WriteResult.REJECTED, "forbidden"))
    assert answer.reason is Reason.WRITE_REFUSED
    assert scene.cluster.n_owners == 0


def test_the_next_call_finds_that_the_write_came_true(scene):
    """It was late, not lost."""
    late = unsettled(scene)
    scene.server.write(late)
    answer = scene.do(scene.begin())
    assert (answer.outcome, answer.size_gpus) == (Outcome.OK, 2)
    assert scene.ids() == planned(late)
    assert len(scene.engine.binds.unsettled) == 0


def test_the_next_call_finds_that_the_write_came_true_on_another_node(scene):
    """The devices there stay the pod's; the scheduler must not take it for bound where it calls."""
    late = unsettled(scene)
    scene.server.write(late)
    answer = scene.do(scene.begin("u1", OTHER))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.BOUND_ELSEWHERE)
    assert f"bound to node {NODE}" in answer.detail
    assert scene.ids() == planned(late)
    assert not scene.is_assumed()
    assert len(scene.engine.binds.unsettled) == 0


def test_the_next_call_plans_again_where_the_write_cannot_succeed(scene):
    """After the failed attempt kube-scheduler patches the pod's condition: a new version."""
    unsettled(scene)
    scene.server.pods["default/pod-u1"].version = 18
    second = scene.do(scene.begin("u1", OTHER))
    assert (second.resource_version, second.node) == ("18", OTHER)
    assert second.planned_from is not None
    assert scene.do(second).outcome is Outcome.OK
    assert scene.cluster.snapshot.nodes[NODE].free.bit_count() == 8


def test_a_write_that_may_come_true_bars_another_node(scene):
    """Else two nodes' devices would be the pod's; the next call or the clock settles it."""
    first = unsettled(scene)
    answer = scene.do(scene.begin("u1", OTHER))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.OUTCOME_UNKNOWN)
    assert scene.ids() == planned(first)
    assert scene.do(scene.do(scene.begin())).outcome is Outcome.OK


def test_a_plan_that_may_come_true_is_not_replaced_even_if_it_was_lost(scene):
    """Its devices were found taken, yet the Binding may still be written with them."""
    first = unsettled(scene)
    report_devices(scene.cluster, scene.node, held=sorted(planned(first))[:1])
    answer = scene.do(scene.begin())
    assert answer.reason is Reason.OUTCOME_UNKNOWN


def test_a_write_that_never_came_true_bars_nothing_for_ever(scene):
    """No request is under way for so long, and the pod may never change again."""
    unsettled(scene)
    step = scene.begin("u1", OTHER, now_s=RULES.assume_s)
    step = scene.do(step, now_s=RULES.assume_s)
    assert isinstance(step, WriteBinding)
    assert (step.node, step.resource_version) == (OTHER, "17")
    assert scene.do(step).outcome is Outcome.OK


def test_a_settled_bind_is_read_all_the_same(scene):
    """Its pod was thought to have ended between the two halves of a read."""
    unsettled(scene)
    step = scene.begin()
    scene.cluster.pods.forget("u1")
    scene.engine.pod_ended("u1")
    assert isinstance(scene.do(step), WriteBinding)


def test_the_end_of_a_pod_settles_its_binds(scene):
    """Nothing is left to find out."""
    unsettled(scene)
    scene.engine.pod_ended("u1")
    assert len(scene.engine.binds.unsettled) == 0


def test_only_so_many_unsettled_binds_are_kept(scene, monkeypatch):
    """What is dropped ends by the clock all the same."""
    monkeypatch.setattr("extender.bind.state_machine.MAX_UNSETTLED", 1)
    unsettled(scene)
    scene.server.create(uid="u2")
    scene.do(scene.lose(scene.do(scene.begin("u2")), is_done=False))
    assert len(scene.engine.binds.unsettled) == 1


def test_a_second_call_while_the_first_is_under_way_plans_nothing(scene):
    """kube-scheduler gave up waiting and came again, or there are two schedulers."""
    first = scene.begin()
    before = scene.cluster.as_json()
    answer = scene.begin("u1", OTHER)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.UNDER_WAY)
    assert scene.cluster.as_json() == before
    assert scene.do(first).outcome is Outcome.OK


def test_an_abandoned_bind_is_taken_over(scene):
    """Should a shell ever lose a step, the pod must not be stuck; the old step says nothing."""
    first = scene.begin()
    second = scene.begin(now_s=RULES.assume_s)
    assert isinstance(second, ReadPod)
    assert scene.do(first).reason is Reason.UNDER_WAY
    assert scene.do(second).outcome is Outcome.OK


def test_a_bind_abandoned_before_its_write_leaves_nothing(scene):
    """It was about to read the pod."""
    scene.server.create(uid="u2")
    first = scene.begin("u2")
    second = scene.begin("u2", now_s=RULES.assume_s)
    assert isinstance(second, ReadPod)
    assert second.bind_id != first.bind_id
    assert scene.do(first).reason is Reason.UNDER_WAY
    assert scene.engine.binds.abandon(first, "late").reason is Reason.UNDER_WAY
    assert scene.finish(second).outcome is Outcome.OK


def test_a_write_that_is_abandoned_may_still_come_true(scene):
    """Out of time: the plan stays, the answer is an error, the next call finds out."""
    step = scene.begin()
    answer = scene.engine.binds.abandon(step, "out of time")
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.OUTCOME_UNKNOWN)
    assert "out of time" in answer.detail
    assert scene.is_assumed()
    scene.server.write(step)
    assert scene.do(scene.begin()).outcome is Outcome.OK


@pytest.mark.parametrize("result", [WriteResult.CONFLICT, WriteResult.UNKNOWN])
def test_a_read_after_a_write_that_is_abandoned_keeps_the_plan(scene, result):
    """Also after a conflict: it may be our own earlier write that it met."""
    step = scene.engine.binds.written(scene.begin(), Written(result))
    answer = scene.engine.binds.abandon(step, "no answer")
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.NOT_READ)
    assert scene.is_assumed()
    assert isinstance(scene.begin(), ReadPod)


def test_a_read_that_is_abandoned_before_any_write_leaves_nothing(scene):
    """Nothing was planned yet."""
    scene.server.create(uid="u2")
    answer = scene.engine.binds.abandon(scene.begin("u2"), "no answer")
    assert answer.reason is Reason.NOT_READ
    assert scene.cluster.n_owners == 0
    assert isinstance(scene.begin("u2"), ReadPod)


def test_a_read_that_is_abandoned_leaves_the_earlier_write_unsettled(scene):
    """The second call found out nothing; the third may."""
    unsettled(scene)
    scene.engine.binds.abandon(scene.begin(), "no answer")
    assert len(scene.engine.binds.unsettled) == 1
    assert scene.do(scene.do(scene.begin())).outcome is Outcome.OK


def test_a_pod_that_is_no_json_is_not_read(scene):
    """A proxy's error page with status 200, say; what was written may come true."""
    step = scene.engine.binds.written(scene.begin(), UNKNOWN)
    answer = scene.engine.binds.read(step, b"<html>", 0.0)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.NOT_READ)
    assert scene.is_assumed()


def test_two_schedulers_bind_the_same_pod_to_two_nodes(scene):
    """One of them wins, the other gets an error; no device is kept for the loser."""
    first = scene.begin()
    assert scene.begin("u1", OTHER).reason is Reason.UNDER_WAY
    assert scene.do(first).outcome is Outcome.OK
    before = scene.cluster.as_json()
    answer = scene.begin("u1", OTHER)
    assert answer.reason is Reason.BOUND_ELSEWHERE
    assert f"bound to node {NODE}, expected '{OTHER}'" in answer.detail
    again = scene.begin()
    assert (again.outcome, again.body) == (Outcome.OK, b'{"Error":""}')
    assert again.detail == "again"
    assert scene.cluster.as_json() == before


def test_a_pod_recreated_between_filter_and_bind(scene):
    """The old pod's call names a uid that is no more; the new pod is bound by its own."""
    recreated(scene)
    answer = scene.bind()
    assert answer.reason is Reason.POD_RECREATED
    scene.filter("u9")
    answer = scene.finish(scene.begin("u9", PodName="pod-u1"))
    assert answer.outcome is Outcome.OK
    assert scene.server.pods["default/pod-u1"].node == NODE


def test_a_bound_pod_is_not_rejected_any_more(scene):
    """It was rejected once, then a node came up and it was bound."""
    body = args(json.loads(scene.server.pods["default/pod-u1"].as_json()), ["ghost"])
    assert scene.engine.answer(Verb.FILTER, body, 0.0).outcome is Outcome.REFUSED
    assert scene.engine.pending.n_rejected == 1
    gateway = Gateway(scene.engine)
    step = gateway.handle(BindRequested(BindCall.decode(binding("u1", NODE)), 0.0))
    assert isinstance(step, WriteBinding)
    gateway.handle(BindingWritten(step, scene.server.write(step), 0.0))
    assert scene.engine.pending.n_rejected == 0


def test_stale_state_plans_nothing(scene):
    """What is free is not known; a pod that requests 0 GPUs needs none."""
    scene.cluster.set_freshness(is_synced=False, observed_at_s=None)
    answer = scene.begin()
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.STALE)
    scene.server.create(0, uid="u2")
    assert scene.bind("u2").outcome is Outcome.OK
