"""The live state: what each input means for devices, in every order that sources may have."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import pytest

from extender.placement import Rater, Refusal
from extender.protocol import Reason
from extender.state import (
    Agreement,
    BoundPod,
    DeviceState,
    Mismatch,
    NodeProblem,
    PlanConflict,
    Probe,
)
from extender.state import machine_types as kinds_module
from kube.objects import ContainerDevices
from tests.unit.extender.feeds import (
    MACHINE,
    MIG,
    bare,
    choose,
    content,
    digest,
    facts,
    free,
    hold,
    ids,
    live,
    node,
    owners,
    plan_of,
    report,
    shown,
    topology_text,
    whole,
    wish,
)
from tests.unit.extender.pods import GPU
from topology.annotations import (
    ContainerPlan,
    TopologyManagerPolicy,
    TopologyManagerScope,
    encode_plan,
)
from topology.model.measurement import MeasuredPair, Measurement
from topology.recordings import load_recording

ALL = (1 << 4) - 1


def probe(uid: str) -> Probe:
    """The wish to read a pod of these tests."""
    return Probe("default", f"pod-{uid}", uid)


def measured(first_gbytes_per_s):
    """The machine with all pairs measured, in one class."""
    pairs = tuple(
        MeasuredPair(i, j, first_gbytes_per_s if (i, j) == (0, 1) else 90.0)
        for i, j in combinations(range(4), 2)
    )
    return replace(MACHINE, measurement=Measurement(pairs))


def bind(cluster, uid, name, *positions, deadline_s=10.0):
    """Assume and confirm a plan; whether that was possible."""
    request = wish(uid, len(positions))
    plan = plan_of(name, *ids(name, *positions))
    refused = cluster.assume(request, plan, deadline_s=deadline_s)
    cluster.pods.confirm(uid)
    return refused is None


def place_by_count(cluster, uid):
    """Assume two devices of node nb, without saying which."""
    request = wish(uid, 2)
    plan = choose(cluster, request, "nb", Rater())
    assert cluster.assume(request, plan, deadline_s=10.0) is None


def home(cluster, uid):
    """The node of a bound pod."""
    bound = cluster.bound(uid)
    return None if bound is None else bound.node


class TestNodes:
    def test_a_node_with_a_topology_offers_all_its_devices(self):
        """The normal case, which everything else departs from."""
        cluster = live(node("n1"))
        view = cluster.snapshot.nodes["n1"]
        assert (view.ids, view.free, view.zone, view.node_class.resource) == (
            ids("n1"),
            ALL,
            "z1",
            GPU,
        )
        assert view.node_class.machine is not None
        assert view.node_class.name.startswith("4x NVIDIA A100")
        assert cluster.take_effects() == ()

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            pytest.param({"topology": None}, None, id="no annotation"),
            pytest.param({"topology": "{"}, "is no JSON", id="broken annotation"),
            pytest.param(
                {"topology": topology_text("n1").replace('"1.0"', '"2.0"')},
                "expected major version 1",
                id="newer major",
            ),
            pytest.param(
                {"topology": topology_text("n1").replace('"uuid":"n1-2",', "")},
                "3 of 4 GPUs have a uuid",
                id="a GPU without UUID",
            ),
            pytest.param(
                {"allocatable": {GPU: 5}}, "4 GPUs, but 5 devices are allocatable", id="more given"
            ),
        ],
    )
    def test_a_node_without_usable_topology_counts(self, change, problem):
        """Preferred pods may still go there, by count; an Event names what is broken."""
        cluster = live(node("n1", **change))
        view = cluster.snapshot.nodes["n1"]
        n_devices = change.get("allocatable", {GPU: 4})[GPU]
        assert (view.node_class.machine, view.node_class.resource, len(view.ids)) == (
            None,
            GPU,
            n_devices,
        )
        assert view.free == (1 << n_devices) - 1
        problems = [one.detail for one in cluster.take_effects() if isinstance(one, NodeProblem)]
        assert len(problems) == (problem is not None)
        assert all(problem in one for one in problems)

    def test_gpus_that_fall_off_and_come_back_take_the_plans_with_them(self):
        """A node counts only while its capacity and its topology disagree."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-1")))
        cluster.update_node(node("n1", allocatable={GPU: 1}, capacity={GPU: 1}))
        assert digest(cluster, "n1") is None
        assert [type(one) for one in cluster.take_effects()] == [NodeProblem]
        cluster.update_node(node("n1", allocatable={GPU: 0}, capacity={GPU: 0}))
        cluster.update_node(node("n1", allocatable={GPU: 2}, capacity={GPU: 4}))
        assert digest(cluster, "n1") is not None
        assert free(cluster, "n1") == "1011"
        assert cluster.take_effects() == ()

    def test_a_newer_minor_version_is_read(self):
        """During a rollout the plugin may be ahead of the extender."""
        newer = json.loads(topology_text("n1")) | {"v": "1.9", "cooling": "liquid"}
        cluster = live(node("n1", topology=json.dumps(newer)))
        assert cluster.snapshot.nodes["n1"].node_class.machine is not None

    @pytest.mark.parametrize("allocatable", [{}, {GPU: 0}, {MIG: 3}], ids=["none", "0", "other"])
    def test_a_node_whose_allocatable_lacks_the_resource_serves_nothing(self, allocatable):
        """Its kubelet would run the pod without any device; so does a node with DRA look."""
        cluster = live(node("n1", allocatable=allocatable))
        refusal = choose(cluster, wish("p"), "n1", Rater())
        assert isinstance(refusal, Refusal)
        assert refusal.reason is Reason.OTHER_RESOURCE
        assert cluster.snapshot.nodes["n1"].ids == ()

    def test_the_first_configured_resource_that_is_there_is_the_nodes(self):
        """Several resource names may be configured; a node has one kind of devices."""
        cluster = live(node("n1", allocatable={GPU: 0, MIG: 4}), resources=(GPU, MIG))
        assert cluster.snapshot.nodes["n1"].node_class.resource == MIG

    def test_allocatable_that_comes_and_goes_takes_the_node_with_it(self):
        """A kubelet that restarts says 0 until the plugin has registered again."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-1")))
        assert free(cluster, "n1") == "1011"
        cluster.update_node(node("n1", allocatable={GPU: 0}))
        assert free(cluster, "n1") == ""
        cluster.update_node(node("n1"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("1011", ())

    def test_a_count_only_node_grows_and_shrinks(self):
        """What is used stays used; where there is less than that, nothing is free."""
        cluster = live(bare("n1", 4))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 3))
        assert free(cluster, "n1") == "0001"
        cluster.update_node(bare("n1", 6))
        assert free(cluster, "n1") == "000111"
        cluster.update_node(bare("n1", 2))
        assert free(cluster, "n1") == "00"

    def test_a_huge_count_is_cut_to_what_a_node_may_have(self):
        """A wrong figure must not take the extender's memory."""
        assert len(live(bare("n1", 10**9)).snapshot.nodes["n1"].ids) == 512

    def test_nodes_of_one_machine_type_share_its_tables(self):
        """Tables take memory and up to a second; thousands of nodes are of a handful of types."""
        cluster = live(node("n1"), node("n2"))
        views = cluster.snapshot.nodes
        assert views["n1"].node_class is views["n2"].node_class

    def test_machine_types_may_be_built_elsewhere(self):
        """The feed builds off the event loop; what it hands in is used."""
        other = node("n1", topology=topology_text("n1", machine=load_recording("4x-l40s")))
        cluster = live()
        assert cluster.reader.unbuilt(node("n2")) is None
        assert cluster.reader.unbuilt(bare("n2")) is None
        assert cluster.reader.unbuilt(node("n2", topology="{")) is None
        topology = cluster.reader.unbuilt(other)
        assert topology is not None
        assert topology.n_gpus == 4
        cluster.update_node(other)
        assert cluster.reader.unbuilt(other) is None

    def test_own_measured_figures_make_a_kind_of_their_own(self):
        """Raw figures break ties on the node that measured them, and on no other."""
        figures = {"n1": 90.0, "n2": 90.5, "n3": 90.0}
        cluster = live(
            *(
                node(name, topology=topology_text(name, machine=measured(figure)))
                for name, figure in figures.items()
            )
        )
        kinds = {name: view.node_class for name, view in cluster.snapshot.nodes.items()}
        assert kinds["n1"] is kinds["n3"]
        assert kinds["n1"] is not kinds["n2"]
        assert digest(cluster, "n1") == digest(cluster, "n2") is not None

    def test_a_node_that_is_measured_again_and_again_keeps_its_latest_figures(self, monkeypatch):
        """The figures of before have no node any more."""
        monkeypatch.setattr(kinds_module, "MAX_RAW_TYPES", 3)
        monkeypatch.setattr(kinds_module, "SPARE", 0)
        cluster = live(node("n1"))
        seen = set()
        for i in range(12):
            text = topology_text("n1", machine=measured(90.0 + i / 100))
            cluster.update_node(node("n1", topology=text))
            seen.add(cluster.snapshot.nodes["n1"].node_class)
        assert len(seen) == 12

    def test_a_node_that_comes_back_with_other_devices_starts_empty(self):
        """A machine was replaced under the same name: ids of the old one mean nothing."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
        assert free(cluster, "n1") == "0011"
        cluster.delete_node("n1")
        assert "n1" not in cluster.snapshot.nodes
        cluster.update_node(node("n1", prefix="new-"))
        assert digest(cluster, "n1") is not None
        assert free(cluster, "n1") == "1111"
        assert cluster.take_effects() == (probe("p"),)
        removed = [{"pod": "default/pod-p", "pod_uid": "p", "ids": ["n1-0", "n1-1"]}]
        assert shown(cluster, "n1")["removed"] == removed
        cluster.pods.delete("p")
        assert shown(cluster, "n1")["removed"] == []

    def test_a_node_that_comes_back_as_it_was_has_its_pods(self):
        """A deleted Node object does not stop containers."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.delete_node("n1")
        cluster.delete_node("n1")
        cluster.update_node(node("n1"))
        assert free(cluster, "n1") == "0111"

    def test_a_list_of_nodes_is_complete(self):
        """What vanished while the watch was down is gone."""
        cluster = live(node("n1"), node("n2"))
        cluster.replace_nodes([node("n2", zone="z9"), node("n3")])
        assert list(cluster.snapshot.nodes) == ["n2", "n3"]
        assert cluster.snapshot.nodes["n2"].zone == "z9"

    def test_soft_taints_count_where_gpus_are_served(self):
        """No GPU pod is drawn to other nodes, so theirs do not concern the candidate limit."""
        cluster = live(node("n1"), node("n2", allocatable={}, has_soft_taint=True))
        assert not cluster.snapshot.node_index.has_soft_taints
        cluster.update_node(node("n1", has_soft_taint=True))
        index = cluster.snapshot.node_index
        assert (index.has_soft_taints, index.is_soft_tainted.tolist()) == (True, [True, False])


