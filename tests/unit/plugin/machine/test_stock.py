"""What is served and published of a reading, under the settings."""

from __future__ import annotations

import contextlib

import pytest

from plugin.errors import SettingsError
from plugin.machine import MigStrategy, StockRules, TimeSlicing, take_stock, topology_text
from plugin.simulated.reader import SimulatedMachine
from tests.unit.plugin.node_values import GPU, NODE
from topology.model import decode_topology
from topology.model.node_topology import MeasuredPair, Measurement


def reading(recording="dgx-1-v100"):
    """A machine that is not there."""
    with contextlib.closing(SimulatedMachine(recording, node_name=NODE)) as machine:
        return machine.read()


def test_the_sets_that_are_rated_are_those_of_the_devices():
    """A machine type of other GPUs would rank sets that nobody can have."""
    stock = take_stock(reading(), StockRules())
    (resource,) = stock.inventory.resources
    uuids = tuple(device.id for device in resource.devices)
    assert resource.name == GPU
    assert stock.machine is not None
    assert tuple(gpu.uuid for gpu in stock.machine.topology.gpus) == uuids
    text = topology_text(stock)
    assert text is not None
    assert decode_topology(text) == stock.inventory.topology


def test_resource_and_strategy_are_as_set():
    """Else the kubelet hears of resources that no pod asks for."""
    rules = StockRules(strategy=MigStrategy.SINGLE, resource="example.com/gpu")
    stock = take_stock(reading(), rules)
    assert [one.name for one in stock.inventory.resources] == ["example.com/gpu"]


def test_measured_figures_go_into_what_is_published_and_rated():
    """Measured beats labelled, at the extender as here."""
    measured = Measurement(pairs=(MeasuredPair(0, 1, 50.0),))
    stock = take_stock(reading(), StockRules(measurement=measured))
    assert stock.machine is not None
    assert stock.machine.topology.measurement == measured
    assert stock.reading.topology.measurement == measured
    assert decode_topology(topology_text(stock) or "").measurement == measured


def test_figures_of_another_machine_are_refused():
    """They would rank this one's sets; the message names the setting."""
    rules = StockRules(measurement=Measurement(pairs=(MeasuredPair(0, 9, 50.0),)))
    with pytest.raises(SettingsError, match=r"setting measurements: .* this machine's GPUs"):
        take_stock(reading(), rules)


def test_shared_gpus_are_neither_rated_nor_published():
    """Pods are placed there by count."""
    stock = take_stock(reading(), StockRules(sharing=TimeSlicing({GPU: 2})))
    assert len(stock.inventory.resources[0].devices) == 16
    assert stock.machine is None
    assert topology_text(stock) is None
