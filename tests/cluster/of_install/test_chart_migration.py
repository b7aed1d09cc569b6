"""A node moves from NVIDIA's plugin to the chart's and back, by the commands of docs/migrate.md.

A DaemonSet stands in for NVIDIA's, with the labels and the affinity that the page gives it; the
chart's plugin simulates the machine whose GPUs it serves. The label for simulated GPUs takes the
place of `coterie.gpu/agent`, which the chart refuses beside it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
import yaml

from tests.cluster.control.manifests import await_so
from tests.cluster.fleet.nodes import node_path
from tests.cluster.install.stage import SIMULATED, InstallStage, gpu_pod
from tests.cluster.node.stub_plugin import allocatable_devices, held_by
from tests.cluster.of_install.chart_release import NODE, ChartRelease, documented, run_documented
from tests.unit.plugin.machine_values import simulated_machine
from topology.annotations import decode_devices
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.install.images import Images
    from tests.cluster.install.stage import InstallTools

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.install]

MACHINE = "node-0"
RECORDING = "dgx-h100"
"""The default of the chart's `plugin.simulated.machine`."""
THEIRS = "nvidia-device-plugin"
"""Namespace and label of NVIDIA's plugin, as docs/migrate.md has them."""
PAGE = "migrate.md"
WORDS = {"my__node": MACHINE, "coterie.gpu/agent": SIMULATED}


@pytest.fixture(scope="module")
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """A cluster without Coterie, on which GPUs are served by the stand-in."""
    folder = tmp_path_factory.mktemp("migration")
    with InstallStage(install_tools, install_images, folder) as running:
        running.kubectl("label", "node", MACHINE, f"{SIMULATED}-", "nvidia.com/gpu.present=true")
        running.kubectl("create", "namespace", THEIRS)
        running.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(theirs(running)))
        running.rolled_out(f"daemonset/{THEIRS}", THEIRS)
        await_so(lambda: running.gpus(MACHINE) == (8, 8), "GPUs of the stand-in")
        yield running


def theirs(stage):
    """NVIDIA's DaemonSet as its chart makes it with the page's affinity, and the program in it."""
    with contextlib.closing(simulated_machine(RECORDING, node_name=MACHINE)) as reader:
        ids = [gpu.uuid for gpu in reader.read().gpus]
    program = Path(__file__).with_name("nvidia_plugin.py").read_text(encoding="utf-8")
    metadata = {"name": THEIRS, "namespace": THEIRS}
    labels = {"app.kubernetes.io/name": THEIRS}
    sockets = {"name": "sockets", "mountPath": "/var/lib/kubelet/device-plugins"}
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": stage.images.plugin,
        "command": ["/opt/coterie/bin/python", "/stand-in/main.py", *ids],
        "volumeMounts": [sockets, {"name": "program", "mountPath": "/stand-in"}],
    }
    affinity = yaml.safe_load(documented(PAGE, 'NotIn, values: ["off"]'))["affinity"]
    pod = {
        "affinity": affinity,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [
            {"name": "sockets", "hostPath": {"path": sockets["mountPath"]}},
            {"name": "program", "configMap": {"name": THEIRS}},
        ],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"main.py": program},
    }
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


class WithoutGpus:
    """How long the Node offers no GPU, watched from a thread."""

    def __init__(self, stage: InstallStage) -> None:
        self.seconds = 0.0
        self.spells = 0
        self._stage = stage
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop as soon as the Node offers GPUs."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        away_s: float | None = None
        while True:
            _, allocatable = self._stage.gpus(MACHINE)
            now_s = time.monotonic()
            if allocatable == 0 and away_s is None:
                away_s, self.spells = now_s, self.spells + 1
            elif allocatable and away_s is not None:
                self.seconds, away_s = self.seconds + now_s - away_s, None
            if self._is_over.wait(0.05) and away_s is None:
                return


def offers_all(stage):
    """Whether Node and kubelet have all GPUs: the Node shows those of before for a moment."""
    return stage.gpus(MACHINE) == (8, 8) and len(allocatable_devices(stage.nodes[MACHINE])) == 8


def checked(stage):
    """Check the node as the page says: plugin Ready, all GPUs offered, no second plugin."""
    plugins = f"/api/v1/namespaces/{NODE}/pods?labelSelector=app.kubernetes.io/name=coterie-plugin"
    await_so(lambda: bool(stage.get(plugins)["items"]), "the plugin's pod")
    run_documented(stage, stage.folder, documented(PAGE, "wait node/my-node", **WORDS))
    assert run_documented(stage, stage.folder, documented(PAGE, "uniq --repeated")) == ""


def moved(stage, listing, commands):
    """Run the page's commands for the node and wait for all GPUs; for how long it had none."""
    assert run_documented(stage, stage.folder, documented(PAGE, listing, **WORDS)).count("\n") == 2
    with WithoutGpus(stage) as without:
        for text in commands:
            run_documented(stage, stage.folder, text)
        await_so(lambda: offers_all(stage), "all GPUs of the node")
    assert without.spells <= 1
    return without.seconds


def test_a_node_moves_and_moves_back_below_running_pods(stage):
    """First observed beside NVIDIA's, as docs/install.md recommends; no container is touched."""
    release = ChartRelease(stage)
    stage.pods.create(gpu_pod("first", 2))
    first = stage.process("first")
    assert len(first.devices) == 2

    release.install("--create-namespace", mode="audit")
    stage.kubectl("label", "node", MACHINE, f"{SIMULATED}=true")
    await_so(lambda: reported(stage) == set(first.devices), "GPUs of the pod in the report")
    assert stage.gpus(MACHINE) == (8, 8)
    assert not any("scheduler" in one or "extender" in one for one in release.objects())
    stage.kubectl("label", "node", MACHINE, f"{SIMULATED}-")
    release.upgrade(mode="second-scheduler", plugin__mode="device-plugin")

    there_s = moved(
        stage,
        "get pods \\\n  --selector=app.kubernetes.io/name=nvidia-device-plugin",
        [documented(PAGE, "label node my-node example.com/nvidia-device-plugin=off", **WORDS)],
    )
    checked(stage)
    assert stage.process("first") == first
    stage.pods.create(gpu_pod("second", 4, schedulerName="coterie-scheduler"))
    second = stage.process("second")
    assert second.devices == tuple(stage.plan("second"))
    assert not set(second.devices) & set(first.devices)

    back_s = moved(
        stage,
        "get pods \\\n  --selector=app.kubernetes.io/name=coterie-plugin",
        [
            documented(PAGE, "label node my-node coterie.gpu/agent-", **WORDS),
            f"kubectl label node {MACHINE} example.com/nvidia-device-plugin-",
        ],
    )
    stage.pods.create(gpu_pod("third", 2))
    third = stage.process("third")
    by_kubelet = held_by(stage.nodes[MACHINE], "third")["main"]
    assert third.devices == by_kubelet
    assert not set(third.devices) & {*first.devices, *second.devices}
    assert [stage.process(name) for name in ("first", "second")] == [first, second]
    assert release.restarts() == 0
    release.uninstall()
    assert [stage.process(name) for name in ("first", "second")] == [first, second]
    print(f"without GPUs: there {there_s:.1f} s, back {back_s:.1f} s")  # noqa: T201 - figures


def reported(stage):
    """The GPUs that the Node's report says to be some pod's."""
    meta = stage.get(node_path(MACHINE))["metadata"]
    text = meta.get("annotations", {}).get(names.DEVICES)
    return {one for hold in decode_devices(text).holds for one in hold.ids} if text else set()
