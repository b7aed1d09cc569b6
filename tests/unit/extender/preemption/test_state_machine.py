"""The preempt verb over small clusters: what passes, what is read, whom we name instead."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.embedded import ClusterSpec, lay_out
from extender.engine import Engine
from extender.placement import Rater
from extender.preemption import NodeReading, NodesRead, Preemptions, ReadNodes
from extender.preemption.node_pods import PodOnNode
from extender.preemption.state_machine import MAX_IN_FLIGHT, MAX_READ, NODES_AT_ONCE
from extender.protocol import Answer, Outcome, Reason, Verb, WirePod, parse_pod
from tests.unit.extender.engines import RULES, described, report_devices
from tests.unit.extender.feeds import facts
from tests.unit.extender.pods import GPU, args, pod
from topology.annotations import ContainerPlan, Plan, encode_plan

PRIORITY = 1000


class Place:
    """A cluster of DGX-1 machines (or what the groups say) with pods on it."""

    def __init__(self, n_nodes: int = 1, *groups: dict[str, Any]) -> None:
        wanted = list(groups or ({"count": n_nodes, "machine": "dgx-1-v100"},))
        spec = ClusterSpec.model_validate({"groups": wanted})
        self.described = lay_out(spec)
        self.cluster = described(self.described)
        self.preemptions = Preemptions(self.cluster, RULES, Rater())
        self.nodes = list(self.cluster.snapshot.nodes)
        self.residents: dict[str, list[PodOnNode]] = {name: [] for name in self.nodes}

    def put(self, uid: str, *gpus: int, node: int = 0, priority: int = 0, **more: Any) -> None:
        """Bind a pod to these GPUs of a node."""
        name = self.nodes[node]
        ids = tuple(self.cluster.snapshot.nodes[name].ids[i] for i in gpus)
        plan = Plan(name, (ContainerPlan("main", GPU, ids),), ids, 1, 0.0, priority)
        request = parse_pod(WirePod.model_validate(pod(len(gpus), uid=uid)), (GPU,))
        assert self.cluster.assume(request, plan, deadline_s=1.0) is None
        self.show(uid, encode_plan(plan))
        fields: dict[str, Any] = {"requests": {"pods": 1, GPU: len(gpus)}} | more
        self.residents[name].append(PodOnNode(uid, "default", uid, priority=priority, **fields))

    def show(self, uid: str, plan_text: str) -> None:
        """The watch shows a pod with this text for a plan."""
        self.cluster.pods.update(facts(uid, plan_text, name=uid))
        self.cluster.reconcile()

    def break_gpus(self, *gpus: int) -> None:
        """These GPUs of the first node fail."""
        first = self.described[0]
        report_devices(self.cluster, first, unhealthy=[first.ids[gpu] for gpu in gpus])

    def fill(self, *priorities: int, node: int = 0) -> None:
        """One pod on each GPU of a node: n0-0, n0-1, ..."""
        for gpu, priority in enumerate(priorities):
            self.put(f"n{node}-{gpu}", gpu, node=node, priority=priority)

    def preempt(self, preemptor: dict[str, Any], given: dict[int, Any], **more: Any) -> Any:
        """Begin; victims by number of the node, as uids or as they go over the wire."""
        meta = {
            self.nodes[node]: one if isinstance(one, dict) else victims(*one)
            for node, one in given.items()
        }
        body: dict[str, Any] = {
            "Pod": preemptor,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": meta,
        } | more
        return self.preemptions.begin(json.dumps(body).encode(), 0.0)

    def reading(self, name: str) -> NodeReading:
        """A node as the API server would show it."""
        return NodeReading(name, {"pods": 110, GPU: 8}, tuple(self.residents[name]))

    def read(self, step: Any) -> Any:
        """Read what the step names."""
        return self.end(step, *(self.reading(name) for name in step.names))

    def end(self, step: Any, *nodes: NodeReading, fault: str = "") -> Any:
        """This is what was read."""
        return self.preemptions.nodes_read(step, NodesRead(nodes, fault=fault))


def victims(*uids: str, n_violations: int = 0) -> dict[str, Any]:
    """MetaVictims."""
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": n_violations}


def wanting(n_gpus: int | None = 2, *, nominated: str | None = None, **notes: str) -> Any:
    """A pod of high priority; by default it must have NVLink."""
    wishes = notes or {"affinity": "nvlink", "policy": "required"}
    content = pod(n_gpus, uid="want", **wishes)
    content["spec"]["priority"] = PRIORITY
    if nominated is not None:
        content["status"]["nominatedNodeName"] = nominated
    return content


def named(answer: Any) -> dict[str, tuple[list[str], int]]:
    """Victims by node, of an answer."""
    assert isinstance(answer, Answer)
    content = json.loads(answer.body)["NodeNameToMetaVictims"]
    assert answer.n_named == len(content)
    return {
        name: ([pod["UID"] for pod in one["Pods"]], one["NumPDBViolations"])
        for name, one in content.items()
    }


FULL = (0,) * 8


def test_victims_that_give_a_set_pass_as_they_are():
    """GPUs 0 and 3 are linked; the scheduler's order and count are its own."""
    place = Place()
    place.fill(*FULL)
    answer = place.preempt(wanting(), {0: victims("n0-3", "plain", "n0-0", n_violations=2)})
    assert named(answer) == {place.nodes[0]: (["n0-3", "plain", "n0-0"], 2)}
    assert answer.outcome is Outcome.OK
    assert (answer.n_nodes, answer.pod, answer.pod_uid) == (1, "default/pod-want", "want")


