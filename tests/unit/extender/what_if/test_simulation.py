"""What a simulation says of a pod is what filter, prioritize and bind then do."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from extender.placement import Rater, Refusal
from extender.protocol import Verb
from extender.state import PRODUCT
from extender.what_if import (
    RequestedPod,
    SimulatedPlacement,
    Simulation,
    add_nodes,
    kinds_by_name,
    name_pods,
    read_pods,
)
from tests.unit.extender.engines import RULES, answer_of, bind, engine, names, owned
from tests.unit.extender.feeds import (
    MIG,
    bare,
    choose,
    facts,
    free,
    live,
    node,
    plan_of,
    wish,
)
from tests.unit.extender.pods import GPU, args, binding, container, pod

if TYPE_CHECKING:
    from extender.protocol import PodRequest

MACHINES = (
    {"count": 2, "machine": "dgx-1-v100"},
    {"count": 2, "machine": "8x-l4", "prefer_no_schedule": True},
    {"count": 1, "machine": "dgx-2"},
    {"count": 1, "machine": "8x-a100-pcie-pairs", "topology_manager_policy": "single-numa-node"},
    {"count": 1, "devices": 4},
)
WISHES: tuple[dict[str, str], ...] = (
    {},
    {"affinity": "nvlink", "policy": "required"},
    {"affinity": "numa", "policy": "preferred"},
    {"affinity": "none"},
    {"prefer": "fastest"},
    {"min-bandwidth": "20"},
)


def place(simulation: Simulation, one: RequestedPod) -> SimulatedPlacement:
    """The end of all turns."""
    turns = simulation.place(one)
    while True:
        try:
            next(turns)
        except StopIteration as end:
            placed: SimulatedPlacement = end.value
            return placed


def asked(manifest: Any) -> RequestedPod:
    """The one pod of a manifest."""
    (one,) = name_pods(*read_pods(manifest, 1, (GPU, MIG), where="pods.0"))
    return one


def wanted(request: PodRequest) -> RequestedPod:
    """A pod that requests this."""
    return RequestedPod(request.full_name, request)


def sets(placed: SimulatedPlacement) -> set[str]:
    """The ids that it would get."""
    assert placed.view is not None
    assert placed.fit is not None
    return {one for i, one in enumerate(placed.view.ids) if placed.fit.used >> i & 1}


def best_of(cluster: Any, manifest: Any) -> tuple[list[str], set[str]]:
    """The nodes that filter names, and those of the best score among them."""
    filtered = answer_of(cluster, Verb.FILTER, args(manifest, names(cluster)))
    named = filtered["NodeNames"] or []
    scored = answer_of(cluster, Verb.PRIORITIZE, args(manifest, named)) if named else []
    top = max((one["Score"] for one in scored), default=0)
    return named, {one["Host"] for one in scored if one["Score"] == top}


@pytest.mark.parametrize("candidate_limit", [0, 2, 100])
@pytest.mark.parametrize("seed", range(4))
def test_a_pod_goes_where_the_verbs_would_put_it(seed, candidate_limit):
    """The node of the best score, and on it the very set that bind then plans."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    cluster = engine(*MACHINES, candidate_limit=candidate_limit)
    for i in range(10):
        bind(cluster, f"f{i}", draw.choice(names(cluster)), draw.choice((1, 2, 3)), affinity="none")
    for i in range(25):
        wishes = draw.choice(WISHES)
        sizes = (2, 3, 4, 8) if "min-bandwidth" in wishes else (1, 2, 3, 4, 8)
        manifest = pod(draw.choice(sizes), uid=f"u{i}", **wishes)
        if draw.random() < 0.2:
            manifest["spec"]["containers"].append(container("side", 2))
        placed = place(Simulation(cluster.cluster.moment(), cluster.rules), asked(manifest))
        named, best = best_of(cluster, manifest)
        assert (placed.view is None) == (not named)
        if placed.view is None:
            assert placed.reason == placed.refused[0].reason.value
            continue
        assert placed.view.name in best
        assert placed.n_fit >= len(named)
        cluster.answer(Verb.BIND, binding(f"u{i}", placed.view.name), 0.0)
        if placed.fit is not None:
            assert owned(cluster.cluster, f"u{i}").keys() == sets(placed)
        if draw.random() < 0.4:
            cluster.end(f"u{i}")


