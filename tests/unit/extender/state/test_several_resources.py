"""Nodes that serve several resources: whole GPUs beside MIG profiles, each with its own account."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.placement import Rater, Refusal
from extender.protocol import Reason, messages, parse_pod
from extender.state import DeviceState, LiveCluster, PlanConflict, Probe
from kube.objects import ContainerDevices, NodeFacts
from tests.unit.extender.feeds import (
    MIG,
    choose,
    content,
    facts,
    hold,
    live,
    node,
    plan_of,
    report,
    shown,
    whole,
)
from tests.unit.extender.pods import GPU

LARGE = "nvidia.com/mig-3g.40gb"
RESOURCES = (GPU, MIG, LARGE)


def mixed(name: str = "n1", **changes: Any) -> NodeFacts:
    """Four whole GPUs, seven small partitions and two large ones."""
    counts = {GPU: 4, MIG: 7, LARGE: 2}
    return node(name, **{"allocatable": counts, "capacity": counts, **changes})


def cluster_of(*nodes: NodeFacts) -> LiveCluster:
    """A cluster that serves all three."""
    return live(*nodes, resources=RESOURCES)


def wish(
    uid: str, count: int, resource: str = GPU, *, priority: int = 0, **annotations: str
) -> Any:
    """What a pending pod requests."""
    made = content(uid, count, resource=resource, **annotations)
    made["spec"]["priority"] = priority
    return parse_pod(messages.WirePod.model_validate(made), RESOURCES)


def n_free(cluster: LiveCluster, name: str = "n1") -> tuple[int, ...]:
    """How many devices of each resource any pod may have."""
    return tuple(
        cluster.snapshot_of(one).nodes[name].free.bit_count()
        if cluster.snapshot_of(one).nodes[name].node_class.resource == one
        else 0
        for one in RESOURCES
    )


def bind(cluster: LiveCluster, request: Any, name: str = "n1") -> Any:
    """Choose and assume, as bind does; what was chosen."""
    plan = choose(cluster, request, name, Rater())
    if isinstance(plan, Refusal):
        return plan.reason
    refused = cluster.assume(request, plan, deadline_s=10.0)
    assert refused is None
    cluster.pods.confirm(request.uid)
    return plan


def test_each_resource_is_served_from_its_own_account():
    """Only the first one was, and pods of the others waited for ever."""
    cluster = cluster_of(mixed())
    assert n_free(cluster) == (4, 7, 2)
    assert len(bind(cluster, wish("whole", 2, affinity="nvlink")).containers) == 1
    assert bind(cluster, wish("small", 3, MIG)).containers == ()
    assert bind(cluster, wish("large", 2, LARGE)).containers == ()
    assert n_free(cluster) == (2, 4, 0)
    assert bind(cluster, wish("another", 1, LARGE)) is Reason.NOT_ENOUGH_FREE
    for uid, left in (("small", (2, 7, 0)), ("whole", (4, 7, 0)), ("large", (4, 7, 2))):
        cluster.pods.delete(uid)
        assert n_free(cluster) == left


def test_a_resource_that_the_node_does_not_serve_is_refused():
    """Another node's partitions are none of this one's."""
    cluster = cluster_of(node("n1"), mixed("n2"))
    assert choose(cluster, wish("p", 1, MIG), "n1", Rater()) == Refusal(Reason.OTHER_RESOURCE)
    plan = replace(choose(cluster, wish("p", 1, MIG), "n2", Rater()), node="n1")
    refused = cluster.assume(wish("p", 1, MIG), plan, deadline_s=1.0)
    assert refused == "assume for pod p: node n1 does not serve 'nvidia.com/mig-1g.10gb'"


def test_where_no_node_serves_two_there_is_one_snapshot():
    """What clusters without partitions do not need must cost them nothing."""
    cluster = cluster_of(node("n1"), node("n2", allocatable={MIG: 3}, topology=None))
    assert cluster.snapshot_of(MIG) is cluster.snapshot_of(GPU) is cluster.snapshot
    cluster.update_node(mixed("n3"))
    assert cluster.snapshot_of(MIG) is not cluster.snapshot
    assert cluster.snapshot_of(MIG).node_index is cluster.snapshot.node_index
    assert cluster.snapshot_of(MIG).generation == cluster.snapshot.generation
    cluster.delete_node("n3")
    assert cluster.snapshot_of(MIG) is cluster.snapshot


def test_all_snapshots_follow_every_change():
    """Of nodes that serve the resource and of those that do not."""
    cluster = cluster_of(mixed("n1"), node("n2"))
    cluster.pods.update(facts("p", plan_of("n2", "n2-0")))
    cluster.pods.update(facts("q", plan_of("n1", "n1-0")))
    for one in RESOURCES:
        snapshot = cluster.snapshot_of(one)
        assert snapshot.nodes["n2"].free == 0b1110
        assert snapshot.generation == cluster.snapshot.generation
    assert n_free(cluster) == (3, 7, 2)
    cluster.update_node(mixed("n1", zone="elsewhere"))
    assert {cluster.snapshot_of(one).nodes["n1"].zone for one in RESOURCES} == {"elsewhere"}
    cluster.set_freshness(is_synced=False, observed_at_s=3.0)
    for one in RESOURCES:
        snapshot = cluster.snapshot_of(one)
        assert (snapshot.is_synced, snapshot.observed_at_s) == (False, 3.0)
        assert cluster.snapshot_of(one) is snapshot


def test_partitions_come_and_go_beside_the_gpus():
    """A GPU is put into MIG mode: the plans on the others stay, and waiting pods are woken."""
    cluster = cluster_of(node("n1"))
    cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
    cluster.take_freed_nodes()
    before = cluster.snapshot.generation
    cluster.update_node(mixed("n1"))
    assert n_free(cluster) == (3, 7, 2)
    assert cluster.take_freed_nodes() == {"n1"}
    assert cluster.snapshot.generation == before + 2
    cluster.update_node(node("n1", allocatable={GPU: 4, MIG: 3}))
    assert n_free(cluster) == (3, 3, 0)
    assert choose(cluster, wish("q", 1, LARGE), "n1", Rater()) == Refusal(Reason.OTHER_RESOURCE)
    cluster.update_node(node("n1"))
    assert (n_free(cluster), cluster.snapshot.nodes["n1"].node_class.machine is None) == (
        (3, 0, 0),
        False,
    )


def test_gpus_that_come_first_do_not_hide_the_partitions():
    """The device plugins of a node register one after another; the partitions are as before."""
    cluster = cluster_of(node("n1", topology=None, allocatable={MIG: 7}))
    assert n_free(cluster) == (0, 7, 0)
    cluster.update_node(node("n1", allocatable={GPU: 4, MIG: 7}))
    assert n_free(cluster) == (4, 7, 0)


def test_what_others_bound_counts_in_the_resource_that_it_requests():
    """A pod without a plan makes its own resource count-only, and no other."""
    cluster = cluster_of(mixed())
    cluster.pods.update(facts("p"))
    cluster.pods.read(whole("p", "n1", body=content("p", 5, resource=MIG)))
    assert n_free(cluster) == (4, 2, 2)
    assert cluster.snapshot.nodes["n1"].node_class.machine is not None
    assert [one for one in cluster.take_effects() if isinstance(one, Probe)] == [
        Probe("default", "pod-p", "p")
    ]
    cluster.pods.update(facts("q"))
    cluster.pods.read(whole("q", "n1", 1))
    assert n_free(cluster) == (3, 2, 2)
    assert cluster.snapshot.nodes["n1"].node_class.machine is None


def test_a_pod_of_two_resources_has_devices_of_both():
    """Coterie refuses such a pod; another scheduler may have placed it."""
    both = content("p", 1)
    both["spec"]["containers"][0]["resources"]["limits"][MIG] = 2
    cluster = cluster_of(mixed())
    cluster.pods.update(facts("p"))
    cluster.pods.read(whole("p", "n1", body=both))
    assert n_free(cluster) == (3, 5, 2)
    named = (ContainerDevices("main", GPU, ("n1-2",)), ContainerDevices("main", MIG, ("MIG-7",)))
    cluster.pods.read(replace(whole("p", "n1", body=both), devices=named))
    assert (n_free(cluster), cluster.n_owners) == ((3, 5, 2), 1)
    assert cluster.snapshot.nodes["n1"].node_class.machine is not None
    cluster.pods.delete("p")
    assert n_free(cluster) == (4, 7, 2)


def test_a_report_of_partitions_does_not_concern_the_gpus():
    """Its ids are none of the topology's; neither are they removed."""
    held = (hold("p", "MIG-1", "MIG-2", resource=MIG), hold("q", "n1-3"))
    cluster = cluster_of(mixed(devices=report("MIG-3", holds=held)))
    cluster.pods.update(facts("p"))
    cluster.pods.read(whole("p", "n1", body=content("p", 2, resource=MIG)))
    assert n_free(cluster) == (3, 5, 2)
    assert (shown(cluster, "n1")["removed"], shown(cluster, "n1")["devices_unknown"]) == ([], [])