def test_other_victims_are_named_where_the_scheduler_s_hold_no_set():
    """GPUs 0 and 5 have no link; reading the node shows who is cheapest among those that do."""
    place = Place()
    place.fill(0, 9, 9, 9, 9, 0, 1, 9)
    step = place.preempt(wanting(), {0: ["n0-0", "n0-5"]})
    assert isinstance(step, ReadNodes)
    assert step.names == (place.nodes[0],)
    assert named(place.read(step)) == {place.nodes[0]: (["n0-6", "n0-5"], 0)}


def test_free_gpus_of_the_node_count():
    """One victim beside a free GPU is enough."""
    place = Place()
    place.put("a", 3)
    place.put("b", 1, 2, 4, 5, 6, 7)
    assert named(place.preempt(wanting(), {0: ["a"]})) == {place.nodes[0]: (["a"], 0)}


def test_a_bad_gpu_of_a_victim_stays_bad():
    """Evicting its pod frees a GPU that no pod gets, but counts for the scheduler.

    It subtracts the eight requests from the seven GPUs that the node can allocate.
    """
    place = Place()
    place.fill(9, 9, 9, 0, 9, 0, 5, 5)
    place.break_gpus(3)
    step = place.preempt(wanting(), {0: ["n0-0", "n0-3"]})
    reading = replace(place.reading(place.nodes[0]), room={"pods": 110, GPU: 7})
    answer = place.end(step, reading)
    assert named(answer) == {place.nodes[0]: (["n0-6", "n0-3", "n0-5"], 0)}


@pytest.mark.parametrize(
    ("priorities", "given"),
    [
        pytest.param((0, *[PRIORITY] * 4, 0, 0, PRIORITY), ["n0-0", "n0-5"], id="a pair is there"),
        pytest.param((0, *[PRIORITY] * 4, 0, 0, PRIORITY), [], id="victims from scratch"),
    ],
)
def test_no_pod_of_equal_priority_is_evicted(priorities, given):
    """Only GPUs 0, 5 and 6 may be taken, and 5 and 6 are linked."""
    place = Place()
    place.fill(*priorities)
    step = place.preempt(wanting(), {0: given})
    assert named(place.read(step)) == {place.nodes[0]: (["n0-5", "n0-6"], 0)}


V100 = {"count": 1, "machine": "dgx-1-v100"}


