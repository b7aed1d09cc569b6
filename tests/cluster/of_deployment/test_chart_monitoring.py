"""What the chart makes for Prometheus' operator, on an API server with the operator's own kinds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from tests.cluster.control.chart import CHART, HelmFailed
from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.control.manifests import await_so, rendered
from tests.cluster.programs.operator_crds import operator_crds

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

NAMESPACE = "monitoring"
INSTALL = ("install", "gpus", str(CHART), "--namespace", "gpus", "--create-namespace")
VALUES = (
    *("--set", "image.registry=registry.example,image.tag=v1.0,mode=second-scheduler"),
    *(
        "--set",
        "plugin.mode=device-plugin,plugin.profile=simulated,monitoring.namespace=monitoring",
    ),
    *("--set", "monitoring.podMonitor.enabled=true,monitoring.rules.enabled=true"),
    *("--set", "monitoring.dashboards.enabled=true,monitoring.podMonitor.scrapeTimeout=10s"),
)


@pytest.fixture(scope="module")
def cluster(helm, control_plane):
    """Helm that talks to a cluster with the operator's kinds, where at first they are refused."""
    connected = replace(helm, kubeconfig=control_plane.admin)
    with pytest.raises(HelmFailed, match=r"does not serve monitoring\.coreos\.com/v1, which PodM"):
        connected.run(*INSTALL, *VALUES, "--dry-run=server")
    # Applied by the server: as an annotation of the client, these schemas are too long.
    control_plane.kubectl("apply", "--server-side", "-f", str(operator_crds()))
    control_plane.kubectl("create", "namespace", NAMESPACE)
    path = "/apis/monitoring.coreos.com/v1/podmonitors"
    await_so(lambda: control_plane.client.get(path).is_success, "the operator's kinds")
    return connected


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("mode", ["second-scheduler", "kubeadm"])
def test_the_manifests_are_valid(control_plane, mode):
    """By the operator's own schema; a field that it does not know is refused."""
    text = rendered("monitoring", f"mode={mode}")
    strictly = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    said = control_plane.kubectl(*strictly, stdin=text)
    assert ("podmonitor.monitoring.coreos.com/coterie-kubeadm" in said) == (mode == "kubeadm")
    assert "prometheusrule.monitoring.coreos.com/coterie created" in said
    with pytest.raises(CommandFailed, match="intervall"):
        control_plane.kubectl(*strictly, stdin=text.replace("interval:", "intervall:"))


def test_a_release_has_what_prometheus_and_grafana_read(cluster, control_plane):
    """Installed, and gone with the release; rules and dashboards are those of the files."""
    cluster.run(*INSTALL, *VALUES)
    monitor, rules = (
        control_plane.client.get(
            f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/{kind}/gpus-coterie"
        ).json()
        for kind in ("podmonitors", "prometheusrules")
    )
    assert monitor["spec"]["podMetricsEndpoints"][0]["scrapeTimeout"] == "10s"
    groups = yaml.safe_load((CHART / "files" / "rules.yaml").read_text("utf-8"))["groups"]
    assert [len(one["rules"]) for one in rules["spec"]["groups"]] == [
        len(one["rules"]) for one in groups
    ]
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    query = {"labelSelector": "grafana_dashboard=1"}
    (boards,) = control_plane.client.get(path, params=query).json()["items"]
    assert {name: json.loads(text)["uid"] for name, text in boards["data"].items()} == {
        "coterie-cluster.json": "coterie-cluster",
        "coterie-node.json": "coterie-node",
    }
    cluster.run("uninstall", "gpus", "--namespace", "gpus")
    found = control_plane.kubectl(
        *("--namespace", NAMESPACE, "get", "podmonitors,prometheusrules,configmaps", "-o", "name")
    )
    assert "coterie" not in found
