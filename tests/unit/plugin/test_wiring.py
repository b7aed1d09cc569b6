"""Plugins one after another in a process: what begins the next, and what ends all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kube.errors import SettingsError
from plugin.config import load_settings
from plugin.nvidia.nvml.errors import NvmlError
from plugin.wiring import ReadTiming, Running, open_reader, run_plugins, serving_rules
from tests.changes import Changes
from tests.fake_nvml import fake_of, installed
from tests.unit.plugin.machine_values import gpu_reading, mig_device
from tests.unit.plugin.node_values import GPU
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("memory_kept")

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
"""
"""Of an API server that does not run (port 9, discard)."""
FILE = """\
version: v1
flags: {gfd: {oneshot: true}}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""
NO_DRIVER = 9
"""NVML_ERROR_DRIVER_NOT_LOADED (nvml.h)."""


@dataclass
class Node:
    """Settings of a node without kubelet and API server, and the log of its plugins."""

    root: Path
    flags: Mapping[str, object] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    running: Running = field(default_factory=Running)
    changes: Changes = field(default_factory=Changes)
    timing: ReadTiming = field(default_factory=ReadTiming)

    def load(self):
        """As the process loads them, for each round."""
        kubeconfig = self.root / "kubeconfig"
        if not kubeconfig.exists():
            kubeconfig.write_text(KUBECONFIG)
        flags = {
            "node_name": "n1",
            "simulate": "dgx-1-v100",
            "kubeconfig": str(kubeconfig),
            "kubelet_port": "9",
            "register_blind": "true",
            "kubelet_socket": str(self.root / "kubelet.sock"),
            "pod_resources_socket": str(self.root / "pod-resources.sock"),
            "metrics_address": "127.0.0.1",
            "metrics_port": "0",
            **self.flags,
        }
        return load_settings({k: v for k, v in flags.items() if v is not None}, {})

    def _note(self, event, **fields):
        self.lines.append({"event": event, **fields})
        self.changes.note()

    debug = info = warning = _note

    def of(self, event):
        """The lines of one event."""
        return [line for line in self.lines if line["event"] == event]

    @property
    def is_listing(self) -> bool:
        """Whether a plugin runs that has read its machine."""
        return self.running.plugin is not None and bool(self.of("registration"))

    def work(self):
        """What is tried."""
        return run_plugins(self.load, running=self.running, log=self, timing=self.timing)

    @contextlib.asynccontextmanager
    async def started(self):
        """With plugins running, until the end of the block."""
        task = asyncio.create_task(self.work())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def get(self, path):
        """Status and text of the last endpoint that was opened."""
        port = self.of("listening")[-1]["port"]
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.get(f"http://127.0.0.1:{port}{path}")
        return answer.status_code, answer.text.strip()


# --- The machine -----------------------------------------------------------------------------


# --- Rules -----------------------------------------------------------------------------------


def test_rules_are_those_of_the_settings(root):
    """Each from its own place."""
    figures = root / "figures"
    figures.write_text("0 1 50.0\n")
    flags = {"measurements": str(figures), "mig_strategy": "mixed", "resource_name": "x.y/gpu"}
    rules = serving_rules(Node(root, flags).load())
    split = gpu_reading(0, "GPU-0", partitions=(mig_device("MIG-0", "1g.5gb", 0, 1, 0),))
    assert rules.resource == "x.y/gpu"
    assert set(rules.units_of([split], rules.resource).by_resource) == {"x.y/gpu", "x.y/mig-1g.5gb"}
    assert rules.measurement is not None
    assert rules.measurement.pairs[0].bandwidth_gbytes_per_s == 50.0
    assert serving_rules(Node(root).load()).measurement is None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda _: None, id="absent"),
        pytest.param(lambda path: path.mkdir(), id="a folder"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe"), id="no text"),
        pytest.param(lambda path: path.write_text("0 1 fast\n"), id="no figures"),
    ],
)
def test_figures_that_cannot_be_read_stop_the_start(root, make):
    """They are configured: to go on without would place pods by guesses."""
    path = root / "figures"
    make(path)
    node = Node(root, {"measurements": str(path)})
    with pytest.raises(SettingsError, match=rf"setting measurements: file {path}: [^\[]"):
        asyncio.run(node.work())
    assert node.running.plugin is None


# --- One plugin after another -----------------------------------------------------------------


def test_a_reload_reads_settings_and_machine_again(root):
    """SIGHUP: another machine is served, at another port."""

    async def go():
        node = Node(root)
        async with node.started():
            await node.changes.until(lambda: node.is_listing)
            first = node.running.plugin
            assert await node.get("/livez") == (200, "ok")
            status, text = await node.get("/readyz")
            assert (status, text.partition(":")[0]) == (503, "pods unknown")
            node.flags = {"simulate": "8x-l4", "log_level": "debug"}
            node.running.reload()
            await node.changes.until(lambda: len(node.of("machine_read")) == 2)
            assert node.running.plugin is not first
            assert len(node.of("listening")) == 2
            assert [one["simulate"] for one in node.of("effective_settings")] == [
                "dgx-1-v100",
                "8x-l4",
            ]
        assert node.running.plugin is None
        assert (node.running.live(), node.running.ready()) == ("", "no machine could be read yet")

    asyncio.run(go())


def test_other_resources_begin_a_plugin_under_the_same_settings(root):
    """MIG was switched on: a new resource needs its own server, and nothing else changes."""
    faults = root / "faults.json"
    flags = {"simulate": "dgx-a100", "simulate_faults": str(faults), "mig_strategy": "mixed"}

    async def go():
        node = Node(root, flags)
        async with node.started():
            await node.changes.until(lambda: node.is_listing)
            faults.write_text(json.dumps({"mig": {"0": ["1g.5gb"] * 7}}))
            with contextlib.closing(open_reader(node.load().settings)) as reader:
                assert node.running.plugin is not None
                node.running.plugin.see_reading(reader.read())  # before its own time comes
            mig = "nvidia.com/mig-1g.5gb"
            await node.changes.until(
                lambda: {one["resource"] for one in node.of("registration")} == {GPU, mig}
            )
            assert node.of("machine_read")[-1]["n_devices"] == {GPU: 7, mig: 7}
            assert len(node.of("effective_settings")) == len(node.of("listening")) == 1

    asyncio.run(go())


def test_settings_without_effect_are_logged(root):
    """In one line, behind those that have one; sharing is a setting too."""

    async def go():
        file = root / "config.yaml"
        file.write_text(FILE)
        node = Node(root, {"mps_root": "/run/mps", "config_file": str(file)})
        async with node.started():
            await node.changes.until(lambda: node.is_listing)
        first, second = node.of("effective_settings")
        assert first["sharing"] == {"replicas": {GPU: 4}, "suffix": ".shared", "is_one_only": True}
        assert [note.partition(" ")[0] for note in second["notes"]] == ["flags.gfd", "mps_root"]

    asyncio.run(go())


# --- What does not let it start --------------------------------------------------------------


def test_a_machine_that_cannot_be_read_is_waited_for(root):
    """Where that is set; the probe says what is missing."""
    nvml = fake_of(load_recording("dgx-1-v100"))
    nvml.errors["nvmlInitWithFlags"] = NO_DRIVER

    async def go():
        node = Node(root, {"simulate": None, "fail_on_init_error": "false"})
        node.timing = ReadTiming(again_s=0.02)
        async with node.started():
            await node.changes.until(lambda: node.of("reader_failed"))
            count = "0"
            async with asyncio.timeout(30.0):
                while float(count) < 2:
                    _, text = await node.get("/metrics")
                    (count,) = re.findall(r'reader_failures_total\{what="read"\} (\S+)', text)
            assert [one["what"] for one in node.of("reader_failed")] == ["read"]
            assert await node.get("/readyz") == (503, "no machine could be read yet")
            assert await node.get("/livez") == (200, "ok")
            nvml.errors.clear()
            await node.changes.until(lambda: node.is_listing)
            assert node.of("reader_recovered") == [{"event": "reader_recovered", "what": "read"}]

    with installed(nvml):
        asyncio.run(go())


def test_a_library_that_does_not_suit_the_driver_ends_the_process(root):
    """The driver was replaced after the container began: no later try in it can succeed."""
    nvml = fake_of(load_recording("dgx-1-v100"))
    nvml.errors["nvmlInitWithFlags"] = 18

    async def go():
        node = Node(root, {"simulate": None, "fail_on_init_error": "false"})
        node.timing = ReadTiming(again_s=0.01, restart_s=0.025)
        with pytest.raises(NvmlError, match="version mismatch"):
            await asyncio.wait_for(node.work(), 60)
        assert [one["reason"] for one in node.of("restart_needed")] == [
            "NVML: RM has detected an NVML/RM version mismatch."
        ]

    with installed(nvml):
        asyncio.run(go())


def test_a_port_in_use_stops_the_start(root):
    """Two plugins on a node's network; nothing is left open."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        node = Node(root, {"metrics_port": str(taken.getsockname()[1])})
        with pytest.raises(SettingsError, match="cannot listen on"):
            asyncio.run(node.work())