def test_each_pod_sees_what_those_before_it_left():
    """Several at once go where they would go one by one."""
    cluster = engine(*MACHINES)
    simulation = Simulation(cluster.cluster.moment(), cluster.rules)
    for i in range(16):
        manifest = pod(3, uid=f"u{i}", affinity="nvlink")
        placed = place(simulation, asked(manifest))
        named, best = best_of(cluster, manifest)
        assert (placed.view is None) == (not named)
        if placed.view is not None:
            assert placed.view.name in best
            cluster.answer(Verb.BIND, binding(f"u{i}", placed.view.name), 0.0)
            if placed.fit is not None:
                assert owned(cluster.cluster, f"u{i}").keys() == sets(placed)
    assert sum(mask.bit_count() for mask in simulation.taken.values()) >= 3 * 10


def test_claims_count_as_they_do_for_the_verbs():
    """A pod of higher priority may have what one of lower priority has claimed; others may not."""
    cluster = live(node("n1"), node("n2"))
    cluster.pods.update(facts("u1", plan_of("n2", "n2-0", "n2-1", "n2-2", "n2-3")))
    cluster.pods.nominations.add(wish("p", 3, priority=5), "n1")
    rules, rater = RULES, Rater()
    assert free(cluster, "n1").count("1") == 1
    for request in (wish("q", 2), wish("r", 2, priority=9), wish("p", 3, priority=5)):
        placed = place(Simulation(cluster.moment(), rules), wanted(request))
        plan = choose(cluster, request, "n1", rater)
        assert (placed.view is None) == isinstance(plan, Refusal)
        if placed.view is not None:
            assert sets(placed) == set(plan.ids)
    simulation = Simulation(cluster.moment(), rules)
    assert place(simulation, wanted(wish("r", 4, priority=9))).view is not None
    assert place(simulation, wanted(wish("p", 3, priority=5))).view is None


def test_a_claim_of_another_resource_does_not_matter():
    """The node does not serve what the pod requests."""
    cluster = live(node("n1"), resources=(GPU, MIG))
    cluster.pods.nominations.add(wish("p", 3), "n1")
    assert (
        place(Simulation(cluster.moment(), RULES), wanted(wish("m", 1, resource=MIG))).view is None
    )


def test_a_node_with_several_resources_is_tried_by_the_one_that_is_requested():
    """Each has its own devices, by count for partitions."""
    counts = {GPU: 4, MIG: 3}
    cluster = live(node("n1", allocatable=counts, capacity=counts), resources=(GPU, MIG))
    simulation = Simulation(cluster.moment(), RULES)
    for _ in range(3):
        one = place(simulation, wanted(wish("m", 1, resource=MIG)))
        assert (one.fit, one.view is not None) == (None, True)
    assert place(simulation, wanted(wish("m", 1, resource=MIG))).view is None
    assert sets(place(simulation, wanted(wish("g", 4)))) == {f"n1-{i}" for i in range(4)}
    assert simulation.taken == {("n1", MIG): 0b111, ("n1", GPU): 0b1111}


def selecting(n_gpus: int, *, model: str) -> RequestedPod:
    """A pod with a nodeSelector."""
    manifest = pod(n_gpus)
    manifest["spec"]["nodeSelector"] = {PRODUCT: model}
    return asked(manifest)


