"""What is made ready on the node before devices are offered."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from plugin.config import load_settings
from plugin.errors import CdiError, ReadingError
from plugin.nvidia.container.device_nodes import PresentNodes
from plugin.prepare_containers import open_access
from tests.unit.plugin.node_states import simulated_stock

STOCK = simulated_stock()


class Log:
    """Keeps what was logged."""

    def __init__(self):
        self.lines = []

    def _note(self, event, **fields):
        self.lines.append((event, fields))

    debug = info = warning = _note


@pytest.fixture
def root(tmp_path):
    """A driver's root without any device node, a /proc that tells of MIG, a folder for CDI."""
    (tmp_path / "driver" / "dev").mkdir(parents=True)
    minors = tmp_path / "proc" / "driver" / "nvidia-caps" / "mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("gpu0/gi1/access 30\n")
    return tmp_path


def opened(root, stock=STOCK, **flags):
    """What is found, and what was logged; without flags only device nodes count."""
    places = {
        "driver_root_ctr_path": root / "driver",
        "proc_root": root / "proc",
        "cdi_folder": root / "cdi",
    }
    settings = load_settings({"node_name": "n1", **places, **flags}, {}).settings
    log = Log()
    return asyncio.run(open_access(stock, settings, log=log)), log.lines


CDI: dict[str, Any] = {"device_list_strategy": "cdi-cri", "cdi_generator": "own"}


def test_device_nodes_are_looked_for_in_the_drivers_root(root):
    """Nothing is described where nobody reads it."""
    found, lines = opened(root)
    assert found == PresentNodes(control=(), capabilities={"gpu0/gi1/access": 30})
    assert lines == []
    assert not (root / "cdi").exists()


def test_a_device_node_that_must_be_there(root):
    """Its absence is told before anything is offered."""
    with pytest.raises(ReadingError, match=str(root / "driver" / "dev")):
        opened(root, imex_channel_ids=(0,), imex_required=True)


def test_devices_are_described_for_runtimes_with_cdi(root):
    """By the names that containers will get."""
    found, lines = opened(root, **CDI)
    (file,) = (root / "cdi").iterdir()
    described = {one["name"] for one in json.loads(file.read_text())["devices"]}
    assert described == {*(device.id for device in STOCK.devices), "all"}
    assert (found.capabilities, lines) == ({"gpu0/gi1/access": 30}, [])


def test_a_device_that_cannot_be_described_is_told(root):
    """The others are served all the same."""
    *others, last = STOCK.reading.gpus
    gpus = (*others, replace(last, minor=None))
    _, lines = opened(root, replace(STOCK, reading=replace(STOCK.reading, gpus=gpus)), **CDI)
    ((event, fields),) = lines
    assert (event, list(fields)) == ("cdi_failed", ["reason"])
    assert last.uuid in fields["reason"]


def test_descriptions_that_cannot_be_written(root):
    """Devices are not offered then: the caller has to know."""
    (root / "cdi").write_text("in the way")
    with pytest.raises(CdiError, match="cannot be written"):
        opened(root, **CDI)
