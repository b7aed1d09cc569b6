"""What is kept of nodes and pods, and above all what is not."""

from __future__ import annotations

import json

import pytest

from kubectl_coterie.installation.interest import slim_node, slim_pod

PRIVATE = "hunter2"


def pod(**changes):
    """A user's pod with GPUs and much that is its own."""
    limits = {"nvidia.com/gpu": "2"} if changes.get("gpus", True) else {"cpu": "1"}
    container = {
        "name": "main",
        "image": "private/model",
        "command": ["train", PRIVATE],
        "args": [PRIVATE],
        "env": [{"name": "TOKEN", "value": PRIVATE}],
        "resources": {"limits": limits},
    }
    return {
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": "u",
            "labels": {"team": PRIVATE, **changes.get("labels", {})},
            "annotations": {"note": PRIVATE, **changes.get("annotations", {})},
            "managedFields": [PRIVATE],
        },
        "spec": {
            "nodeName": "gpu-0",
            "schedulerName": "coterie-scheduler",
            "initContainers": [container],
            "containers": [container],
            "volumes": [{"secret": {"secretName": PRIVATE}}],
        },
        "status": {"phase": "Running", "podIP": PRIVATE},
    }


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="it has GPUs"),
        pytest.param({"gpus": False, "annotations": {"coterie.gpu/nic": "required"}}, id="a wish"),
        pytest.param(
            {"gpus": False, "labels": {"app.kubernetes.io/part-of": "coterie"}}, id="Coterie's"
        ),
        pytest.param(
            {"gpus": False, "labels": {"app": "nvidia-device-plugin-daemonset"}}, id="NVIDIA's"
        ),
    ],
)
def test_of_a_pod_that_matters_no_content_is_kept(changes):
    """No environment, command line, image, label or volume of its own."""
    kept = slim_pod(pod(**changes))
    assert PRIVATE not in json.dumps(kept)
    assert "private/model" not in json.dumps(kept)
    assert kept["spec"]["containers"][0]["name"] == "main"  # type: ignore[index]
    assert kept["status"] == {"phase": "Running", "conditions": []}


def test_of_other_pods_the_name_is_kept():
    """It may occur in a log."""
    assert slim_pod(pod(gpus=False)) == {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u"}
    }


def node(**changes):
    """A node with GPUs."""
    return {
        "metadata": {
            "name": "gpu-0",
            "uid": "n",
            "labels": {"nvidia.com/gpu.product": "L4", "team": PRIVATE},
            "annotations": {"note": PRIVATE, **changes.get("annotations", {})},
        },
        "spec": {"providerID": PRIVATE, "taints": [], "podCIDR": PRIVATE},
        "status": {
            "capacity": changes.get("capacity", {"nvidia.com/gpu": "8"}),
            "addresses": [{"address": PRIVATE}],
            "images": [{"names": [PRIVATE]}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "machineID": PRIVATE},
        },
    }


def test_of_a_node_with_gpus_addresses_are_not_kept():
    """Nor ids of the machine, nor labels of others."""
    kept = slim_node(node())
    assert PRIVATE not in json.dumps(kept)
    assert kept["metadata"]["labels"] == {"nvidia.com/gpu.product": "L4"}  # type: ignore[index]
    assert kept["status"]["nodeInfo"] == {"kubeletVersion": "v1.36.3"}  # type: ignore[index]


def test_labels_by_which_the_plugin_chooses_nodes_are_kept():
    """Of every node, since one without them explains why the plugin is not there."""
    assert slim_node(node(), {"team"})["metadata"]["labels"] == {  # type: ignore[index]
        "nvidia.com/gpu.product": "L4",
        "team": PRIVATE,
    }
    other = slim_node(node(capacity={}), {"team", "absent"})
    assert other == {"metadata": {"name": "gpu-0", "uid": "n", "labels": {"team": PRIVATE}}}


def test_of_other_nodes_the_name_is_kept():
    """An annotation of Coterie makes it one that matters."""
    without = {"cpu": "8"}
    assert slim_node(node(capacity=without)) == {"metadata": {"name": "gpu-0", "uid": "n"}}
    kept = slim_node(node(capacity=without, annotations={"coterie.gpu/topology": "{"}))
    assert kept["metadata"]["annotations"] == {"coterie.gpu/topology": "{"}  # type: ignore[index]
