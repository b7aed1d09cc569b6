"""What a container gets: the words that NVIDIA's runtimes read."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from plugin.container import ContainerAccess, DeviceNode, Mount, NoAccess
from plugin.nvidia.container.allocate_response import AccessRules, ListStrategy, grant
from plugin.nvidia.container.cdi import cdi_name
from plugin.nvidia.container.device_nodes import Extra, IdStrategy, PresentNodes
from tests.unit.plugin.access_machines import PRESENT, gpu, mig, without_nodes
from tests.unit.plugin.machine_values import mig_device

PAIR = (gpu(1), gpu(0))
WITH_IMEX = replace(PRESENT, imex_channels=(0,))


def given(*strategies: ListStrategy, devices=PAIR, present=PRESENT, **rules) -> ContainerAccess:
    """What a container gets under these rules."""
    access = grant(devices, present=present, rules=AccessRules(frozenset(strategies), **rules))
    assert isinstance(access, ContainerAccess)
    return access


def test_by_default_one_variable_and_nothing_else():
    """What every NVIDIA runtime reads."""
    access = grant(PAIR, present=PRESENT, rules=AccessRules())
    assert access == ContainerAccess(env={"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"})


@pytest.mark.parametrize(
    ("devices", "strategy", "value"),
    [
        ((gpu(0),), IdStrategy.INDEX, "0"),
        ((mig(1), mig(0)), IdStrategy.UUID, "MIG-aa,MIG-bb"),
        ((mig(1), mig(0)), IdStrategy.INDEX, "2:0,2:1"),
        ((gpu(1, 2), gpu(0, 0), gpu(1, 0)), IdStrategy.UUID, "GPU-0,GPU-1"),
        ((gpu(1, 2), gpu(0, 0), gpu(1, 0)), IdStrategy.INDEX, "0,1"),
    ],
    ids=["index", "MIG uuid", "MIG index", "replicas by uuid", "replicas by index"],
)
def test_names_in_the_variable(devices, strategy, value):
    """Replicas of one GPU name it once, without the number behind it."""
    access = given(ListStrategy.ENVVAR, devices=devices, id_strategy=strategy)
    assert access.env == {"NVIDIA_VISIBLE_DEVICES": value}


def test_volume_mounts():
    """The variable names the folder, the mounts name the devices: a pod can set only the former."""
    access = given(ListStrategy.VOLUME_MOUNTS)
    folder = "/var/run/nvidia-container-devices"
    assert access.env == {"NVIDIA_VISIBLE_DEVICES": folder}
    assert access.mounts == (
        Mount(f"{folder}/GPU-0", "/dev/null"),
        Mount(f"{folder}/GPU-1", "/dev/null"),
    )
    assert (access.device_nodes, access.annotations, access.cdi_devices) == ((), {}, ())


def test_both_at_once_name_the_folder():
    """As NVIDIA's plugin: the mounts are what cannot be forged, so they win."""
    access = given(ListStrategy.ENVVAR, ListStrategy.VOLUME_MOUNTS)
    assert access.env == {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}
    assert len(access.mounts) == 2


def test_cdi_through_the_kubelet():
    """Qualified names only; NVIDIA's plugin sets no variable beside CDI."""
    access = given(ListStrategy.CDI_CRI)
    assert access == ContainerAccess(
        cdi_devices=(
            "k8s.device-plugin.nvidia.com/gpu=GPU-0",
            "k8s.device-plugin.nvidia.com/gpu=GPU-1",
        )
    )


def test_cdi_by_annotation():
    """One annotation, whose key CDI takes and whose value lists the names."""
    access = given(ListStrategy.CDI_ANNOTATIONS)
    (key,) = access.annotations
    assert re.fullmatch(r"cdi\.k8s\.io/nvidia-device-plugin_[0-9a-f]{32}", key)
    assert len(key.removeprefix("cdi.k8s.io/")) <= 63
    assert access.annotations[key] == (
        "k8s.device-plugin.nvidia.com/gpu=GPU-0,k8s.device-plugin.nvidia.com/gpu=GPU-1"
    )
    assert access == ContainerAccess(annotations=access.annotations)


def test_requests_of_one_container_never_share_an_annotation():
    """A container may request two resources; the kubelet would keep one of two equal keys."""
    keys = {
        key
        for devices in ((gpu(0),), (gpu(1),), PAIR, (gpu(0, 0),), (gpu(0, 1),), (mig(0),))
        for key in given(ListStrategy.CDI_ANNOTATIONS, devices=devices).annotations
    }
    assert len(keys) == 6


def test_the_same_request_gets_the_same_answer():
    """In whatever order the kubelet names the devices."""
    strategies = (ListStrategy.CDI_ANNOTATIONS, ListStrategy.VOLUME_MOUNTS)
    assert given(*strategies) == given(*strategies, devices=PAIR[::-1])


