"""What an explanation comes down to: reasons, whose end helps, what to change."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

import pytest

from extender.engine.blocking_pods import MAX_PODS, find_blocking_pods
from extender.placement import Rater, Refusal
from extender.protocol import Verb, messages, parse_pod
from extender.snapshot import Overlay, with_free
from tests.unit.extender.engines import answer_of, bind, engine, owned
from tests.unit.extender.pods import GPU, container, pod
from topology.recordings import load_recording, recording_names

SMALL = [one for one in recording_names() if load_recording(one).n_gpus <= 8]


def summary(one: Any, n_gpus: int, **annotations: str) -> Any:
    """The summary of a pod's explanation, which has its type."""
    body = json.dumps(pod(n_gpus, uid="asked", **annotations)).encode()
    explained = answer_of(one, Verb.EXPLAIN, body)
    return explained["summary"]


def filled(machine: str, count: int, seed: int) -> Any:
    """A cluster of one machine type on which pods of 1 to 4 GPUs are placed at random."""
    one = engine({"count": count, "machine": machine})
    draw = random.Random(seed)  # noqa: S311 - no secret
    for i in range(24):
        node = draw.choice(list(one.cluster.snapshot.nodes))
        bind(one, f"u{i}", node, draw.choice((1, 1, 2, 2, 3, 4)), affinity="none")
    return one


def pods_of(one: Any, view: Any) -> Overlay:
    """The GPUs of each pod on a node, read from the devices one by one."""
    masks: dict[str, int] = {}
    for i, (_, _, uid) in enumerate(one.cluster.devices(view.name)):
        if uid is not None:
            masks[uid] = masks.get(uid, 0) + 2**i
    return Overlay(view, masks)


@pytest.mark.parametrize("machine", SMALL)
@pytest.mark.parametrize("seed", range(3))
def test_relief_is_the_least_of_all_pods_that_could_end(machine, seed):
    """Against all sets of up to three pods of each node: as many pods, as many GPUs, a fit."""
    one = filled(machine, 2, seed)
    for n_gpus, keys in ((4, {}), (4, {"affinity": "nvlink", "policy": "required"}), (8, {})):
        content = json.dumps(pod(n_gpus, uid="asked", **keys)).encode()
        request = parse_pod(messages.decode(messages.WirePod, content), (GPU,))
        rater = Rater()
        views = [
            view
            for view in one.cluster.snapshot.views
            if isinstance(rater.choose(request, view), Refusal)
        ]
        least = min(
            (
                (n_pods, freed.bit_count(), view.name)
                for view in views
                for n_pods in range(1, MAX_PODS + 1)
                for masks in combinations(pods_of(one, view).held.values(), n_pods)
                for freed in [sum(masks)]
                if not isinstance(
                    rater.choose(request, with_free(view, view.free | freed)), Refusal
                )
            ),
            default=None,
        )
        found = find_blocking_pods(request, views, lambda view: pods_of(one, view), rater)
        if found is None:
            assert least is None
        else:
            assert (len(found.pods), found.n_gpus, found.view.name) == least
            assert not isinstance(found.fit, Refusal)


def test_reasons_are_counted_with_their_machine_types():
    """Most nodes first, and for what time can mend also whose end would."""
    one = engine({"count": 2, "machine": "8x-l4"}, {"count": 1, "machine": "dgx-1-v100"})
    bind(one, "eval", "dgx-1-v100-0", 8)
    found = summary(one, 4, affinity="nvlink", policy="required")
    assert (found["n_nodes"], found["n_fit"]) == (3, 0)
    never, taken = found["groups"]
    assert (never["n"], never["nearest"]) == (2, None)
    assert never["sentence"] == (
        "never on this node: no GPU set of that size has the required affinity (8x-l4)"
    )
    assert (taken["n"], taken["reason"]) == (1, "not enough free GPUs")
    assert taken["nearest"] == {
        "node": "dgx-1-v100-0",
        "when_ended": ["default/pod-eval"],
        "gpus_freed": 8,
        "gpus": [0, 1, 2, 3],
        "gbytes_per_s": 99.425,
        "share": 1.0,
    }


