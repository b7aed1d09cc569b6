"""Pods that are removed by force: the API server does not wait for their kubelet, so we do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.state.pods import REMOVED_S
from tests.unit.extender.feeds import bare, facts, free, hold, live, node, plan_of, report, whole

PLANNED = facts("p", plan_of("n1", "n1-0", "n1-1"))
GRACEFUL, FORCED = (replace(PLANNED, deletion_grace_s=seconds) for seconds in (30, 0))


def deleted(*seen, cluster=None):
    """A cluster whose pod was seen so and then left."""
    cluster = cluster or live(node("n1"))
    for pod in seen:
        cluster.pods.update(pod)
    cluster.pods.delete("p")
    return cluster


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        pytest.param([PLANNED], "1111", id="it ended by itself"),
        pytest.param([PLANNED, GRACEFUL], "1111", id="its kubelet stopped it"),
        pytest.param([PLANNED, GRACEFUL, FORCED], "1111", id="its kubelet said that it stopped it"),
        pytest.param([PLANNED, FORCED], "0011", id="it was removed by force"),
        pytest.param([FORCED], "0011", id="it was known only then"),
    ],
)
def test_a_pod_that_was_removed_by_force_keeps_its_devices(seen, left):
    """Its containers may run on for seconds; every other end shows that they have stopped."""
    cluster = deleted(*seen)
    assert free(cluster, "n1") == left
    assert cluster.bound("p") is None


def test_it_keeps_them_for_a_bounded_time():
    """Nothing says when its containers have stopped; pods that wait for them are looked at then."""
    cluster = deleted(FORCED)
    cluster.expire(5.0)
    cluster.expire(5.0 + REMOVED_S - 0.5)
    cluster.take_freed_nodes()
    assert (free(cluster, "n1"), cluster.pods.n_ended["n1"]) == ("0011", 0)
    cluster.pods.delete("p")
    cluster.expire(5.0 + REMOVED_S)
    assert (free(cluster, "n1"), cluster.pods.n_ended["n1"]) == ("1111", 1)
    assert cluster.take_freed_nodes() == {"n1"}


def test_a_list_that_lacks_it_is_its_end_too():
    """As where the watch broke just then; a pod of its name is another one."""
    cluster = live(node("n1"))
    cluster.pods.update(FORCED)
    other = facts("q", plan_of("n1", "n1-2"))
    assert cluster.pods.replace([other]) == ["p"]
    assert free(cluster, "n1") == "0001"
    assert cluster.pods.replace([other]) == []


def test_a_pod_that_is_still_there_has_its_devices():
    """A finalizer keeps the object; it has left when it is gone."""
    cluster = deleted(FORCED)
    cluster.pods.update(FORCED)
    cluster.expire(1.0)
    cluster.expire(1.0 + 2 * REMOVED_S)
    assert free(cluster, "n1") == "0011"


def test_without_a_plan_the_next_report_shows_what_it_holds():
    """Its devices are in the report as long as the plugin finds them, and not beyond."""
    holding = report(holds=(hold("p", "n1-1"),), generation=1)
    cluster = live(node("n1", devices=holding))
    cluster.pods.update(facts("p"))
    cluster.pods.read(whole("p", "n1", 1))
    deleted(facts("p", deletion_grace_s=0), cluster=cluster)
    assert free(cluster, "n1") == "1011"
    cluster.update_node(node("n1", devices=report(generation=2)))
    assert free(cluster, "n1") == "1111"
    assert cluster.snapshot.nodes["n1"].node_class.machine is not None


def test_a_report_does_not_end_a_planned_pod():
    """A plugin names no pod that has what was planned for it."""
    cluster = deleted(FORCED, cluster=live(node("n1", devices=report(generation=1))))
    cluster.update_node(node("n1", devices=report(generation=2)))
    assert free(cluster, "n1") == "0011"


def test_a_counted_pod_keeps_its_count():
    """Where devices have no names, their number is kept."""
    cluster = live(bare("n1"))
    cluster.pods.update(facts("p"))
    cluster.pods.read(whole("p", "n1", 3))
    deleted(facts("p", deletion_grace_s=0), cluster=cluster)
    assert free(cluster, "n1").count("1") == 1
    cluster.expire(1.0)
    cluster.expire(1.0 + REMOVED_S)
    assert free(cluster, "n1") == "1111"
