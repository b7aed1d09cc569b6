"""Plans and the real Topology Manager, for every policy and scope: planned sets stay planned.

The kubelet confines a container, or a whole pod, to NUMA nodes of its own choice and may refuse it
for good. The extender plans inside of that, for what is free when it plans. The kubelet decides by
what is free when it admits (ADR 0008), which is the same while no pod ends; where pods end and
start at the same moment, hardly any is refused, and what differs from its plan is reported.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from tests.cluster.fleet.workload import SCHEDULER
from tests.cluster.loop.loop_jobs import JobMix
from tests.cluster.loop.loop_stage import loop_stage
from tests.cluster.node.real_pods import RealPods, is_failed, is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import VARIABLE, allocatable_devices, holders
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope, decode_plan
from topology.model import names

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

N_JOBS = 14
N_GPUS = 8
"""Of `RECORDING`."""
FILLINGS = (
    ((1,), (2,), (4,), (1,)),
    ((2,), (2,), (3,), (1,)),
    ((1,), (1,), (1,), (1,), (4,)),
    ((2, 2), (3, 1)),
    ((1, 1), (2, 1), (3,)),
    ((4,), (2, 2)),
    ((2,), (4,), (2,)),
)
"""Pods that fill a node of 8 GPUs on 2 NUMA nodes, in whatever order: GPUs of each container."""
N_FILLINGS = 3
"""Of these for each configuration, in turn: the configurations together try all of them."""
MOST_REFUSED = 1
"""Of a configuration's Jobs' pods, where pods end while others are admitted: none in 200 when this
was last counted (ADR 0008), and the Job goes on with another pod."""
CONFIGS = [(policy, scope) for policy in TopologyManagerPolicy for scope in TopologyManagerScope]
N_PROBES = 10
"""A kubelet that has just started may refuse a pod for devices that it does not count yet."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a container was to get, and what it found."""

    pod: str
    container: str
    planned: tuple[str, ...]
    seen: tuple[str, ...]


@pytest.fixture(scope="module")
def stage(control_plane, node_tools):
    """One node of two NUMA nodes with its plugin, extender and scheduler."""
    with loop_stage(control_plane, node_tools, ["machine"]) as running:
        running.start_plugins()
        yield running


@pytest.mark.parametrize(
    ("policy", "scope"),
    [pytest.param(*one, id="-".join(o.value for o in one)) for one in CONFIGS],
)
def test_plans_stay_inside_what_the_kubelet_allows(stage, policy, scope):
    """The plugin notices the change by itself and reports it; from then on plans fit.

    First the node is filled again and again, by pods that come one by one or all at once. Then Jobs
    come and go.
    """
    configure(stage, policy, scope)
    chance = random.Random(f"{policy.value} {scope.value}")  # noqa: S311 - repeatable
    rows = []
    first = N_FILLINGS * CONFIGS.index((policy, scope))
    chosen = [FILLINGS[(first + i) % len(FILLINGS)] for i in range(N_FILLINGS)]
    for number, filling in enumerate(chosen):
        rows += fill(stage, f"fill-{number}", chance.sample(filling, len(filling)), number % 2)
    astray = [row for row in rows if row.planned != row.seen]
    print(f"  filled: {len(rows) - len(astray)} of {len(rows)} as planned")  # noqa: T201
    # No pod may have more than one NUMA node's under this policy; such Jobs would wait for ever.
    largest = 4 if policy is TopologyManagerPolicy.SINGLE_NUMA_NODE else 8
    verdict = stage.run(JobMix(N_JOBS, seed=4, mean_run_s=1, prefix="churn", largest=largest))
    assert astray == []
    assert len(rows) >= 2 * len(chosen)
    assert verdict.failures.keys() <= {"TopologyAffinityError"}
    assert sum(verdict.failures.values()) <= MOST_REFUSED
    assert verdict.shared == verdict.unread == ()
    assert verdict.is_watched
    assert stage.unreported(verdict.astray) == []


