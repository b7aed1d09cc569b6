"""The plugin of a node: its parts, wired and kept running.

`NodePlugin.run` serves the machine to the kubelet and publishes it, until cancelled, until the
machine offers other resources than at the start, or until `reload`.

    reader ──thread──▶ HealthWatch ──▶ NodeState ◀── ResourceAllocator ◀── kubelet's calls
                                         │             │        │
                      DeviceList ◀───────┤             │        └──▶ reads the kubelet
                      ReportLoop ◀───────┘◀─ triggers ─┘
                          └──▶ Publisher ──▶ own Node

Telemetry only observes: readiness comes from the parts' own state, and a report is triggered by the
allocator itself. In the mode `reporter` nothing is served; the rest is the same.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from plugin.allocation import NodeState
from plugin.allocator import AllocatorTools, ResourceAllocator
from plugin.config import Mode
from plugin.deviceplugin import (
    DeviceList,
    KubeletSocket,
    ListedDevice,
    Offer,
    Registration,
    RegistrationPhase,
    ResourceServer,
)
from plugin.errors import first_plugin_error
from plugin.health import (
    HealthState,
    HealthWatch,
    KnownFaults,
    still_lasting,
    with_lasting_faults,
)
from plugin.kubelet import TopologyManagerPoller
from plugin.machine import serve_machine
from plugin.memory import give_back
from plugin.publish import (
    AccessCheck,
    Publisher,
    ReportLoop,
)
from plugin.rediscovery import Rediscovery

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.config import PluginSettings
    from plugin.dependencies import PluginDependencies
    from plugin.deviceplugin import RegistrationChange
    from plugin.machine import (
        Device,
        MachineReading,
        ReaderCondition,
        ServedMachine,
        ServingRules,
    )
    from topology.annotations import DevicesReport
    from topology.topology_manager import TopologyManager

__all__ = ["NodePlugin", "StopReason"]


class StopReason(Enum):
    """Why a plugin ended by itself."""

    RELOAD = "reload"
    """Settings and machine are to be read again."""
    RESOURCES_CHANGED = "resources changed"
    """The machine offers other resources now: each needs its own server."""


class NodePlugin:
    """One plugin, for one `run`."""

    def __init__(
        self,
        settings: PluginSettings,
        rules: ServingRules,
        reading: MachineReading,
        *,
        tools: PluginDependencies,
        known: KnownFaults | None = None,
    ) -> None:
        """`known` are the faults that the last plugin of this process knew.

        Raises `PluginError` where settings and machine do not suit each other.
        """
        self._settings = settings
        self._tools = tools
        self._was_restored = known is not None and known.is_restored
        served = serve_machine(reading, rules)
        self._state = NodeState(
            settings.node,
            served,
            shared_policy=settings.shared_devices_allocation_policy,
            is_one_only=rules.sharing.is_one_only,
        )
        self._state.topology_manager = settings.topology_manager
        timing = tools.timing
        telemetry = self._telemetry = tools.telemetry
        self._publisher = Publisher(
            tools.node_api,
            settings.node,
            emit=telemetry.write_event,
            on_found=(lambda _: None) if self._was_restored else self._restore,
            pace=timing.write,
        )
        self._report_loop = ReportLoop(
            self._state,
            tools.kubelet,
            publish=self._publish,
            emit=telemetry.report_event,
            pace=timing.report,
        )
        state = replace(
            HealthState(tools.fault_rules) if known is None else known.state,
            rules=tools.fault_rules,
            quiet_s=settings.health_quiet_s,
        ).after_poll(reading.faults, time.monotonic())
        self._watch = HealthWatch(
            tools.reader,
            self,
            log=telemetry,
            reading=reading,
            state=state,
            times=replace(timing.health, poll_s=settings.health_poll_s),
        )
        self._device_lists = {one.name: DeviceList() for one in served.inventory.resources}
        self._registration = self._make_registration()
        self._ended: asyncio.Future[StopReason] | None = None
        self._beat_s = timing.clock()
        self._access_check = AccessCheck(
            tools.node_api, settings.node, pod_uid=settings.pod_uid, emit=telemetry.access_event
        )
        self._rediscovery = Rediscovery(
            reading, rules, prepare=self._open_access, serve=self._serve, telemetry=telemetry
        )
        self._poller = TopologyManagerPoller(
            tools.kubelet_settings,
            on_settings=self._align,
            on_error=telemetry.kubelet_read,
            timing=timing.poller,
        )

    @property
    def is_serving(self) -> bool:
        """Whether devices are served to the kubelet, and not only published."""
        return self._settings.mode is Mode.DEVICE_PLUGIN

    def live(self) -> str:
        """Why a restart of the process is due; empty: it is not. For any thread.

        The event loop hangs, or a call of the driver does, for minutes.
        """
        timing = self._tools.timing
        now_s = timing.clock()
        silent_s = now_s - self._beat_s
        if silent_s > timing.max_silence_s:
            return f"no heartbeat for {silent_s:.0f} s"
        return self._watch.restart_due(now_s)

    def ready(self) -> str:
        """Why the plugin is not ready; empty: it is. For any thread."""
        if self._state.is_blind:
            return f"pods unknown: {self._state.kubelet_error or 'kubelet not read yet'}"
        if not self.is_serving:
            return "" if self._publisher.is_published else "nothing published yet"
        missing = self._registration.missing
        if missing:
            return f"not registered: {', '.join(missing)}"
        problems = self._access_check.problems if self._settings.access_check else ()
        return f"containers may get no usable GPU: {'; '.join(problems)}" if problems else ""

    @property
    def known(self) -> KnownFaults:
        """The known faults of the machine."""
        is_restored = self._was_restored or self._publisher.was_found
        return KnownFaults(self._watch.state, is_restored)

    def reload(self) -> None:
        """End, so that settings and machine are read again."""
        self._end(StopReason.RELOAD)

    async def run(self) -> StopReason:
        """Run until there is a reason to stop, or until cancelled."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._beat())]
                await self._prepare()
                work = (
                    self._watch.run(),
                    self._publisher.run(),
                    self._report_loop.run(),
                    self._keep_registered() if self.is_serving else self._follow_kubelet(),
                )
                tasks += [group.create_task(one) for one in work]
                ending = await self._ended
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:
            raise first_plugin_error(errors) from errors
        finally:
            self._rediscovery.stop()
            self._poller.stop()
            self._access_check.stop()
        return ending

    async def _prepare(self) -> None:
        """Do all that comes before the first registration; that may take minutes."""
        give_back()
        self._telemetry.plugin_begins(list(self._device_lists), is_serving=self.is_serving)
        self._describe()
        self._watch.report()  # what the reading itself says is wrong is never listed as healthy
        await self._publisher.look()
        await self._poller.poll()
        await self._report_loop.refresh()
        self._relist()
        await self._open_access(self._state.served)

    # --- HealthView ---

    def devices(self) -> Iterable[Device]:
        """The devices that are served now."""
        return self._state.devices

    def see_health(self, unhealthy: Mapping[str, str]) -> None:
        """List unhealthy devices as such, and report them."""
        self._telemetry.devices_changed(unhealthy)
        self._state.set_unhealthy(unhealthy)
        self._relist()
        self._report_loop.trigger()

    def see_reading(self, reading: MachineReading) -> None:
        """Serve the machine as it was read last, once that is prepared."""
        self._rediscovery.see(reading)

    def see_condition(self, condition: ReaderCondition) -> None:
        """Report which GPUs are polled only; log and count what is wrong with the reader."""
        self._telemetry.reader_condition(condition)
        self._report_loop.trigger()

    # --- parts ---

    def _make_registration(self) -> Registration:
        settings = self._settings
        tools = AllocatorTools(
            self._state,
            self._tools.kubelet,
            emit=self._telemetry.allocator_event,
            on_allocated=self._report_loop.trigger,
        )
        servers = [
            ResourceServer(
                Offer(name, device_list, ResourceAllocator(name, tools)),
                settings.device_plugin_folder,
                on_call=self._telemetry.call_answered,
            )
            for name, device_list in self._device_lists.items()
        ]
        socket, known = settings.registration_socket, self._tools.kubelet.known_devices
        return Registration(servers, socket, on_change=self._on_registration, known=known)

    async def _open_access(self, served: ServedMachine) -> None:
        if self.is_serving:
            access = await asyncio.to_thread(self._tools.open_access, served)
            for reason in access.left_out:
                self._telemetry.cdi_failed(reason)
            self._state.grant = access.grant
            self._access_check.see_access(access)

    async def _beat(self) -> None:
        timing = self._tools.timing
        while True:
            self._beat_s = timing.clock()
            await asyncio.sleep(timing.beat_s)

    async def _keep_registered(self) -> None:
        """Register once the kubelet's pods were read: without them plans would be ignored."""
        if not self._settings.register_blind:
            await self._report_loop.has_pods.wait()
        self._state.begin_registration()  # the pods that are known now were there before
        await self._registration.run()

    async def _follow_kubelet(self) -> None:
        """In place of registrations: detect a restarted kubelet by its socket."""
        path = self._settings.registration_socket
        if path is None:
            return
        socket = KubeletSocket(path)
        async with asyncio.TaskGroup() as group:
            group.create_task(socket.watch())
            socket_id = None
            while True:
                socket_id = await socket.other_than(socket_id)
                self._state.begin_registration()
                self._on_kubelet_restart()

    def _serve(self, served: ServedMachine) -> None:
        """Serve the machine as it is now."""
        if [one.name for one in served.inventory.resources] != list(self._device_lists):
            self._end(StopReason.RESOURCES_CHANGED)
            return
        self._state.serve(served)
        give_back()
        self._describe()
        self._relist()
        self._watch.report()
        self._report_loop.trigger()

    def _align(self, found: TopologyManager) -> None:
        if found == self._state.topology_manager:
            return
        self._state.topology_manager = found
        self._telemetry.topology_manager(found.policy.value, found.scope.value)
        self._relist()
        self._report_loop.trigger()

    def _on_registration(self, change: RegistrationChange) -> None:
        self._telemetry.registration_changed(change)
        if change.phase is RegistrationPhase.LOST:
            self._state.begin_registration()
        elif change.phase is RegistrationPhase.REGISTERED:
            self._on_kubelet_restart()

    def _on_kubelet_restart(self) -> None:
        """Read again what a restarted kubelet may have changed: its settings and the Node."""
        self._poller.start()
        self._publisher.refetch()
        self._report_loop.trigger()

    def _restore(self, found: DevicesReport) -> None:
        """Mark the faults that an earlier process published, unless they are over."""
        reading = self._state.served.reading
        faults = still_lasting(found, reading, self._tools.boot_id)
        self._watch.restore(faults, time.monotonic())

    def _publish(self, report: DevicesReport, *, keeps_holds: bool) -> None:
        self._access_check.see_pods(self._state.pods or ())
        report = replace(report, polled_only=tuple(sorted(self._watch.condition.without_events)))
        report = with_lasting_faults(report, self._watch.state, self._tools.boot_id)
        topology = self._state.served.topology_text
        self._publisher.publish(topology, report, keeps_holds=keeps_holds)

    def _relist(self) -> None:
        """List the devices as they are now; ListAndWatch sends a change to the kubelet."""
        state = self._state
        for resource in state.served.inventory.resources:
            listed = [
                ListedDevice(
                    device.id,
                    device.id not in state.unhealthy,
                    device.numa_node if state.lists_numa_nodes else None,
                )
                for device in resource.devices
            ]
            self._device_lists[resource.name].replace(listed)
            n_unhealthy = sum(not one.is_healthy for one in listed)
            self._telemetry.devices_listed(
                resource.name, n_healthy=len(listed) - n_unhealthy, n_unhealthy=n_unhealthy
            )

    def _describe(self) -> None:
        served = self._state.served
        reading, inventory = served.reading, served.inventory
        n_devices = {one.name: len(one.devices) for one in inventory.resources}
        notes = [*reading.notes, *inventory.notes]
        self._telemetry.machine_read(n_devices, notes, inventory.warnings)
        self._telemetry.links_read(served.n_links_up)

    def _end(self, ending: StopReason) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(ending)
