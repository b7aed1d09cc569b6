"""Registration with a fake kubelet over real gRPC: it comes, goes, refuses, hangs and forgets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from plugin.deviceplugin import (
    ListedDevice,
    Registration,
    RegistrationPhase,
    ResourceServer,
    socket_names,
)
from plugin.deviceplugin.registration import RegistrationTiming
from plugin.errors import RegistrationError
from plugin.kubelet import PodResources
from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.changes import Changes
from tests.fake_kubelet import FakeKubelet
from tests.fake_kubelet_by_socket import KubeletBySocket
from tests.unit.plugin.node_values import app, node_pod
from tests.unit.plugin.offers import GPU, looked_at, offer
from tests.virtual_time import run_at_once

MIG = "nvidia.com/mig-1g.10gb"
REPLACED = "the kubelet's socket was replaced while we registered"
QUICK = RegistrationTiming(check_every_s=0.01, first_delay_s=0.02, cap_delay_s=0.2, settle_s=0.01)


FOR_EVER = replace(QUICK, first_delay_s=1e6, cap_delay_s=1e6)
"""Its pauses end early, or the test does not."""
RECHECKED = replace(QUICK, recheck_s=0.02)


class Plugin:
    """A plugin's registration, and the changes that it reported."""

    def __init__(self, folder, *offers, kubelet="kubelet.sock", timing=QUICK, **more):
        self.changes = []
        self.changed = Changes()
        self.socket: Any = looked_at(folder / kubelet) if kubelet else None
        self.standing = {}
        self.servers = [ResourceServer(one, folder, on_call=lambda _: None) for one in offers]
        self.registration = Registration(
            self.servers,
            self.socket,
            on_change=self._take,
            timing=timing,
            jitter=lambda: 0.5,
            **more,
        )
        self.task: asyncio.Task[None] | None = None

    def _take(self, standing):
        self.changes.append(standing)
        self.standing[standing.resource] = standing
        self.changed.note()

    @property
    def phases(self):
        """The phases so far."""
        return [standing.phase for standing in self.changes]

    async def until(self, phase, n=1):
        """Wait until a phase was entered so often."""
        await self.changed.until(lambda: self.phases.count(phase) >= n)

    def start(self):
        """Run."""
        self.task = asyncio.create_task(self.registration.run())

    async def stop(self):
        """End in order."""
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@contextlib.asynccontextmanager
async def running(*parts):
    """Start kubelets and plugins in turn, and end them."""
    try:
        for part in parts:
            if isinstance(part, Plugin):
                part.start()
            else:
                await part.start()
        yield
    finally:
        for part in reversed(parts):
            await part.stop()


def test_resources_are_registered_with_all_that_the_kubelet_must_know(root):
    """Each resource by its own server, with its devices and options."""
    kubelet = FakeKubelet(root)
    plugin = Plugin(kubelet.folder, offer(4), offer(2, name=MIG))

    async def go():
        async with running(kubelet, plugin):
            await kubelet.until_listed(GPU, 4)
            await kubelet.until_listed(MIG, 2)
            await plugin.until(RegistrationPhase.REGISTERED, 2)
            options = pb.DevicePluginOptions(get_preferred_allocation_available=True)
            assert [kubelet.clients[one].options for one in (GPU, MIG)] == [options] * 2
            plugin.servers[0].offer.device_list.replace([])
            await kubelet.until_listed(GPU, 0)

    asyncio.run(go())
    assert plugin.phases == [RegistrationPhase.REGISTERED] * 2


def test_a_kubelet_without_our_devices_is_found_within_ten_seconds():
    """docs/migrate.md says so; it is looked for twice before the plugin registers again."""
    assert 2 * RegistrationTiming().recheck_s <= 10


