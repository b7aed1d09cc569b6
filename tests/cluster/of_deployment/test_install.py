"""docs/install.md: what a reader copies does what the page says, on a real API server."""

from __future__ import annotations

import base64
import os
import re
import ssl
import subprocess

import pytest
import yaml

from deploy.manifests import PARTS, WAYS
from extender.http.tls import Certificates, TlsFiles
from tests.cluster.control.manifests import (
    NAMESPACE,
    Mode,
    documents,
    install,
    objects,
    rendered,
)
from tests.docs.markdown import ROOT, blocks

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

PAGE = ROOT / "docs" / "install.md"
GUIDE = ROOT / "docs" / "operator-guide.md"
DRY_RUN = {"dryRun": "All"}
UNSET = "set-your-registry.invalid/coterie"
SERVICE = f"coterie-extender.{NAMESPACE}.svc"


def block(language, containing, page=PAGE):
    """The one code block of the page in that language with these words in it."""
    (found,) = [
        one.text for one in blocks(page) if one.language == language and containing in one.text
    ]
    return found


@pytest.fixture
def reader(control_plane, tmp_path):
    """Run a block of the page in the reader's folder, with kubectl at hand."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(control_plane.binaries.kubectl)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(control_plane.admin),
    }

    def run(text):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def manifest(folder, name):
    """A manifest where `make manifests` writes it, with no registry."""
    path = folder / "dist" / "manifests" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = rendered(name).replace("registry.example/coterie", UNSET)
    path.write_text(text, encoding="utf-8")


def test_an_own_kustomization_sets_the_images(binaries, tmp_path):
    """All images come from where the reader says; kube-scheduler's from Kubernetes itself."""
    manifest(tmp_path, "second-scheduler")
    text = block("yaml", "kind: Kustomization")
    (tmp_path / "kustomization.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [binaries.kubectl, "kustomize", tmp_path], capture_output=True, text=True, check=True
    )
    found = {
        container["image"]
        for one in yaml.safe_load_all(done.stdout)
        if one["kind"] in {"DaemonSet", "Deployment"}
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    assert found == {
        "registry.example/coterie/plugin:1.0",
        "registry.example/coterie/extender:1.0",
        f"registry.k8s.io/kube-scheduler:{binaries.version}",
    }


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("second-scheduler", "service", {"Secret/coterie-extender-token"}),
        (
            "service",
            "second-scheduler",
            {f"{kind}/coterie-extender" for kind in ("Deployment", "Service", "NetworkPolicy")},
        ),
    ],
)
def test_the_way_is_changed_by_applying_the_other(reader, tmp_path, old, new, left):
    """The API server accepts it, and what the page names is all that is left of the old way."""
    made = {}
    for name in (old, new):
        manifest(tmp_path, name)
        file = yaml.safe_load_all((tmp_path / f"dist/manifests/{name}.yaml").read_text("utf-8"))
        made[name] = {f"{one['kind']}/{one['metadata']['name']}" for one in file if one}
        reader(f"kubectl apply -f dist/manifests/{name}.yaml")
    assert made[old] - made[new] == left
    page = PAGE.read_text("utf-8")
    assert [one for one in left if f"`{one.lower()}`" not in page] == []


def test_certificates_are_what_both_sides_need(reader, tmp_path, control_plane):
    """Of the Secrets that the two Deployments mount only the scheduler's is a client's."""
    reader(block("bash", "create secret generic"))
    folders = {}
    for name in ("extender", "scheduler"):
        secret = control_plane.client.get(
            f"/api/v1/namespaces/{NAMESPACE}/secrets/coterie-{name}-tls"
        ).json()
        folders[name] = tmp_path / name
        folders[name].mkdir()
        for key, value in secret["data"].items():
            (folders[name] / key).write_bytes(base64.b64decode(value))
    files = folders["extender"]
    server = Certificates(TlsFiles(files / "tls.crt", files / "tls.key", files / "ca.crt")).server
    shown = shake_hands(client_context(folders["scheduler"]), server, SERVICE)
    assert shown == ((("commonName", "coterie-scheduler"),),)
    with pytest.raises(ssl.SSLError):
        shake_hands(client_context(files), server, SERVICE)


def test_certificates_of_a_control_plane_host_are_for_its_two_programs(reader, tmp_path):
    """kube-scheduler calls the loopback address; no third certificate can be made."""
    stub = tmp_path / "bin" / "chown"
    stub.write_text("#!/bin/sh\n")
    stub.chmod(0o755)
    root = tmp_path / "etc" / "kubernetes" / "coterie"
    text = block("bash", "chown -R 65532:65532")
    reader(text.replace("/etc/kubernetes/coterie", str(root)))
    own = root / "extender-tls"
    server = Certificates(TlsFiles(own / "tls.crt", own / "tls.key", own / "ca.crt")).server
    shown = shake_hands(client_context(root / "scheduler-tls"), server, "127.0.0.1")
    assert shown == ((("commonName", "coterie-scheduler"),),)
    with pytest.raises(ssl.SSLError):
        shake_hands(ssl.create_default_context(cafile=own / "ca.crt"), server, "127.0.0.1")
    left = {
        one.name for one in tmp_path.rglob("*") if one.suffix in {".key", ".crt", ".csr", ".srl"}
    }
    assert left == {"ca.crt", "tls.crt", "tls.key"}


