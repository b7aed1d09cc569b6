"""What a what-if's answer says in lines."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_coterie.terminal import Style
from kubectl_coterie.text import what_if_lines

PLAIN = Style(is_on=False)


def placement(pod: str, **changed: Any) -> Any:
    """A pod that finds a node."""
    container = {"name": "main", "gpus": [0, 1]}
    return {
        "pod": pod,
        "is_evicted": False,
        "node": "n",
        "machine": "m",
        "containers": [container],
        "gbytes_per_s": 49.86,
        "share": 0.5,
        "n_fit": 1,
        "reason": None,
        "reasons": [],
        "assumed": None,
        "is_selector_known": True,
        "now_gbytes_per_s": None,
    } | changed


def capacity(**changed: Any) -> Any:
    """What is free of a machine type."""
    sets = {"2": 4, "4": 2, "8": 1}
    return {"machine": "m", "nodes": 1, "gpus": 8, "free": 8, "placeable": sets, "stranded": 0} | (
        changed
    )


def answer(*placements: Any, **changed: Any) -> Any:
    """An answer."""
    return {
        "added": [],
        "drained": [],
        "groups": [],
        "placements": list(placements),
        "before": [],
        "after": [],
        "warnings": [],
        "not_considered": [],
    } | changed


def test_pods_that_find_a_node_and_pods_that_do_not():
    """The set with its figures, or each reason with its number of nodes."""
    reasons = [
        {"reason": "x", "reason_short": "x", "n_nodes": 3},
        {"reason": "y", "reason_short": "never on this node", "n_nodes": 1},
    ]
    lost: dict[str, Any] = {
        "node": None,
        "machine": None,
        "containers": [],
        "gbytes_per_s": None,
        "share": None,
    }
    found = answer(
        placement("ml/a"),
        placement(
            "ml/b",
            is_evicted=True,
            containers=[],
            gbytes_per_s=None,
            share=None,
            now_gbytes_per_s=147.9,
        ),
        placement("ml/c", **lost, reasons=reasons),
        placement("ml/d", **lost, reason="not known"),
    )
    none, never = "<none>", "never on this node"
    assert what_if_lines(found, PLAIN) == [
        "2 of 4 pods find a node",
        "",
        "POD    NODE     MACHINE   SET             NOW      GB/S     SHARE    REASON",
        "ml/a   n        m         {0,1}           <none>   49.9     50 %",
        "ml/b   n        m         GPUs by count   148      <none>   <none>   evicted by the drain",
        f"ml/c   <none>   <none>    <none>          {none}   {none}   {none}   x (3), {never} (1)",
        f"ml/d   <none>   <none>    <none>          {none}   {none}   {none}   not known",
    ]


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ([True, True], "2 of 2 pods find a node"),
        ([True, False], "1 of 2 pods finds a node; 1 pod finds a node if its selector allows it"),
        ([False], "0 of 1 pod finds a node; 1 pod finds a node if its selector allows it"),
        (
            [True, False, False],
            "1 of 3 pods finds a node; 2 pods find a node if their selector allows it",
        ),
    ],
)
def test_pods_whose_selector_is_not_known_are_counted_apart(known, sentence):
    """Nobody drains a node on what is only assumed; one without a node finds none anyway."""
    pods = [placement(f"p{i}", is_selector_known=one) for i, one in enumerate(known)]
    assert what_if_lines(answer(*pods), PLAIN)[0] == sentence
    lost = answer(placement("p", node=None, is_selector_known=False, reason="x"))
    assert what_if_lines(lost, PLAIN)[0] == "0 of 1 pod finds a node"


def test_warnings_stand_before_the_pods():
    """Of annotations, whose values are a user's own."""
    lines = what_if_lines(answer(placement("p"), warnings=["a\x1b is nothing"]), PLAIN)
    assert lines[1] == "Warning: a? is nothing"


def test_what_is_left():
    """Before and after where they differ; then what was assumed and what is not considered."""
    sets = {"2": 4, "4": 1, "8": 0}
    after = capacity(free=6, placeable=sets, stranded=2)
    found = answer(
        placement("p", assumed="as filter saw it"),
        added=[{"node": "added-0", "machine": "m"}, {"node": "added-1", "machine": "m"}],
        drained=["x", "y"],
        before=[capacity()],
        after=[after],
        not_considered=["CPU"],
    )
    assert what_if_lines(found, PLAIN) == [
        "Added 2 nodes of m: added-0, added-1",
        "Drained x, y",
        "1 of 1 pod finds a node",
        "",
        "POD   NODE   MACHINE   SET     GB/S   SHARE   REASON",
        "p     n      m         {0,1}   49.9   50 %",
        "",
        "What is left:",
        "MACHINE   NODES   GPUS   FREE     SETS OF 2   SETS OF 4   SETS OF 8   STRANDED",
        "m         1       8      8 -> 6   4           2 -> 1      1 -> 0      0 -> 2",
        "",
        "Assumed:",
        "  as filter saw it",
        "",
        "Not considered:",
        "  CPU",
    ]


