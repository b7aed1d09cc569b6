"""The agent of a node: its parts, wired and kept running.

What it answers: nothing; `Agent.run` serves the machine to the kubelet and publishes it, until
cancelled, until the machine offers other resources than it began with, or until `reload`. It
decides nothing: each part's module says what that part answers.

    reader ──thread──▶ HealthWatch ──▶ NodeBooks ◀── ResourceAllocator ◀── kubelet's calls
                                         │                │
                      listings ◀─────────┤                └──▶ looks at the kubelet
                      Reporting ◀────────┘
                          └──▶ Publisher ──▶ own Node

In the mode `reporter` nothing is served; the rest is the same.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from plugin import logkeys
from plugin.allocation import NodeState, SharingRules
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
from plugin.errors import PluginError
from plugin.health import HealthBook, HealthTimes, HealthWatch
from plugin.kubelet import TopologyManagerPoller
from plugin.machine import take_stock, topology_text
from plugin.memory import give_back
from plugin.observe import Witness
from plugin.prepare_containers import open_access
from plugin.publish import Publisher, PublisherTools, ReportLoop
from plugin.rediscovery import Stocktaking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kube.client import TopologyManagerSettings
    from plugin.config import Settings
    from plugin.deviceplugin import RegistrationChange
    from plugin.kubelet import KubeletView, TopologyManagerSource
    from plugin.machine import Device, MachineReader, MachineReading, Stock, StockRules
    from plugin.observe import Logger, Metrics
    from plugin.publish import AnnotationApi
    from topology.annotations import DevicesReport

__all__ = ["Agent", "AgentTools", "Ending"]

BEAT_S = 1.0
"""Between two signs of life of the loop."""
MAX_SILENCE_S = 10.0
"""A loop that gave none for so long hangs: every call of the kubelet's has a deadline of 1 s."""


class Ending(Enum):
    """Why an agent ended by itself."""

    RELOAD = "reload"
    """Somebody asked for it."""
    OTHER_RESOURCES = "other resources"
    """The machine offers other resources now: each needs a server of its own."""


@dataclass(frozen=True, slots=True)
class AgentTools:
    """What an agent stands on; all of it outlives the agent."""

    reader: MachineReader
    node_api: AnnotationApi
    kubelet: KubeletView
    kubelet_settings: TopologyManagerSource
    log: Logger
    metrics: Metrics