def test_the_gpu_model_of_a_node_selector_is_held():
    """As the label has it; a node without the label is none for the selector."""
    cluster = live(node("n1", labels={PRODUCT: "NVIDIA-A100-SXM4-40GB"}), bare("n2"))
    for product, n_fit in (("NVIDIA-A100-SXM4-40GB", 1), ("Tesla-T4", 0)):
        simulation = Simulation(cluster.moment(), RULES)
        placed = place(simulation, selecting(2, model=product))
        assert (placed.n_fit, simulation.unknown_labels) == (n_fit, set())
        others = {one.reason.label: one.n_nodes for one in placed.refused}
        assert others == {"node_affinity": 2 - n_fit}


def test_added_nodes_are_held_by_the_model_of_their_machine():
    """They have no labels."""
    cluster = engine({"count": 1, "machine": "8x-l4"})
    moment = cluster.cluster.moment()
    added = add_nodes([("8x-l4", kinds_by_name(moment)["8x-l4"], 1)], moment.nodes)
    simulation = Simulation(moment, RULES, added=added, drained=["8x-l4-0"])
    for product, name in (("NVIDIA-L4", "added-8x-l4-0"), ("NVIDIA-H100", None)):
        placed = place(simulation, selecting(2, model=product))
        assert (None if placed.view is None else placed.view.name) == name
    assert simulation.unknown_labels == set()


def test_drained_nodes_count_as_no_excluded_ones():
    """They are gone."""
    cluster = live(node("n1"), node("n2"))
    placed = place(
        Simulation(cluster.moment(), RULES, drained=["n1"]), selecting(2, model="Tesla-T4")
    )
    assert [(one.reason.label, one.n_nodes) for one in placed.refused] == [("node_affinity", 1)]


def test_no_node_that_is_allowed_is_a_reason():
    """Not a silent refusal."""
    cluster = engine({"count": 2, "machine": "8x-l4"})
    placed = place(Simulation(cluster.cluster.moment(), RULES), selecting(2, model="NVIDIA-H100"))
    assert placed.reason == "not allowed by the pod's nodeSelector or node affinity"
    nowhere = place(
        Simulation(cluster.cluster.moment(), RULES, drained=names(cluster)), asked(pod(2))
    )
    assert (nowhere.reason, nowhere.refused) == ("no node is left", ())


def test_ratings_are_bounded():
    """Beyond the bound nodes count by number, and bind's choice still decides what is possible."""
    cluster = engine({"count": 1, "machine": "8x-l4"})
    moment = cluster.cluster.moment()
    simulation = Simulation(moment, RULES, max_work=0)
    required = asked(pod(2, affinity="nvlink", policy="required"))
    assert place(simulation, required).view is None
    assert simulation.has_unrated
    assert place(Simulation(moment, RULES, max_work=0), asked(pod(2))).view is not None


def test_what_cannot_be_chosen_after_all_is_refused():
    """A pod without conditions, rated by count, on a node whose kubelet would not admit it."""
    manager = {"topology_manager_policy": "single-numa-node"}
    cluster = engine({"count": 1, "machine": "8x-l4", **manager})
    simulation = Simulation(cluster.cluster.moment(), RULES, max_work=0)
    placed = place(simulation, asked(pod(8)))
    assert placed.view is None
    assert placed.reason


def test_a_pod_of_unknown_request_is_not_placed():
    """It says so."""
    unknown = RequestedPod("ml/x", None, is_evicted=True, assumed="it is not known")
    placed = place(Simulation(live(node("n1")).moment(), RULES), unknown)
    assert (placed.view, placed.reason, placed.n_fit) == (None, "it is not known", 0)


def test_a_trial_changes_nothing():
    """Neither the state nor what was captured of it, which later changes do not reach either."""
    cluster = engine()
    before = json.dumps(cluster.cluster.as_json())
    moment = cluster.cluster.moment()
    simulation = Simulation(moment, RULES)
    for _ in range(6):
        place(simulation, asked(pod(4)))
    assert json.dumps(cluster.cluster.as_json()) == before
    bind(cluster, "u1", "8x-l4-0", 8)
    again = Simulation(moment, RULES)
    assert place(again, asked(pod(8))).n_fit == 3
