"""What is reported of a pod that runs without devices that it requests, and what it counts for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.state import Missing, Probe
from tests.unit.extender.feeds import (
    MIG,
    bare,
    digest,
    facts,
    free,
    hold,
    live,
    node,
    owners,
    plan_of,
    report,
    whole,
)
from tests.unit.extender.pods import GPU
from topology.annotations import MissingDevices

MAIN = MissingDevices("p", "default", "pod-p", "main", GPU)
LOG = replace(MAIN, container="log")
UNKNOWN = replace(MAIN, uid="x", name="pod-x")


def missing_of(*missing):
    """What is reported of pod p on node n1."""
    return Missing("default", "pod-p", "p", "n1", missing)


def reporting(*missing, **changes):
    """Node n1, whose report says so."""
    return node("n1", devices=report(missing=missing, **changes))


def by_hand(*nodes):
    """A cluster with pod p on node n1, which requests two GPUs and has no plan."""
    cluster = live(*nodes)
    cluster.pods.update(facts("p"))
    assert cluster.take_effects() == (Probe("default", "pod-p", "p"),)
    cluster.pods.read(whole("p", "n1", 2))
    return cluster


@pytest.mark.parametrize("is_planned", [False, True], ids=["bound by hand", "planned"])
def test_it_is_reported_once(is_planned):
    """And again when other containers are concerned, or the same again."""
    cluster = live(node("n1")) if is_planned else by_hand(node("n1"))
    if is_planned:
        cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
    cluster.take_effects()
    cluster.update_node(reporting(MAIN))
    assert cluster.take_effects() == (missing_of(MAIN),)
    cluster.update_node(reporting(MAIN, generation=2))
    assert cluster.take_effects() == ()
    cluster.update_node(reporting(MAIN, LOG))
    assert cluster.take_effects() == (missing_of(MAIN, LOG),)
    cluster.update_node(reporting(generation=3))
    assert not any(isinstance(one, Missing) for one in cluster.take_effects())
    cluster.update_node(reporting(MAIN))
    assert missing_of(MAIN) in cluster.take_effects()


def test_the_report_may_come_before_the_pod_is_known():
    """As at the start of an extender: it is reported once the pod is known."""
    cluster = live(reporting(UNKNOWN, MAIN))
    assert cluster.take_effects() == ()
    cluster.pods.update(facts("p"))
    cluster.take_effects()
    cluster.pods.read(whole("p", "n1", 2))
    assert cluster.take_effects() == (missing_of(MAIN),)


def test_nothing_is_reported_of_a_pod_that_is_gone_or_elsewhere():
    """A report lags by half a minute; and no node may speak of another node's pods."""
    cluster = by_hand(node("n1"), node("n2", devices=report(missing=(MAIN,))))
    cluster.take_effects()
    assert cluster.take_effects() == ()
    cluster.pods.delete("p")
    cluster.update_node(reporting(MAIN))
    assert cluster.take_effects() == ()
    assert (free(cluster, "n1"), free(cluster, "n2")) == ("1111", "1111")


def test_no_gpu_is_counted_for_a_pod_that_has_none():
    """Before the report shows them, two unknown GPUs are its own."""
    cluster = by_hand(node("n1"))
    assert (free(cluster, "n1"), digest(cluster, "n1")) == ("0011", None)
    cluster.take_freed_nodes()
    cluster.update_node(reporting(MAIN))
    assert free(cluster, "n1") == "1111"
    assert digest(cluster, "n1") is not None
    assert (cluster.take_freed_nodes(), owners(cluster, "n1")) == ({"n1"}, {})


def test_no_gpu_is_counted_for_it_where_its_gpus_are_unknown():
    """On a node without a topology the count alone is right or wrong."""
    cluster = by_hand(bare("n1"))
    assert free(cluster, "n1").count("1") == 2
    cluster.update_node(bare("n1", devices=report(missing=(MAIN,))))
    assert free(cluster, "n1").count("1") == 4


def test_what_the_pod_has_all_the_same_is_its_own():
    """One container runs without, the other one was started when the kubelet knew better."""
    cluster = by_hand(node("n1"))
    cluster.update_node(reporting(MAIN, holds=(hold("p", "n1-3", name="log"),)))
    assert owners(cluster, "n1") == {"n1-3": ("held", "p")}
    assert digest(cluster, "n1") is not None


def test_a_resource_that_the_node_does_not_plan_says_nothing_of_the_one_that_it_does():
    """It is reported; which of the planned GPUs the pod has is as unknown as before."""
    cluster = by_hand(node("n1"))
    mig = replace(MAIN, resource=MIG)
    cluster.update_node(reporting(mig))
    assert cluster.take_effects() == (missing_of(mig),)
    assert (free(cluster, "n1"), digest(cluster, "n1")) == ("0011", None)


def test_a_plan_stays_a_plan():
    """Its GPUs are the pod's until it is deleted, which the Event says to do."""
    cluster = live(reporting(MAIN))
    cluster.pods.update(facts("p", plan_of("n1", "n1-0", "n1-1")))
    assert owners(cluster, "n1") == {"n1-0": ("bound", "p"), "n1-1": ("bound", "p")}
    cluster.pods.delete("p")
    assert free(cluster, "n1") == "1111"
