"""The lines of an explanation: of the issue's example, and of answers that the engine gives."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from extender.protocol import Reason, Verb
from kubectl_coterie.terminal import Style
from kubectl_coterie.text import explanation_lines
from tests.unit.extender.engines import answer_of, bind, engine, names
from tests.unit.extender.pods import args, container, pod

PLAIN = Style(is_on=False)
REQUEST = {
    "resource": "nvidia.com/gpu",
    "size_gpus": 4,
    "containers": [{"name": "main", "size": 4, "role": "app"}],
    "affinity": "nvlink",
    "policy": "required",
    "min_bandwidth_gbytes_per_s": None,
    "prefer": "balanced",
    "nic": "unset",
}


def group(reason: Reason, n: int, machines: str, nearest: dict[str, Any] | None = None) -> Any:
    """A reason of a summary."""
    return {
        "reason": reason.value,
        "reason_label": reason.label,
        "sentence": f"{reason.value} ({machines})",
        "n": n,
        "nearest": nearest,
    }


def offer(node: str, *gpus: int, rate: float | None = 48.0, share: float | None = 1.0) -> Any:
    """A node's set."""
    return {"node": node, "gpus": list(gpus), "gbytes_per_s": rate, "share": share}


def answer(*groups: Any, n_nodes: int = 40, request: Any = None, change: Any = None) -> Any:
    """An explanation of a pod that fits nowhere."""
    summary = {"n_nodes": n_nodes, "n_fit": 0, "groups": list(groups), "try": change}
    return {
        "pod": "ml/train-0",
        "uid": "u",
        "generation": 1,
        "warnings": [],
        "request": REQUEST | (request or {}),
        "unschedulable": {"since_s": 1000.0},
        "summary": summary | {"runner_up": None, "runner_up_set": None},
        "nodes": [],
    }


def text(content: Any, style: Style = PLAIN, **known: Any) -> str:
    """Its lines, 4 minutes and 12 seconds after filter rejected it."""
    return "\n".join(explanation_lines(content, style, now_s=1252.0, **known))


