"""Fidelity: how far the value of a set is from what was measured.

Reports, over all 247 sets of each measured node at the data's own message size, the rank
correlation (Spearman) of value and measurement, the median relative error, the same with the
model's constants fitted on the other machines only, and the error by what limits a set, which is
what `min-bandwidth` subtracts.

Rank. A value is a figure in classes, so sets often tie; ties are broken as the order of preference
breaks them (`_rank_key`), before the correlation is taken; what still ties shares its mean rank.

Fit. Coordinate search over the constants, each scaled up and down in shrinking steps, for the least
mean absolute log error, every machine weighing the same. It starts from `NEUTRAL`, which holds no
figure that comes from a measured node, so that a held-out machine cannot leak in by a default;
constants that the other machines do not identify stay there.

Message size: the H100 figures are at 16 MiB; the other two state none and are taken to be the same
(their source measures 16 MiB wherever it says so).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measured import SOURCE_NOTE
from benchmarks.report import ResultTable
from topology.model import (
    DEFAULT_CONSTANTS,
    FITTED_MESSAGE_BYTES,
    ModelConstants,
    PcieLevel,
    gpus_of,
)
from topology.select import build_tables
from topology.value import STATED_ERROR, Demand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.measured import MeasuredMachine
    from benchmarks.report import Cell
    from topology.select import MachineTables

__all__ = ["NEUTRAL", "Fidelity", "compare", "fit_constants", "run", "spearman"]

NEUTRAL = ModelConstants(
    relay_share=1.0,
    mesh_a=0.0,
    switch_a=0.0022,
    pcie_a=0.0,
    in_switch_gain=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.29),
    staging_share=1.0,
    pcie_scale=1.0,
    socket_scale=1.0,
)
"""Published figures, nothing of a measured node: relaying reaches the minimum cut (Edmonds 1973),
start-up costs nothing, but through a switch, as Azure's ND H100 v5 shows (8 GPUs, 234 GB/s at
16 MB and 479 at 8 GB against 18 x 20.6 of the links; Azure/AI-benchmarking-guide@8fd0c6e)."""

FITTED = ("relay_share", "mesh_a", "switch_a", "pcie_a", "pcie_scale", "socket_scale")
FIRST_STEPS = {"mesh_a": 0.002, "switch_a": 0.001, "pcie_a": 0.002}
"""First step of a constant whose neutral value is 0; the others start with a quarter of theirs."""
MOST = {"relay_share": 1.0}
"""Constants with an upper bound: nothing beats the minimum cut."""
NO_DEMAND = Demand(((1, 1.0),))
"""The remainder plays no part here; one demand keeps the tables cheap."""
N_ROUNDS = 30
LAST_STEP = 1 / 128
LEAST_GAIN = 1e-6


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Agreement on one machine: Spearman's rho and the relative errors of its sets."""

    spearman: float
    median_error: float
    errors: NDArray[np.float64]
    limits: NDArray[np.int8]


