"""Mode `kubeadm` with a pod of `kube-system` on the host's network, as kubeadm makes it.

The pod is kubeadm's own with the patches of deploy/, made by a person in the place of kubeadm, and
its files lie in a folder of the test instead of /etc/kubernetes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.control.credentials import Authority
from tests.cluster.control.manifests import DEPLOY, await_so, send_gpu_pods
from tests.cluster.install.stage import InstallStage
from tests.cluster.of_install.kubectl_scenario import (
    admin_sees_everything,
    pod_that_waits,
    reader_sees_the_extender,
    stranger_is_told_the_right,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.install.images import Images
    from tests.cluster.install.stage import InstallTools

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.install]

SYSTEM = "kube-system"
POD = "kube-scheduler"
KUBEADM_POD = Path(__file__).parents[1] / "kubeadm" / "kube-scheduler.yaml"
PATCHES = (("json", "kube-scheduler0+json"), ("strategic", "kube-scheduler1+strategic"))


@pytest.fixture(scope="module")
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """The way, installed, all GPU pods sent there; one is placed, and one waits."""
    folder = tmp_path_factory.mktemp("install")
    with InstallStage(install_tools, install_images, folder) as running:
        running.apply("kubeadm")
        start_scheduler(running)
        running.rolled_out("daemonset/coterie-plugin", "coterie-node")
        send_gpu_pods(running.control_plane)
        running.start("placed", 4)
        running.pods.create(pod_that_waits("waits"))
        yield running


def start_scheduler(stage: InstallStage) -> None:
    """Make the files and the pod, and wait until the extender is Ready."""
    files = stage.folder / "kubernetes"
    files.mkdir()
    write_files(stage, files)
    whole = KUBEADM_POD
    for kind, file in PATCHES:
        patch = DEPLOY / "kubeadm" / "patches" / f"{file}.yaml"
        command = ("patch", "--local", "-o", "yaml", "-f", str(whole), "--type", kind)
        text = stage.kubectl(*command, "--patch-file", str(patch))
        whole = stage.folder / f"{file}.yaml"
        whole.write_text(text, encoding="utf-8")
    pod = in_place(stage, yaml.safe_load(whole.read_text(encoding="utf-8")), files)
    stage.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    try:
        stage.kubectl("wait", "-n", SYSTEM, "--for=condition=Ready", f"pod/{POD}", "--timeout=180s")
    except CommandFailed:
        for container in ("kube-scheduler", "coterie-extender"):
            print(stage.kubectl("logs", "-n", SYSTEM, POD, "-c", container))  # noqa: T201
        raise


def write_files(stage: InstallStage, folder: Path) -> None:
    """The certificates, kubeconfigs and configuration of docs/install.md."""
    plane, authority = stage.control_plane, Authority("coterie")
    extender, scheduler = authority.server("127.0.0.1"), authority.client("kube-scheduler")
    for name, pair in (("extender-tls", extender), ("scheduler-tls", scheduler)):
        (own := folder / name).mkdir()
        (own / "ca.crt").write_bytes(authority.certificate)
        files = pair.write(own, "tls")
        files.key.chmod(0o644)
    users = {"extender.conf": "coterie-extender", "scheduler.conf": "system:kube-scheduler"}
    for name, user in users.items():
        text = plane.kubeconfig(user).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    config = (DEPLOY / "kubeadm" / "scheduler-config.yaml").read_text(encoding="utf-8")
    (folder / "scheduler-config.yaml").write_text(config, encoding="utf-8")
    open_to_all(stage.folder)


def open_to_all(folder: Path) -> None:
    """The extender runs as another user, which must reach the folder."""
    for one in (folder, *folder.parents):
        if one.stat().st_mode & 0o005 != 0o005:
            one.chmod(one.stat().st_mode | 0o055)


def in_place(stage: InstallStage, pod: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The pod on `node-0` with the stage's images, its files in `folder`."""
    pod.pop("status")
    pod["metadata"]["name"] = POD
    spec = pod["spec"]
    spec["nodeName"] = "node-0"
    images = {
        "kube-scheduler": stage.images.kube_scheduler,
        "coterie-extender": stage.images.extender,
    }
    for container in spec["containers"]:
        container["image"] = images[container["name"]]
    for volume in spec["volumes"]:
        if "hostPath" in volume:
            volume["hostPath"]["path"] = str(folder / Path(volume["hostPath"]["path"]).name)
    return pod


def test_kubectl_coterie_answers_the_admin(stage):
    """The extender is found beside kube-scheduler."""
    await_so(lambda: "waits" in stage.kubectl("get", "pods"), "the pod that waits")
    admin_sees_everything(stage, placed="placed", waits="waits")


def test_kubectl_coterie_needs_the_readers_role_alone(stage):
    """It is a Role of kube-system here, where the extender's pod is."""
    reader_sees_the_extender(stage, namespace=SYSTEM)


def test_kubectl_coterie_names_the_missing_right(stage):
    """Of a user without rights."""
    stranger_is_told_the_right(stage, namespace=SYSTEM, pod=POD)