def test_the_end_is_clean(root):
    """The kubelet sees the watches end at once, and no socket of ours is left."""
    kubelet = FakeKubelet(root)
    plugin = Plugin(kubelet.folder, offer(4), offer(2, name=MIG))

    async def go():
        async with running(kubelet):
            plugin.start()
            await plugin.until(RegistrationPhase.REGISTERED, 2)
            await kubelet.until_listed(GPU, 4)
            await plugin.stop()
            await kubelet.until(lambda: not kubelet.clients)
            assert [path.name for path in kubelet.folder.iterdir()] == ["kubelet.sock"]
            assert kubelet.unhealthy[GPU] == {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}

    asyncio.run(go())


def test_a_kubelet_that_comes_late_is_waited_for(root):
    """At boot the plugin's old container may be up before the kubelet serves."""
    kubelet = FakeKubelet(root)
    plugin = Plugin(kubelet.folder, offer())

    async def go():
        async with running(plugin):
            await plugin.until(RegistrationPhase.WAITING)
            await plugin.socket.again()
            async with running(kubelet):
                await kubelet.until_listed(GPU, 4)
                await plugin.until(RegistrationPhase.REGISTERED)

    asyncio.run(go())
    assert plugin.phases[:2] == [RegistrationPhase.WAITING, RegistrationPhase.REGISTERED]
    assert plugin.changes[0].detail == f"no socket at {kubelet.socket}"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_kubelet_that_restarts_has_us_again(root, how):
    """It removes our sockets, knows no plugin, and sends no request."""
    kubelet = FakeKubelet(root)
    plugin = Plugin(kubelet.folder, offer(), offer(1, name=MIG))

    async def go():
        async with running(kubelet, plugin):
            for n in range(1, 4):
                await kubelet.until_listed(GPU, 4)
                await kubelet.until_listed(MIG, 1)
                await plugin.until(RegistrationPhase.REGISTERED, 2 * n)
                await (kubelet.kill() if how == "kill" else kubelet.stop())
                await plugin.until(RegistrationPhase.LOST, 2 * n)
                if how == "kill":
                    await plugin.until(
                        RegistrationPhase.FAILED, plugin.phases.count(RegistrationPhase.FAILED) + 1
                    )
                await kubelet.start()
            await kubelet.until_listed(GPU, 4)

    asyncio.run(go())
    lost = [standing for standing in plugin.changes if standing.phase is RegistrationPhase.LOST]
    assert {standing.detail for standing in lost} == {"the kubelet ended its watch"}
    assert {standing.delay_s for standing in lost} == {0.015}, "a new kubelet is no failure"
    if how == "kill":
        failed = [one.detail for one in plugin.changes if one.phase is RegistrationPhase.FAILED]
        failed = [detail for detail in failed if REPLACED not in detail]
        assert failed
        begin = f"the kubelet at {kubelet.socket} did not take the registration (UNAVAILABLE: "
        assert all(f": {begin}" in detail for detail in failed)
        assert all(detail.endswith("), expected a kubelet to listen there") for detail in failed)


def test_a_socket_that_is_replaced_under_a_living_watch_is_a_new_kubelet(root):
    """Where the end of the old one's connection is not seen, its new socket is."""
    old, new = FakeKubelet(root), FakeKubelet(root)
    plugin = Plugin(old.folder, offer())

    async def go():
        async with running(old, plugin):
            await old.until_listed(GPU, 4)
            await plugin.until(RegistrationPhase.REGISTERED)
            async with running(new):
                await new.until_listed(GPU, 4)
                await plugin.until(RegistrationPhase.LOST)
            await old.start()
            await old.until_listed(GPU, 4)

    asyncio.run(go())
    lost = [
        standing.detail for standing in plugin.changes if standing.phase is RegistrationPhase.LOST
    ]
    assert lost[0] == "the kubelet's socket was replaced"


def bind(path):
    """A socket's file, as of a kubelet that is gone."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


class Unservable(ResourceServer):
    """Notes when it is to be served; each time the kubelet's socket is another one by then."""

    def __init__(self, path, times_s):
        super().__init__(offer(), path.parent, on_call=lambda _: None)
        self._path = path
        self._times_s = times_s

    @contextlib.asynccontextmanager
    async def serving(self):
        """Never."""
        self._times_s.append(asyncio.get_running_loop().time())
        self._path.rename(self._path.with_suffix(f".{len(self._times_s)}"))
        bind(self._path)
        msg = "a test"
        raise RegistrationError(msg)
        yield


