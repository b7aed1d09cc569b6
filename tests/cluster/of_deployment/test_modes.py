"""Each mode of the chart as a whole: accounts, settings, configuration, real programs."""

from __future__ import annotations

import json
import re

import pytest

from extender.embedded import lay_out, parse_cluster
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.credentials import Authority
from tests.cluster.control.manifests import (
    NAMESPACE,
    ClientFiles,
    Mode,
    await_so,
    extender_settings,
    install,
    scheduler_config,
    send_gpu_pods,
)
from tests.cluster.control.processes import free_port
from tests.cluster.fleet.nodes import node_manifest
from topology.annotations import pod_keys
from topology.model import names

pytestmark = pytest.mark.cluster

LOOPBACK = "127.0.0.1"
PODS = "/api/v1/namespaces/default/pods"
LIMITS = {"limits": {names.DEFAULT_RESOURCE: "2"}}
POD = {
    "metadata": {"name": "trains", "annotations": {pod_keys.AFFINITY: "nvlink"}},
    "spec": {"containers": [{"name": "main", "image": "none", "resources": LIMITS}]},
}


def certificates(folder):
    """Files of both sides, of one authority: the extender's settings, and the scheduler's."""
    folder.mkdir()
    authority = Authority("coterie")
    ca = folder / "ca.crt"
    ca.write_bytes(authority.certificate)
    names_it_has = ("coterie-extender.coterie-system.svc", LOOPBACK)
    server = authority.peer(*names_it_has).write(folder, "extender")
    client = authority.client("coterie-scheduler").write(folder, "scheduler")
    settings = {"tls_cert": server.certificate, "tls_key": server.key, "tls_client_ca": ca}
    return settings, ClientFiles(ca, client.certificate, client.key)


def start_extender(plane, mode, kubeconfig, tls):
    """The extender with the manifest's own settings; only addresses and paths are this machine's.

    Those of the account are: a kubeconfig stands for the token that a pod would have.
    """
    shipped = extender_settings(mode)
    port, health_port = free_port(), free_port()
    here = {"listen_address": LOOPBACK, "listen_port": port, "kubeconfig": kubeconfig} | tls
    here |= {"health_port": health_port, "read_port": 0}
    settings = {name: here.get(name, value) for name, value in shipped.items()}
    health_url = f"http://{LOOPBACK}:{health_port if 'health_port' in shipped else port}"
    return plane.start_extender(
        kubeconfig,
        port=port,
        health_url=health_url,
        environment={f"COTERIE_EXTENDER_{name.upper()}": str(settings[name]) for name in settings},
    )


def start_scheduler(plane, mode, extender, kubeconfig, client_files):
    """kube-scheduler with the mode's configuration and account, leader election on."""
    url = extender.url.replace("http:", "https:") if client_files else extender.url
    config = scheduler_config(mode, url, kubeconfig=kubeconfig, client_files=client_files)
    return plane.start_scheduler(
        config,
        flags=(
            "--leader-elect=true",
            *("--authentication-kubeconfig", str(kubeconfig)),
            *("--authorization-kubeconfig", str(kubeconfig)),
        ),
    )


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
def test_a_gpu_pod_runs_with_its_plan(binaries, tmp_path, mode):
    """From `kubectl apply` to a bound pod, with the rights that the manifests give only."""
    with ControlPlane(binaries, tmp_path / "plane") as plane:
        account = install(plane, mode)
        send_gpu_pods(plane)
        schedulers = {
            Mode.KUBEADM: lambda: plane.kubeconfig("system:kube-scheduler"),
            Mode.SECOND_SCHEDULER: lambda: plane.service_account(NAMESPACE, "coterie-scheduler"),
            Mode.SERVICE: lambda: plane.service_account(NAMESPACE, "coterie-scheduler"),
        }[mode]()
        (node,) = lay_out(parse_cluster("1x dgx-h100"))
        plane.client.post("/api/v1/nodes", json=node_manifest(node)).raise_for_status()
        is_plain = mode is Mode.SECOND_SCHEDULER
        tls, client_files = ({}, None) if is_plain else certificates(tmp_path / "tls")
        extender = start_extender(plane, mode, account, tls)
        scheduler = start_scheduler(plane, mode, extender, schedulers, client_files)

        plane.client.post(PODS, json=POD).raise_for_status()

        def pod():
            return plane.client.get(f"{PODS}/trains").json()

        await_so(lambda: "nodeName" in pod()["spec"], "bound")
        plan = json.loads(pod()["metadata"]["annotations"][names.PLAN])
        assert pod()["spec"]["schedulerName"] == "coterie-scheduler"
        assert plan["node"] == pod()["spec"]["nodeName"] == node.name
        assert set(plan["containers"][0]["ids"]) <= set(node.ids)
        for program in (extender, scheduler):
            log = program.log.read_text(encoding="utf-8").lower()
            assert not re.search(r"forbidden|(?<![\d.])403\b", log), log[-3000:]
