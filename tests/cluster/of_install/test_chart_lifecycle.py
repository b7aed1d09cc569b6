"""A release of the chart from its installation to its end, on real kubelets, below running pods.

Each test begins and ends with a cluster without Coterie. Whatever Helm does meanwhile, the
containers of pods with GPUs keep their process and their devices.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cluster.control.chart import HelmFailed
from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.control.manifests import await_so
from tests.cluster.install.stage import InstallStage, gpu_pod
from tests.cluster.of_install.chart_release import (
    NODE,
    SYSTEM,
    ChartRelease,
    documented,
    run_documented,
)
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.install.images import Images
    from tests.cluster.install.stage import InstallTools

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.install]

MACHINE = "node-0"
SCHEDULER = "coterie-scheduler"
NEXT = "next"
"""A tag of the same images: an upgrade to it replaces all pods."""
ROLLS_BACK_WITHIN_S = 60
"""Helm waits so long for the bad upgrade, and at most so long for what it rolls back to."""
OWN_KEYS = {names.TOPOLOGY, names.DEVICES}


@pytest.fixture(scope="module")
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """A cluster whose Services have names; it is there for all tests, without Coterie."""
    folder = tmp_path_factory.mktemp("chart")
    with InstallStage(install_tools, install_images, folder, name_server=True) as running:
        running.tag_images(NEXT)
        yield running


@pytest.fixture
def release(stage: InstallStage) -> Iterator[ChartRelease]:
    """The release, not installed; what a failed test leaves of it is removed."""
    made = ChartRelease(stage)
    yield made
    stage.kubectl("delete", "jobs", "--all", "--cascade=foreground")
    with contextlib.suppress(HelmFailed):
        made.uninstall()
    stage.kubectl("delete", "namespace", SYSTEM, NODE, "--ignore-not-found")
    stage.kubectl("annotate", "node", MACHINE, *(f"{key}-" for key in OWN_KEYS))
    assert made.objects() == []


def start_job(stage, name, gpus):
    """Run a Job whose one pod has so many GPUs; the pod's name."""
    spec = gpu_pod("any", gpus, schedulerName=SCHEDULER)["spec"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    path = f"/api/v1/namespaces/default/pods?labelSelector=job-name={name}"
    await_so(lambda: bool(stage.get(path)["items"]), f"pod of Job {name}")
    (pod,) = stage.get(path)["items"]
    return pod["metadata"]["name"]


def own_keys(stage):
    """Coterie's annotations of the Node."""
    found = stage.get(f"/api/v1/nodes/{MACHINE}")["metadata"].get("annotations", {})
    return {key for key in found if key.startswith("coterie.gpu/")}


def removes_own_keys(stage):
    """Remove them as an administrator; whether the API server lets it be done."""
    try:
        stage.kubectl("annotate", "nodes", "--all", *(f"{key}-" for key in OWN_KEYS))
    except CommandFailed as error:
        assert "only the node plugin of this node may" in str(error)  # noqa: PT017 - or something else
        return False
    return True


def as_planned(stage, pod):
    """The pod's container, which has what its plan says."""
    process = stage.process(pod)
    assert process.devices == tuple(stage.plan(pod))
    return process


def test_a_second_scheduler_is_installed_upgraded_rolled_back_and_removed(stage, release):
    """And what stays after it is what docs/operator-guide.md lists."""
    release.install(
        "--create-namespace",
        mode="second-scheduler",
        plugin__mode="device-plugin",
        scheduler__replicas="1",
    )
    stage.kubectl("label", "namespace", SYSTEM, "pod-security.kubernetes.io/enforce=restricted")
    await_so(lambda: stage.gpus(MACHINE) == (8, 8), "all GPUs of the node")
    first = start_job(stage, "first", 4)
    process = as_planned(stage, first)
    assert len(process.devices) == 4
    assert "Phase:          Succeeded" in release.test()

    images = release.images()
    with stage.timed("failed upgrade"), pytest.raises(HelmFailed, match=r"rolled back"):
        release.upgrade_or_roll_back(ROLLS_BACK_WITHIN_S, image__tag="missing")
    assert stage.process(first) == process
    with stage.timed("end of its pods"):
        await_so(lambda: release.images() == images, "end of the pods that had no image")
    assert release.restarts() == 0
    await_so(lambda: stage.gpus(MACHINE) == (8, 8), "GPUs after the rollback")

    release.upgrade(image__tag=NEXT)
    new = {one.rpartition(":")[0] + f":{NEXT}" if "/coterie/" in one else one for one in images}
    await_so(lambda: set(release.images()) == new, "end of the pods before")
    assert release.restarts() == 0
    second = start_job(stage, "second", 2)
    assert not set(as_planned(stage, second).devices) & set(process.devices)
    assert stage.process(first) == process

    with pytest.raises(CommandFailed, match="only the node plugin of this node may"):
        stage.kubectl("annotate", "node", MACHINE, f"{names.TOPOLOGY}-")
    release.uninstall()
    assert stage.process(first) == process
    await_so(lambda: stage.gpus(MACHINE) == (8, 0), "GPUs without a plugin")
    assert not list(stage.nodes[MACHINE].device_plugins.glob("*coterie*"))
    assert own_keys(stage) == OWN_KEYS
    assert names.PLAN in stage.pods.get(first)["metadata"]["annotations"]
    left = [f"lease.coordination.k8s.io/{SCHEDULER}", f"namespace/{SYSTEM}"]
    with stage.timed("end of all objects"):
        await_so(lambda: release.objects() == left, "end of all but what its namespace takes")
    waits = start_job(stage, "waits", 1)
    listed = run_documented(
        stage, stage.folder, documented("operator-guide.md", f"spec.schedulerName={SCHEDULER}")
    )
    assert [line.split()[1] for line in listed.splitlines()[1:]] == [waits]
    await_so(lambda: removes_own_keys(stage), "the end of the policy in the API server's memory")
    assert own_keys(stage) == set()


def refuses_who_has_no_certificate(stage):
    """The Service's address is open to every pod of the cluster."""
    service = stage.get(f"/api/v1/namespaces/{SYSTEM}/services/coterie-extender")
    url = f"https://{service['spec']['clusterIP']}:8443/filter"
    with pytest.raises(
        httpx.HTTPError, match=r"(?i)certificate required|handshake|eof|reset|disconnected"
    ):
        httpx.post(url, json={}, verify=False, timeout=60, trust_env=False)  # noqa: S501 - ours


def test_a_service_with_its_own_certificates_is_installed_and_removed(stage, release):
    """Both by the pages' commands, by which the plugins clean their nodes first."""
    folder = stage.folder / "commands"
    run_documented(stage, folder, documented("install.md", "x509 -req -days 365 -in"))
    release.install(mode="service", plugin__mode="device-plugin")
    pod = start_job(stage, "first", 8)
    process = as_planned(stage, pod)
    stage.kubectl("delete", "job", "first", "--cascade=foreground")
    assert len(process.devices) == 8
    refuses_who_has_no_certificate(stage)
    assert "Phase:          Succeeded" in release.test()
    assert release.restarts() == 0
    assert own_keys(stage) == OWN_KEYS
    with stage.timed("removal"):
        cleaned = run_documented(
            stage, folder, documented("operator-guide.md", "plugin.clean=true")
        )
        assert own_keys(stage) == set()
        for key in OWN_KEYS:
            assert f"removed annotation {key} of node {MACHINE}" in cleaned
        run_documented(stage, folder, documented("operator-guide.md", "helm uninstall coterie"))
    await_so(lambda: release.objects() == [], "end of all, and of the plugins' namespace")
