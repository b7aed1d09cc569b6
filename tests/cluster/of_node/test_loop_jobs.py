"""The loop closed: extender, scheduler, two real kubelets and the plugin, under bursts of Jobs.

Extender and plugins have the rights of the chart and no more. What the extender planned, what the
kubelets say they gave, and what the programs in the containers find in their environment are three
witnesses that do not know of each other.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack

import pytest

from extender.embedded import parse_cluster
from tests.cluster.loop.loop_jobs import JobMix
from tests.cluster.loop.loop_record import NO_REASON
from tests.cluster.loop.loop_stage import loop_stage
from tests.cluster.node.stub_plugin import StubPlugin
from topology.model import decode_topology, names

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

N_JOBS = 300
BURST = 80
SIMULATED = parse_cluster(
    "2x dgx-1-v100, 1x dgx-h100, 1x hgx-h200, 1x summit, 1x 4x-a100-sxm, 1x 8x-a6000-bridged, "
    "1x 8x-l4"
)
"""Eight nodes beside the two real ones, of other makes but for two."""
N_REAL = 100
"""So many containers with a plan must have run on the real ones."""
N_ALONE = 30
N_KILLED = 60
REFUSALS = {"UnexpectedAdmissionError", "TopologyAffinityError"}
"""Why a kubelet refuses a pod for its devices."""
UNREAD_AT_MOST = 8
"""So many logs may go with a kubelet: a container has at least one of its node's GPUs."""
CUT_OFF = {"StartError", "ContainerStatusUnknown"}
"""What becomes of a container whose kubelet is killed while it has the runtime start it, in the
words of containerd (internal/cri/server/helpers.go, 2.2) and of pkg/kubelet/container."""
TAKEN_BACK = {NO_REASON}
"""A pod that is refused by a kubelet which was started anew, while its containers run: once they
have ended, the kubelet writes their state without the reason of its refusal (its log: "Pod
attempted illegal phase transition", pkg/kubelet/kubelet_pods.go)."""


@pytest.fixture(scope="module")
def stage(control_plane, node_tools):
    """Two nodes."""
    with loop_stage(control_plane, node_tools, ["left", "right"]) as running:
        yield running


def test_every_container_gets_what_was_planned(stage):
    """The promise of it all: the set that was scored is the set that is allocated.

    Simulated nodes have no kubelet that could go its own way: their Jobs have plans and complete.
    """
    stage.start_plugins(name="planned")
    stage.until(lambda: all(stage.report(node).policy is not None for node in stage.nodes))
    before = [stage.annotation(node, names.DEVICES) for node in stage.nodes]
    with stage.beside(SIMULATED) as simulated:
        verdict = stage.run(JobMix(N_JOBS, seed=1, prefix="job"), burst=BURST)
    assert verdict.failures == {}
    assert verdict.shared == ()
    assert verdict.astray == verdict.unread == ()
    assert len(verdict.planned) == len(verdict.containers) >= N_REAL
    assert verdict.is_watched
    there = {node.name: set(node.ids) for node in simulated}
    assert {one.node for one in verdict.simulated} == there.keys()
    for one in verdict.simulated:
        assert len(one.planned) == one.size
        assert set(one.planned) <= there[one.node]
    assert len(verdict.containers) + len(verdict.simulated) >= N_JOBS
    assert before == [stage.annotation(node, names.DEVICES) for node in stage.nodes]
    assert stage.reported() == set()


def test_without_a_preferred_allocation_the_kubelet_chooses_itself(stage):
    """What the same Jobs get where no plugin answers GetPreferredAllocation, as with other plugins.

    The plugin only reports; a plugin without preferences serves the same GPUs.
    """
    stage.start_plugins("--mode=reporter", name="reporter")
    with ExitStack() as stack:
        for node in stage.nodes:
            stage.until(lambda node=node: stage.annotation(node, names.TOPOLOGY) is not None)
            gpus = decode_topology(stage.annotation(node, names.TOPOLOGY)).gpus
            stack.enter_context(StubPlugin(node, dict.fromkeys(str(gpu.uuid) for gpu in gpus)))
        stage.until_known()
        verdict = stage.run(JobMix(N_ALONE, seed=1, prefix="alone"))
    assert verdict.shared == verdict.unread == ()
    assert verdict.astray != ()


def test_jobs_complete_while_everything_is_killed(stage):
    """Plugins, kubelets and extender by SIGKILL: no GPU has two holders, all Jobs complete."""
    chance = random.Random(3)  # noqa: S311 - repeatable
    stage.start_plugins(name="killed")
    ends = threading.Event()
    kills = []

    def kill():
        while not ends.wait(chance.uniform(2, 6)):
            node = chance.choice(stage.nodes)
            what = chance.choice(("plugin", "plugin", "kubelet", "extender"))
            kills.append(what)
            if what == "kubelet":
                node.restart_kubelet()
                continue
            plugin, extender = stage.plugins[node.name].program, stage.cast.extender
            program = plugin if what == "plugin" else extender
            program.kill()
            time.sleep(chance.uniform(0, 2))
            program.start()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        verdict = stage.run(JobMix(N_KILLED, seed=2, prefix="kill"))
    finally:
        ends.set()
        killer.join()
    print({what: kills.count(what) for what in kills})  # noqa: T201 - what was done
    assert verdict.shared == ()
    assert set(verdict.failures) <= REFUSALS | CUT_OFF | TAKEN_BACK
    assert len(verdict.unread) <= UNREAD_AT_MOST * kills.count("kubelet")
    assert verdict.is_watched
    assert stage.unreported(verdict.astray) == []