def test_a_kubelet_has_time_to_notice_that_a_watch_has_ended(root):
    """Else it would hang up on the next one, which it takes for the old one.

    So there is a pause before each try, though a new socket ends all others.
    """
    path = root / "kubelet.sock"
    times_s: list[float] = []
    bind(path)
    timing = replace(FOR_EVER, settle_s=1.0)

    async def go():
        registration = Registration(
            [Unservable(path, times_s)], path, on_change=lambda _: None, timing=timing
        )
        task = asyncio.create_task(registration.run())
        await asyncio.sleep(10.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_at_once(go())
    pauses_s = [after - before for before, after in pairwise(times_s)]
    assert len(pauses_s) >= 5
    assert pauses_s == pytest.approx([timing.settle_s] * len(pauses_s), abs=QUICK.check_every_s)


def test_a_registration_that_lasted_is_no_failure_in_a_row(root):
    """What went wrong last week must not slow the next return down."""
    kubelet = FakeKubelet(root)
    timing = RegistrationTiming(check_every_s=0.01, first_delay_s=0.02, settle_s=0.01, steady_s=0.0)
    plugin = Plugin(kubelet.folder, offer(), timing=timing)

    async def go():
        async with running(kubelet, plugin):
            for n in range(1, 4):
                await plugin.until(RegistrationPhase.REGISTERED, n)
                await kubelet.disconnect(GPU)
                await plugin.until(RegistrationPhase.LOST, n)

    asyncio.run(go())
    delays = [one.delay_s for one in plugin.changes if one.phase is RegistrationPhase.LOST]
    assert delays == pytest.approx([0.015] * 3)


def test_an_old_plugin_that_ends_disconnects_its_successor_which_comes_back(root):
    """Before 1.37 the kubelet knows watches by the resource's name alone (handler.go)."""
    kubelet = FakeKubelet(root)
    old, new = Plugin(kubelet.folder, offer()), Plugin(kubelet.folder, offer(3))

    async def go():
        async with running(kubelet):
            old.start()
            await kubelet.until_listed(GPU, 4)
            new.start()
            await kubelet.until_listed(GPU, 3)
            await new.until(RegistrationPhase.REGISTERED)
            kubelet.log.clear()
            await old.stop()
            await new.until(RegistrationPhase.REGISTERED, 2)
            await kubelet.until_listed(GPU, 3)
            # The successor's watch was ended by the kubelet, and it is the one that came back.
            assert kubelet.log[:3] == [f"disconnected {GPU}", f"registered {GPU}", f"listed {GPU}"]
            assert old.phases.count(RegistrationPhase.LOST) == 0
            await kubelet.admit(node_pod("a", app("main", 3)))
            await new.stop()

    asyncio.run(go())
    assert new.phases[-3:] == [
        RegistrationPhase.REGISTERED,
        RegistrationPhase.LOST,
        RegistrationPhase.REGISTERED,
    ]


def test_from_1_37_an_old_plugin_leaves_its_successor_registered(root):
    """The kubelet knows them by their sockets; the same one twice would be refused for good."""
    kubelet = KubeletBySocket(root)
    old, new, last = (Plugin(kubelet.folder, offer(n)) for n in (4, 3, 2))

    async def go():
        async with running(kubelet):
            # The kubelet may list before its answer is here.
            old.start()
            await kubelet.until_listed(GPU, 4)
            await old.until(RegistrationPhase.REGISTERED)
            new.start()
            await kubelet.until_listed(GPU, 3)
            await new.until(RegistrationPhase.REGISTERED)
            await old.stop()
            await kubelet.until(lambda: len(kubelet.clients) == 1)
            assert len(kubelet.healthy[GPU]) == 3
            await new.stop()
            await kubelet.until_listed(GPU, 0)
            last.start()
            await kubelet.until_listed(GPU, 2)
            await last.until(RegistrationPhase.REGISTERED)
            await last.stop()

    asyncio.run(go())
    assert [one.phases for one in (old, new, last)] == [[RegistrationPhase.REGISTERED]] * 3


def test_from_1_37_a_kubelet_that_has_not_seen_our_end_takes_us_again(root):
    """A plugin that is restarted at once must not meet its own socket."""
    kubelet = KubeletBySocket(root)
    kubelet.notices_ends.clear()
    before, after = Plugin(kubelet.folder, offer()), Plugin(kubelet.folder, offer(3))

    async def go():
        async with running(kubelet):
            before.start()
            await kubelet.until_listed(GPU, 4)
            await before.stop()
            assert len(kubelet.clients) == 1
            after.start()
            await kubelet.until_listed(GPU, 3)
            assert len(kubelet.clients) == 2
            kubelet.notices_ends.set()
            await kubelet.until(lambda: len(kubelet.clients) == 1)
            assert len(kubelet.healthy[GPU]) == 3
            await after.until(RegistrationPhase.REGISTERED)
            await after.stop()
            await kubelet.until_listed(GPU, 0)

    asyncio.run(go())
    assert after.phases == [RegistrationPhase.REGISTERED]


def test_the_devices_of_another_plugin_that_came_and_went_are_registered_again(root):
    """The kubelet has none then, and goes on watching ours: nothing else would bring it back."""
    kubelet = FakeKubelet(root)
    read = PodResources(kubelet.pod_resources).read_allocatable
    n_reads, reads = 0, Changes()

    async def known():
        nonlocal n_reads
        n_reads += 1
        reads.note()
        return await read()

    ours, other = (
        Plugin(kubelet.folder, offer(), timing=RECHECKED, known=known),
        Plugin(kubelet.folder, offer(3)),
    )

    async def go():
        async with running(kubelet, ours):
            await kubelet.until_listed(GPU, 4)
            other.start()
            await kubelet.until_listed(GPU, 3)
            await other.stop()
            await kubelet.until_listed(GPU, 0)
            await ours.until(RegistrationPhase.REGISTERED, 2)
            await kubelet.until_listed(GPU, 4)
            n_before = n_reads
            await reads.until(lambda: n_reads >= n_before + 4)

    asyncio.run(go())
    (lost,) = [one for one in ours.changes if one.phase is RegistrationPhase.LOST]
    assert lost.detail.startswith("the kubelet has none of the devices")
    assert ours.phases.count(RegistrationPhase.REGISTERED) == 2


@pytest.mark.parametrize(
    ("answers", "n_healthy"),
    [
        pytest.param([None], 4, id="a kubelet that does not answer"),
        pytest.param([{GPU: {"GPU-1"}}], 4, id="one that knows a device of ours"),
        pytest.param([{}, {GPU: {"GPU-1"}}], 4, id="one that knew none for a moment"),
        pytest.param([{}], 0, id="devices that are all unhealthy"),
    ],
)
def test_what_is_no_sign_of_a_lost_registration(root, answers, n_healthy):
    """A registration too many takes the node's GPUs away for a moment."""
    kubelet = FakeKubelet(root)
    n_reads, reads = 0, Changes()

    async def known():
        nonlocal n_reads
        n_reads += 1
        reads.note()
        return answers[n_reads % len(answers)]

    plugin = Plugin(kubelet.folder, offer(), timing=RECHECKED, known=known)
    plugin.servers[0].offer.device_list.replace(
        ListedDevice(f"GPU-{i}", is_healthy=i < n_healthy) for i in range(4)
    )

    async def go():
        async with running(kubelet, plugin):
            await reads.until(lambda: n_reads >= 6)

    asyncio.run(go())
    assert plugin.phases == [RegistrationPhase.REGISTERED]


def test_a_refusal_names_versions_and_is_tried_again(root):
    """A kubelet that speaks another version may be replaced by one that speaks ours."""
    kubelet = FakeKubelet(root, version="v1")
    plugin = Plugin(kubelet.folder, offer())

    async def go():
        async with running(kubelet, plugin):
            await plugin.until(RegistrationPhase.FAILED, 5)
            kubelet.version = "v1beta1"
            await kubelet.until_listed(GPU, 4)

    asyncio.run(go())
    failed = [standing for standing in plugin.changes if standing.phase is RegistrationPhase.FAILED]
    assert re.sub(r"coterie-nvidia\.com_gpu-\w+\.sock", "SOCKET", failed[0].detail) == (
        f"{GPU}: the kubelet at {kubelet.socket} did not take the registration "
        '(UNKNOWN: requested API version "v1beta1" is not supported by kubelet. Supported version '
        'is ["v1"]), expected it to speak v1beta1, to take the name and to reach SOCKET in its '
        "folder"
    )
    delays = [standing.delay_s for standing in failed]
    assert delays[:5] == pytest.approx([0.015, 0.03, 0.06, 0.12, 0.15])


def test_a_kubelet_that_hangs_is_given_up_and_tried_again(root):
    """Its socket is there and takes connections, and nothing comes back."""
    folder = root / "device-plugins"
    folder.mkdir()
    timing = RegistrationTiming(
        check_every_s=0.01, first_delay_s=0.02, register_s=0.2, settle_s=0.01
    )
    plugin = Plugin(folder, offer(), timing=timing)

    async def go():
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(folder / "kubelet.sock"))
            mute.listen()
            async with running(plugin):
                await plugin.until(RegistrationPhase.FAILED, 2)
                assert plugin.standing[GPU].detail.endswith("expected an answer within 0.2 s")
        kubelet = FakeKubelet(root)
        plugin.changes.clear()
        async with running(kubelet, plugin):
            await kubelet.until_listed(GPU, 4)

    asyncio.run(go())


