"""A stage for installations is a cluster of its own, and nothing of it stays on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.install.images import Images
from tests.cluster.install.stage import InstallStage, install_tools
from tests.cluster.install.traces import Traces, network_links
from tests.cluster.node.kubelet_node import CNI_CACHE, NodeTools
from tests.cluster.programs.build import binaries, node_programs
from tests.cluster.programs.debian import find_runc
from tests.cluster.programs.versions import chosen_minor

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet]

SOON_S = 120.0
IMAGES = Images("extender:1", "plugin:1", "kube-scheduler:1", ())
ROOT = Path(__file__).resolve().parents[3]


def run_until_killed(folder):
    """Start a stage in this process, print where it is to be seen, and wait."""
    tools = NodeTools(node_programs(), find_runc(print))
    built = install_tools(binaries(chosen_minor()), tools, print)
    with InstallStage(built, IMAGES, Path(folder)) as stage:
        found = stage.traces
        print(json.dumps([found.network, list(map(str, found.folders))]), flush=True)  # noqa: T201 - for who started it
        time.sleep(3600)


def test_nothing_is_left(binaries, node_tools, tmp_path):
    """What is found while it runs is what is missed afterwards."""
    tools = install_tools(binaries, node_tools, print)
    links = network_links()
    with InstallStage(tools, IMAGES, tmp_path / "stage") as stage:
        assert network_links() != links
        found = "\n".join(stage.traces.left())
        assert "is in its network" in found
        assert all(f"{folder} is there" in found for folder in stage.traces.folders)
        assert CNI_CACHE.exists()
    assert stage.traces.left() == []
    assert network_links() == links


@pytest.mark.usefixtures("node_tools")
def test_nothing_is_left_by_a_stage_that_is_killed(tmp_path):
    """By SIGKILL, which no handler sees."""
    links = network_links()
    code = f"from {__name__} import run_until_killed; run_until_killed({str(tmp_path / 'stage')!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        network, folders = json.loads(next(line for line in lines if line.startswith("[")))
        traces = Traces(network, tuple(map(Path, folders)), links)
        assert traces.left() != []
    finally:
        process.kill()
        process.communicate()
    deadline = time.monotonic() + SOON_S
    while traces.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert traces.left() == []
