"""The lines of an explanation: as users were promised it, and of answers that the engine gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.protocol import Reason, Verb
from kubectl_coterie.terminal import Style
from tests.unit.extender.engines import answer_of, bind, engine, names
from tests.unit.extender.pods import args, container, pod
from tests.unit.kubectl_coterie.text.answers import answer, group, offer, text


def explained(on: Any, content: Any, **known: Any) -> str:
    """The lines of the engine's own answer."""
    body = json.dumps(content).encode()
    return text(answer_of(on, Verb.EXPLAIN, body, 1000.0), **known)


def test_a_pod_that_waits():
    """The look that users were promised, to the letter."""
    near = {"when_ended": ["ml/eval-3"], "gpus_freed": 2, **offer("gpu-07", 0, 1, 2, 3)}
    change = {
        "change": "coterie.gpu/policy=preferred",
        **offer("gpu-07", 0, 1, 4, 5, rate=15.96, share=0.33),
    }
    content = answer(
        group(Reason.AFFINITY_TAKEN, 22, "dgx-1-v100", near, reason_short="no free NVLink set"),
        group(Reason.AFFINITY_NEVER, 12, "8x-l40s", lacks="no NVLink set of 4"),
        group(Reason.NOT_ENOUGH_FREE, 6, "dgx-1-v100"),
        change=change,
    )
    assert text(content) == (
        "train-0  Pending 4m12s   4 GPUs, nvlink, required\n"
        "0 of 40 nodes fit\n"
        "  22  no free NVLink set        gpu-07 has one when eval-3 (2 GPUs) ends\n"
        "  12  never on this node        8x-l40s has no NVLink set of 4\n"
        "   6  not enough free GPUs\n"
        "Try: policy=preferred -> gpu-07 {0,1,4,5}, 16 GB/s (33 % of its best)"
    )


def test_words_of_the_extender_are_printable():
    """They may be those of a later version."""
    later = group(Reason.NIC_NEVER, 2, "a, b and 3 more", reason_short="a\x07b", lacks="no\x07c")
    line = text(answer(later)).splitlines()[2]
    assert line.split() == ["2", "a?b", "a,", "b", "and", "3", "more", "have", "no?c"]


def test_several_pods_that_would_have_to_end():
    """Those of another namespace with it; a count of GPUs is no set."""
    ended = ["ml/a", "other/b"]
    near = {"when_ended": ended, "gpus_freed": 4, **offer("n", 0, 1, 2, 3)}
    shown = text(answer(group(Reason.NOT_ENOUGH_FREE, 1, "m", near), n_nodes=1)).splitlines()
    assert shown[1:] == [
        "0 of 1 node fits",
        "  1  not enough free GPUs      n has enough when a and other/b (4 GPUs) end",
    ]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"affinity": "any"}, "4 GPUs"),
        ({"size_gpus": 1, "affinity": "any"}, "1 GPU"),
        (
            {"affinity": "any", "min_bandwidth_gbytes_per_s": 40.0, "policy": "preferred"},
            "4 GPUs, at least 40 GB/s, preferred",
        ),
        ({"nic": "required"}, "4 GPUs, nvlink, required, nic required"),
        (
            {"containers": [{"size": 2}, {"size": 2}, {"size": 0}]},
            "4 GPUs in 2 containers, nvlink, required",
        ),
    ],
)
def test_what_a_pod_requests(request_, words):
    """Only what it states."""
    assert text(answer(request=request_)).splitlines()[0].endswith(f"   {words}")


def test_a_cluster_without_such_gpus():
    """Nothing was rejected there."""
    assert text(answer(n_nodes=0)).splitlines()[1:] == [
        "The extender knows no node with such GPUs."
    ]


def test_what_is_not_considered_is_one_line():
    """Of an answer that says so; names in it drive no terminal."""
    content = answer(group(Reason.NODE_AFFINITY, 3, "a", None))
    assert text(content).splitlines()[2:] == ["  3  not allowed by nodeSelector or node affinity"]
    lines = text(content | {"not_considered": ["a\x1b", "b"]}).splitlines()
    assert lines[3:] == ["Not considered: a?; b"]


def test_a_pod_that_filter_has_not_rejected():
    """It says what to look at, and what the API server says."""
    content = answer()
    del content["unschedulable"]
    scheduler = "its schedulerName is other, which says: 0/4 nodes are available."
    assert text(content, scheduler=scheduler).splitlines() == [
        "train-0  Pending   4 GPUs, nvlink, required",
        "0 of 40 nodes fit",
        (
            "kube-scheduler has not asked Coterie about this pod; its schedulerName is other, "
            "which says: 0/4 nodes are available."
        ),
    ]
    assert "about this pod. Its own count of GPUs, CPU" in text(content)


