"""The independent checker can fail: each promise is broken once in a forged history."""

from __future__ import annotations

import json

import pytest

from tests.cluster.fleet.checker import Change, Checker, FaultKind
from tests.cluster.fleet.workload import gpu_container, make_pod

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"


class History:
    """Forged revisions, a tenth of a second apart, fed to a checker."""

    def __init__(self, **options):
        self.checker = Checker(**options)
        self.revision = 0

    def put(self, key, value, at_s=None):
        """One revision of one object."""
        self.revision += 1
        self.checker.see(Change(self.revision, at_s or self.revision / 10, key, value))

    def node(self, name, n_gpus=4, *, has_topology=True, unschedulable=False):
        """A node with the devices `<name>/0`, `<name>/1`, ..."""
        gpus = [{"uuid": f"{name}/{i}"} for i in range(n_gpus)]
        text = json.dumps({"v": "1.0", "gpus": gpus})
        meta = {"name": name, "annotations": {"coterie.gpu/topology": text}}
        value = {
            "metadata": meta if has_topology else {"name": name},
            "spec": {"unschedulable": unschedulable},
            "status": {"allocatable": {GPU: str(n_gpus)}},
        }
        self.put(f"/registry/minions/{name}", value)

    def pod(self, name, gpus=1, *, uid=None, node=None, plan=None, status=None, at_s=None, **made):
        """A revision of a pod; `plan` is a text, or ids by container, or ids of "main"."""
        pod = make_pod(name, gpus, **made)
        pod["metadata"]["uid"] = uid or name
        pod["spec"]["nodeName"] = node
        if plan is not None:
            pod["metadata"]["annotations"]["coterie.gpu/plan"] = planned(node, plan)
        pod["status"] = status or {"phase": "Pending"}
        self.put(f"/registry/pods/default/{name}", pod, at_s)

    def bound(self, name, gpus=1, **fields):
        """A pod that is created, then bound."""
        made = {key: fields[key] for key in ("containers", "inits", "uid") if key in fields}
        self.pod(name, gpus, **made)
        self.pod(name, gpus, **fields)

    def gone(self, name):
        """The object is removed."""
        self.put(f"/registry/pods/default/{name}", None)

    def kinds(self):
        """The promises that were broken."""
        return [fault.kind for fault in self.checker.faults]


def planned(node, plan):
    """A plan's text."""
    if isinstance(plan, str):
        return plan
    by_container = plan if isinstance(plan, dict) else {"main": plan}
    containers = [{"name": c, "resource": GPU, "ids": list(i)} for c, i in by_container.items()]
    return json.dumps({"v": 1, "node": node, "containers": containers, "generation": 1, "score": 0})


@pytest.fixture
def history():
    """Two nodes of four GPUs."""
    made = History()
    made.node("n")
    made.node("o")
    return made


def test_a_clean_history_has_no_fault(history):
    """Plans beside each other, and one after another on the same device."""
    history.bound("a", 2, node="n", plan=["n/0", "n/1"])
    history.bound("b", 2, node="n", plan=["n/2", "n/3"])
    history.gone("a")
    history.bound("c", 1, node="n", plan=["n/0"])
    history.pod("b", 2, node="n", plan=["n/2", "n/3"], status={"phase": "Succeeded"})
    history.bound("d", 2, node="n", plan=["n/2", "n/3"])
    history.bound("e", 0, node="n")
    assert history.checker.faults == []
    assert history.checker.n_bound == 5
    assert history.checker.n_bound_gpu == 4
    assert history.checker.free_ids("n") == {"n/1"}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        pytest.param({"plan": None}, FaultKind.NO_PLAN, id="no plan at all"),
        pytest.param({"plan": "{"}, FaultKind.BAD_PLAN, id="plan is not JSON"),
        pytest.param({"plan": "{}"}, FaultKind.BAD_PLAN, id="plan lacks its fields"),
        pytest.param(
            {"plan": planned("n", ["n/0"]).replace('"v": 1', '"v": 2')},
            FaultKind.BAD_PLAN,
            id="plan of another major version",
        ),
        pytest.param({"plan": planned("o", ["n/0"])}, FaultKind.WRONG_NODE, id="another node"),
        pytest.param({"plan": {"x": ["n/0"]}}, FaultKind.WRONG_CONTAINERS, id="another container"),
        pytest.param(
            {"plan": {"main": ["n/0"], "x": ["n/1"]}},
            FaultKind.WRONG_CONTAINERS,
            id="one container too many",
        ),
        pytest.param(
            {"plan": planned("n", ["n/0"]).replace(GPU, "amd.com/gpu")},
            FaultKind.WRONG_CONTAINERS,
            id="another resource",
        ),
        pytest.param({"plan": ["o/0"]}, FaultKind.UNKNOWN_ID, id="a device of another node"),
        pytest.param({"node": "p", "plan": ["n/0"]}, FaultKind.UNKNOWN_NODE, id="no such node"),
    ],
)
def test_a_wrong_plan_is_found(history, fields, kind):
    """A pod of one GPU, bound to node n."""
    history.bound("a", 1, **({"node": "n"} | fields))
    assert history.kinds() == [kind]


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(["n/0"], id="one too few"),
        pytest.param(["n/0", "n/1", "n/2"], id="one too many"),
        pytest.param(["n/0", "n/0"], id="one twice"),
    ],
)
def test_a_wrong_size_is_found(history, plan):
    """A container that requests two GPUs has two different ones."""
    history.bound("a", 2, node="n", plan=plan)
    assert set(history.kinds()) == {FaultKind.WRONG_SIZE}


