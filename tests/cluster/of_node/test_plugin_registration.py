"""The plugin's gRPC beside the real kubelet: it registers, is called, is dropped, and comes back.

Who decides is a stand-in that takes the first ids; what is tried is that kubelet and plugin
understand each other, however either of them ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from plugin.deviceplugin import (
    CallOutcome,
    CallRefused,
    DevicePluginMethod,
    ListedDevice,
    Registration,
    RegistrationChange,
    RegistrationPhase,
    ResourceServer,
    socket_names,
)
from plugin.kubelet import PodResources
from tests.cluster.fleet.workload import RESOURCE
from tests.cluster.node.real_pods import is_failed, is_running, real_container, real_pod
from tests.unit.plugin.offers import Obliging, offer

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.deviceplugin import DevicePluginCall

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet]

SOON_S = 60.0


class Plugin:
    """A plugin in a thread of this process; `changes` has each standing with the time it came."""

    def __init__(self, folder: Path, *answers: Any, n: int = 8, name: str = RESOURCE) -> None:
        self.allocator = Obliging(*answers)
        self.offer = offer(n, allocator=self.allocator, name=name)
        self.changes: list[tuple[float, RegistrationChange]] = []
        self.calls: list[DevicePluginCall] = []
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._task: asyncio.Task[None] | None = None

    def __enter__(self):
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End in order, if it has not ended."""
        if self._thread.is_alive():
            assert self._task is not None
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(SOON_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = ResourceServer(self.offer, self._folder, on_call=self.calls.append)
        registration = Registration(
            [server],
            self._folder / "kubelet.sock",
            on_change=lambda one: self.changes.append((time.time(), one)),
        )
        self._task = asyncio.create_task(registration.run())
        await asyncio.gather(self._task, return_exceptions=True)

    def list(self, devices: list[ListedDevice]) -> None:
        """Tell the kubelet of other devices."""
        self._loop.call_soon_threadsafe(self.offer.device_list.replace, devices)

    def until(self, phase: RegistrationPhase, n: int = 1) -> RegistrationChange:
        """Wait until a phase was entered so often; the last change."""
        until(lambda: [one.phase for _, one in self.changes].count(phase) >= n)
        return self.changes[-1][1]


def until(is_so, within_s=SOON_S):
    """Wait until something is so of which no event is sent; how long it took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() < began + within_s
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture
def counted(control_plane, node):
    """Wait until the node has so much capacity and so much of it allocatable."""

    def now():
        status = control_plane.client.get(f"/api/v1/nodes/{node.name}").json()["status"]
        return tuple(int(status[one].get(RESOURCE, 0)) for one in ("capacity", "allocatable"))

    def wait(capacity, allocatable):
        return until(lambda: now() == (capacity, allocatable))

    until(lambda: now()[1] == 0)
    return wait


def held(node):
    """What PodResources says: ids by pod and container."""
    found = asyncio.run(PodResources(node.pod_resources_socket).read()).holdings
    return {(one.name, one.container): one.ids for one in found if one.resource == RESOURCE}


def run(pods, name, *containers, **fields):
    """Run a pod until all its containers run."""
    pods.create(real_pod(name, *containers, nodeName="machine", **fields))
    return pods.until(name, is_running)


def test_a_pod_gets_the_devices_that_the_plugin_prefers(node, pods, counted):
    """From the registration to the environment in the container, and back from PodResources."""
    with Plugin(node.device_plugins, ("GPU-6", "GPU-3")) as plugin:
        counted(8, 8)
        pod = run(pods, "two", real_container("main", 2))
        assert node.given(pod, "main")["environment"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-3,GPU-6"
        assert held(node) == {("two", "main"): ("GPU-3", "GPU-6")}
        assert [(call.verb, call.outcome) for call in plugin.calls] == [
            (DevicePluginMethod.PREFERRED, CallOutcome.OK),
            (DevicePluginMethod.ALLOCATE, CallOutcome.OK),
        ]


def test_changes_of_the_list_reach_the_node(node, counted):
    """Health, devices that come and go, NUMA nodes; an ill device still counts as capacity."""
    with Plugin(node.device_plugins, n=4) as plugin:
        counted(4, 4)
        one, two = ListedDevice("GPU-0", is_healthy=False), ListedDevice("GPU-1")
        plugin.list([one, two])
        counted(2, 1)
        plugin.list([ListedDevice("GPU-0", numa_node=0), ListedDevice("GPU-1", numa_node=1)])
        counted(2, 2)
    counted(2, 0)


def test_a_kubelet_that_was_killed_has_us_again(node, pods, counted):
    """Its containers keep what they have, and the next pod gets of the rest."""
    with Plugin(node.device_plugins) as plugin:
        counted(8, 8)
        run(pods, "runs", real_container("main", 2))
        for n in range(1, 4):
            node.restart_kubelet()
            plugin.until(RegistrationPhase.REGISTERED, n + 1)
            appeared_s = node.kubelet_socket.stat().st_ctime
            registered_s = plugin.changes[-1][0]
            print(f"registered after {registered_s - appeared_s:.2f} s")  # noqa: T201 - a figure
            assert registered_s >= appeared_s
        counted(8, 8)
        assert [one.phase for _, one in plugin.changes].count(RegistrationPhase.REGISTERED) == 4
        until(lambda: held(node) == {("runs", "main"): ("GPU-0", "GPU-1")})
        run(pods, "next", real_container("main", 1))
        assert held(node)["next", "main"] == ("GPU-2",)
        assert is_running(pods.get("runs"))


def test_a_successor_is_registered_after_the_old_plugin_has_ended(node, pods, counted):
    """Both may live for a while. Before 1.37 the old one's end ends the new one's registration."""
    with Plugin(node.device_plugins) as old:
        counted(8, 8)
        with Plugin(node.device_plugins, n=6) as new:
            new.until(RegistrationPhase.REGISTERED)
            counted(6, 6)
            old.__exit__()
            if not node.knows_plugins_by_socket:
                new.until(RegistrationPhase.REGISTERED, 2)
            counted(6, 6)
            run(pods, "next", real_container("main", 1))
            assert [call.verb for call in new.calls][-1] is DevicePluginMethod.ALLOCATE
            n_lost = [one.phase for _, one in new.changes].count(RegistrationPhase.LOST)
            assert n_lost == (0 if node.knows_plugins_by_socket else 1)
            assert len(list(node.device_plugins.glob(socket_names(RESOURCE)))) == 1
            assert RegistrationPhase.LOST not in {one.phase for _, one in old.changes}


def test_an_error_is_what_the_pod_says(node, pods, counted):
    """It fails for good, with our words, and the next pod is served."""
    answers = (CallRefused("no set with NVLink is left"), asyncio.Event().wait)
    with Plugin(node.device_plugins, *answers):
        counted(8, 8)
        for name, words in (
            ("refused", "nvidia.com/gpu: GetPreferredAllocation: no set with NVLink is left"),
            ("hung", "no answer within 2 s, waited in tests.unit.plugin.offers.Obliging.preferred"),
        ):
            pods.create(real_pod(name, real_container("main", 2), nodeName="machine"))
            status = pods.until(name, is_failed)["status"]
            assert status["reason"] == "UnexpectedAdmissionError"
            assert words in status["message"]
        run(pods, "next", real_container("main", 8))


def test_a_refusal_by_the_kubelet_is_logged_with_its_message(node):
    """Only qualified names are extended resources."""
    with Plugin(node.device_plugins, name="gpu") as plugin:
        standing = plugin.until(RegistrationPhase.FAILED)
    assert '(UNKNOWN: the ResourceName "gpu" is invalid)' in standing.detail


def test_the_end_is_seen_at_once(node, counted):
    """No device is allocated that no plugin serves, and no socket is left behind."""
    with Plugin(node.device_plugins):
        counted(8, 8)
    print(f"allocatable 0 after {counted(8, 0):.2f} s")  # noqa: T201 - a figure
    left = {path.name for path in node.device_plugins.iterdir() if path.is_socket()}
    assert left == {"kubelet.sock"}
