"""The CDI document: by the specification, and complete."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from plugin.container import CdiDevice, CdiDocument, cdi_body, is_cdi_device
from plugin.nvidia.container.cdi import cdi_documents, cdi_name, incomplete
from plugin.nvidia.container.device_nodes import IdStrategy, PresentNodes
from tests.unit.plugin.access_machines import PRESENT, gpu, mig, without_nodes
from tests.unit.plugin.machine_values import mig_device

SERVED = (gpu(1, 0), gpu(1, 1), gpu(0), mig(0), mig(1))


def documents(strategy=IdStrategy.UUID, dev_root="/", present=PRESENT) -> dict[str, CdiDocument]:
    """Those of everything the machine serves and has, by class."""
    found = cdi_documents(SERVED, present, strategy=strategy, dev_root=dev_root)
    assert found.left_out == ()
    return {document.cdi_class: document for document in found.documents}


def document(strategy=IdStrategy.UUID, dev_root="/") -> CdiDocument:
    """That of the GPUs."""
    return documents(strategy, dev_root)["gpu"]


IMEX = documents(present=replace(PRESENT, imex_channels=(0,)))["imex-channel"]


def paths(device: CdiDevice) -> tuple[str, ...]:
    """Its device nodes by their last parts."""
    return tuple(node.rpartition("/")[2] for node in device.nodes)


def test_devices():
    """Each device once with its own nodes, all of them under one name, control nodes for any."""
    shown = {device.name: paths(device) for device in document().devices}
    assert shown == {
        "GPU-0": ("nvidia1",),
        "GPU-1": ("nvidia0",),
        "MIG-aa": ("nvidia2", "nvidia-cap66", "nvidia-cap67"),
        "MIG-bb": ("nvidia2", "nvidia-cap75", "nvidia-cap77"),
        "all": (
            "nvidia1",
            "nvidia0",
            "nvidia2",
            "nvidia-cap66",
            "nvidia-cap67",
            "nvidia-cap75",
            "nvidia-cap77",
        ),
    }
    assert document().common_nodes == PRESENT.control


def test_a_document_for_each_class_that_has_a_device():
    """What is absent has no file: an empty one would be invalid."""
    assert list(documents()) == ["gpu", "gds", "mofed"]
    assert list(documents(present=replace(PRESENT, extras={}, imex_channels=(0,)))) == [
        "gpu",
        "imex-channel",
    ]
    assert documents()["gds"].devices == (CdiDevice("all", ("/dev/nvidia-fs0",)),)
    assert IMEX.devices == (CdiDevice("0", ("/dev/nvidia-caps-imex-channels/channel0",)),)


def test_body():
    """The text that a runtime reads, in full, for one GPU."""
    (found,) = cdi_documents(
        [gpu(0)], PresentNodes(control=("/dev/nvidiactl",)), strategy=IdStrategy.UUID
    ).documents
    edits = {"deviceNodes": [{"path": "/dev/nvidia1", "permissions": "rw"}]}
    assert cdi_body(found) == {
        "cdiVersion": "0.3.0",
        "kind": "k8s.device-plugin.nvidia.com/gpu",
        "devices": [
            {"name": "GPU-0", "containerEdits": edits},
            {"name": "all", "containerEdits": edits},
        ],
        "containerEdits": {
            "deviceNodes": [{"path": "/dev/nvidiactl", "permissions": "rw"}],
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        },
    }


@pytest.mark.parametrize(
    ("found", "version"),
    [
        (document(), "0.3.0"),
        (document(IdStrategy.INDEX), "0.5.0"),
        (document(dev_root="/run/nvidia/driver"), "0.5.0"),
        (IMEX, "0.5.0"),
        (documents()["gds"], "0.3.0"),
    ],
    ids=["plain", "names that begin with digits", "host paths", "IMEX channels", "extra"],
)
def test_the_lowest_version_that_has_the_fields(found, version):
    """A runtime refuses a version that it does not know, and fields that its version lacks."""
    assert cdi_body(found)["cdiVersion"] == version


def test_host_paths_only_where_they_differ():
    """An older runtime does not know the field."""
    assert "hostPath" not in json.dumps(cdi_body(document()))
    body = json.dumps(cdi_body(document(dev_root="/run/nvidia/driver")))
    assert (
        '"path": "/dev/nvidia1", "permissions": "rw", "hostPath": "/run/nvidia/driver/dev' in body
    )


def test_without_control_nodes_there_is_nothing_common():
    """An empty edit would be noise."""
    assert "containerEdits" not in cdi_body(IMEX)


def test_no_other_component_adds_gpus():
    """NVIDIA's runtime would give a container all GPUs whose image says so by the variable."""
    (found,) = cdi_documents([gpu(0)], PresentNodes(), strategy=IdStrategy.UUID).documents
    assert cdi_body(found)["containerEdits"] == {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}


