"""The way in to a live engine: everything passes on, and a log of it gives the same answers."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.bind import BindCall, ReadPod, WriteBinding, WriteResult, Written
from extender.decision_log import DecisionLog
from extender.decision_log.replay import replay
from extender.engine import Engine, Gateway, RatingLimit
from extender.engine.events import (
    BindAbandoned,
    BindingWritten,
    BindPodRead,
    BindRequested,
    FreshnessSet,
    NodeDeleted,
    NodesListed,
    NodeUpdated,
    NominationDeleted,
    NominationsListed,
    NominationUpdated,
    PodDeleted,
    PodFetched,
    PodsListed,
    PodUpdated,
    PreemptAbandoned,
    PreemptNodesRead,
    PreemptRequested,
    RatingsResumed,
    RequeueDropped,
    RequeueDue,
    TimePassed,
    VerbCalled,
)
from extender.errors import DecisionLogError
from extender.pending import Requeue
from extender.preemption import NodeReading, NodesRead, ReadNodes
from extender.preemption.node_pods import PodOnNode
from extender.protocol import Answer, Outcome, Reason, Verb
from extender.state import LiveCluster
from kube.objects import DisruptionBudget
from kube.objects.policies import Operator, Requirement
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import (
    MACHINE,
    facts,
    free,
    ids,
    node,
    owners,
    plan_of,
    whole,
)
from tests.unit.extender.pods import GPU, args, binding, container, pod
from tests.unit.extender.recorded_plans import recorded_plans
from topology.annotations import encode_plan
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = ["n1", "n2"]
OTHER = "amd.com/gpu"


class Scene:
    """Two nodes of four GPUs, and the log of what they go through."""

    def __init__(self, resources: tuple[str, ...] = RULES.resources) -> None:
        self.file = io.StringIO()
        rules = replace(RULES, resources=resources)
        cluster = LiveCluster(rules.resources, demand=rules.demand)
        engine = Engine(cluster, rules)
        self.ended: list[DecisionLogError] = []
        self.log = DecisionLog(self.file, rules, self.ended.append)
        self.gateway = Gateway(engine, record=self.log.record)
        self.gateway.handle(NodesListed(tuple(node(name) for name in NODES)))
        self.gateway.handle(PodsListed(()))
        self.gateway.handle(NominationsListed(()))
        self.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=0.0))

    @property
    def lines(self) -> list[str]:
        """The log so far."""
        return self.file.getvalue().splitlines(keepends=True)

    def filter(self, n_gpus: int | None, uid: str, *requested: str, **more: Any) -> Answer:
        """A filter call at 1 s."""
        body = args(pod(n_gpus, uid=uid, **more), list(requested or NODES))
        return self.gateway.handle(VerbCalled(Verb.FILTER, body, 1.0))

    def pass_time(self, now_s: float) -> None:
        """The watches get events, and what is over ends."""
        self.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=now_s))
        self.gateway.handle(TimePassed(now_s))

    def bind(self, n_gpus: int, uid: str, on: str) -> Answer:
        """Filter, and bind with success."""
        self.filter(n_gpus, uid, on)
        step = self.gateway.handle(BindRequested(BindCall.decode(binding(uid, on)), 1.0))
        assert isinstance(step, WriteBinding)
        answer = self.gateway.handle(BindingWritten(step, Written(WriteResult.ACCEPTED), 1.0))
        assert isinstance(answer, Answer)
        return answer


@pytest.fixture
def scene() -> Scene:
    """Nothing placed yet."""
    return Scene()


def nominated(uid: str, on: str | None, n_gpus: int = 2, **changes: Any) -> Any:
    """A pending pod that waits for a node."""
    pending: dict[str, Any] = {"nominated_node": on, "phase": "Pending", "node_name": None}
    return replace(whole(uid, None, n_gpus), **(pending | changes))


def test_a_bound_pod_is_known_before_the_watch_shows_it(scene):
    """The next pod must not be planned onto its devices meanwhile."""
    answer = scene.bind(2, "u1", "n1")
    assert (answer.outcome, answer.size_gpus) == (Outcome.OK, 2)
    assert answer.machine
    again = scene.gateway.handle(BindRequested(BindCall.decode(binding("u1", "n1")), 2.0))
    assert (again.outcome, again.detail) == (Outcome.OK, "again")
    assert free(scene.gateway.cluster, "n1").count("1") == 2


def test_the_feed_reaches_the_cluster(scene):
    """Nodes and pods come and go."""
    gateway, cluster = scene.gateway, scene.gateway.cluster
    gateway.handle(PodUpdated(facts("a", plan_of("n1", *ids("n1", 0, 1)))))
    assert free(cluster, "n1") == "0011"
    gateway.handle(PodDeleted("a"))
    assert free(cluster, "n1") == "1111"
    gateway.handle(PodUpdated(facts("b")))
    gateway.handle(PodFetched(whole("b", "n2", 1, *ids("n2", 3))))
    assert free(cluster, "n2") == "1110"
    gateway.handle(NodeUpdated(node("n3")))
    gateway.handle(NodeDeleted("n2"))
    assert list(cluster.snapshot.nodes) == ["n1", "n3"]
    gateway.handle(PodsListed((facts("c", plan_of("n1", *ids("n1", 0, 1, 2, 3))),)))
    assert free(cluster, "n1") == "0000"


@pytest.mark.parametrize("end", [PodDeleted("u1"), PodsListed(())], ids=["gone", "not listed"])
def test_a_pod_that_ended_leaves_no_bind_unsettled(scene, end):
    """However its end is noticed: its write can no longer succeed."""
    gateway = scene.gateway
    scene.filter(4, "u1")
    step = gateway.handle(BindRequested(BindCall.decode(binding("u1", "n1")), 1.0))
    gateway.handle(BindAbandoned(step, "out of time", 1.0))
    assert gateway.engine.binds.is_unsettled("u1")
    gateway.handle(PodUpdated(facts("u1", plan_of("n1", *ids("n1", 0, 1, 2, 3)))))
    gateway.handle(end)
    assert not gateway.engine.binds.is_unsettled("u1")


def test_a_nomination_keeps_devices_for_its_pod(scene):
    """Its own filter call sees them free, another pod's does not."""
    gateway = scene.gateway
    gateway.handle(NominationUpdated(nominated("u1", "n1", 4)))
    assert scene.filter(4, "u2", "n1").outcome is Outcome.REFUSED
    assert scene.filter(4, "u1", "n1").outcome is Outcome.OK
    scores = json.loads(
        gateway.handle(VerbCalled(Verb.PRIORITIZE, args(pod(4, uid="u1"), ["n1"]), 1.0)).body
    )
    assert scores[0]["Score"] > 0
    gateway.handle(NominationDeleted("u1"))
    assert scene.filter(4, "u2", "n1").outcome is Outcome.OK
    gateway.handle(NominationsListed((nominated("u3", "n1", 4), nominated("u4", None))))
    assert scene.filter(4, "u2", "n1").outcome is Outcome.REFUSED


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(nominated("u1", None), id="nominated no more"),
        pytest.param(nominated("u1", "n1", node_name="n1"), id="bound"),
        pytest.param(nominated("u1", "n1", is_deleting=True), id="being deleted"),
        pytest.param(nominated("u1", "n1", phase="Failed"), id="ended"),
        pytest.param(nominated("u1", "n1", 0), id="requests no GPU"),
        pytest.param(nominated("u1", "n1", body=b"[]"), id="no pod"),
    ],
)
def test_a_pod_that_waits_for_nothing_has_no_nomination(scene, spoilt):
    """What was claimed for it is free again."""
    scene.gateway.handle(NominationUpdated(nominated("u1", "n1", 4)))
    scene.gateway.handle(NominationUpdated(spoilt))
    assert free(scene.gateway.cluster, "n1") == "1111"


