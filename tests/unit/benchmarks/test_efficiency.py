"""Efficiency: the definition on a node worked out by hand, and the goals on the real ones."""

from __future__ import annotations

import pytest

from benchmarks.masks import subsets_of_size
from benchmarks.measured import MeasuredMachine, load_machines, topology_from_labels
from benchmarks.quality import efficiency
from benchmarks.quality.efficiency import CaseTable, expectation, measure

LABELS = [["X" if i == j else "NV1" for j in range(5)] for i in range(5)]


@pytest.fixture
def machine():
    """Five alike GPUs; the pair 0-1 is twice as fast as any other set."""
    topology = topology_from_labels(LABELS, model="Tesla V100-SXM2-32GB", is_switched=False)
    measured = {m: 20.0 if m == 0b11 else 10.0 for m in range(32) if m.bit_count() >= 2}
    return MeasuredMachine("small", topology, measured, None)


def test_mean_over_sizes_of_means_over_free_sets(machine):
    """8 of 26 free sets hold the fast pair; a policy that takes it only when forced loses half."""

    def slowest(free, size):
        return subsets_of_size(free, size)[-1]

    found = measure(CaseTable(machine), slowest)
    n_losing = 7  # with 0-1 alone free there is no other pair to take
    assert found.mean == pytest.approx(((26 - n_losing / 2) / 26 + 3) / 4)
    assert found.worst == 0.5
    assert found.n_refused == 0


def test_refusals_are_counted_and_left_out(machine):
    """A policy that takes only pairs refuses all 23 cases of 3, 4 and 5 GPUs."""

    def pairs_only(free, size):
        return subsets_of_size(free, size)[0] if size == 2 else None

    found = measure(CaseTable(machine), pairs_only)
    assert (found.mean, found.worst, found.n_refused) == (1.0, 1.0, 16 + 6 + 1)


def test_expectation_weighs_every_candidate(machine):
    """Drawing evenly, the full machine's pair is the fast one in 1 of 10 draws."""
    found = expectation(CaseTable(machine), subsets_of_size)
    assert found.worst == 0.5
    assert 0.5 < found.mean < 1.0


def test_run_names_every_policy_once(machine):
    """One row per policy, two columns per machine."""
    (table,) = efficiency.run([machine], n_relabellings=1)
    names = [row[0] for row in table.rows]
    assert len(names) == len(set(names)) == 6
    assert {len(row) for row in table.rows} == {3}


@pytest.mark.shared
def test_goals(shared, rows_of):
    """Labels alone and with measured pairs reach the goals; two relabellings stand for twenty."""
    machines = load_machines(shared)
    (table,) = efficiency.run(machines, n_relabellings=2)
    rows = rows_of(table)
    random = rows[efficiency.RANDOM]
    v100, _, a6000, _, h100, _ = rows[efficiency.LABELS]
    assert v100 >= 0.995
    assert a6000 >= 0.996
    assert h100 >= random[4] - 0.001
    v100, v100_worst, a6000, _, h100, _ = rows[efficiency.MEASURED_PAIRS]
    assert min(v100, a6000, h100) >= 0.997
    assert v100_worst >= 0.75
    filled = rows[efficiency.FILLED]
    assert filled[0] > rows["NVIDIA best-effort"][0]
    assert filled[2:] == (None,) * 4
    assert random[0] == pytest.approx(0.7014, abs=1e-4)
    assert random[2] == pytest.approx(0.7938, abs=1e-4)
