"""The lines of a pod that has a node."""

from __future__ import annotations

from typing import Any

import pytest

from extender.protocol import Verb
from tests.unit.extender.engines import answer_of, bind, engine
from tests.unit.kubectl_coterie.text.answers import answer, offer, text


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
            [HAS, "As planned: its node reports only what differs.", NEXT],
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
            entry(state="devices_unknown", as_planned=None, planned_ids=[]),
            [
                (
                    "Which GPUs it has is not known: it was bound without a plan, and the node's "
                    "report does not name it yet."
                ),
                NEXT,
            ],
            id="without a plan and a report",
        ),
        pytest.param(
            entry(state="devices_unknown", as_planned=None),
            [
                (
                    "Which GPUs it has is not known: its node has no usable topology now by which "
                    "to read its plan."
                ),
                NEXT,
            ],
            id="of a plan that cannot be read on the node",
        ),
    ],
)
def test_a_pod_that_has_a_node(with_pod, read, expected):
    """Its set, plan against the kubelet, and the second set."""
    shown = placed(with_pod, "a", entry=read, node_ids=["x", "a", "b"])
    assert shown == ["On dgx-1-v100-0, dgx-1-v100", *expected]


def test_a_row_for_each_node_is_not_for_a_pod_that_has_one(with_pod):
    """Who asks for it is told so."""
    without = placed(with_pod, "a", entry=entry())
    asked = placed(with_pod, "a", entry=entry(), has_nodes=True)
    told = "--nodes lists nothing: a pod that has a node is tried on no other."
    assert asked == [*without, told]


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
            ["If it were placed again now, it would get {4,5}, 150 GB/s (90 % of its best)."],
            id="a better set",
        ),
    ],
)
def test_what_the_node_would_give_it_now(offered, expected):
    """Only where that is better, and there is no second set."""
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
