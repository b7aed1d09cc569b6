"""The read API over a live cluster: what is known of nodes and pods only in part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from extender.engine import Engine
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import (
    MIG,
    bare,
    facts,
    hold,
    ids,
    live,
    node,
    plan_of,
    report,
    topology_text,
    whole,
    wide,
    wish,
)
from tests.unit.extender.pods import GPU
from tests.unit.extender.read_api.served import ServedReads
from topology.model import PcieLevel, symmetric

if TYPE_CHECKING:
    from extender.state import LiveCluster
    from topology.model import NodeTopology


def served(cluster: LiveCluster) -> ServedReads:
    """The read API over a cluster."""
    return ServedReads(Engine(cluster, RULES))


def node_of(cluster: LiveCluster, name: str = "n1") -> Any:
    """A node's answer."""
    return served(cluster).get(f"nodes/{name}")


def pod_of(cluster: LiveCluster, uid: str) -> Any:
    """A pod's answer."""
    return served(cluster).get(f"pods/default/pod-{uid}")


def test_a_node_by_count_has_devices_and_no_figures():
    """No topology says what a set is worth; sets are counted."""
    cluster = live(bare("n1"))
    shown = node_of(cluster)
    assert (shown["topology"], shown["machine"], shown["best"]) == (None, "by count", {})
    assert [gpu["state"] for gpu in shown["gpus"]] == ["free"] * 4
    (capacity,) = served(cluster).get("capacity")["machines"]
    assert capacity["placeable"] == {"2": 2, "4": 1, "8": 0}
    assert served(cluster).get("machines")["items"] == []


def test_a_pod_whose_devices_are_not_known_says_so():
    """Its node has as many devices less, and nobody knows which."""
    cluster = live(node("n1"))
    cluster.pods.update(facts("u1"))
    cluster.pods.read(whole("u1", "n1", 2))
    pod = pod_of(cluster, "u1")
    assert (pod["state"], pod["gpus"], pod["containers"]) == ("devices_unknown", [], [])
    assert (pod["as_planned"], pod["gbytes_per_s"]) == (None, None)
    shown = node_of(cluster)
    assert (shown["free"], shown["machine"], shown["topology"]) == (2, "by count", None)


def test_a_held_pod_shows_its_containers_by_the_report():
    """Another scheduler's pod, which has no plan."""
    held = hold("u1", *ids("n1", 1, 2))
    cluster = live(node("n1", devices=report(holds=(held,))))
    cluster.pods.update(facts("u1"))
    cluster.pods.read(whole("u1", "n1", 2))
    pod = pod_of(cluster, "u1")
    assert (pod["state"], pod["gpus"], pod["planned_ids"]) == ("held", [1, 2], [])
    (container,) = pod["containers"]
    assert (container["name"], container["gpus"]) == ("main", [1, 2])
    assert pod["gbytes_per_s"] == container["gbytes_per_s"] > 0


def test_a_pod_that_did_not_get_its_plan_shows_both():
    """What it has counts; the plan stands beside it."""
    held = hold("u1", *ids("n1", 2, 3))
    cluster = live(node("n1", devices=report(holds=(held,))))
    cluster.pods.update(facts("u1", plan_of("n1", *ids("n1", 0, 1))))
    pod = pod_of(cluster, "u1")
    assert (pod["gpus"], pod["as_planned"]) == ([2, 3], False)
    assert pod["planned_ids"] == list(ids("n1", 0, 1))
    assert pod["containers"][0]["gpus"] == [2, 3]


def test_a_hold_of_an_unknown_pod_shows_no_name():
    """The device is taken, by whom no watch has shown."""
    cluster = live(node("n1", devices=report(holds=(hold("u1", *ids("n1", 1)),))))
    gpu = node_of(cluster)["gpus"][1]
    assert (gpu["state"], gpu["pod"], gpu["pod_uid"]) == ("held", None, "u1@n1")
    assert served(cluster).get("cluster")["pods_placed"] == 0