def test_the_least_change_that_fits_now_is_tried():
    """One annotation where that is enough; nothing where the pod fits as it is."""
    one = engine({"count": 1, "machine": "8x-l4"})
    found = summary(one, 4, affinity="nvlink", policy="required")
    assert found["try"]["change"] == "coterie.gpu/policy=preferred"
    assert found["try"]["node"] == "8x-l4-0"
    assert found["try"]["gpus"] == [0, 1, 2, 3]
    keys = {"affinity": "nvlink", "policy": "required", "min-bandwidth": "400"}
    assert summary(one, 4, **keys)["try"]["change"] == (
        "coterie.gpu/policy=preferred and without coterie.gpu/min-bandwidth"
    )
    assert summary(one, 4)["try"] is None


def test_no_change_helps_where_gpus_are_too_few():
    """Then nothing is advised, and no pod's end helps either."""
    one = engine({"count": 1, "machine": "dgx-1-v100"})
    found = summary(one, 9, affinity="nvlink", policy="required")
    assert found["try"] is None
    assert [group["nearest"] for group in found["groups"]] == [None]


def test_pods_whose_end_is_not_enough_are_not_named():
    """Four would have to end, more than are tried."""
    one = engine({"count": 1, "machine": "dgx-1-v100"})
    for i in range(8):
        bind(one, f"u{i}", "dgx-1-v100-0", 1)
    (group,) = summary(one, 4)["groups"]
    assert group["nearest"] is None


def test_the_second_node_is_named_with_what_decided():
    """Equal nodes, a wish that is missed, and a set that is further from its machine's best."""
    one = engine({"count": 2, "machine": "dgx-1-v100"})
    second = summary(one, 4)["runner_up"]
    assert second["node"] == "dgx-1-v100-1"
    (container,) = second["containers"]
    assert (container["name"], container["gpus"]) == ("main", second["gpus"])
    assert container["ids"] != []
    assert second["why"] == "equal for the pod; the first by name is shown first"
    bind(one, "a", "dgx-1-v100-1", 1)
    assert "GPUs free" not in summary(one, 4)["runner_up"]["why"]
    mixed = engine({"count": 1, "machine": "8x-l4"}, {"count": 1, "machine": "dgx-1-v100"})
    second = summary(mixed, 4, affinity="nvlink")["runner_up"]
    assert (second["node"], second["why"]) == ("8x-l4-0", "it misses a stated wish")
    assert summary(engine({"count": 1, "machine": "8x-l4"}), 4)["runner_up"] is None


@pytest.mark.parametrize(
    "wishes",
    [{}, {"affinity": "nvlink"}, {"affinity": "none"}, {"affinity": "numa", "nic": "preferred"}],
    ids=["any", "nvlink", "none", "numa and nic"],
)
@pytest.mark.parametrize("machine", ["dgx-1-v100", "dgx-2", "8x-mi50-pcie-2nic"])
def test_the_second_set_of_the_first_node_loses(machine, wishes):
    """Whatever is free, the chosen set comes first by the order, and another one is shown."""
    one = filled(machine, 1, 3)
    for uid in (None, *(f"u{i}" for i in range(24))):
        if uid is not None:
            one.end(uid)
        for size in (1, 2, 3):
            body = json.dumps(pod(size, uid="asked", **wishes)).encode()
            explained = answer_of(one, Verb.EXPLAIN, body)
            if not explained["summary"]["n_fit"]:
                continue
            best = explained["nodes"][0]["containers"][0]
            beside = explained["summary"]["runner_up_set"]
            n_free = explained["nodes"][0]["free_gpus"]
            assert (beside is None) == (n_free == size)
            if beside is not None:
                assert (beside["is_better"], beside["node"]) == (False, f"{machine}-0")
                assert beside["gpus"] != best["gpus"]
                assert (beside["gbytes_per_s"] is None) == (size == 1)