def test_a_pod_that_waits():
    """The look that users were promised, to the letter."""
    near = {"when_ended": ["ml/eval-3"], "gpus_freed": 2, **offer("gpu-07", 0, 1, 2, 3)}
    change = {
        "change": "coterie.gpu/policy=preferred",
        **offer("gpu-07", 0, 1, 4, 5, rate=15.96, share=0.33),
    }
    content = answer(
        group(Reason.AFFINITY_TAKEN, 22, "dgx-1-v100", near),
        group(Reason.AFFINITY_NEVER, 12, "8x-l40s"),
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


OF_NODES = list(Reason)[: list(Reason).index(Reason.INVALID_REQUEST)]


@pytest.mark.parametrize("reason", OF_NODES, ids=lambda reason: reason.label)
def test_every_reason_has_a_line(reason):
    """Of several machine types, and short."""
    line = text(answer(group(reason, 2, "a, b and 3 more"))).splitlines()[2]
    assert re.match(r"  2  \S.{10,65}$", line) or "a, b and 3 more have " in line


def test_a_reason_of_a_later_extender_stays_as_it_is():
    """It is a sentence already."""
    later = group(Reason.NOT_ENOUGH_FREE, 2, "a") | {"reason_label": "later", "reason": "a\x07b"}
    assert text(answer(later)).splitlines()[2] == "  2  a?b"


@pytest.mark.parametrize(
    ("reason", "affinity", "line"),
    [
        (Reason.AFFINITY_NEVER, "pcie-switch", "a has no set of 4 below one PCIe switch"),
        (Reason.AFFINITY_NEVER, "numa", "a has no set of 4 in one NUMA node"),
        (Reason.TOO_FEW_GPUS, "any", "a has fewer than 6 GPUs"),
        (Reason.NIC_NEVER, "any", "a has no set of 4 near an RDMA NIC"),
        (Reason.BANDWIDTH_NEVER, "any", "a has no set of 4 that is fast enough"),
        (
            Reason.ALIGNMENT_NEVER,
            "any",
            "a has no NUMA nodes that hold 4 GPUs, as the kubelet's policy wants them",
        ),
    ],
)
def test_what_a_machine_never_has(reason, affinity, line):
    """Sets are of a container; the whole pod's GPUs are only counted."""
    containers = [{"name": "a", "size": 4}, {"name": "b", "size": 2}]
    request = {"affinity": affinity, "size_gpus": 6, "containers": containers}
    shown = text(answer(group(reason, 1, "a"), request=request)).splitlines()
    assert shown[2] == f"  1  never on this node        {line}"


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


def test_a_pod_that_filter_has_not_rejected():
    """It says what to look at, and what the API server says."""
    content = answer()
    del content["unschedulable"]
    assert text(content, scheduler="its schedulerName is other").splitlines() == [
        "train-0  Pending   4 GPUs, nvlink, required",
        "0 of 40 nodes fit",
        (
            "The extender has not rejected this pod; its schedulerName is other. Look at its "
            "schedulerName, and at its Events with kubectl describe pod: another scheduler may "
            "have it, or CPU, memory or taints leave no node before Coterie is called."
        ),
    ]
    assert "rejected this pod. Look" in text(content)


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


def explained(on: Any, content: Any, **known: Any) -> str:
    """The lines of the engine's own answer."""
    body = json.dumps(content).encode()
    return text(answer_of(on, Verb.EXPLAIN, body, 1000.0), **known)


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


def test_a_manifest_that_would_wait():
    """It says so, and is not sent to look for its scheduler."""
    shown = explained(engine(), pod(16), is_manifest=True).splitlines()
    assert shown == [
        "pod-u1  Would wait   16 GPUs",
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


def placed(on: Any, uid: str, *, entry: Any = None, **known: Any) -> list[str]:
    """The lines of a pod that has a node, below the first."""
    read = on.read_pod("default", f"pod-{uid}")
    content = answer_of(on, Verb.EXPLAIN, read, 0.0)
    lines = text(content, placed=entry, **known).splitlines()
    assert lines[0].startswith(f"pod-{uid}  Placed   ")
    return lines[1:]


def entry(**changed: Any) -> Any:
    """A pod of the read API."""
    return {
        "state": "held",
        "gpus": [0, 1, 2, 3],
        "gbytes_per_s": 99.425,
        "share": 1.0,
        "limited_by": "ring",
        "containers": [{"name": "main"}],
        "as_planned": True,
        "planned_ids": ["a", "b"],
    } | changed


@pytest.fixture(scope="module")
def with_pod():
    """An engine with a placed pod."""
    on = engine()
    bind(on, "a", "dgx-1-v100-0", 4, affinity="nvlink", policy="required")
    return on


NEXT = (
    "Next set on dgx-1-v100-0: {4,5,6,7}, 99.4 GB/s (100 % of its best): it is equal in all else, "
    "and the lowest indices are taken"
)
HAS = "Has {0,1,2,3}, 99.4 GB/s (100 % of its best), limited by its NVLink ring"


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(
            None,
            [HAS, "As planned; the node has not reported yet what the kubelet gave.", NEXT],
            id="what was planned, where the read API does not know it",
        ),
        pytest.param(entry(), [HAS, "The kubelet gave what was planned.", NEXT], id="as planned"),
        pytest.param(
            entry(as_planned=False, gpus=[0, 7], gbytes_per_s=20.0, share=0.4, limited_by="socket"),
            [
                "Has {0,7}, 20 GB/s (40 % of its best), limited by the link between CPU sockets",
                "The kubelet gave other GPUs than planned: planned was {1,2}.",
                NEXT,
            ],
            id="other GPUs than planned",
        ),
        pytest.param(
            entry(as_planned=False, planned_ids=[], gpus=[0, 7], gbytes_per_s=None, share=None)
            | {"limited_by": None},
            [
                "Has {0,7}, GB/s unknown",
                "The kubelet gave other GPUs than planned.",
                NEXT,
            ],
            id="of which nothing is known",
        ),
        pytest.param(
            entry(as_planned=None),
            [HAS, "Nothing was planned for it; the kubelet chose its GPUs.", NEXT],
            id="without a plan",
        ),
        pytest.param(
            entry(state="unlocated", as_planned=None),
            [
                (
                    "Which GPUs it has is not known: it was bound without a plan, and the node's "
                    "report does not name it yet."
                ),
                NEXT,
            ],
            id="without a plan and a report",
        ),
    ],
)
def test_a_pod_that_has_a_node(with_pod, read, expected):
    """Its set, plan against the kubelet, and the second set."""
    shown = placed(with_pod, "a", entry=read, node_ids=["x", "a", "b"])
    assert shown == ["On dgx-1-v100-0, a dgx-1-v100", *expected]


