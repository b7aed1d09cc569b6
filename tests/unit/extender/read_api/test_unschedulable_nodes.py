"""Nodes that take no new pod, as cordoned ones: what is free there, no new pod may get."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.engine import Engine
from extender.protocol import Verb
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import facts, ids, live, node, plan_of, report
from tests.unit.extender.pods import pod
from tests.unit.extender.read_api.served import ServedReads
from topology.taints import CORDONED, Taint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.state import LiveCluster


@pytest.fixture
def cluster() -> LiveCluster:
    """Four GPUs on each node; n1 has a pod with two of them, and n2, cordoned, one that is bad."""
    made = live(node("n1"), node("n2", devices=report("n2-0"), kubernetes_taints=(CORDONED,)))
    made.pods.update(facts("u1", plan_of("n1", *ids("n1", 0, 1))))
    return made


def of(cluster: LiveCluster) -> ServedReads:
    """The read API over it."""
    served = ServedReads(Engine(cluster, RULES))
    cluster.set_freshness(is_synced=True, observed_at_s=served.now_s)
    return served


def explained(cluster: LiveCluster, n_gpus: int, *tolerations: dict[str, str]) -> Any:
    """The explanation of a new pod, which has its type."""
    manifest = pod(n_gpus, uid="asked")
    manifest["spec"]["tolerations"] = list(tolerations)
    body = json.dumps(manifest).encode()
    return json.loads(Engine(cluster, RULES).answer(Verb.EXPLAIN, body, 0.0).body)


def metric(served: ServedReads, name: str, **labels: str) -> float:
    """The one value of a metric of the extender."""
    text = served.deps.metrics.render(is_ready=True, now_s=0.0).decode()
    (value,) = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"coterie_extender_{name}" and labels.items() <= sample.labels.items()
    )
    return value


def sets_of_two(served: ServedReads) -> float:
    """The metric of placeable sets; those that are unavailable are as in the cluster's sums."""
    n_unavailable = served.get("cluster")["gpus_unavailable"]
    assert metric(served, "unavailable_devices") == n_unavailable
    return metric(served, "placeable_sets", size="2")


def sums(served: ServedReads) -> Mapping[str, int]:
    """GPUs of the cluster by kind; the one machine type says the same."""
    whole = served.get("cluster")
    shown = served.get("capacity")
    (machine,) = shown["machines"]
    found: dict[str, int] = {
        key: machine[key] for key in ("free", "stranded", "unhealthy", "unavailable")
    }
    assert found == {key: whole[f"gpus_{key}"] for key in found}
    found |= machine["placeable"]
    return found


def test_their_free_gpus_are_unavailable_and_form_no_set(cluster):
    """They are told apart, are not stranded, and count again when the node takes pods again."""
    served = of(cluster)
    assert sums(served) == {
        "free": 2,
        "stranded": 2,
        "unhealthy": 1,
        "unavailable": 3,
        "2": 1,
        "4": 0,
        "8": 0,
    }
    assert sets_of_two(served) == 1
    cluster.update_node(node("n2", devices=report("n2-0")))
    assert (sums(served)["free"], sums(served)["unavailable"]) == (5, 0)
    assert (sums(served)["2"], sets_of_two(served)) == (2, 2)
    cluster.update_node(node("n2", devices=report("n2-0"), kubernetes_taints=(CORDONED,)))
    assert (sums(served)["free"], sets_of_two(served)) == (2, 1)


def test_a_machine_type_that_is_closed_as_a_whole_keeps_its_series(cluster):
    """An alert on too few sets would be silent when a rack is cordoned."""
    cluster.update_node(node("n1", kubernetes_taints=(CORDONED,)))
    served = of(cluster)
    assert (sets_of_two(served), sums(served)["free"], sums(served)["unavailable"]) == (0, 0, 5)


def test_the_node_says_so(cluster):
    """Its GPUs keep their states."""
    shown = of(cluster).get("nodes/n2")
    assert shown["is_unschedulable"]
    assert [gpu["state"] for gpu in shown["gpus"]] == ["unhealthy", "free", "free", "free"]
    assert not of(cluster).get("nodes/n1")["is_unschedulable"]


def test_an_explanation_does_not_recommend_them(cluster):
    """Three GPUs are free there, and kube-scheduler would never offer them."""
    found = explained(cluster, 2)
    assert [(one["node"], one["fits"]) for one in found["nodes"]] == [("n1", True), ("n2", False)]
    assert found["nodes"][1]["reason_label"] == "node_unschedulable"
    assert (found["summary"]["n_nodes"], found["summary"]["n_fit"]) == (2, 1)


KUBERNETES = "node.kubernetes.io/"
NOT_READY = Taint(f"{KUBERNETES}not-ready", "", "NoSchedule")


@pytest.mark.parametrize(
    ("tolerations", "is_offered"),
    [
        ([{"operator": "Exists"}], True),
        ([{"key": f"{KUBERNETES}unschedulable", "operator": "Exists"}], True),
        ([{"key": f"{KUBERNETES}unschedulable", "effect": "NoSchedule"}], True),
        ([{"key": f"{KUBERNETES}unschedulable", "value": None, "effect": None}], True),
        ([{"key": f"{KUBERNETES}unschedulable", "value": "x"}], False),
        ([{"key": f"{KUBERNETES}unschedulable", "effect": "NoExecute"}], False),
        ([{"key": f"{KUBERNETES}memory-pressure", "operator": "Exists"}], False),
        ([{"key": "nvidia.com/gpu", "operator": "Exists"}], False),
    ],
)
def test_a_pod_that_tolerates_every_taint_may_go_there(cluster, tolerations, is_offered):
    """As kube-scheduler offers it. Admission may give any pod a toleration of pressure."""
    assert explained(cluster, 2, *tolerations)["summary"]["n_fit"] == 1 + is_offered
    cluster.update_node(node("n2", kubernetes_taints=(CORDONED, NOT_READY)))
    is_offered = tolerations == [{"operator": "Exists"}]
    assert explained(cluster, 2, *tolerations)["summary"]["n_fit"] == 1 + is_offered


def test_room_is_made_on_other_nodes(cluster):
    """A pod that waits for three GPUs gets them when the pod of n1 ends."""
    found = explained(cluster, 3)["summary"]
    nearest = {one["reason_label"]: one["nearest"] for one in found["groups"]}
    assert found["n_fit"] == 0
    assert nearest["node_unschedulable"] is None
    assert nearest["not_enough_free"]["when_ended"] == ["default/pod-u1"]
    served = of(cluster)
    assert not served.filter(3, "waits", ["n1"])["NodeNames"]
    content = served.get("pending")
    assert content["items"][0]["would_fit"]["node"] == "n1"