def test_another_prefix_of_annotations():
    """Runtimes that are set to another one exist, or the setting would not."""
    access = given(ListStrategy.CDI_ANNOTATIONS, cdi_annotation_prefix="example.com/")
    (key,) = access.annotations
    assert key.startswith("example.com/nvidia-device-plugin_")


def test_all_strategies_at_once():
    """Each runtime takes what it knows."""
    access = given(*ListStrategy)
    assert access.env
    assert access.mounts
    assert access.annotations
    assert len(access.cdi_devices) == 2


def test_device_nodes():
    """Control nodes first, each once, under the root that the host has them in."""
    access = given(
        ListStrategy.ENVVAR,
        devices=(mig(0), mig(1), gpu(0)),
        passes_device_nodes=True,
        dev_root="/run/nvidia/driver",
    )
    paths = [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
        "/dev/nvidia1",
        "/dev/nvidia2",
        "/dev/nvidia-caps/nvidia-cap66",
        "/dev/nvidia-caps/nvidia-cap67",
        "/dev/nvidia-caps/nvidia-cap75",
        "/dev/nvidia-caps/nvidia-cap77",
    ]
    assert access.device_nodes == tuple(
        DeviceNode(path, f"/run/nvidia/driver{path}", "rw") for path in paths
    )


def test_control_nodes_that_do_not_exist_are_left_out():
    """The runtime would refuse to start a container with a node that is not there."""
    access = given(
        ListStrategy.ENVVAR,
        devices=(gpu(0),),
        present=PresentNodes(control=("/dev/nvidiactl",)),
        passes_device_nodes=True,
    )
    assert [node.host_path for node in access.device_nodes] == ["/dev/nvidiactl", "/dev/nvidia1"]


def test_cdi_alone_brings_its_own_device_nodes():
    """Beside it NVIDIA's plugin gives the variables of the extras, and nothing else."""
    access = given(ListStrategy.CDI_CRI, passes_device_nodes=True, extras=frozenset(Extra))
    extras = ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")
    assert access.env == dict.fromkeys(extras, "enabled")
    assert (access.device_nodes, access.mounts) == ((), ())
    assert given(ListStrategy.CDI_CRI).env == {}


def test_extras():
    """By variable each, by CDI only those that this node has."""
    access = given(ListStrategy.ENVVAR, ListStrategy.CDI_CRI, extras=frozenset(Extra))
    assert access.env == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1",
        "NVIDIA_GDRCOPY": "enabled",
        "NVIDIA_GDS": "enabled",
        "NVIDIA_MOFED": "enabled",
    }
    assert access.cdi_devices[2:] == (cdi_name("gds", "all"), cdi_name("mofed", "all"))
    one = given(ListStrategy.CDI_CRI, extras=frozenset({Extra.MOFED}), present=WITH_IMEX)
    assert one.cdi_devices[2:] == (cdi_name("imex-channel", "0"), cdi_name("mofed", "all"))


def test_imex_channels():
    """In each of the four ways, and as a device node."""
    access = given(*ListStrategy, present=WITH_IMEX, passes_device_nodes=True)
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    assert access.env["NVIDIA_IMEX_CHANNELS"] == "0"
    assert access.mounts[-1] == Mount("/var/run/nvidia-container-devices/imex/0", "/dev/null")
    assert access.cdi_devices[-1] == "k8s.device-plugin.nvidia.com/imex-channel=0"
    assert access.device_nodes[-1] == DeviceNode(channel, channel)


def test_imex_channels_without_the_variable():
    """With mounts alone they are mounts alone."""
    access = given(ListStrategy.VOLUME_MOUNTS, present=WITH_IMEX)
    assert set(access.env) == {"NVIDIA_VISIBLE_DEVICES"}
    assert len(access.mounts) == 3


def test_a_device_that_cannot_be_opened_is_refused():
    """Rather than a container that starts and finds no GPU."""
    rules = AccessRules(passes_device_nodes=True)
    access = grant([gpu(1), without_nodes(gpu(0))], present=PRESENT, rules=rules)
    assert isinstance(access, NoAccess)
    assert "GPU-0" in access.reason


def test_a_name_that_cdi_does_not_take_is_refused():
    """Drivers before 470 name MIG instances with slashes; a runtime would refuse the container."""
    old = mig_device("MIG-GPU-2/7/0", "1g.10gb", 0, 7, 0)
    device = replace(mig(0), id=old.id, partition=old)
    rules = AccessRules(frozenset({ListStrategy.CDI_CRI}))
    access = grant([device], present=PRESENT, rules=rules)
    assert isinstance(access, NoAccess)
    assert "MIG-GPU-2/7/0" in access.reason
    named = replace(rules, id_strategy=IdStrategy.INDEX)
    assert isinstance(grant([device], present=PRESENT, rules=named), ContainerAccess)
