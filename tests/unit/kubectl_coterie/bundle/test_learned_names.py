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
            {("node", "gpu-0"), ("namespace", "ml"), ("pod", "a"), ("zone", "z")},
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
            {("uid", "u9"), ("namespace", "ml"), ("pod", "old"), ("container", "main")},
            id="the text of an annotation",
        ),
        pytest.param(
            {"labels": {"kubernetes.io/hostname": "h"}}, "", {("node", "h")}, id="a label of a node"
        ),
        pytest.param(
            {
                "labels": {
                    "topology.kubernetes.io/zone": "z",
                    "example.com/row": "r_1",
                    "pool": "p",
                    "nvidia.com/gpu.product": "H100",
                    "nvidia.com/mig.config": "ours",
                    "odd": 3,
                }
            },
            "",
            {
                *(("zone", "z"), ("host", "example.com"), ("key", "row"), ("label", "r_1")),
                *(("key", "pool"), ("label", "p"), ("label", "ours"), ("key", "odd")),
            },
            id="labels, but what describes the machine",
        ),
        pytest.param(
            {"taints": [{"key": "example.com/d", "value": "v"}, {"key": "t"}, {}, "odd"]},
            "",
            {("host", "example.com"), ("key", "d"), ("label", "v"), ("key", "t")},
            id="taints",
        ),
        pytest.param(
            {"capacity": {"cpu": "8", "pods": "110", "nvidia.com/gpu": "8", "example.com/x": "1"}},
            "",
            {("host", "example.com"), ("key", "x")},
            id="resources",
        ),
        pytest.param(
            {"containers": [{"name": "main", "image": "registry.example:5000/ml/x:1"}]},
            "",
            {
                *(("container", "main"), ("registry", "registry.example"), ("registry", "ml")),
                ("host", "registry.example"),
            },
            id="containers and images",
        ),
        pytest.param(
            {
                "settings": {
                    "scheduler_names": "a, b",
                    "lease": "ns/l",
                    "group_levels": "leaf=example.com/rack",
                    "resources": "nvidia.com/gpu,example.com/x",
                    "tls_cert": "/etc/acme/tls.crt",
                    "listen_address": "/unlike/a/path",
                },
                "arguments": ["--scheduler-names=c", "--config=/etc/ours/a.yaml", "-v", "run"],
                "host_paths": ("/var/lib/kubelet", "/srv/acme-2/7"),
            },
            "",
            {
                *(("scheduler", "a"), ("scheduler", "b"), ("scheduler", "c"), ("namespace", "ns")),
                *(("object", "l"), ("level", "leaf"), ("host", "example.com"), ("key", "rack")),
                *(("key", "x"), ("path", "acme"), ("path", "ours"), ("path", "a.yaml")),
                ("path", "acme-2"),
            },
            id="settings, arguments and paths",
        ),
        pytest.param(
            {
                "holderIdentity": "extender-0_6d1c",
                "matchConstraints": {"resources": ["pods/binding"]},
                "managedResources": [{"name": "example.com/x"}],
                "coterie.gpu/group": "g",
                "involved": {"user": "jane@example.com"},
            },
            "",
            {
                *(("pod", "extender-0"), ("host", "example.com"), ("key", "x"), ("group", "g")),
                *(("user", "jane@example.com"), ("user", "jane")),
            },
            id="Leases, policies, groups and users",
        ),
        pytest.param(
            {"group": {"name": "g", "namespace": "ml", "members": [{"name": "b", "node": "n"}]}},
            "",
            {("group", "g"), ("namespace", "ml"), ("pod", "b"), ("node", "n")},
            id="a group of the read API and its members",
        ),
        pytest.param({"text": "{no JSON", "nodes": ["a", 3]}, "", {("node", "a")}, id="no JSON"),
        pytest.param({"kind": "Lease", "name": "x", "pods": 3}, "", set(), id="nothing of users"),
    ],
)
def test_names_are_in_fields(value, kind, names):
    """Whatever the shape around them."""
    assert set(names_in_value(value, kind)) == names


def test_a_log_may_be_json_itself():
    """As the extender's state, on several lines."""
    assert set(names_in_log(json.dumps({"pod": "ml/a"}, indent=1))) == {
        ("namespace", "ml"),
        ("pod", "a"),
    }


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
