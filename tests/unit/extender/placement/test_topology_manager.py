"""Nodes whose kubelet aligns to NUMA nodes: every verb stays inside what it would give."""

from __future__ import annotations

import io
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from extender.decision_log import DecisionLog
from extender.decision_log.replay import replay
from extender.engine import Gateway, make_engine
from extender.engine.events import VerbCalled
from extender.placement import Rater, Refusal
from extender.preemption import ReadNodes
from extender.protocol import Outcome, Reason, Verb
from extender.snapshot import make_view, with_free
from extender.state import NodeClasses
from tests.topology_manager import Container, Kubelet
from tests.unit.extender.engines import (
    RULES,
    answer_of,
    bind,
    bind_at_once,
    engine,
    names,
    see_cluster,
    spec,
)
from tests.unit.extender.feeds import bare, choose, facts, ids, live, node, plan_of, report, wish
from tests.unit.extender.live_world import LiveWorld, node_facts
from tests.unit.extender.pods import args, binding, pod
from tests.unit.extender.preemption.test_state_machine import FULL, Place, named, wanting
from tests.unit.extender.recorded_plans import recorded_plans
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope, decode_plan
from topology.topology_manager import TopologyManager
from topology.value import DEFAULT_DEMAND

if TYPE_CHECKING:
    from extender.embedded import ClusterSpec

BEST_EFFORT, RESTRICTED, SINGLE = (
    TopologyManagerPolicy.BEST_EFFORT,
    TopologyManagerPolicy.RESTRICTED,
    TopologyManagerPolicy.SINGLE_NUMA_NODE,
)
V100 = {"count": 1, "machine": "dgx-1-v100"}
PLAIN = V100 | {"name": "plain"}
NODE = "dgx-1-v100-0"


def _always(wanted: set[int]):
    """A plugin that answers with these devices."""
    return lambda _name, _available, _must, _size: wanted


def aligned(policy: TopologyManagerPolicy, scope: str = "container") -> dict[str, Any]:
    """A DGX-1: GPUs 0..3 on NUMA node 0, the others on 1."""
    return V100 | {"topology_manager_policy": policy.value, "topology_manager_scope": scope}


def planned(engine, uid: str) -> list[int]:
    """The GPUs that a bound pod's plan names."""
    bound = engine.cluster.bound(uid)
    plan = decode_plan(bound.plan_text)
    return [engine.cluster.snapshot.nodes[bound.node].ids.index(one) for one in plan.ids]


