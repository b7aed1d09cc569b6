"""Slow tests are found however busy the machine is, and quick ones are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow_tests import Stopwatch, excess

ROOT = Path(__file__).resolve().parents[2]
BEGUN = Stopwatch(wall_s=100.0, processor_s=10.0, stalled_s=50.0)


@pytest.mark.parametrize(
    ("end", "cost_s"),
    [
        pytest.param(Stopwatch(101.0, 11.0, 50.0), 1.0, id="computes on an idle machine"),
        pytest.param(Stopwatch(120.0, 13.0, 69.0), 3.0, id="computes on a busy machine"),
        pytest.param(Stopwatch(103.0, 10.0, 50.0), 3.0, id="waits on an idle machine"),
        pytest.param(Stopwatch(120.0, 10.1, 69.5), 0.5, id="is kept waiting by other programs"),
        pytest.param(Stopwatch(120.0, 10.1, None), 0.1, id="no pressure stall information"),
    ],
)
def test_the_cost_is_what_an_idle_machine_would_need(end, cost_s):
    """The larger of processor time and of waiting that no other program explains."""
    assert BEGUN.cost_s(end) == pytest.approx(cost_s)


def test_a_slow_machine_has_more_time():
    """The limit is that of the reference machine."""
    now = Stopwatch.start()
    begun = Stopwatch(now.wall_s, now.processor_s - 4.5, now.stalled_s)
    found = excess(begun, slowness=1.0)
    assert found is not None
    assert "took 4." in found
    assert excess(begun, slowness=8.0) is None


def test_a_clock_that_a_test_replaces_does_not_count(monkeypatch):
    """Its fixtures put the true one back only after it was judged."""
    begun = Stopwatch.start()
    monkeypatch.setattr("time.monotonic", lambda: begun.wall_s + 1000.0)
    assert excess(begun) is None


@pytest.mark.slow("runs pytest as a process")
@pytest.mark.parametrize(
    ("mark", "environment", "expected"),
    [
        pytest.param("", {}, "took 1.", id="no mark"),
        pytest.param("@pytest.mark.slow('computes')", {}, "1 passed", id="a mark with its reason"),
        pytest.param("@pytest.mark.slow", {}, "expected @pytest.mark.slow", id="no reason"),
        pytest.param("", {"COTERIE_SLOW_TESTS": "allow"}, "1 passed", id="turned off"),
    ],
)
def test_a_slow_test_needs_a_mark_with_a_reason(tmp_path, mark, environment, expected):
    """What each developer sees."""
    path = tmp_path / "test_it.py"
    path.write_text(
        "import pytest, tests.slow_tests, time\n"
        "tests.slow_tests.LIMIT_S = 0.05\n"
        "tests.slow_tests.machine_slowness = lambda: 1.0\n"
        f"{mark}\n"
        "def test_it():\n"
        "    end = time.process_time() + 1.0\n"
        "    while time.process_time() < end: pass\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path)),
            *("-p", "tests.conftest", "-p", "no:cacheprovider", str(path)),
        ],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout + done.stderr