def _mean_ranks(keys: Sequence[tuple[float, ...]]) -> NDArray[np.float64]:
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ranks = np.zeros(len(keys))
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and keys[order[end]] == keys[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = (start + end - 1) / 2
        start = end
    return ranks


def spearman(first: Sequence[tuple[float, ...]], second: Sequence[tuple[float, ...]]) -> float:
    """Rank correlation of two lists of sort keys; equal keys share their mean rank.

    >>> spearman([(1.0,), (2.0,), (3.0,)], [(10.0,), (20.0,), (30.0,)])
    1.0
    """
    a, b = _mean_ranks(first), _mean_ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else 0.0


def _rank_key(tables: MachineTables, mask: int) -> tuple[float, ...]:
    """Order of preference across sizes: value, then the tie-breaks of `topology.select.tables`.

    These are accelerator bandwidth per GPU, then mean PCIe closeness of the set's pairs.
    """
    pairs = list(combinations(gpus_of(mask), 2))
    farthest = PcieLevel.UNKNOWN.rank
    closeness = sum(farthest - tables.topology.pcie[i][j].rank for i, j in pairs) / len(pairs)
    return (float(tables.value[mask]), float(tables.class_sum[mask]), round(closeness, 6))


def compare(machine: MeasuredMachine, constants: ModelConstants = DEFAULT_CONSTANTS) -> Fidelity:
    """Compare every set of a machine with its value at the measured message size."""
    masks = sorted(machine.gbytes_per_s)
    measured = np.array([machine.gbytes_per_s[mask] for mask in masks])
    tables = _tables(machine, constants)
    value = tables.value[masks]
    errors = np.abs(value - measured) / measured
    keys = [_rank_key(tables, mask) for mask in masks]
    return Fidelity(
        spearman(keys, [(bandwidth,) for bandwidth in measured.tolist()]),
        float(np.median(errors)),
        errors,
        tables.limit[masks],
    )


def _tables(machine: MeasuredMachine, constants: ModelConstants) -> MachineTables:
    message_bytes = machine.message_bytes or FITTED_MESSAGE_BYTES
    return build_tables(
        machine.topology, NO_DEMAND, constants=constants, message_bytes=message_bytes
    )


def _log_error(machine: MeasuredMachine, constants: ModelConstants) -> float:
    masks = sorted(machine.gbytes_per_s)
    measured = np.array([machine.gbytes_per_s[mask] for mask in masks])
    return float(np.abs(np.log(_tables(machine, constants).value[masks] / measured)).mean())


def fit_constants(
    machines: Sequence[MeasuredMachine], start: ModelConstants = NEUTRAL
) -> ModelConstants:
    """Fit the constants on some machines by coordinate search; deterministic.

    A constant is done when its step, halved at each failure, has become `LAST_STEP` of its first.
    At most `N_ROUNDS` rounds of two trials per constant, each a table of 2**n values per machine.
    """
    first = {name: FIRST_STEPS.get(name, 0.25 * float(getattr(start, name))) for name in FITTED}
    steps = dict(first)
    best, error = start, _mean_log_error(machines, start)
    for _ in range(N_ROUNDS):
        for name in FITTED:
            if steps[name] < LAST_STEP * first[name]:
                continue
            for trial in _neighbours(best, name, steps[name]):
                trial_error = _mean_log_error(machines, trial)
                if trial_error < error - LEAST_GAIN:
                    best, error = trial, trial_error
                    break
            else:
                steps[name] /= 2
    return best


def _neighbours(constants: ModelConstants, name: str, step: float) -> list[ModelConstants]:
    """The constants with one of them a step up and a step down, where that is inside its bounds."""
    now = float(getattr(constants, name))
    up, down = min(now + step, MOST.get(name, math.inf)), max(now - step, 0.0)
    is_rate = name not in FIRST_STEPS  # a share or scale of 0 is no model
    changes: list[dict[str, Any]] = [
        {name: value} for value in (up, down) if value != now and not (is_rate and value == 0.0)
    ]
    return [replace(constants, **change) for change in changes]


def _mean_log_error(machines: Sequence[MeasuredMachine], constants: ModelConstants) -> float:
    return float(np.mean([_log_error(machine, constants) for machine in machines]))


def _constants_text(constants: ModelConstants) -> str:
    return ", ".join(f"{name} {getattr(constants, name):.4g}" for name in FITTED)


def _by_limit(found: Mapping[str, Fidelity]) -> tuple[tuple[Cell, ...], ...]:
    """Errors by limit, each machine and then all machines with sets so limited."""
    rows: list[tuple[Cell, ...]] = []
    for limit in STATED_ERROR:
        errors = {name: one.errors[one.limits == limit] for name, one in found.items()}
        shown = {name: some for name, some in errors.items() if len(some)}
        if len(shown) > 1:
            shown["all"] = np.concatenate(list(shown.values()))
        rows += [
            (
                limit.name.lower(),
                name,
                len(some),
                100 * float(np.median(some)),
                100 * float(np.quantile(some, 0.9)),
                100 * STATED_ERROR[limit],
            )
            for name, some in shown.items()
        ]
    return tuple(rows)


def run(machines: Sequence[MeasuredMachine]) -> tuple[ResultTable, ...]:
    """Compare every machine, with the model's constants and with those of the other machines."""
    own = [compare(machine) for machine in machines]
    rows: list[tuple[Cell, ...]] = []
    notes = [
        SOURCE_NOTE,
        "values at 16 MiB: the H100 measurements state that size, the others state none",
        "first two figures: the model's constants, fitted on these nodes too",
        "others' fit: constants fitted on the other two nodes only",
    ]
    for machine, fidelity in zip(machines, own, strict=True):
        others = [other for other in machines if other is not machine]
        fitted = fit_constants(others)
        elsewhere = compare(machine, fitted)
        rows.append(
            (
                machine.name,
                len(fidelity.errors),
                fidelity.spearman,
                100 * fidelity.median_error,
                elsewhere.spearman,
                100 * elsewhere.median_error,
            )
        )
        notes.append(f"without {machine.name}: {_constants_text(fitted)}")
    agreement = ResultTable(
        "Fidelity of the value",
        ("machine", "sets", "Spearman", "median error %", "Spearman, others' fit", "median %"),
        tuple(rows),
        tuple(notes),
    )
    found = {machine.name: fidelity for machine, fidelity in zip(machines, own, strict=True)}
    by_limit = ResultTable(
        "Error by what limits the set",
        ("limited by", "machine", "sets", "median error %", "90th percentile %", "stated %"),
        _by_limit(found),
        (SOURCE_NOTE, "stated: what `min-bandwidth` subtracts of a value with that limit"),
        digits=1,
    )
    return agreement, by_limit