def test_what_the_kubelet_gives_twice_is_refused_by_the_plugin(stage):
    """Kubernetes 137534: a List of PodResources in the middle of an allocation loses count of it.

    Exporters of metrics call List at any time. Here one does while the plugin is stopped, where
    devices are aligned: the kubelet has chosen already, and a pod has just ended. The next pod is
    given the same NUMA node once more; the refusal has the kubelet count right again.
    """
    (node,) = stage.nodes
    configure(stage, TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.CONTAINER)
    pods, plugin = RealPods(stage.plane), stage.plugins[node.name]

    def run(name, size, **fields):
        main = real_container("main", size, **fields)
        pod = real_pod(name, main, nodeName=node.name, terminationGracePeriodSeconds=30)
        pods.create(pod)
        return pods.until(name, is_settled)

    assert is_running(run("first-node", 4))
    assert is_running(run("ends", 1, lifecycle={"preStop": {"sleep": {"seconds": 15}}}))
    pods.delete("first-node")
    pods.delete_later("ends")
    plugin.program.pause()
    try:
        pods.create(real_pod("has-it", real_container("main", 4), nodeName=node.name))
        stage.until(lambda: ("ends", "main") not in holders(node))
    finally:
        plugin.program.resume()
    assert is_running(pods.until("has-it", is_settled))
    pod = run("too", 4)
    assert pod["status"].get("reason") == "UnexpectedAdmissionError", pod["status"]
    assert "the kubelet allocated devices twice" in pod["status"]["message"]
    assert "belongs to container main of default/has-it" in pod["status"]["message"]
    assert is_running(run("next", 4))
    held = [one for (name, _), one in holders(node).items() if name in {"has-it", "next"}]
    assert len({gpu for ids in held for gpu in ids}) == 8
    pods.delete("has-it", "too", "next")


def configure(stage, policy, scope):
    """Restart the kubelet so; wait until the plugin has reported it, and pods run there again."""
    (node,) = stage.nodes
    plugin = stage.plugins[node.name]
    n_before = len(registrations(plugin))
    node.restart_kubelet(topologyManagerPolicy=policy.value, topologyManagerScope=scope.value)
    stage.until(lambda: len(registrations(plugin)) > n_before)
    stage.until(lambda: len(allocatable_devices(node)) == N_GPUS)
    expected = {"policy": policy.value, "scope": scope.value}
    learned_s = stage.until(lambda: stage.known(node)["topology_manager"] == expected)
    print(f"{policy.value}, {scope.value}: known after {learned_s:.1f} s")  # noqa: T201
    pods = RealPods(stage.plane)
    for _ in range(N_PROBES):
        pods.create(real_pod("probe", real_container("main", 4), schedulerName=SCHEDULER))
        probe = pods.until("probe", lambda one: is_running(one) or is_failed(one))
        pods.delete("probe")
        if is_running(probe):
            return
    msg = f"{N_PROBES} pods were refused after the kubelet's restart"
    raise AssertionError(msg)


def registrations(plugin):
    """How often a kubelet has taken the plugin's devices."""
    return [one for one in plugin.events("registration") if one["phase"] == "registered"]


def fill(stage, prefix, filling, is_one_by_one):
    """Run these pods beside each other; for each container what was planned and what it found.

    Where the policy has the last of them wait, they wait: no pod is evicted.
    """
    pods, (node,) = RealPods(stage.plane), stage.nodes
    created, rows = [], []
    for number, sizes in enumerate(filling):
        containers = [real_container(f"c{place}", size) for place, size in enumerate(sizes)]
        created.append(f"{prefix}-{number}")
        pods.create(real_pod(created[-1], *containers, schedulerName=SCHEDULER))
        if is_one_by_one:
            pods.until(created[-1], is_settled)
    for name in created:
        pod = pods.until(name, is_settled)
        assert not is_failed(pod), pod["status"]
        if not is_running(pod):
            print(f"  {name} waits: {filling}")  # noqa: T201 - rare, and worth a look
            continue
        for one in decode_plan(pod["metadata"]["annotations"][names.PLAN]).containers:
            visible = node.given(pod, one.name)["environment"][VARIABLE]
            rows.append(
                Row(name, one.name, tuple(sorted(one.ids)), tuple(sorted(visible.split(","))))
            )
    pods.delete(*created)
    return rows


def is_settled(pod):
    """Whether it runs, was refused, or waits."""
    scheduled = [
        one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"
    ]
    waits = any(one["status"] == "False" for one in scheduled)
    return is_running(pod) or is_failed(pod) or waits