def test_a_kubelet_that_starts_between_two_looks_is_not_taken_for_two(root):
    """A try may meet the new kubelet before the file was looked at; once registered is enough."""
    kubelet = FakeKubelet(root)
    timing = RegistrationTiming(
        check_every_s=0.3, first_delay_s=0.02, cap_delay_s=0.02, settle_s=0.01
    )
    plugin = Plugin(kubelet.folder, offer(), timing=timing)

    async def go():
        async with running(kubelet, plugin):
            for n in range(1, 6):
                await plugin.until(RegistrationPhase.REGISTERED, n)
                await kubelet.kill()
                await plugin.until(
                    RegistrationPhase.FAILED, plugin.phases.count(RegistrationPhase.FAILED) + 2
                )
                await kubelet.start()
            await plugin.until(RegistrationPhase.REGISTERED, 6)
            await plugin.socket.again()

    asyncio.run(go())
    assert plugin.phases.count(RegistrationPhase.REGISTERED) == 6
    assert plugin.phases.count(RegistrationPhase.LOST) == 5
    # Nor is a try wasted each time, because what is known of the socket is old.
    assert sum(REPLACED in standing.detail for standing in plugin.changes) <= 2


def test_a_kubelet_that_starts_while_the_server_starts_gets_no_useless_registration(
    root, monkeypatch
):
    """It may have removed the socket that we have just made: so a fresh one, then the report."""
    kubelet = FakeKubelet(root)
    timing = replace(QUICK, check_every_s=1e6)
    plugin = Plugin(kubelet.folder, offer(), timing=timing)
    serving = plugin.servers[0].serving

    @contextlib.asynccontextmanager
    async def restarting():
        monkeypatch.undo()
        async with serving() as service:
            await kubelet.kill()
            await kubelet.start()
            yield service

    monkeypatch.setattr(plugin.servers[0], "serving", restarting)

    async def go():
        async with running(kubelet, plugin):
            await kubelet.until_listed(GPU, 4)
            await plugin.until(RegistrationPhase.REGISTERED)

    asyncio.run(go())
    assert plugin.phases == [RegistrationPhase.FAILED, RegistrationPhase.REGISTERED]
    assert REPLACED in plugin.changes[0].detail
    assert kubelet.log.count(f"registered {GPU}") == 1


