"""Which files a device is made of, and its names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.container import NoAccess
from plugin.nvidia.container.device_nodes import (
    Extra,
    IdStrategy,
    PresentNodes,
    device_name,
    device_nodes,
    imex_node,
    unshared,
)
from tests.unit.plugin.access_machines import PRESENT, gpu, mig, without_nodes


@pytest.mark.parametrize(
    ("device", "uuid", "index"),
    [(gpu(0), "GPU-0", "0"), (gpu(1, replica=3), "GPU-1", "1"), (mig(1), "MIG-bb", "2:1")],
    ids=["whole GPU", "replica", "MIG instance by parent and place"],
)
def test_names(device, uuid, index):
    """As NVIDIA's runtimes know them; only the kubelet knows a replica."""
    assert device_name(device, IdStrategy.UUID) == uuid
    assert device_name(device, IdStrategy.INDEX) == index


def test_an_index_is_the_drivers():
    """A GPU that is not enumerated any more leaves a gap in the numbers, not in our list."""
    one = gpu(1)
    assert device_name(replace(one, gpu=replace(one.gpu, index=5)), IdStrategy.INDEX) == "5"


@pytest.mark.parametrize(
    ("device", "nodes"),
    [
        (gpu(0), ("/dev/nvidia1",)),
        (gpu(1, replica=0), ("/dev/nvidia0",)),
        (
            mig(1),
            ("/dev/nvidia2", "/dev/nvidia-caps/nvidia-cap75", "/dev/nvidia-caps/nvidia-cap77"),
        ),
    ],
    ids=["minor, not index", "replica", "MIG instance: parent and two capabilities"],
)
def test_nodes(device, nodes):
    """Without one of them the container cannot open its device."""
    assert device_nodes(device, PRESENT) == nodes


def test_a_gpu_without_a_minor_number_has_no_known_file():
    """A GPU that was lost before it was ever read has none."""
    found = device_nodes(without_nodes(gpu(0)), PRESENT)
    assert isinstance(found, NoAccess)
    assert "GPU-0" in found.reason
    assert "minor" in found.reason


@pytest.mark.parametrize("missing", ["gpu2/gi8/access", "gpu2/gi8/ci1/access"])
def test_a_mig_instance_needs_both_capabilities(missing):
    """NVIDIA's plugin refuses too, rather than start a container that cannot work."""
    fewer = {name: n for name, n in PRESENT.capabilities.items() if name != missing}
    found = device_nodes(mig(1), PresentNodes(capabilities=fewer))
    assert isinstance(found, NoAccess)
    assert "MIG-bb" in found.reason
    assert missing in found.reason


def test_each_device_once_in_the_machines_order():
    """The kubelet's order is that of a Go map, and replicas are the same GPU."""
    devices = [mig(1), gpu(1, replica=1), gpu(0, replica=2), gpu(0, replica=0), mig(0)]
    names = [device_name(d, IdStrategy.UUID) for d in unshared(devices)]
    assert names == ["GPU-0", "GPU-1", "MIG-aa", "MIG-bb"]


def test_nothing_is_nothing():
    """No device, no name."""
    assert unshared([]) == ()


def test_what_nvidia_calls_the_rest():
    """Names that other programs read."""
    assert [extra.variable for extra in Extra] == ["NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"]
    assert all(extra.patterns for extra in Extra)
    assert imex_node(0) == "/dev/nvidia-caps-imex-channels/channel0"
