"""NVIDIA's `Vendor`: how containers reach devices, and how the driver is found."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from plugin.config.load_settings import load_settings
from plugin.container import ContainerAccess, NoAccess
from plugin.errors import ReadingError
from plugin.machine import Device
from plugin.nvidia import VENDOR
from plugin.nvidia.nvml.errors import NvmlError
from plugin.sysfs import Sysfs
from tests.fake_nvml import fake_of, installed
from tests.unit.plugin.machine_values import gpu_reading, mig_device
from tests.unit.plugin.node_states import simulated_served
from topology.recordings import load_recording

if TYPE_CHECKING:
    from pathlib import Path

NO_DRIVER = 9
"""NVML_ERROR_DRIVER_NOT_LOADED (nvml.h)."""

SERVED = simulated_served()


@pytest.fixture
def root(tmp_path):
    """A driver's root without any device node, a /proc that shows MIG, a folder for CDI."""
    (tmp_path / "driver" / "dev").mkdir(parents=True)
    minors = tmp_path / "proc" / "driver" / "nvidia-caps" / "mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("gpu0/gi1/access 30\ngpu0/gi1/ci0/access 31\n")
    return tmp_path


def opened(root, served=SERVED, **flags):
    """The access to a machine's devices under these settings."""
    places = {"driver_root_ctr_path": root / "driver", "cdi_folder": root / "cdi"}
    settings = load_settings({"node_name": "n1", **places, **flags}, {}).settings
    return VENDOR.open_access(settings, Sysfs(proc=root / "proc"), served)


CDI: dict[str, Any] = {"device_list_strategy": "cdi-cri", "cdi_generator": "own"}


def test_a_device_node_that_must_be_there(root):
    """Its absence is an error before anything is offered."""
    with pytest.raises(ReadingError, match=str(root / "driver" / "dev")):
        opened(root, imex_channel_ids=(0,), imex_required=True)


def test_only_nvidias_runtime_reads_variables_and_mounts(root):
    """With CDI any runtime gives the devices."""
    assert opened(root).needs_runtime == "device_list_strategy envvar"
    both = opened(root, device_list_strategy="volume-mounts,envvar")
    assert both.needs_runtime == "device_list_strategy envvar, volume-mounts"
    assert opened(root, **CDI).needs_runtime == ""
    both = opened(root, device_list_strategy="envvar,cdi-cri", cdi_generator="own")
    assert both.needs_runtime == ""


def test_a_specification_without_the_driver_is_said_to_lack_it(root, monkeypatch):
    """Unless the plugin's own are configured."""
    monkeypatch.setenv("PATH", str(root))
    assert opened(root, **CDI).lacks == ()
    (lack,) = opened(root, device_list_strategy="cdi-cri", toolkit_folder=root).lacks
    assert lack == "CDI specification of GPUs mounts no libcuda.so"


def test_a_machine_without_devices_lacks_nothing(root):
    """There is no specification then."""
    inventory = replace(SERVED.inventory, resources=())
    access = opened(root, replace(SERVED, inventory=inventory), device_list_strategy="cdi-cri")
    assert (access.left_out, access.lacks) == ((), ())


def test_a_mig_device_needs_the_capabilities_that_the_driver_lists(root):
    """They are read from /proc when the machine is prepared."""
    slices = (mig_device("MIG-0", "1g.5gb", 0, 1, 0), mig_device("MIG-1", "1g.5gb", 1, 2, 0))
    parent = gpu_reading(0, "GPU-0", minor=0, partitions=slices)
    known, unknown = (Device(one.id, 0, parent, partition=one) for one in slices)
    access = opened(root, pass_device_specs=True)
    granted = access.grant([known])
    assert isinstance(granted, ContainerAccess)
    assert [node.host_path for node in granted.device_nodes] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap30",
        "/dev/nvidia-caps/nvidia-cap31",
    ]
    assert isinstance(access.grant([unknown]), NoAccess)


def test_the_drivers_library_is_looked_for_when_nvml_is_opened(root, monkeypatch):
    """A driver container may put it there while the plugin waits."""
    loaded: list[Path] = []
    monkeypatch.setattr("plugin.nvidia.nvml.reader.preload", loaded.append)
    settings = load_settings({"driver_root_ctr_path": root}, {}).settings
    nvml = fake_of(load_recording("dgx-1-v100"))
    nvml.errors["nvmlInitWithFlags"] = NO_DRIVER
    with installed(nvml), contextlib.closing(VENDOR.open_reader(settings, Sysfs())) as reader:
        with pytest.raises(NvmlError):
            reader.read()
        assert loaded == []
        library = root / "usr" / "lib64" / "libnvidia-ml.so.1"
        library.parent.mkdir(parents=True)
        library.touch()
        nvml.errors.clear()
        assert len(reader.read().gpus) == 8
        assert loaded == [library.resolve()]


def test_a_library_that_is_none_is_a_machine_that_cannot_be_read(root):
    """So that the plugin can wait for a driver."""
    library = root / "usr" / "lib64" / "libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.write_text("no library")
    settings = load_settings({"driver_root_ctr_path": root}, {}).settings
    with (
        contextlib.closing(VENDOR.open_reader(settings, Sysfs())) as reader,
        pytest.raises(NvmlError, match="cannot be loaded"),
    ):
        reader.read()