def test_each_container_has_a_line():
    """Where there are several; a name is shown as a terminal takes it."""
    one = {"gpus": [0, 1], "gbytes_per_s": 49.8, "share": 1.0, "limited_by": "ring"}
    two = {"gpus": [2], "gbytes_per_s": None, "share": None, "limited_by": None}
    has = entry(containers=[one | {"name": "train"}, two | {"name": "x\n"}])
    bound = {"node": "n", "machine": None, "plan": "{}", "has_what_was_planned": True}
    bound |= {"containers": None, "could_have": None, "runner_up_set": None}
    content = answer() | {"bound": bound}
    assert text(content, placed=has).splitlines()[1:5] == [
        "On n",
        HAS,
        "  train  {0,1}, 49.8 GB/s (100 % of its best)",
        "  x?     {2}",
    ]


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        pytest.param(None, [], id="a node that is gone"),
        pytest.param({"fits": False, "reason": "x"}, [], id="where it would not fit"),
        pytest.param({"fits": True, "containers": None}, [], id="of unknown topology"),
        pytest.param(
            {"fits": True, "containers": [{"gpus": [1], "gbytes_per_s": None, "limited_by": None}]},
            [],
            id="of one GPU",
        ),
        pytest.param(
            {
                "fits": True,
                "containers": [
                    {"gpus": [4, 5], "gbytes_per_s": 150.0, "loss": 0.1, "limited_by": "ring"}
                ],
            },
            ["Placed there now it would get {4,5}, 150 GB/s (90 % of its best)."],
            id="a better set",
        ),
    ],
)
def test_what_the_node_would_give_it_now(offered, expected):
    """Only where that is better; an extender before 1.3 has no second set."""
    bound = {"node": "n", "machine": "m", "plan": None, "has_what_was_planned": None}
    bound |= {"containers": None, "could_have": offered}
    content = answer() | {"bound": bound}
    assert text(content, placed=entry(as_planned=None)).splitlines()[4:] == expected


def test_a_better_set_than_its_own():
    """It came free after the pod was placed."""
    second = offer("n", 4, 5) | {"why": "it is faster", "is_better": True}
    bound = {"node": "n", "machine": "m", "plan": "bad", "has_what_was_planned": None}
    bound |= {"containers": None, "could_have": None, "runner_up_set": second}
    assert text(answer() | {"bound": bound}).splitlines()[2:] == [
        "Its plan cannot be read: bad",
        "A better set is free now on n: {4,5}, 48 GB/s (100 % of its best): it is faster",
    ]


def test_containers_of_a_pod_without_figures():
    """One GPU each: a rate is of sets."""
    on = engine()
    content = pod(1)
    content["spec"]["containers"].append(container("second", 1))
    shown = explained(on, content, is_manifest=True).splitlines()
    assert shown[0] == "pod-u1  Would be placed   2 GPUs in 2 containers"
    assert shown[2].startswith("Best: ")
    assert "GB/s" not in shown[2].partition(" {")[2].partition("}")[0]