def test_the_second_set_says_why_it_lost():
    """With its own figures, and the key that decided as `coterie-topology best` names it."""
    one = engine({"count": 1, "machine": "dgx-1-v100"})
    by_place = full_of_single_gpus(one)
    for place in (0, 3, 5):
        one.end(by_place[place])
    beside = summary(one, 2)["runner_up_set"]
    assert (beside["container"], len(beside["ids"])) == ("main", 2)
    assert beside["gpus"] in ([0, 5], [3, 5])
    assert beside["decided_by"] == "value_class"
    assert beside["why"] == f"it is slower: {beside['gbytes_per_s']:.1f} against 49.9 GB/s"
    assert beside["limited_by"] == "socket"


def test_no_second_set_where_it_would_not_be_comparable():
    """Several containers are chosen together, and a kubelet that aligns confines sets."""
    aligned = engine(
        {"count": 1, "machine": "8x-l4", "topology_manager_policy": "single-numa-node"}
    )
    assert summary(aligned, 2)["runner_up_set"] is None
    counted = engine({"count": 2, "devices": 4})
    found = summary(counted, 2)
    assert (found["runner_up_set"], found["runner_up"]["containers"]) == (None, None)
    two = pod(2, uid="asked")
    two["spec"]["containers"].append(container("side", 2))
    explained = answer_of(engine(), Verb.EXPLAIN, json.dumps(two).encode())
    assert explained["summary"]["runner_up_set"] is None
    assert len(explained["summary"]["runner_up"]["containers"]) == 2


def full_of_single_gpus(one: Any) -> dict[int, str]:
    """Eight pods of one GPU on the only node; their uids by place."""
    for uid in "abcdefgh":
        bind(one, uid, "dgx-1-v100-0", 1)
    rows = one.cluster.devices("dgx-1-v100-0")
    return {i: str(owner) for i, (_, _, owner) in enumerate(rows)}


def bound(one: Any, n_gpus: int, uid: str, node: str, **annotations: str) -> Any:
    """What is explained of a pod that has a node."""
    content = pod(n_gpus, uid=uid, **annotations)
    content["spec"]["nodeName"] = node
    explained = answer_of(one, Verb.EXPLAIN, json.dumps(content).encode())
    return explained["bound"]


def test_a_bound_pod_shows_what_else_its_node_could_give():
    """Less, as long as it has the best; more, once another pod has ended."""
    one = engine({"count": 1, "machine": "dgx-1-v100"})
    bind(one, "a", "dgx-1-v100-0", 2)
    first = bound(one, 2, "a", "dgx-1-v100-0")["runner_up_set"]
    assert first["is_better"] is False
    for uid, size in (("b", 2), ("c", 3)):
        bind(one, uid, "dgx-1-v100-0", size, affinity="none")
    bind(one, "d", "dgx-1-v100-0", 1)
    one.end("c")
    bind(one, "e", "dgx-1-v100-0", 2)
    for uid in ("a", "b", "e"):
        beside = bound(one, 2, uid, "dgx-1-v100-0")["runner_up_set"]
        has = owned(one.cluster, uid).keys()
        assert beside is None or has != set(beside["ids"])


def test_a_better_set_of_a_bound_pods_node_says_so():
    """It was in use when the pod was placed."""
    one = engine({"count": 1, "machine": "dgx-1-v100"})
    by_place = full_of_single_gpus(one)
    for place in (0, 5):
        one.end(by_place[place])
    bind(one, "z", "dgx-1-v100-0", 2)
    for place in (3, 4):
        one.end(by_place[place])
    beside = bound(one, 2, "z", "dgx-1-v100-0")["runner_up_set"]
    assert beside["is_better"] is True
    assert beside["gpus"] in ([0, 3], [0, 4])
    assert beside["why"].startswith("it is faster: 49.9 against ")
    assert bound(one, 3, "z", "dgx-1-v100-0")["runner_up_set"] is None