def test_names_from_the_cluster_drive_no_terminal():
    """A pod, a node or a warning could hold an escape sequence."""
    content = answer(change={"change": "x", **offer("n\x1b[31m", 0, 1)})
    content |= {"pod": "ml/p\x1b[31m", "warnings": ["w\n"]}
    shown = text(content)
    assert "\x1b" not in shown
    assert shown.splitlines()[-1] == "Warning: w?"


def test_colour_is_of_states_and_shares():
    """Where the terminal takes it."""
    change = {"change": "x", **offer("n", 0, 1, share=0.2)}
    shown = text(answer(change=change), Style(is_on=True))
    assert "\x1b[1mtrain-0\x1b[0m  \x1b[33mPending 4m12s\x1b[0m" in shown
    assert "\x1b[31m{0,1}, 48 GB/s (20 % of its best)\x1b[0m" in shown


def test_a_manifest_that_fits():
    """The best place, what comes second, and every node."""
    on = engine()
    bind(on, "a", "dgx-1-v100-0", 4)
    shown = explained(
        on, pod(4, affinity="nvlink", policy="required"), is_manifest=True, has_nodes=True
    )
    assert shown == (
        "pod-u1  Would be placed   4 GPUs, nvlink, required\n"
        "2 of 3 nodes fit\n"
        "Best: dgx-1-v100-0 {4,5,6,7}, 99.4 GB/s (100 % of its best), limited by its NVLink ring\n"
        "Next node: dgx-1-v100-1 {0,1,2,3}, 99.4 GB/s (100 % of its best): taking its set costs "
        "later pods more\n"
        "  1  never on this node        8x-l4 has no NVLink set of 4\n"
        "\n"
        "NODE           MACHINE      FREE   SET         GB/S     SHARE    REASON\n"
        "dgx-1-v100-0   dgx-1-v100   4      {4,5,6,7}   99.4     100 %    <none>\n"
        "dgx-1-v100-1   dgx-1-v100   8      {0,1,2,3}   99.4     100 %    <none>\n"
        "8x-l4-0        8x-l4        8      <none>      <none>   <none>   never on this node: "
        "4 GPUs, affinity nvlink"
    )


def test_a_member_of_a_group_is_never_said_to_be_placed_alone():
    """Nodes for one member say nothing of the others: two machines here, four members."""
    content = pod(8, affinity="nvlink", policy="required", group="train", group_size="4")
    shown = explained(engine(), content, is_manifest=True).splitlines()
    alone = (
        "The group gets nodes only once there is room for all members; the lines below are of "
        "this member alone:"
    )
    assert shown[:4] == [
        "pod-u1  Would wait for its group   8 GPUs, nvlink, required",
        "Group train: none of 4 members is here",
        alone,
        "2 of 3 nodes fit",
    ]
    content = pod(2, group="train")
    shown = explained(engine(), content, is_manifest=True).splitlines()
    assert shown[:3] == [
        "pod-u1  Would be placed   2 GPUs",
        "Group train: no member is here",
        "3 of 3 nodes fit",
    ]
    content = pod(2, group="train", group_size="1")
    shown = explained(engine(), content, is_manifest=True).splitlines()
    assert shown[:3] == [
        "pod-u1  Would be placed   2 GPUs",
        "Group train: none of 1 member is here",
        "3 of 3 nodes fit",
    ]


def test_a_manifest_that_would_wait():
    """It says so, and is not sent to look for its scheduler."""
    shown = explained(engine(), pod(16), is_manifest=True).splitlines()
    assert shown == [
        "pod-u1  Can never be placed here   16 GPUs",
        "0 of 3 nodes fit",
        "  3  never on this node        8x-l4, dgx-1-v100 have fewer than 16 GPUs",
    ]


def test_a_pod_without_gpus():
    """One sentence."""
    assert explained(engine(), pod()) == "default/pod-u1 requests no GPU that Coterie places."


def test_one_gpu_has_no_figures():
    """There is nothing to reduce."""
    shown = explained(engine(), pod(1), is_manifest=True).splitlines()
    assert shown[2] == "Best: 8x-l4-0 {0}"


def test_a_node_of_unknown_topology():
    """Its devices go by count."""
    on = engine({"count": 1, "devices": 4, "name": "plain"})
    content = pod(2)
    on.answer(Verb.FILTER, args(content, names(on)), 0.0)
    shown = explained(on, content, is_manifest=True, has_nodes=True).splitlines()
    assert shown[2] == "Best: plain-0, where the kubelet chooses: its topology is unknown"
    assert shown[-1].split("   ")[-4:] == ["GPUs by count", "<none>", "<none>", "<none>"]


def test_containers_of_a_pod_without_figures():
    """One GPU each: a rate is of sets."""
    on = engine()
    content = pod(1)
    content["spec"]["containers"].append(container("second", 1))
    shown = explained(on, content, is_manifest=True).splitlines()
    assert shown[0] == "pod-u1  Would be placed   2 GPUs in 2 containers"
    assert shown[2].startswith("Best: ")
    assert "GB/s" not in shown[2].partition(" {")[2].partition("}")[0]
