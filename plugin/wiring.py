"""Makes the agent's doors as the settings say, and runs agents one after another.

What it answers: nothing; `run_agents` opens the machine, the API server and the kubelet once, and
keeps an agent running until cancelled. A machine that offers other resources than before, or a
reload, ends one agent and begins the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.client import ApiServer, KubeletClient, Transport
from kube.errors import KubeError
from plugin import logkeys
from plugin.agent import Agent, AgentTools, StopReason
from plugin.errors import ReadingError, SettingsError
from plugin.kubelet import KubeletView, PodResources
from plugin.machine import StockRules
from plugin.nvidia.container.dev_files import find_nvml
from plugin.nvidia.nvml.library import preload
from plugin.nvidia.nvml.reader import NvmlMachine
from plugin.observe import Metrics, StatusEndpoint, Telemetry, serving
from plugin.simulated.reader import SimulatedMachine
from plugin.sysfs import Sysfs
from topology.errors import TopologyError
from topology.model import parse_measurement

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from plugin.config import LoadedSettings, Settings
    from plugin.health import HealthBook
    from plugin.machine import MachineReader, MachineReading
    from plugin.observe import Logger

__all__ = ["Running", "open_reader", "read_machine", "run_agents", "stock_rules"]

_READ_AGAIN_S = 30.0
"""Between tries to read a machine that cannot be, where that is no reason to end: NVIDIA's plugin
waits for ever; a driver may be installed meanwhile."""


@dataclass(slots=True)
class Running:
    """The agent that runs now, for those who ask from outside; None between two."""

    agent: Agent | None = None
    health: HealthBook | None = None
    """What the last agent knew to be wrong: it is so for the next one too."""

    def reload(self) -> None:
        """Have settings and machine read anew."""
        if self.agent is not None:
            self.agent.reload()

    def live(self) -> str:
        """What is wrong with the loop; empty: nothing."""
        return "" if self.agent is None else self.agent.live()

    def ready(self) -> str:
        """What is missing; empty: nothing."""
        return "no machine could be read yet" if self.agent is None else self.agent.ready()


def open_reader(settings: Settings) -> MachineReader:
    """The machine that the settings name. Nothing is read yet.

    Raises `ReadingError` for a recording that cannot be.
    """
    if settings.simulate is not None:
        return SimulatedMachine(
            settings.simulate, node_name=settings.node, faults=settings.simulate_faults
        )
    return NvmlMachine(Sysfs(settings.sysfs_root, settings.proc_root))


def read_machine(reader: MachineReader, settings: Settings) -> MachineReading:
    """Read, with the driver's library from where it is by now: a driver may be installed late.

    Raises `ReadingError`.
    """
    library = None if settings.simulate else find_nvml(settings.driver_root_ctr_path)
    if library is not None:
        preload(library)
    return reader.read()


def stock_rules(loaded: LoadedSettings) -> StockRules:
    """What the settings say about devices. Raises `SettingsError` for figures that are none."""
    settings = loaded.settings
    measurement = None
    if settings.measurements is not None:
        try:
            measurement = parse_measurement(settings.measurements.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TopologyError) as error:
            msg = f"setting measurements: file {settings.measurements}: {error}"
            raise SettingsError(msg) from error
    return StockRules(settings.mig_strategy, loaded.sharing, settings.resource_name, measurement)


async def run_agents(load: Callable[[], LoadedSettings], *, running: Running, log: Logger) -> None:
    """Run until cancelled; `load` gives the settings, anew after each reload.

    Raises `PluginError` where the settings, or the machine at the start, do not let it.
    """
    while True:
        loaded = load()
        log.info(logkeys.EFFECTIVE_SETTINGS, **loaded.settings.model_dump(mode="json"))
        for note in loaded.notes:
            log.warning(logkeys.EFFECTIVE_SETTINGS, notes=note)
        with contextlib.closing(open_reader(loaded.settings)) as reader:
            await _run_with(loaded, reader, running=running, log=log)


async def _run_with(
    loaded: LoadedSettings, reader: MachineReader, *, running: Running, log: Logger
) -> None:
    """Run agents under these settings until one asks for others."""
    settings, metrics = loaded.settings, Metrics()
    rules = stock_rules(loaded)
    endpoint = StatusEndpoint(metrics.registry, running.live, running.ready)
    async with _api_server(settings) as api, _kubelet(settings) as kubelet:
        with serving(
            endpoint, address=settings.metrics_address, port=settings.metrics_port
        ) as port:
            log.info(logkeys.LISTENING, address=settings.metrics_address, port=port)
            devices = PodResources(settings.pod_resources_socket)
            view = KubeletView(kubelet, devices, settings.kubelet_places.checkpoint)
            tools = AgentTools(reader, api, view, kubelet, Telemetry(log, metrics))
            ending = None
            while ending is not StopReason.RELOAD:
                reading = await _read(reader, settings, log=log)
                agent = Agent(settings, rules, reading, tools=tools, book=running.health)
                try:
                    running.agent = agent
                    ending = await agent.run()
                finally:
                    running.agent, running.health = None, agent.health


async def _read(reader: MachineReader, settings: Settings, *, log: Logger) -> MachineReading:
    while True:
        try:
            return await asyncio.to_thread(read_machine, reader, settings)
        except ReadingError as error:
            if settings.fail_on_init_error:
                raise
            log.warning(logkeys.READER_FAILED, what="read", reason=str(error))
        await asyncio.sleep(_READ_AGAIN_S)


@contextlib.asynccontextmanager
async def _api_server(settings: Settings) -> AsyncGenerator[ApiServer]:
    transport = await _connect(settings, is_kubelet=False)
    try:
        yield ApiServer(transport)
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def _kubelet(settings: Settings) -> AsyncGenerator[KubeletClient]:
    transport = await _connect(settings, is_kubelet=True)
    try:
        yield KubeletClient(transport)
    finally:
        await transport.close()


async def _connect(settings: Settings, *, is_kubelet: bool) -> Transport:
    try:
        return await Transport.connect(
            settings.kubeconfig,
            user_agent="coterie-plugin",
            endpoint=settings.kubelet_endpoint if is_kubelet else None,
        )
    except KubeError as error:
        msg = f"setting kubeconfig: {error}"
        raise SettingsError(msg) from error
