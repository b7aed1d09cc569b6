"""Fidelity: rank correlation, errors by limit, and that a fit finds what made the data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.measured import MeasuredMachine, topology_from_labels
from benchmarks.quality import fidelity
from benchmarks.quality.fidelity import NEUTRAL, compare, fit_constants, spearman
from topology.model import DEFAULT_CONSTANTS, FITTED_MESSAGE_BYTES
from topology.select import build_tables

LABELS = [
    ["X", "NV1", "NV2", "SYS"],
    ["NV1", "X", "NV1", "SYS"],
    ["NV2", "NV1", "X", "NV2"],
    ["SYS", "SYS", "NV2", "X"],
]


def machine_made_with(constants, name="made"):
    """A node that measures exactly what the model says with some constants."""
    topology = topology_from_labels(LABELS, model="Tesla V100-SXM2-32GB", is_switched=False)
    tables = build_tables(topology, constants=constants, message_bytes=FITTED_MESSAGE_BYTES)
    measured = {m: float(tables.value[m]) for m in range(16) if m.bit_count() >= 2}
    return MeasuredMachine(name, topology, measured, FITTED_MESSAGE_BYTES)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param([1, 2, 3], [2, 4, 9], 1.0, id="same order"),
        pytest.param([1, 2, 3], [3, 2, 1], -1.0, id="reversed"),
        pytest.param([1, 1, 2], [1, 2, 3], 0.866, id="equal keys share their mean rank"),
        pytest.param([1, 1, 1], [1, 2, 3], 0.0, id="no order at all"),
    ],
)
def test_spearman(first, second, expected):
    """Known values, ties included."""
    keys = [[(float(x),) for x in column] for column in (first, second)]
    assert spearman(*keys) == pytest.approx(expected, abs=1e-3)


def test_a_perfect_model_has_no_error():
    """The values themselves as measurement: no error, rho 1."""
    found = compare(machine_made_with(DEFAULT_CONSTANTS))
    assert found.median_error == pytest.approx(0.0, abs=1e-6)
    assert found.spearman > 0.95


def test_a_fit_finds_the_constants_that_made_the_data():
    """Starting from nothing fitted, the search comes back to what the data was made with."""
    made_with = replace(NEUTRAL, relay_share=0.6, mesh_a=0.005)
    fitted = fit_constants([machine_made_with(made_with)])
    assert fitted.relay_share == pytest.approx(0.6, rel=0.05)
    assert fitted.mesh_a == pytest.approx(0.005, rel=0.1)


def test_run_reports_each_machine_and_limit(rows_of):
    """One row per machine, fitted on the others, and errors by what limits the sets."""
    machines = [machine_made_with(DEFAULT_CONSTANTS, name) for name in ("first", "second")]
    agreement, by_limit = fidelity.run(machines)
    assert [row[0] for row in agreement.rows] == ["first", "second"]
    assert {row[1] for row in by_limit.rows} == {"first", "second", "all"}
    assert sum(cells[0] for key, cells in rows_of(by_limit, 2).items() if key[1] == "first") == 11
