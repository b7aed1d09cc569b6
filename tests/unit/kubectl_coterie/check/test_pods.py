"""Pods with wishes for another scheduler."""

from __future__ import annotations

import pytest

from kubectl_coterie.check.pods import check_pods
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import audit, look, no_right, pod


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        pytest.param([pod()], "ok", id="for Coterie's scheduler"),
        pytest.param([pod(scheduler="default-scheduler")], "warning", id="for another"),
        pytest.param([pod(scheduler="")], "warning", id="for none, so the default one"),
        pytest.param([pod(scheduler="x", phase="Succeeded")], "ok", id="has ended"),
        pytest.param([pod(scheduler="x", annotations={})], "ok", id="wishes nothing"),
        pytest.param(
            [pod(scheduler="x", annotations={"coterie.gpu/plan": "{}"})],
            "ok",
            id="Coterie's own annotation is no wish",
        ),
    ],
)
def test_wishes_go_to_a_scheduler_that_heeds_them(pods, state):
    """Others place the pod as if it had none."""
    (finding,) = check_pods(look(pods=Read(pods)))
    assert finding.state.value == state
    if state == "warning":
        assert "pod ml/train" in finding.about
        assert "coterie-scheduler" in finding.todo


def test_in_audit_mode_wishes_have_no_effect():
    """No scheduler of Coterie's could be named."""
    (finding,) = check_pods(audit())
    assert (finding.state.value, finding.todo) == ("ok", "")
    assert finding.about == "1 with annotations of Coterie, which have no effect in audit mode"


def test_without_the_right_it_is_not_known():
    """Pods of all namespaces are needed."""
    (finding,) = check_pods(look(pods=no_right("pods")))
    assert (finding.state.value, finding.about) == ("not known", no_right("pods").missing)