class TestVerbs:
    """Over a described cluster."""

    @pytest.mark.parametrize(
        ("policy", "scope", "expected"),
        [
            (SINGLE, "container", Reason.ALIGNMENT_NEVER),
            (SINGLE, "pod", Reason.ALIGNMENT_NEVER),
            (RESTRICTED, "container", None),
            (BEST_EFFORT, "pod", None),
        ],
    )
    def test_filter_refuses_what_the_kubelet_would_fail_for_good(self, policy, scope, expected):
        """Six GPUs lie on two NUMA nodes: as few as can be, but more than one."""
        made = engine(aligned(policy, scope))
        answer = answer_of(made, Verb.FILTER, args(pod(6), names(made)))
        failed = {} if expected is None else {NODE: expected.value}
        assert answer["FailedAndUnresolvableNodes"] == failed
        assert answer["NodeNames"] == ([] if failed else [NODE])

    def test_enough_free_gpus_on_too_many_numa_nodes_are_refused_for_now(self):
        """The plan would be fine for us, and the pod dead on arrival."""
        made = engine(aligned(RESTRICTED))
        for uid in ("a", "b"):
            assert bind(made, uid, NODE, 3).outcome is Outcome.OK
        answer = made.answer(Verb.FILTER, args(pod(2, uid="c"), [NODE]), 0.0)
        assert answer.reason is Reason.ALIGNMENT_TAKEN
        refused = bind(made, "c", NODE, 2)
        assert (refused.outcome, refused.reason) == (Outcome.FAILED, Reason.ALIGNMENT_TAKEN)
        assert answer_of(made, Verb.PRIORITIZE, args(pod(2, uid="c"), [NODE])) == [
            {"Host": NODE, "Score": 0}
        ]

    @pytest.mark.parametrize("policy", [BEST_EFFORT, RESTRICTED, SINGLE])
    def test_plans_follow_the_kubelets_numa_nodes(self, policy):
        """The second pod would fit on either; the kubelet takes the lowest that has room."""
        made = engine(aligned(policy))
        for uid, n_gpus, expected in (("a", 1, "0"), ("b", 3, "0"), ("c", 2, "1"), ("d", 2, "1")):
            assert bind(made, uid, NODE, n_gpus).outcome is Outcome.OK
            assert {str(gpu // 4) for gpu in planned(made, uid)} == {expected}

    def test_nodes_of_one_machine_type_differ_by_their_kubelets(self):
        """Equal devices free are not equal states; the tables are shared all the same."""
        made = engine(PLAIN, aligned(SINGLE))
        views = made.cluster.snapshot.nodes
        assert views["plain-0"].node_class.machine is views[NODE].node_class.machine
        assert views["plain-0"].state != views[NODE].state
        assert answer_of(made, Verb.FILTER, args(pod(6), names(made)))["NodeNames"] == ["plain-0"]

    def test_explain_shows_how_the_node_aligns_and_why_not(self):
        """Policy none is not worth a word."""
        made = engine(PLAIN, aligned(SINGLE, "pod"))
        explained = {
            one["node"]: one for one in answer_of(made, Verb.EXPLAIN, args(pod(6), []))["nodes"]
        }
        assert "topology_manager" not in explained["plain-0"]
        assert explained[NODE]["topology_manager"] == {"policy": "single-numa-node", "scope": "pod"}
        assert explained[NODE]["reason_label"] == "alignment_never"
        assert explained[NODE]["detail"] == (
            "policy single-numa-node, scope pod: 6 GPUs take NUMA nodes 0, 1, expected 1 of them"
        )

    def test_a_node_by_count_is_not_confined(self):
        """The places of its devices are unknown: the kubelet's count stands."""
        by_count = {"count": 1, "devices": 8, "name": "blind"}
        made = engine(by_count | {"topology_manager_policy": "single-numa-node"})
        assert made.cluster.snapshot.nodes["blind-0"].node_class.manager is None
        assert answer_of(made, Verb.FILTER, args(pod(6), names(made)))["NodeNames"] == ["blind-0"]


class TestStates:
    """What is alike to every pod."""

    def test_what_is_reserved_counts_only_where_the_kubelet_confines(self):
        """Policy none keeps its states, so that nothing is rated twice there."""
        kinds = NodeClasses(DEFAULT_DEMAND)
        machine = engine(V100).cluster.snapshot.nodes[NODE].node_class.machine
        manager = TopologyManager(RESTRICTED, TopologyManagerScope.POD)
        found = {}
        for one in (None, manager):
            kind = kinds.node_class("k", "r", machine, one, 1.0, "", 0)
            views = [
                make_view(
                    "n", zone="z", node_class=kind, ids=tuple("abcdefgh"), free=0xF, reserved=mask
                )
                for mask in (0, 0xF0)
            ]
            found[kind.manager] = [view.reserved for view in views]
            assert (views[0].state == views[1].state) is (kind.manager is None)
            assert with_free(views[1], 0x3F).reserved == (0 if kind.manager is None else 0xC0)
        assert found == {None: [0, 0], manager: [0, 0xF0]}
        assert kinds.node_class("k", "r", None, manager, 1.0, "", 0).manager is None

    def test_states_distinguish_free_and_reserved_devices(self):
        """Any two of the 81 ways to have four devices free, reserved or taken."""
        kind = NodeClasses(DEFAULT_DEMAND).node_class(
            "k",
            "r",
            live(node("n1")).snapshot.nodes["n1"].node_class.machine,
            TopologyManager(RESTRICTED, TopologyManagerScope.POD),
            1.0,
            "",
            0,
        )
        views = [
            make_view(
                "n", zone="z", node_class=kind, ids=tuple("abcd"), free=free, reserved=reserved
            )
            for free in range(16)
            for reserved in range(16)
            if not free & reserved
        ]
        assert len({view.state for view in views}) == len(views) == 81


class TestLive:
    """Fed by watches. The machine's GPUs 0, 1, 2, 3 are on NUMA nodes 3, 2, 1, 0."""

    def test_a_node_whose_report_changes_is_rated_again_and_requeues_pending_pods(self):
        """The kubelet's configuration is edited; nothing else changes."""
        cluster, rater = live(node("n1", devices=report(policy=SINGLE))), Rater()
        request = wish("u", 2)
        refused = choose(cluster, request, "n1", rater)
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.ALIGNMENT_NEVER
        cluster.take_freed_nodes()
        cluster.update_node(node("n1", devices=report(generation=2)))
        assert cluster.take_freed_nodes() == {"n1"}
        assert not isinstance(choose(cluster, request, "n1", rater), Refusal)
        cluster.update_node(node("n1", devices=report(generation=3, policy=BEST_EFFORT)))
        assert choose(cluster, request, "n1", rater).ids == ids("n1", 2, 3)

    @pytest.mark.parametrize("policy", [None, TopologyManagerPolicy.NONE])
    def test_policy_none_or_unknown_changes_nothing(self, policy):
        """Reports with and without it make one state."""
        cluster = live(node("n1", devices=report(policy=policy)), node("n2"))
        views = cluster.snapshot.nodes
        assert views["n1"].node_class is views["n2"].node_class
        assert views["n1"].state == views["n2"].state

    def test_a_claim_is_free_to_the_kubelet(self):
        """It would give another pod the NUMA node that is kept for a nominated one."""
        cluster = live(node("n1", devices=report(policy=BEST_EFFORT)))
        important = wish("claims", 1, priority=9)
        cluster.pods.nominations.add(important, "n1")
        view = cluster.snapshot.nodes["n1"]
        assert (view.free, view.reserved) == (0b0111, 0b1000)
        refused = choose(cluster, wish("other", 1), "n1", Rater())
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.ALIGNMENT_APART
        own = cluster.snapshot_for(important).nodes["n1"]
        assert (own.free, own.reserved) == (0b1111, 0)
        assert choose(cluster, important, "n1", Rater()).ids == ids("n1", 3)

    def test_a_second_claim_is_chosen_beside_the_first(self):
        """The set of a nominated pod is one that the kubelet would give it, too."""
        cluster = live(node("n1", devices=report(policy=BEST_EFFORT)))
        cluster.pods.nominations.add(wish("first", 1, priority=9), "n1")
        cluster.pods.nominations.add(wish("second", 1, priority=8), "n1")
        assert cluster.snapshot.nodes["n1"].reserved == 0b1000, "the second one has to wait"

    @pytest.mark.parametrize(
        ("name", "node_", "expected"),
        [
            ("n1", node("n1", devices=report(policy=SINGLE)), True),
            ("n1", node("n1", devices=report()), False),
            ("n1", bare("n1", devices=report(policy=SINGLE)), False),
            ("n2", node("n1", devices=report(policy=SINGLE)), False),
        ],
        ids=["aligned", "not aligned", "by count", "unknown"],
    )
    def test_binds_take_turns_only_where_their_order_matters(self, name, node_, expected):
        """The kubelet confines the second pod by what the first one left."""
        assert live(node_).aligns(name) == expected

    def test_pods_that_end_are_counted_where_they_were(self):
        """A binding that came to nothing had no devices; a node that comes back starts empty."""
        cluster = live(node("n1", devices=report(policy=SINGLE)), node("n2"))
        cluster.pods.update(facts("first", plan_of("n1", *ids("n1", 1))))
        cluster.pods.delete("first")
        cluster.pods.delete("first")
        assert (cluster.pods.n_ended["n1"], cluster.pods.n_ended["n2"]) == (1, 0)
        plan = plan_of("n1", *ids("n1", 1))
        assert cluster.assume(wish("second"), plan, deadline_s=9.0) is None
        cluster.pods.forget("second")
        assert cluster.pods.n_ended["n1"] == 1
        cluster.pods.update(facts("third", plan_of("n1", *ids("n1", 1))))
        cluster.delete_node("n1")
        cluster.pods.delete("third")
        assert cluster.pods.n_ended == {}, "names of nodes that are gone would fill the memory"

    def test_fewer_free_devices_may_be_a_gain(self):
        """The kubelet turns to the next NUMA node: who was refused is looked at again."""
        cluster = live(node("n1", devices=report(policy=BEST_EFFORT)), node("n2"))
        cluster.snapshot  # noqa: B018 - settles
        cluster.take_freed_nodes()
        for name in ("n1", "n2"):
            cluster.pods.update(facts(name, plan_of(name, *ids(name, 3))))
        assert cluster.take_freed_nodes() == {"n1"}


class TestPreempt:
    """Whose eviction gives a set that the kubelet admits."""

    def test_victims_are_changed_where_the_kubelet_would_refuse_their_gpus(self):
        """GPUs 0 and 4 are on two NUMA nodes; two pods of one NUMA node have to go."""
        place = Place(1, aligned(RESTRICTED))
        place.fill(*FULL)
        preemptor = wanting(2, affinity="none")
        step = place.preempt(preemptor, {0: ("n0-0", "n0-4")})
        assert isinstance(step, ReadNodes)
        ((uids, _),) = named(place.read(step)).values()
        assert len({int(uid[-1]) // 4 for uid in uids}) == 1
        plain = Place(1, PLAIN)
        plain.fill(*FULL)
        assert named(plain.preempt(preemptor, {0: ("n0-0", "n0-4")})) == {
            "plain-0": (["n0-0", "n0-4"], 0)
        }

    def test_no_eviction_helps_against_a_policy(self):
        """Six GPUs never lie on one NUMA node: no node is read, no pod evicted."""
        place = Place(1, aligned(SINGLE))
        place.fill(*FULL)
        preemptor = wanting(6, affinity="nvlink", policy="required")
        answer = place.read(place.preempt(preemptor, {0: tuple(f"n0-{i}" for i in range(6))}))
        assert named(answer) == {}

    def test_fewer_victims_may_do_where_more_would_not(self):
        """With all free the kubelet takes NUMA node 0, where GPU 2 has no NVLink; else node 1."""
        place = Place(1, aligned(RESTRICTED) | {"machine": "8x-b200-gpu2-no-nvlink"})
        place.fill(*FULL)
        step = place.preempt(wanting(4), {0: tuple(f"n0-{i}" for i in range(4))})
        assert isinstance(step, ReadNodes)
        ((uids, _),) = named(place.read(step)).values()
        assert uids == [f"n0-{i}" for i in range(4, 8)]


class TestReplay:
    """Decision logs."""

    CLUSTER = spec(aligned(RESTRICTED, "pod"), PLAIN)

    def _lines(self, cluster: ClusterSpec) -> list[str]:
        file = io.StringIO()
        gateway = Gateway(make_engine(RULES), record=DecisionLog(file, RULES, on_end=print).record)
        see_cluster(gateway, cluster)
        nodes = list(gateway.cluster.snapshot.nodes)
        for i, n_gpus in enumerate((3, 3, 2, 4, 1)):
            body = args(pod(n_gpus, uid=f"u{i}"), nodes)
            gateway.handle(VerbCalled(Verb.FILTER, body, float(i)))
            bind_at_once(gateway, binding(f"u{i}", nodes[0]), float(i))
        return file.getvalue().splitlines()

    def test_a_cluster_that_aligns_replays_byte_for_byte(self):
        """The policy stands in the report of the node."""
        lines = self._lines(self.CLUSTER)
        assert replay(lines).difference is None
        changed = [line.replace("restricted", "none") for line in lines]
        assert replay(changed).difference is not None

    @pytest.mark.parametrize("seed", range(6))
    def test_live_plans_are_what_the_kubelet_gives_and_replay(self, seed):
        """Each plan from what was free when it was made, against the transcribed kubelet."""
        policy = (BEST_EFFORT, RESTRICTED, SINGLE)[seed % 3]
        scope = tuple(TopologyManagerScope)[seed // 3]
        text = report(policy=policy, scope=scope)
        nodes = [replace(node_facts(name), devices=text) for name in ("n1", "n2")]
        world = LiveWorld(Random(seed), nodes)  # noqa: S311 - seeded, to repeat
        for _ in range(500):
            world.act()
        lines = world.file.getvalue().splitlines(keepends=True)
        assert replay(lines).difference is None
        plans = [one for one in recorded_plans(lines) if one.text is not None]
        assert len(plans) > 5
        for plan in plans:
            (container,) = decode_plan(plan.text or "").containers
            free, wanted = ({int(one[-1]) for one in some} for some in (plan.free, container.ids))
            kubelet = Kubelet(policy.value, scope.value, (0,) * 4 + (1,) * 4, (0, 1), free)
            given = kubelet.admit([Container("main", len(wanted))], _always(wanted))
            assert given == {"main": wanted}
