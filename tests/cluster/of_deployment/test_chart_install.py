"""The chart on a real API server: what it takes, keeps and enforces under another name."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from dataclasses import dataclass, replace

import pytest

from tests.cluster.control.chart import CHART, Helm, HelmFailed
from tests.cluster.control.manifests import await_so
from tests.docs.markdown import ROOT
from topology.model import names

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

IMAGE = ("--set", "image.registry=registry.example,image.tag=v1.0")
PAGE = ROOT / "docs" / "operator-guide.md"
WAYS = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
FOREIGN = {"openshift", "monitoring"}
"""Ways with objects that a plain API server has no kinds for."""
SERVES = "mode=second-scheduler,plugin.mode=device-plugin"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
DRY_RUN = {"dryRun": "All"}
EVERYTHING = {
    "mode": "second-scheduler",
    "schedulerName": {"require": "deny"},
    "scheduler": {"podAnnotations": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    "extender": {"settings": {"log_level": "debug"}},
    "plugin": {
        "migStrategy": "mixed",
        "configMap": "sharing",
        "kubelet": {"caConfigMap": "kubelets"},
        "runtimeClassName": "nvidia",
        "podAnnotations": {"a": "b"},
    },
    "image": {"pullSecrets": ["own"]},
}
"""Values that no way has, together."""
SERIAL = itertools.count()


@pytest.fixture(scope="module")
def cluster(helm, control_plane):
    """Helm that talks to the control plane, which has NVIDIA's RuntimeClass."""
    made = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    control_plane.client.post("/apis/node.k8s.io/v1/runtimeclasses", json=made).raise_for_status()
    return replace(helm, kubeconfig=control_plane.admin)


@pytest.fixture
def kubernetes(control_plane):
    """What Helm renders without a cluster is rendered for this one's version."""
    return control_plane.binaries.version


@pytest.mark.parametrize("name", [*(one for one in WAYS if one not in FOREIGN), "everything"])
def test_the_api_server_takes_each_object(cluster, control_plane, tmp_path, kubernetes, name):
    """Strictly: an unknown field or an impossible value is refused."""
    if name == "everything":
        file = tmp_path / "values.yaml"
        file.write_text(json.dumps(EVERYTHING), encoding="utf-8")
        arguments = [*IMAGE, "-f", str(file)]
    else:
        arguments = ["-f", str(CHART / "ci" / f"{name}.yaml")]
    served = "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
    text = cluster.run(
        *("template", "coterie", str(CHART), "--namespace", "default"),
        *("--kube-version", kubernetes, "--api-versions", served, *arguments),
        *("--set", "node.createNamespace=false,node.namespace=kube-public"),
    )
    said = control_plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text
    )
    assert ("pod/coterie-test-plan created" in said) == (name not in {"audit", "kubeadm"})


