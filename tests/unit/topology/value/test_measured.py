"""Measured bandwidths: classes, what they change, and that no figure breaks the tables."""

import warnings
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.machines import relabelled
from tests.strategies import node_topologies
from topology.model.measurement import CLASS_GAP, group_in_classes, pair_classes, set_figures
from topology.model.node_topology import (
    MAX_MEASURED,
    MIN_MEASURED,
    MeasuredPair,
    MeasuredSet,
    Measurement,
)
from topology.recordings import load_recording
from topology.value import (
    apply_measurement,
    at_message_size,
    mask_index,
    mask_of,
    node_capacities,
    raw_sums,
)
from topology.value.value_table import value_table

MIB = 1 << 20
V100 = load_recording("dgx-1-v100")
L40S = load_recording("4x-l40s")
PAIRS = {n: [(i, j) for j in range(n) for i in range(j)] for n in range(2, 7)}


def pairs(figures):
    """Write measured pairs as {(first, second): GB/s}."""
    return tuple(MeasuredPair(i, j, figure) for (i, j), figure in figures.items())


def corrected(topology, measurement):
    """Give B_inf, start-up cost and class sums of every mask after a measurement."""
    table = value_table(node_capacities(topology))
    return apply_measurement(
        measurement, value=table.value, latency=table.latency, n=topology.n_gpus
    )


def at_size(topology, measurement, message_bytes):
    """Give the corrected value of every mask at a message size."""
    value, latency, _ = corrected(topology, measurement)
    return at_message_size(value, latency, message_bytes)


@pytest.mark.parametrize(
    ("figures", "classes"),
    [
        pytest.param([], {}, id="nothing measured"),
        pytest.param([42.23], {42.23: 42.0}, id="one pair is a class"),
        pytest.param([100.0, 90.0], {100.0: 95.0, 90.0: 95.0}, id="a gap of 10 % is no gap"),
        pytest.param([100.0, 89.9], {100.0: 100.0, 89.9: 90.0}, id="more than 10 % is one"),
        pytest.param(
            [100.0, 91.0, 83.0], {100.0: 91.0, 91.0: 91.0, 83.0: 91.0}, id="steps form a chain"
        ),
        pytest.param(
            [11.9, 11.93, 11.9, 20.3],
            {20.3: 20.0, 11.93: 12.0, 11.9: 12.0},
            id="11.90 and 11.93 are equal",
        ),
        pytest.param([0.5, 0.044], {0.5: 0.5, 0.044: 0.044}, id="two digits at any scale"),
    ],
)
def test_figures_fall_into_classes(figures, classes):
    """A class is bounded by gaps and counts as its median in two digits."""
    assert group_in_classes(figures) == classes
    assert list(group_in_classes(figures)) == sorted(classes, reverse=True)


@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=30))
def test_classes_keep_the_order_and_stay_near(figures):
    """A higher figure never gets a lower class, and classes of different gaps stay apart."""
    classes = group_in_classes(figures)
    ordered = sorted(figures)
    for low, high in pairwise(ordered):
        apart = low < high * (1 - CLASS_GAP)
        assert classes[low] < classes[high] if apart else classes[low] == classes[high]
    for figure in set(classes.values()):
        members = [each for each in figures if classes[each] == figure]
        assert figure == pytest.approx(median(members), rel=0.05)


def test_v100_pairs_are_two_classes_of_links_and_the_rest():
    """NV2 42.2, NV1 22.0 GB/s (BandPilot V100); a pair given as a set counts as a pair."""
    measurement = Measurement(
        pairs=pairs({(0, 3): 42.26, (0, 4): 42.18, (0, 1): 21.97}),
        sets=(MeasuredSet((0, 2), 22.04), MeasuredSet((0, 3), 1.0), MeasuredSet((0, 1, 2), 42.78)),
    )
    assert pair_classes(measurement) == {(0, 1): 22.0, (0, 2): 22.0, (0, 3): 42.0, (0, 4): 42.0}
    assert set_figures(measurement) == {(0, 1, 2): 43.0}