def test_a_kubelet_that_starts_while_we_register_is_not_waited_for(root):
    """The kubelet that knew us is gone, or looks for a socket that the new one removed."""
    kubelet = FakeKubelet(root)
    kubelet.folder.mkdir()
    plugin = Plugin(kubelet.folder, offer())

    async def go():
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(kubelet.socket))
            mute.listen()
            mute.settimeout(0)
            async with running(plugin):
                met, _ = await asyncio.get_running_loop().sock_accept(mute)
                assert plugin.changes == []
                with met:
                    async with running(kubelet):
                        await kubelet.until_listed(GPU, 4)

    asyncio.run(go())
    failed = [
        standing.detail for standing in plugin.changes if standing.phase is RegistrationPhase.FAILED
    ]
    assert failed[0] == f"{GPU}: {REPLACED}, expected it to stay"


def test_a_kubelet_that_registers_and_never_lists_is_tried_again(root, monkeypatch):
    """Registered means that the devices are watched; nothing else makes them allocatable."""
    kubelet = FakeKubelet(root)
    timing = RegistrationTiming(check_every_s=0.01, first_delay_s=0.02, watch_s=0.1, settle_s=0.01)
    plugin = Plugin(kubelet.folder, offer(), timing=timing)

    async def idle(_):
        """Watch nothing."""

    async def go():
        with monkeypatch.context() as patch:
            patch.setattr(kubelet, "watch_plugin", idle)
            async with running(kubelet, plugin):
                await plugin.until(RegistrationPhase.FAILED, 2)
        assert RegistrationPhase.REGISTERED not in plugin.phases
        assert plugin.standing[GPU].detail == (
            f"{GPU}: the kubelet took the registration and does not list devices, "
            "expected ListAndWatch within 0.1 s"
        )

    asyncio.run(go())


