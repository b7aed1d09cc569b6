"""Which taints a pod tolerates."""

from __future__ import annotations

import pytest

from topology.taints import CORDONED, Taint, Toleration, tolerates_all

TAINT = Taint("gpu", "only", "NoSchedule")
OTHER = Taint("disk", "", "NoExecute")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration("", "Exists", "", ""), True, id="all taints"),
        pytest.param(Toleration("", "", "", ""), False, id="no key and no operator"),
        pytest.param(Toleration("gpu", "Exists", "", ""), True, id="the key, any value"),
        pytest.param(Toleration("gpu", "Equal", "only", "NoSchedule"), True, id="equal"),
        pytest.param(Toleration("gpu", "", "only", ""), True, id="equal by default"),
        pytest.param(Toleration("gpu", "Equal", "other", ""), False, id="another value"),
        pytest.param(Toleration("cpu", "Exists", "", ""), False, id="another key"),
        pytest.param(Toleration("gpu", "Gt", "only", ""), False, id="greater, off by default"),
        pytest.param(Toleration("gpu", "Near", "only", ""), False, id="unknown operator"),
        pytest.param(Toleration("gpu", "Exists", "", "NoExecute"), False, id="another effect"),
    ],
)
def test_tolerations(toleration, expected):
    """As k8s.io/api says; each taint must be tolerated."""
    assert tolerates_all((toleration,), (TAINT,)) is expected
    assert tolerates_all((toleration,), (TAINT, OTHER)) is (expected and toleration.key == "")


def test_without_tolerations_only_a_node_without_taints_is_left():
    """Which most are."""
    assert tolerates_all((), ())
    assert not tolerates_all((), (CORDONED,))
