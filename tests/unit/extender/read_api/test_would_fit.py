"""Whose end would make room for a pending pod."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.engine import Engine
from extender.protocol import Verb
from extender.read_api.would_fit import MAX_SHAPES
from extender.state import PRODUCT
from tests.unit.extender.engines import RULES, engine
from tests.unit.extender.feeds import (
    MIG,
    facts,
    live,
    node,
    plan_of,
    report,
    topology_text,
    wide,
    wish,
)
from tests.unit.extender.pods import GPU, args, pod
from tests.unit.extender.read_api.served import ServedReads
from topology.model import PcieLevel


def pending(served: ServedReads) -> dict[str, Any]:
    """What would make room, by the pod's name; the list is of its declared type."""
    content = served.get("pending")
    return {one["name"]: one["would_fit"] for one in content["items"]}


def full(*groups: dict[str, Any], size: int = 2) -> ServedReads:
    """A cluster filled with pods of one size."""
    served = ServedReads(engine(*groups))
    for name in list(served.engine.cluster.snapshot.nodes):
        n_gpus = len(served.engine.cluster.snapshot.nodes[name].ids)
        for i in range(n_gpus // size):
            served.place(size, f"{name}-{i}", name, affinity="none")
    return served


def waits(served: ServedReads, size: int, uid: str, **wishes: str) -> None:
    """Filter rejects a pod on all nodes."""
    assert not served.filter(size, uid, list(served.engine.cluster.snapshot.nodes), **wishes)[
        "NodeNames"
    ]


def test_the_fewest_pods_are_named_with_the_set_then():
    """As the explanation of the pod says."""
    served = full({"count": 2, "machine": "dgx-1-v100"})
    waits(served, 4, "w", affinity="nvlink", policy="required")
    found = pending(served)["pod-w"]
    assert (len(found["when_ended"]), found["gpus_freed"], len(found["gpus"])) == (2, 4, 4)
    manifest = json.dumps(pod(4, uid="w", affinity="nvlink", policy="required")).encode()
    explained = served.call("/api/v1/explain", method="POST", content=manifest).json()
    summary = explained["summary"]
    assert found == summary["groups"][0]["nearest"]


def test_the_least_over_all_reasons_is_shown():
    """Nodes with too few free GPUs, and one on which the free ones are the wrong ones."""
    served = full({"count": 1, "machine": "dgx-1-v100"}, {"count": 1, "machine": "8x-l4"}, size=1)
    for uid in ("dgx-1-v100-0-0", "dgx-1-v100-0-5"):
        served.end(uid)
    waits(served, 2, "w", affinity="nvlink", policy="required")
    found = pending(served)["pod-w"]
    assert (found["node"], len(found["when_ended"]), found["gpus_freed"]) == ("dgx-1-v100-0", 1, 1)


def test_it_changes_with_the_generation():
    """Not before: what is kept is of one state, and a page of one generation is the same again."""
    served = full({"count": 1, "machine": "dgx-1-v100"}, size=4)
    waits(served, 8, "w")
    first = served.call("/api/v1/pending")
    found = pending(served)["pod-w"]
    assert len(found["when_ended"]) == 2
    assert served.call("/api/v1/pending").content == first.content
    served.end("dgx-1-v100-0-0")
    assert pending(served)["pod-w"]["when_ended"] == ["default/pod-dgx-1-v100-0-1"]
    again = served.call("/api/v1/pending", if_none_match=first.headers["etag"])
    assert again.status_code == 200
    served.end("dgx-1-v100-0-1")
    assert pending(served) == {"pod-w": None}


def test_null_where_no_three_pods_suffice():
    """Four would have to end, or the machine never has such a set."""
    served = full({"count": 1, "machine": "8x-l4"}, size=1)
    waits(served, 4, "few")
    waits(served, 4, "never", affinity="nvlink", policy="required")
    assert pending(served) == {"pod-few": None, "pod-never": None}


def selects(served: ServedReads, uid: str, node_name: str) -> None:
    """Filter rejects a pod of 8 GPUs whose nodeSelector names a node."""
    content = pod(8, uid=uid)
    content["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node_name}
    assert not json.loads(served.engine.answer(Verb.FILTER, args(content, [node_name]), 0.0).body)[
        "NodeNames"
    ]


def test_nodes_that_a_selector_excludes_make_no_room():
    """Pods of one shape with other selectors have answers of their own."""
    served = full({"count": 2, "machine": "dgx-1-v100"}, size=4)
    for i in range(2):
        selects(served, f"w{i}", f"dgx-1-v100-{i}")
    assert {name: one["node"] for name, one in pending(served).items()} == {
        "pod-w0": "dgx-1-v100-0",
        "pod-w1": "dgx-1-v100-1",
    }
    selects(served, "none", "elsewhere")
    assert pending(served)["pod-none"] is None
    for i in range(2):
        served.end(f"dgx-1-v100-0-{i}")
    found = pending(served)
    assert (found["pod-w0"], found["pod-w1"]["node"]) == (None, "dgx-1-v100-1")


def test_another_label_of_a_node_changes_the_answer():
    """Though it changes nothing that the verbs decide by, nor the generation."""
    cluster = live(node("n1", labels={PRODUCT: "x"}))
    cluster.set_freshness(is_synced=True, observed_at_s=None)
    cluster.pods.update(facts("u1", plan_of("n1", *(f"n1-{i}" for i in range(4)))))
    served = ServedReads(Engine(cluster, RULES))
    content = pod(2, uid="w")
    content["spec"]["nodeSelector"] = {PRODUCT: "y"}
    served.engine.answer(Verb.FILTER, args(content, ["n1"]), 0.0)
    first = served.call("/api/v1/pending")
    assert pending(served) == {"pod-w": None}
    cluster.update_node(node("n1", labels={PRODUCT: "y"}))
    assert pending(served)["pod-w"]["when_ended"] == ["default/pod-u1"]
    again = served.call("/api/v1/pending", if_none_match=first.headers["etag"])
    assert again.status_code == 200


def test_an_invalid_request_has_none():
    """No pod's end helps it."""
    served = ServedReads(engine())
    served.filter(2, "w", ["8x-l4-0"], affinity="nonsense")
    assert pending(served) == {"pod-w": None}


def test_shapes_of_one_page_are_bounded():
    """Pods of one shape share an answer; the next page has its own."""
    served = full({"count": 1, "machine": "dgx-2"}, size=8)
    for i in range(MAX_SHAPES + 1):
        waits(served, i + 1, f"a{i}")
    waits(served, 1, "b")
    found = pending(served)
    last = f"pod-a{MAX_SHAPES}"
    assert [name for name, one in found.items() if one is None] == [last]
    assert found["pod-b"] == found["pod-a0"]
    token = served.get(f"pending?limit={MAX_SHAPES}")["continue"]
    (shown, _) = served.get(f"pending?continue={token}")["items"]
    assert shown["name"] == last
    assert shown["would_fit"]["gpus_freed"] == 16


def test_what_pods_cannot_leave_does_not_count():
    """Devices that are unhealthy stay so, a claim is no pod's, and other resources are others."""
    counts = {GPU: 4, MIG: 3}
    cluster = live(
        node("n1", devices=report("n1-0"), allocatable=counts, capacity=counts),
        node("n2", allocatable={MIG: 3}, capacity={MIG: 3}),
        resources=(GPU, MIG),
    )
    cluster.set_freshness(is_synced=True, observed_at_s=None)
    cluster.pods.update(facts("u1", plan_of("n1", "n1-0", "n1-1")))
    cluster.pods.update(facts("u2", plan_of("n1", "n1-2")))
    cluster.pods.nominations.add(wish("p", 1, priority=9), "n1")
    served = ServedReads(Engine(cluster, RULES))
    assert not served.filter(2, "w", ["n1", "n2"])["NodeNames"]
    found = pending(served)["pod-w"]
    assert (found["node"], found["when_ended"]) == ("n1", ["default/pod-u1", "default/pod-u2"])


def test_machines_that_are_rated_slowly_are_passed_over():
    """Each try would take a search; elsewhere there is an answer."""
    places = range(20)
    levels = tuple(
        tuple(
            PcieLevel.SELF if i == j else PcieLevel.PIX if i // 4 == j // 4 else PcieLevel.SYS
            for j in places
        )
        for i in places
    )
    large = topology_text("n1", machine=replace(wide(20), pcie=levels))
    counts = {GPU: 20}
    cluster = live(node("n1", topology=large, allocatable=counts, capacity=counts), node("n2"))
    cluster.set_freshness(is_synced=True, observed_at_s=None)
    machine = cluster.snapshot.nodes["n1"].node_class.machine
    assert machine is not None
    assert machine.is_rated_slowly
    cluster.pods.update(facts("u0", plan_of("n1", *(f"n1-{i}" for i in range(3, 20)))))
    for i in range(3):
        cluster.pods.update(facts(f"u1-{i}", plan_of("n1", f"n1-{i}")))
    cluster.pods.update(facts("u2", plan_of("n2", *(f"n2-{i}" for i in range(4)))))
    served = ServedReads(Engine(cluster, RULES))
    served.engine.answer(Verb.FILTER, args(pod(1, uid="w"), ["n1", "n2"]), 0.0)
    found = pending(served)["pod-w"]
    assert (found["node"], found["gpus_freed"]) == ("n2", 4)


@pytest.mark.parametrize("priority", [0, 5, 9])
def test_the_moment_is_the_cluster_as_a_pod_may_use_it(priority):
    """The same free devices as the verbs see, with claims of lower priority."""
    cluster = live(node("n1"), node("n2"))
    cluster.pods.nominations.add(wish("p", 3, priority=6), "n1")
    for request in (wish("q", 1, priority=priority), wish("p", 3, priority=6)):
        live_views = cluster.snapshot_for(request).views
        captured = cluster.moment().snapshot_for(request)
        assert [view.state for view in captured.views] == [view.state for view in live_views]
