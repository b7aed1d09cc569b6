"""Opens the plugin's connections and runs plugins one after another.

A machine that offers other resources than before, or a reload, ends one plugin and begins the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kube.client import ApiServer, KubeletClient, Transport
from kube.errors import KubeError, SettingsError
from plugin import logkeys
from plugin.dependencies import PluginDependencies
from plugin.errors import ReadingError
from plugin.health import HealthTimes
from plugin.kubelet import KubeletView, PodResources
from plugin.machine import ServingRules
from plugin.node_plugin import NodePlugin, StopReason
from plugin.observe import PluginMetrics, StatusEndpoint, Telemetry, serving
from plugin.simulated.reader import SimulatedMachine
from plugin.sysfs import Sysfs
from plugin.vendor import VENDOR
from topology.errors import TopologyError, file_fault
from topology.model import parse_measurement

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kube.client import Endpoint
    from kube.log import Logger
    from plugin.config import LoadedSettings, PluginSettings
    from plugin.health import KnownFaults
    from plugin.machine import MachineReader, MachineReading

__all__ = ["ReadTiming", "Running", "open_reader", "open_transport", "run_plugins", "serving_rules"]


@dataclass(frozen=True, slots=True)
class ReadTiming:
    """For the first reading, where a failure is no reason to end.

    - `again_s` 30: between attempts; a driver may be installed meanwhile.
    - `restart_s`, as of the watch: how long it is tried where only a new process, in a new
      container, may read the machine.
    """

    again_s: float = 30.0
    restart_s: float = field(default_factory=lambda: HealthTimes().restart_s)


_TIMING = ReadTiming()


@dataclass(slots=True)
class Running:
    """The plugin that runs now, for probes and signals; None between two."""

    plugin: NodePlugin | None = None
    known: KnownFaults | None = None
    """The faults that the last plugin knew: they hold for the next one too."""

    def reload(self) -> None:
        """Have settings and machine read again."""
        if self.plugin is not None:
            self.plugin.reload()

    def live(self) -> str:
        """What is wrong with the loop; empty: nothing."""
        return "" if self.plugin is None else self.plugin.live()

    def ready(self) -> str:
        """What is missing; empty: nothing."""
        return "no machine could be read yet" if self.plugin is None else self.plugin.ready()


def open_reader(settings: PluginSettings) -> MachineReader:
    """The machine that the settings name. Nothing is read yet.

    Raises `SettingsError` for a recording that cannot be.
    """
    if settings.simulate is not None:
        try:
            return SimulatedMachine(
                settings.simulate,
                node_name=settings.node,
                hardware=VENDOR.simulated,
                faults=settings.simulate_faults,
            )
        except ReadingError as error:
            msg = f"setting simulate: {error}"
            raise SettingsError(msg) from error
    return VENDOR.open_reader(settings, _sysfs(settings))


def _sysfs(settings: PluginSettings) -> Sysfs:
    return Sysfs(settings.sysfs_root, settings.proc_root)


def serving_rules(loaded: LoadedSettings) -> ServingRules:
    """The settings about devices. Raises `SettingsError` for figures that are none."""
    settings = loaded.settings
    measurement = None
    if settings.measurements is not None:
        try:
            measurement = parse_measurement(settings.measurements.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TopologyError) as error:
            msg = f"setting measurements: file {settings.measurements}: {file_fault(error)}"
            raise SettingsError(msg) from error
    units_of = partial(VENDOR.units_of, settings)
    return ServingRules(units_of, loaded.sharing, settings.resource_name, measurement)


async def run_plugins(
    load: Callable[[], LoadedSettings],
    *,
    running: Running,
    log: Logger,
    timing: ReadTiming = _TIMING,
) -> None:
    """Run until cancelled; `load` gives the settings, again after each reload.

    Raises `PluginError` where the settings, or the machine at the start, do not let it.
    """
    while True:
        loaded = load()
        sharing = {
            "replicas": dict(loaded.sharing.replicas),
            "suffix": loaded.sharing.suffix,
            "is_one_only": loaded.sharing.is_one_only,
        }
        shown = loaded.settings.model_dump(mode="json")
        log.info(logkeys.EFFECTIVE_SETTINGS, **shown, sharing=sharing)
        if loaded.notes:
            log.warning(logkeys.EFFECTIVE_SETTINGS, notes=list(loaded.notes))
        with contextlib.closing(open_reader(loaded.settings)) as reader:
            await _run_with(loaded, reader, running=running, log=log, timing=timing)


async def _run_with(
    loaded: LoadedSettings,
    reader: MachineReader,
    *,
    running: Running,
    log: Logger,
    timing: ReadTiming,
) -> None:
    """Run plugins under these settings until one requests others."""
    settings, metrics = loaded.settings, PluginMetrics()
    rules = serving_rules(loaded)
    endpoint = StatusEndpoint(running.live, running.ready, metrics.registry)
    async with (
        open_transport(settings) as to_server,
        open_transport(settings, settings.kubelet_endpoint) as to_kubelet,
    ):
        kubelet = KubeletClient(to_kubelet)
        with serving(
            endpoint, address=settings.metrics_address, port=settings.metrics_port
        ) as port:
            log.info(logkeys.LISTENING, address=settings.metrics_address, port=port)
            devices = PodResources(settings.pod_resources_socket)
            view = KubeletView(kubelet, devices, settings.checkpoint)
            telemetry = Telemetry(log, metrics)
            tools = PluginDependencies(
                reader,
                partial(VENDOR.open_access, settings, _sysfs(settings)),
                VENDOR.fault_rules(settings),
                ApiServer(to_server),
                view,
                kubelet,
                telemetry,
                _sysfs(settings).boot_id(),
            )
            ending = None
            while ending is not StopReason.RELOAD:
                reading = await _read(reader, settings, telemetry, timing)
                plugin = NodePlugin(settings, rules, reading, tools=tools, known=running.known)
                try:
                    running.plugin = plugin
                    ending = await plugin.run()
                finally:
                    running.plugin, running.known = None, plugin.known


async def _read(
    reader: MachineReader, settings: PluginSettings, telemetry: Telemetry, timing: ReadTiming
) -> MachineReading:
    """The first reading. Raises `ReadingError` where there is none, and no later try may help."""
    n_failures = 0
    unusable_s = 0.0
    while True:
        try:
            reading = await asyncio.to_thread(reader.read)
        except ReadingError as error:
            condition = reader.condition()
            unusable_s = unusable_s + timing.again_s if condition.restart_reason else 0.0
            if settings.fail_on_init_error or unusable_s > timing.restart_s:
                raise
            n_failures += 1
            telemetry.reader_failed("read", str(error), n_failures=n_failures)
            telemetry.reader_condition(condition)
        else:
            if n_failures:
                telemetry.reader_works("read")
                telemetry.reader_condition(reader.condition())
            return reading
        await asyncio.sleep(timing.again_s)


@contextlib.asynccontextmanager
async def open_transport(
    settings: PluginSettings, endpoint: Endpoint | None = None
) -> AsyncGenerator[Transport]:
    """A connection to this endpoint, else to the API server.

    Raises `SettingsError` where the settings lead to none.
    """
    try:
        transport = await Transport.connect(
            settings.kubeconfig, user_agent="coterie-plugin", endpoint=endpoint
        )
    except KubeError as error:
        if settings.kubeconfig is None:
            msg = (
                f"setting kubeconfig is missing and this is no pod of a cluster ({error}), "
                "expected the kubeconfig of an API server"
            )
        else:
            msg = (
                f"setting kubeconfig {settings.kubeconfig} cannot be used ({error}), "
                "expected the kubeconfig of an API server"
            )
        raise SettingsError(msg) from error
    try:
        yield transport
    finally:
        await transport.close()
