"""The door: pynvml's real marshalling above a library that is a Python object."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.library import FieldId, Nvml, NvmlCode, preload
from plugin.nvidia.nvml.raw_machine import RawFabric
from tests.fake_nvml import (
    SENTINEL,
    FakeFabric,
    FakeGpu,
    FakeLink,
    FakeMig,
    FakeNvml,
    installed,
)

UUID, OTHER = "GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001"
CLUSTER = bytes(range(16))


@pytest.fixture
def fake():
    """Two GPUs: one rich, one bare."""
    rich = FakeGpu(
        UUID,
        "00010000:3B:00.0",
        minor=3,
        links=[FakeLink(), FakeLink(bus_id=SENTINEL), FakeLink(bus_id="\xff\xfe"), FakeLink(0)],
        n_switch_links=3,
        n_c2c_links=1,
        memory_nodes=(1, 65),
        fabric=FakeFabric(cluster_uuid=CLUSTER, clique_id=7),
        mig={2: FakeMig("MIG-1", "NVIDIA H100 MIG 1g.10gb", gi=9, ci=1, shape=(1, 1, 9856))},
    )
    fake = FakeNvml([rich, FakeGpu(OTHER, "", capability=(7, 5))])
    with installed(fake):
        yield fake


@pytest.fixture
def nvml(fake):  # noqa: ARG001 - the library has to be there
    """The door, open."""
    nvml = Nvml()
    nvml.open()
    return nvml


def code_of(call, *arguments):
    """The code with which NVML refuses."""
    with pytest.raises(NvmlError) as caught:
        call(*arguments)
    return caught.value.code


def test_no_library_is_code_zero():
    """A machine without NVIDIA's driver is distinguished from one whose driver fails."""
    with installed(None), pytest.raises(NvmlError, match=r"libnvidia-ml\.so\.1 not found") as e:
        Nvml().open()
    assert e.value.code == 0


def test_a_driver_that_is_not_loaded_keeps_its_code(fake):
    """The library is there, the kernel module is not."""
    fake.is_loaded = False
    assert code_of(Nvml().open) == NvmlCode.DRIVER_NOT_LOADED


def test_fields_in_one_call(nvml, fake):
    """What has no value is None, and never a zero that was left in the structure."""
    wanted = [(FieldId.NVLINK_GET_STATE, 0), (FieldId.NVLINK_GET_STATE, 3)]
    wanted += [
        (FieldId.NVLINK_GET_STATE, 4),
        (FieldId.C2C_LINK_COUNT, 0),
        (FieldId.NVLINK_LINK_COUNT, 0),
    ]
    assert nvml.fields(nvml.handle(0), wanted) == (1, 0, None, 1, None)
    assert fake.calls["nvmlDeviceGetFieldValues"] == 1


def test_links(nvml):
    """The version is an enumerator; ids that cannot be read and the sentinel are none."""
    gpu = nvml.handle(0)
    assert [nvml.link_state(gpu, link) for link in (0, 3)] == [True, False]
    assert code_of(nvml.link_state, gpu, 4) == NvmlCode.INVALID_ARGUMENT
    assert code_of(nvml.link_state, nvml.handle(1), 0) == NvmlCode.NOT_SUPPORTED
    assert nvml.link_version(gpu, 0) == 6
    assert nvml.far_type(gpu, 0) == 2
    assert [nvml.far_bus_id(gpu, link) for link in range(3)] == ["0000:07:00.0", None, None]


def test_fabric_in_the_newest_version(nvml, fake):
    """Version 3 has the health; an older driver answers version 2; Turing has none."""
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert nvml.fabric(nvml.handle(0)) == RawFabric(3, 0, uuid, 7, 1)
    fake.fabric_versions = {2}
    assert nvml.fabric(nvml.handle(0)) == RawFabric(3, 0, uuid, 7, None)
    assert code_of(nvml.fabric, nvml.handle(1)) == NvmlCode.NOT_SUPPORTED
    fake.missing.add("nvmlDeviceGetGpuFabricInfoV")  # before R545
    assert nvml.fabric(nvml.handle(0)) == RawFabric(3, 0, uuid, 7, None)
    assert code_of(nvml.fabric, nvml.handle(1)) == NvmlCode.NOT_SUPPORTED
    fake.missing.clear()
    fake.fabric_versions = set()
    assert code_of(nvml.fabric, nvml.handle(0)) == NvmlCode.ARGUMENT_VERSION_MISMATCH


def test_text_that_is_no_text(nvml, fake):
    """A broken inforom may yield any bytes."""
    fake.gpus[0].name = "\xff\xfe"
    assert code_of(nvml.name, nvml.handle(0)) == NvmlCode.NO_DATA


def test_a_library_from_another_place(tmp_path, check_message):
    """A file that is no library is refused by name; one that is there is loaded."""
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_text("no library")
    with pytest.raises(NvmlError) as caught:
        preload(broken)
    check_message(caught.value)
    preload(Path("libc.so.6"))
