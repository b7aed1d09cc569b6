"""PodMonitors find the ports that are there, and make the labels that rules rely on."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.cluster.control.chart import CHART
from tests.cluster.control.manifests import Mode, documents, extender_pod, objects

pytestmark = pytest.mark.cluster

RULES = [
    rule
    for group in yaml.safe_load((CHART / "files" / "rules.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
PORTS = {**{mode.value: mode for mode in Mode}, "plugin": None}


def monitors(mode):
    """The specs of the PodMonitors of a mode."""
    values = (f"mode={mode}", "monitoring.namespace=monitoring")
    return [one["spec"] for one in documents("monitoring/pod-monitor", "monitoring", *values)]


@pytest.mark.parametrize("mode", [Mode.SECOND_SCHEDULER, Mode.SERVICE])
def test_every_workload_is_scraped(mode):
    """By labels and namespace; the job is what the rules expect."""
    (spec,) = monitors(mode.value)
    workloads = [one for one in objects(mode.value) if one["kind"] in {"Deployment", "DaemonSet"}]
    assert len(workloads) == (3 if mode is Mode.SERVICE else 2)
    for one in workloads:
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert one["metadata"]["namespace"] in spec["namespaceSelector"]["matchNames"]
        assert labels[spec["jobLabel"]] == one["metadata"]["name"]


def test_static_pods_are_scraped_where_they_are():
    """They have kubeadm's label and namespace, the plugins their own."""
    plugins, static = monitors("kubeadm")
    assert plugins["namespaceSelector"]["matchNames"] == ["coterie-node"]
    assert static["namespaceSelector"]["matchNames"] == ["kube-system"]
    assert static["selector"]["matchLabels"] == {"component": "kube-scheduler"}


@pytest.mark.parametrize("name", PORTS)
def test_the_port_that_is_scraped_has_its_name(name):
    """Prometheus' discovery takes containers' named ports."""
    mode = PORTS[name]
    if mode is None:
        (plugins,) = documents("plugin/daemonset")
        pod = plugins["spec"]["template"]["spec"]
    else:
        pod = extender_pod(mode)
    ports = [port["name"] for one in pod["containers"] for port in one.get("ports", ())]
    for monitor in monitors("kubeadm"):
        (endpoint,) = monitor["podMetricsEndpoints"]
        assert ports.count(endpoint["port"]) == 1


def test_rules_and_monitors_have_the_same_job_and_node():
    """`up` of another job would never be 0."""
    jobs = {job for rule in RULES for job in re.findall(r'job="([^"]+)"', rule["expr"])}
    assert jobs == {"coterie-plugin"}
    for monitor in monitors("kubeadm"):
        (endpoint,) = monitor["podMetricsEndpoints"]
        assert "node" in {one["targetLabel"] for one in endpoint["relabelings"]}