def test_names_by_index():
    """The names of the document are those that the answer gives (`allocate_response`)."""
    names = [device.name for device in document(IdStrategy.INDEX).devices]
    assert names == ["0", "1", "2:0", "2:1", "all"]


def test_what_cannot_be_described_is_left_out_and_reported():
    """One lost GPU must not keep the others from their containers."""
    old = mig_device("MIG-GPU-2/7/0", "1g.10gb", 0, 7, 0)
    devices = (without_nodes(gpu(0)), gpu(1), replace(mig(0), partition=old))
    found = cdi_documents(devices, PRESENT, strategy=IdStrategy.UUID)
    assert [device.name for device in found.documents[0].devices] == ["GPU-1", "all"]
    assert len(found.left_out) == 2
    assert "GPU-0" in found.left_out[0]
    assert "MIG-GPU-2/7/0" in found.left_out[1]


def test_no_device_no_document():
    """A document needs at least one device to be valid."""
    found = cdi_documents([], PresentNodes(), strategy=IdStrategy.UUID)
    assert found.documents == ()


def test_every_name_of_a_document_is_valid():
    """Else the whole file would be refused."""
    for found in (document(), document(IdStrategy.INDEX), IMEX):
        assert all(is_cdi_device(device.name) for device in found.devices)


def test_file_and_qualified_names():
    """Those that NVIDIA's plugin uses, so that the one replaces the other's."""
    assert document().file_name == "k8s.device-plugin.nvidia.com-gpu.json"
    assert IMEX.file_name == "k8s.device-plugin.nvidia.com-imex-channel.json"
    assert cdi_name("gds", "all") == "k8s.device-plugin.nvidia.com/gds=all"


# --- What a specification lacks -----------------------------------------------------------------


def specification(*devices, mounts=(), per_device=()):
    """A specification as nvidia-ctk writes it: mounts for all devices, or for each."""

    def edits(paths):
        return {"mounts": [{"containerPath": path, "hostPath": path} for path in paths]}

    described = [{"name": one, "containerEdits": edits(per_device)} for one in devices]
    return json.dumps({"devices": described, "containerEdits": edits(mounts)})


LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(specification("GPU-0", "GPU-1", mounts=[LIBCUDA]), (), id="all is there"),
        pytest.param(
            specification("GPU-0", "GPU-1", per_device=[LIBCUDA]), (), id="with each device"
        ),
        pytest.param(
            specification("GPU-0", "all", mounts=[LIBCUDA]),
            ("CDI specification of GPUs lacks GPU-1",),
            id="a device",
        ),
        pytest.param(
            specification("GPU-0", "GPU-1", mounts=["/usr/lib/libnvidia-ml.so.580.65.06"]),
            ("CDI specification of GPUs mounts no libcuda.so",),
            id="the driver",
        ),
        pytest.param(
            "{}",
            (
                "CDI specification of GPUs lacks GPU-0, GPU-1",
                "CDI specification of GPUs mounts no libcuda.so",
            ),
            id="everything",
        ),
        pytest.param(
            "made",
            (
                (
                    "CDI specification of GPUs cannot be read: body is 'made', expected JSON: "
                    "Expecting value: line 1 column 1 (char 0)"
                ),
            ),
            id="no JSON",
        ),
    ],
)
def test_what_a_specification_lacks_is_named(text, expected):
    """A container would not start, or start without a driver."""
    assert incomplete(text, ["GPU-0", "GPU-1"], has_driver=True) == expected


def test_a_specification_with_the_driver_needs_none_mounted():
    """The plugin's own specifications have none, which is known where they are configured."""
    own = json.dumps(cdi_body(document()))
    names = [one.name for one in document().devices]
    assert incomplete(own, names, has_driver=False) == ()
    assert incomplete(own, names, has_driver=True) == (
        "CDI specification of GPUs mounts no libcuda.so",
    )
