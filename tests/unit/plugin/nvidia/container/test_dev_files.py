"""Which device nodes are found under a root; links to /dev/null stand for character devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugin.errors import ReadingError
from plugin.nvidia.container.dev_files import find_dev_root, find_nodes, find_nvml
from plugin.nvidia.container.device_nodes import CONTROL_NODES, Extra, PresentNodes, imex_node


def make_nodes(root, *nodes):
    """Put something under the root that is a character device."""
    for node in nodes:
        path = root / node.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/dev/null")


def make_minors(proc, text):
    """The file in which the driver lists capabilities."""
    path = proc / "driver/nvidia-caps/mig-minors"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_an_empty_machine_has_nothing(tmp_path):
    """No driver, no nodes, no error."""
    found = find_nodes(tmp_path / "none", tmp_path, extras=Extra, imex_channels=[0])
    assert found == PresentNodes()


def test_control_nodes_in_nvidias_order(tmp_path):
    """Those that exist; a plain file of that name is no device."""
    make_nodes(tmp_path, "/dev/nvidia-modeset", "/dev/nvidiactl")
    (tmp_path / "dev/nvidia-uvm").write_text("")
    assert find_nodes(tmp_path, tmp_path).control == ("/dev/nvidiactl", "/dev/nvidia-modeset")
    assert set(find_nodes(tmp_path, tmp_path).control) < set(CONTROL_NODES)


def test_capabilities(tmp_path):
    """As the driver lists them; lines of another form are skipped, as NVIDIA's plugin does."""
    make_minors(
        tmp_path,
        "config 1\nmonitor 2\ngpu0/gi1/access 30\ngpu0/gi1/ci0/access 31\n\nwhat is this\ngpu9 x\n",
    )
    assert find_nodes(tmp_path, tmp_path).capabilities == {
        "config": 1,
        "monitor": 2,
        "gpu0/gi1/access": 30,
        "gpu0/gi1/ci0/access": 31,
    }


def test_extras_that_are_enabled(tmp_path):
    """By pattern, in order; none that is not enabled."""
    make_nodes(
        tmp_path, "/dev/nvidia-fs1", "/dev/nvidia-fs0", "/dev/gdrdrv", "/dev/infiniband/uverbs0"
    )
    found = find_nodes(tmp_path, tmp_path, extras=(Extra.GDS, Extra.MOFED))
    assert found.extras == {
        Extra.GDS: ("/dev/nvidia-fs0", "/dev/nvidia-fs1"),
        Extra.MOFED: ("/dev/infiniband/uverbs0",),
    }
    assert find_nodes(tmp_path, tmp_path, extras=(Extra.GDRCOPY,)).extras == {
        Extra.GDRCOPY: ("/dev/gdrdrv",)
    }


def test_an_extra_without_nodes_is_absent(tmp_path):
    """So that no container gets a CDI name that no specification describes."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia-fs0").write_text("")
    assert find_nodes(tmp_path, tmp_path, extras=(Extra.GDS,)).extras == {}


@pytest.mark.parametrize("is_required", [True, False])
def test_imex_channels(tmp_path, is_required):
    """Found is found, required or not."""
    make_nodes(tmp_path, imex_node(0))
    found = find_nodes(tmp_path, tmp_path, imex_channels=[0], is_imex_required=is_required)
    assert found.imex_channels == (0,)
    assert find_nodes(tmp_path, tmp_path).imex_channels == ()


def test_an_imex_channel_that_is_required_and_missing(tmp_path, check_message):
    """The owner said that containers must not run without; a plain file is none."""
    path = tmp_path / imex_node(0).lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text("")
    with pytest.raises(ReadingError) as caught:
        find_nodes(tmp_path, tmp_path, imex_channels=[0], is_imex_required=True)
    check_message(caught.value)


def test_dev_root(tmp_path):
    """A driver container brings its own /dev; a driver on the host has none beside it."""
    assert find_dev_root(tmp_path, tmp_path / "host") == tmp_path / "host"
    (tmp_path / "dev").mkdir()
    assert find_dev_root(tmp_path, tmp_path / "host") == tmp_path


def test_nvml_in_a_root_of_its_own(tmp_path):
    """The first folder that has it, and the file that the link leads to."""
    assert find_nvml(tmp_path) is None
    for folder in ("usr/lib/x86_64-linux-gnu", "lib64"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "libnvidia-ml.so.580").write_text("")
        (tmp_path / folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580")
    expected = (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580").resolve()
    assert find_nvml(tmp_path) == expected


def test_nvml_on_the_host_is_the_loaders_to_find():
    """Even where it lies in a folder that would be looked into."""
    assert find_nvml(Path("/")) is None
