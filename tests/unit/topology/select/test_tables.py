"""The tables of a machine type: every set of it, by definition, and what machines share."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.brute_force import BruteForce
from tests.examples import up_to
from tests.machine_strategies import build_machine_by_hand, built_machines, relabelled
from tests.strategies import node_topologies
from topology.annotations import Affinity
from topology.errors import InvalidTopology
from topology.model import NO_LINK
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement
from topology.recordings import load_recording
from topology.select import build_tables, with_raw_figures
from topology.select.tables import VALUE_CLASS_GAP
from topology.value import Demand, gpus_of, mask_index, mask_of, topology_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.messages import CheckMessage
    from topology.model import NodeTopology

V100, H100 = "Tesla V100-SXM2-32GB", "NVIDIA H100 PCIe"


@given(topology=built_machines(min_gpus=1, max_gpus=7))
@settings(max_examples=up_to(25))
def test_every_column_is_what_the_definition_says(topology: NodeTopology) -> None:
    """One row of a table and one set described by itself are the same."""
    tables = build_tables(topology)
    reference = BruteForce(tables)
    for size in range(1, topology.n_gpus + 1):
        every = reference.facts(size)
        for gpus, facts in every.items():
            mask = mask_of(gpus)
            assert tables.value[mask] == pytest.approx(facts.value, abs=2e-6)
            assert tables.floor_of(np.array([mask]))[0] == pytest.approx(facts.floor, abs=2e-6)
            assert tables.value_class[mask] == facts.value_class
            assert tables.is_linked[mask] == (Affinity.NVLINK in facts.levels)
            assert tables.is_switch[mask] == (Affinity.PCIE_SWITCH in facts.levels)
            assert tables.is_numa[mask] == (Affinity.NUMA in facts.levels)
            assert tables.has_nic[mask] == facts.has_nic
            assert tables.is_uniform[mask] == facts.is_uniform
            assert tables.is_known[mask] == facts.is_known
            assert tables.class_sum[mask] == pytest.approx(facts.sums[0], abs=2e-6)
            assert tables.raw_sum[mask] == 0
            assert tables.remainder[mask] == pytest.approx(
                reference.remainder(frozenset(gpus)), abs=2e-9
            )
        alike = [f.value for f in every.values() if f.is_uniform] or [
            f.value for f in every.values()
        ]
        assert tables.best_value[size] == pytest.approx(max(alike), abs=2e-6)


@given(topology=node_topologies(max_gpus=6))
@settings(max_examples=up_to(60))
def test_any_valid_topology_has_tables(topology: NodeTopology) -> None:
    """Whatever the model lets through must not break the extender; nothing in them is NaN."""
    tables = build_tables(topology)
    n = tables.n_gpus
    floor = tables.floor_of(np.arange(1 << n))
    for column in (tables.value, floor, tables.remainder, tables.class_sum):
        assert column.shape == (1 << n,)
        assert not np.isnan(column).any()
    assert (floor <= tables.value).all()
    assert tables.remainder[0] == 0
    assert tables.remainder[tables.all_gpus] == 1
    assert tables.all_gpus == (1 << n) - 1
    assert (np.diff(tables.remainder[_chain(n)]) >= 0).all()


def _chain(n: int) -> list[int]:
    return [(1 << k) - 1 for k in range(n + 1)]


@given(data=st.data(), topology=built_machines(min_gpus=2, max_gpus=8))
@settings(max_examples=up_to(30))
def test_numbering_never_changes_a_value(data: st.DataObject, topology: NodeTopology) -> None:
    """Every set of the renumbered machine is worth what it was."""
    old_of = data.draw(st.permutations(range(topology.n_gpus)))
    one, other = build_tables(topology), build_tables(relabelled(topology, old_of))
    old_mask = [mask_of(old_of[gpu] for gpu in gpus_of(mask)) for mask in range(1 << one.n_gpus)]
    np.testing.assert_allclose(other.value, one.value[old_mask], atol=2e-6)
    np.testing.assert_allclose(other.remainder, one.remainder[old_mask], atol=2e-9)
    np.testing.assert_array_equal(other.value_class, one.value_class[old_mask])
    np.testing.assert_array_equal(other.is_linked, one.is_linked[old_mask])
    assert other.best_value == pytest.approx(one.best_value, abs=2e-6)


@pytest.mark.parametrize("name", ["dgx-1-v100", "8x-a6000-bridged", "summit", "dgx-2"])
def test_order_and_tie_are_a_total_order_of_each_size(name: str) -> None:
    """Equal in both, the choice between two sets would be arbitrary."""
    tables = build_tables(load_recording(name))
    for masks in mask_index(tables.n_gpus).by_size:
        keys = set(zip(tables.order[masks].tolist(), tables.tie[masks].tolist(), strict=True))
        assert len(keys) == len(masks)
        ranked = masks[np.lexsort((tables.tie[masks], tables.order[masks]))]
        classes = tables.value_class[ranked]
        assert classes[0] == 0
        assert (np.diff(classes) >= 0).all()
        for later in np.flatnonzero(np.diff(classes)) + 1:
            worst = tables.value[masks[tables.value_class[masks] == classes[later] - 1]].min()
            best = tables.value[masks[tables.value_class[masks] == classes[later]]].max()
            assert best < worst * (1 - VALUE_CLASS_GAP)


def test_the_best_value_is_of_one_model() -> None:
    """Two fast GPUs among slow ones: a loss counts from what a pod may get."""
    machine = build_machine_by_hand(3, models=[V100, H100, H100])
    tables = build_tables(machine)
    assert tables.best_value[2] == tables.value[0b110]
    assert tables.best_value[3] == tables.value[0b111] > 0


def test_more_than_16_gpus_are_refused(check_message: CheckMessage) -> None:
    """Two to the seventeenth rows; `topology.select.large` takes over before."""
    with pytest.raises(InvalidTopology) as caught:
        build_tables(build_machine_by_hand(17))
    check_message(caught.value)


def test_smaller_messages_are_slower() -> None:
    """A value is claimed for one message size, the reference one by default."""
    topology = load_recording("dgx-1-v100")
    large, small = build_tables(topology), build_tables(topology, message_bytes=1 << 20)
    assert small.message_bytes == 1 << 20
    assert (small.value[0xFF], small.value[0b11]) < (large.value[0xFF], large.value[0b11])


def test_the_demand_decides_what_is_left_behind() -> None:
    """For pods of one GPU every GPU left counts the same."""
    tables = build_tables(load_recording("dgx-1-v100"), Demand(((1, 1.0),)))
    assert tables.remainder.tolist() == [mask.bit_count() / 8 for mask in range(256)]


def _measured(*pairs: float, sets: tuple[MeasuredSet, ...] = ()) -> NodeTopology:
    names = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    return replace(
        build_machine_by_hand(4, models=[V100] * 4),
        measurement=Measurement(
            pairs=tuple(MeasuredPair(i, j, bw) for (i, j), bw in zip(names, pairs, strict=False)),
            sets=sets,
        ),
    )


def test_nodes_that_measure_alike_share_all_but_the_last_tie_break() -> None:
    """Thousands of nodes, each with figures of its own, are still one machine type."""
    one = _measured(10.0, 10.1, 10.2, 10.3, 10.2, 10.1)
    other = _measured(10.3, 10.2, 10.1, 10.0, 10.1, 10.2)
    assert topology_digest(one) == topology_digest(other)
    shared = build_tables(one)
    own = with_raw_figures(shared, other)
    built = build_tables(other)
    assert own.topology is other
    assert own.value is shared.value
    np.testing.assert_array_equal(own.value, built.value)
    np.testing.assert_array_equal(own.order, built.order)
    np.testing.assert_array_equal(own.tie, built.tie)
    np.testing.assert_array_equal(own.raw_sum, built.raw_sum)
    pairs = mask_index(4).by_size[2]
    assert pairs[own.tie[pairs].argmin()] == mask_of((0, 1))
    assert pairs[shared.tie[pairs].argmin()] == mask_of((0, 3))


def test_without_measurements_there_is_nothing_of_its_own() -> None:
    """Names and UUIDs do not enter a table."""
    tables = build_tables(load_recording("summit"))
    assert with_raw_figures(tables, load_recording("summit")) is tables


def test_a_measured_set_overrides_its_label() -> None:
    """Measured beats labelled; other sets keep theirs."""
    by_label = build_tables(_measured())
    measured = build_tables(_measured(sets=(MeasuredSet((0, 1, 2), 3.0),)))
    assert measured.value[0b0111] < by_label.value[0b0111]
    assert measured.value[0b1011] == by_label.value[0b1011]


@pytest.mark.parametrize(
    ("name", "whole"),
    [("dgx-1-v100-dead-link", "dgx-1-v100"), ("dgx-h100-lost-links", "dgx-h100")],
)
def test_a_loss_is_against_the_machine_with_all_links_up(name: str, whole: str) -> None:
    """A degraded machine is not its own measure: it would lose nothing to itself."""
    broken, healthy = build_tables(load_recording(name)), build_tables(load_recording(whole))
    assert broken.whole_value == pytest.approx(healthy.best_value)
    every = broken.all_gpus
    share = broken.value[every] / healthy.value[every]
    assert share < 0.9
    assert 1 - broken.loss[every] == pytest.approx(share)


def without(topology: NodeTopology, pairs: Sequence[tuple[int, int]]) -> NodeTopology:
    """The machine with the direct links of these pairs down."""
    links = [list(row) for row in topology.links]
    for i, j in pairs:
        links[i][j] = links[j][i] = NO_LINK
    return replace(topology, links=tuple(map(tuple, links)))


def test_more_links_down_never_look_less_degraded_to_all_gpus() -> None:
    """Also where the counts leave several ways to put them back, and where a GPU is cut off."""
    whole = load_recording("dgx-1-v100")
    for down in ([(2, 6), (3, 7), (0, 1)], [(0, 1), (0, 2), (0, 3), (0, 4)]):
        tables = [build_tables(without(whole, down[:n])) for n in range(len(down) + 1)]
        losses = [one.loss[-1] for one in tables]
        assert losses == sorted(losses)
        assert losses[0] == 0
        assert losses[1] > 0.3


def test_a_healthy_set_loses_nothing_to_links_that_the_product_never_had() -> None:
    """A pair got a third link by the way that was taken, and every whole pair lost a third."""
    whole = load_recording("dgx-1-v100")
    intact = np.array(build_tables(whole).best_value)
    pairs = [(i, j) for i, j in combinations(range(8), 2) if whole.links[i][j].is_up]
    for down in combinations(pairs, 2):
        assert (np.array(build_tables(without(whole, down)).whole_value) <= intact + 1e-6).all()


def test_a_measured_machine_is_compared_by_what_the_links_would_add() -> None:
    """A figure that was measured scales with them; it does not hide that they are down."""
    topology = load_recording("dgx-h100-lost-links")
    pair = Measurement((MeasuredPair(0, 1, 300.0),))
    plain, measured = build_tables(topology), build_tables(replace(topology, measurement=pair))
    assert measured.loss[-1] == pytest.approx(plain.loss[-1])
    assert plain.loss[-1] > 0.1