def client_context(folder):
    """A client with the certificate of a folder."""
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    client.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return client


def shake_hands(client, server, name):
    """Let two TLS contexts shake hands in memory; whose certificate the client showed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting
    shown = ends[1].getpeercert()
    assert shown is not None
    return shown["subject"]


def test_the_pod_to_try_with_is_one(control_plane):
    """The reader's first pod must not be refused by what he has just installed."""
    pod = yaml.safe_load(block("yaml", "try-coterie", GUIDE))
    install(control_plane, Mode.SECOND_SCHEDULER)
    answer = control_plane.client.post("/api/v1/namespaces/default/pods", json=pod, params=DRY_RUN)
    assert answer.status_code == 201, answer.text


# What the page says of policies and rights

POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")


@pytest.fixture(scope="module")
def made():
    """The objects of all manifests."""
    return [one for name in (*WAYS, *PARTS) for one in objects(name)]


def part(heading):
    """The text of a section."""
    return PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def names_of(made, *kinds):
    """The names of all objects of these kinds, each once."""
    return {one["metadata"]["name"] for one in made if one["kind"] in kinds}


def test_every_policy_is_named(made):
    """Whoever has a write refused by it looks it up here."""
    rows = set(re.findall(r"^\| `([\w-]+)` \|", part("What else is applied"), re.MULTILINE))
    assert rows == names_of(made, *POLICIES)


def test_one_command_disables_all_policies(made):
    """A policy that fails closed may have to be switched off in a hurry."""
    command = block("sh", "admissionpolicybinding/")
    kinds = {f"{kind}Binding" for kind in POLICIES}
    bindings = {
        (one["kind"].lower(), one["metadata"]["name"]) for one in made if one["kind"] in kinds
    }
    assert set(re.findall(r"(\w+)/([\w-]+)", command)) == bindings


def test_every_role_that_is_bound_is_named(made):
    """Whoever reviews the installation must find each right, the plugin's too."""
    roles = {one["roleRef"]["name"] for one in made if "roleRef" in one}
    named = set(re.findall(r"`([\w:-]+)`", part("What else is applied")))
    assert (roles | names_of(made, "ClusterRole", "Role")) - named == set()


def test_what_the_ways_share_is_named():
    """What modes have under one name, and not alike, is why only one can be applied."""

    def of(mode):
        found = objects(mode.value, "plugin.enabled=false")
        return {(one["kind"], one["metadata"]["name"]): one for one in found}

    pods, static = of(Mode.SECOND_SCHEDULER), of(Mode.KUBEADM)
    differ = {
        name for kind, name in pods.keys() & static.keys() if pods[kind, name] != static[kind, name]
    }
    assert {"coterie-extender", "coterie-own-keys", "coterie-reader"} <= differ
    assert differ - set(re.findall(r"`([\w-]+)`", part("Choose a way"))) == set()


def test_kyverno_gets_the_conditions_of_our_own_policy():
    """Both must send the same pods to the same scheduler."""
    spec = yaml.safe_load(block("yaml", "kind: MutatingPolicy"))["spec"]
    own = documents("scheduler/scheduler-name", "scheduler-name")[0]["spec"]
    for key in ("matchConstraints", "matchConditions", "mutations"):
        assert spec[key] == own[key]
    beside = documents("scheduler/scheduler-name", "scheduler-name-required")[0]["spec"]
    assert beside["matchConditions"] == own["matchConditions"][1:]


def test_annotations_of_others_on_bindings_are_added_to_the_policy():
    """The patch must meet the variable that it means, and keep what the extender needs."""
    (change_of,) = yaml.safe_load(block("yaml", "/spec/variables/"))["patches"]
    check, change = yaml.safe_load(change_of["patch"])
    policy, _ = documents("rights/extender-rights")
    assert change_of["target"] == {"kind": policy["kind"], "name": policy["metadata"]["name"]}
    number = int(check["path"].split("/")[3])
    variable = policy["spec"]["variables"][number]
    assert (check["op"], check["path"]) == ("test", f"/spec/variables/{number}/name")
    assert (variable["name"], change["path"]) == (
        check["value"],
        f"/spec/variables/{number}/expression",
    )
    assert change["value"].replace(", 'example.com/rack'", "") == variable["expression"]