@pytest.mark.parametrize(
    ("group", "preemptor", "given"),
    [
        pytest.param({"count": 1, "machine": "8x-l4"}, wanting(), ["x"], id="no NVLink"),
        pytest.param(V100, wanting(9), ["x"], id="more GPUs than the node has"),
        pytest.param(V100 | {"resource": "amd.com/gpu"}, wanting(), ["x"], id="another resource"),
        pytest.param({"count": 1, "devices": 8}, wanting(), ["x"], id="required, no topology"),
        pytest.param(V100, wanting(), {"Pods": None, "NumPDBViolations": 0}, id="has a place"),
        pytest.param(
            {"count": 1, "devices": 8}, wanting(2, affinity="nvlink"), [], id="no victim to name"
        ),
    ],
)
def test_nodes_where_evictions_do_not_help_are_dropped(group, preemptor, given):
    """An empty map means for kube-scheduler: evict no pod."""
    place = Place(1, group)
    answer = place.preempt(preemptor, {0: given})
    if isinstance(answer, ReadNodes):
        answer = place.read(answer)
    assert named(answer) == {}
    assert answer.outcome is Outcome.REFUSED
    assert answer.reason in {Reason.NO_VICTIMS, Reason.NO_NEED}


def test_plans_show_that_pods_of_lower_priority_hold_too_little():
    """A node that cannot help is not read: its pods' plans say who is too important."""
    place = Place(2)
    place.fill(0, *[PRIORITY] * 4, 0, *[PRIORITY] * 2)
    place.fill(0, *[PRIORITY] * 7, node=1)
    answer = place.preempt(wanting(), {0: ["n0-0", "n0-5"], 1: ["n1-1"]})
    assert named(answer) == {}
    assert answer.reason is Reason.NO_VICTIMS


def test_a_node_that_we_do_not_know_is_dropped():
    """Its GPUs may lie anywhere."""
    place = Place()
    answer = place.preempt(wanting(), {}, NodeNameToMetaVictims={"elsewhere": victims("x")})
    assert named(answer) == {}


def test_a_preferred_pod_takes_the_scheduler_s_victims():
    """Any set of its size satisfies it; also on a node whose topology is unknown."""
    place = Place(1, {"count": 1, "machine": "dgx-1-v100"}, {"count": 1, "devices": 8})
    place.fill(*FULL)
    answer = place.preempt(wanting(2, affinity="nvlink"), {0: ["n0-0", "n0-5"], 1: ["strange"]})
    assert named(answer) == {
        place.nodes[0]: (["n0-0", "n0-5"], 0),
        place.nodes[1]: (["strange"], 0),
    }


def test_a_pod_without_gpus_is_none_of_our_business():
    """With no managedResources configured kube-scheduler calls for every pod."""
    place = Place(2)
    answer = place.preempt(wanting(None, policy="preferred"), {0: ["x"], 1: []})
    assert named(answer) == {place.nodes[0]: (["x"], 0)}


def test_victims_sent_whole_are_the_same():
    """Without nodeCacheCapable kube-scheduler sends pods; the answer is in uids all the same."""
    place = Place()
    place.fill(*FULL)
    whole: dict[str, Any] = {
        "Pods": [pod(1, uid="n0-0"), pod(1, uid="n0-3")],
        "NumPDBViolations": 1,
    }
    answer = place.preempt(
        wanting(), {}, NodeNameToVictims={place.nodes[0]: whole}, NodeNameToMetaVictims=None
    )
    assert named(answer) == {place.nodes[0]: (["n0-0", "n0-3"], 1)}
    whole["Pods"][0]["spec"]["priority"] = PRIORITY
    answer = place.preempt(
        wanting(), {}, NodeNameToVictims={place.nodes[0]: whole}, NodeNameToMetaVictims=None
    )
    assert named(answer) == {}


# Which nodes are read.


def test_only_nodes_that_could_be_cheaper_are_read_beside_one_that_passes():
    """Node 0 passes at priority 5; node 1 might do with less, nodes 2 and 3 cannot."""
    place = Place(4)
    place.fill(*[5] * 8)
    place.fill(*[1] * 8, node=1)
    place.fill(*[7] * 8, node=2)
    place.fill(*[1] * 8, node=3)
    step = place.preempt(
        wanting(),
        {
            0: ["n0-0", "n0-3"],
            1: ["n1-0", "n1-5"],
            2: ["n2-0", "n2-5"],
            3: victims("n3-0", "n3-5", n_violations=1),
        },
    )
    assert isinstance(step, ReadNodes)
    assert step.names == (place.nodes[1],)
    assert list(named(place.read(step))) == [place.nodes[0], place.nodes[1]]


