"""Benchmarks that start processes of their own, at their smallest."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.speed import reads
from benchmarks.speed.calls import measure_http
from benchmarks.speed.load import QUICK

TINY = replace(QUICK, n_names=(8, 4), n_pods=20, n_requests=6, n_beside=4)


def test_calls_are_measured_beside_a_trivial_extender():
    """Each length of NodeNames has its own fresh process."""
    table = measure_http(TINY, 0)
    assert [row[:2] for row in table.rows] == [
        (f"{what}, {n_names} names", TINY.n_requests)
        for n_names in TINY.n_names
        for what in ("filter of a trivial extender", "filter", "prioritize")
    ]
    times = [[float(str(one)) for one in row[2:5]] for row in table.rows]
    assert all(0 < p50 <= p99 <= most for p50, p99, most in times)
    assert "20 GPU pods bound" in " ".join(table.notes)


def test_calls_are_measured_with_and_without_a_reader():
    """Each verb at each pace, beside a reader and without one."""
    (table,) = reads.run(TINY)
    assert [row[:2] for row in table.rows] == [
        (f"{verb}, {pace}, {kind}", TINY.n_beside)
        for pace in reads.PACES
        for verb in ("filter", "prioritize")
        for kind in reads.KINDS
    ]
    assert any("rounds; without entity tags" in note for note in table.notes)
