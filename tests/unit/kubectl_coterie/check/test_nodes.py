"""Topologies and reports of nodes."""

from __future__ import annotations

import pytest

from kubectl_coterie.check.nodes import check_devices, check_topologies
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import look, no_right, node, states
from topology.annotations import (
    DevicesReport,
    MissingDevices,
    UnhealthyDevice,
    encode_devices,
)

MISSING = MissingDevices("u", "ml", "train", "main", "nvidia.com/gpu")


def seen(*nodes):
    """A look at these nodes."""
    return look(nodes=Read(list(nodes)))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(
            [node()], [("ok", "all 1 nodes with nvidia.com/gpu have one")], id="all have one"
        ),
        pytest.param(
            [node(), node("gpu-1", topology=None)],
            [("warning", "node gpu-1 with nvidia.com/gpu and no coterie.gpu/topology")],
            id="one has none",
        ),
        pytest.param(
            [node(gpus="0", topology=None)],
            [("warning", "no node offers nvidia.com/gpu")],
            id="no node offers GPUs",
        ),
    ],
)
def test_nodes_with_gpus_have_a_topology(nodes, expected):
    """Without one GPUs are only counted."""
    assert states(check_topologies(seen(*nodes))) == expected


def test_more_devices_than_gpus_are_counted_alone():
    """NVIDIA's plugin with time-slicing: four times as many devices as the reporter sees GPUs."""
    (finding,) = check_topologies(seen(node(gpus="32"), node("gpu-1")))
    assert finding.state.value == "warning"
    assert finding.about.startswith("node gpu-0 with more nvidia.com/gpu than devices in ")
    assert "no sets are chosen" in finding.about


def test_a_topology_that_cannot_be_read_fails():
    """It says what is wrong with the text."""
    (finding,) = check_topologies(seen(node(topology="{")))
    assert finding.state.value == "failed"
    assert finding.about.startswith("node gpu-0: coterie.gpu/topology cannot be read: ")


@pytest.mark.parametrize(
    ("report", "state", "words"),
    [
        pytest.param(DevicesReport(), "ok", "1 nodes report", id="healthy"),
        pytest.param(
            DevicesReport(unhealthy=(UnhealthyDevice("GPU-1", "XID 79"),)),
            "warning",
            "1 unhealthy on node gpu-0 (GPU-1: XID 79)",
            id="unhealthy",
        ),
        pytest.param(
            DevicesReport(missing=(MISSING,)),
            "failed",
            "pod ml/train with a container that runs without its GPUs",
            id="without its GPUs",
        ),
    ],
)
def test_reports_say_what_is_wrong(report, state, words):
    """As the node's plugin wrote them."""
    (finding,) = check_devices(seen(node(devices=encode_devices(report))))
    assert finding.state.value == state
    assert words in finding.about


@pytest.mark.parametrize(
    ("devices", "state", "words"),
    [
        (None, "warning", "node gpu-0 with coterie.gpu/topology and no coterie.gpu/devices"),
        ("{", "failed", "coterie.gpu/devices cannot be read"),
    ],
)
def test_a_report_that_is_absent_or_broken_is_found(devices, state, words):
    """Free GPUs are not known then."""
    (finding,) = check_devices(seen(node(devices=devices)))
    assert finding.state.value == state
    assert words in finding.about


@pytest.mark.parametrize("check", [check_topologies, check_devices])
def test_without_the_right_it_is_not_known(check):
    """Nodes are of the cluster."""
    assert states(check(look(nodes=no_right("nodes")))) == [
        ("not known", no_right("nodes").missing)
    ]