def test_a_victim_of_unknown_priority_costs_as_much_as_it_may():
    """On the node that passes it counts as costly to evict, on one to read as cheap."""
    place = Place(2)
    place.fill(*FULL)
    place.fill(*[9] * 8, node=1)
    step = place.preempt(wanting(), {0: ["n0-0", "n0-3", "strange"], 1: ["n1-0", "n1-5", "alien"]})
    assert isinstance(step, ReadNodes)
    assert step.names == (place.nodes[1],)


def test_the_nodes_are_read_a_few_at_a_time_until_one_helps():
    """The cheapest first, by name among equals; the rest only if these do not help."""
    n_nodes = MAX_READ + 3
    place = Place(n_nodes)
    for node in range(n_nodes):
        place.fill(*[n_nodes - node] * 8, node=node)
    given = {node: [f"n{node}-0", f"n{node}-5"] for node in range(n_nodes)}
    step = place.preempt(wanting(), given)
    assert isinstance(step, ReadNodes)
    assert step.names == tuple(reversed(place.nodes[-NODES_AT_ONCE:]))
    steps = [step]
    while isinstance(step, ReadNodes):
        steps.append(step)
        empty = tuple(NodeReading(name, {"pods": 0}, ()) for name in step.names)
        step = place.end(step, *empty)
    assert len({name for one in steps for name in one.names}) == MAX_READ
    assert named(step) == {}
    assert step.reason is Reason.NO_VICTIMS

    first = place.preempt(wanting(), given)
    second = place.end(first, *(NodeReading(name, {"pods": 0}, ()) for name in first.names))
    assert len(named(place.read(second))) == NODES_AT_ONCE


def test_a_node_that_went_meanwhile_is_left_out():
    """Names that the step did not contain, and nodes that are gone, change nothing."""
    place = Place()
    place.fill(*FULL)
    step = place.preempt(wanting(), {0: ["n0-0", "n0-5"]})
    more = NodeReading("elsewhere", {"pods": 9}, ())
    nodes = (more, place.reading(place.nodes[0]))
    answer = place.end(step, *nodes)
    assert list(named(answer)) == [place.nodes[0]]


# The node that the pod is nominated to.


def leave(place: Place, *uids: str, node: int = 0) -> None:
    """These pods are under deletion."""
    name = place.nodes[node]
    place.residents[name] = [
        replace(one, is_deleting=one.is_deleting or one.uid in uids)
        for one in place.residents[name]
    ]


def test_no_other_pod_is_evicted_while_the_victims_terminate():
    """The scheduler's victims would do, here and elsewhere, but room is in the making."""
    place = Place(2)
    place.fill(*FULL)
    place.fill(*FULL, node=1)
    leave(place, "n0-0", "n0-3")
    step = place.preempt(
        wanting(nominated=place.nodes[0]), {0: ["n0-1", "n0-2"], 1: ["n1-0", "n1-3"]}
    )
    assert isinstance(step, ReadNodes)
    assert step.names == (place.nodes[0],)
    answer = place.read(step)
    assert named(answer) == {}
    assert answer.reason is Reason.PREEMPTION_IN_PROGRESS


def test_more_may_die_where_those_who_leave_are_not_enough():
    """A victim that was chosen too few, or a GPU that went bad meanwhile."""
    place = Place()
    place.fill(*FULL)
    leave(place, "n0-0")
    step = place.preempt(wanting(nominated=place.nodes[0]), {0: ["n0-1", "n0-2"]})
    assert named(place.read(step)) == {place.nodes[0]: (["n0-3"], 0)}


def test_leaving_pods_of_another_node_are_its_victims():
    """Naming them nominates the pod there and evicts no other pod."""
    place = Place()
    place.fill(*FULL)
    leave(place, "n0-0", "n0-3")
    step = place.preempt(wanting(), {0: ["n0-0", "n0-5"]})
    assert named(place.read(step)) == {place.nodes[0]: (["n0-0", "n0-3"], 0)}


