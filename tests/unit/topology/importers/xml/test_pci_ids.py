"""PCI classes, vendors and names."""

from __future__ import annotations

import pytest

from topology.importers.xml.cpu_platform import x86_platform
from topology.importers.xml.pci_ids import (
    MODEL_NAMES,
    find_model_name,
    is_gpu,
    is_infiniband,
    is_network,
)
from topology.model import CpuPlatform, find_gpu_model


@pytest.mark.parametrize(
    ("pci_class", "vendor", "device", "expected"),
    [
        pytest.param("0x030200", "0x10de", None, True, id="NVIDIA 3D controller"),
        pytest.param("0300", "10DE", None, True, id="consumer card, VGA class"),
        pytest.param("0380", "1002", "7408", True, id="MI250X, display class"),
        pytest.param("0x120000", "0x1002", None, True, id="MI300, accelerator class"),
        pytest.param("0x030200", None, None, True, id="vendor left out"),
        pytest.param("0300", "1a03", None, False, id="ASPEED management board"),
        pytest.param("0300", "1002", "515e", False, id="ATI ES1000 management board"),
        pytest.param("0403", "10de", None, False, id="the GPU's sound function"),
        pytest.param(None, "10de", None, False, id="class left out"),
    ],
)
def test_is_gpu(pci_class, vendor, device, expected):
    """Class and vendor decide; display controllers of management boards are no GPUs."""
    assert is_gpu(pci_class, vendor, device=device) is expected


def test_network_classes():
    """InfiniBand controllers are network controllers of their own class."""
    assert is_network("0x020000")
    assert is_network("0207")
    assert not is_network(None)
    assert is_infiniband("0x020700")
    assert not is_infiniband("0x020000")


def test_unknown_device_has_no_name():
    """A guess would put a wrong link rate under a machine."""
    assert find_model_name("0x10de", "0xffff") is None
    assert find_model_name(None, None) is None


@pytest.mark.parametrize("ids", sorted(MODEL_NAMES))
def test_every_name_is_in_the_catalogue_of_models(ids):
    """A name that the catalogue does not know would be of no use."""
    assert find_gpu_model(find_model_name(*ids)) is not None


@pytest.mark.parametrize(
    ("vendor", "family", "model", "expected"),
    [
        pytest.param("AuthenticAMD", 175, 1, CpuPlatform.AMD, id="any AMD"),
        pytest.param("GenuineIntel", 6, 79, CpuPlatform.INTEL_BDW, id="Broadwell and before"),
        pytest.param("GenuineIntel", 6, 85, CpuPlatform.INTEL_SKL, id="Skylake"),
        pytest.param("GenuineIntel", 6, 143, CpuPlatform.INTEL_SPR, id="Sapphire Rapids"),
        pytest.param("GenuineIntel", 6, 207, CpuPlatform.INTEL_ERP, id="Emerald Rapids"),
        pytest.param("GenuineIntel", 15, 85, CpuPlatform.UNKNOWN, id="another family"),
        pytest.param("GenuineIntel", 6, None, CpuPlatform.UNKNOWN, id="no model"),
        pytest.param("GenuineIntel", 6, -1, CpuPlatform.UNKNOWN, id="a model that cannot be"),
        pytest.param("CentaurHauls", 7, 91, CpuPlatform.UNKNOWN, id="another vendor"),
        pytest.param(None, None, None, CpuPlatform.UNKNOWN, id="nothing known"),
    ],
)
def test_x86_platform(vendor, family, model, expected):
    """The classes are NCCL's."""
    assert x86_platform(vendor, family=family, model=model) is expected
