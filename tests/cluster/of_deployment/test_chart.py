"""The chart as Helm renders it: equal to deploy/, under any name and in any namespace."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

import pytest
import yaml

from tests.cluster.control.chart import CHART
from tests.cluster.control.manifests import DEPLOY, render

pytestmark = pytest.mark.cluster

WAYS = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
SYSTEM = "coterie-system"
HELM_LABELS = {"instance", "managed-by", "version"}
POD_USER = {"runAsUser", "runAsGroup", "fsGroup"}
CLUSTER_WIDE = ("Namespace", "ClusterRole", "ClusterRoleBinding", "SecurityContextConstraints")
MONITORING = "monitoring.coreos.com/v1"
SERVED = ("--api-versions", MONITORING)


def way(name):
    """The arguments that choose the values of a way, on a cluster with Prometheus' operator."""
    return ("-f", str(CHART / "ci" / f"{name}.yaml"), *SERVED)


# Equal to deploy/


@dataclass(frozen=True)
class Counterpart:
    """What a way is in deploy/."""

    folders: tuple[str, ...]
    components: tuple[str, ...] = ()
    is_monitored: bool = False
    """Whether what is in deploy/monitoring is a part of it."""
    group_kinds: str = ""
    """The extender's setting, which a reader of deploy/ adds there."""


SECOND = "second-scheduler"
COUNTERPARTS = {
    "audit": Counterpart(("plugin-reporter",)),
    "audit-gpu-operator": Counterpart(("plugin-reporter",), ("plugin-gpu-operator-client",)),
    "second-scheduler": Counterpart((SECOND, "plugin")),
    "service": Counterpart(("service", "plugin")),
    "reporter": Counterpart((SECOND, "plugin-reporter")),
    "simulated": Counterpart((SECOND, "plugin-simulated")),
    "gpu-operator": Counterpart((SECOND, "plugin"), ("plugin-gpu-operator",)),
    "gpu-operator-host-driver": Counterpart(
        (SECOND, "plugin"), ("plugin-gpu-operator-host-driver",)
    ),
    "openshift": Counterpart((SECOND, "plugin"), ("plugin-gpu-operator", "plugin-openshift")),
    "cdi": Counterpart((SECOND, "plugin"), ("plugin-cdi",)),
    "volume-mounts": Counterpart((SECOND, "plugin"), ("plugin-volume-mounts",)),
    "clean": Counterpart((SECOND, "plugin"), ("plugin-clean",)),
    "clean-volume-mounts": Counterpart(
        (SECOND, "plugin"), ("plugin-volume-mounts", "plugin-clean")
    ),
    "clean-gpu-operator": Counterpart((SECOND, "plugin"), ("plugin-gpu-operator", "plugin-clean")),
    "labelled-nodes": Counterpart((SECOND, "plugin"), ("plugin-labelled-nodes",)),
    "scheduler-name": Counterpart((SECOND, "scheduler-name")),
    "scheduler-name-warn": Counterpart((SECOND, "scheduler-name-warn")),
    "scheduler-name-deny": Counterpart((SECOND, "scheduler-name-deny")),
    "monitoring": Counterpart((SECOND, "plugin"), is_monitored=True),
    "group-kinds": Counterpart(
        (SECOND, "plugin", "group-kinds"), group_kinds="indexed-job, jobset, coscheduling"
    ),
}
NEVER_ALONE = {"base", "scheduler"}
"""Folders that are parts of others."""


def test_every_way_of_deploy_is_one_of_the_charts():
    """A folder that is added to deploy/ is added to the chart, or said to be none of its."""
    named = {one for way_ in COUNTERPARTS.values() for one in (*way_.folders, *way_.components)}
    folders = {path.parent.name for path in DEPLOY.glob("*/kustomization.yaml")} - NEVER_ALONE
    assert folders - named == {"kubeadm", "scheduler-name-v1beta1"}
    assert set(COUNTERPARTS) == set(WAYS)


def of_deploy(binaries, folder, counterpart, scheduler="v1.36.3"):
    """The objects of a reader's own kustomization of these folders, with their own images."""

    def paths(names):
        return [os.path.relpath(DEPLOY / name, folder) for name in names]

    tags = {
        "set-your-registry.invalid/coterie/plugin": "1.0",
        "set-your-registry.invalid/coterie/extender": "1.0",
        "registry.k8s.io/kube-scheduler": scheduler,
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": paths(counterpart.folders),
        "components": paths(counterpart.components),
        "images": [
            {
                "name": name,
                "newName": f"registry.example/{name.partition('/')[2]}",
                "newTag": tag,
            }
            for name, tag in tags.items()
        ],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
    return render(binaries.kubectl, folder)


def of_monitoring():
    """What deploy/monitoring is as objects: its PodMonitor, and the files that no cluster reads."""
    folder = DEPLOY / "monitoring"
    metadata = {"name": "coterie", "namespace": "monitoring"}
    yield yaml.safe_load((folder / "podmonitor.yaml").read_text(encoding="utf-8"))
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
    yield {"apiVersion": MONITORING, "kind": "PrometheusRule", "metadata": metadata, "spec": rules}
    dashboards = (CHART / "files" / "dashboards").iterdir()
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **metadata,
            "name": "coterie-dashboards",
            "labels": {"grafana_dashboard": "1"},  # what Grafana's chart looks for
        },
        "data": {one.name: one.read_text(encoding="utf-8") for one in dashboards},
    }


def identity(one):
    """Kind, namespace and name."""
    metadata = one["metadata"]
    return one["kind"], metadata.get("namespace", ""), metadata["name"]