class TestHealth:
    def test_bad_devices_are_not_free_until_they_recover(self):
        """The node's report is the only word on health."""
        cluster = live(node("n1", devices=report("n1-1", "unheard-of")))
        assert free(cluster, "n1") == "1011"
        cluster.update_node(node("n1", devices=report(generation=2)))
        assert free(cluster, "n1") == "1111"

    def test_a_plan_keeps_its_bad_device(self):
        """A running container keeps its GPU, also where the health is known before the plan."""
        cluster = live(node("n1", devices=report("n1-1")))
        assert free(cluster, "n1") == "1011"
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
        assert owners(cluster, "n1") == {
            "n1-0": ("bound", "p"),
            "n1-1": ("bound_unhealthy", "p"),
        }
        cluster.pods.delete("p")
        assert free(cluster, "n1") == "1011"

    def test_a_device_that_sickens_under_a_pod_is_not_free_after_it(self):
        """Health and ownership are two things."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        assert free(cluster, "n1") == "0111"
        cluster.update_node(node("n1", devices=report("n1-0")))
        assert owners(cluster, "n1") == {"n1-0": ("bound_unhealthy", "p")}
        cluster.pods.delete("p")
        assert free(cluster, "n1") == "0111"
        assert cluster.counts()[DeviceState.UNHEALTHY] == 1

    def test_a_broken_report_is_reported_and_taken_for_none(self):
        """Health is then unknown, which must not take the whole node out."""
        cluster = live(node("n1", devices="{}"))
        assert free(cluster, "n1") == "1111"
        (problem,) = cluster.take_effects()
        assert isinstance(problem, NodeProblem)
        assert problem.detail == "devices text: the text has no v, expected one"
        cluster.update_node(node("n1", devices="{}", zone="z2"))
        assert cluster.take_effects() == ()


class TestPlannedPods:
    def test_pods_may_be_seen_before_their_node(self):
        """The watches start side by side."""
        cluster = live()
        cluster.pods.update(facts("p", plan_of("n1", "n1-2")))
        cluster.update_node(node("n1"))
        assert free(cluster, "n1") == "1101"

    def test_a_pod_that_ends_frees_its_devices(self):
        """Terminal pods leave the watch as if they were deleted."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-2")))
        cluster.pods.delete("p")
        cluster.pods.delete("p")
        assert (free(cluster, "n1"), cluster.n_pods) == ("1111", 0)

    def test_a_list_of_pods_is_complete(self):
        """Pods that ended while the extender was away must not keep their devices."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("old", plan_of("n1", "n1-0")))
        cluster.pods.update(facts("p", plan_of("n1", "n1-1")))
        cluster.pods.replace([facts("p", plan_of("n1", "n1-1")), facts("q", plan_of("n1", "n1-2"))])
        assert free(cluster, "n1") == "1001"

    def test_the_same_event_twice_changes_nothing(self):
        """Watches repeat themselves; the snapshot may not move for it."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-2")))
        snapshot = cluster.snapshot
        cluster.pods.update(facts("p", plan_of("n1", "n1-2")))
        cluster.update_node(node("n1"))
        assert cluster.snapshot is snapshot

    def test_a_changed_plan_is_followed(self):
        """A plan should not change, but what the pod has is what counts."""
        cluster = live(node("n1"), node("n2"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-2")))
        assert free(cluster, "n1") == "1101"
        cluster.pods.update(facts("p", plan_of("n2", "n2-0")))
        assert (free(cluster, "n1"), free(cluster, "n2")) == ("1111", "0111")

    def test_of_two_plans_the_later_one_waits_for_its_device(self):
        """A fail-over may bind twice: no device has two owners, no pod loses the rest."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
        cluster.pods.update(facts("q", plan_of("n1", "n1-1", "n1-2")))
        assert owners(cluster, "n1") == {
            "n1-0": ("bound", "p"),
            "n1-1": ("bound", "p"),
            "n1-2": ("bound", "q"),
        }
        conflict = PlanConflict("default", "pod-q", "q", "n1", ("n1-1",), ("default/pod-p",))
        assert cluster.take_effects() == (conflict,)
        contested = shown(cluster, "n1")["contested"]
        assert contested == [{"pod": "default/pod-q", "pod_uid": "q", "devices": 1}]
        cluster.update_node(node("n1", zone="z2"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0001", ())
        cluster.pods.delete("p")
        assert owners(cluster, "n1") == {"n1-1": ("bound", "q"), "n1-2": ("bound", "q")}
        assert shown(cluster, "n1")["contested"] == []

    def test_a_planned_device_that_the_node_no_longer_has_is_lost(self):
        """It conflicts with nothing; the pod is read, as the kubelet may have given it another."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "gone-1")))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0111", (probe("p"),))
        assert digest(cluster, "n1") is not None
        removed = [{"pod": "default/pod-p", "pod_uid": "p", "ids": ["gone-1"]}]
        assert (shown(cluster, "n1")["removed"], shown(cluster, "n1")["devices_unknown"]) == (
            removed,
            [],
        )
        assert cluster.take_effects() == ()
        cluster.pods.read(whole("p", "n1", 2, "n1-0", "n1-3"))
        assert (free(cluster, "n1"), shown(cluster, "n1")["removed"]) == ("0110", [])

    def test_a_machine_whose_gpu_vanished_under_a_pod_is_planned_on(self):
        """The pod keeps its other devices and its node; `required` pods may still go there."""
        three = replace(
            MACHINE,
            gpus=MACHINE.gpus[:3],
            links=tuple(row[:3] for row in MACHINE.links[:3]),
            pcie=tuple(row[:3] for row in MACHINE.pcie[:3]),
            nics=(),
            fabrics=(),
        )
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-2", "n1-3")))
        text = topology_text("n1", machine=three)
        cluster.update_node(node("n1", topology=text, allocatable={GPU: 3}))
        assert owners(cluster, "n1") == {"n1-2": ("bound", "p")}
        assert free(cluster, "n1") == "110"
        plan = choose(cluster, wish("q", 2, policy="required", affinity="nvlink"), "n1", Rater())
        assert plan.ids == ("n1-0", "n1-1")
        cluster.update_node(node("n1"))
        assert (free(cluster, "n1"), shown(cluster, "n1")["removed"]) == ("1100", [])

    def test_a_held_device_that_the_node_no_longer_has_is_lost(self):
        """What the plugin says of a pod that has no plan, or other devices than planned."""
        held = report(holds=(hold("p", "n1-0", "gone-1"), hold("q", "n1-2", "gone-2")))
        cluster = live(node("n1", devices=held))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 2))
        cluster.pods.update(facts("q", plan_of("n1", "n1-1", "n1-3")))
        assert owners(cluster, "n1") == {"n1-0": ("held", "p"), "n1-2": ("held", "q")}
        assert (free(cluster, "n1"), digest(cluster, "n1") is None) == ("0101", False)
        assert [one["ids"] for one in shown(cluster, "n1")["removed"]] == [["gone-1"], ["gone-2"]]

    def test_an_unknown_id_that_only_a_status_names_is_not_taken_for_lost(self):
        """Another plugin may name devices otherwise than the topology: the node counts."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 2, "n1-0", "GPU-0::0"))
        assert (free(cluster, "n1"), digest(cluster, "n1")) == ("0011", None)
        assert shown(cluster, "n1")["removed"] == []

    def test_where_devices_have_no_names_a_plan_is_a_count(self):
        """Its ids are not removed ones: the node does not say what it has."""
        cluster = live(bare("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
        assert (free(cluster, "n1"), shown(cluster, "n1")["removed"]) == ("0011", [])

    def test_a_plan_for_another_node_is_no_plan(self):
        """Whoever wrote it, the pod is where its spec says."""
        cluster = live(node("n1"), node("n2"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.pods.read(whole("p", "n2", 2))
        assert (free(cluster, "n1"), free(cluster, "n2")) == ("1111", "0011")
        assert cluster.bound("p") == BoundPod("p", "default", "pod-p", "n2", None)

    def test_pods_planned_for_an_unknown_node_are_looked_for_once_all_is_known(self):
        """Before that the node may still be on its way; 40,000 reads would be the price."""
        cluster = live(node("n1"))
        cluster.set_freshness(is_synced=False, observed_at_s=0.0)
        cluster.pods.update(facts("p", plan_of("n9", "n9-0")))
        assert cluster.take_effects() == ()
        cluster.set_freshness(is_synced=True, observed_at_s=1.0)
        assert cluster.take_effects() == (probe("p"),)
        cluster.pods.read(whole("p", "n1", 1))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0111", ())

    @pytest.mark.parametrize("text", ["{", '{"v":2}'], ids=["broken", "newer major"])
    def test_a_plan_that_cannot_be_read_is_looked_for(self, text):
        """Never guessed at: the pod counts as one without a plan."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", text))
        assert cluster.take_effects() == (probe("p"),)
        cluster.pods.read(whole("p", "n1", 2))
        assert free(cluster, "n1") == "0011"

    def test_init_containers_share_devices_with_those_after_them(self):
        """The kubelet hands them on; they are counted once."""
        cluster = live(node("n1"))
        plan = plan_of("n1", init=("n1-1",), main=("n1-0", "n1-1"))
        cluster.pods.update(facts("p", plan))
        assert free(cluster, "n1") == "0011"
        assert cluster.bound("p") == BoundPod("p", "default", "pod-p", "n1", encode_plan(plan))


