"""What is served of a machine that becomes another one, and what is said where that fails."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from plugin.errors import CdiError, ReadingError
from plugin.machine import ServingRules
from plugin.observe import PluginMetrics, Telemetry
from plugin.rediscovery import RETRY_S, Rediscovery
from tests.unit.plugin.machine_values import simulated_machine
from tests.unit.plugin.node_values import NODE
from tests.virtual_time import run_at_once
from topology.errors import TopologyError
from topology.model.node_topology import MeasuredPair, Measurement

if TYPE_CHECKING:
    from plugin.machine import MachineReading, ServedMachine

FIGURES = Measurement(pairs=(MeasuredPair(0, 7, 50.0),))
"""Of a machine with eight GPUs."""


@functools.cache
def reading(recording: str) -> MachineReading:
    """A machine that is not there."""
    with contextlib.closing(simulated_machine(recording, node_name=NODE)) as machine:
        return machine.read()


EIGHT, FOUR = reading("dgx-1-v100"), reading("4x-l40s")


@dataclass
class Node:
    """Who makes ready, serves and logs. Each fault meets one making ready."""

    rules: ServingRules = field(default_factory=ServingRules)
    faults: list[Exception] = field(default_factory=list)
    prepared: list[MachineReading] = field(default_factory=list)
    served: list[MachineReading] = field(default_factory=list)
    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    metrics: PluginMetrics = field(default_factory=PluginMetrics)
    may_go: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def prepare(self, served: ServedMachine) -> None:
        """Make ready once the test lets it."""
        self.prepared.append(served.reading)
        self.moved.set()
        await self.may_go.wait()
        if self.faults:
            raise self.faults.pop(0)

    def serve(self, served: ServedMachine) -> None:
        """Note it."""
        self.served.append(served.reading)
        self.moved.set()

    def _note(self, event, **fields):
        self.lines.append((event, fields))
        self.moved.set()

    debug = info = warning = _note

    def rediscovery(self):
        """What is tried."""
        telemetry = Telemetry(self, self.metrics)
        return Rediscovery(
            EIGHT, self.rules, prepare=self.prepare, serve=self.serve, telemetry=telemetry
        )

    @property
    def n_failures(self):
        """What the metric says."""
        labels = {"what": "inventory"}
        name = "coterie_plugin_reader_failures_total"
        return self.metrics.registry.get_sample_value(name, labels)

    async def until(self, is_so):
        """Wait until something of this was noted."""
        async with asyncio.timeout(60.0):
            while not is_so():
                self.moved.clear()
                await self.moved.wait()


def test_what_is_served_was_made_ready_before():
    """A container that gets a device which its runtime does not know would not start."""

    async def go():
        node = Node()
        node.rediscovery().see(FOUR)
        await node.until(lambda: node.prepared)
        assert (node.prepared, node.served) == ([FOUR], [])
        node.may_go.set()
        await node.until(lambda: node.served)
        assert (node.prepared, node.served, node.lines) == ([FOUR], [FOUR], [])

    run_at_once(go())


def test_only_the_latest_of_several_readings_is_served():
    """However many come while one is made ready; and the next one begins again."""

    async def go():
        node = Node()
        rediscovery = node.rediscovery()
        rediscovery.see(FOUR)
        await node.until(lambda: node.prepared)
        rediscovery.see(FOUR)
        rediscovery.see(EIGHT)
        node.may_go.set()
        await node.until(lambda: node.served)
        assert (node.prepared, node.served) == ([FOUR, EIGHT], [EIGHT])
        rediscovery.see(FOUR)
        await node.until(lambda: len(node.served) == 2)
        assert node.served == [EIGHT, FOUR]

    run_at_once(go())


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(CdiError("full"), id="description"),
        pytest.param(ReadingError("no IMEX"), id="device nodes"),
        pytest.param(TopologyError("odd"), id="topology"),
    ],
)
def test_what_cannot_be_served_is_reported_and_retried(fault):
    """Counted each time, logged once; folders fill up and are emptied."""

    async def go():
        node = Node(faults=[fault, fault])
        node.may_go.set()
        node.rediscovery().see(FOUR)
        await node.until(lambda: node.served)
        assert (node.prepared, node.served) == ([FOUR] * 3, [FOUR])
        assert node.lines == [
            ("reader_failed", {"what": "inventory", "reason": str(fault)}),
            ("reader_recovered", {"what": "inventory"}),
        ]
        assert node.n_failures == 2.0

    run_at_once(go())


def test_another_reason_is_logged_too():
    """Who mends the first fault has to see the next."""

    async def go():
        node = Node(faults=[CdiError("full"), CdiError("full"), CdiError("no folder")])
        node.may_go.set()
        node.rediscovery().see(FOUR)
        await node.until(lambda: node.served)
        reasons = [fields.get("reason") for _, fields in node.lines]
        assert (reasons, node.n_failures) == (["full", "no folder", None], 3.0)

    run_at_once(go())


def test_a_newer_reading_is_tried_at_once():
    """The machine that did not suit the settings may be gone: the pause is 10 s."""

    async def go():
        node = Node(ServingRules(measurement=FIGURES))
        node.may_go.set()
        rediscovery = node.rediscovery()
        rediscovery.see(FOUR)
        await node.until(lambda: node.lines)
        ((event, fields),) = node.lines
        assert (event, fields["what"], node.prepared) == ("reader_failed", "inventory", [])
        async with asyncio.timeout(RETRY_S / 2):
            rediscovery.see(EIGHT)
            await node.until(lambda: node.served)
        assert node.served[0].gpus == EIGHT.gpus

    run_at_once(go())


def test_nothing_is_served_once_it_is_stopped():
    """The plugin has ended; another one may have begun."""

    async def go():
        node = Node()
        rediscovery = node.rediscovery()
        rediscovery.stop()
        rediscovery.see(FOUR)
        await node.until(lambda: node.prepared)
        rediscovery.stop()
        node.may_go.set()
        await asyncio.sleep(1000.0)
        assert (node.served, node.lines) == ([], [])

    run_at_once(go())