def test_a_plan_of_a_resource_that_the_node_no_longer_serves_takes_nothing():
    """Its GPUs were partitioned under it: the kubelet gives the partitions to others."""
    cluster = cluster_of(node("n1"))
    cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
    cluster.update_node(node("n1", topology=None, allocatable={MIG: 7}))
    assert n_free(cluster) == (0, 7, 0)
    cluster.update_node(node("n1"))
    assert n_free(cluster) == (2, 0, 0)


def test_a_nomination_claims_of_its_own_resource():
    """Devices of another one cannot serve it."""
    cluster = cluster_of(mixed())
    cluster.pods.nominations.add(wish("small", 5, MIG), "n1")
    cluster.pods.nominations.add(wish("whole", 3), "n1")
    assert n_free(cluster) == (1, 2, 2)
    own = cluster.snapshot_for(wish("small", 5, MIG)).nodes["n1"]
    assert (own.node_class.resource, own.free.bit_count()) == (MIG, 7)
    other = cluster.snapshot_for(wish("other", 1, MIG)).nodes["n1"]
    assert other.free.bit_count() == 2
    higher = cluster.snapshot_for(wish("higher", 1, MIG, priority=9)).nodes["n1"]
    assert higher.free.bit_count() == 7
    cluster.pods.nominations.end("small")
    assert n_free(cluster) == (1, 7, 2)