def test_an_unhealthy_device_in_use_keeps_its_owner():
    """With the reason beside it."""
    cluster = live(node("n1", devices=report(*ids("n1", 1))))
    cluster.pods.update(facts("u1", plan_of("n1", *ids("n1", 1, 2))))
    gpus = node_of(cluster)["gpus"]
    assert (gpus[1]["state"], gpus[1]["pod"], gpus[1]["reason"]) == (
        "planned",
        "default/pod-u1",
        "XID 79",
    )
    assert gpus[2]["reason"] is None


def test_a_nominated_pod_claims_devices_and_is_not_placed():
    """It is pending still."""
    cluster = live(node("n1"))
    cluster.pods.nominations.add(wish("u1", 2), "n1")
    claimed = [gpu["pod"] for gpu in node_of(cluster)["gpus"] if gpu["state"] == "claimed"]
    assert claimed == ["default/pod-u1"] * 2
    assert served(cluster).get("pods")["items"] == []


def test_a_node_with_partitions_shows_each_resource():
    """Its pods are listed with the resource that they have."""
    counts = {GPU: 4, MIG: 7}
    cluster = live(node("n1", allocatable=counts, capacity=counts), resources=(GPU, MIG))
    shown = node_of(cluster)
    (other,) = shown["other_resources"]
    assert (shown["resource"], other["resource"], len(other["gpus"])) == (GPU, MIG, 7)
    assert [one["resource"] for one in served(cluster).get("capacity")["machines"]] == [GPU, MIG]


def test_nodes_without_gpus_are_not_listed():
    """They are most nodes of some clusters; asked by name they answer."""
    cluster = live(node("n1"), bare("cpu", 0))
    assert [one["name"] for one in served(cluster).get("nodes")["items"]] == ["n1"]
    assert node_of(cluster, "cpu")["gpus"] == []


def test_problems_of_a_node_are_shown():
    """A topology that cannot be read makes it a node by count."""
    shown = node_of(live(node("n1", topology="{")))
    assert shown["topology"] is None
    assert shown["problems"]


def test_answers_follow_the_nodes():
    """An entry is made again for what changed, and for nothing else."""
    cluster = live(node("n1"), node("n2"))
    reads = served(cluster)
    before = reads.get("nodes")["items"]
    cluster.pods.update(facts("u1", plan_of("n1", *ids("n1", 0, 1))))
    first, second = reads.get("nodes")["items"]
    assert (first["free"], second) == (2, before[1])
    cluster.delete_node("n1")
    assert [one["name"] for one in reads.get("nodes")["items"]] == ["n2"]
    assert reads.get("cluster")["pods_placed"] == 0
    assert [one["nodes"] for one in reads.get("capacity")["machines"]] == [1]


def large(topology: NodeTopology) -> Any:
    """The answer of a node of 24 GPUs, of which a pod has four."""
    text = topology_text("n1", machine=topology)
    cluster = live(node("n1", topology=text, allocatable={GPU: 24}, capacity={GPU: 24}))
    cluster.pods.update(facts("u1", plan_of("n1", *ids("n1", 0, 1, 2, 3))))
    (machine,) = served(cluster).get("machines")["items"]
    return node_of(cluster), pod_of(cluster, "u1"), machine


def test_machines_without_tables_have_no_figures():
    """A search takes longer than the event loop may be kept."""
    even = wide(24)
    nearer = symmetric(
        24, PcieLevel.SELF, lambda i, j: PcieLevel.PIX if i // 2 == j // 2 else PcieLevel.SYS
    )
    shown, pod, machine = large(replace(even, pcie=nearer))
    assert (shown["best"], machine["best_gbytes_per_s"]) == (None, None)
    assert (pod["gpus"], pod["gbytes_per_s"], pod["share"]) == ([0, 1, 2, 3], None, None)
    assert {link["gbytes_per_s"] for link in machine["links"]} == {None}


def test_large_machines_with_equal_links_have_figures():
    """A set's value depends on its size alone."""
    shown, pod, machine = large(wide(24))
    best = machine["best_gbytes_per_s"]["4"]
    assert (shown["best"]["4"]["gbytes_per_s"], pod["gbytes_per_s"]) == (best, best)
    assert pod["share"] == 1.0