def comparable(one):
    """An object without what the two ways of writing it add, its lists in one order."""
    text = re.sub(r"(coterie-scheduler-config)-[a-z0-9]{10}\b", r"\1", json.dumps(one))
    one = json.loads(text)
    labels = one["metadata"].get("labels", {})
    for key in list(labels):
        prefix, _, name = key.partition("/")
        if prefix == "helm.sh" or (prefix == "app.kubernetes.io" and name in HELM_LABELS):
            del labels[key]
    labels.pop("app.kubernetes.io/part-of", None)
    if not labels:
        one["metadata"].pop("labels", None)
    if one["kind"] == "ConfigMap":
        one["data"] = {
            key: (json.loads if key.endswith(".json") else yaml.safe_load)(value)
            for key, value in one["data"].items()
        }
    if one["kind"] in {"Deployment", "DaemonSet"}:
        template = one["spec"]["template"]
        annotations = template["metadata"].pop("annotations", {})
        assert not annotations or annotations.keys() == {"checksum/config"}
        spec = template["spec"]
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            # What the API server fills in for a tag other than `latest`.
            assert container.pop("imagePullPolicy", "IfNotPresent") == "IfNotPresent"
            container.get("env", []).sort(key=lambda entry: entry["name"])
            container.get("volumeMounts", []).sort(key=lambda entry: entry["mountPath"])
        spec["volumes"].sort(key=lambda entry: entry["name"])
    return one


def by_identity(objects):
    """Comparable objects, by kind, namespace and name."""
    made = {identity(one): one for one in map(comparable, objects)}
    assert len(made) == len(objects)
    return made


@pytest.mark.parametrize("name", WAYS)
def test_each_way_is_that_of_deploy(binaries, helm, tmp_path, name):
    """Object by object, field by field: who changes one and forgets the other hears of it here."""
    counterpart = COUNTERPARTS[name]
    monitoring = of_monitoring() if counterpart.is_monitored else ()
    expected = by_identity([*of_deploy(binaries, tmp_path, counterpart), *monitoring])
    # Helm makes a release's namespace, or finds it; NOTES say how to label it.
    expected.pop(("Namespace", "", SYSTEM), None)
    if name == "openshift":  # deploy/ leaves the scheduler to the reader's own kustomization there
        spec = expected["Deployment", SYSTEM, "coterie-scheduler"]["spec"]["template"]["spec"]
        for key in POD_USER:
            del spec["securityContext"][key]
    if counterpart.group_kinds:
        spec = expected["Deployment", SYSTEM, "coterie-scheduler"]["spec"]["template"]["spec"]
        env = next(one["env"] for one in spec["containers"] if one["name"] == "extender")
        env.append({"name": "COTERIE_EXTENDER_GROUP_KINDS", "value": counterpart.group_kinds})
        env.sort(key=lambda entry: entry["name"])
    made = by_identity(helm.objects(*way(name)))
    assert made.keys() == expected.keys()
    for key, one in made.items():
        assert one == expected[key], key


def test_before_1_36_the_policy_is_the_beta_one(binaries, helm, tmp_path):
    """Where the API server serves it: without that the values are refused."""
    folders = Counterpart((SECOND, "scheduler-name-v1beta1"))
    expected = by_identity(of_deploy(binaries, tmp_path, folders, scheduler="v1.35.4"))
    del expected["Namespace", "", SYSTEM]
    served = "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
    made = helm.objects(
        *(*way("scheduler-name"), "--set", "scheduler.image.tag=v1.35.4"),
        *("--api-versions", served),
        kubernetes="v1.35.4",
    )
    assert by_identity(made) == expected


@pytest.mark.parametrize(
    ("name", "kinds", "granted"),
    [
        ("second-scheduler", "", set()),
        ("second-scheduler", "jobset", {"jobset"}),
        ("service", "kueue\\, indexed-job\\,coscheduling", {"indexed-job", "coscheduling"}),
        ("audit", "jobset", set()),
    ],
)
def test_a_kind_of_groups_has_its_right_where_the_setting_names_it(helm, name, kinds, granted):
    """A right for what is not read is an attacker's."""
    made = helm.objects(*way(name), "--set", f"extender.settings.group_kinds={kinds}")
    prefix = "coterie-extender-"
    for of in ("ClusterRole", "ClusterRoleBinding"):
        names = [one["metadata"]["name"] for one in made if one["kind"] == of]
        found = {one.removeprefix(prefix) for one in names if one.startswith(prefix)}
        assert found == granted


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
        objects = list(everything(helm, release, namespace))
        text = json.dumps(objects).replace("coterie-0.0.0", "")  # the chart's own label
        assert SYSTEM not in text
        others = set(re.findall(r"(?<![\w./-])[\w-]*coterie-\w[\w-]*", text))
        assert {one for one in others if not one.startswith(f"{full_name}-")} == set()
        accounts = set(re.findall(r"system:serviceaccount:([\w:-]+)", text))
        assert accounts == {
            f"{namespace}:{full_name}-extender",
            f"{namespace}-node:{full_name}-plugin",
        }
        used = {one["metadata"].get("namespace") for one in objects}
        assert used == {None, namespace, f"{namespace}-node", "kube-system", "default"}
        wide.append(
            {
                identity(one)
                for one in objects
                if one["metadata"].get("namespace") in {None, "kube-system", "default"}
            }
        )
    assert wide[0] & wide[1] == set()
    assert {kind for kind, _, _ in wide[0]} >= set(CLUSTER_WIDE)


def monitoring(helm, *values):
    """The three objects for Prometheus and Grafana of a release called `gpus`, by their kinds."""
    objects = helm.objects(
        *(*way("monitoring"), "--set", "monitoring.namespace=", *values),
        release="gpus",
        namespace="team-a",
    )
    kinds = ("PodMonitor", "PrometheusRule", "ConfigMap")
    made = {
        one["kind"]: one
        for one in objects
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
