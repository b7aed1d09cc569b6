"""docs/install.md: what a reader copies does what the page says, on a real API server."""

from __future__ import annotations

import base64
import os
import shutil
import ssl
import subprocess

import pytest
import yaml

from extender.http.tls import Certificates, TlsFiles
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.manifests import (
    DEPLOY,
    NAMESPACE,
    Mode,
    await_so,
    install,
    render,
    scheduler_name_folder,
    send_gpu_pods,
)
from tests.docs.markdown import ROOT, blocks

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

PAGE = ROOT / "docs" / "install.md"
GUIDE = ROOT / "docs" / "operator-guide.md"
DRY_RUN = {"dryRun": "All"}
SERVICE = f"coterie-extender.{NAMESPACE}.svc"


def block(language, containing, page=PAGE):
    """The one code block of the page in that language with these words in it."""
    (found,) = [
        one.text for one in blocks(page) if one.language == language and containing in one.text
    ]
    return found


@pytest.fixture
def copy(tmp_path):
    """A reader's folder with a copy of deploy/ in it."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    return tmp_path


def own_folder(copy, name):
    """The reader's own kustomization of that name, from the page."""
    words = {"my-plugin": "- ../deploy/plugin", "my-scheduler": "- ../deploy/second-scheduler"}
    (copy / name).mkdir()
    text = block("yaml", words[name])
    (copy / name / "kustomization.yaml").write_text(text, encoding="utf-8")
    return copy / name


@pytest.fixture
def reader(control_plane, copy):
    """Run a block of the page in the reader's folder, with kubectl at hand."""
    programs = copy / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(control_plane.binaries.kubectl)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(copy),
        "KUBECONFIG": str(control_plane.admin),
    }

    def run(text):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("folder", "images"),
    [
        ("my-plugin", {"registry.example/coterie/plugin:1.0"}),
        (
            "my-scheduler",
            {"registry.example/coterie/extender:1.0", "registry.k8s.io/kube-scheduler:v1.36.3"},
        ),
    ],
)
def test_own_kustomization_sets_the_images(binaries, copy, folder, images):
    """All images come from where the reader says; kube-scheduler's from Kubernetes itself."""
    found = {
        container["image"]
        for one in render(binaries.kubectl, own_folder(copy, folder))
        if one["kind"] in {"DaemonSet", "Deployment"}
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    assert found == images


def test_one_command_changes_the_resource(copy):
    """Configuration, settings and policy must agree: none may be left behind."""
    text = next(
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if "xargs sed" in line
    )
    files = naming(DEPLOY, "nvidia.com/gpu")
    agents = {one for one in files if one.parts[0].startswith("plugin")}
    agents |= {one for one in files if one.parts[0] == "chart"}  # a value of its own
    subprocess.run(["bash", "-euc", text], cwd=copy, check=True, timeout=120)
    assert naming(copy / "deploy", "amd.com/gpu") == files - agents
    assert naming(copy / "deploy", "nvidia.com/gpu") == agents
    assert len(files - agents) == 8


def naming(folder, resource):
    """The manifests that name a resource."""
    return {
        one.relative_to(folder) for one in folder.rglob("*.yaml") if resource in one.read_text()
    }


def test_certificates_are_what_both_sides_need(reader, copy, control_plane):
    """Secrets that the two Deployments mount, of certificates with which each trusts the other."""
    reader(block("bash", "create secret generic"))
    folders = {}
    for name in ("extender", "scheduler"):
        secret = control_plane.client.get(
            f"/api/v1/namespaces/{NAMESPACE}/secrets/coterie-{name}-tls"
        ).json()
        folders[name] = copy / name
        folders[name].mkdir()
        for key, value in secret["data"].items():
            (folders[name] / key).write_bytes(base64.b64decode(value))
    files = folders["extender"]
    server = Certificates(TlsFiles(files / "tls.crt", files / "tls.key", files / "ca.crt")).server
    for name, folder in folders.items():
        shown = shake_hands(client_context(folder), server, SERVICE)
        assert shown == ((("commonName", f"coterie-{name}"),),)


def test_certificates_of_a_control_plane_host_are_for_its_two_programs(reader, copy):
    """kube-scheduler calls the loopback address; no third certificate can be made."""
    stub = copy / "bin" / "chown"
    stub.write_text("#!/bin/sh\n")
    stub.chmod(0o755)
    root = copy / "etc" / "kubernetes" / "coterie"
    text = block("bash", "chown -R 65532:65532")
    reader(text.replace("/etc/kubernetes/coterie", str(root)))
    own = root / "extender-tls"
    server = Certificates(TlsFiles(own / "tls.crt", own / "tls.key", own / "ca.crt")).server
    shown = shake_hands(client_context(root / "scheduler-tls"), server, "127.0.0.1")
    assert shown == ((("commonName", "coterie-scheduler"),),)
    with pytest.raises(ssl.SSLError):
        shake_hands(ssl.create_default_context(cafile=own / "ca.crt"), server, "127.0.0.1")
    left = {one.name for one in copy.rglob("*") if one.suffix in {".key", ".crt", ".csr", ".srl"}}
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


def test_what_is_removed_is_gone(binaries, tmp_path, copy):
    """After removal nothing of Coterie blocks a request."""
    (text,) = [one.text for one in blocks(GUIDE) if "kubectl delete -k" in one.text]
    served = scheduler_name_folder(binaries.minor)
    text = text.replace("deploy/scheduler-name\n", f"deploy/{served}\n")
    commands = [line.split()[1:] for line in text.splitlines()]
    for name in ("my-scheduler", "my-plugin"):
        own_folder(copy, name)
    forged = {
        "metadata": {"name": "p", "annotations": {"coterie.gpu/plan": "x", "coterie.gpu/y": "z"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    with ControlPlane(binaries, tmp_path) as plane:
        install(plane, Mode.SECOND_SCHEDULER)
        send_gpu_pods(plane)
        plane.kubectl("apply", "-k", str(copy / "my-plugin"))
        for command in commands:
            *options, folder = command
            plane.kubectl(*options, str(copy / folder), "--ignore-not-found", "--wait=false")

        def is_free():
            answer = plane.client.post(
                "/api/v1/namespaces/default/pods", json=forged, params=DRY_RUN
            )
            return answer.status_code == 201

        await_so(is_free, "policies are gone")
        kinds = ("clusterroles", "clusterrolebindings", "validatingadmissionpolicybindings")
        assert "coterie" not in plane.kubectl("get", ",".join(kinds), "-o", "name")