def notes_of(cluster, values):
    """What Helm prints after an installation with these values, of which nothing is done."""
    said = cluster.run(
        *("install", "gpus", str(CHART), "--namespace", "team-a", "--dry-run=server"),
        *(*IMAGE, "--set", f"node.namespace=team-a-node,{values}"),
    )
    _, mark, notes = said.partition("\nNOTES:\n")
    assert mark
    # Steps are numbered from 1 on.
    steps = re.findall(r"^(\d)\. ", notes, re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    return notes


@pytest.mark.parametrize("mode", ["audit", "second-scheduler", "service", "kubeadm"])
def test_a_dry_run_on_the_server_says_the_next_commands(cluster, mode):
    """With the cluster's version, and objects of others looked up."""
    notes = notes_of(cluster, f"mode={mode}")
    if mode == "audit":
        assert "It has no effect on scheduling." in notes
        assert "--set mode=second-scheduler\n" in notes
    elif mode == "kubeadm":
        assert "lets user gpus-coterie-extender place GPU pods" in notes
        assert "label namespace" not in notes
    else:
        assert "GPU pods with schedulerName gpus-coterie-scheduler are placed" in notes
        assert f"kubectl label namespace team-a {RESTRICTED}" in notes
        assert "--set plugin.mode=device-plugin --set plugin.onlyLabelledNodes=true\n" in notes
        assert ("get secret gpus-coterie-extender-tls gpus-coterie-scheduler-tls" in notes) == (
            mode == "service"
        )
    rollouts = set(re.findall(r"kubectl --namespace (\S+) rollout status (\S+)", notes))
    expected = {("team-a-node", "daemonset/gpus-coterie-plugin")}
    if mode in {"second-scheduler", "service"}:
        expected.add(("team-a", "deployment/gpus-coterie-scheduler"))
    if mode == "service":
        expected.add(("team-a", "deployment/gpus-coterie-extender"))
    assert rollouts == expected


@pytest.mark.parametrize("mode", ["audit", "second-scheduler", "service"])
def test_notes_of_a_reporter_leave_nvidias_plugin_on(cluster, mode):
    """It serves no GPU; `helm test` would find the GPUs that NVIDIA's plugin has chosen."""
    notes = notes_of(cluster, f"mode={mode}")
    assert "helm test" not in notes
    assert "Switch NVIDIA's device plugin off" not in notes
    if mode != "audit":
        notes = notes_of(cluster, f"mode={mode},plugin.mode=device-plugin")
        assert "helm test gpus --namespace team-a --logs" in notes
        assert "Switch NVIDIA's device plugin off" in notes
    notes = notes_of(cluster, f"mode={mode},plugin.onlyLabelledNodes=true")
    assert "do not switch NVIDIA's device plugin off on these nodes" in notes
    (moved,) = re.findall(r"^ +helm upgrade (.*plugin\.mode=device-plugin)$", notes, re.MULTILINE)
    assert ("--set mode=second-scheduler" in moved) == (mode == "audit")


@pytest.mark.parametrize("mode", ["audit", "second-scheduler"])
def test_notes_say_how_to_see_that_the_operators_nodes_are_chosen(cluster, mode):
    """With a label that the operator does not set no node is, and the rollout succeeds."""
    profile = f"mode={mode},plugin.profile=gpu-operator"
    older = "nvidia.com/gpu.deploy.gpu-feature-discovery"
    notes = notes_of(cluster, profile)
    assert "kubectl --namespace team-a-node get daemonset gpus-coterie-plugin\n" in notes
    assert f"plugin.gpuOperator.clientLabel={older}\n" in notes
    assert "--label-columns=nvidia.com/gpu.deploy.client,nvidia.com/gpu.deploy.op" in notes
    notes = notes_of(cluster, f"{profile},plugin.gpuOperator.clientLabel={older}")
    assert f"--label-columns={older},nvidia.com/gpu.deploy.operator-validator\n" in notes
    assert "--set-string" not in notes
    assert "operator-validator" not in notes_of(cluster, f"mode={mode}")


def test_notes_name_the_labels_that_nodes_need(cluster):
    """The DaemonSet's own; with none of them the rollout succeeds without a pod."""
    notes = notes_of(cluster, "mode=second-scheduler")
    (daemonset,) = (
        one for one in cluster.objects(*IMAGE, release="gpus") if one["kind"] == "DaemonSet"
    )
    spec = daemonset["spec"]["template"]["spec"]
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [one["matchExpressions"] for one in affinity["nodeSelectorTerms"]]
    assert len(terms) == 5
    assert re.findall(r"^ +(\S+)=true$", notes, re.MULTILINE)[:5] == [
        one["key"] for (one,) in terms
    ]
    for values in ("plugin.onlyLabelledNodes=true", "plugin.profile=simulated"):
        assert "pci-10de" not in notes_of(cluster, f"{SERVES},{values}")


@pytest.mark.parametrize("mode", ["audit", SERVES.partition("=")[2]])
def test_notes_say_what_a_self_signed_kubelet_needs(cluster, mode):
    """The one reason by which a first installation commonly does not become ready."""
    command = "--set plugin.kubelet.caConfigMap=NAME\n"
    notes = notes_of(cluster, f"mode={mode}")
    assert command in notes
    assert ("their nodes offer no GPU" in notes) == (mode != "audit")
    assert command not in notes_of(cluster, f"mode={mode},plugin.kubelet.caConfigMap=ca")
    notes = notes_of(cluster, f"mode={mode},plugin.kubelet.insecure=true")
    assert command not in notes
    assert "plugin.kubelet.insecure is set" in notes


def test_notes_say_what_comes_before_an_uninstallation(cluster):
    """Afterwards no plugin is there that could clean its node."""
    notes = notes_of(cluster, "mode=second-scheduler")
    assert "--reset-then-reuse-values --set plugin.clean=true\n" in notes
    assert "helm uninstall" not in notes
    notes = notes_of(cluster, "mode=second-scheduler,schedulerName.inject=true")
    assert "--set plugin.clean=true --set schedulerName.inject=false\n" in notes
    for values in (
        "audit",
        "service",
        "second-scheduler,plugin.onlyLabelledNodes=true",
        SERVES.partition("=")[2],
    ):
        notes = notes_of(cluster, f"mode={values},plugin.clean=true")
        assert notes.rstrip().endswith("helm uninstall gpus --namespace team-a")
        assert "helm upgrade" not in notes  # nothing that goes forward
    assert "clean" not in notes_of(cluster, "mode=second-scheduler,plugin.enabled=false")


def test_the_pages_commands_do_what_it_says(cluster, control_plane, tmp_path):
    """From the reporter to the scheduler, the plugin and its removal, as somebody copies them."""
    page = PAGE.read_text(encoding="utf-8")
    (tmp_path / "helm").symlink_to(cluster.program)
    (tmp_path / "kubectl").symlink_to(control_plane.binaries.kubectl)
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(control_plane.admin),
    }
    arguments = []
    commands = r"^(?:helm (?:install|upgrade|uninstall)|kubectl label) (?:.*\\\n)*.*$"
    for command in re.findall(commands, page, re.MULTILINE):
        subprocess.run(["bash", "-euc", command], cwd=ROOT, env=environment, check=True)
        pods = control_plane.kubectl(
            *("get", "daemonsets,deployments", "--all-namespaces", "-o", "json")
        )
        arguments.append(
            {
                one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][-1]["args"]
                for one in json.loads(pods)["items"]
            }
        )
    plugin, scheduler = "coterie-plugin", "coterie-scheduler"
    reports, serves = ["run", "--mode=reporter"], ["run"]
    cleans = ["clean", "--annotations", "--stay"]
    assert arguments == [
        {plugin: reports},
        {plugin: reports, scheduler: ["serve"]},
        {plugin: reports, scheduler: ["serve"]},
        {plugin: serves, scheduler: ["serve"]},
        {plugin: serves, scheduler: ["serve"]},
        {plugin: cleans, scheduler: ["serve"]},
        {},
    ]


