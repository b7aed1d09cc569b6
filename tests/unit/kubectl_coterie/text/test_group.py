"""The line of a pod's group."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_coterie.text.group import group_lines

WAITS: dict[str, Any] = {
    "name": "train",
    "size": 4,
    "n_here": 3,
    "n_bound": 0,
    "n_missing": 1,
    "reason": "waits for its group: members are missing",
    "detail": "",
    "first_since_s": 748.0,
    "complete_since_s": None,
    "level": None,
    "domain": None,
    "gbytes_per_s": None,
    "least_gbytes_per_s": None,
    "limited_by": None,
    "members": [{"name": f"train-{i}", "node": None, "is_bound": False} for i in range(3)],
}
ALL = [{"name": f"train-{i}", "node": f"n{i}", "is_bound": True} for i in range(3)]
BOUND = WAITS | {
    "n_bound": 3,
    "n_missing": 0,
    "reason": None,
    "level": "leaf",
    "domain": "S12",
    "gbytes_per_s": 381.6,
    "members": ALL,
}


def line(**changes: Any) -> str:
    """The line of such a group at 1000 s, of the pod train-0."""
    (found,) = group_lines({"pod": "ml/train-0", "group": WAITS | changes}, 1000.0)
    return found


def test_a_pod_without_a_group_has_no_line():
    """There is nothing to say of one."""
    assert group_lines({"pod": "ml/p", "group": None}, 0.0) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param(
            {},
            "Group train: 3 of 4 members here (train-0, train-1, train-2), the first for 4m12s; "
            "1 missing",
            id="members are missing",
        ),
        pytest.param(
            {"first_since_s": None, "n_here": 12, "size": 16, "n_missing": 4},
            "Group train: 12 of 16 members here (train-0, train-1, train-2 and 9 more); 4 missing",
            id="more than are named",
        ),
        pytest.param(
            {
                "n_missing": 0,
                "n_here": 4,
                "complete_since_s": 940.0,
                "detail": "the freest leaf (S12) has room for 3 of 4 members",
            },
            "Group train: all 4 members here for 60s; the freest leaf (S12) has room for 3 of 4 "
            "members",
            id="no room",
        ),
        pytest.param(
            {"n_missing": 0, "n_here": 4},
            "Group train: all 4 members here; waits for its group: members are missing",
            id="no detail",
        ),
        pytest.param(
            BOUND,
            "Group train: 3 members bound in leaf S12; 382 GB/s predicted over all of them; "
            "beside train-1 on n1, train-2 on n2",
            id="placed",
        ),
        pytest.param(
            BOUND | {"n_bound": 1, "n_here": 9, "level": "any", "gbytes_per_s": None},
            "Group train: 9 members here, 1 bound; beside train-1 on n1, train-2 on n2 and 6 more",
            id="in no common domain, partly bound",
        ),
        pytest.param(
            BOUND | {"n_here": 1, "n_bound": 1, "members": ALL[:1]},
            "Group train: 1 member bound in leaf S12; 382 GB/s predicted over all of them",
            id="alone",
        ),
    ],
)
def test_the_line_says_what_there_is_to_know(changes, text):
    """What is missing first, then why it waits, then where it is."""
    assert line(**changes) == text