def test_a_node_where_only_equals_leave_is_not_named():
    """There is no victim to name; the pod gets the place when they are gone."""
    place = Place()
    place.fill(0, 0, 0, PRIORITY, 0, 0, 0, PRIORITY)
    leave(place, "n0-3", "n0-7")
    answer = place.read(place.preempt(wanting(), {0: ["n0-0", "n0-5"]}))
    assert named(answer) == {}
    assert answer.reason is Reason.NO_VICTIMS


def test_the_scheduler_s_victims_stand_where_we_see_no_need():
    """It counts pods that it has bound a moment ago, which no watch shows yet."""
    place = Place()
    place.put("a", 4, 5, 6, 7)
    answer = place.preempt(wanting(nominated=place.nodes[0]), {0: ["a"]})
    assert named(place.read(answer)) == {place.nodes[0]: (["a"], 0)}


# What goes wrong.


def test_a_node_that_cannot_be_read_is_an_error_only_if_nothing_else_helps():
    """Without a word about an error the pod would park for minutes."""
    place = Place(2)
    place.fill(*FULL)
    place.fill(*FULL, node=1)
    given = {0: ["n0-0", "n0-5"], 1: ["n1-0", "n1-5"]}
    step = place.preempt(wanting(), given)
    assert list(named(place.end(step, place.reading(place.nodes[1])))) == [place.nodes[1]]
    answer = place.end(place.preempt(wanting(), given), fault="node n: 500")
    assert answer.outcome is Outcome.FAILED
    assert answer.reason is Reason.NODES_NOT_READ
    assert answer.detail == "nodes could not be read from the API server: node n: 500"


def test_a_step_may_be_abandoned():
    """What passed before is the answer; nothing passed: an error."""
    place = Place(2)
    place.fill(*FULL)
    place.fill(*[-1] * 8, node=1)
    step = place.preempt(wanting(), {0: ["n0-0", "n0-3"], 1: ["n1-0", "n1-5"]})
    answer = place.preemptions.abandon(step, "out of time")
    assert list(named(answer)) == [place.nodes[0]]
    step = place.preempt(wanting(), {1: ["n1-0", "n1-5"]})
    answer = place.preemptions.abandon(step, "out of time")
    assert answer.outcome is Outcome.FAILED
    assert answer.detail == "nodes could not be read from the API server: out of time"
    assert json.loads(answer.body) == {"error": answer.detail}
    assert answer.pod_uid == "want"


def test_a_step_ends_once():
    """An abandoned preemption is dropped when enough others have come."""
    place = Place()
    place.fill(*FULL)
    given = {0: ["n0-0", "n0-5"]}
    first = place.preempt(wanting(), given)
    last = [place.preempt(wanting(), given) for _ in range(MAX_IN_FLIGHT)][-1]
    assert place.read(first).outcome is Outcome.FAILED
    assert place.read(last).outcome is Outcome.OK
    assert place.preemptions.abandon(last, "").reason is Reason.NODES_NOT_READ


@pytest.mark.parametrize(
    ("body", "reason", "says"),
    [
        pytest.param(b"{", Reason.MALFORMED, "expected JSON", id="no JSON"),
        pytest.param(
            b'{"NodeNameToMetaVictims":{}}', Reason.MALFORMED, "Pod is missing", id="no pod"
        ),
        pytest.param(
            json.dumps({"Pod": wanting(2, affinity="near")}).encode(),
            Reason.INVALID_REQUEST,
            "coterie.gpu/affinity",
            id="an invalid request",
        ),
        pytest.param(
            json.dumps({"Pod": wanting() | {"spec": {"containers": [], "overhead": 1}}}).encode(),
            Reason.MALFORMED,
            "overhead",
            id="a pod that cannot be weighed",
        ),
    ],
)
def test_a_request_that_cannot_be_read_is_an_error(body, reason, says):
    """The scheduler logs it and evicts no pod."""
    answer = Place().preemptions.begin(body, 0.0)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, reason)
    assert says in answer.detail


