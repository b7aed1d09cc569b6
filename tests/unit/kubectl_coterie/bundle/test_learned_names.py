"""Where names are found, also of objects that are gone."""

from __future__ import annotations

import json

import pytest

from kubectl_coterie.bundle.learned_names import names_in_log, names_in_value

HOLD = {"uid": "u9", "namespace": "ml", "name": "old", "container": "main"}


@pytest.mark.parametrize(
    ("value", "kind", "names"),
    [
        pytest.param(
            [{"metadata": {"name": "gpu-0", "uid": "u1"}}],
            "node",
            {("node", "gpu-0"), ("uid", "u1")},
            id="a node of the API server",
        ),
        pytest.param(
            [{"metadata": {"name": "a", "namespace": "ml"}, "spec": {"nodeName": "gpu-0"}}],
            "pod",
            {("pod", "a"), ("namespace", "ml"), ("node", "gpu-0")},
            id="a pod",
        ),
        pytest.param(
            [{"name": "gpu-0", "gpus": [{"pod": "ml/a"}], "zone": "z"}],
            "node",
            {("node", "gpu-0"), ("namespace", "ml"), ("pod", "a")},
            id="a node of the read API",
        ),
        pytest.param(
            {"involvedObject": {"kind": "Node", "name": "gone"}, "reportingInstance": "h"},
            "event",
            {("node", "gone"), ("node", "h")},
            id="an Event",
        ),
        pytest.param(
            {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "ml"}},
            "event",
            {("pod", "p"), ("namespace", "ml")},
            id="an Event of a pod",
        ),
        pytest.param(
            {"annotations": {"coterie.gpu/devices": json.dumps({"holds": [HOLD]})}},
            "",
            {("uid", "u9"), ("namespace", "ml"), ("pod", "old")},
            id="the text of an annotation",
        ),
        pytest.param(
            {"labels": {"kubernetes.io/hostname": "h"}}, "", {("node", "h")}, id="a label of a node"
        ),
        pytest.param({"text": "{no JSON", "nodes": ["a", 3]}, "", {("node", "a")}, id="no JSON"),
        pytest.param({"kind": "Lease", "name": "x", "pods": 3}, "", set(), id="nothing of users"),
    ],
)
def test_names_are_in_fields(value, kind, names):
    """Whatever the shape around them."""
    assert set(names_in_value(value, kind)) == names


def test_names_are_in_logs():
    """Lines of JSON, and Kubernetes' own pairs."""
    log = (
        '{"event": "answered", "pod": "ml/a", "node": "gpu-0", "pod_uid": "u"}\n'
        '{"broken\n'
        'I0101 bound pod="ml/b" node="gpu-1" other="x"\n'
        'E0101 nodes "gpu-2" not found\n'
        '{"event": "failed", "error": "pods \\"c\\" is forbidden"}\n'
    )
    assert set(names_in_log(log)) == {
        ("namespace", "ml"),
        ("pod", "a"),
        ("pod", "b"),
        ("node", "gpu-0"),
        ("node", "gpu-1"),
        ("node", "gpu-2"),
        ("pod", "c"),
        ("uid", "u"),
    }
