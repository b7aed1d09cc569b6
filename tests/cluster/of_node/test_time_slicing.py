"""Pods of one replica on a real kubelet: they are spread over the GPUs, as by NVIDIA's plugin."""

from __future__ import annotations

import pytest

from tests.cluster.control.manifests import await_so
from tests.cluster.node.plugin_account import deploy_plugin, plugin_kubeconfig
from tests.cluster.node.plugin_process import start_plugin
from tests.cluster.node.real_pods import is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import allocatable_devices, held_by

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

N_GPUS, N_REPLICAS = 8, 4


def test_eight_pods_of_one_replica_are_on_eight_gpus(control_plane, node, pods):
    """And the next eight once more on all of them."""
    deploy_plugin(control_plane)
    file = node.folder / "time-slicing.yaml"
    resource = f"{{name: nvidia.com/gpu, replicas: {N_REPLICAS}}}"
    file.write_text(f"version: v1\nsharing: {{timeSlicing: {{resources: [{resource}]}}}}\n")
    user = plugin_kubeconfig(control_plane, node.name)
    plugin = start_plugin(node, user, "dgx-1-v100", "--config-file", str(file))
    try:
        n_all = N_GPUS * N_REPLICAS
        await_so(lambda: len(allocatable_devices(node)) == n_all, f"{n_all} replicas")
        for turn in ("first", "second"):
            names = [f"{turn}-{i}" for i in range(N_GPUS)]
            for name in names:
                pods.create(real_pod(name, real_container("main", 1), nodeName=node.name))
            used: set[str] = set()
            for name in names:
                pods.until(name, is_running)
                (replica,) = held_by(node, name)["main"]
                used.add(replica.partition("::")[0])
            assert len(used) == N_GPUS
    finally:
        plugin.program.stop()