@dataclass(frozen=True)
class Release:
    """A release called `gpus` in a namespace of its own, which its notes' command makes strict."""

    helm: Helm
    namespace: str
    arguments: tuple[str, ...]

    def run(self, command, *arguments):
        """Run a command of Helm on it."""
        chart = [str(CHART)] if command in {"install", "upgrade"} else []
        values = self.arguments if chart else ()
        return self.helm.run(
            *(command, "gpus", *chart, "--namespace", self.namespace, *values, *arguments)
        )


@pytest.fixture
def release(cluster, control_plane):
    """A release with all parts of the Service way, gone after the test."""
    values = (
        "mode=service,plugin.mode=device-plugin,plugin.profile=simulated,schedulerName.require=warn"
    )
    namespace = f"team-{next(SERIAL)}"
    own = f"{values},node.namespace={namespace}-node"  # what ends stays: nothing collects it here
    one = Release(cluster, namespace, (*IMAGE, "--set", own))
    said = one.run("install", "--create-namespace")
    (command,) = re.findall(r"^ +kubectl (label namespace .*)$", said, re.MULTILINE)
    control_plane.kubectl(*command.split())
    yield one
    one.run("uninstall", "--ignore-not-found")


def test_all_reporters_become_device_plugins_at_once(cluster, control_plane):
    """Where NVIDIA's plugin is off, nodes that wait for others to be done would offer no GPU."""
    arguments = ("gpus", str(CHART), "--namespace", "moved", "--set", "node.namespace=moved-node")

    def at_once():
        path = "/apis/apps/v1/namespaces/moved-node/daemonsets/gpus-coterie-plugin"
        spec = control_plane.client.get(path).json()["spec"]
        return spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"]

    cluster.run("install", *arguments, "--create-namespace", *IMAGE)
    found = [at_once()]
    for mode in ("reporter", "device-plugin", "device-plugin", "reporter"):
        values = f"mode=second-scheduler,plugin.mode={mode}"
        cluster.run("upgrade", *arguments, "--reset-then-reuse-values", "--set", values)
        found.append(at_once())
    cluster.run("uninstall", "gpus", "--namespace", "moved")
    assert found == ["5%", "5%", "100%", "5%", "5%"]