def test_nothing_measured_changes_nothing():
    """Sets keep their label's value to the last bit, at every message size."""
    table = value_table(node_capacities(V100))
    for message_bytes in (None, 1, 16 * MIB, 1 << 40):
        value, latency, _ = corrected(V100, Measurement(message_bytes=message_bytes))
        np.testing.assert_array_equal(value, table.value)
        np.testing.assert_array_equal(latency, table.latency)


@pytest.mark.parametrize("message_bytes", [64 << 10, MIB, 16 * MIB, 2 << 30])
@pytest.mark.parametrize("figure", [0.01, 4.0, 19.0, 42.0, 95.0, 200.0, 900.0])
def test_a_measured_pair_is_worth_its_class_at_its_own_message_size(figure, message_bytes):
    """Better or worse than its label, what was measured is what the value says at that size."""
    measurement = Measurement(pairs=pairs({(0, 1): figure}), message_bytes=message_bytes)
    found = at_size(V100, measurement, message_bytes)
    assert found[0b11] == pytest.approx(figure)


def test_a_pair_below_its_label_keeps_the_start_up_cost():
    """1/B_inf = 1/B(M) - a x 16 MiB / M: 110 GB/s at 16 MiB (a sick H100 pair) are 128."""
    h100 = load_recording("dgx-h100")
    table = value_table(node_capacities(h100))
    measurement = Measurement(pairs=pairs({(1, 5): 110.0}), message_bytes=16 * MIB)
    value, latency, _ = corrected(h100, measurement)
    cost = table.latency[0b100010]
    assert value[0b100010] == pytest.approx(1 / (1 / 110.0 - cost))
    assert latency[0b100010] == cost


def test_a_pair_above_its_label_shrinks_the_start_up_cost():
    """An unrecorded NVLink measures what PCIe's start-up cost could not allow."""
    table = value_table(node_capacities(L40S))
    measurement = Measurement(pairs=pairs({(0, 1): 200.0}), message_bytes=16 * MIB)
    value, latency, _ = corrected(L40S, measurement)
    label = at_message_size(table.value, table.latency, 16 * MIB)[0b11]
    assert value[0b11] == pytest.approx(table.value[0b11] * 200.0 / label)
    assert latency[0b11] == pytest.approx(table.latency[0b11] * label / 200.0)


@settings(max_examples=up_to(60))
@given(
    st.floats(0.01, 5000),
    st.floats(1.2, 10),
    st.sampled_from([1 << 10, MIB, 16 * MIB, 1 << 30]),
    st.sampled_from([MIB, 1 << 30, 1 << 40]),
)
def test_a_higher_figure_is_a_higher_value(figure, factor, measured_at, requested_at):
    """At every message size: 85 GB/s must not outrank 206 because start-up explains only one."""
    low, high = (
        at_size(
            L40S, Measurement(pairs=pairs({(0, 1): each}), message_bytes=measured_at), requested_at
        )
        for each in (figure, figure * factor)
    )
    assert high[0b11] > low[0b11]


def test_a_slow_pair_slows_the_sets_that_need_it():
    """The widest path decides: a set that reaches both ends another way keeps its value."""
    quad = mask_of((0, 1, 2, 3))
    table = value_table(node_capacities(V100))
    one = corrected(V100, Measurement(pairs=pairs({(0, 1): 2.0})))[0]
    assert one[0b11] == pytest.approx(2.0, rel=0.1)
    assert one[quad] == table.value[quad]
    cut_off = {(i, 7): 2.0 for i in range(7)}
    alone = corrected(V100, Measurement(pairs=pairs(cut_off)))[0]
    np.testing.assert_array_equal(alone[:128], table.value[:128])
    assert alone[255] < 0.2 * table.value[255]


def test_a_measured_set_overrides_its_value_alone():
    """What was measured of one set says nothing of the sets around it."""
    table = value_table(node_capacities(V100))
    measurement = Measurement(sets=(MeasuredSet((0, 1, 2, 3), 30.4),), message_bytes=16 * MIB)
    found = at_size(V100, measurement, 16 * MIB)
    assert found[0b1111] == pytest.approx(30.0)
    others = np.arange(256) != 0b1111
    label = at_message_size(table.value, table.latency, 16 * MIB)
    np.testing.assert_array_equal(found[others], label[others])