def test_a_pod_that_the_watch_shows_bound_leaves_the_unschedulable_pool(scene):
    """Another replica bound it."""
    scene.filter(8, "u1")
    scene.filter(8, "u2")
    assert scene.gateway.engine.pending.n_rejected == 2
    scene.gateway.handle(PodUpdated(facts("u1")))
    scene.gateway.handle(PodsListed((facts("u2"),)))
    assert scene.gateway.engine.pending.n_rejected == 0


def test_a_pod_that_fits_again_is_woken(scene):
    """What frees devices is seen after the scheduler acted on it; half a second later we wake."""
    scene.bind(4, "u1", "n1")
    scene.gateway.handle(RequeueDue(1.0))
    assert scene.filter(4, "u2", "n1").outcome is Outcome.REFUSED
    scene.gateway.handle(PodDeleted("u1"))
    assert scene.gateway.handle(RequeueDue(2.0)) == ()
    assert scene.gateway.handle(RequeueDue(2.5)) == (Requeue("default", "pod-u2", "u2", ""),)
    scene.gateway.handle(RequeueDropped("u2"))
    assert scene.gateway.handle(RequeueDue(9.0)) == ()


def test_explain_shows_since_when_a_pod_is_pending_and_why(scene):
    """Of a pod that filter rejected."""
    scene.filter(4, "u2", "ghost")
    body = json.dumps(pod(4, uid="u2")).encode()
    explained = json.loads(scene.gateway.handle(VerbCalled(Verb.EXPLAIN, body, 5.0)).body)
    assert explained["unschedulable"] == {
        "reason": Reason.UNKNOWN_NODE.value,
        "reason_label": "unknown_node",
        "since_s": 1.0,
        "last_filtered_s": 1.0,
        "n_requeues": 0,
    }


