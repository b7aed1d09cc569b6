"""What of a pod's nodeSelector and node affinity is held against nodes, where the verbs do not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.allowed_nodes import AllowedNodes, unknown_labels
from extender.engine import Engine
from extender.protocol import Verb
from extender.state import HOSTNAME, PRODUCT
from tests.unit.extender.engines import RULES, answer_of, bind, engine, names
from tests.unit.extender.feeds import MACHINE, bare, live, node, topology_text
from tests.unit.extender.pods import args, pod
from topology.node_affinity import ANY_NODE, LabelRequirement, RequiredNodeAffinity

A100 = "NVIDIA-A100-SXM4-40GB"
UNKNOWN = (
    "labels of the pod's nodeSelector and node affinity that are not known of some nodes, which "
    "count as allowed: "
)


def selecting(**labels: str) -> RequiredNodeAffinity:
    """A nodeSelector; `product` and `host` stand for their labels."""
    keys = {"product": PRODUCT, "host": HOSTNAME}
    return RequiredNodeAffinity(tuple((keys.get(key, key), one) for key, one in labels.items()))


def wants(n_gpus: int, uid: str = "asked", *, excluded: str | None = None, **labels: str) -> Any:
    """A pod with a nodeSelector, or for any node but one."""
    content = pod(n_gpus, uid=uid)
    content["spec"]["nodeSelector"] = dict(selecting(**labels).selector)
    if excluded is not None:
        expression = {"key": HOSTNAME, "operator": "NotIn", "values": [excluded]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        content["spec"]["affinity"] = {"nodeAffinity": required}
    return content


def explained(one: Engine, content: Any) -> Any:
    """The explanation of a pod."""
    return json.loads(one.answer(Verb.EXPLAIN, json.dumps(content).encode(), 0.0).body)


def held(affinity: RequiredNodeAffinity, *facts: Any) -> tuple[list[str], set[str]]:
    """The nodes that are allowed, and the labels that were not known."""
    cluster = live(*facts)
    nodes = AllowedNodes(affinity, cluster.moment().nodes)
    return [view.name for view in cluster.snapshot.views if nodes.allows(view)], nodes.unknown


def held_of_added(affinity: RequiredNodeAffinity, *facts: Any) -> tuple[list[str], set[str]]:
    """The same of nodes that are not in the cluster, as those that a what-if adds."""
    nodes = AllowedNodes(affinity, {})
    return [view.name for view in live(*facts).snapshot.views if nodes.allows(view)], nodes.unknown


def test_labels_of_nodes_are_held():
    """What GPU feature discovery writes, also where a topology says another model."""
    labelled = node("n1", labels={PRODUCT: "x"}), node("n2", labels={PRODUCT: A100})
    assert held(selecting(product="x"), *labelled) == (["n1"], set())
    assert held(selecting(product="x"), node("n1", labels={})) == ([], set())
    assert held(ANY_NODE, *labelled) == (["n1", "n2"], set())


def test_the_model_of_an_added_node_is_that_of_its_topology():
    """Whether its GPUs are shared in time is not known then."""
    nodes = node("n1"), bare("n2")
    assert held_of_added(selecting(product=A100), *nodes) == (["n1", "n2"], {PRODUCT})
    assert held_of_added(selecting(product="Tesla-T4"), *nodes) == (["n2"], {PRODUCT})
    assert held_of_added(selecting(product=A100), node("n1")) == (["n1"], set())
    assert held_of_added(selecting(product="Tesla-T4"), node("n1")) == ([], set())
    assert held_of_added(selecting(product=f"{A100}-SHARED"), node("n1")) == (["n1"], {PRODUCT})


@pytest.mark.parametrize("models", [(None, None), (None, "x"), ("x", "y")], ids=str)
def test_a_topology_of_no_single_model_is_of_any(models):
    """Nothing says that it is another one."""
    gpus = tuple(replace(gpu, model=models[i % 2]) for i, gpu in enumerate(MACHINE.gpus))
    text = topology_text("n1", machine=replace(MACHINE, gpus=gpus))
    assert held_of_added(selecting(product="x"), node("n1", topology=text)) == (["n1"], {PRODUCT})


def test_labels_that_are_not_kept_are_named():
    """Such nodes count; one that is excluded for sure does not."""
    nodes = node("n1", labels={HOSTNAME: "n1"}), node("n2", labels={HOSTNAME: "n2"})
    assert held(selecting(host="n1", disk="ssd"), *nodes) == (["n1"], {"disk"})
    either = LabelRequirement("tier", "Exists", ()), LabelRequirement(HOSTNAME, "In", ("n1",))
    affinity = RequiredNodeAffinity(terms=tuple((one,) for one in either))
    assert held(affinity, *nodes) == (["n1", "n2"], {"tier"})
    assert unknown_labels({"tier", "disk"}) == [f"{UNKNOWN}disk, tier"]
    assert unknown_labels(()) == []


@pytest.mark.parametrize(
    "affinity",
    [
        selecting(host="n1", **{f"k{i}": "x" for i in range(32)}),
        RequiredNodeAffinity(
            terms=((LabelRequirement(HOSTNAME, "In", tuple(map(str, range(513)))),),)
        ),
    ],
    ids=["expressions", "values"],
)
def test_an_affinity_of_very_many_expressions_is_not_held(affinity):
    """It would hold the event loop; all labels of it are named, as far as a sentence can."""
    nodes = node("n1", labels={HOSTNAME: "n1"}), node("n2", labels={HOSTNAME: "n2"})
    allowed, unknown = held(affinity, *nodes)
    assert (allowed, unknown) == (["n1", "n2"], affinity.keys)
    (sentence,) = unknown_labels(unknown)
    assert sentence.endswith(" and 25 more" if len(unknown) == 33 else HOSTNAME)


def test_excluded_nodes_do_not_fit():
    """They have a reason of their own, and stand neither first nor second."""
    one = engine({"count": 2, "machine": "dgx-1-v100"}, {"count": 3, "machine": "8x-l4"})
    answer = explained(one, wants(2, product="NVIDIA-L4", excluded="8x-l4-0"))
    summary = answer["summary"]
    assert (summary["n_nodes"], summary["n_fit"]) == (5, 2)
    (group,) = summary["groups"]
    assert (group["reason_label"], group["n"], group["nearest"]) == ("node_affinity", 3, None)
    assert group["sentence"] == (
        "not allowed by the pod's nodeSelector or node affinity (8x-l4, dgx-1-v100)"
    )
    assert summary["runner_up"]["node"] == "8x-l4-2"
    shown = [(each["node"], each["fits"], each.get("place")) for each in answer["nodes"]]
    assert shown == [
        ("8x-l4-1", True, 1),
        ("8x-l4-2", True, 2),
        ("8x-l4-0", False, None),
        ("dgx-1-v100-0", False, None),
        ("dgx-1-v100-1", False, None),
    ]
    assert {each["reason_label"] for each in answer["nodes"][2:]} == {"node_affinity"}
    assert "not_considered" not in answer


def test_no_excluded_node_is_advised():
    """Neither a change with which the pod would fit there, nor pods whose end would help."""
    one = engine({"count": 1, "machine": "dgx-1-v100"}, {"count": 1, "machine": "8x-l4"})
    bind(one, "u1", "dgx-1-v100-0", 8)
    content = wants(4, host="dgx-1-v100-0")
    content["metadata"]["annotations"] = {
        "coterie.gpu/affinity": "nvlink",
        "coterie.gpu/policy": "required",
    }
    summary = explained(one, content)["summary"]
    assert (summary["n_fit"], summary["try"]) == (0, None)
    groups = {group["reason_label"]: group for group in summary["groups"]}
    assert groups["not_enough_free"]["nearest"]["node"] == "dgx-1-v100-0"
    content["spec"]["nodeSelector"] = {HOSTNAME: "elsewhere"}
    summary = explained(one, content)["summary"]
    assert [(group["reason_label"], group["n"]) for group in summary["groups"]] == [
        ("node_affinity", 2)
    ]


def test_what_cannot_be_held_is_said():
    """The nodes count as fitting."""
    answer = explained(engine(), wants(2, disk="ssd"))
    assert answer["summary"]["n_fit"] == 3
    assert answer["not_considered"] == [f"{UNKNOWN}disk"]


def test_scores_are_those_among_the_nodes_that_are_allowed():
    """kube-scheduler lets no other be scored."""
    one = engine({"count": 1, "machine": "dgx-1-v100"}, {"count": 2, "machine": "8x-l4"})
    nodes = explained(one, wants(4, product="NVIDIA-L4"))["nodes"]
    scored = answer_of(one, Verb.PRIORITIZE, args(pod(4), ["8x-l4-0", "8x-l4-1"]))
    assert {each["node"]: each["score"] for each in nodes if each["fits"]} == {
        each["Host"]: each["Score"] for each in scored
    }


@pytest.mark.parametrize("verb", [Verb.FILTER, Verb.PRIORITIZE])
def test_the_verbs_answer_as_without_a_selector(verb):
    """kube-scheduler has held it; a label that is not known here would lose nodes."""
    one = engine()
    plain = wants(2)
    del plain["spec"]["nodeSelector"]
    selecting_none = wants(2, product="none", excluded="8x-l4-0")
    bodies = {
        one.answer(verb, args(content, names(one)), 0.0).body for content in (plain, selecting_none)
    }
    assert len(bodies) == 1


def test_a_live_cluster_is_held_by_its_labels():
    """One whose nodes are labelled otherwise than their topology says."""
    cluster = live(node("n1", labels={PRODUCT: "x"}), node("n2", labels={PRODUCT: "y"}))
    answer = explained(Engine(cluster, RULES), wants(2, product="y"))
    assert [(each["node"], each["fits"]) for each in answer["nodes"]] == [
        ("n2", True),
        ("n1", False),
    ]
