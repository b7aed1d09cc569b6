"""The streams: which machines each order of nodes takes, and what the notes say of it."""

from __future__ import annotations

import pytest

from benchmarks.fleet import streams
from benchmarks.fleet.node_choice import CoterieNodes, MachineType
from benchmarks.fleet.streams import BY_LOSS, BY_SPEED, broken_quads, mixed, ties
from topology.recordings import load_recording
from topology.select import build_tables


@pytest.fixture(scope="module")
def tied():
    """Four pairs on two machines of each type."""
    return ties(n_each=2, n_pods=4, seed=0)


@pytest.fixture(scope="module")
def broken():
    """Three pods of each size on two machines of each type."""
    return broken_quads(n_each=2, n_pods=3, seed=0)


@pytest.mark.parametrize(
    ("policy", "n_fast", "n_slow", "whole"),
    [(BY_LOSS, 0, 8, (2, 1)), (BY_SPEED, 8, 0, (1, 2))],
)
def test_where_loss_ties_the_cheaper_gpus_go_first(tied, rows_of, policy, n_fast, n_slow, whole):
    """Eight GPUs taken, all of one machine: a V100 machine, or by GB/s an H100 machine."""
    mean, worst, *taken, whole_fast, whole_slow = rows_of(tied)[policy]
    assert (mean, worst) == (1.0, 1.0)
    assert taken == [n_fast, n_slow]
    assert (whole_fast, whole_slow) == whole


def test_the_note_says_why_in_figures_of_this_run(tied):
    """Loss ties at 0; a pair costs an H100 machine less of its remainder, which is worth more."""
    costs, weighed = [], []
    for name in ("dgx-h100", "dgx-1-v100"):
        topology = load_recording(name)
        machine = MachineType(name, topology, build_tables(topology))
        fit = CoterieNodes().fit(machine, 0xFF, 2)
        assert fit is not None
        assert fit.worst.loss == 0
        costs.append(fit.remainder_cost_gpus)
        weighed.append(machine.worth * fit.remainder_cost_gpus)
        shown = f"loss 0.00, remainder cost {fit.remainder_cost_gpus:.2f} GPU-equivalents"
        assert f"{shown}, a GPU's worth {machine.worth:.2f}" in tied.notes[1]
    assert costs[0] < costs[1]
    assert weighed[0] > weighed[1]


def test_small_pods_of_a_mixed_fleet_leave_the_fastest_machines_whole(rows_of):
    """By loss every job gets H100s; where pairs go by GB/s, none is left whole for the second."""
    rows = rows_of(mixed(n_each=2, n_pods=8, seed=0))
    of_best, *taken, n_whole, n_fast, n_unfit = rows[BY_LOSS]
    assert of_best == 1.0
    assert (taken[0], sum(taken), n_whole, n_fast, n_unfit) == (0, 24, 2, 2, 0)
    _, *taken, n_whole, n_fast, _ = rows[BY_SPEED]
    assert (taken[0], n_whole, n_fast) == (16, 0, 0)


def test_every_pair_is_counted(tied, rows_of):
    """GPUs taken add up in every row, the rival's too."""
    assert [cells[2] + cells[3] for cells in rows_of(tied).values()] == [8, 8, 8]


def test_by_loss_no_quad_is_taken_from_broken_machines(broken, rows_of):
    """By loss the fours go to A6000s at their best; by GB/s to V100s at half of theirs."""
    on_v100, no_room, by_loss, of_best, *_ = rows_of(broken)[BY_LOSS]
    assert (on_v100, no_room, of_best) == (0, 0, 1.0)
    on_v100, no_room, by_speed, of_best, *_ = rows_of(broken)[BY_SPEED]
    assert (on_v100, no_room) == (2, 0)
    assert of_best < 0.8
    assert by_loss < by_speed


def test_what_loss_spares_serves_the_next_pods(broken, rows_of):
    """The threes find V100 triangles by loss, and none left by GB/s: A6000s have no such ring."""
    *_, on_v100, no_room, by_loss, _ = rows_of(broken)[BY_LOSS]
    assert (on_v100, no_room) == (3, 0)
    *_, on_v100, no_room, by_speed, _ = rows_of(broken)[BY_SPEED]
    assert (on_v100, no_room) == (0, 0)
    assert by_loss > 1.5 * by_speed


def test_pods_that_fit_nowhere_are_counted(rows_of):
    """Two machines hold three fours at most, and then no three more: no mean of nothing."""
    rows = rows_of(broken_quads(n_each=1, n_pods=4, seed=0))
    assert {cells[1] for cells in rows.values()} == {1}
    assert {cells[4:] for cells in rows.values()} == {(0, 4, None, None)}


def test_run_makes_all_tables():
    """One row per policy, as many cells as columns."""
    tables = streams.run()
    assert [len(table.rows) for table in tables] == [3, 3, 3]
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