def test_sums_of_classes_and_of_raw_figures():
    """Ties are broken by classes, then by raw figures; pairs not measured count by label."""
    measurement = Measurement(
        pairs=pairs({(0, 1): 42.3, (0, 2): 42.1, (1, 2): 11.9}), message_bytes=16 * MIB
    )
    class_sum = corrected(L40S, measurement)[2]
    assert class_sum[0b0111] == pytest.approx(42.0 + 42.0 + 12.0)
    assert class_sum[[0, 1, 2, 4, 8]].tolist() == [0.0] * 5
    table = value_table(node_capacities(L40S))
    label = at_message_size(table.value, table.latency, 16 * MIB)[0b1001]
    assert class_sum[0b1001] == pytest.approx(label, abs=1e-6)
    raw = raw_sums(measurement, class_sum, 4)
    assert raw[0b0111] == pytest.approx(42.3 + 42.1 + 11.9)
    assert raw[0b1001] == class_sum[0b1001]


EXTREMES = [MIN_MEASURED, 0.04, 1.0, 500.0, 1e4, MAX_MEASURED]


@pytest.mark.parametrize("message_bytes", [None, 1, 2**63 - 1])
def test_tiny_and_huge_figures_stay_numbers(message_bytes):
    """Nothing a legal measurement holds makes a value infinite, zero or no number."""
    figures = dict(zip(PAIRS[4], EXTREMES, strict=True))
    measurement = Measurement(
        pairs=pairs(figures),
        sets=(MeasuredSet((0, 1, 2), EXTREMES[-1]), MeasuredSet((1, 2, 3), EXTREMES[0])),
        message_bytes=message_bytes,
    )
    assert_sound(L40S, measurement)


def assert_sound(topology, measurement):
    """Check every array for numbers that ranking can stand on."""
    n = topology.n_gpus
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, latency, class_sum = corrected(topology, measurement)
        raw = raw_sums(measurement, class_sum, n)
        found = at_message_size(value, latency, 1 << 30)
    wide = mask_index(n).size > 1
    for array in (value, latency, found, class_sum, raw):
        assert np.isfinite(array).all()
        assert (array >= 0).all()
    assert (value[wide] > 0).all()
    assert (found[wide] > 0).all()
    assert (value[~wide] == 0).all()
    classes = [*pair_classes(measurement).values(), *set_figures(measurement).values()]
    assert all(0 < figure < float("inf") for figure in classes)


@settings(max_examples=up_to(60))
@given(node_topologies(min_gpus=2, max_gpus=6))
def test_any_measurement_gives_sound_values(topology):
    """Every legal measurement on every legal machine."""
    assert_sound(topology, topology.measurement or Measurement())


@settings(max_examples=up_to(25))
@given(node_topologies(min_gpus=2, max_gpus=6), st.data())
def test_numbering_never_changes_a_measured_value(topology, data):
    """A measurement moves with its GPUs."""
    n = topology.n_gpus
    figures = st.floats(0.5, 900)
    chosen = data.draw(st.dictionaries(st.sampled_from(PAIRS[n]), figures, max_size=6))
    some = data.draw(st.sets(st.integers(0, n - 1), min_size=2))
    measurement = Measurement(
        pairs=pairs(chosen), sets=(MeasuredSet(tuple(sorted(some)), data.draw(figures)),)
    )
    topology = replace(topology, measurement=measurement)
    order = data.draw(st.permutations(range(n)))
    moved = relabelled(topology, order)
    bits = mask_index(n).masks[:, None] >> np.arange(n) & 1
    old = (bits << np.array(order)).sum(axis=1)
    for before, after in zip(
        corrected(topology, measurement), corrected(moved, moved.measurement), strict=True
    ):
        np.testing.assert_allclose(after, before[old], rtol=1e-9, atol=2e-6)