PDB = DisruptionBudget(
    "default", "b", (Requirement("app", Operator.IN, frozenset({"x"})),), 1, frozenset({"p"})
)


def preempting(scene: Scene) -> ReadNodes:
    """A preempt call that has to read: full of pods of lower priority."""
    for uid in ("a", "b", "c", "d"):
        scene.bind(1, uid, "n1")
    want = pod(2, uid="want", affinity="nvlink", policy="required")
    want["spec"]["priority"] = 1000
    victims = {"n1": {"Pods": [], "NumPDBViolations": 0}}
    body = {"Pod": want, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    step = scene.gateway.handle(PreemptRequested(json.dumps(body).encode(), 3.0))
    assert isinstance(step, ReadNodes)
    return step


def test_a_preemption_reads_and_names_victims(scene):
    """Through the same door, and with all that was read in the log."""
    step = preempting(scene)
    pods = tuple(
        PodOnNode(uid, "default", f"pod-{uid}", requests={"pods": 1, GPU: 1}, labels={"app": "x"})
        for uid in ("a", "b", "c", "d")
    )
    reading = NodeReading("n1", {"pods": 110, GPU: 4}, pods)
    answer = scene.gateway.handle(PreemptNodesRead(step, NodesRead((reading,), (PDB,)), 3.1))
    assert isinstance(answer, Answer)
    assert answer.outcome is Outcome.OK
    assert len(json.loads(answer.body)["NodeNameToMetaVictims"]["n1"]["Pods"]) == 2
    assert replay(scene.lines).difference is None


def divided(*sizes: int) -> dict[str, Any]:
    """A pod whose containers request so many GPUs, each on one NUMA node."""
    content = pod(affinity="numa", policy="required")
    content["spec"]["containers"] = [container(f"c{i}", size) for i, size in enumerate(sizes)]
    return content


def two_resources() -> dict[str, Any]:
    """A pod that requests GPUs of two resources, which is refused."""
    content = pod(1)
    content["spec"]["containers"].append({"name": "b", "resources": {"limits": {OTHER: 1}}})
    return content


def busy() -> Scene:
    """A run with every kind of input and answer."""
    scene = Scene()
    gateway = scene.gateway
    gateway.handle(NodeUpdated(node("n3", topology=None)))
    gateway.handle(NodeDeleted("n3"))
    gateway.handle(NominationUpdated(nominated("u9", "n2", 1)))
    scene.bind(2, "u1", "n1")
    gateway.handle(PodUpdated(facts("u1", plan_of("n1", *ids("n1", 0, 1)))))
    gateway.handle(PreemptAbandoned(preempting_again(scene), "late", 3.0))
    scene.filter(4, "u2")
    step = gateway.handle(BindRequested(BindCall.decode(binding("u3", "n2")), 4.0))
    assert isinstance(step, ReadPod)
    step = gateway.handle(BindPodRead(step, json.dumps(pod(1, uid="u3")).encode(), 4.1))
    assert isinstance(step, WriteBinding)
    step = gateway.handle(BindingWritten(step, Written(WriteResult.UNKNOWN, "timeout"), 4.2))
    assert isinstance(step, ReadPod)
    gateway.handle(BindAbandoned(step, "out of time", 4.3))
    step = gateway.handle(BindRequested(BindCall.decode(binding("u3", "n2")), 5.0))
    assert isinstance(step, ReadPod)
    gateway.handle(BindPodRead(step, None, 5.1))
    gateway.handle(PodFetched(whole("u4", "n2", 1, *ids("n2", 3))))
    gateway.handle(RequeueDue(6.0))
    for uid in ("u1", "x", "y"):
        gateway.handle(PodDeleted(uid))
    gateway.handle(RequeueDue(7.0))
    gateway.handle(RequeueDue(8.0))
    gateway.handle(RequeueDropped("u2"))
    gateway.handle(NominationDeleted("u9"))
    gateway.handle(FreshnessSet(is_synced=True, observed_at_s=100.0))
    gateway.handle(TimePassed(100.0))
    gateway.handle(VerbCalled(Verb.PRIORITIZE, b"\xff", 9.0))
    return scene


def try_again(scene: Scene, now_s: float) -> Any:
    """The bind call of u1 once more; it reads the pod first, which is as it was."""
    scene.pass_time(now_s)
    step = scene.gateway.handle(BindRequested(BindCall.decode(binding("u1", "n1")), now_s))
    assert isinstance(step, ReadPod)
    return scene.gateway.handle(BindPodRead(step, json.dumps(pod(4, uid="u1")).encode(), now_s))


def lose_answer(scene: Scene, step: WriteBinding, now_s: float) -> None:
    """The outcome of the write is unknown, and the pod cannot be read."""
    read = scene.gateway.handle(
        BindingWritten(step, Written(WriteResult.UNKNOWN, "timeout"), now_s)
    )
    assert isinstance(read, ReadPod)
    scene.gateway.handle(BindAbandoned(read, "out of time", now_s))


def test_a_plan_that_is_written_again_is_kept_for_its_full_time_again(scene):
    """The write may come true long after the first one, and its devices must be there then."""
    scene.filter(4, "u1", "n1")
    step = scene.gateway.handle(BindRequested(BindCall.decode(binding("u1", "n1")), 1.0))
    assert isinstance(step, WriteBinding)
    lose_answer(scene, step, 2.0)
    step = try_again(scene, 28.0)
    assert isinstance(step, WriteBinding)
    lose_answer(scene, step, 30.0)
    scene.pass_time(57.0)
    assert len(owners(scene.gateway.cluster, "n1")) == 4
    assert replay(scene.lines).difference is None
    scene.pass_time(58.0)
    assert owners(scene.gateway.cluster, "n1") == {}


def test_no_assumption_ends_under_a_bind(scene):
    """However long the call takes: what it writes at last is what is kept."""
    scene.filter(4, "u1", "n1")
    step = scene.gateway.handle(BindRequested(BindCall.decode(binding("u1", "n1")), 1.0))
    assert isinstance(step, WriteBinding)
    scene.pass_time(500.0)
    assert len(owners(scene.gateway.cluster, "n1")) == 4
    lose_answer(scene, step, 500.0)
    scene.pass_time(501.0)
    assert owners(scene.gateway.cluster, "n1") == {}
    assert replay(scene.lines).difference is None


def preempting_again(scene: Scene) -> ReadNodes:
    """A preemption after all of n1 is taken."""
    scene.bind(1, "x", "n1")
    scene.bind(1, "y", "n1")
    want = pod(2, uid="want", affinity="nvlink", policy="required")
    want["spec"]["priority"] = 1000
    victims = {"n1": {"Pods": [], "NumPDBViolations": 0}}
    body = {"Pod": want, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    step = scene.gateway.handle(PreemptRequested(json.dumps(body).encode(), 3.0))
    assert isinstance(step, ReadNodes)
    return step


def test_a_live_run_replays_byte_for_byte():
    """Over a restart in the middle of the file as well, and cut off at any line."""
    lines = busy().lines
    found = replay([*lines, *lines])
    assert found.difference is None
    assert found.n_calls > 2 * 15
    assert replay([*lines[:30], '{"kind":"fe']).cut == (31,)


@pytest.mark.parametrize(
    ("works", "allowed"),
    [
        pytest.param((10_000, 1), [True, True], id="the first always"),
        pytest.param((1, 1600, 1600), [True, True, True], id="while half is left"),
        pytest.param((1, 10_000), [True, False], id="longer than the budget"),
        pytest.param((1, 100, 100), [True, True, True], id="tables"),
    ],
)
def test_no_rating_is_begun_that_would_exceed_the_budget(works, allowed):
    """A search takes as long as all other ratings of a call together may."""
    budget = RatingLimit(0.1, lambda: 7.0).budget()
    assert [budget.allows(work) for work in works] == allowed


def test_a_call_that_ran_out_of_time_replays_by_count():
    """A clock decided in the first run; the log says how many states it had time for."""
    scene = Scene()
    now_s = iter(range(1000))
    limit = RatingLimit(1.0, lambda: float(next(now_s)))
    scene.gateway = Gateway(scene.gateway.engine, record=scene.log.record, limit=limit)
    scene.bind(2, "held", "n1")
    answers = [scene.filter(1, "u1", affinity="none") for _ in range(2)]
    assert answers[0].n_deferred == 1
    assert '"n_rated":1' in "".join(scene.lines)
    scene.gateway.handle(RatingsResumed(5))
    assert scene.filter(1, "u1", affinity="none").n_deferred == 0
    assert replay(scene.lines).difference is None


def test_what_the_log_does_not_hold_changes_nothing():
    """People and scrapers read at any moment; a replay knows nothing of them."""
    scene = Scene()
    reads: list[Callable[[], object]] = [
        lambda: scene.gateway.cluster.snapshot,
        scene.gateway.cluster.as_json,
        scene.gateway.cluster.take_effects,
        lambda: scene.gateway.handle(VerbCalled(Verb.EXPLAIN, json.dumps(pod(2)).encode(), 1.0)),
    ]
    for i in range(12):
        scene.gateway.handle(PodUpdated(facts(f"p{i % 3}", plan_of("n1", *ids("n1", i % 4)))))
        reads[i % 4]()
        scene.gateway.handle(PodDeleted(f"p{(i + 1) % 3}"))
        scene.filter(1 + i % 4, f"u{i}")
    assert replay(scene.lines).difference is None


def test_a_plan_can_be_traced_to_what_was_free():
    """A checker makes the best set of these devices again, and compares."""
    scene = Scene()
    scene.bind(2, "u1", "n1")
    scene.bind(1, "u2", "n1")
    first, second = recorded_plans(scene.lines)
    assert (first.uid, first.node, first.free) == ("u1", "n1", ids("n1"))
    assert first.text is not None
    plan = json.loads(first.text)
    assert plan["generation"] == first.generation < second.generation
    assert set(second.free) == set(ids("n1")) - set(plan["containers"][0]["ids"])


def at(lines: list[str], name: str, /, **fields: object) -> list[str]:
    """The log with the first line of an event changed."""
    changed = list(lines)
    for i, line in enumerate(lines):
        content = json.loads(line)
        if content.get("name") == name:
            changed[i] = json.dumps(content | fields) + "\n"
            return changed
    msg = f"no line of {name}"
    raise AssertionError(msg)


@pytest.mark.parametrize(
    ("name", "fields", "differs"),
    [
        ("BindingWritten", {"output": {"outcome": "failed"}}, "outcome"),
        ("BindRequested", {"output": {"bind_id": 99}}, "bind_id"),
        ("PodUpdated", {"output": {"uid": "x"}}, "output"),
    ],
)
def test_a_step_that_goes_otherwise_is_shown(name, fields, differs):
    """By line and by the member that differs."""
    difference = replay(at(busy().lines, name, **fields)).difference
    assert difference is not None
    assert difference.what == differs


def test_a_wake_that_goes_otherwise_is_shown():
    """Who was woken is an answer as well."""
    lines = busy().lines
    woken = next(
        line for line in lines if json.loads(line).get("output") and '"RequeueDue"' in line
    )
    lines[lines.index(woken)] = json.dumps(json.loads(woken) | {"output": []})
    difference = replay(lines).difference
    assert difference is not None
    assert (difference.what, difference.recorded) == ("output", "[]")
    assert "'uid': 'u2'" in difference.replayed


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(
            lambda lines: at(lines, "PodUpdated", name="GhostSeen"),
            "event is 'GhostSeen', expected one of: Bind",
            id="an unknown input",
        ),
        pytest.param(
            lambda lines: at(lines, "PodUpdated", input={"pod": {"uid": 5}}),
            "input of PodUpdated: pod.uid is 5, expected a string",
            id="an input of another form",
        ),
        pytest.param(
            lambda lines: at(lines, "BindingWritten", name="BindPodRead"),
            "input of BindPodRead: ",
            id="another step than was requested",
        ),
        pytest.param(
            lambda lines: [line.replace('"verb":"filter"', '"verb":"bind"') for line in lines],
            "bind is not answered at once",
            id="a verb that is no call here",
        ),
    ],
)
def test_a_live_log_that_makes_no_sense_is_refused(spoil, message):
    """By the line, and short."""
    with pytest.raises(DecisionLogError) as caught:
        replay(spoil(busy().lines))
    assert message in str(caught.value)