def containers(first, second, **fields):
    """Two containers with GPUs."""
    return [gpu_container("first", first), gpu_container("second", second, **fields)]


@pytest.mark.parametrize(
    ("layout", "plan", "kinds"),
    [
        pytest.param(
            {"containers": containers(1, 1)},
            {"first": ["n/0"], "second": ["n/0"]},
            {FaultKind.SHARED_ID, FaultKind.WRONG_SIZE},
            id="two apps share a device",
        ),
        pytest.param(
            {
                "containers": [gpu_container("main", 1)],
                "inits": [gpu_container("side", 1, restartPolicy="Always")],
            },
            {"side": ["n/0"], "main": ["n/0"]},
            {FaultKind.SHARED_ID, FaultKind.WRONG_SIZE},
            id="an app shares with a sidecar",
        ),
        pytest.param(
            {
                "containers": [gpu_container("main", 1)],
                "inits": [
                    gpu_container("side", 1, restartPolicy="Always"),
                    gpu_container("warm", 1),
                ],
            },
            {"side": ["n/0"], "warm": ["n/0"], "main": ["n/1"]},
            {FaultKind.SHARED_ID},
            id="an init container takes a running sidecar's",
        ),
        pytest.param(
            {"containers": [gpu_container("main", 1)], "inits": [gpu_container("warm", 1)]},
            {"warm": ["n/0"], "main": ["n/1"]},
            {FaultKind.WRONG_SIZE},
            id="the pod has more than its effective request",
        ),
        pytest.param(
            {"containers": [gpu_container("main", 1)], "inits": [gpu_container("warm", 2)]},
            {"warm": ["n/0", "n/1"], "main": ["n/1"]},
            set(),
            id="an init container hands on what it had",
        ),
    ],
)
def test_containers_share_only_what_the_kubelet_hands_on(history, layout, plan, kinds):
    """Apps and sidecars hold side by side; what an init container had is used again."""
    history.bound("a", node="n", plan=plan, **layout)
    assert set(history.kinds()) == kinds


def test_an_overlap_is_found_and_named(history):
    """The promise that matters most: which device, which pods, which revision."""
    history.bound("a", 2, node="n", plan=["n/0", "n/1"])
    history.bound("b", 2, node="n", plan=["n/1", "n/2"])
    (fault,) = history.checker.faults
    assert fault.kind is FaultKind.OVERLAP
    assert fault.pod == "default/b"
    assert fault.revision == history.revision
    assert fault.detail == "n/1 of n, by default/a"


def test_an_overlap_within_one_revision_is_found(history):
    """A device that changes hands must be free in between, however briefly the plans overlap."""
    history.bound("a", 1, node="n", plan=["n/0"])
    history.bound("b", 1, node="n", plan=["n/0"])
    history.gone("a")
    assert history.kinds() == [FaultKind.OVERLAP]


def test_a_pod_that_is_being_deleted_still_holds_its_devices(history):
    """Its containers run until the kubelet has confirmed their end."""
    history.bound("a", 1, node="n", plan=["n/0"])
    history.pod("a", 1, node="n", plan=["n/0"], status={"phase": "Running"})
    history.bound("b", 1, node="n", plan=["n/0"])
    assert history.kinds() == [FaultKind.OVERLAP]


def test_a_moved_pod_and_a_changed_plan_are_found(history):
    """A binding is for good."""
    history.bound("a", 1, node="n", plan=["n/0"])
    history.pod("a", 1, node="o", plan=planned("n", ["n/0"]))
    history.pod("a", 1, node="o", plan=planned("n", ["n/1"]))
    assert history.kinds() == [FaultKind.BOUND_AGAIN, FaultKind.PLAN_CHANGED]


def test_a_revived_pod_is_found(history):
    """Its devices were given to others when it ended."""
    history.bound("a", 1, node="n", plan=["n/0"])
    history.pod("a", 1, node="n", plan=["n/0"], status={"phase": "Failed"})
    history.pod("a", 1, node="n", plan=["n/0"], status={"phase": "Running"})
    assert history.kinds() == [FaultKind.REVIVED]


def test_a_new_pod_of_the_same_name_is_another_pod(history):
    """Bound twice by name, once by uid; what the first one held is free again."""
    history.bound("a", 1, node="n", plan=["n/0"])
    history.gone("a")
    history.bound("a", 1, uid="new", node="o", plan=["o/0"])
    assert history.checker.faults == []
    assert history.checker.free_ids("n") == {"n/0", "n/1", "n/2", "n/3"}


