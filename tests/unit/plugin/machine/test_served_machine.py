"""What is served and published of a reading, under the settings."""

from __future__ import annotations

import contextlib

import pytest

from kube.errors import SettingsError
from plugin.machine import ServingRules, serve_machine
from tests.unit.plugin.machine_values import simulated_machine
from tests.unit.plugin.node_values import GPU, NODE
from topology.model import decode_topology
from topology.model.node_topology import MeasuredPair, Measurement


def reading(recording="dgx-1-v100"):
    """A machine that is not there."""
    with contextlib.closing(simulated_machine(recording, node_name=NODE)) as machine:
        return machine.read()


def test_the_sets_that_are_rated_are_those_of_the_devices():
    """A machine type of other GPUs would rank sets that cannot be allocated."""
    served = serve_machine(reading(), ServingRules())
    (resource,) = served.inventory.resources
    uuids = tuple(device.id for device in resource.devices)
    assert resource.name == GPU
    assert served.machine is not None
    assert tuple(gpu.uuid for gpu in served.machine.topology.gpus) == uuids
    text = served.topology_text
    assert text is not None
    assert decode_topology(text) == served.inventory.topology


@pytest.mark.parametrize(
    ("recording", "n_links"),
    [
        pytest.param("dgx-1-v100", 24, id="between GPUs, each once"),
        pytest.param("dgx-1-v100-dead-link", 23, id="one of them down"),
        pytest.param("dgx-h100", 8 * 18, id="into switches"),
        pytest.param("8x-l4", 0, id="none"),
    ],
)
def test_links_that_are_up_are_counted(recording, n_links):
    """One that goes down shows as a fall, wherever it leads."""
    assert serve_machine(reading(recording), ServingRules()).n_links_up == n_links


def test_measured_figures_go_into_what_is_published_and_rated():
    """Measured beats labelled, at the extender as here."""
    measured = Measurement(pairs=(MeasuredPair(0, 1, 50.0),))
    served = serve_machine(reading(), ServingRules(measurement=measured))
    assert served.machine is not None
    assert served.machine.topology.measurement == measured
    assert served.reading.topology.measurement == measured
    assert decode_topology(served.topology_text or "").measurement == measured


def test_figures_of_another_machine_are_refused(check_message):
    """They would rank this one's sets; the message names the setting."""
    rules = ServingRules(measurement=Measurement(pairs=(MeasuredPair(0, 9, 50.0),)))
    with pytest.raises(SettingsError) as caught:
        serve_machine(reading(), rules)
    check_message(caught.value)
