"""deploy/service as a reader applies it: the page's certificates, the Service's name."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cluster.install.stage import InstallStage
from tests.cluster.of_install.kubectl_scenario import (
    admin_sees_everything,
    pod_that_waits,
    stranger_is_told_the_right,
)
from tests.docs.markdown import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.install.images import Images
    from tests.cluster.install.stage import InstallTools

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.install]

SYSTEM = "coterie-system"
PAGE = ROOT / "docs" / "install.md"
SOON_S = 60.0


def make_certificates(stage):
    """Run what the page says, with kubectl at hand."""
    (text,) = [one.text for one in blocks(PAGE) if "create secret generic" in one.text]
    plane = stage.control_plane
    (programs := stage.folder / "bin").mkdir()
    (programs / "kubectl").symlink_to(plane.binaries.kubectl)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(stage.folder),
        "KUBECONFIG": str(plane.admin),
    }
    (stage.folder / "deploy").symlink_to(ROOT / "deploy")
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(
        command,
        cwd=stage.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SOON_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """The way, installed."""
    folder = tmp_path_factory.mktemp("install")
    with InstallStage(install_tools, install_images, folder, name_server=True) as running:
        make_certificates(running)
        with running.timed("install"):
            own = running.kustomization("service", "plugin-simulated")
            running.kubectl("apply", "-k", str(own))
            running.rolled_out("daemonset/coterie-plugin", "coterie-node")
            running.rolled_out("deployment/coterie-extender", SYSTEM)
            running.rolled_out("deployment/coterie-scheduler", SYSTEM)
        yield running


def extenders(stage):
    """The address of each extender's pod that is Ready, by its name."""
    path = f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/name=coterie-extender"
    pods = stage.get(path)["items"]
    return {one["metadata"]["name"]: one["status"]["podIP"] for one in pods if is_ready(one)}


def is_ready(pod):
    """Whether a pod is Ready."""
    conditions = pod["status"].get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def until_planned(stage, name, gpus):
    """Run a pod with so many GPUs; it has what its plan says."""
    assert stage.start(name, gpus).devices == tuple(stage.plan(name))
    assert len(stage.plan(name)) == gpus


def test_the_scheduler_calls_the_extender_by_the_services_name(stage):
    """Over mutual TLS, through CoreDNS and kube-proxy: without either no pod would be planned."""
    until_planned(stage, "by-name", 2)


def test_who_has_no_certificate_is_refused(stage):
    """The Service's address is open to every pod of the cluster."""
    service = stage.get(f"/api/v1/namespaces/{SYSTEM}/services/coterie-extender")
    url = f"https://{service['spec']['clusterIP']}:8443/filter"
    with pytest.raises(
        httpx.HTTPError, match=r"(?i)certificate required|handshake|eof|reset|disconnected"
    ):
        httpx.post(url, json={}, verify=False, timeout=60, trust_env=False)  # noqa: S501 - ours


def test_kubectl_coterie_answers_the_admin(stage):
    """The read API is plain HTTP on the pod's loopback, beside the Service's mutual TLS."""
    stage.start("placed", 2)
    stage.pods.create(pod_that_waits("waits"))
    admin_sees_everything(stage, placed="placed", waits="waits")
    stage.pods.delete("placed", "waits")


def test_kubectl_coterie_names_the_missing_right(stage):
    """Of a user without rights."""
    stranger_is_told_the_right(stage, namespace=SYSTEM, pod=min(extenders(stage)))
