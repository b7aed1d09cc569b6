"""What the kubelet does with device plugins: the ground that Coterie's plugin stands on.

Each test tries one statement about the device manager on the real kubelet, with the least plugin
there can be; a new version of Kubernetes that behaves otherwise fails here, by name.
"""

from __future__ import annotations

import json
import time

import grpc
import pytest

from tests.cluster.fleet.workload import RESOURCE
from tests.cluster.node.real_pods import (
    has_ended,
    is_failed,
    is_running,
    real_container,
    real_pod,
)
from tests.cluster.node.stub_plugin import VARIABLE, StubPlugin, holders

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet]

IDS = tuple(f"GPU-{number}" for number in range(8))
NO_NUMA = dict.fromkeys(IDS)
TWO_NUMA = {one: place // 4 for place, one in enumerate(IDS)}
SOON_S = 60.0


class Watched:
    """The node's devices as the API server has them: capacity and allocatable."""

    def __init__(self, control_plane, node):
        self._plane = control_plane
        self._path = f"/api/v1/nodes/{node.name}"

    def now(self):
        """Both figures."""
        status = self._plane.client.get(self._path).json()["status"]
        return tuple(int(status[one].get(RESOURCE, 0)) for one in ("capacity", "allocatable"))

    def until(self, capacity, allocatable):
        """Wait until they are so; how long it took."""
        began = time.monotonic()
        while (seen := self.now()) != (capacity, allocatable):
            assert time.monotonic() < began + SOON_S, seen
            time.sleep(0.05)
        return time.monotonic() - began


@pytest.fixture
def devices(control_plane, node):
    """The node's count of devices, after the plugin of the test before is seen to be gone."""
    watched = Watched(control_plane, node)
    watched.until(watched.now()[0], 0)
    return watched


def run(pods, name, *containers, **fields):
    """Run a pod on the node until all its containers run."""
    pods.create(real_pod(name, *containers, nodeName="machine", **fields))
    return pods.until(name, is_running)


def first(call):
    """Prefer the first of what is free, in the order of ids."""
    ids = list(call.must_include)
    return ids + [one for one in sorted(call.available) if one not in ids][: call.size - len(ids)]


def test_a_plugin_registers_and_is_called(node, devices, pods):
    """From Register to the environment in the container, with the time that each step takes."""
    with StubPlugin(node, NO_NUMA, prefer=lambda _: ["GPU-3", "GPU-5"]) as plugin:
        listed_s = devices.until(8, 8)
        began = time.monotonic()
        pod = run(pods, "two", real_container("main", 2))
        ran_s = time.monotonic() - began
        preferred, allocated = plugin.calls
        assert (preferred.verb, sorted(preferred.available)) == (
            "GetPreferredAllocation",
            sorted(IDS),
        )
        assert (preferred.must_include, preferred.size) == ((), 2)
        assert (allocated.verb, allocated.ids) == ("Allocate", ("GPU-3", "GPU-5"))
        assert node.given(pod, "main")["environment"] == {VARIABLE: "GPU-3,GPU-5"}
        assert holders(node) == {("two", "main"): ("GPU-3", "GPU-5")}
        print(f"allocatable after {listed_s:.2f} s, the pod ran after {ran_s:.2f} s")  # noqa: T201


def test_available_devices_come_in_no_order_and_without_a_pod_name(node, devices, pods):
    """So the plugin has to sort, and to find out for which pod the call is."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        for number in range(4):
            run(pods, f"one-{number}", real_container("main", 1))
        offers = [call.available for call in plugin.calls_of("GetPreferredAllocation")]
    assert [sorted(offer) for offer in offers] == [list(IDS[number:]) for number in range(4)]
    assert any(list(offer) != sorted(offer) for offer in offers)


def test_preferred_allocation_is_called_even_for_all_free_devices(node, devices, pods):
    """Facts 5.2, case 5: with nothing to choose the plugin is still called."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        run(pods, "all", real_container("main", 8))
        assert [call.size for call in plugin.calls_of("GetPreferredAllocation")] == [8]


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        pytest.param(["GPU-6", "GPU-9"], {"GPU-6"}, id="an unknown device is replaced by another"),
        pytest.param(["GPU-6"], {"GPU-6"}, id="too few are filled up"),
        pytest.param([], set(), id="none at all is as good as no plugin's word"),
    ],
)
def test_an_answer_that_is_short_is_filled_up_at_will(node, devices, pods, answer, kept):
    """Facts 5.2: so only a complete answer is an answer."""
    with StubPlugin(node, NO_NUMA, prefer=lambda _: answer) as plugin:
        devices.until(8, 8)
        run(pods, "short", real_container("main", 2))
        (allocated,) = plugin.calls_of("Allocate")
    assert len(allocated.ids) == 2
    assert kept <= set(allocated.ids) <= set(IDS)