def test_overlapping_plans_are_reported_for_the_resource_with_names():
    """The other account has no conflict, and its devices are not named."""
    cluster = cluster_of(mixed())
    cluster.pods.update(facts("p", plan_of("n1", "n1-0")))
    cluster.pods.update(facts("q", plan_of("n1", "n1-0", "n1-1")))
    conflicts = [one for one in cluster.take_effects() if isinstance(one, PlanConflict)]
    assert [(one.uid, one.ids, one.owners) for one in conflicts] == [
        ("q", ("n1-0",), ("default/pod-p",))
    ]


def test_devices_are_listed_for_each_resource():
    """For people, metrics and preemption."""
    cluster = cluster_of(mixed())
    bind(cluster, wish("small", 2, MIG))
    assert len(cluster.devices("n1")) == 13
    rows = cluster.devices("n1", MIG)
    assert [owner for _, _, owner in rows] == ["small", "small", *[None] * 5]
    assert cluster.devices("n9", MIG) == ()
    counts = cluster.counts()
    assert (counts[DeviceState.BOUND], counts[DeviceState.FREE]) == (2, 11)
    page = shown(cluster, "n1")
    assert (page["resource"], len(page["free"])) == (GPU, 4)
    assert [(one["resource"], len(one["free"])) for one in page["other_resources"]] == [
        (MIG, 5),
        (LARGE, 2),
    ]


@pytest.mark.parametrize("resource", RESOURCES)
def test_a_node_that_comes_back_shows_all_its_resources(resource):
    """The pods there were known all the time."""
    cluster = cluster_of(mixed())
    bind(cluster, wish("p", 2, resource))
    before = n_free(cluster)
    cluster.delete_node("n1")
    cluster.update_node(mixed())
    assert n_free(cluster) == before