def test_without_a_kubelet_socket_the_plugin_serves_and_does_not_register(root):
    """NVIDIA's meaning of an empty setting; also what is tried again where it fails."""
    folder = root / "device-plugins"
    plugin = Plugin(folder, offer(), kubelet="")

    async def go():
        async with running(plugin):
            await plugin.until(RegistrationPhase.FAILED)
            folder.mkdir()
            await plugin.until(RegistrationPhase.DISABLED)
            (path,) = folder.iterdir()
            assert path.match(socket_names(GPU))
        assert list(folder.iterdir()) == []

    asyncio.run(go())


@pytest.mark.parametrize("kubelet", ["", "kubelet.sock"])
def test_without_resources_it_waits(root, kubelet):
    """A node without GPUs runs the plugin, too."""

    async def go():
        plugin = Plugin(root, kubelet=kubelet)
        async with running(plugin):
            await asyncio.sleep(1.0)
            assert plugin.task is not None
            assert not plugin.task.done()

    run_at_once(go())


def test_a_kubelet_that_flaps_does_not_make_us_spin(root):
    """A socket that is replaced again and again costs one try each, not more.

    The pauses are too long to end by themselves while the kubelet is away.
    """
    kubelet = FakeKubelet(root)
    plugin = Plugin(kubelet.folder, offer(), timing=FOR_EVER)

    async def go():
        async with running(kubelet, plugin):
            for n in range(1, 11):
                await plugin.until(RegistrationPhase.REGISTERED, n)
                await kubelet.kill()
                if n % 2:  # away for a while, or back at once
                    await plugin.until(RegistrationPhase.LOST, n)
                    await plugin.socket.again()
                await kubelet.start()
            await kubelet.until_listed(GPU, 4)

    asyncio.run(go())
    assert plugin.phases.count(RegistrationPhase.FAILED) <= 10
