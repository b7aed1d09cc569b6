"""The chart as Helm renders it: as manifests, under any name and in any namespace."""

from __future__ import annotations

import json
import os
import re

import pytest

import deploy.manifests
from deploy.manifests import PARTS
from tests.cluster.control.chart import CHART
from tests.cluster.control.manifests import objects, rendered

pytestmark = pytest.mark.cluster

WAYS = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
SYSTEM = "coterie-system"
CLUSTER_WIDE = ("Namespace", "ClusterRole", "ClusterRoleBinding", "SecurityContextConstraints")
MONITORING = "monitoring.coreos.com/v1"
SERVED = ("--api-versions", MONITORING)


def way(name):
    """The arguments that choose the values of a way, on a cluster with Prometheus' operator."""
    return ("-f", str(CHART / "ci" / f"{name}.yaml"), *SERVED)


def identity(one):
    """Kind, namespace and name."""
    metadata = one["metadata"]
    return one["kind"], metadata.get("namespace", ""), metadata["name"]


@pytest.mark.parametrize("name", WAYS)
def test_manifests_are_whole_and_say_nothing_of_helm(name):
    """What kubectl applies is no release; a part has what its templates make, and no more."""
    text = rendered(name)
    assert "Helm" not in re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE)
    assert "helm.sh" not in text
    found = {one["kind"] for one in objects(name)}
    is_part = name in PARTS
    assert ("ClusterRole" in found) == (not is_part)
    assert ("Namespace" in found) == (not is_part)
    assert ("DaemonSet" in found) == (not is_part or "plugin/daemonset.yaml" in PARTS[name])


def test_manifests_are_written_into_a_folder(helm, tmp_path, monkeypatch):
    """With the registry and the tag that were given."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "helm").symlink_to(helm.program)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    options = ("--registry", "registry.example", "--tag", "2.0", "--kubernetes", "v1.35.4")
    assert deploy.manifests.main(("--output", str(tmp_path / "made"), *options)) == 0
    files = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "made").iterdir()}
    assert sorted(files) == WAYS
    assert "image: registry.example/coterie/plugin:2.0\n" in files["device-plugin"]
    assert "image: registry.k8s.io/kube-scheduler:v1.35.4\n" in files["service"]
    assert "admissionregistration.k8s.io/v1beta1" in files["scheduler-name"]


@pytest.mark.parametrize("name", WAYS)
def test_lint_finds_nothing(helm, name):
    """Helm's own rules, warnings included."""
    helm.run(
        "lint",
        "--strict",
        "--kube-version",
        "v1.36.3",
        "-f",
        str(CHART / "ci" / f"{name}.yaml"),
        str(CHART),
    )


# Any name, any namespace

RELEASES = (("one", "team-a", "one-coterie"), ("my-coterie", "gpus", "my-coterie"))


def everything(helm, release, namespace):
    """The objects of all ways but monitoring, which names metrics, alerts and documents.

    Under another name and in other namespaces.
    """
    for name in set(WAYS) - {"monitoring"}:
        yield from helm.objects(
            *(*way(name), "--set", f"node.namespace={namespace}-node"),
            release=release,
            namespace=namespace,
        )


def test_everything_follows_release_and_namespace(helm):
    """Accounts in CEL and in bindings too; two releases share nothing that is cluster-wide."""
    wide = []
    for release, namespace, full_name in RELEASES:
        made = list(everything(helm, release, namespace))
        text = json.dumps(made).replace("coterie-0.0.0", "")  # the chart's own label
        assert SYSTEM not in text
        others = set(re.findall(r"(?<![\w./-])[\w-]*coterie-\w[\w-]*", text))
        assert {one for one in others if not one.startswith(f"{full_name}-")} == set()
        accounts = set(re.findall(r"system:serviceaccount:([\w:-]+)", text))
        assert accounts == {
            f"{namespace}:{full_name}-extender",
            f"{namespace}-node:{full_name}-plugin",
        }
        used = {one["metadata"].get("namespace") for one in made}
        assert used == {None, namespace, f"{namespace}-node", "kube-system", "default"}
        wide.append(
            {
                identity(one)
                for one in made
                if one["metadata"].get("namespace") in {None, "kube-system", "default"}
            }
        )
    assert wide[0] & wide[1] == set()
    assert {kind for kind, _, _ in wide[0]} >= set(CLUSTER_WIDE)


def monitoring(helm, *values):
    """The three objects for Prometheus and Grafana of a release called `gpus`, by their kinds."""
    found = helm.objects(
        *(*way("monitoring"), "--set", "monitoring.namespace=", *values),
        release="gpus",
        namespace="team-a",
    )
    kinds = ("PodMonitor", "PrometheusRule", "ConfigMap")
    made = {
        one["kind"]: one
        for one in found
        if one["kind"] in kinds and one["metadata"]["name"] != "gpus-coterie-scheduler-config"
    }
    assert {one["metadata"]["namespace"] for one in made.values()} == {"team-a"}
    assert tuple(sorted(made, key=kinds.index)) == kinds
    return made


def test_alerts_and_scrapes_follow_the_release(helm):
    """By another job or namespace `up` would never be 0, and there would be no target."""
    made = monitoring(helm)
    assert made["PodMonitor"]["spec"]["namespaceSelector"] == {
        "matchNames": ["team-a", "coterie-node"]
    }
    rules = {
        rule["alert"]: rule["expr"]
        for group in made["PrometheusRule"]["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert rules["CoteriePluginDown"] == 'up{job="gpus-coterie-plugin"} == 0'
    assert '{daemonset=~"(.+-)?gpus-coterie-plugin"}' in rules["CoteriePluginUnavailable"]


@pytest.mark.parametrize(
    ("values", "namespaces", "groups", "dashboards"),
    [
        (
            *("mode=audit,plugin.mode=reporter", ["coterie-node"]),
            *(["coterie-plugin"], ["coterie-node.json"]),
        ),
        (
            *("plugin.mode=reporter", ["team-a", "coterie-node"]),
            ["coterie-extender", "coterie-plugin", "coterie-plans", "coterie-recorded"],
            ["coterie-cluster.json", "coterie-node.json"],
        ),
        (
            *("plugin.enabled=false", ["team-a"]),
            *(["coterie-extender", "coterie-recorded"], ["coterie-cluster.json"]),
        ),
    ],
)
def test_only_what_is_installed_is_monitored(helm, values, namespaces, groups, dashboards):
    """An alert about an absent extender would fire for ever where none is to be."""
    made = monitoring(helm, "--set", values)
    assert made["PodMonitor"]["spec"]["namespaceSelector"]["matchNames"] == namespaces
    found = made["PrometheusRule"]["spec"]["groups"]
    assert [one["name"] for one in found] == groups
    assert list(made["ConfigMap"]["data"]) == dashboards


def test_no_selector_has_what_a_release_changes(helm):
    """Selectors cannot be changed: a version in one would end each upgrade."""
    for one in everything(helm, "one", "team-a"):
        if one["kind"] in {"Deployment", "DaemonSet"}:
            assert one["spec"]["selector"] == {
                "matchLabels": {"app.kubernetes.io/name": one["metadata"]["name"]}
            }