THEIRS = [
    pytest.param(
        *("gpu-operator", {"app": "nvidia-device-plugin-daemonset"}, "mirror.example/plugin:1"),
        id="the GPU operator's, by its label",
    ),
    pytest.param(
        *("kube-system", {"name": "own"}, "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"),
        id="NVIDIA's, by its image",
    ),
    pytest.param(
        *("kube-system", {"k8s-app": "nvidia-gpu-device-plugin"}, "gke.gcr.io/plugin@sha256:1"),
        id="GKE's, by its label",
    ),
]
OF_NETWORK_CARDS = "nvcr.io/nvidia/mellanox/sriov-network-device-plugin:1"


def daemon_set(control_plane, namespace, labels, image, folder="/var/lib/kubelet/device-plugins"):
    """Make a DaemonSet that mounts a folder of the host; a function that deletes it."""
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    spec = {
        "containers": [{"name": "main", "image": image}],
        "volumes": [{"name": "folder", "hostPath": {"path": folder}}],
    }
    made = {
        "metadata": {"name": "theirs"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    space = {"metadata": {"name": namespace}}
    control_plane.client.post("/api/v1/namespaces", json=space)  # may be there
    control_plane.client.post(path, json=made).raise_for_status()
    return lambda: control_plane.client.delete(f"{path}/theirs").raise_for_status()


@pytest.mark.parametrize(("namespace", "labels", "image"), THEIRS)
def test_a_second_device_plugin_is_refused(cluster, control_plane, namespace, labels, image):
    """On installation and on upgrade; two of them on a node leave it without GPUs."""
    own = f"team-p{next(SERIAL)}"
    chart = ("gpus", str(CHART), "--namespace", own, *IMAGE, "--set", f"node.namespace={own}-node")
    upgrade = ("upgrade", *chart, "--dry-run=server", "--set")
    cluster.run("install", *chart, "--create-namespace")
    remove = daemon_set(control_plane, namespace, labels, image)
    try:
        cluster.run(*upgrade, "mode=second-scheduler")
        refused = rf"DaemonSet {namespace}/theirs.*replacesNvidia"
        with pytest.raises(HelmFailed, match=refused):
            cluster.run(*upgrade, SERVES)
        with pytest.raises(HelmFailed, match=refused):
            notes_of(cluster, SERVES)
        for meant in ("onlyLabelledNodes", "replacesNvidia", "clean"):
            cluster.run(*upgrade, f"{SERVES},plugin.{meant}=true")
        cluster.run(*upgrade, f"{SERVES},plugin.profile=simulated")
    finally:
        remove()
        cluster.run("uninstall", "gpus", "--namespace", own)


@pytest.mark.parametrize(
    ("labels", "image", "folder"),
    [
        ({"app": "sriov"}, OF_NETWORK_CARDS, "/var/lib/kubelet/device-plugins"),
        ({"app.kubernetes.io/name": "nvidia-device-plugin"}, "gfd:1", "/sys"),
    ],
    ids=["a plugin of network cards", "feature discovery of NVIDIA's chart, with its labels"],
)
def test_a_daemon_set_that_serves_no_gpu_is_no_fault(cluster, control_plane, labels, image, folder):
    """Such are on most clusters with GPUs."""
    remove = daemon_set(control_plane, "kube-system", labels, image, folder)
    try:
        assert "Switch NVIDIA's device plugin off" in notes_of(cluster, SERVES)
    finally:
        remove()


def test_an_upgrade_keeps_what_people_have_scaled(release, control_plane):
    """Helm 4 ends in a conflict where it writes another number; a value still decides."""
    scale = ("--namespace", release.namespace, "scale", "deployment/gpus-coterie-scheduler")
    path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments/gpus-coterie-scheduler"

    def replicas():
        return control_plane.client.get(path).json()["spec"]["replicas"]

    assert replicas() == 2
    control_plane.kubectl(*scale, "--replicas=3")
    release.run("upgrade", "--set", "extender.settings.log_level=debug")
    assert replicas() == 3
    control_plane.kubectl(*scale, "--replicas=2")
    release.run("upgrade", "--set", "scheduler.replicas=2")
    assert replicas() == 2


def test_policies_know_the_releases_own_accounts(release, control_plane):
    """The extender of this name and namespace writes its annotations, and another does not."""
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    control_plane.client.post(pods, json=pod).raise_for_status()
    forged = {"metadata": {"annotations": {names.RETRY: "1"}}}

    def patched(account):
        return control_plane.client.patch(
            f"{pods}/pod",
            json=forged,
            params=DRY_RUN,
            headers={
                "Content-Type": "application/merge-patch+json",
                "Impersonate-User": f"system:serviceaccount:{account}",
                "Impersonate-Group": "system:masters",
            },
        ).status_code

    own, foreign = f"{release.namespace}:gpus-coterie-extender", "coterie-system:coterie-extender"
    await_so(lambda: (patched(own), patched(foreign)) == (200, 403), "own keys")
    assert patched("default:gpus-coterie-extender") == 403


def test_pods_of_a_release_pass_pod_security(release, control_plane):
    """In the namespace that the notes' command has made strict, the test's pod among them."""
    namespace = release.namespace
    answer = control_plane.kubectl(
        *("--namespace", namespace, "apply", "--dry-run=server", "-f", "-"),
        stdin=release.helm.run("get", "hooks", "gpus", "--namespace", namespace),
    )
    assert "pod/gpus-coterie-test-plan created" in answer
    for name in ("scheduler", "extender"):
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/gpus-coterie-{name}"
        template = control_plane.client.get(path).json()["spec"]["template"]
        template["metadata"]["name"] = "trial"
        answer = control_plane.client.post(
            f"/api/v1/namespaces/{namespace}/pods", json=template, params=DRY_RUN
        )
        assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("mode", ["second-scheduler", "service"])
def test_readers_who_can_bind_are_named(cluster, mode):
    """Beside a second scheduler a port-forward reaches the verbs."""
    reader = "extender.readApi.readers[0].kind=User,extender.readApi.readers[0].name=jane"
    notes = notes_of(cluster, f"mode={mode},{reader}")
    assert ("extender.readApi.readers is set" in notes) == (mode == "second-scheduler")


@pytest.mark.usefixtures("release")
def test_another_release_beside_it_is_refused(cluster):
    """Its policies would refuse the first one's annotations."""
    install = ("install", "more", str(CHART), "--namespace", "elsewhere", "--dry-run=server")
    with pytest.raises(HelmFailed) as refused:
        cluster.run(*install, *IMAGE, "--set", "mode=second-scheduler")
    said = str(refused.value)
    assert "a scheduler of Coterie's already (ValidatingAdmissionPolicy gpus-coterie-own" in said
    assert "a node plugin of Coterie's already (ValidatingAdmissionPolicy gpus-coterie-n" in said


def test_what_is_uninstalled_is_gone(release, control_plane):
    """All that is cluster-wide, and what lies in namespaces of others."""
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,roles,rolebindings"
    found = ("get", f"{kinds},validatingadmissionpolicybindings", "--all-namespaces", "-o", "name")
    assert control_plane.kubectl(*found).count("/gpus-coterie-") == 24
    release.run("uninstall")
    assert "gpus-coterie" not in control_plane.kubectl(*found)