def fail(_text: str) -> int:
    """Write to a disk that is full."""
    msg = "No space left on device"
    raise OSError(msg)


def test_a_log_that_cannot_be_written_ends_once_and_placing_goes_on(scene, monkeypatch):
    """The disk is full: it is logged, and pods are not affected."""
    monkeypatch.setattr(scene.file, "write", fail)
    assert scene.bind(1, "u1", "n1").outcome is Outcome.OK
    assert scene.bind(1, "u2", "n1").outcome is Outcome.OK
    (error,) = scene.ended
    assert "No space left on device" in str(error)


def test_without_a_log_nothing_is_recorded():
    """The normal case: inputs are coalesced and nothing is encoded."""
    cluster = LiveCluster(RULES.resources, demand=RULES.demand)
    gateway = Gateway(Engine(cluster, RULES))
    gateway.handle(NodeUpdated(node("n1")))
    gateway.handle(FreshnessSet(is_synced=True, observed_at_s=0.0))
    assert gateway.engine.is_ready(1.0)
    assert gateway.handle(RequeueDue(1.0)) == ()


def test_a_bound_pod_is_explained_by_what_it_has(scene):
    """Its plan, its devices, what they are worth, and what it could have now."""
    gateway = scene.gateway
    scene.bind(1, "u0", "n1")
    plan = plan_of("n1", *ids("n1", 1, 2))
    gateway.handle(PodUpdated(facts("u1", plan)))
    content = pod(2, uid="u1")
    content["spec"]["nodeName"] = "n1"
    content["metadata"]["annotations"][names.PLAN] = encode_plan(plan)
    explained = json.loads(
        gateway.handle(VerbCalled(Verb.EXPLAIN, json.dumps(content).encode(), 2.0)).body
    )
    bound = explained["bound"]
    assert "nodes" not in explained
    assert (bound["node"], bound["plan"]) == ("n1", encode_plan(plan))
    assert [one["id"] for one in bound["devices"]] == list(ids("n1", 1, 2))
    assert {one["state"] for one in bound["devices"]} == {"bound"}
    assert bound["has_what_was_planned"] is True
    (only,) = bound["containers"]
    assert (only["name"], only["ids"]) == ("main", list(ids("n1", 1, 2)))
    assert only["gbytes_per_s"] > 0
    assert bound["could_have"]["fits"] is True
    assert owners(gateway.cluster, "n1")["n1-1"] == ("bound", "u1")
    assert MACHINE.n_gpus == 4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"node": "ghost"}, {"machine": None, "could_have": None}, id="unknown node"),
        pytest.param(
            {"text": "{}"},
            {"has_what_was_planned": None, "containers": None},
            id="a plan that cannot be read",
        ),
        pytest.param(
            {"text": None}, {"plan": None, "has_what_was_planned": None}, id="no plan at all"
        ),
        pytest.param(
            {"text": encode_plan(plan_of("n1", "elsewhere"))},
            {"has_what_was_planned": False, "containers": None},
            id="devices that the node has not",
        ),
        pytest.param({"n_gpus": None}, {"could_have": None}, id="no GPU requested"),
        pytest.param(
            {"n_gpus": 9},
            {"could_have": {"fits": False, "reason_label": "too_few_gpus"}},
            id="could not be placed here now",
        ),
    ],
)
def test_what_is_not_known_of_a_bound_pod_is_not_guessed(scene, changes, expected):
    """Each gap is reported as a gap."""
    content = pod(changes.get("n_gpus", 2), uid="u1")
    content["spec"]["nodeName"] = changes.get("node", "n1")
    text = changes.get("text", encode_plan(plan_of("n1", *ids("n1", 0, 1))))
    if text is not None:
        content["metadata"]["annotations"][names.PLAN] = text
    explained = json.loads(
        scene.gateway.handle(VerbCalled(Verb.EXPLAIN, json.dumps(content).encode(), 2.0)).body
    )
    for key, value in expected.items():
        found = explained["bound"][key]
        if isinstance(value, dict):
            assert value.items() <= found.items()
        else:
            assert found == value