class Agent:
    """One agent, for one `run`."""

    def __init__(
        self,
        settings: Settings,
        rules: StockRules,
        reading: MachineReading,
        *,
        tools: AgentTools,
        book: HealthBook | None = None,
    ) -> None:
        """`book` is what the last agent of this process knew to be wrong.

        Raises `PluginError` where settings and machine do not suit each other.
        """
        self._settings = settings
        self._tools = tools
        stock = take_stock(reading, rules)
        sharing = SharingRules(rules.sharing, settings.shared_devices_allocation_policy)
        self._state = NodeState(settings.node, stock, sharing=sharing)
        self._state.topology_manager = settings.topology_manager
        self._witness = Witness(tools.log, tools.metrics, on_allocated=self._on_allocated)
        self._publisher = Publisher(PublisherTools(tools.node_api, settings.node, self._witness))
        self._report_loop = ReportLoop(
            self._state,
            tools.kubelet,
            publish=self._publish,
            witness=self._witness,
        )
        # What the reading itself says is wrong is listed so from the beginning.
        faults = {gpu.uuid: gpu.fault for gpu in reading.gpus if gpu.fault is not None}
        known = replace(
            book or HealthBook(), rules=settings.xid_rules, quiet_s=settings.health_quiet_s
        ).after_poll(faults, time.monotonic())
        self._state.see_unhealthy(known.unhealthy(self._state.devices))
        self._watch = HealthWatch(
            tools.reader,
            self,
            log=self._witness,
            reading=reading,
            book=known,
            times=HealthTimes(poll_s=settings.health_poll_s),
        )
        self._device_lists = {one.name: DeviceList() for one in stock.inventory.resources}
        self._phases: dict[str, RegistrationPhase] = {}
        self._ended: asyncio.Future[Ending] | None = None
        self._beat_s = time.monotonic()
        self._stocktaking = Stocktaking(
            reading, rules, prepare=self._open_access, serve=self._serve, log=tools.log
        )
        self._inquiry = TopologyManagerPoller(
            tools.kubelet_settings, on_told=self._align, on_trouble=self._witness.looked
        )

    @property
    def is_serving(self) -> bool:
        """Whether devices are served, and not only told of."""
        return self._settings.mode is Mode.DEVICE_PLUGIN

    def live(self) -> str:
        """What is wrong with the loop; empty: nothing. May be asked from any thread."""
        silent_s = time.monotonic() - self._beat_s
        return f"no sign of life for {silent_s:.0f} s" if silent_s > MAX_SILENCE_S else ""

    def ready(self) -> str:
        """What is missing until the agent does what it is for; empty: nothing. Any thread."""
        if self._state.pods is None:
            return f"no plan can be known: {self._witness.trouble}"
        if not self.is_serving:
            return "" if self._publisher.is_published else "nothing published yet"
        done = {RegistrationPhase.REGISTERED, RegistrationPhase.DISABLED}
        missing = [name for name in self._device_lists if self._phases.get(name) not in done]
        return f"not registered: {', '.join(missing)}" if missing else ""

    @property
    def health(self) -> HealthBook:
        """What is known to be wrong with the machine."""
        return self._watch.book

    def reload(self) -> None:
        """End, so that settings and machine are read anew."""
        self._end(Ending.RELOAD)

    async def run(self) -> Ending:
        """Work until there is a reason to begin anew, or until cancelled."""
        self._ended = asyncio.get_running_loop().create_future()
        give_back()
        self._describe()
        await self._inquiry.ask()
        await self._report_loop.look()  # which pods are there before any of ours
        self._state.begin_registration()
        self._relist()
        await self._open_access(self._state.stock)
        work = [
            self._beat(),
            self._watch.run(),
            self._publisher.run(),
            self._report_loop.run(),
            self._registration().run() if self.is_serving else self._follow_kubelet(),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in work]
                ending = await self._ended
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:
            raise _first_of_ours(errors) from errors
        finally:
            self._stocktaking.stop()
            self._inquiry.stop()
        return ending

    # --- HealthView ---

    def devices(self) -> Iterable[Device]:
        """The devices that are served now."""
        return self._state.devices

    def see_health(self, unhealthy: Mapping[str, str]) -> None:
        """List bad devices as such, and report them."""
        self._tools.log.info(logkeys.DEVICES_CHANGED, **{logkeys.UNHEALTHY: dict(unhealthy)})
        self._state.see_unhealthy(unhealthy)
        self._relist()
        self._report_loop.trigger()

    def see_reading(self, reading: MachineReading) -> None:
        """Make the stock anew, in a thread; the latest reading counts."""
        self._stocktaking.see(reading)

    # --- parts ---

    def _registration(self) -> Registration:
        settings = self._settings
        tools = AllocatorTools(
            self._state,
            self._tools.kubelet,
            self._witness,
            settings.access_rules,
        )
        servers = [
            ResourceServer(
                Offer(name, device_list, ResourceAllocator(name, tools)),
                settings.kubelet_places.folder,
                on_call=self._witness.called,
            )
            for name, device_list in self._device_lists.items()
        ]
        return Registration(servers, settings.kubelet_places.socket, on_change=self._stands)

    async def _open_access(self, stock: Stock) -> None:
        if self.is_serving:
            log = self._tools.log
            self._state.present = await open_access(stock, self._settings, log=log)

    async def _beat(self) -> None:
        while True:
            self._beat_s = time.monotonic()
            await asyncio.sleep(BEAT_S)

    async def _follow_kubelet(self) -> None:
        """In place of registrations: notice a kubelet that started anew by its socket."""
        path = self._settings.kubelet_places.socket
        if path is None:
            return
        socket = KubeletSocket(path)
        async with asyncio.TaskGroup() as group:
            group.create_task(socket.watch())
            socket_id = None
            while True:
                socket_id = await socket.other_than(socket_id)
                self._state.begin_registration()
                self._meet_kubelet()

    def _serve(self, stock: Stock) -> None:
        """Serve what the machine is now, in place of what it was."""
        if [one.name for one in stock.inventory.resources] != list(self._device_lists):
            self._end(Ending.OTHER_RESOURCES)
            return
        self._state.stock = stock
        give_back()
        self._describe()
        self._relist()
        self._watch.tell()
        self._report_loop.trigger()

    def _align(self, found: TopologyManagerSettings) -> None:
        if found == self._state.topology_manager:
            return
        self._state.topology_manager = found
        told = {logkeys.POLICY: found.policy.value, logkeys.SCOPE: found.scope.value}
        self._tools.log.info(logkeys.TOPOLOGY_MANAGER, **told)
        self._relist()
        self._report_loop.trigger()

    def _stands(self, change: RegistrationChange) -> None:
        self._witness.stands(change)
        self._phases[change.resource] = change.phase
        if change.phase is RegistrationPhase.LOST:
            self._state.begin_registration()
        elif change.phase is RegistrationPhase.REGISTERED:
            self._meet_kubelet()

    def _meet_kubelet(self) -> None:
        """It may be another kubelet than before: set otherwise, on a Node that was made anew."""
        self._inquiry.begin()
        self._publisher.refetch()
        self._report_loop.trigger()

    def _on_allocated(self) -> None:
        self._report_loop.trigger()

    def _publish(self, report: DevicesReport, *, keeps_holds: bool) -> None:
        topology = topology_text(self._state.stock)
        self._publisher.publish(topology, report, keeps_holds=keeps_holds)

    def _relist(self) -> None:
        """List the devices as they are now; the kubelet hears of a change by itself."""
        state = self._state
        for resource in state.stock.inventory.resources:
            listed = [
                ListedDevice(
                    device.id,
                    device.id not in state.unhealthy,
                    device.numa_node if state.tells_numa_nodes else None,
                )
                for device in resource.devices
            ]
            self._device_lists[resource.name].replace(listed)
            n_unhealthy = sum(not one.is_healthy for one in listed)
            self._tools.metrics.devices(
                resource.name, n_healthy=len(listed) - n_unhealthy, n_unhealthy=n_unhealthy
            )

    def _describe(self) -> None:
        stock = self._state.stock
        reading, inventory = stock.reading, stock.inventory
        n_devices = {one.name: len(one.devices) for one in inventory.resources}
        notes = [*reading.notes, *inventory.notes]
        told = {logkeys.N_DEVICES: n_devices, logkeys.NOTES: notes}
        self._tools.log.info(logkeys.MACHINE_READ, **told)

    def _end(self, ending: Ending) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(ending)


def _first_of_ours(errors: ExceptionGroup[Exception]) -> Exception:
    """The error that says what is wrong; all of them where it is none of ours."""
    ours = errors.subgroup(PluginError)
    while ours is not None:
        first = ours.exceptions[0]
        if isinstance(first, PluginError):
            return first
        ours = first
    return errors
