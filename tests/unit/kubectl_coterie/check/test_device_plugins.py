"""Two plugins that serve GPUs on one node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubectl_coterie.check.device_plugins import check_device_plugins
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import EXTENDER, PLUGIN, look, no_right, pod

LABELS = (
    {"app": "nvidia-device-plugin-daemonset"},
    {"app.kubernetes.io/name": "nvidia-device-plugin"},
    {"name": "nvidia-device-plugin-ds"},
    {"k8s-app": "nvidia-gpu-device-plugin"},
)
REPORTER = replace(PLUGIN, settings={"mode": "reporter"})


@pytest.mark.parametrize("labels", LABELS, ids=lambda labels: next(iter(labels.values())))
def test_nvidias_plugin_beside_ours_fails(labels):
    """By each of the labels that NVIDIA's pods have."""
    (finding,) = check_device_plugins(look(pods=Read([pod(labels=labels)])))
    assert finding.state.value == "failed"
    assert finding.about.endswith("both serve GPUs on node gpu-0")


@pytest.mark.parametrize(
    ("pods", "programs"),
    [
        pytest.param([pod(labels=LABELS[0])], (REPORTER,), id="a reporter serves nothing"),
        pytest.param([pod(labels=LABELS[0], node="gpu-1")], (PLUGIN,), id="on another node"),
        pytest.param([pod(labels=LABELS[0], phase="Pending")], (PLUGIN,), id="does not run"),
        pytest.param(
            [pod(labels=LABELS[1], container="gpu-feature-discovery-ctr")],
            (PLUGIN,),
            id="gpu-feature-discovery has the plugin's labels",
        ),
        pytest.param([pod()], (PLUGIN, EXTENDER), id="no plugin of NVIDIA's"),
    ],
)
def test_one_plugin_on_each_node_is_right(pods, programs):
    """Whoever it is."""
    (finding,) = check_device_plugins(look(pods=Read(pods), programs=Read(programs)))
    assert finding.state.value == "ok"


def test_without_the_right_it_is_not_known():
    """Pods of all namespaces are needed."""
    (finding,) = check_device_plugins(look(pods=no_right("pods")))
    assert finding.state.value == "not known"
    assert finding.about == no_right("pods").missing