def test_an_answer_that_is_long_is_cut_at_will(node, devices, pods):
    """Facts 5.2: too many are as bad as too few."""
    with StubPlugin(node, NO_NUMA, prefer=lambda _: IDS[:4]) as plugin:
        devices.until(8, 8)
        run(pods, "long", real_container("main", 2))
        (allocated,) = plugin.calls_of("Allocate")
    assert len(allocated.ids) == 2
    assert set(allocated.ids) <= set(IDS[:4])


def test_an_error_fails_the_pod_for_good(node, devices, pods):
    """Facts 5.1: the kubelet does not retry, so an error is the last resort."""

    def refuse(_call):
        msg = "no such set"
        raise ValueError(msg)

    with StubPlugin(node, NO_NUMA, prefer=refuse):
        devices.until(8, 8)
        pods.create(real_pod("refused", real_container("main", 2), nodeName=node.name))
        status = pods.until("refused", is_failed)["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "no such set" in status["message"]


def test_devices_of_init_containers_are_reused_without_a_call(node, devices, pods):
    """Facts 5.2, case 2: the app gets the init container's devices, whatever the plugin wishes."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        inits = [real_container("warm", 4, runs_s=0.1)]
        run(pods, "reuses", real_container("main", 2), inits=inits)
        assert len(plugin.calls_of("GetPreferredAllocation")) == 1
        initial, final = (call.ids for call in plugin.calls_of("Allocate"))
        assert set(final) < set(initial)
        assert holders(node) == {("reuses", "main"): final}


def test_devices_of_init_containers_must_be_included(node, devices, pods):
    """Facts 5.2, case 5: a larger app container gets them and more; the call is for all of them."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        inits = [real_container("warm", 2, runs_s=0.1)]
        run(pods, "grows", real_container("main", 4), inits=inits)
        initial, grown = plugin.calls_of("GetPreferredAllocation")
    assert (initial.must_include, initial.size) == ((), 2)
    assert (set(grown.must_include), grown.size) == (set(IDS[:2]), 4)
    assert set(grown.must_include) <= set(grown.available)


def test_sidecars_keep_their_devices(node, devices, pods):
    """Facts 5.2: an init container that goes on running hands nothing on."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        beside = real_container("beside", 1, restartPolicy="Always")
        run(pods, "sidecar", real_container("main", 2), inits=[beside])
        sidecar, main = (set(call.ids) for call in plugin.calls_of("Allocate"))
        assert not sidecar & main
        assert holders(node) == {
            ("sidecar", "beside"): tuple(sorted(sidecar)),
            ("sidecar", "main"): tuple(sorted(main)),
        }


def test_the_pods_status_has_its_devices(node, devices, pods):
    """Facts 5.3: from 1.36 on, status names them, and their health."""
    if not node.reports_devices:
        pytest.skip("ResourceHealthStatus is off before Kubernetes 1.36")
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        run(pods, "reports", real_container("main", 2))
        pod = pods.until(
            "reports", lambda pod: health(pod) == {"GPU-0": "Healthy", "GPU-1": "Healthy"}
        )
        plugin.set_ill("GPU-1")
        pods.until("reports", lambda pod: health(pod) == {"GPU-0": "Healthy", "GPU-1": "Unhealthy"})
        (status,) = pod["status"]["containerStatuses"]
        assert status["allocatedResourcesStatus"][0]["name"] == RESOURCE


def until_held(node, expected):
    """Wait until PodResources reports just that; how long it took.

    It lists active pods only, and a kubelet that starts knows none before the API server has
    sent them, which takes a second: until then it looks as if no pod had any device.
    """
    began = time.monotonic()
    while (held := holders(node)) != expected:
        assert held == {}, held
        assert time.monotonic() < began + SOON_S
        time.sleep(0.1)  # ten times a second is all that it answers
    return time.monotonic() - began


def health(pod):
    """Devices and their health, from the status of the first container."""
    (status,) = pod["status"]["containerStatuses"]
    resources = status.get("allocatedResourcesStatus", [{}])[0].get("resources", [])
    return {one["resourceID"]: one["health"] for one in resources}


def test_an_unhealthy_device_is_still_counted_and_not_handed_out(node, devices, pods):
    """Facts 5.3: out of allocatable, still in capacity; who has it keeps it."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        run(pods, "has-it", real_container("main", 1))
        plugin.set_ill("GPU-0", "GPU-1")
        devices.until(8, 6)
        run(pods, "gets-another", real_container("main", 1))
        assert plugin.calls_of("GetPreferredAllocation")[-1].available != ()
        assert not {"GPU-0", "GPU-1"} & set(plugin.calls_of("GetPreferredAllocation")[-1].available)
        assert is_running(pods.get("has-it"))
        plugin.set_ill()
        devices.until(8, 8)


def test_a_plugin_that_ends_leaves_no_device_allocatable(node, devices, pods):
    """Facts 5.3: at once, while the capacity stays and pods that run do not notice."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        run(pods, "runs", real_container("main", 2))
        plugin.stop()
        print(f"allocatable 0 after {devices.until(8, 0):.2f} s")  # noqa: T201 - a figure
        assert is_running(pods.get("runs"))
        assert holders(node) == {("runs", "main"): ("GPU-0", "GPU-1")}
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        assert plugin.calls == []


def test_a_restarted_kubelet_removes_sockets_and_requests_nothing_twice(node, devices, pods):
    """Facts 5.3: the plugin must come again; containers keep what they have without a call."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        run(pods, "runs", real_container("main", 2))
        before = node.kubelet_socket.stat()
        node.restart_kubelet()
        after = node.kubelet_socket.stat()
        # The number of the file may well be the same again: file systems reuse it at once.
        print(f"same inode: {after.st_ino == before.st_ino}")  # noqa: T201 - what happens
        assert after.st_ctime_ns != before.st_ctime_ns
        left = {path.name for path in node.device_plugins.iterdir() if path.is_socket()}
        assert left == {"kubelet.sock"}
        assert devices.now() == (0, 0)
        assert plugin.streams == 1
        plugin.stop()
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        empty_s = until_held(node, {("runs", "main"): ("GPU-0", "GPU-1")})
        print(f"PodResources complete {empty_s:.2f} s later")  # noqa: T201 - a figure
        run(pods, "next", real_container("main", 1))
        assert sorted(plugin.calls_of("GetPreferredAllocation")[0].available) == list(IDS[2:])
        assert [call.ids for call in plugin.calls_of("Allocate")] == [("GPU-2",)]
        assert is_running(pods.get("runs"))


def test_a_pod_is_refused_while_no_plugin_has_registered_since_the_start(node, devices, pods):
    """Facts 5.3: the checkpoint holds the resource, and the kubelet does not wait for a plugin."""
    with StubPlugin(node, NO_NUMA, prefer=first):
        devices.until(8, 8)
        run(pods, "known", real_container("main", 1))
        node.restart_kubelet()
        pods.create(real_pod("early", real_container("main", 1), nodeName=node.name))
        status = pods.until("early", is_failed)["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present" in status["message"]
    assert is_running(pods.get("known"))


def test_before_1_37_an_old_stream_that_ends_takes_the_new_plugin_with_it(node, devices, pods):
    """Facts 5.3, the race of an upgrade: so the old one ends first, then the new one registers."""
    old = StubPlugin(node, NO_NUMA, socket="old.sock", prefer=first)
    new = StubPlugin(node, NO_NUMA, socket="new.sock", prefer=first)
    with old:
        devices.until(8, 8)
        with new:
            while new.streams == 0:
                time.sleep(0.02)  # only the kubelet knows when it calls
            old.stop()
            if not node.knows_plugins_by_socket:
                devices.until(8, 0)
                new.register()
            devices.until(8, 8)
            run(pods, "next", real_container("main", 1))
            assert len(new.calls_of("Allocate")) == 1


def test_from_1_37_a_socket_that_is_known_is_refused_and_then_never_released(node, devices):
    """So each registration needs a socket of its own; what is stuck stays until a restart."""
    if not node.knows_plugins_by_socket:
        pytest.skip("before Kubernetes 1.37 the kubelet knows plugins by the resource alone")
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        with pytest.raises(grpc.RpcError, match="device plugin already connected"):
            plugin.register()
    time.sleep(2.0)  # the end of the stream was long ago for a kubelet that processes it
    devices.until(8, 8)
    with pytest.raises(grpc.RpcError, match="device plugin already connected"):
        StubPlugin(node, NO_NUMA, prefer=first).__enter__()
    node.restart_kubelet()
    devices.until(0, 0)
    with StubPlugin(node, NO_NUMA, prefer=first):
        devices.until(8, 8)


def test_the_checkpoint_names_pod_and_devices(node, devices, pods):
    """Facts 5.3: what a plugin that starts can read back."""
    with StubPlugin(node, TWO_NUMA, prefer=first):
        devices.until(8, 8)
        pod = run(pods, "noted", real_container("main", 2))
        noted = json.loads(node.checkpoint.read_text(encoding="utf-8"))
    (entry,) = noted["Data"]["PodDeviceEntries"]
    assert (entry["PodUID"], entry["ContainerName"]) == (pod["metadata"]["uid"], "main")
    by_numa = {numa: sorted(ids) for numa, ids in entry["DeviceIDs"].items()}  # in no order
    assert (entry["ResourceName"], by_numa) == (RESOURCE, {"0": ["GPU-0", "GPU-1"]})
    assert sorted(noted["Data"]["RegisteredDevices"][RESOURCE]) == list(IDS)


def test_pod_resources_can_be_called_during_an_allocation(node, devices, pods):
    """Facts 5.4: the plugin may call it before it answers; the new container has nothing yet."""
    seen = []

    def look(call):
        seen.append((holders(node), [pod["metadata"]["name"] for pod in listed(node)]))
        return first(call)

    with StubPlugin(node, NO_NUMA, prefer=look):
        devices.until(8, 8)
        run(pods, "before", real_container("main", 1))
        run(pods, "admitted", real_container("main", 2))
    assert seen[1][0] == {("before", "main"): ("GPU-0",)}
    assert set(seen[1][1]) == {"before", "admitted"}


def listed(node):
    """The kubelet's own list of its pods."""
    return node.get("/pods").json()["items"]


def test_listing_pod_resources_during_an_allocation_can_allocate_a_device_twice(
    node, devices, pods
):
    """Kubernetes 137534: List while an Allocate is in flight and a pod has just ended.

    The kubelet then forgets what it is allocating, and allocates it to the next pod too. A plugin
    may not call List during its own calls, and must know itself which pod has what.
    """
    sleeps = {"preStop": {"sleep": {"seconds": 10}}}

    def wait_for_the_end(_call):
        while ("ends", "main") in holders(node):
            time.sleep(0.1)  # ten times a second is all that it answers

    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        lasting = {"terminationGracePeriodSeconds": 30}
        run(pods, "ends", real_container("main", 1, lifecycle=sleeps), **lasting)
        pods.delete_later("ends")
        plugin.meanwhile = wait_for_the_end
        run(pods, "has-it", real_container("main", 1))
        plugin.meanwhile = lambda _: None
        run(pods, "has-it-too", real_container("main", 2))
        held = holders(node)
    assert held["has-it", "main"] == ("GPU-1",)
    assert "GPU-1" in held["has-it-too", "main"]


def test_pods_are_admitted_one_by_one(node, devices, pods):
    """Facts 11.4: while one is under admission, the kubelet's list holds none of the later ones."""
    seen = []

    def look(call):
        held = {name for name, _ in holders(node)}
        seen.append({pod["metadata"]["name"] for pod in listed(node)} - held)
        return first(call)

    with StubPlugin(node, NO_NUMA, prefer=look):
        devices.until(8, 8)
        names = [f"same-{number}" for number in range(4)]
        for name in names:
            pods.create(real_pod(name, real_container("main", 2), nodeName=node.name))
        for name in names:
            pods.until(name, is_running)
    assert all(len(one) == 1 for one in seen), seen
    assert set.union(*seen) == set(names)


def test_a_pod_whose_resource_was_never_registered_runs_without_it(node, pods):
    """Facts 11.1, the hazard: the kubelet drops what it does not know, and says nothing."""
    unknown = {"example.com/gpu": "2"}
    main = real_container("main") | {"resources": {"limits": unknown, "requests": unknown}}
    pods.create(real_pod("without", main, nodeName=node.name))
    pod = pods.until("without", is_running)
    assert node.given(pod, "main")["environment"] == {}


def test_pod_resources_limits_the_request_rate(node):
    """Facts 6: 100 per second and 10 at once, for all clients together."""
    refusals = set()
    for _ in range(200):
        try:
            holders(node)
        except grpc.RpcError as error:
            refusals.add((error.code(), error.details()))
    print(refusals)  # noqa: T201 - what this version says
    assert refusals <= {(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")}


def test_a_finished_pod_holds_nothing(node, devices, pods):
    """Facts 6: its devices are free for the next one, though the pod is still listed."""
    with StubPlugin(node, NO_NUMA, prefer=first) as plugin:
        devices.until(8, 8)
        pods.create(real_pod("ends", real_container("main", 8, runs_s=0.1), nodeName=node.name))
        pods.until("ends", has_ended)
        run(pods, "next", real_container("main", 8))
        assert len(plugin.calls_of("Allocate")) == 2
        assert [name for name, _ in holders(node)] == ["next"]
