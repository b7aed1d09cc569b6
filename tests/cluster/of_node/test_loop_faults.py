"""What a pod gets where something is wrong: a GPU that fails, a plan that cannot be kept, or none.

On a real kubelet with the plugin, extender and scheduler; each difference from a plan has to be
reported by the plugin on its Node, and by the extender on the pod.
"""

from __future__ import annotations

import json

import pytest

from tests.cluster.fleet.workload import RESOURCE, SCHEDULER, pod_path
from tests.cluster.loop.loop_stage import RECORDING, loop_stage
from tests.cluster.node.kubelet_node import KubeletNode
from tests.cluster.node.plugin_account import plugin_kubeconfig
from tests.cluster.node.plugin_process import start_plugin
from tests.cluster.node.real_pods import (
    has_ended,
    is_running,
    real_container,
    real_pod,
)
from tests.cluster.node.stub_plugin import VARIABLE, holders
from topology.annotations import ContainerPlan, Plan, decode_plan, encode_plan
from topology.model import decode_topology, names

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

EXTENDER = "coterie-extender"


@pytest.fixture(scope="module")
def stage(control_plane, node_tools):
    """One node with its plugin, extender and scheduler."""
    with loop_stage(control_plane, node_tools, ["machine"]) as running:
        running.start_plugins()
        yield running


@pytest.fixture
def node(stage):
    """Its node, which is well before and after each test."""
    (only,) = stage.nodes
    stage.until(lambda: stage.report(only).unhealthy == ())
    yield only
    stage.plugins[only.name].faults.unlink(missing_ok=True)


def gpus(stage, node):
    """The ids of the node's GPUs, in the machine's order."""
    return [gpu.uuid for gpu in decode_topology(stage.annotation(node, names.TOPOLOGY)).gpus]


def planned(pod):
    """The ids of a pod's plan."""
    return set(decode_plan(pod["metadata"]["annotations"][names.PLAN]).ids)


def seen(node, pod, container="main"):
    """The ids that the container's program found."""
    return set(node.given(pod, container)["environment"].get(VARIABLE, "").split(",")) - {""}


def wanted(name, size, **fields):
    """A pod for the scheduler."""
    return real_pod(name, real_container("main", size), schedulerName=SCHEDULER, **fields)


def spoil(stage, node, **faults):
    """Break the machine, at once and as a whole."""
    file = stage.plugins[node.name].faults
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(faults), encoding="utf-8")
    beside.rename(file)


def test_no_container_starts_on_a_gpu_that_failed_after_the_plan(stage, node, pods):
    """The kubelet hangs while the pod is planned and the GPU fails, then goes on."""
    node.kubelet.pause()
    try:
        pods.create(wanted("late", 2))
        pod = pods.until("late", lambda pod: "nodeName" in pod["spec"])
        plan = planned(pod)
        bad = min(plan)
        spoil(stage, node, lost=[bad])
        stage.until(lambda: [one.id for one in stage.report(node).unhealthy] == [bad])
    finally:
        node.kubelet.resume()
    pod = pods.until("late", lambda pod: is_running(pod) or has_ended(pod))
    if is_running(pod):
        assert len(seen(node, pod)) == 2
        assert bad not in seen(node, pod)
        stage.until(lambda: bad not in allocated(pods.get("late")))
    print(pod["status"]["phase"], pod["status"].get("reason"))  # noqa: T201 - which of the two


def allocated(pod):
    """The ids that a pod has by the extender's word: what was given, else what was planned."""
    notes = pod["metadata"]["annotations"]
    content = json.loads(notes.get(names.ALLOCATED) or notes[names.PLAN])
    return {one for container in content["containers"] for one in container["ids"]}


