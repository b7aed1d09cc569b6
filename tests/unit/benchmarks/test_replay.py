"""The replay: waiting, and the goals on the measured V100 node."""

from __future__ import annotations

import pytest

from benchmarks.measured import MeasuredMachine, load_machines, topology_from_labels
from benchmarks.quality import replay
from benchmarks.quality.queues import Job, load_queue

# Two bridged pairs.
LABELS = [
    ["X", "NV2", "SYS", "SYS"],
    ["NV2", "X", "SYS", "SYS"],
    ["SYS", "SYS", "X", "NV2"],
    ["SYS", "SYS", "NV2", "X"],
]


@pytest.fixture
def machine():
    """A bridged pair measures 40 GB/s, everything else 5."""
    topology = topology_from_labels(LABELS, model="Tesla V100-SXM2-32GB", is_switched=False)
    bridged = {0b0011, 0b1100}
    measured = {m: 40.0 if m in bridged else 5.0 for m in range(16) if m.bit_count() >= 2}
    return MeasuredMachine("small", topology, measured, None)


def test_waiting_trades_makespan_for_bandwidth(machine, rows_of):
    """A sensitive pair gets what is there at once, or a bridge a while later."""
    queue = (
        Job(2, 10, is_sensitive=False),
        Job(1, 3, is_sensitive=False),
        Job(1, 3, is_sensitive=False),
        Job(2, 10, is_sensitive=True),
    )
    for table in replay.run(machine, [queue], n_orders=3):
        rows = rows_of(table, 2)
        for name in ("Coterie", "NVIDIA best-effort", "plain kubelet (random ids)"):
            waits = rows[name, "waits"]
            assert waits[3] >= rows[name, "takes what is there"][3]
        assert rows["Coterie", "waits"][:3] == (40.0, pytest.approx(40.0), 0.0)


def test_every_policy_is_there_with_and_without_waiting(machine):
    """Rivals, oracle and Coterie, twice, relabelled and as the machine numbers its GPUs."""
    tables = replay.run(machine, [(Job(2, 1, is_sensitive=True),)], n_orders=1)
    assert [len(table.rows) for table in tables] == [12, 12]


@pytest.mark.shared
def test_goals(shared, rows_of):
    """Mean and harmonic GB/s over five queues; four tie orders stand for twenty."""
    machine = next(m for m in load_machines(shared) if m.name == "V100")
    names = [f"jobs-300-g2to5-seed{seed}.txt" for seed in range(5)]
    queues = [load_queue(shared / "mapa" / "jobs" / name) for name in names]
    table, _ = replay.run(machine, queues, n_orders=4)
    rows = rows_of(table, 2)
    mean, harmonic, *_ = rows["Coterie", "takes what is there"]
    assert mean >= 48.2
    assert harmonic >= 43.7
    mean, harmonic, *_ = rows["Coterie", "waits"]
    assert mean >= 48.4
    assert harmonic >= 45.0