class TestForeignPods:
    def test_a_pod_without_plan_is_read_in_full(self):
        """Its metadata shows neither its node nor how many devices it requests."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        assert (cluster.take_effects(), cluster.bound("p")) == ((probe("p"),), None)
        cluster.pods.read(whole("p", "n1", 3))
        view = cluster.snapshot.nodes["n1"]
        assert (view.node_class.machine, view.node_class.resource, free(cluster, "n1")) == (
            None,
            GPU,
            "0001",
        )
        assert cluster.bound("p") == BoundPod("p", "default", "pod-p", "n1", None)
        assert cluster.take_effects() == ()

    def test_a_pod_that_cannot_request_gpus_is_never_read(self):
        """Most pods of a cluster have no GPUs."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", may_request=False))
        assert (cluster.take_effects(), cluster.n_pods) == ((), 0)

    def test_a_pod_that_turns_out_to_request_none_is_read_once(self):
        """Without managed fields one look is needed, and no second one."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.take_effects()
        cluster.pods.read(whole("p", "n1", 0))
        assert free(cluster, "n1") == "1111"
        cluster.pods.update(facts("p", resource_version="2"))
        assert cluster.take_effects() == ()

    def test_its_status_names_its_devices_some_seconds_later(self):
        """From 1.36 on the next sign of change is worth another look."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 2))
        cluster.take_effects()
        cluster.pods.update(facts("p", resource_version="2"))
        assert cluster.take_effects() == (probe("p"),)
        cluster.pods.read(whole("p", "n1", 2, "n1-1", "n1-3"))
        assert owners(cluster, "n1") == {"n1-1": ("held", "p"), "n1-3": ("held", "p")}
        assert cluster.snapshot.nodes["n1"].node_class.machine is not None
        cluster.pods.update(facts("p", resource_version="3"))
        assert cluster.take_effects() == ()

    def test_a_sign_of_change_before_the_first_look_is_settled_is_not_lost(self):
        """The kubelet may name devices between the reading and our taking note of it."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.take_effects()
        cluster.pods.read(whole("p", "n1", 1))
        cluster.pods.update(facts("p", resource_version="2"))
        assert cluster.take_effects() == (probe("p"),)

    def test_no_look_is_worth_it_where_devices_have_no_names(self):
        """A node without topology counts, whatever the status says."""
        cluster = live(bare("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 2, "GPU-1", "GPU-2"))
        cluster.take_effects()
        cluster.pods.update(facts("p", resource_version="2"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0011", ())
        cluster.update_node(node("n1"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0011", (probe("p"),))

    def test_the_nodes_report_names_its_devices(self):
        """Before 1.36 the node's plugin is the only one who knows."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 2))
        cluster.update_node(node("n1", devices=report(holds=(hold("p", "n1-2", "n1-3"),))))
        assert owners(cluster, "n1") == {"n1-2": ("held", "p"), "n1-3": ("held", "p")}
        assert cluster.snapshot.nodes["n1"].node_class.machine is not None

    def test_what_is_not_named_yet_is_counted(self):
        """An init container's devices are in no status, but the pod keeps them."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 3, "n1-3"))
        assert free(cluster, "n1") == "0010"
        page = shown(cluster, "n1")
        assert page["devices_unknown"] == [{"pod": "default/pod-p", "pod_uid": "p", "devices": 2}]
        assert page["machine"] == "by count"

    def test_holds_of_a_pod_that_no_watch_has_shown_count(self):
        """A force-deleted pod's containers may still run: the device is in use, whoever has it."""
        cluster = live(node("n1", devices=report(holds=(hold("x", "n1-0"),))))
        assert owners(cluster, "n1") == {"n1-0": ("held", "x@n1")}
        cluster.pods.update(facts("x", plan_of("n1", "n1-0")))
        assert owners(cluster, "n1") == {"n1-0": ("held", "x")}

    def test_other_resources_of_a_pod_do_not_matter(self):
        """Only devices of the node's own resource are its devices."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        other = (ContainerDevices("main", "rdma/hca", ("mlx5_0",)),)
        cluster.pods.read(replace(whole("p", "n1", 1), devices=other))
        assert free(cluster, "n1") == "0111"
        cluster.pods.update(facts("q"))
        cluster.pods.read(whole("q", "n1", body=content("q", 2, resource="rdma/hca")))
        assert free(cluster, "n1") == "0111"

    def test_a_mistaken_annotation_does_not_hide_devices(self):
        """Another scheduler binds such a pod all the same."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", body=content("p", 2, affinity="nvlnk")))
        assert free(cluster, "n1") == "0011"

    def test_a_pod_that_cannot_be_read_makes_the_node_count(self):
        """Unknown is not zero: no plan can be made beside it."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.read(replace(whole("p", "n1"), body=b'{"metadata":{},"spec":7}'))
        view = cluster.snapshot.nodes["n1"]
        assert (view.node_class.machine, free(cluster, "n1")) == (None, "1111")

    def test_more_than_there_is_breaks_nothing(self):
        """Devices may be fewer than pods that cannot be located."""
        cluster = live(node("n1"))
        for uid in "pq":
            cluster.pods.update(facts(uid))
            cluster.pods.read(whole(uid, "n1", 3))
        assert free(cluster, "n1") == "0000"
        cluster.pods.delete("p")
        assert free(cluster, "n1") == "0001"

    @pytest.mark.parametrize(
        "late",
        [
            pytest.param(whole("p", "n1", 2), id="the pod was lost"),
            pytest.param(whole("q", None, 2), id="the pod has no node yet"),
        ],
    )
    def test_a_reading_that_comes_too_late_or_too_early_is_nothing(self, late):
        """Readings are under way while the watch goes on."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        cluster.pods.update(facts("q"))
        cluster.pods.delete("p")
        cluster.pods.read(late)
        assert free(cluster, "n1") == "1111"
        assert cluster.bound("p") is None

    def test_a_reading_of_a_pod_that_has_ended_frees_it(self):
        """The watch will say so too, a little later."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.pods.read(whole("p", "n1", 1, phase="Succeeded"))
        assert (free(cluster, "n1"), cluster.n_pods) == ("1111", 0)

    def test_a_plan_that_is_taken_away_leaves_a_pod_without_plan(self):
        """The pod was edited; it has its devices all the same."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-2")))
        cluster.pods.update(facts("p"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("1111", (probe("p"),))
        cluster.pods.read(whole("p", "n1", 1))
        assert free(cluster, "n1") == "0111"


class TestMismatches:
    def test_what_the_kubelet_gave_wins_and_is_reported_once(self):
        """The state follows what is; the user gets an Event, in the form of the plan."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
        cluster.update_node(node("n1", devices=report(holds=(hold("p", "n1-3", "n1-1"),))))
        assert owners(cluster, "n1") == {"n1-1": ("held", "p"), "n1-3": ("held", "p")}
        given = (ContainerPlan("main", GPU, ("n1-1", "n1-3")),)
        planned = (ContainerPlan("main", GPU, ("n1-0", "n1-1")),)
        text = (
            '{"v":1,"node":"n1","containers":[{"name":"main","resource":"nvidia.com/gpu",'
            '"ids":["n1-1","n1-3"]}]}'
        )
        mismatch = Mismatch("default", "pod-p", "p", "n1", planned, given, text)
        assert cluster.take_effects() == (mismatch,)
        cluster.update_node(
            node("n1", zone="z2", devices=report(holds=(hold("p", "n1-3", "n1-1"),)))
        )
        assert cluster.snapshot.nodes["n1"].zone == "z2"
        assert cluster.take_effects() == ()
        again = live(node("n1", devices=report(holds=(hold("p", "n1-3", "n1-1"),))))
        again.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1"), allocated=text))
        assert again.take_effects() == ()

    def test_a_mismatch_that_ended_is_reported_once(self):
        """The annotation would say for ever what is not so any more."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0"), allocated="something else"))
        assert cluster.take_effects() == (Agreement("default", "pod-p", "p"),)
        cluster.update_node(node("n1", zone="z2"))
        assert cluster.snapshot.nodes["n1"].zone == "z2"
        assert cluster.take_effects() == ()

    def test_a_swap_between_two_plans_is_no_conflict(self):
        """Equal pods may get each other's devices, which satisfies both."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.pods.update(facts("q", plan_of("n1", "n1-1")))
        swapped = report(holds=(hold("p", "n1-1"), hold("q", "n1-0")))
        cluster.update_node(node("n1", devices=swapped))
        assert owners(cluster, "n1") == {"n1-0": ("held", "q"), "n1-1": ("held", "p")}
        assert {type(one) for one in cluster.take_effects()} == {Mismatch}

    def test_a_hold_takes_devices_from_a_plan(self):
        """Two pods never own one device, even where the kubelet broke a plan."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
        cluster.pods.update(facts("q"))
        cluster.pods.read(whole("q", "n1", 1, "n1-1"))
        assert owners(cluster, "n1") == {"n1-0": ("bound", "p"), "n1-1": ("held", "q")}
        assert (
            PlanConflict("default", "pod-p", "p", "n1", ("n1-1",), ("default/pod-q",))
            in cluster.take_effects()
        )

    def test_containers_that_got_what_was_planned_are_not_reported(self):
        """A report names what differs; the other containers have their plan."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", main=("n1-0",), side=("n1-1",))))
        cluster.update_node(node("n1", devices=report(holds=(hold("p", "n1-2", name="side"),))))
        assert owners(cluster, "n1") == {"n1-0": ("held", "p"), "n1-2": ("held", "p")}
        (mismatch,) = cluster.take_effects()
        assert isinstance(mismatch, Mismatch)
        assert [one.ids for one in mismatch.containers] == [("n1-0",), ("n1-2",)]

    def test_a_container_that_was_not_planned_is_named_too(self):
        """The user sees all that the pod has."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.update_node(node("n1", devices=report(holds=(hold("p", "n1-2", name="more"),))))
        (mismatch,) = cluster.take_effects()
        assert isinstance(mismatch, Mismatch)
        assert [(one.name, one.ids) for one in mismatch.containers] == [
            ("main", ("n1-0",)),
            ("more", ("n1-2",)),
        ]

    def test_a_status_that_says_what_was_planned_is_no_news(self):
        """The normal case on 1.36."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
        cluster.pods.read(whole("p", "n1", 2, "n1-1", "n1-0"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0011", ())

    def test_a_report_and_a_status_of_two_pods_cannot_both_be_right(self):
        """The pod met first keeps the device; the other one is reported."""
        cluster = live(node("n1", devices=report(holds=(hold("q", "n1-0"), hold("y", "n1-0")))))
        cluster.pods.update(facts("p"))
        cluster.pods.read(whole("p", "n1", 1, "n1-0"))
        cluster.pods.update(facts("q", plan_of("n1", "n1-0")))
        assert owners(cluster, "n1") == {"n1-0": ("held", "p")}
        assert (
            PlanConflict("default", "pod-q", "q", "n1", ("n1-0",), ("default/pod-p",))
            in cluster.take_effects()
        )


class TestBindings:
    def test_an_assumption_becomes_a_binding(self):
        """The normal life of a pod: assumed, accepted, seen, ended."""
        cluster = live(node("n1"))
        plan = plan_of("n1", "n1-0", "n1-1")
        assert cluster.assume(wish("p", 2), plan, deadline_s=10.0) is None
        assert owners(cluster, "n1") == {"n1-0": ("assumed", "p"), "n1-1": ("assumed", "p")}
        assert (cluster.bound("p"), cluster.n_pods) == (None, 0)
        cluster.pods.confirm("p")
        assert owners(cluster, "n1") == {"n1-0": ("bound", "p"), "n1-1": ("bound", "p")}
        expected = BoundPod("p", "default", "pod-p", "n1", encode_plan(plan))
        assert (cluster.bound("p"), cluster.n_pods) == (expected, 1)
        snapshot = cluster.snapshot
        cluster.pods.update(facts("p", plan))
        assert cluster.snapshot is snapshot
        cluster.pods.delete("p")
        assert free(cluster, "n1") == "1111"

    @pytest.mark.parametrize(
        ("shown", "owned"),
        [
            pytest.param(("n1-0",), {"n1-0": ("bound", "p")}, id="the same"),
            pytest.param(("n1-2",), {"n1-2": ("bound", "p")}, id="another plan"),
        ],
    )
    def test_the_plan_that_a_watch_shows_counts(self, shown, owned):
        """What was written is mostly what is shown, but the annotation is the record."""
        cluster = live(node("n1"))
        assert bind(cluster, "p", "n1", 0)
        snapshot = cluster.snapshot
        cluster.pods.update(facts("p", plan_of("n1", *shown)))
        assert owners(cluster, "n1") == owned
        assert (cluster.snapshot is snapshot) == (shown == ("n1-0",))

    def test_a_confirmed_pod_that_is_shown_on_a_lost_node_is_read(self):
        """Its node went before a watch showed the pod: it may be elsewhere."""
        cluster = live(node("n1"))
        assert bind(cluster, "p", "n1", 0)
        assert cluster.take_effects() == ()
        cluster.delete_node("n1")
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        assert cluster.take_effects() == (probe("p"),)

    def test_what_a_confirmed_pod_got_is_reported_again_where_a_watch_does_not_show_it(self):
        """The kubelet was quicker than the watch, and the user's text was not written yet."""
        cluster = live(node("n1"))
        assert bind(cluster, "p", "n1", 0)
        cluster.update_node(node("n1", devices=report(holds=(hold("p", "n1-3"),))))
        effects = cluster.take_effects()
        assert [type(one) for one in effects] == [Mismatch]
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        assert cluster.take_effects() == effects

    @pytest.mark.parametrize(
        "order",
        [("confirm", "see", "lose"), ("see", "confirm", "lose"), ("see", "lose", "confirm")],
        ids=" ".join,
    )
    def test_watch_and_bind_may_come_in_any_order(self, order):
        """The event may overtake the answer; after DELETED nothing is left, whatever comes."""
        cluster = live(node("n1"))
        plan = plan_of("n1", "n1-0")
        cluster.assume(wish("p"), plan, deadline_s=10.0)
        steps = {
            "confirm": lambda: cluster.pods.confirm("p"),
            "see": lambda: cluster.pods.update(facts("p", plan)),
            "lose": lambda: cluster.pods.delete("p"),
        }
        for step in order:
            steps[step]()
        assert free(cluster, "n1") == "1111"
        assert cluster.bound("p") is None

    def test_forgetting_frees_only_what_is_not_bound(self):
        """A failed bind call may be one of two for the same pod."""
        cluster = live(node("n1"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.pods.forget("p")
        cluster.pods.forget("p")
        assert free(cluster, "n1") == "1111"
        assert bind(cluster, "q", "n1", 1)
        cluster.pods.forget("q")
        cluster.pods.update(facts("q", plan_of("n1", "n1-1")))
        cluster.pods.forget("q")
        cluster.pods.confirm("q")
        assert free(cluster, "n1") == "1011"

    @pytest.mark.parametrize(
        ("plan", "why_not"),
        [
            pytest.param(
                plan_of("n1", "n1-0"), "device n1-0 of node n1 is bound", id="another pod's device"
            ),
            pytest.param(
                plan_of("n1", "n1-1"), "device n1-1 of node n1 is unhealthy", id="a bad device"
            ),
            pytest.param(
                plan_of("n1", "n9-1"), "device n9-1 of node n1 is unknown", id="no such device"
            ),
            pytest.param(plan_of("n9", "n9-1"), "node n9 is not known", id="no such node"),
        ],
    )
    def test_what_cannot_be_had_is_refused(self, plan, why_not):
        """The plan may be older than the last event."""
        cluster = live(node("n1", devices=report("n1-1")))
        cluster.pods.update(facts("q", plan_of("n1", "n1-0")))
        before = cluster.snapshot
        refused = cluster.assume(wish("p"), plan, deadline_s=10.0)
        assert refused == f"assume for pod p: {why_not}"
        assert cluster.snapshot is before

    def test_a_bound_pod_gets_no_second_plan(self):
        """Two schedulers, or a call that is repeated, must not give it twice."""
        cluster = live(node("n1"))
        assert bind(cluster, "p", "n1", 0)
        refused = cluster.assume(wish("p"), plan_of("n1", "n1-1"), deadline_s=10.0)
        assert refused == "assume for pod p: its binding is accepted already"

    def test_an_assumed_pod_may_be_planned_again(self):
        """After a conflict the pod is planned again, with its own devices among the free ones."""
        cluster = live(node("n1"), node("n2"))
        request = wish("p", 2)
        cluster.assume(request, plan_of("n1", "n1-0", "n1-1"), deadline_s=10.0)
        assert cluster.snapshot_for(request).nodes["n1"].free == ALL
        assert cluster.snapshot_for(wish("q")).nodes["n1"].free == 0b1100
        assert cluster.assume(request, plan_of("n1", "n1-1", "n1-2"), deadline_s=10.0) is None
        assert free(cluster, "n1") == "1001"
        assert cluster.assume(request, plan_of("n2", "n2-0", "n2-1"), deadline_s=10.0) is None
        assert (free(cluster, "n1"), free(cluster, "n2")) == ("1111", "0011")

    def test_an_assumption_ends_at_its_deadline(self):
        """A bind whose outcome stays unknown must not keep GPUs for ever."""
        cluster = live(node("n1"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.set_freshness(is_synced=True, observed_at_s=10.0)
        cluster.expire(9.9)
        assert free(cluster, "n1") == "0111"
        cluster.expire(10.0)
        assert free(cluster, "n1") == "1111"

    @pytest.mark.parametrize(
        ("is_synced", "observed_at_s"),
        [pytest.param(True, 9.0, id="no event since"), pytest.param(False, 20.0, id="not synced")],
    )
    def test_no_assumption_ends_while_the_watch_may_be_behind(self, is_synced, observed_at_s):
        """The binding may have come true; the watch would have shown it, had it been fresh."""
        cluster = live(node("n1"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.set_freshness(is_synced=is_synced, observed_at_s=observed_at_s)
        cluster.expire(99.0)
        assert free(cluster, "n1") == "0111"

    def test_what_cannot_lag_needs_no_word(self):
        """A feed inside the process is up to date by itself."""
        cluster = live(node("n1"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.set_freshness(is_synced=True, observed_at_s=None)
        cluster.expire(10.0)
        assert free(cluster, "n1") == "1111"

    def test_a_binding_that_is_written_again_is_assumed_for_longer(self):
        """Never for less; and what is not assumed has no time to be moved."""
        cluster = live(node("n1"))
        cluster.set_freshness(is_synced=True, observed_at_s=None)
        cluster.pods.renew("p", deadline_s=99.0)
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.pods.renew("p", deadline_s=20.0)
        cluster.pods.renew("p", deadline_s=15.0)
        cluster.expire(19.0)
        assert free(cluster, "n1") == "0111"
        cluster.expire(20.0, in_flight={"p"})
        assert free(cluster, "n1") == "0111"
        cluster.expire(20.0)
        assert free(cluster, "n1") == "1111"

    def test_a_seen_pod_never_expires(self):
        """Its binding is a fact, confirmed or not."""
        cluster = live(node("n1"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.set_freshness(is_synced=True, observed_at_s=99.0)
        cluster.expire(99.0)
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0111", ())

    def test_an_accepted_pod_that_no_watch_shows_is_looked_for(self):
        """It may have been deleted between two lists; only the API server knows."""
        cluster = live(node("n1"))
        bind(cluster, "p", "n1", 0)
        cluster.set_freshness(is_synced=True, observed_at_s=10.0)
        cluster.expire(10.0)
        cluster.expire(11.0)
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0111", (probe("p"),))
        cluster.set_freshness(is_synced=True, observed_at_s=20.0)
        cluster.expire(20.0)
        assert cluster.take_effects() == (probe("p"),)
        cluster.pods.delete("p")
        assert free(cluster, "n1") == "1111"

    def test_a_list_older_than_the_binding_does_not_free_it(self):
        """A list takes time; bindings go on meanwhile."""
        cluster = live(node("n1"))
        bind(cluster, "p", "n1", 0)
        cluster.assume(wish("q"), plan_of("n1", "n1-1"), deadline_s=10.0)
        cluster.pods.replace([])
        assert free(cluster, "n1") == "0011"

    def test_a_pod_found_bound_by_a_reading_is_bound(self):
        """A probe may know more than the write's answer did."""
        cluster = live(node("n1"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.pods.read(whole("p", "n1"))
        assert cluster.bound("p") is not None
        assert owners(cluster, "n1") == {"n1-0": ("bound", "p")}

    def test_another_schedulers_binding_ends_the_assumption(self):
        """The watch shows the pod without our plan: another binder was quicker."""
        cluster = live(node("n1"), node("n2"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.pods.update(facts("p"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("1111", (probe("p"),))
        cluster.pods.read(whole("p", "n2", 1))
        assert (free(cluster, "n1"), free(cluster, "n2")) == ("1111", "0111")

    def test_another_replicas_plan_wins_over_ours(self):
        """The annotation is the record."""
        cluster = live(node("n1"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.pods.update(facts("p", plan_of("n1", "n1-3")))
        assert owners(cluster, "n1") == {"n1-3": ("bound", "p")}

    def test_a_pod_placed_by_count_keeps_the_count(self):
        """No plan is written on a node without topology; the kubelet chooses."""
        cluster = live(bare("n1"))
        request = wish("p", 3)
        plan = choose(cluster, request, "n1", Rater())
        assert plan.containers == ()
        assert cluster.assume(request, plan, deadline_s=10.0) is None
        cluster.pods.confirm("p")
        assert free(cluster, "n1") == "0001"
        cluster.pods.update(facts("p"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0001", ())
        assert cluster.bound("p") == BoundPod("p", "default", "pod-p", "n1", None)
        cluster.update_node(node("n1"))
        assert (free(cluster, "n1"), cluster.take_effects()) == ("0001", (probe("p"),))
        cluster.pods.read(whole("p", "n1", 3, *ids("n1", 1, 2, 3)))
        assert free(cluster, "n1") == "1000"

    def test_a_plan_locates_a_pod_that_was_placed_by_count(self):
        """Another replica was quicker: what it planned must go to no other pod."""
        cluster = live(bare("nb"), node("nc"))
        place_by_count(cluster, "p")
        cluster.pods.update(facts("p", plan_of("nc", "nc-0", "nc-1")))
        assert (free(cluster, "nb"), free(cluster, "nc")) == ("1111", "0011")
        assert home(cluster, "p") == "nc"
        assert cluster.take_effects() == ()

    def test_a_read_pod_locates_one_that_was_placed_by_count(self):
        """It may be ours or another scheduler's; until then it counts where it was to go."""
        cluster = live(bare("nb"), node("nc"))
        place_by_count(cluster, "p")
        cluster.pods.update(facts("p"))
        assert (cluster.bound("p"), cluster.take_effects()) == (None, (probe("p"),))
        cluster.pods.update(facts("p"))
        assert (free(cluster, "nb"), cluster.take_effects()) == ("0011", (probe("p"),))
        cluster.pods.read(whole("p", "nc", 2))
        assert (free(cluster, "nb"), free(cluster, "nc")) == ("1111", "0011")

    def test_a_binding_by_count_that_is_accepted_after_the_watch_showed_it_is_known(self):
        """The watch may be quicker than the answer."""
        cluster = live(bare("nb"))
        place_by_count(cluster, "p")
        cluster.pods.update(facts("p"))
        cluster.pods.confirm("p")
        assert (free(cluster, "nb"), home(cluster, "p")) == ("0011", "nb")

    def test_a_binding_by_count_that_failed_keeps_no_count(self):
        """The watch shows the pod, so it is elsewhere: the reading shows where."""
        cluster = live(bare("nb"), node("nc"))
        place_by_count(cluster, "p")
        cluster.pods.update(facts("p"))
        cluster.pods.forget("p")
        cluster.pods.forget("unknown")
        assert (free(cluster, "nb"), cluster.take_effects()) == ("1111", (probe("p"),))
        cluster.pods.read(whole("p", "nc", 2))
        cluster.pods.forget("p")
        assert free(cluster, "nc") == "0011"

    def test_an_accepted_binding_that_a_later_reading_does_not_show_is_lost(self):
        """The API server's store went back to an older copy: no pod has these devices."""
        cluster = live(node("n1"))
        bind(cluster, "p", "n1", 0)
        cluster.pods.read(whole("p", None))
        assert free(cluster, "n1") == "0111", "requested before it was bound"
        cluster.set_freshness(is_synced=True, observed_at_s=10.0)
        cluster.expire(10.0)
        cluster.pods.read(whole("p", None))
        assert (free(cluster, "n1"), cluster.bound("p")) == ("1111", None)

    def test_a_binding_that_a_watch_shows_at_last_is_doubted_no_more(self):
        """A reading from before says nothing about it."""
        cluster = live(node("n1"))
        bind(cluster, "p", "n1", 0)
        cluster.set_freshness(is_synced=True, observed_at_s=10.0)
        cluster.expire(10.0)
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.pods.read(whole("p", None))
        assert free(cluster, "n1") == "0111"

    def test_a_pod_that_lost_its_node_may_be_bound_elsewhere(self):
        """A node deleted during bind takes its assumptions' devices with it."""
        cluster = live(node("n1"), node("n2"))
        cluster.assume(wish("p"), plan_of("n1", "n1-0"), deadline_s=10.0)
        cluster.delete_node("n1")
        assert cluster.assume(wish("p"), plan_of("n2", "n2-0"), deadline_s=10.0) is None
        assert free(cluster, "n2") == "0111"


class TestNominations:
    def test_a_nomination_claims_the_set_that_the_core_would_choose(self):
        """Volumes may take minutes before bind; no other pod may take the devices meanwhile."""
        cluster = live(node("n1"))
        request = wish("p", 2)
        plan = choose(cluster, request, "n1", Rater())
        cluster.pods.nominations.add(request, "n1")
        assert owners(cluster, "n1") == dict.fromkeys(plan.ids, ("claimed", "p"))
        assert cluster.snapshot_for(request).nodes["n1"].free == ALL
        assert cluster.snapshot_for(wish("q")).nodes["n1"].free == ALL ^ 0b0011
        cluster.pods.nominations.end("p")
        cluster.pods.nominations.end("p")
        assert free(cluster, "n1") == "1111"

    def test_a_kubelet_that_aligns_sees_claimed_devices_free(self):
        """It confines by what is free on the node, so the view says what is free but claimed."""
        text = report(policy=TopologyManagerPolicy.RESTRICTED, scope=TopologyManagerScope.POD)
        cluster = live(node("n1", devices=text))
        view = cluster.snapshot.nodes["n1"]
        assert (view.free, view.reserved) == (ALL, 0)
        cluster.pods.nominations.add(wish("p", 2), "n1")
        view = cluster.snapshot.nodes["n1"]
        assert (view.free | view.reserved, view.reserved.bit_count()) == (ALL, 2)
        assert view.free & view.reserved == 0

    def test_what_its_victims_leave_goes_to_the_nominated_pod(self):
        """Freed devices are claimed before another pod sees them free."""
        cluster = live(node("n1"))
        for i in range(4):
            cluster.pods.update(facts(f"v{i}", plan_of("n1", f"n1-{i}")))
        cluster.pods.nominations.add(wish("p", 2), "n1")
        assert owners(cluster, "n1")["n1-0"] == ("bound", "v0")
        cluster.take_freed_nodes()
        cluster.pods.delete("v0")
        assert (free(cluster, "n1"), set(cluster.take_freed_nodes())) == ("1000", {"n1"})
        cluster.pods.delete("v3")
        assert free(cluster, "n1") == "0000"
        assert owners(cluster, "n1")["n1-0"] == ("claimed", "p")
        refused = cluster.assume(wish("q"), plan_of("n1", "n1-0"), deadline_s=10.0)
        assert refused == "assume for pod q: device n1-0 of node n1 is claimed"
        assert cluster.take_freed_nodes() == {"n1"}

    @pytest.mark.parametrize("is_first", [True, False], ids=["nominated first", "deleted first"])
    def test_what_the_first_victim_leaves_waits_for_the_last_one(self, *, is_first):
        """Given to another pod it would make the preemption useless: the set is gone."""
        request = wish("p", 4, policy="required", affinity="numa")
        text = topology_text("n1", machine=load_recording("dgx-1-v100"))
        cluster = live(node("n1", topology=text, allocatable={GPU: 8}, capacity={GPU: 8}))
        victims = [facts("v0", plan_of("n1", *ids("n1", 0, 1, 2)))]
        victims.append(facts("v1", plan_of("n1", "n1-3")))
        for pod in (*victims, facts("stays", plan_of("n1", "n1-4"))):
            cluster.pods.update(pod)
        if is_first:
            cluster.pods.nominations.add(request, "n1")
            assert free(cluster, "n1") == "00000111"
        for pod in victims:
            cluster.pods.update(replace(pod, deletion_grace_s=30))
        cluster.pods.nominations.add(request, "n1")
        cluster.pods.delete("v0")
        assert free(cluster, "n1") == "00000111"
        assert owners(cluster, "n1")["n1-0"] == ("claimed", "p")
        assert set(choose(cluster, wish("q"), "n1", Rater()).ids) < set(ids("n1", 5, 6, 7))
        cluster.pods.delete("v1")
        assert choose(cluster, request, "n1", Rater()).ids == ids("n1", 0, 1, 2, 3)

    def test_two_nominations_do_not_wait_for_the_same_devices(self):
        """The second one claims nothing for a set that it will not get."""
        cluster = live(node("n1"))
        for i in range(3):
            planned = facts(f"v{i}", plan_of("n1", f"n1-{i}"))
            cluster.pods.update(replace(planned, deletion_grace_s=30))
        cluster.pods.nominations.add(wish("p", 3, priority=2), "n1")
        cluster.pods.nominations.add(wish("q", 3, priority=1), "n1")
        cluster.pods.delete("v0")
        claimed = [owner for state, owner in owners(cluster, "n1").values() if state == "claimed"]
        assert set(claimed) == {"p"}

    @pytest.mark.parametrize(
        ("priority", "is_free"),
        [
            pytest.param(9, False, id="lower"),
            pytest.param(10, False, id="equal"),
            pytest.param(11, True, id="higher"),
        ],
    )
    def test_only_a_higher_priority_goes_over_a_claim(self, priority, is_free):
        """As kube-scheduler treats nominated pods of equal or higher priority as there."""
        cluster = live(node("n1"))
        cluster.pods.nominations.add(wish("p", 4, priority=10), "n1")
        request = wish("q", 2, priority=priority)
        assert (cluster.snapshot_for(request).nodes["n1"].free == ALL) is is_free
        assert (cluster.snapshot_for(request) is cluster.snapshot) is not is_free
        refused = cluster.assume(request, plan_of("n1", "n1-0"), deadline_s=10.0)
        assert (refused is None) is is_free

    def test_a_claim_that_was_overridden_moves(self):
        """The lower pod keeps waiting, for what else there is on the node."""
        cluster = live(node("n1"))
        cluster.pods.nominations.add(wish("p", 1), "n1")
        (mine,) = owners(cluster, "n1")
        assert cluster.assume(wish("q", priority=1), plan_of("n1", mine), deadline_s=10.0) is None
        now = owners(cluster, "n1")
        assert now.pop(mine) == ("assumed", "q")
        assert list(now.values()) == [("claimed", "p")]

    def test_the_higher_priority_claims_first(self):
        """Whatever the order in which they were nominated."""
        cluster = live(node("n1"))
        cluster.pods.nominations.add(wish("low", 3, priority=1), "n1")
        assert set(owners(cluster, "n1").values()) == {("claimed", "low")}
        cluster.pods.nominations.add(wish("high", 3, priority=2), "n1")
        assert set(owners(cluster, "n1").values()) == {("claimed", "high")}
        cluster.pods.nominations.end("high")
        assert set(owners(cluster, "n1").values()) == {("claimed", "low")}

    def test_a_claim_ends_with_the_bind_and_comes_back_if_that_fails(self):
        """The nomination itself still stands."""
        cluster = live(node("n1"), node("n2"))
        request = wish("p", 2)
        cluster.pods.nominations.add(request, "n1")
        assert cluster.assume(request, plan_of("n2", "n2-0", "n2-1"), deadline_s=10.0) is None
        assert (free(cluster, "n1"), free(cluster, "n2")) == ("1111", "0011")
        cluster.pods.forget("p")
        assert (free(cluster, "n1").count("0"), free(cluster, "n2")) == (2, "1111")

    def test_a_nomination_may_move_or_change(self):
        """The scheduler nominates again; the pod's own wish may be edited."""
        cluster = live(node("n1"), node("n2"))
        cluster.pods.nominations.add(wish("p", 2), "n1")
        cluster.pods.nominations.add(wish("p", 3), "n2")
        assert (free(cluster, "n1"), free(cluster, "n2").count("0")) == ("1111", 3)
        snapshot = cluster.snapshot
        cluster.pods.nominations.add(wish("p", 3), "n2")
        assert cluster.snapshot is snapshot
        cluster.pods.nominations.add(wish("p", 0), "n2")
        assert free(cluster, "n2") == "1111"

    def test_a_list_of_nominations_is_complete(self):
        """Nominations that ended while the watch was down hold nothing."""
        cluster = live(node("n1"))
        cluster.pods.nominations.add(wish("p", 2), "n1")
        cluster.pods.nominations.replace([(wish("q", 1), "n1")])
        assert list(owners(cluster, "n1").values()) == [("claimed", "q")]

    def test_a_nomination_to_a_node_that_comes_later_claims_then(self):
        """Sources start side by side; and the claim goes with the node."""
        cluster = live()
        cluster.pods.nominations.add(wish("p", 2), "n1")
        assert cluster.snapshot_for(wish("p", 2)) is cluster.snapshot
        cluster.update_node(node("n1"))
        assert free(cluster, "n1").count("0") == 2
        cluster.delete_node("n1")
        assert cluster.snapshot_for(wish("q", 2, priority=9)) is cluster.snapshot

    def test_on_a_count_only_node_the_count_is_claimed(self):
        """Unless the pod insists, which such a node cannot serve."""
        cluster = live(bare("n1"))
        cluster.pods.nominations.add(wish("p", 2), "n1")
        cluster.pods.nominations.add(wish("q", 2, policy="required", affinity="nvlink"), "n1")
        assert free(cluster, "n1") == "0011"

    def test_an_unhealthy_device_is_claimed_by_no_pod(self):
        """The claim moves away from it."""
        cluster = live(node("n1"))
        cluster.pods.nominations.add(wish("p", 1), "n1")
        (mine,) = owners(cluster, "n1")
        cluster.update_node(node("n1", devices=report(mine)))
        (other,) = owners(cluster, "n1")
        assert other != mine


class TestReading:
    def test_nothing_new_is_the_same_snapshot(self):
        """Caches are keyed by it; a burst of inputs makes one new one."""
        cluster = live(node("n1"), node("n2"))
        first = cluster.snapshot
        assert cluster.snapshot is first
        for i in range(4):
            cluster.pods.update(facts(f"p{i}", plan_of("n1", f"n1-{i}")))
        second = cluster.snapshot
        assert second is not first
        assert second.generation > first.generation
        assert second.views[1] is first.views[1]
        assert cluster.snapshot is second

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda x: x.update_node(node("n2")), id="a node comes"),
            pytest.param(lambda x: x.delete_node("n1"), id="a node goes"),
            pytest.param(lambda x: x.update_node(node("n1", zone="z2")), id="zone"),
            pytest.param(lambda x: x.update_node(node("n1", has_soft_taint=True)), id="taint"),
            pytest.param(lambda x: x.update_node(bare("n1")), id="topology"),
            pytest.param(lambda x: x.update_node(node("n1", prefix="b-")), id="ids"),
            pytest.param(lambda x: x.update_node(node("n1", devices=report("n1-0"))), id="health"),
            pytest.param(lambda x: x.pods.update(facts("p", plan_of("n1", "n1-0"))), id="pod"),
            pytest.param(lambda x: bind(x, "p", "n1", 0), id="bind"),
            pytest.param(lambda x: x.pods.nominations.add(wish("p"), "n1"), id="nomination"),
        ],
    )
    def test_the_generation_moves_with_whatever_an_answer_depends_on(self, change):
        """A decision is replayed by it."""
        cluster = live(node("n1"))
        before = cluster.snapshot
        change(cluster)
        after = cluster.snapshot
        assert after.generation > before.generation

    def test_a_pod_that_makes_the_node_count_only_moves_the_generation(self):
        """No device changes hands, but what may be planned does."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p"))
        before = cluster.snapshot
        cluster.pods.read(replace(whole("p", "n1"), body=b"{}"))
        assert cluster.snapshot.generation > before.generation

    def test_the_snapshot_has_the_freshness(self):
        """Verbs refuse nothing from a state that may be old."""
        cluster = live()
        cluster.set_freshness(is_synced=False, observed_at_s=3.0)
        assert not cluster.snapshot.is_fresh(3.0, 60.0)
        cluster.set_freshness(is_synced=True, observed_at_s=3.0)
        assert cluster.snapshot.is_fresh(63.0, 60.0)
        assert not cluster.snapshot.is_fresh(64.0, 60.0)

    def test_freed_nodes_are_named_once(self):
        """Unschedulable pods are looked at again where something became free, and only there."""
        cluster = live(node("n1"), node("n2"))
        assert cluster.take_freed_nodes() == {"n1", "n2"}
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        assert cluster.take_freed_nodes() == frozenset()
        cluster.pods.delete("p")
        assert cluster.take_freed_nodes() == {"n1"}
        assert cluster.take_freed_nodes() == frozenset()
        cluster.update_node(bare("n2"))
        assert cluster.take_freed_nodes() == {"n2"}
        cluster.update_node(node("n2"))
        cluster.delete_node("n2")
        assert cluster.take_freed_nodes() == frozenset()
        cluster.pods.update(facts("q", plan_of("n1", "n1-0")))
        cluster.take_freed_nodes()
        cluster.pods.delete("q")
        cluster.pods.update(facts("r", plan_of("n1", "n1-0")))
        assert cluster.take_freed_nodes() == frozenset()

    def test_what_was_freed_on_a_node_that_goes_and_comes_back_is_reported(self):
        """It was not read meanwhile, so that it is still new."""
        cluster = live(node("n1"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.take_freed_nodes()
        cluster.pods.delete("p")
        assert free(cluster, "n1") == "1111"
        cluster.delete_node("n1")
        cluster.update_node(node("n1"))
        assert cluster.take_freed_nodes() == {"n1"}

    def test_what_a_claim_held_is_freed_by_its_end(self):
        """Pods that were refused because of it wait for nothing else."""
        cluster = live(node("n1"), node("n2"))
        cluster.pods.nominations.add(wish("p", 4), "n1")
        cluster.take_freed_nodes()
        cluster.pods.nominations.end("p")
        assert (free(cluster, "n1"), set(cluster.take_freed_nodes())) == ("1111", {"n1"})
        cluster.pods.nominations.add(wish("p", 4), "n1")
        assert cluster.take_freed_nodes() == frozenset()
        cluster.pods.nominations.add(wish("p", 2), "n1")
        assert cluster.take_freed_nodes() == {"n1"}
        cluster.pods.nominations.add(wish("p", 2), "n2")
        assert cluster.take_freed_nodes() == {"n1"}
        cluster.pods.nominations.add(wish("p", 1), "n2")
        cluster.take_freed_nodes()
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        assert cluster.take_freed_nodes() == {"n2"}

    def test_what_passes_from_one_claim_to_another_is_freed_for_the_other(self):
        """The pod that now has it was refused while the first one had it."""
        cluster = live(node("n1"))
        cluster.pods.nominations.add(wish("p", 4, priority=9), "n1")
        cluster.pods.nominations.add(wish("q", 4, priority=5), "n1")
        cluster.take_freed_nodes()
        cluster.pods.nominations.end("p")
        assert (free(cluster, "n1"), set(cluster.take_freed_nodes())) == ("0000", {"n1"})
        cluster.pods.nominations.add(wish("r", 4, priority=1), "n1")
        assert cluster.take_freed_nodes() == frozenset()

    def test_the_whole_state_can_be_shown(self):
        """Operators read which pod has what, and what is wrong."""
        text = report(
            "n1-3",
            policy=TopologyManagerPolicy.RESTRICTED,
            scope=TopologyManagerScope.POD,
            holds=(hold("x", "n1-2"),),
        )
        cluster = live(node("n1", devices=text), node("n2", topology="{"))
        cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
        cluster.pods.nominations.add(wish("c"), "n1")
        cluster.assume(wish("a"), plan_of("n2", "device-0"), deadline_s=1.0)
        assert cluster.as_json()["generation"] == cluster.snapshot.generation
        assert shown(cluster, "n1") == {
            "zone": "z1",
            "machine": cluster.snapshot.nodes["n1"].node_class.name,
            "resource": GPU,
            "topology": digest(cluster, "n1"),
            "free": [],
            "planned": [{"pod": "default/pod-p", "pod_uid": "p", "ids": ["n1-0"]}],
            "assumed": [],
            "held": [{"pod": "", "pod_uid": "x@n1", "ids": ["n1-2"]}],
            "claimed": [{"pod": "default/pod-c", "pod_uid": "c", "ids": ["n1-1"]}],
            "unhealthy": {"n1-3": "XID 79"},
            "devices_unknown": [],
            "contested": [],
            "removed": [],
            "other_resources": [],
            "topology_manager": {"policy": "restricted", "scope": "pod"},
            "problems": [],
        }
        other = shown(cluster, "n2")
        assert (other["topology"], other["machine"]) == (None, "by count")
        assert "is no JSON" in other["problems"][0]
        assert cluster.counts()[DeviceState.HELD] == 1


def test_a_recording_with_more_gpus_than_its_tables_hold_is_served():
    """Above 16 devices sets are packed, not tabled; the state does not care."""
    gpus = tuple(replace(MACHINE.gpus[0], pci_bus_id=None, uuid=f"g{i}") for i in range(17))
    link, level = MACHINE.links[0][1], MACHINE.pcie[0][1]
    links = tuple(
        tuple(MACHINE.links[0][0] if i == j else link for j in range(17)) for i in range(17)
    )
    pcie = tuple(
        tuple(MACHINE.pcie[0][0] if i == j else level for j in range(17)) for i in range(17)
    )
    large = replace(MACHINE, gpus=gpus, links=links, pcie=pcie, nics=(), fabrics=())
    large = replace(large, measurement=measured(90.0).measurement)
    facts_ = node("n1", allocatable={GPU: 17}, topology=topology_text("n1", machine=large))
    cluster = live(facts_)
    assert len(cluster.snapshot.nodes["n1"].ids) == 17
    assert cluster.take_effects() == ()