def test_a_pod_bound_by_hand_is_reported_and_its_gpus_are_not_planned(stage, node, pods):
    """Whatever holds GPUs without a plan is accounted for by the node's report."""
    pods.create(real_pod("by-hand", real_container("main", 3), nodeName=node.name))
    pod = pods.until("by-hand", is_running)
    held = seen(node, pod)
    assert len(held) == 3
    stage.until(lambda: {one.name for one in stage.report(node).holds} == {"by-hand"})
    assert set(stage.report(node).holds[0].ids) == held
    stage.until(lambda: len(stage.known(node)["free"]) == 5)
    pods.create(wanted("planned", 4))
    assert not planned(pods.until("planned", is_running)) & held
    pods.delete("by-hand")
    stage.until(lambda: stage.report(node).holds == (), within_s=180)  # looked at every 30 s


def test_a_plan_for_gpus_that_do_not_exist_is_replaced_and_reported(stage, node, pods):
    """Whoever wrote it, the pod gets real ones, and the difference is reported."""
    pods.create(
        wanted("misled", 2) | {"spec": wanted("misled", 2)["spec"] | {"schedulerName": "-"}}
    )
    ghosts = ("GPU-ghost-1", "GPU-ghost-2")
    container = ContainerPlan("main", RESOURCE, ghosts)
    plan = Plan(node.name, (container,), ghosts, generation=1, score_gbytes_per_s=0.0)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "misled", "annotations": {names.PLAN: encode_plan(plan)}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node.name},
    }
    extender = stage.plane.kubeconfig(EXTENDER)
    path = pod_path("misled") + "/binding"
    stage.plane.kubectl(
        "create", "--raw", path, "-f", "-", stdin=json.dumps(binding), kubeconfig=extender
    )
    pod = pods.until("misled", is_running)
    given = seen(node, pod)
    assert given < set(gpus(stage, node))
    assert holders(node) == {("misled", "main"): tuple(sorted(given))}
    stage.until(lambda: {one.name for one in stage.report(node).holds} == {"misled"})
    stage.until(lambda: names.ALLOCATED in pods.get("misled")["metadata"]["annotations"])
    assert allocated(pods.get("misled")) == given


def events(stage, pod, reason):
    """The Events of that reason on a pod."""
    chosen = {"fieldSelector": f"involvedObject.name={pod},reason={reason}"}
    path = "/api/v1/namespaces/default/events"
    return stage.plane.client.get(path, params=chosen).json()["items"]


def test_a_pod_that_runs_without_its_gpus_is_reported(stage, node_tools, pods):
    """Facts 11.1, the hazard: it started before the kubelet knew the resource.

    By the plugin's log and report, and by an Event on the pod; no GPUs are counted for it.
    """
    with KubeletNode(stage.plane, "bare", node_tools) as bare:
        pods.create(real_pod("without", real_container("main", 2), nodeName="bare"))
        pod = pods.until("without", is_running)
        assert seen(bare, pod) == set()
        plugin = start_plugin(bare, plugin_kubeconfig(stage.plane, "bare"), RECORDING)
        stage.until(lambda: plugin.events("plan_mismatch") != [])
        (event,) = plugin.events("plan_mismatch")
        assert (event["kind"], event["pod"]) == ("no-devices", "default/without")
        assert "runs without the nvidia.com/gpu it requests" in event["detail"]
        stage.until(lambda: "GpusMissing" in stage.plane.kubectl("describe", "pod", "without"))
        (event,) = events(stage, "without", "GpusMissing")
        assert (event["type"], event["source"]["component"]) == ("Warning", EXTENDER)
        assert event["involvedObject"]["uid"] == pod["metadata"]["uid"]
        assert "node bare started it before its kubelet knew of them" in event["message"]
        assert "delete the pod, and its controller makes a new one" in event["message"]
        assert [one.name for one in stage.report(bare).missing] == ["without"]
        stage.until(lambda: stage.known(bare).get("topology") is not None)
        known = stage.known(bare)
        assert (len(known["free"]), known["devices_unknown"]) == (8, [])
        pods.delete("without")
        stage.until(lambda: stage.report(bare).missing == (), within_s=180)
    stage.plane.kubectl("delete", "node", "bare")
