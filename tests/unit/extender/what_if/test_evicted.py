"""What is known of the pods that a drain evicts, and what is assumed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.what_if import evicted_pods
from tests.unit.extender.feeds import (
    bare,
    content,
    facts,
    hold,
    ids,
    live,
    node,
    plan_of,
    report,
    whole,
    wish,
)
from topology.annotations import GroupWish, PlanGroup
from topology.node_affinity import ANY_NODE, RequiredNodeAffinity
from topology.select import ContainerRole

if TYPE_CHECKING:
    from extender.protocol import PodRequest
    from extender.state import LiveCluster
    from extender.what_if import RequestedPod

ONLY_A = RequiredNodeAffinity((("zone", "a"),))


def evicted(cluster: LiveCluster, *kept: PodRequest) -> list[RequestedPod]:
    """The pods that leave n1; `kept` is what filter saw lately."""
    recalled = {one.uid: one for one in kept}
    return evicted_pods(
        cluster.moment(),
        ["n1"],
        pod=cluster.pods.get,
        recall=lambda uid, _: recalled.get(uid),
        now=lambda node, pod: 48.0 if (node, pod.uid) == ("n1", "u1") else None,
    )


def test_a_pod_that_filter_saw_is_known_in_full():
    """With its nodeSelector; the pod in its place is another one, with another uid."""
    cluster = live(node("n1"))
    cluster.pods.update(facts("u1", plan_of("n1", *ids("n1", 0, 1))))
    kept = replace(wish("u1", 2, affinity="nvlink"), node_affinity=ONLY_A)
    (one,) = evicted(cluster, kept)
    assert one.request is not None
    assert (one.request.shape, one.request.node_affinity) == (kept.shape, ONLY_A)
    assert (one.request.uid, one.is_evicted) == ("", True)
    assert (one.assumed, one.is_selector_known) == ("the pod is as filter saw it last", True)
    assert one.now_gbytes_per_s == 48.0


def test_the_group_in_a_plan_is_known_without_its_size():
    """Such a member is placed alone, which the answer says."""
    cluster = live(node("n1"))
    plan = replace(plan_of("n1", *ids("n1", 0, 1)), group=PlanGroup("train", ("leaf", "S1")))
    cluster.pods.update(facts("u1", plan))
    (one,) = evicted(cluster)
    assert one.request is not None
    assert one.request.group == GroupWish("train")


def test_a_selector_that_was_read_or_bound_here_is_known():
    """Of a pod that was read in full, and of one that this extender bound; else it is assumed."""
    cluster = live(node("n1"))
    body = content("u1", 1)
    body["spec"]["nodeSelector"] = {"zone": "a"}
    cluster.pods.update(facts("u1"))
    cluster.pods.read(whole("u1", "n1", 1, *ids("n1", 0), body=body))
    bound = replace(wish("u2", 1), node_affinity=ONLY_A)
    assert cluster.assume(bound, plan_of("n1", *ids("n1", 1)), deadline_s=9.0) is None
    cluster.pods.confirm("u2")
    cluster.pods.update(facts("u3", plan_of("n1", *ids("n1", 2))))
    found = evicted(cluster)
    assert [one.request and one.request.node_affinity for one in found] == [
        ONLY_A,
        ONLY_A,
        ANY_NODE,
    ]
    assert [one.is_selector_known for one in found] == [True, True, False]
    last = "; its nodeSelector and node affinity are not known either"
    assert [last in (one.assumed or "") for one in found] == [False, False, True]


def test_else_its_plan_tells_its_containers():
    """One that shares devices with a later one handed them on."""
    cluster = live(node("n1"))
    plan = plan_of("n1", first=ids("n1", 1), main=ids("n1", 1, 2), side=ids("n1", 3))
    cluster.pods.update(facts("u1", plan))
    (one,) = evicted(cluster)
    assert one.request is not None
    assert one.request.shape is not None
    roles = [(each.size, each.role) for each in one.request.shape.requests]
    app = ContainerRole.APP
    assert roles == [(1, ContainerRole.INIT), (2, app), (1, app)]
    assert one.request.containers == ("first", "main", "side")
    assert (one.request.size_gpus, one.full_name) == (3, "default/pod-u1")
    assert "its annotations are not known any more" in (one.assumed or "")


def test_else_its_devices_are_counted():
    """Those that the node reports, also of a pod that no watch has shown."""
    cluster = live(node("n1", devices=report(holds=(hold("x", *ids("n1", 1, 2)),))))
    cluster.pods.update(facts("u2"))
    cluster.pods.read(whole("u2", "n1", 1, *ids("n1", 3)))
    pods = {one.full_name: one for one in evicted(cluster)}
    sizes = {name: one.request and one.request.size_gpus for name, one in pods.items()}
    assert sizes == {"x": 2, "default/pod-u2": 1}
    assert all("only the number" in (one.assumed or "") for one in pods.values())


def test_a_pod_by_count_has_as_many_as_it_requests():
    """On a node without a topology."""
    cluster = live(bare("n1"))
    cluster.pods.update(facts("u1"))
    cluster.pods.read(whole("u1", "n1", 3))
    (one,) = evicted(cluster)
    assert one.request is not None
    assert one.request.size_gpus == 3


def test_a_pod_of_which_nothing_is_known_is_not_placed_again():
    """Its spec could not be read."""
    cluster = live(node("n1"))
    cluster.pods.update(facts("u1"))
    broken = {"metadata": {}, "spec": {"containers": [{"name": 1}]}}
    cluster.pods.read(whole("u1", "n1", body=broken))
    (one,) = evicted(cluster)
    assert one.request is None
    assert one.assumed == "it is not known what the pod requests, so it is not placed again"
    assert not one.is_selector_known


def test_the_highest_priority_comes_first_and_claims_are_no_pods():
    """As kube-scheduler's queue has them; a nominated pod waits anyway."""
    cluster = live(node("n1"), node("n2"))
    for uid, position in (("u1", 1), ("u2", 2)):
        cluster.pods.update(facts(uid, plan_of("n1", f"n1-{position}")))
    cluster.pods.update(facts("u3", plan_of("n2", "n2-1")))
    cluster.pods.nominations.add(wish("p", 1), "n1")
    found = evicted(cluster, wish("u2", 1, priority=5))
    assert [one.full_name for one in found] == ["default/pod-u2", "default/pod-u1"]