def test_no_pod_is_evicted_on_stale_state():
    """Who has which GPU may have changed."""
    place = Place()
    place.cluster.set_freshness(is_synced=False, observed_at_s=None)
    answer = place.preempt(wanting(), {0: ["x"]})
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.STALE)


def test_a_plan_that_cannot_be_read_has_no_priority():
    """Such a pod may be important or not: reading the node shows it."""
    place = Place()
    place.fill(*FULL)
    for uid in ("n0-0", "n0-3"):
        place.show(uid, "?")
    assert named(place.preempt(wanting(), {0: ["n0-0", "n0-3"]})) == {
        place.nodes[0]: (["n0-0", "n0-3"], 0)
    }


# The scheduler is ahead of us.


def test_pods_that_have_left_hold_nothing():
    """The scheduler counts the GPU of an equal as free before its end has come to our ears."""
    place = Place()
    place.fill(0, *[PRIORITY] * 4, 0, PRIORITY, PRIORITY)
    name = place.nodes[0]
    step = place.preempt(wanting(), {0: ["n0-0"]})
    assert isinstance(step, ReadNodes)
    place.residents[name] = [one for one in place.residents[name] if one.uid != "n0-6"]
    assert named(place.read(step)) == {name: (["n0-5"], 0)}
    step = place.preempt(wanting(), {0: ["n0-0"]})
    place.residents[name].append(PodOnNode("n0-6", "ns", "n", priority=PRIORITY, phase="Succeeded"))
    assert named(place.read(step)) == {name: (["n0-5"], 0)}


def test_a_pod_that_is_only_being_bound_has_not_left():
    """The API server does not show it on the node yet."""
    place = Place()
    place.fill(0, *[PRIORITY] * 4, 0)
    request = parse_pod(WirePod.model_validate(pod(2, uid="new")), (GPU,))
    name = place.nodes[0]
    ids = place.cluster.snapshot.nodes[name].ids[6:]
    plan = Plan(name, (ContainerPlan("main", GPU, ids),), ids, 1, 0.0)
    assert place.cluster.assume(request, plan, deadline_s=1.0) is None
    answer = place.read(place.preempt(wanting(), {0: ["n0-0"]}))
    assert named(answer) == {}


def test_a_pod_that_is_bound_during_the_reading_has_not_left():
    """The list of the node's pods may be older than its binding."""
    place = Place()
    place.fill(0, *[PRIORITY] * 4, 0)
    step = place.preempt(wanting(), {0: []})
    assert isinstance(step, ReadNodes)
    reading = place.reading(place.nodes[0])
    place.put("late", 6, 7, priority=0)
    answer = place.end(step, reading)
    assert named(answer) == {}
    assert answer.reason is Reason.NO_VICTIMS


@pytest.mark.parametrize("is_on", [False, True], ids=["up to 1.37", "from 1.38 on"])
def test_a_topology_shortage_goes_from_filter_to_its_victims(is_on):
    """What kube-scheduler 1.38 sends: the nodes in FailedNodes, with no victims of its own."""
    place = Place(1, {"count": 1, "machine": "dgx-1-v100"}, {"count": 1, "machine": "8x-l4"})
    for gpu in (1, 2, 3, 4, 6, 7):  # 0 and 5 have no NVLink between them
        place.put(f"n0-{gpu}", gpu)
    engine = Engine(place.cluster, replace(RULES, preempts_for_topology=is_on))
    body = args(wanting(), place.nodes)
    filtered = json.loads(engine.answer(Verb.FILTER, body, 0.0).body)
    v100, l4 = place.nodes
    taken, never = {v100: Reason.AFFINITY_TAKEN.value}, {l4: Reason.AFFINITY_NEVER.value}
    assert filtered["FailedNodes"] == (taken if is_on else {})
    assert filtered["FailedAndUnresolvableNodes"] == (never if is_on else taken | never)
    step = place.preempt(wanting(), {place.nodes.index(name): victims() for name in taken})
    ((uids, n_violations),) = named(place.read(step)).values()
    assert (len(uids), n_violations) == (1, 0)