def test_nodes_without_topology_go_by_count(history):
    """Pods are bound there without a plan, up to the number of devices."""
    history.node("blind", 2, has_topology=False)
    history.bound("a", 2, node="blind")
    assert history.kinds() == []
    history.bound("b", 1, node="blind")
    assert history.kinds() == [FaultKind.OVERCOMMIT]


def test_a_pod_bound_by_hand_needs_no_plan_and_its_node_is_placed_by_count(history):
    """Its devices are unknown, so no plan can leave them out."""
    history.pod("static", 1, node="n")
    history.bound("a", 2, node="n")
    history.gone("static")
    history.gone("a")
    assert history.kinds() == []
    history.bound("b", 1, node="n")
    assert history.kinds() == [FaultKind.NO_PLAN]


def by_count(_node, free, pod):
    """A pod fits where enough devices are free."""
    return len(free) >= pod.size


@pytest.fixture
def queue():
    """One node of four GPUs, all but one of them taken, and a pod of two that came at 10 s."""
    made = History(fits=by_count)
    made.node("n")
    made.bound("a", 3, node="n", plan=["n/0", "n/1", "n/2"])
    made.pod("b", 2, at_s=10.0)
    return made


def test_a_pod_that_waits_for_room_does_not_count(queue):
    """Only a wait that a bind could have ended counts."""
    queue.pod("b", 2, node="n", at_s=100.0, status={"phase": "Pending"})
    assert queue.checker.longest_waits() == {}


def test_a_pod_that_waits_beside_room_counts_from_the_freeing_on(queue):
    """Here from 20 s, when three GPUs became free, to 27 s."""
    queue.put("/registry/pods/default/a", None, 20.0)
    queue.pod("b", 2, node="n", plan=["n/0", "n/1"], at_s=27.0)
    assert queue.checker.longest_waits() == {"default/b": 7.0}


def test_room_that_goes_ends_the_stretch(queue):
    """7 s and 5 s beside room, with other pods in between, are not 12 s."""
    queue.put("/registry/pods/default/a", None, 20.0)
    queue.pod("c", 4, at_s=25.0)
    queue.pod("c", 4, node="n", plan=["n/0", "n/1", "n/2", "n/3"], at_s=27.0)
    queue.put("/registry/pods/default/c", None, 50.0)
    queue.pod("b", 2, node="n", plan=["n/0", "n/1"], at_s=55.0)
    assert queue.checker.longest_waits() == {"default/b": 7.0, "default/c": 2.0}


def test_a_pod_that_still_waits_counts_up_to_now(queue):
    """Stuck pods are never bound; their wait must show all the same."""
    queue.put("/registry/pods/default/a", None, 20.0)
    assert queue.checker.longest_waits() == {}
    assert queue.checker.longest_waits(until_s=90.0) == {"default/b": 70.0}
    assert [pod.name for pod in queue.checker.unbound()] == ["b"]


def failed(reason):
    """Status of a pod whose scheduling failed."""
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}],
    }


def test_error_backoff_is_left_out_and_a_refusal_is_not(queue):
    """From 21 s to 30 s the scheduler backs off after an error; then it only refuses."""
    queue.put("/registry/pods/default/a", None, 20.0)
    queue.pod("b", 2, at_s=21.0, status=failed("SchedulerError"))
    queue.pod("b", 2, at_s=22.0, status=failed("SchedulerError"))
    queue.pod("b", 2, at_s=30.0, status=failed("Unschedulable"))
    queue.pod("b", 2, at_s=33.0, status=failed("Unschedulable"))
    assert queue.checker.longest_waits(until_s=36.0) == {"default/b": 6.0}


def test_gated_and_deleted_pods_do_not_wait(queue):
    """They may not be bound."""
    queue.put("/registry/pods/default/a", None, 20.0)
    queue.pod("b", 2, at_s=21.0, spec={"schedulingGates": [{"name": "quota"}]})
    assert queue.checker.longest_waits(until_s=99.0) == {"default/b": 1.0}


def test_a_cordoned_node_does_not_fit(queue):
    """kube-scheduler would not bind there."""
    queue.node("n", unschedulable=True)
    queue.put("/registry/pods/default/a", None, 20.0)
    assert queue.checker.longest_waits(until_s=99.0) == {}


def test_pods_without_gpus_wait_too(queue):
    """They need any node, and Coterie must not be in their way."""
    queue.pod("plain", 0, at_s=30.0)
    assert queue.checker.longest_waits(until_s=40.0) == {"default/plain": 10.0}


def test_excused_windows_cut_a_stretch(queue):
    """From 20 s to 60 s with the scheduler dead from 22 s to 40 s: 20 s are its own."""
    queue.put("/registry/pods/default/a", None, 20.0)
    waits = queue.checker.longest_waits(until_s=60.0, excused=[(22.0, 40.0), (70.0, 80.0)])
    assert waits == {"default/b": 20.0}


def test_a_changed_wish_starts_another_wait(queue):
    """Whether a node fits depends on what the pod requests."""
    queue.put("/registry/pods/default/a", None, 20.0)
    queue.pod("b", 2, at_s=26.0, annotations={"coterie.gpu/affinity": "numa"})
    assert queue.checker.longest_waits(until_s=30.0) == {"default/b": 6.0}