def test_nodes_alone():
    """A drained node without pods has none to place; shares are coloured."""
    assert what_if_lines(answer(drained=["x"]), PLAIN) == ["Drained x"]
    assert "\x1b[33m50 %\x1b[0m" in what_if_lines(answer(placement("p")), Style(is_on=True))[3]


def group(**changed: Any) -> Any:
    """A group that starts."""
    return {
        "group": "ml/train",
        "size": 2,
        "n_members": 2,
        "n_placed": 2,
        "n_bound": 0,
        "n_without_gpus": 0,
        "level": "leaf",
        "domain": "P1/S2",
        "gbytes_per_s": 46.21,
        "least_gbytes_per_s": 33.3,
        "limited_by": "nic",
        "reason": None,
        "reason_label": None,
        "reason_short": "no room for its group",
        "detail": "",
    } | changed


NO_ROOM = "waits for its group: no domain has room for all members"


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {},
            (
                "all 2 members get nodes in leaf P1/S2; 46.2 GB/s predicted over all (at least "
                "33.3 GB/s after the stated error)"
            ),
        ),
        (
            {"level": None, "gbytes_per_s": None, "least_gbytes_per_s": None},
            (
                "all 2 members get nodes; no network domain is known to hold all; what it reaches "
                "over all is not known"
            ),
        ),
        (
            {"n_bound": 3, "gbytes_per_s": None, "detail": "NICs are unknown"},
            (
                "all 2 members get nodes beside 3 that run in leaf P1/S2; what it reaches over all "
                "is not known, since NICs are unknown"
            ),
        ),
        (
            {"size": 8, "n_without_gpus": 6, "least_gbytes_per_s": None},
            (
                "all 2 members get nodes in leaf P1/S2; 46.2 GB/s predicted over all; 6 more of "
                "its size of 8 are taken to have no GPUs"
            ),
        ),
        (
            {"n_members": 1, "n_placed": 1, "gbytes_per_s": 0.0, "least_gbytes_per_s": 0.0},
            "the member gets a node in leaf P1/S2",
        ),
        (
            {"n_placed": 0, "n_bound": 3, "reason": NO_ROOM},
            "3 run, and 2 members more wait: no domain has room for all members",
        ),
        (
            {"n_members": 3, "reason": NO_ROOM, "least_gbytes_per_s": None},
            (
                "2 of 3 members in leaf P1/S2; 46.2 GB/s predicted over all; the others wait: no "
                "domain has room for all members"
            ),
        ),
        (
            {"n_placed": 0, "reason": NO_ROOM, "detail": "the cluster has room for 1 of 2 members"},
            (
                "does not start: no domain has room for all members (the cluster has room for 1 of "
                "2 members)"
            ),
        ),
        (
            {
                "n_placed": 0,
                "reason": "never: no domain of this cluster holds the group",
                "detail": "never: a leaf has room for 1 of 2 members when empty",
            },
            (
                "does not start: never: no domain of this cluster holds the group (a leaf has room "
                "for 1 of 2 members when empty)"
            ),
        ),
    ],
)
def test_a_group_has_a_line(changed, line):
    """Whether it starts, where and how fast, or why not."""
    lines = what_if_lines(answer(placement("ml/a"), groups=[group(**changed)]), PLAIN)
    assert lines[1] == f"Group ml/train: {line}"


def test_a_member_has_the_reason_of_its_group():
    """Not those of the nodes that would not take it alone."""
    reasons = [{"reason": "x", "reason_short": "x", "n_nodes": 3}]
    lost: dict[str, Any] = {"node": None, "containers": [], "gbytes_per_s": None, "share": None}
    member = placement("ml/a", group="ml/train", reason=NO_ROOM, reasons=reasons, **lost)
    waits = group(n_placed=0, reason=NO_ROOM)
    lines = what_if_lines(answer(member, groups=[waits]), PLAIN)
    assert lines[-1].endswith("   no room for its group")
